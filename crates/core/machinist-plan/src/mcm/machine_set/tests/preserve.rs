//! Tests of the automatic preservation of failed Machines.

use super::*;

const AUTO: &str = "auto-preserved";

/// A set that preserves at most this many failed Machines, without a deployment.
fn preserving(replicas: u32, most: i32) -> World {
    world(replicas).field("/spec/autoPreserveFailedMachineMax", json!(most))
}

/// A failed Machine that was created this many seconds ago.
fn failed(world: World, name: &str, age: i64, annotations: Value) -> World {
    world.machine_with(name, "Failed", |m| {
        m["metadata"]["creationTimestamp"] = at(-age).to_string().into();
        m["metadata"]["annotations"] = annotations;
    })
}

fn asks(value: &str) -> Value {
    json!({"node.machine.sapcloud.io/preserve": value})
}

/// Three failed Machines: `a` is the oldest.
fn three(most: i32, [a, b, c]: [&str; 3]) -> World {
    let mut world = preserving(3, most);
    for (name, age, value) in [("a", 300, a), ("b", 200, b), ("c", 100, c)] {
        world = failed(world, name, age, if value.is_empty() { json!({}) } else { asks(value) });
    }
    world
}

#[test]
fn t_79_the_newest_failed_machines_are_preserved() {
    for (most, values, expected) in [
        (0, ["", "", ""], vec!["a: delete", "b: delete", "c: delete"]),
        (1, ["", "", ""], vec!["c: preserve", "a: delete", "b: delete"]),
        (2, ["", "", ""], vec!["c: preserve", "b: preserve", "a: delete"]),
        (2, [AUTO, AUTO, ""], vec!["c: delete"]),
        (3, ["", "false", ""], vec!["c: preserve", "a: preserve", "b: delete"]),
        (0, [AUTO, "now", "when-failed"], vec!["a: preserve no longer"]),
        (1, [AUTO, AUTO, "now"], vec!["a: preserve no longer"]),
        (3, ["unknown", "", "now"], vec!["b: preserve", "a: preserve"]),
    ] {
        let mut expected: Vec<_> = expected.into_iter().map(|action| format!("machine {action}")).collect();
        let mut actions = three(most, values).actions();
        expected.sort_unstable();
        actions.sort_unstable();
        assert_eq!(actions, expected, "{most} of {values:?}");
    }
}

#[test]
fn a_machine_is_preserved_before_others_are_deleted() {
    assert_eq!(three(1, ["", "", ""]).actions()[0], "machine c: preserve");
}

#[test]
fn only_failed_machines_without_a_wish_are_chosen() {
    let one = |change: fn(&mut Value)| preserving(1, 1).machine_with("a", "Failed", change).actions();
    assert_eq!(one(|_| {}), ["machine a: preserve"]);
    assert_eq!(preserving(1, 1).machine("a", "Unknown").actions(), [""; 0]);
    let of_node = one(|m| {
        m["metadata"]["annotations"] =
            json!({"node.machine.sapcloud.io/last-applied-node-preserve-value": "false"});
    });
    assert_eq!(of_node, ["machine a: delete"]);
    let expired = one(|m| preserved_until(-5)(m));
    assert_eq!(expired, ["machine a: delete"], "no Machine is preserved a second time");
    let chosen = one(|m| {
        m["metadata"]["annotations"] = json!({
            "machinepriority.machine.sapcloud.io": "1",
            "machine.sapcloud.io/marked-for-deletion-time": at(-10).to_string(),
        });
    });
    assert_eq!(chosen, ["machine a: delete"], "the autoscaler has chosen it");
}

/// A Machine that leaves needs no place.
#[test]
fn a_machine_that_is_being_deleted_does_not_count() {
    let leaving = preserving(1, 1).machine_with("a", "Terminating", |m| {
        m["metadata"]["deletionTimestamp"] = at(-10).to_string().into();
        m["metadata"]["annotations"] = asks(AUTO);
    });
    assert_eq!(failed(leaving, "b", 10, json!({})).actions(), ["machine b: preserve"]);
}

#[test]
fn an_old_view_ends_no_preservation() {
    let silence = Silence { server: "x".into(), since: at(-200), read: FreshRead::Possible };
    let mut stale = three(0, [AUTO, "now", "now"]).snapshot();
    stale.machines_freshness = Freshness::Stale(silence);
    let actions: Vec<_> = plan(&stale).actions.iter().map(ToString::to_string).collect();
    assert_eq!(actions, ["machines: list them at the API server"]);
}

#[test]
fn a_set_waits_until_its_deployment_has_preserved_the_machine() {
    let about_to = |uids: &[&str]| AutoPreserve::Deployment {
        about_to: uids.iter().map(|uid| (*uid).to_owned()).collect(),
    };
    let owner = json!([{"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment", "name": "d",
                        "uid": "uid-d", "controller": true}]);
    let owned =
        || failed(preserving(1, 1).field("/metadata/ownerReferences", owner.clone()), "a", 10, json!({}));
    let waits = World { auto_preserve: about_to(&["uid-a"]), ..owned() };
    waits.check(expect![[r#"
        why   Machine a has failed, and MachineDeployment d is about to preserve it; next: the MachineDeployment annotates the Machine
        wait  until 2027-01-15T08:00:10Z
    "#]]);
    let other = World { auto_preserve: about_to(&[]), ..owned() };
    assert_eq!(other.actions(), ["machine a: delete"]);
}

#[test]
fn t_79_t_81_the_status_counts_preserved_machines() {
    let status = status::of_set(&three(3, [AUTO, "now", AUTO]).snapshot());
    assert_eq!(status.auto_preserve_failed_machine_count, 2);
    assert_eq!(status.preserved_failed_replicas, 3);
}
