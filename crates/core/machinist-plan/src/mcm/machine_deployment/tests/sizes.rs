//! How many Machines each set gets: alone, in a rollout, scaled in the middle of one, paused.

use serde_json::{Value, json};

use super::{RUNNING, world};

/// A set that was last sized when the deployment wanted so many, and might have one more.
fn sized_for(desired: u32) -> impl Fn(&mut Value) + Copy {
    move |set| {
        let annotations = &mut set["metadata"]["annotations"];
        annotations["deployment.kubernetes.io/desired-replicas"] = desired.to_string().into();
        annotations["deployment.kubernetes.io/max-replicas"] = (desired + 1).to_string().into();
    }
}

#[test]
fn a_set_that_is_alone_is_scaled_at_once() {
    for (replicas, expected) in [(5, 5), (3, 3), (1, 1), (0, 0)] {
        let world = world(replicas).set("w-1", "c", 3, &[RUNNING, RUNNING, "Terminating"]);
        assert_eq!(world.sizes(), [expected]);
    }
}

#[test]
fn a_rollout_of_three_step_by_step() {
    for (old, old_phases, new, new_phases, expected, reason) in [
        (3, vec![RUNNING; 3], 0, vec![], [3, 1], "the rollout: 0 of 3 machines are of the new template"),
        (
            3,
            vec![RUNNING; 3],
            1,
            vec!["Pending"],
            [3, 1],
            "room for one more machine: 4 exist, maxSurge allows 4; the first to wait for is n-0",
        ),
        (
            3,
            vec![RUNNING; 3],
            1,
            vec![RUNNING],
            [2, 1],
            "the rollout: 1 of 3 machines is of the new template",
        ),
        (
            2,
            vec![RUNNING, RUNNING, "Terminating"],
            1,
            vec![RUNNING],
            [2, 1],
            "room for one more machine: 4 exist, maxSurge allows 4; the first to wait for is o-2",
        ),
        (
            2,
            vec![RUNNING; 2],
            1,
            vec![RUNNING],
            [2, 2],
            "the rollout: 1 of 3 machines is of the new template",
        ),
        (
            1,
            vec![RUNNING; 1],
            2,
            vec![RUNNING; 2],
            [1, 3],
            "the rollout: 2 of 3 machines are of the new template",
        ),
        (
            1,
            vec![RUNNING; 1],
            3,
            vec![RUNNING; 3],
            [0, 3],
            "the rollout: 3 of 3 machines are of the new template",
        ),
        (0, vec!["Terminating"], 3, vec![RUNNING; 3], [0, 3], "1 machine to go; the first is o-0"),
        (0, vec![], 3, vec![RUNNING; 3], [0, 3], "nothing: it is as it should be"),
    ] {
        let world = world(3).set("o", "b", old, &old_phases).set("n", "c", new, &new_phases);
        assert_eq!((world.sizes(), world.reason()), (expected.to_vec(), reason.to_owned()));
    }
}

#[test]
fn without_surge_an_old_machine_goes_first() {
    let world = |old, old_phases: &[&str], new, new_phases: &[&str]| {
        let world = world(3).bounds(json!(0), json!(1));
        world.set("o", "b", old, old_phases).set("n", "c", new, new_phases)
    };
    assert_eq!(world(3, &[RUNNING; 3], 0, &[]).sizes(), [2, 0]);
    let leaving = world(2, &[RUNNING, RUNNING, "Terminating"], 0, &[]);
    assert_eq!(leaving.sizes(), [2, 0], "its instance still takes the room");
    assert_eq!(
        leaving.reason(),
        "room for one more machine: 3 exist, maxSurge allows 3; the first to wait for is o-2"
    );
    assert_eq!(world(2, &[RUNNING; 2], 0, &[]).sizes(), [2, 1]);
    let pending = world(2, &[RUNNING; 2], 1, &["Pending"]);
    assert_eq!(pending.sizes(), [2, 1]);
}

#[test]
fn old_machines_that_are_of_no_use_go_first() {
    let world = world(3).bounds(json!(1), json!(1));
    let world = world.set("o", "a", 2, &[RUNNING; 2]).set("p", "b", 1, &["Unknown"]).set("n", "c", 0, &[]);
    assert_eq!(world.sizes(), [2, 0, 1]);
}

