//! Tests of the begin of a deployment's freeze. The tests of its end are beside this module.

use machinist_api::MachineDeploymentCondition;
use serde_json::{Value, json};

use super::{RUNNING, UNFREEZE, World, at, freeze_set, world};
use crate::mcm::machine_deployment::{Action, plan};

/// Returns the condition `Frozen` that the plan writes.
fn condition(world: &World) -> Option<MachineDeploymentCondition> {
    let world = World { status_written: None, ..world.clone() };
    let status = plan(&world.snapshot()).actions.into_iter().find_map(|action| match action {
        Action::SetStatus(status) => Some(*status),
        _ => None,
    });
    let current = || world.snapshot().deployment.status.clone();
    let conditions = status.or_else(current)?.conditions;
    conditions.into_iter().find(|condition| condition.type_ == "Frozen")
}

/// Returns reason and message of that condition.
fn reason(world: &World) -> Option<(String, String)> {
    let condition = condition(world)?;
    Some((condition.reason.unwrap_or_default(), condition.message.unwrap_or_default()))
}

/// A set that was frozen because of its Machines.
fn overshooting(set: &mut Value) {
    freeze_set(set);
    set["status"]["machineSetCondition"][1]["message"] = "is 6 >= 6".into();
}

fn with_set(change: impl FnOnce(&mut Value)) -> World {
    world(3).set_with("w-1", "c", 3, &[RUNNING; 3], change)
}

#[test]
fn a_deployment_with_a_frozen_set_is_frozen() {
    let world = with_set(overshooting);
    let expected = ("OverShootingReplicaCount".to_owned(), "is 6 >= 6".to_owned());
    assert_eq!(reason(&world), Some(expected));
    assert_eq!(world.actions(), [""; 0], "the label follows the condition");
    let written = condition(&world).expect("written");
    let half = world.field("/status", json!({"conditions": [written]}));
    assert_eq!(half.actions(), ["deployment: freeze"]);
    assert_eq!(half.field("/metadata/labels", json!({"freeze": "True"})).actions(), [""; 0]);
}

#[test]
fn a_freeze_with_one_mark_gets_the_other() {
    let by_label = |set: &mut Value| set["metadata"]["labels"]["freeze"] = "True".into();
    let synced = Some("MachineDeploymentStateSync".to_owned());
    assert_eq!(reason(&with_set(by_label)).map(|(reason, _)| reason), synced, "a user froze the set");
    let labelled = with_set(overshooting).field("/metadata/labels", json!({"freeze": "True"}));
    assert_eq!(reason(&labelled).map(|(reason, _)| reason), synced);
}

#[test]
fn a_freeze_that_a_user_lifts_freezes_nothing() {
    let asked = |set: &mut Value| {
        overshooting(set);
        set["metadata"]["annotations"][UNFREEZE] = "".into();
    };
    assert_eq!(condition(&with_set(asked)), None);
    let leaving = |set: &mut Value| {
        overshooting(set);
        set["metadata"]["deletionTimestamp"] = at(-5).to_string().into();
    };
    assert_eq!(condition(&with_set(leaving)), None, "a set that is being deleted creates nothing");
    assert_eq!(condition(&with_set(|_| {})), None);
}
