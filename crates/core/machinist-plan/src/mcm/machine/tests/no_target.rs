//! Tests of Machines without a target cluster.

use machinist_core::Evidence;
use machinist_instance::{Address, AddressKind};

use super::*;

fn without_target() -> World {
    world().with(|s| s.target = TargetCluster::None)
}

fn with_addresses() -> Instance {
    let address = |kind, text: &str| Address { kind, address: text.to_owned() };
    let addresses = vec![
        address(AddressKind::InternalIP, "10.0.0.5"),
        address(AddressKind::ExternalIP, "192.0.2.1"),
        address(AddressKind::InternalIP, "10.0.0.5"),
    ];
    Instance { addresses, ..instance() }
}

/// Returns the status that a plan writes.
fn written(plan: &Plan<Action>) -> Option<&StatusWrite> {
    plan.actions.iter().find_map(|action| match action {
        Action::SetStatus(write) => Some(&**write),
        _ => None,
    })
}

fn addresses(plan: &Plan<Action>) -> Vec<String> {
    let all = written(plan).and_then(|write| write.addresses.clone()).unwrap_or_default();
    all.into_iter().map(|address| format!("{} {}", address.type_, address.address)).collect()
}

/// T-14 and T-15: one pass does both.
#[test]
fn t14_t15_a_created_machine_is_available_with_addresses() {
    let plan = without_target().ensured(Ok(with_addresses())).plan();
    assert_eq!(addresses(&plan), ["ExternalIP 192.0.2.1", "Hostname m", "InternalIP 10.0.0.5"]);
    let Some(Action::Record { node, .. }) = plan.actions.first() else { panic!("a record: {plan:?}") };
    assert_eq!(*node, None, "no label node");
    let status = written(&plan).expect("a status");
    assert_eq!(status.phase.as_ref().map(|write| &write.phase), Some(&Phase::Available));
    let operation = status.operation.as_ref().map(ToString::to_string);
    assert_eq!(operation.as_deref(), Some("Create Successful \"Created machine on cloud provider\""));
}

/// T-17: the instance is asked for at once, without a token.
#[test]
fn t17_no_token_is_created_without_a_target_cluster() {
    let plan = without_target().plan();
    assert!(plan.actions.iter().all(|action| !action.is_for_the_nodes()), "{plan:?}");
    assert!(plan.actions.iter().any(|action| matches!(action, Action::Ensure { .. })), "{plan:?}");
}

#[test]
fn addresses_in_the_status_stay() {
    let mut world = without_target().ensured(Ok(with_addresses()));
    world.machine["status"] = json!({"addresses": [{"type": "InternalDNS", "address": "m.internal"}]});
    let expected = ["ExternalIP 192.0.2.1", "Hostname m", "InternalDNS m.internal", "InternalIP 10.0.0.5"];
    assert_eq!(addresses(&world.plan()), expected);
}

/// A process died between the record of the instance and the status.
#[test]
fn a_recorded_instance_is_looked_up_for_its_addresses() {
    let world = || without_target().recorded();
    let plan = world().plan();
    let is_find = |plan: &Plan<Action>| matches!(plan.actions[..], [Action::Find(_)]);
    assert!(is_find(&plan), "{plan:?}");
    let found = |instance: Instance| {
        world().with(|s| {
            let by = InstanceRef { id: Some(instance.id.clone()), ..InstanceRef::default() };
            let answered = answered(at(-1), at(0), Ok(Sighting::Present(instance)));
            s.answers.find = Some(Found { by, answered });
        })
    };
    let plan = found(with_addresses()).plan();
    assert_eq!(addresses(&plan), ["ExternalIP 192.0.2.1", "Hostname m", "InternalIP 10.0.0.5"]);
    let boots = found(Instance { power: Power::Pending, ..instance() });
    let plan = boots.clone().plan();
    assert!(plan.actions.is_empty(), "the cloud has not assigned an address: {plan:?}");
    let plan = boots.with(|s| s.now = at(5)).plan();
    assert!(is_find(&plan), "{plan:?}");
}

#[test]
fn health_is_never_judged_without_a_target_cluster() {
    for phase in ["Available", "Running", "Unknown"] {
        let world = without_target().recorded().phase(phase, "Create", "Successful", "x").created(-9000);
        let plan = world.plan();
        assert!(plan.actions.is_empty(), "{plan:?}");
        assert_eq!(plan.why.reason, Reason::Settled);
    }
}

fn terminating(marker: &str) -> World {
    let world = without_target().recorded().phase("Terminating", "Delete", "Processing", marker);
    world.deleting(10).created(-600)
}

/// T-49: neither a drain nor a look for the Node comes before the deletion of the instance.
#[test]
fn t49_deletion_without_target_begins_with_the_instance() {
    let running = without_target().recorded().phase("Available", "Create", "Successful", "x").deleting(1);
    let plan = running.plan();
    let status = written(&plan).and_then(|write| write.operation.as_ref()).expect("a status");
    assert_eq!(status.description, "Set machine status to termination. Now, getting VM Status");
    for marker in ["Set machine status to termination. Now, getting VM Status", "Initiate node drain"] {
        let plan = terminating(marker).plan();
        let [Action::Delete(permit)] = &plan.actions[..] else { panic!("a deletion: {plan:?}") };
        assert_eq!(*permit.evidence(), Evidence::NoTargetCluster);
    }
}

/// T-49: marker 5 of Go MCM leads to the finalizer.
#[test]
fn t49_deletion_without_target_ends_with_the_finalizer() {
    let plan = terminating("Initiate node object deletion").plan();
    assert!(matches!(plan.actions[..], [Action::RemoveFinalizer]), "{plan:?}");
}

/// A target cluster that does not answer is no such evidence.
#[test]
fn a_silent_target_cluster_is_not_an_absent_one() {
    let silence = crate::mcm::TargetSilence {
        since: at(-500),
        last: at(0),
        error: "refused".to_owned(),
        is_blind: true,
    };
    let plan = terminating("Initiate node drain").with(|s| {
        s.target = TargetCluster::Given;
        s.reads.silence = Some(silence);
        s.nodes_freshness = Freshness::Fresh;
    });
    let plan = plan.plan();
    assert!(!plan.actions.iter().any(|action| matches!(action, Action::Delete(_))), "{plan:?}");
}