#[test]
fn a_template_that_never_works_does_not_empty_the_old_set() {
    let world = world(3).bounds(json!(1), json!(1)).set("o", "b", 2, &[RUNNING; 2]);
    let world = world.set("n", "c", 2, &["CrashLoopBackOff", "Pending"]);
    assert_eq!(world.sizes(), [2, 2]);
}

#[test]
fn percentages_round_up_for_surge_and_down_for_what_may_be_missing() {
    let world =
        world(10).bounds(json!("25%"), json!("25%")).set("o", "b", 10, &[RUNNING; 10]).set("n", "c", 0, &[]);
    assert_eq!(world.sizes(), [8, 3]);
}

#[test]
fn growing_in_the_middle_of_a_rollout_is_the_new_sets() {
    let scaled = sized_for(3);
    let world = world(6).set_with("o", "b", 2, &[RUNNING, RUNNING, "Terminating"], scaled).set_with(
        "n",
        "c",
        2,
        &[RUNNING; 2],
        scaled,
    );
    assert_eq!(world.sizes(), [2, 4], "7 may exist, 5 do");
}

#[test]
fn shrinking_in_the_middle_of_a_rollout_is_shared_but_keeps_enough_available() {
    let scaled = sized_for(10);
    let world = |replicas, new_phases: &[&str]| {
        let world = world(replicas).bounds(json!(1), json!(1));
        world.set_with("o", "b", 6, &[RUNNING; 6], scaled).set_with("n", "c", 4, new_phases, scaled)
    };
    assert_eq!(world(5, &[RUNNING; 4]).sizes(), [3, 3]);
    // By share the old set would be left with 3, and 4 must be available.
    assert_eq!(world(5, &["Pending"; 4]).sizes(), [4, 2]);
    assert_eq!(world(0, &["Pending"; 4]).sizes(), [0, 0]);
}

/// Three sets in the middle of a rollout; the last is the new one.
fn three(replicas: u32, sizes: [u32; 3], desired: u32) -> super::World {
    let sized = move |set: &mut Value| {
        let annotations = &mut set["metadata"]["annotations"];
        annotations["deployment.kubernetes.io/desired-replicas"] = desired.to_string().into();
        annotations["deployment.kubernetes.io/max-replicas"] = (desired + 2).to_string().into();
    };
    let running = |count: u32| vec![RUNNING; count as usize];
    let world = world(replicas).bounds(json!(2), json!(0));
    let world = world.set_with("o", "a", sizes[0], &running(sizes[0]), sized);
    let world = world.set_with("p", "b", sizes[1], &running(sizes[1]), sized);
    world.set_with("n", "c", sizes[2], &running(sizes[2]), sized)
}

/// T-90, T-91 and T-92 of the specification.
#[test]
fn sets_shrink_in_proportion_to_their_sizes() {
    assert_eq!(three(10, [1, 3, 5], 7).sizes(), [1, 3, 8]);
    assert_eq!(three(3, [1, 3, 5], 7).sizes(), [1, 2, 2]);
    assert_eq!(three(5, [1, 3, 6], 8).sizes(), [1, 2, 4]);
    assert_eq!(three(0, [1, 3, 6], 8).sizes(), [0, 0, 0]);
}

#[test]
fn a_set_without_its_annotation_shrinks_by_the_status() {
    let mut world = three(5, [1, 3, 6], 8).field("/status", json!({"replicas": 10}));
    world.sets[0].0["metadata"]["annotations"] = json!({});
    assert_eq!(world.sizes(), [1, 2, 4]);
}

#[test]
fn sets_shrink_first_by_machines_that_were_chosen() {
    let mut world = three(9, [1, 3, 6], 8);
    world.deployment["spec"]["replicas"] = 7.into();
    // 9 may exist and 10 do. In proportion the largest set would lose one.
    world.sets[1].1[2]["metadata"]["annotations"] = json!({
        "machinepriority.machine.sapcloud.io": "1",
        "machine.sapcloud.io/marked-for-deletion-time": super::at(-10).to_string(),
    });
    assert_eq!(world.sizes(), [1, 2, 6]);
}

