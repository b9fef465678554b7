//! Tests of set sizes: a single set, a rollout, scaling during a rollout, a pause.

use serde_json::{Value, json};

use super::{RUNNING, world};

/// Gives a set the annotations of a deployment with this many replicas and maxSurge 1.
fn sized_for(desired: u32) -> impl Fn(&mut Value) + Copy {
    move |set| {
        let annotations = &mut set["metadata"]["annotations"];
        annotations["deployment.kubernetes.io/desired-replicas"] = desired.to_string().into();
        annotations["deployment.kubernetes.io/max-replicas"] = (desired + 1).to_string().into();
    }
}

#[test]
fn a_single_set_is_scaled_at_once() {
    for (replicas, expected) in [(5, 5), (3, 3), (1, 1), (0, 0)] {
        let world = world(replicas).set("w-1", "c", 3, &[RUNNING, RUNNING, "Terminating"]);
        assert_eq!(world.sizes(), [expected]);
    }
}

#[test]
fn a_rollout_of_three_step_by_step() {
    for (old, old_phases, new, new_phases, expected, reason) in [
        (3, vec![RUNNING; 3], 0, vec![], [3, 1], "rollout in progress: 0 of 3 machines are updated"),
        (
            3,
            vec![RUNNING; 3],
            1,
            vec!["Pending"],
            [3, 1],
            "rollout limited by maxSurge: 4 machines exist, at most 4 allowed; waiting for n-0",
        ),
        (3, vec![RUNNING; 3], 1, vec![RUNNING], [2, 1], "rollout in progress: 1 of 3 machines is updated"),
        (
            2,
            vec![RUNNING, RUNNING, "Terminating"],
            1,
            vec![RUNNING],
            [2, 1],
            "rollout limited by maxSurge: 4 machines exist, at most 4 allowed; waiting for o-2",
        ),
        (2, vec![RUNNING; 2], 1, vec![RUNNING], [2, 2], "rollout in progress: 1 of 3 machines is updated"),
        (
            1,
            vec![RUNNING; 1],
            2,
            vec![RUNNING; 2],
            [1, 3],
            "rollout in progress: 2 of 3 machines are updated",
        ),
        (
            1,
            vec![RUNNING; 1],
            3,
            vec![RUNNING; 3],
            [0, 3],
            "rollout in progress: 3 of 3 machines are updated",
        ),
        (
            0,
            vec!["Terminating"],
            3,
            vec![RUNNING; 3],
            [0, 3],
            "waiting for 1 machine to be deleted; the first is o-0",
        ),
        (0, vec![], 3, vec![RUNNING; 3], [0, 3], "up to date"),
    ] {
        let world = world(3).set("o", "b", old, &old_phases).set("n", "c", new, &new_phases);
        assert_eq!((world.sizes(), world.reason()), (expected.to_vec(), reason.to_owned()));
    }
}

#[test]
fn without_surge_an_old_machine_is_deleted_first() {
    let world = |old, old_phases: &[&str], new, new_phases: &[&str]| {
        let world = world(3).bounds(json!(0), json!(1));
        world.set("o", "b", old, old_phases).set("n", "c", new, new_phases)
    };
    assert_eq!(world(3, &[RUNNING; 3], 0, &[]).sizes(), [2, 0]);
    let leaving = world(2, &[RUNNING, RUNNING, "Terminating"], 0, &[]);
    assert_eq!(leaving.sizes(), [2, 0], "the instance still exists, so there is no room");
    assert_eq!(
        leaving.reason(),
        "rollout limited by maxSurge: 3 machines exist, at most 3 allowed; waiting for o-2"
    );
    assert_eq!(world(2, &[RUNNING; 2], 0, &[]).sizes(), [2, 1]);
    let pending = world(2, &[RUNNING; 2], 1, &["Pending"]);
    assert_eq!(pending.sizes(), [2, 1]);
}

#[test]
fn unavailable_old_machines_are_deleted_first() {
    let world = world(3).bounds(json!(1), json!(1));
    let world = world.set("o", "a", 2, &[RUNNING; 2]).set("p", "b", 1, &["Unknown"]).set("n", "c", 0, &[]);
    assert_eq!(world.sizes(), [2, 0, 1]);
}

#[test]
fn a_broken_template_does_not_empty_the_old_set() {
    let world = world(3).bounds(json!(1), json!(1)).set("o", "b", 2, &[RUNNING; 2]);
    let world = world.set("n", "c", 2, &["CrashLoopBackOff", "Pending"]);
    assert_eq!(world.sizes(), [2, 2]);
}

#[test]
fn percentages_round_surge_up_and_unavailable_down() {
    let world =
        world(10).bounds(json!("25%"), json!("25%")).set("o", "b", 10, &[RUNNING; 10]).set("n", "c", 0, &[]);
    assert_eq!(world.sizes(), [8, 3]);
}

#[test]
fn growth_during_a_rollout_goes_to_the_new_set() {
    let scaled = sized_for(3);
    let world = world(6).set_with("o", "b", 2, &[RUNNING, RUNNING, "Terminating"], scaled).set_with(
        "n",
        "c",
        2,
        &[RUNNING; 2],
        scaled,
    );
    assert_eq!(world.sizes(), [2, 4], "7 Machines are allowed and 5 exist");
}

