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

/// One pass writes the addresses and the phase Available.
#[test]
fn t_14_t_15_a_created_machine_is_available_with_addresses() {
    let plan = without_target().ensured(Ok(with_addresses())).plan();
    assert_eq!(addresses(&plan), ["ExternalIP 192.0.2.1", "Hostname m", "InternalIP 10.0.0.5"]);
    let Some(Action::Record { node, .. }) = plan.actions.first() else { panic!("a record: {plan:?}") };
    assert_eq!(*node, None, "no label node");
    let status = written(&plan).expect("a status");
    assert_eq!(status.phase.as_ref().map(|write| &write.phase), Some(&Phase::Available));
    let operation = status.operation.as_ref().map(ToString::to_string);
    assert_eq!(operation.as_deref(), Some("Create Successful \"Created machine on cloud provider\""));
}

/// The driver is called without a token, and the Machine records the intent instead.
#[test]
fn t_17_no_token_is_created_without_a_target_cluster() {
    let plan = without_target().plan();
    assert!(matches!(plan.actions[..], [Action::RecordIntent { .. }]), "{plan:?}");
    let plan = without_target().intended().plan();
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
            s.answers.find = Some(Box::new(Found { by, answered }));
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

/// A recorded instance whose lookup ended a second ago.
fn looked_up(answer: Result<Sighting, Error>) -> World {
    without_target().recorded().with(|s| {
        let by = InstanceRef { id: Some(instance().id), ..InstanceRef::default() };
        s.answers.failures = u32::from(answer.is_err());
        s.answers.inputs = Some(1);
        s.answers.find = Some(Box::new(Found { by, answered: answered(at(-2), at(-1), answer) }));
    })
}

fn booting() -> World {
    looked_up(Ok(Sighting::Present(Instance { power: Power::Pending, ..instance() })))
}

/// The process has wanted the instance for longer than the creation timeout.
fn late(world: World) -> World {
    world.created(-3600).with(|s| {
        s.answers.wanted_since = Some(at(-3600));
        s.process.started = at(-4000);
    })
}

fn shown(plan: &Plan<Action>) -> Option<String> {
    written(plan).map(ToString::to_string)
}

#[test]
fn a_failed_lookup_is_reported_and_repeated() {
    let failed = || looked_up(Err(error(ErrorKind::Unavailable, "no")));
    let text = "Create Failed [Unavailable] \"Cloud provider message - machine codes error: \
                code = [Unavailable] message = [no]\"";
    let plan = failed().plan();
    assert_eq!(shown(&plan), Some(format!("CrashLoopBackOff, {text}")));
    assert_eq!(plan.wait, Wait::Until(at(4)));
    let plan = failed().with(|s| s.now = at(4)).plan();
    assert!(matches!(plan.actions[..], [Action::Find(_)]), "{plan:?}");
    assert_eq!(shown(&late(failed()).plan()), Some(format!("Failed, {text}")));
    let unsupported = looked_up(Err(Error::unsupported("find"))).plan();
    assert!(shown(&unsupported).is_some_and(|status| status.starts_with("Available")), "{unsupported:?}");
}

#[test]
fn an_instance_without_an_address_fails_in_the_end() {
    let plan = booting().plan();
    assert!(plan.actions.is_empty() && plan.wait == Wait::Until(at(4)), "{plan:?}");
    let expected = "Failed, Create Failed [DeadlineExceeded] \"Machine m was not created in time. \
                    Instance sim:///i-1 has no address\"";
    assert_eq!(shown(&late(booting()).plan()).as_deref(), Some(expected));
    let plan = late(booting()).with(|s| s.now = at(4)).plan();
    assert!(matches!(plan.actions[..], [Action::Find(_)]), "another look comes first: {plan:?}");
}

/// A Machine of before the process may have been restored from a backup, with an outdated Secret.
#[test]
fn no_lookup_of_an_older_machine_times_out() {
    for world in [booting(), looked_up(Err(error(ErrorKind::Unavailable, "no")))] {
        let plan = late(world).with(|s| s.process.started = at(-3500)).plan();
        assert!(shown(&plan).is_none_or(|status| status.starts_with("CrashLoopBackOff")), "{plan:?}");
        assert_eq!(plan.wait, Wait::Until(at(4)));
    }
}

#[test]
fn no_lookup_times_out_while_frozen_or_with_a_wrong_clock() {
    for world in [booting(), looked_up(Err(error(ErrorKind::Unavailable, "no")))] {
        let plan = late(world.clone()).with(|s| s.frozen = Some(frozen())).plan();
        assert!(plan.actions.is_empty() && plan.wait == Wait::Until(at(10)), "{plan:?}");
        let plan = late(world).with(|s| s.process.skew = Duration::from_secs(3600)).plan();
        assert!(shown(&plan).is_none_or(|status| status.starts_with("CrashLoopBackOff")), "{plan:?}");
        assert_eq!(plan.wait, Wait::Until(at(4)));
    }
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

/// Neither a drain nor a look for the Node comes before the deletion of the instance.
#[test]
fn t_49_deletion_without_target_begins_with_the_instance() {
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

/// Marker 5 of Go MCM, `Initiate node object deletion`, leads to the finalizer.
#[test]
fn t_49_deletion_without_target_ends_with_the_finalizer() {
    let plan = terminating("Initiate node object deletion").plan();
    assert!(matches!(plan.actions[..], [Action::RemoveFinalizer]), "{plan:?}");
}

/// A target cluster that does not answer is not evidence that there is none.
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