// === Machines that are updated in place ===

/// A rollout whose next step is due, with a Machine in that phase.
fn updating(phase: &'static str) -> super::World {
    world(3).set("o", "b", 3, &[RUNNING, RUNNING, phase]).set("n", "c", 1, &[RUNNING])
}

#[test]
fn a_rollout_rests_while_a_machine_is_updated_in_place() {
    for phase in ["InPlaceUpdating", "InPlaceUpdateFailed"] {
        assert_eq!(updating(phase).sizes(), [3, 1]);
        assert_eq!(
            updating(phase).reason(),
            format!("Machine o-2, which is {phase}: updates in place are not supported yet")
        );
        let without_new = world(3).set("o", "b", 3, &[RUNNING, RUNNING, phase]);
        assert_eq!(without_new.actions(), [""; 0], "no set is made either");
    }
    assert_eq!(updating(RUNNING).sizes(), [2, 1], "the step that was due");
    let mut leaving = updating("InPlaceUpdating");
    leaving.sets[0].1[2]["metadata"]["deletionTimestamp"] = super::at(-10).to_string().into();
    assert_eq!(leaving.sizes(), [2, 1], "a Machine that is being deleted holds nothing up");
}

#[test]
fn scaling_goes_on_while_a_machine_is_updated_in_place() {
    let scaled = sized_for(3);
    let phases = [RUNNING, RUNNING, "InPlaceUpdating"];
    let alone = |replicas| world(replicas).set_with("o", "b", 3, &phases, scaled);
    assert_eq!((alone(5).sizes(), alone(2).sizes()), (vec![5], vec![2]));
    let both = |replicas| {
        let world = world(replicas).set_with("o", "b", 3, &phases, scaled);
        world.set_with("n", "c", 1, &[RUNNING], scaled)
    };
    assert_eq!((both(5).sizes(), both(2).sizes()), (vec![3, 3], vec![2, 1]));
    let deleted =
        updating("InPlaceUpdating").field("/metadata/deletionTimestamp", super::at(-1).to_string().into());
    assert!(deleted.actions().contains(&"set o: delete".to_owned()));
}

#[test]
fn an_in_place_deployment_is_scaled_and_not_rolled() {
    let in_place = |replicas| {
        let strategy = json!({"type": "InPlaceUpdate", "inPlaceUpdate":
            {"maxSurge": 0, "maxUnavailable": 1, "orchestrationType": "Auto"}});
        world(replicas).field("/spec/strategy", strategy)
    };
    let sized = |set: &mut Value| {
        set["metadata"]["annotations"]["deployment.kubernetes.io/max-replicas"] = "3".into()
    };
    let scaled = in_place(5).set_with("o", "c", 3, &[RUNNING; 3], sized);
    assert_eq!(scaled.sizes(), [5]);
    assert!(
        scaled.reason().contains("spec.strategy.type InPlaceUpdate is not supported yet"),
        "{}",
        scaled.reason()
    );
    let old = in_place(3).set_with("o", "b", 3, &[RUNNING; 3], sized);
    assert_eq!(old.actions(), [""; 0], "no set is made of the new template");
}

// === pause ===

#[test]
fn a_paused_deployment_rolls_nothing_but_is_scaled() {
    let paused = |replicas| world(replicas).field("/spec/paused", true.into());
    let rolling = paused(3).set("o", "b", 3, &[RUNNING; 3]).set("n", "c", 0, &[]);
    assert_eq!(
        (rolling.sizes(), rolling.reason()),
        (vec![3, 0], "spec.paused to be set to false".to_owned())
    );
    let without_new = paused(3).set("o", "b", 3, &[RUNNING; 3]);
    assert_eq!(without_new.actions(), [""; 0]);
    let scaled = sized_for(3);
    assert_eq!(paused(5).set_with("o", "b", 3, &[RUNNING; 3], scaled).sizes(), [5]);
    let both =
        paused(6).set_with("o", "b", 2, &[RUNNING; 2], scaled).set_with("n", "c", 2, &[RUNNING; 2], scaled);
    assert_eq!(both.sizes(), [2, 5], "growth goes to the new set");
    assert_eq!(paused(3).sizes(), [0; 0]);
}

