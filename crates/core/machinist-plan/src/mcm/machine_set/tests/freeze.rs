//! Tests of the begin of a freeze. The tests of its end are beside this module.

use std::time::Duration;

use jiff::Timestamp;
use machinist_api::MachineSetCondition;
use serde_json::json;

use super::{World, at, frozen, of_deployment, world};
use crate::mcm::machine_set::{Action, SafetyMargins, overshoots, plan};

/// A set with that many Machines, which this process has seen above the bound for a period.
fn crowded(replicas: u32, machines: usize) -> World {
    let world =
        (0..machines).fold(world(replicas), |world, n| world.leaving(&format!("m{n}"), "Terminating"));
    World { overshooting_since: Some(at(-60)), status_written: None, ..world }
}

/// Returns the condition `Frozen` that the plan writes.
fn condition(world: &World) -> Option<MachineSetCondition> {
    let status = plan(&world.snapshot()).actions.into_iter().find_map(|action| match action {
        Action::SetStatus(status) => Some(*status),
        _ => None,
    });
    status?.conditions.into_iter().find(|condition| condition.type_ == "Frozen")
}

/// Returns the set after its status was written.
fn after_status(mut world: World) -> World {
    let written = condition(&world).expect("the set is frozen");
    world = world.field("/status", json!({"machineSetCondition": [written]}));
    World { status_written: Some(at(100)), ..world }
}

#[test]
fn a_set_with_too_many_machines_is_frozen() {
    let condition = condition(&crowded(2, 6)).expect("the set is frozen");
    assert_eq!(condition.reason.as_deref(), Some("OverShootingReplicaCount"));
    assert_eq!(
        condition.message.as_deref(),
        Some("The number of machines backing MachineSet: s is 6 >= 6 which is the Max-ScaleUp-Limit")
    );
    let half = after_status(crowded(2, 6));
    assert_eq!(half.actions(), ["set: freeze", "event FrozeMachineSet"]);
    // The label is there: nothing is written again, and no further Event is emitted.
    assert_eq!(half.field("/metadata/labels", json!({"freeze": "True"})).actions(), [""; 0]);
}

#[test]
fn a_set_below_the_bound_costs_no_write() {
    assert_eq!(condition(&crowded(2, 5)), None);
    assert!(!overshoots(&crowded(2, 5).snapshot()) && overshoots(&crowded(2, 6).snapshot()));
}

#[test]
fn the_deployment_determines_the_bound_of_a_set() {
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}});
    let in_place = json!({"type": "InPlaceUpdate", "inPlaceUpdate": {"maxSurge": 3, "maxUnavailable": 0}});
    // A deployment without a surge has none.
    for (strategy, bound) in [(rolling, 9), (in_place, 10), (json!({"type": "Recreate"}), 7)] {
        let freezes =
            |machines| condition(&of_deployment(crowded(1, machines), 5, strategy.clone())).is_some();
        assert_eq!((freezes(bound - 1), freezes(bound)), (false, true), "{strategy}");
    }
    let mut unknown = of_deployment(crowded(1, 60), 5, json!({"type": "Recreate"}));
    unknown.deployment = None;
    assert_eq!(condition(&unknown), None, "the deployment is unknown");
}

#[test]
fn machines_with_other_labels_do_not_count() {
    let world = crowded(2, 5).field("/spec/template/metadata/labels", json!({"app": "s", "pool": "a"}));
    let world = world.machine_with("m5", "Running", |m| m["metadata"]["labels"]["pool"] = "a".into());
    assert_eq!(condition(&world), None, "one of six Machines has the labels of the template");
}

