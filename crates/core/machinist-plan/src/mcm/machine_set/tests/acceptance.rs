//! Acceptance cases about a set that no other test shows. The name of a test begins with the id of
//! its case; `docs/src/develop/acceptance-cases.md` lists the cases.

use super::*;

/// The name is reserved in one pass, and used in the next.
#[test]
fn t_70_a_missing_machine_is_created() {
    let two = |world: World| world.machine("a", "Running").machine("b", "Running");
    assert_eq!(two(world(3)).actions(), ["set: reserve numbers 1:0"]);
    assert_eq!(two(world(3).reserved("1:0")).actions(), create([0]));
}

#[test]
fn t_71_at_most_100_machines_are_created_in_a_pass() {
    let two = |world: World| world.machine("a", "Running").machine("b", "Running");
    assert_eq!(two(world(200)).actions(), ["set: reserve numbers 100:0-99"]);
    assert_eq!(two(world(200).reserved("100:0-99")).actions(), create(0..100));
}

/// A Machine that has failed is deleted first, and then nothing is missing.
#[test]
fn t_72_a_failed_surplus_machine_is_deleted() {
    let running = || world(3).machine("a", "Running").machine("b", "Running").machine("c", "Running");
    assert_eq!(running().machine("x", "Failed").actions(), ["machine x: delete"]);
}

#[test]
fn t_73_one_surplus_machine_is_deleted() {
    let four = ["a", "b", "c", "d"].into_iter().fold(world(3), |world, name| world.machine(name, "Running"));
    assert_eq!(four.actions().len(), 1);
    assert!(four.actions()[0].ends_with(": delete"), "{:?}", four.actions());
}

/// Replacements are created in the next pass.
#[test]
fn t_74_exactly_the_chosen_machines_are_deleted() {
    const CHANGED: &str = "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time";
    let chosen = |seconds: i64| {
        move |m: &mut Value| {
            m["metadata"]["annotations"] = json!({
                "machinepriority.machine.sapcloud.io": "1",
                "machine.sapcloud.io/marked-for-deletion-time": at(seconds).to_string(),
            });
        }
    };
    let deleted = |replicas: u32, marked: i64| {
        let world = world(replicas).field("/metadata/annotations", json!({CHANGED: at(-10).to_string()}));
        let world = world.machine("a", "Running").machine_with("b", "Running", chosen(marked));
        let mut actions =
            world.machine("c", "Running").machine_with("d", "Running", chosen(marked)).actions();
        actions.sort();
        actions
    };
    for replicas in [4, 3, 2] {
        for marked in [-20, -10] {
            assert_eq!(deleted(replicas, marked), ["machine b: delete", "machine d: delete"], "{replicas}");
        }
    }
    assert_eq!(deleted(4, -9), [""; 0], "marked after the last change");
}
