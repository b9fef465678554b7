//! Tests of a rollback to a former revision.

use super::*;

fn revision(number: &'static str) -> impl Fn(&mut Value) {
    move |set| {
        let annotations = &mut set["metadata"]["annotations"];
        annotations["deployment.kubernetes.io/revision"] = number.into();
        let template = &mut set["spec"]["template"]["metadata"]["labels"];
        template["machine-template-hash"] = format!("hash-{number}").into();
    }
}

/// Revisions 1 and 2 with the classes `a` and `b`, and the present revision 3.
fn rolling_back(to: Value) -> World {
    world(2)
        .set_with("w-1", "a", 0, &[], revision("1"))
        .set_with("w-2", "b", 0, &[], revision("2"))
        .set_with("w-3", "c", 2, &[RUNNING; 2], revision("3"))
        .field("/spec/rollbackTo", to)
}

fn rollback(world: &World) -> Rollback {
    let plan = plan(&world.snapshot());
    let [Action::RollBack(rollback)] = plan.actions.as_slice() else { panic!("{plan}") };
    (**rollback).clone()
}

#[test]
fn t_87_the_template_of_the_revision_returns() {
    for (to, class, number) in
        [(json!({"revision": 1}), "a", 1), (json!({"revision": 0}), "b", 2), (json!({}), "b", 2)]
    {
        let rollback = rollback(&rolling_back(to));
        assert_eq!((rollback.template.spec.class.name(), rollback.revision), (class, number));
        let labels: Vec<_> = rollback.template.metadata.labels.keys().collect();
        assert_eq!(labels, ["name"], "without the hash of the set");
    }
}

#[test]
fn annotations_return_except_for_those_of_the_deployment_itself() {
    let mut world = rolling_back(json!({"revision": 1}))
        .field("/metadata/annotations/color", "red".into())
        .field("/metadata/annotations/size", "big".into());
    world.sets[0].0["metadata"]["annotations"]["color"] = "blue".into();
    world.sets[0].0["metadata"]["annotations"]["machinist.dev/reserved-numbers"] = "4:3".into();
    let changed = rollback(&world).annotations;
    assert_eq!(changed["color"].as_deref(), Some("blue"));
    assert_eq!(changed["size"], None, "that revision had no such annotation");
    let own = [
        "deployment.kubernetes.io/revision",
        "deployment.kubernetes.io/max-replicas",
        "machinist.dev/reserved-numbers",
    ];
    assert!(own.iter().all(|key| !changed.contains_key(*key)), "{changed:?}");
}

#[test]
fn a_rollback_without_a_revision_only_ends() {
    let refused = |world: World, reason: &str, expected: &str| {
        let plan = plan(&world.snapshot());
        let [Action::EndRollback(refusal)] = plan.actions.as_slice() else { panic!("{plan}") };
        assert_eq!((refusal.reason, refusal.message.as_str()), (reason, expected));
    };
    let not_found = "DeploymentRollbackRevisionNotFound";
    let unknown = "There is no revision 7 to roll back to. Known revisions: 1, 2, 3.";
    refused(rolling_back(json!({"revision": 7})), not_found, unknown);
    let first = world(2).set_with("w-1", "c", 2, &[RUNNING; 2], revision("1"));
    let first = first.field("/spec/rollbackTo", json!({"revision": 0}));
    refused(first, not_found, "There is no earlier revision to roll back to.");
    let unchanged = "DeploymentRollbackTemplateUnchanged";
    let present = "Revision 3 has the present template, so nothing is rolled back.";
    refused(rolling_back(json!({"revision": 3})), unchanged, present);
}

#[test]
fn a_set_that_is_being_deleted_is_no_revision() {
    let mut world = rolling_back(json!({"revision": 1}));
    world.sets[0].0["metadata"]["deletionTimestamp"] = at(-10).to_string().into();
    let plan = plan(&world.snapshot());
    assert!(matches!(plan.actions.as_slice(), [Action::EndRollback(_)]), "{plan}");
}

#[test]
fn a_paused_deployment_is_rolled_back_later() {
    let paused = rolling_back(json!({"revision": 1})).field("/spec/paused", true.into());
    let actions = paused.actions();
    assert!(actions.iter().all(|action| !action.contains("roll back")), "{actions:?}");
    assert!(paused.reason().contains("paused"), "{}", paused.reason());
}

/// The set of the present template does not exist yet, or has the number of its former use.
#[test]
fn revision_0_is_the_newest_one_of_another_template() {
    let undo = |world: World| rollback(&world.field("/spec/rollbackTo", json!({}))).revision;
    let old = || world(2).set_with("w-1", "a", 0, &[], revision("1"));
    let without_set = old().set_with("w-2", "b", 2, &[RUNNING; 2], revision("2"));
    assert_eq!(undo(without_set), 2);
    let not_renumbered = world(2).set_with("w-1", "c", 0, &[], revision("1")).set_with(
        "w-2",
        "b",
        2,
        &[RUNNING; 2],
        revision("2"),
    );
    assert_eq!(undo(not_renumbered), 2);
    let without_number = old().set_with("w-2", "b", 2, &[RUNNING; 2], |set| {
        set["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "x".into();
    });
    assert_eq!(undo(without_number), 1);
}

#[test]
fn the_autoscalers_time_is_not_rolled_back() {
    const TIME: &str = "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time";
    let mut world = rolling_back(json!({"revision": 1}));
    world.deployment["metadata"]["annotations"][TIME] = at(-5).to_string().into();
    world.sets[0].0["metadata"]["annotations"][TIME] = at(-500).to_string().into();
    assert!(!rollback(&world).annotations.contains_key(TIME));
    world.sets[0].0["metadata"]["annotations"][TIME].take();
    world.sets[0].0["metadata"]["annotations"].as_object_mut().expect("a map").remove(TIME);
    assert!(!rollback(&world).annotations.contains_key(TIME));
}

/// Otherwise a pause would delete the revision to which the user wants to return.
#[test]
fn a_rollback_that_waits_keeps_the_history() {
    let paused = |to| {
        let empty = |number| {
            move |set: &mut Value| {
                revision(number)(set);
                is_empty(set);
            }
        };
        let world = world(2)
            .set_with("w-1", "a", 0, &[], empty("1"))
            .set_with("w-2", "b", 0, &[], empty("2"))
            .set_with("w-3", "c", 2, &[RUNNING; 2], revision("3"));
        let world = world.field("/spec/revisionHistoryLimit", 1.into()).field("/spec/paused", true.into());
        world.field("/spec/rollbackTo", to)
    };
    let deletes = |world: World| world.actions().iter().any(|action| action.ends_with("delete"));
    assert!(deletes(paused(Value::Null)));
    assert!(!deletes(paused(json!({"revision": 1}))));
}
