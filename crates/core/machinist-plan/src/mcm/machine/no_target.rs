//! Machines without a target cluster: `--target-kubeconfig none`.
//!
//! There are no Nodes. So a Machine gets no bootstrap token and no label `node`, and is Available
//! as soon as its instance exists. The status has the addresses of the instance, because no Node
//! shows them. The health of a Machine is never judged, and its deletion neither drains nor deletes
//! a Node ([`super::delete`]).
//!
//! Deliberately absent: how a Machine that exists gets new addresses. Go MCM also writes them only
//! when it creates the instance.

use k8s_openapi::api::core::v1::NodeAddress;
use machinist_api::code::Code;
use machinist_api::constants::markers;
use machinist_api::{OperationType, Phase};
use machinist_instance::{AddressKind, ErrorKind, Instance, Power, Sighting};
use std::time::Duration;

use super::action::Action;
use super::join::failed_why;
use super::snapshot::Snapshot;
use super::status::{OldState, OperationWrite};
use super::{create, initialize};
use crate::mcm::why::{Plan, Reason, Step, Why};
use machinist_core::{Call, plus, retry_after};

/// Wait before the next lookup of an instance that has no address yet.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Decides about a living Machine with a recorded instance.
pub(super) fn plan(s: &Snapshot) -> Plan<Action> {
    match s.machine.status.phase {
        Phase::Empty | Phase::CrashLoopBackOff => initialize::plan(s).unwrap_or_else(|| record_addresses(s)),
        Phase::Pending => record_addresses(s),
        Phase::Failed => Plan::idle(failed_why(s)),
        // A phase that was written while there was a target cluster stays, as in Go MCM.
        Phase::Available
        | Phase::Running
        | Phase::Terminating
        | Phase::Unknown
        | Phase::InPlaceUpdating
        | Phase::InPlaceUpdateSuccessful
        | Phase::InPlaceUpdateFailed
        | Phase::Other(_) => Plan::idle(Why::up_to_date().since(s.machine.status.phase_since)),
    }
}

/// Looks the instance up until it has an address, and then writes the status. A process that died
/// after it had recorded the instance has not written the addresses.
fn record_addresses(s: &Snapshot) -> Plan<Action> {
    if let Some((call, since, until)) = s.answers.waiting(&s.process, s.now) {
        let why = Why::new(Reason::Calling(call), Step::Expect("the cloud answers"));
        return Plan::until(until, why.since(since));
    }
    let recorded = s.identity.recorded.ours();
    let ensured = s.answers.ensure.as_ref().and_then(|ensured| ensured.answer.as_ref().ok());
    if let Some(instance) = ensured.filter(|instance| Some(&instance.id) == recorded)
        && let Some(status) = available(s, instance)
    {
        return write(status);
    }
    if let Some(obstacle) = create::prerequisite(s) {
        return create::obstructed(s, &obstacle);
    }
    let looking = || Why::new(Reason::Calling(Call::FIND), Step::Expect("the Machine is available"));
    let find = || s.paused().unwrap_or_else(|| Plan::act(Action::Find(s.instance()), looking()));
    let Some(found) = s.answers.find.as_deref().filter(|found| found.by.id.as_ref() == recorded) else {
        return find();
    };
    let ended = found.answered.ended;
    match &found.answered.answer {
        Ok(Sighting::Present(instance)) => match available(s, instance) {
            Some(status) => write(status),
            None if plus(ended, LOOK_AGAIN_AFTER) <= s.now => find(),
            None if has_timed_out(s) => create::give_up_recorded(s, no_address(s), None),
            None => {
                let why = create::with_deadline(s, looking());
                create::until_timeout(s, Plan::until(plus(ended, LOOK_AGAIN_AFTER), why))
            }
        },
        // As in Go MCM, a recorded instance counts as present.
        Ok(Sighting::Absent | Sighting::Ended | Sighting::Parts(_) | Sighting::Foreign(_)) => {
            status(s, Vec::new()).map_or_else(find, write)
        }
        Err(error) if error.kind == ErrorKind::Unsupported => status(s, Vec::new()).map_or_else(find, write),
        // As in Go MCM, this is a failure of the creation.
        Err(error) => {
            let (operation, state) =
                (create::refused(error), s.state_after(error, OldState::after_creation(error)));
            if has_timed_out(s) {
                return create::give_up_recorded(s, operation, state);
            }
            let wait = retry_after(error.kind, s.answers.failures, s.defaults.exhausted_retry);
            let retry_at = plus(ended, wait);
            if retry_at <= s.now || s.answers.is_fixed(s.inputs) {
                return find();
            }
            let why = Why::call_failed(Call::FIND, error, s.answers.failures, retry_at).since(ended);
            let why = create::with_deadline(s, why);
            create::until_timeout(s, create::report(s, &operation, state, why, Some(retry_at)))
        }
    }
}

/// Whether the creation ends as failed. A Machine that is older than this process may have been
/// restored from a backup. Its instance may run pods, so no time decides.
fn has_timed_out(s: &Snapshot) -> bool {
    create::has_timed_out(s) && s.process.saw_creation_of(s.machine.created)
}

/// The operation of an instance that boots for too long.
fn no_address(s: &Snapshot) -> OperationWrite {
    let description = format!(
        "Machine {} was not created in time. Instance {} has no address",
        s.machine.name,
        s.instance()
    );
    OperationWrite::failed(OperationType::Create, description, Some(Code::DeadlineExceeded))
}

fn write(status: Action) -> Plan<Action> {
    let why = Why::new(Reason::Writing("updating the status: the instance exists"), Step::Nothing);
    Plan::act(status, why)
}

/// Returns the status write for an instance that exists; `None` while its addresses are unknown.
pub(super) fn available(s: &Snapshot, instance: &Instance) -> Option<Action> {
    if instance.addresses.is_empty() && instance.power == Power::Pending {
        return None;
    }
    let of_cloud = instance.addresses.iter().map(|address| (kind(address.kind), address.address.clone()));
    let name = (kind(AddressKind::Hostname), instance.name.to_string());
    status(s, of_cloud.chain([name]).collect())
}

/// Returns the status write that adds these addresses to those in the status: sorted by type and
/// address, each once.
fn status(s: &Snapshot, added: Vec<(&str, String)>) -> Option<Action> {
    let operation = OperationWrite::successful(OperationType::Create, markers::CREATED);
    let mut write = s.status(Phase::Available, operation)?;
    let known = s.machine.status.addresses.iter();
    let known = known.map(|address| (address.type_.clone(), address.address.clone()));
    let added = added.into_iter().map(|(kind, address)| (kind.to_owned(), address));
    let mut all: Vec<_> = known.chain(added).collect();
    all.sort_unstable();
    all.dedup();
    let all = all.into_iter().map(|(type_, address)| NodeAddress { address, type_ });
    write.addresses = Some(all.collect());
    Some(Action::SetStatus(Box::new(write)))
}

/// The type of a Node address as the API spells it.
fn kind(kind: AddressKind) -> &'static str {
    match kind {
        AddressKind::InternalIP => "InternalIP",
        AddressKind::ExternalIP => "ExternalIP",
        AddressKind::Hostname => "Hostname",
        AddressKind::InternalDNS => "InternalDNS",
        AddressKind::ExternalDNS => "ExternalDNS",
    }
}