#[test]
fn shrinking_during_a_rollout_keeps_enough_available() {
    let scaled = sized_for(10);
    let world = |replicas, new_phases: &[&str]| {
        let world = world(replicas).bounds(json!(1), json!(1));
        world.set_with("o", "b", 6, &[RUNNING; 6], scaled).set_with("n", "c", 4, new_phases, scaled)
    };
    assert_eq!(world(5, &[RUNNING; 4]).sizes(), [3, 3]);
    // In proportion the old set would keep 3 Machines, but 4 must be available.
    assert_eq!(world(5, &["Pending"; 4]).sizes(), [4, 2]);
    assert_eq!(world(0, &["Pending"; 4]).sizes(), [0, 0]);
}

/// Three sets during a rollout; the last is the new set.
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

/// In the first case the deployment grows, and only the newest set with it.
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
    // 9 Machines are allowed and 10 exist. In proportion the largest set would lose one.
    world.sets[1].1[2]["metadata"]["annotations"] = json!({
        "machinepriority.machine.sapcloud.io": "1",
        "machine.sapcloud.io/marked-for-deletion-time": super::at(-10).to_string(),
    });
    assert_eq!(world.sizes(), [1, 2, 6]);
}

// === Machines with in-place updates ===

/// A rollout with a due step and a Machine in that phase.
fn updating(phase: &'static str) -> super::World {
    world(3).set("o", "b", 3, &[RUNNING, RUNNING, phase]).set("n", "c", 1, &[RUNNING])
}

#[test]
fn a_rollout_rests_while_a_machine_is_updated_in_place() {
    for phase in ["InPlaceUpdating", "InPlaceUpdateFailed"] {
        assert_eq!(updating(phase).sizes(), [3, 1]);
        assert_eq!(updating(phase).reason(), format!("Machine o-2 is being updated in place: it is {phase}"));
        let without_new = world(3).set("o", "b", 3, &[RUNNING, RUNNING, phase]);
        assert_eq!(without_new.actions(), [""; 0], "no set is created either");
    }
    assert_eq!(updating(RUNNING).sizes(), [2, 1], "the due step");
    let mut leaving = updating("InPlaceUpdating");
    leaving.sets[0].1[2]["metadata"]["deletionTimestamp"] = super::at(-10).to_string().into();
    assert_eq!(leaving.sizes(), [2, 1], "a Machine that is being deleted blocks nothing");
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
    assert!(deleted.actions().contains(&"set o: delete if owned".to_owned()));
}

// === pause ===

#[test]
fn t_88_a_paused_deployment_rolls_nothing_but_is_scaled() {
    let paused = |replicas| world(replicas).field("/spec/paused", true.into());
    let rolling = paused(3).set("o", "b", 3, &[RUNNING; 3]).set("n", "c", 0, &[]);
    assert_eq!((rolling.sizes(), rolling.reason()), (vec![3, 0], "paused by spec.paused".to_owned()));
    let without_new = paused(3).set("o", "b", 3, &[RUNNING; 3]);
    assert_eq!(without_new.actions(), [""; 0]);
    let scaled = sized_for(3);
    assert_eq!(paused(5).set_with("o", "b", 3, &[RUNNING; 3], scaled).sizes(), [5]);
    let both =
        paused(6).set_with("o", "b", 2, &[RUNNING; 2], scaled).set_with("n", "c", 2, &[RUNNING; 2], scaled);
    assert_eq!(both.sizes(), [2, 5], "the new set grows");
    assert_eq!(paused(3).sizes(), [0; 0]);
}

// === preserved Machines ===

/// Makes the first Machine of the first set failed and preserved.
fn preserving(mut world: super::World) -> super::World {
    world.sets[0].1[0]["status"]["currentStatus"] =
        json!({"phase": "Failed", "preserveExpiryTime": super::at(100).to_string()});
    world
}

#[test]
fn a_rollout_deletes_a_preserved_machine_last() {
    for (old, old_phases, new, new_phases, expected) in [
        (3, vec!["", RUNNING, RUNNING], 0, vec![], [3, 1]),
        (3, vec!["", RUNNING, RUNNING], 1, vec!["Pending"], [3, 1]),
        // The preserved Machine is unavailable and stays, so an available one is deleted. The
        // number of available Machines does not fall below its initial value.
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
fn a_preserved_machine_does_not_make_shrinking_harmless() {
    let scaled = sized_for(10);
    let world = world(5).bounds(json!(1), json!(1));
    let world = world.set_with("o", "b", 6, &["", RUNNING, RUNNING, RUNNING, RUNNING, RUNNING], scaled);
    let world = preserving(world.set_with("n", "c", 4, &["Pending"; 4], scaled));
    // 4 Machines must be available, minus the preserved one. So 3 Machines of the old set remain in
    // addition to the preserved Machine.
    assert_eq!(world.sizes(), [4, 2]);
}

#[test]
fn without_surge_and_unavailable_one_machine_may_be_missing() {
    for zero in [json!(0), json!("0%")] {
        // 1 % of three rounds down to 0.
        for unavailable in [json!(0), json!("0%"), json!("1%")] {
            let rolling = world(3).bounds(zero.clone(), unavailable);
            let begins = rolling.clone().set("o", "b", 3, &[RUNNING; 3]).set("n", "c", 0, &[]);
            assert_eq!(begins.sizes(), [2, 0]);
            let leaves =
                rolling.clone().set("o", "b", 2, &[RUNNING, RUNNING, "Terminating"]).set("n", "c", 0, &[]);
            assert_eq!(leaves.sizes(), [2, 0], "there is no room until it is deleted");
            let grows = rolling.set("o", "b", 2, &[RUNNING; 2]).set("n", "c", 0, &[]);
            assert_eq!(grows.sizes(), [2, 1]);
        }
    }
}

#[test]
fn huge_counts_do_not_overflow() {
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