#[test]
fn a_set_is_frozen_after_a_period_or_when_it_grows() {
    let mut world = crowded(2, 6);
    world.overshooting_since = None;
    let first = plan(&world.snapshot());
    assert_eq!(condition(&world), None, "this process sees the Machines for the first time");
    assert_eq!(first.wait, machinist_core::Wait::Until(at(60)));
    let seen_for = |world: &mut World, seconds: i64| world.overshooting_since = Some(at(-seconds));
    seen_for(&mut world, 59);
    assert_eq!(condition(&world), None);
    let grown = World { status_written: None, ..world }.machine_with("new", "Pending", |machine| {
        machine["metadata"]["creationTimestamp"] = at(-3).to_string().into();
    });
    assert!(condition(&grown).is_some(), "another Machine was created meanwhile");
    let at_once = SafetyMargins { period: Duration::ZERO, ..SafetyMargins::default() };
    let world = World { margins: at_once, overshooting_since: None, ..crowded(2, 6) };
    assert!(condition(&world).is_some());
}

/// A freeze begins at once with the first write, so that no Machine is created meanwhile.
#[test]
fn a_set_that_is_being_frozen_creates_nothing() {
    // One of the desired two is missing, because all Machines are being deleted.
    let creates = |world: &World| world.actions().iter().any(|action| action.contains("reserve"));
    let mut world = crowded(2, 6);
    assert!(!creates(&world), "{:?}", world.actions());
    assert!(!creates(&after_status(crowded(2, 6))));
    world.overshooting_since = Some(at(-59));
    assert!(creates(&world), "the freeze is not due");
}

#[test]
fn a_frozen_set_still_deletes_machines() {
    let mut world = frozen(1, 5).machine("a", "Running").machine("b", "Pending");
    assert_eq!(world.actions(), ["machine b: delete"]);
    world = crowded(1, 4).machine("a", "Running").machine("b", "Pending");
    let actions = world.actions();
    assert_eq!(actions[0], "machine b: delete", "{actions:?}");
    assert!(condition(&world).is_some());
}

/// A process died between the two writes of a freeze, or a user removed the label.
#[test]
fn another_process_completes_a_freeze() {
    let half = |machines| frozen(2, machines).field("/metadata/labels", json!({}));
    assert_eq!(half(6).actions(), ["set: freeze", "event FrozeMachineSet"]);
    let fewer = World { margins: SafetyMargins { down: 2, ..SafetyMargins::default() }, ..half(5) };
    assert_eq!(fewer.actions(), ["set: freeze", "event FrozeMachineSet"], "the freeze is lifted at 4");
    assert_eq!(half(5).actions(), ["set: remove condition Frozen"], "the freeze is lifted at 5");
}

#[test]
fn a_freeze_and_its_end_do_not_alternate() {
    for (margins, machines) in [((2, 0), 6), ((0, 0), 4), ((0, 9), 4), ((0, 1), 4)] {
        let margins = SafetyMargins { up: margins.0, down: margins.1, ..SafetyMargins::default() };
        let world = |world: World| World { margins, ..world };
        assert!(condition(&world(crowded(2, machines))).is_some(), "{margins:?}");
        assert_eq!(world(frozen(2, machines)).actions(), [""; 0], "{margins:?}: it stays frozen");
        assert_eq!(condition(&world(crowded(2, machines - 1))), None, "{margins:?}");
    }
    let none = SafetyMargins { up: 0, down: 1, ..SafetyMargins::default() };
    assert_eq!(condition(&World { margins: none, ..crowded(0, 0) }), None, "an empty set is never frozen");
}

#[test]
fn a_set_that_is_deleted_or_invalid_is_not_frozen() {
    let leaving = crowded(2, 6).field("/metadata/deletionTimestamp", at(-5).to_string().into());
    assert_eq!(condition(&leaving), None);
    let invalid = crowded(2, 6).field("/spec/template/spec/class", json!({"kind": "MachineClass"}));
    assert_eq!(condition(&invalid), None);
}

/// A lost memory begins the period again, and a step of the clock does not end it early.
#[test]
fn the_time_of_another_process_does_not_count() {
    let world = World { overshooting_since: Some(Timestamp::MAX), ..crowded(2, 6) };
    assert_eq!(condition(&world), None);
}
