//! Tests of sets that lose their new Machines.

use super::super::strays::{misfit, released_early, taken, with_stray};
use super::*;

/// A set that has lost that many Machines, the last one that many seconds ago.
fn lost(replicas: u32, count: u32, seconds_ago: i64) -> World {
    let attempts = Attempts { count, last: at(-seconds_ago) };
    let strays = Some(ChildFailure { message: "Machine x has left".into(), attempts });
    World { strays, ..world(replicas).reserved("9:0-8") }
}

/// A Machine that was created that many seconds ago.
fn aged(world: World, seconds: i64) -> World {
    world.machine_with(&child_name("s", UID, 8), "Running", |machine| {
        machine["metadata"]["creationTimestamp"] = at(-seconds).to_string().into();
    })
}

#[test]
fn two_lost_machines_are_replaced_at_once() {
    assert_eq!(lost(3, 2, 0).actions(), create([0, 1, 2]));
}

#[test]
fn after_three_lost_machines_one_is_created_at_a_time() {
    lost(3, 3, 1).check(expect![[r#"
        why   the set creates one Machine at a time, because it lost several new ones: Machine x has left; since 2027-01-15T07:59:59Z; next: the controller creates the next Machine
        wait  until 2027-01-15T08:00:59Z
    "#]]);
    for (count, wait) in [(3, 60), (4, 120), (5, 240), (9, 3600), (4_000_000_000, 3600)] {
        assert_eq!(lost(3, count, wait - 1).actions(), [""; 0], "{count} lost");
        assert_eq!(lost(3, count, wait).actions(), create([0]), "{count} lost");
    }
}

#[test]
fn the_status_says_which_machine_was_lost() {
    let [condition] = status::of_set(&lost(3, 3, 1).snapshot()).conditions.try_into().expect("one condition");
    assert_eq!(condition.reason.as_deref(), Some("FailedCreate"));
    assert_eq!(condition.message.as_deref(), Some("Machine x has left"));
    let complete = aged(lost(1, 3, 1), 0);
    assert_eq!(status::of_set(&complete.snapshot()).conditions, [], "no Machine is missing");
}

#[test]
fn a_set_whose_later_machine_stays_creates_all() {
    aged(lost(3, 3, 700), 550).check(expect![[r#"
        why   the set creates one Machine at a time, because it lost several new ones: Machine x has left; since 2027-01-15T07:48:20Z; next: the controller creates the next Machine
        wait  until 2027-01-15T08:00:50Z
    "#]]);
    assert_eq!(aged(lost(3, 9, 700), 650).actions(), create([0, 1]), "it has stayed");
    assert_eq!(aged(lost(3, 3, 700), 550).actions(), [""; 0], "it is young");
    assert_eq!(aged(lost(3, 9, 700), 750).actions(), [""; 0], "it is older than the loss");
    assert_eq!(lost(3, 9, 7200).actions(), create([0, 1, 2]), "the loss is forgotten");
    assert_eq!(lost(3, 9, -60).actions(), create([0, 1, 2]), "the clock was set back");
}

#[test]
fn losses_in_a_row_are_counted() {
    let counted = |world: &World| {
        with_stray(&world.snapshot(), world.strays.as_ref(), at(0), "Machine y has left".into()).attempts
    };
    assert_eq!(counted(&world(3)), Attempts { count: 1, last: at(0) });
    assert_eq!(counted(&lost(3, 3, 60)), Attempts { count: 4, last: at(0) });
    assert_eq!(counted(&lost(3, 3, 7200)), Attempts { count: 1, last: at(0) });
    assert_eq!(counted(&aged(lost(3, 3, 700), 650)), Attempts { count: 1, last: at(0) });
}

#[test]
fn machines_of_before_the_last_loss_do_not_lengthen_the_wait() {
    let count = |before, created, name: &str| {
        let world = lost(3, before, 10);
        let message = format!("Machine {name} has left");
        with_stray(&world.snapshot(), world.strays.as_ref(), at(created), message).attempts.count
    };
    assert_eq!(count(2, -60, "y"), 3);
    assert_eq!(count(3, -60, "y"), 3, "a user takes many Machines out of the set");
    assert_eq!(count(3, -5, "y"), 4);
    assert_eq!(count(2, -60, "x"), 2, "its release is repeated");
}

#[test]
fn only_a_young_machine_that_leaves_counts_as_lost() {
    let message = |seconds| {
        let s = aged(world(1), seconds).snapshot();
        released_early(&s, &s.machines[0])
    };
    assert!(message(599).is_some_and(|text| text.contains("changes metadata.labels")));
    assert_eq!(message(600), None);
}

#[test]
fn an_answer_shows_a_machine_that_the_set_does_not_count() {
    let s = world(1).snapshot();
    let ours = owner_reference(&s.set);
    let labels = |value: &str| BTreeMap::from([("app".to_owned(), value.to_owned())]);
    assert_eq!(misfit(&s.set, "m", &labels("s"), std::slice::from_ref(&ours)), None);
    let relabelled = misfit(&s.set, "m", &labels("t"), std::slice::from_ref(&ours)).expect("another label");
    expect!["MachineSet s does not select the labels of its new Machine m: another program, for example an admission webhook, changes metadata.labels"]
        .assert_eq(&relabelled.message);
    assert!(relabelled.is_controlled);
    let other = OwnerReference { uid: "another".into(), ..ours.clone() };
    let shared = OwnerReference { controller: None, ..ours };
    let owners = [other];
    let given_away = misfit(&s.set, "m", &labels("s"), &owners).expect("another owner");
    assert!(!given_away.is_controlled);
    assert_eq!(taken(&s.set, "m", &owners).as_ref(), Some(&given_away.message));
    assert!(given_away.message.contains("changes metadata.ownerReferences"), "{}", given_away.message);
    for owners in [&[][..], &[shared]] {
        assert_eq!(misfit(&s.set, "m", &labels("s"), owners), None, "the set adopts it");
    }
}