// === preserved Machines ===

/// The first Machine of the first set has failed and is preserved.
fn preserving(mut world: super::World) -> super::World {
    world.sets[0].1[0]["status"]["currentStatus"] =
        json!({"phase": "Failed", "preserveExpiryTime": super::at(100).to_string()});
    world
}

#[test]
fn a_rollout_goes_on_beside_a_preserved_machine_which_goes_last() {
    for (old, old_phases, new, new_phases, expected) in [
        (3, vec!["", RUNNING, RUNNING], 0, vec![], [3, 1]),
        (3, vec!["", RUNNING, RUNNING], 1, vec!["Pending"], [3, 1]),
        // It is not available and yet stays, so one that is available goes; no fewer are available than at the beginning.
        (3, vec!["", RUNNING, RUNNING], 1, vec![RUNNING], [2, 1]),
        (2, vec!["", RUNNING], 1, vec![RUNNING], [2, 2]),
        (2, vec!["", RUNNING], 2, vec![RUNNING; 2], [1, 2]),
        (1, vec![""], 3, vec![RUNNING, RUNNING, "Pending"], [1, 3]),
        (1, vec![""], 3, vec![RUNNING; 3], [0, 3]),
    ] {
        let world = preserving(world(3).set("o", "b", old, &old_phases).set("n", "c", new, &new_phases));
        assert_eq!(world.sizes(), expected.to_vec(), "{old_phases:?} {new_phases:?}");
    }
}

#[test]
fn a_preserved_machine_is_not_what_makes_shrinking_harmless() {
    let scaled = sized_for(10);
    let world = world(5).bounds(json!(1), json!(1));
    let world = world.set_with("o", "b", 6, &["", RUNNING, RUNNING, RUNNING, RUNNING, RUNNING], scaled);
    let world = preserving(world.set_with("n", "c", 4, &["Pending"; 4], scaled));
    // 4 must be available, less the one that is kept: 3 of the old set, beside the one that is kept.
    assert_eq!(world.sizes(), [4, 2]);
}

#[test]
fn with_neither_surge_nor_unavailable_one_machine_may_be_missing() {
    for zero in [json!(0), json!("0%")] {
        // 1 % of three is none, rounded down.
        for unavailable in [json!(0), json!("0%"), json!("1%")] {
            let rolling = world(3).bounds(zero.clone(), unavailable);
            let begins = rolling.clone().set("o", "b", 3, &[RUNNING; 3]).set("n", "c", 0, &[]);
            assert_eq!(begins.sizes(), [2, 0]);
            let leaves =
                rolling.clone().set("o", "b", 2, &[RUNNING, RUNNING, "Terminating"]).set("n", "c", 0, &[]);
            assert_eq!(leaves.sizes(), [2, 0], "there is no room before it is gone");
            let grows = rolling.set("o", "b", 2, &[RUNNING; 2]).set("n", "c", 0, &[]);
            assert_eq!(grows.sizes(), [2, 1]);
        }
    }
}

#[test]
fn counts_that_nobody_can_have_do_not_overflow() {
    const MOST: u32 = i32::MAX.unsigned_abs();
    for (surge, unavailable) in
        [(json!(MOST), json!(MOST)), (json!("100%"), json!("100%")), (json!(1), json!(0))]
    {
        let huge = world(MOST).bounds(surge, unavailable).set_with("o", "b", MOST, &[RUNNING], |_| {});
        let huge = huge.set("p", "d", MOST, &[RUNNING]).set("n", "c", MOST, &[RUNNING]);
        assert_eq!(huge.sizes().len(), 3);
        let mut shrunk = huge.field("/spec/replicas", json!(1));
        assert_eq!(shrunk.sizes().len(), 3);
        shrunk.status_written = None;
        assert!(shrunk.actions().iter().any(|action| action.starts_with("status: ")));
        let status = json!({"replicas": i32::MIN, "updatedReplicas": i32::MAX, "observedGeneration": 5});
        assert!(!shrunk.field("/status", status).actions().is_empty());
    }
}
