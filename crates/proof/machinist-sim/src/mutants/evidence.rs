//! Planners that take old or missing evidence for evidence: rules that hold under long outages, in
//! full queues and with other actors, each reverted.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinist_api::constants::annotations::MACHINE_PRIORITY;
use machinist_api::constants::labels::FORCE_DELETION;
use machinist_api::constants::markers::DeletionMarker;
use machinist_api::{LastOperation, OperationState, OperationType, Phase};
use machinist_core::{Call, Found, Freshness, Known, MadeIn, Unseen};
use machinist_instance::{InstanceRef, NodeName, ProviderId};
use machinist_plan::mcm::drain::EvictionAnswer;
use machinist_plan::mcm::machine::creation_failed;
use machinist_plan::mcm::{NodeRead, Plan, PodList, Why};
use machinist_plan::mcm::{machine, machine_deployment, orphaned_node, replacement};

/// Each eviction that was tried counts as answered and each deletion as accepted, old Nodes and
/// pods count as fresh, and no list is needed.
pub(super) fn attempts_as_answers(s: &machine::Snapshot) -> Plan<machine::Action> {
    let mut s = s.clone();
    (s.nodes_freshness, s.pods_freshness) = (Freshness::Fresh, Freshness::Fresh);
    s.reads.silence = None;
    let mut is_tried = false;
    for eviction in Arc::make_mut(&mut s.evictions).values_mut() {
        eviction.attempts.count = eviction.attempts.count.max(1);
        if eviction.is_deletion {
            eviction.outcome = EvictionAnswer::Deleted;
            is_tried = true;
        }
    }
    if let Known::Present(node) = &s.node
        && is_tried
    {
        s.reads.pods = Some(PodList { node_uid: node.uid.clone(), started: s.now, leaving: 0, running: 0 });
    }
    machine::plan(&s)
}

/// Old Nodes count as fresh, no look at the API server is needed, and no time is left out.
pub(super) fn stale_deadlines(s: &replacement::Snapshot) -> Plan<replacement::Action> {
    let mut s = s.clone();
    s.nodes_freshness = Freshness::Fresh;
    s.gaps = Unseen::default();
    for machine in &s.machines {
        if let Some(of) = s.nodes.get_mut(&machine.uid) {
            // As if a GET had just shown the state of the store.
            let node = of.node.present();
            let name = node.map_or(machine.node_name(), |node| &node.name).to_owned();
            let uid = node.map(|node| node.uid.clone());
            of.reads.nodes = vec![NodeRead { name, started: s.now, uid }];
        }
    }
    replacement::plan(&s)
}

/// The creation timeout runs from the creation of the Machine, whether or not it could be tried.
pub(super) fn queue_as_failure(s: &machine::Snapshot) -> Plan<machine::Action> {
    if !is_late_to_be_made(s) {
        return machine::plan(s);
    }
    let mut s = s.clone();
    fail_creation(&mut s);
    machine::plan(&s)
}

/// No creation that failed stops a replacement.
pub(super) fn without_stock(s: &replacement::Snapshot) -> Plan<replacement::Action> {
    let mut s = s.clone();
    for machine in s.machines.iter_mut().filter(|machine| machine.provider_id.is_none()) {
        if creation_failed(machine) {
            Arc::make_mut(machine).provider_id = ProviderId::parse("sim:///none").ok();
        }
    }
    replacement::plan(&s)
}

/// Each drain counts as blocked, and as tried politely by a former process, and no time is left
/// out.
pub(super) fn first_pass_by_force(s: &machine::Snapshot) -> Plan<machine::Action> {
    let is_draining = s.machine.deleting_since.is_some()
        && s.machine.status.phase == Phase::Terminating
        && matches!(
            DeletionMarker::parse(s.machine.status.operation.description()),
            None | Some(DeletionMarker::FindInstance | DeletionMarker::DrainNode)
        );
    if !is_draining {
        return machine::plan(s);
    }
    let mut s = s.clone();
    s.gaps = Unseen::default();
    let operation = &mut Arc::make_mut(&mut s.machine).status.operation;
    operation.type_ = Some(OperationType::Delete);
    operation.state = Some(OperationState::Failed);
    operation.description = Some(format!("Drain is blocked: . {}", DeletionMarker::DrainNode));
    let acting_since = s.process.acting_since();
    operation.last_update_time = acting_since.checked_sub(Duration::from_secs(1)).ok().map(Time);
    s.pods_freshness = Freshness::Fresh;
    machine::plan(&s)
}

/// A Machine without a recorded instance is given up at its deadline, and the process assumes that
/// no other process ever called the cloud.
pub(super) fn unasked_failure(s: &machine::Snapshot) -> Plan<machine::Action> {
    if !is_late_to_be_made(s) {
        return machine::plan(s);
    }
    let mut s = s.clone();
    fail_creation(&mut s);
    s.process.leading_since = None;
    s.process.started = jiff::Timestamp::MIN;
    s.answers.unsure_since = None;
    s.answers.made_in = MadeIn::Nowhere;
    machine::plan(&s)
}

/// A driver call that failed writes the marker of a drain that has ended.
pub(super) fn failed_call_ends_drain(s: &machine::Snapshot) -> Plan<machine::Action> {
    let mut plan = machine::plan(s);
    for action in &mut plan.actions {
        let machine::Action::SetStatus(write) = action else { continue };
        let Some(operation) = &mut write.operation else { continue };
        let is_failed_call = operation.kind == OperationType::Delete
            && operation.state == OperationState::Failed
            && operation.code.is_some();
        for earlier in [DeletionMarker::FindInstance, DeletionMarker::DrainNode] {
            if is_failed_call {
                let ended = DeletionMarker::DeleteInstance.as_str();
                operation.description = operation.description.replace(earlier.as_str(), ended);
            }
        }
    }
    plan
}

/// The Machines have no deletion priority, by which their sets really choose first.
pub(super) fn unavailable_first(s: &machine_deployment::Snapshot) -> Plan<machine_deployment::Action> {
    let mut s = s.clone();
    for machine in s.sets.iter_mut().flat_map(|owned| &mut owned.machines) {
        if machine.annotation(MACHINE_PRIORITY) == Some("1")
            && let Some(annotations) = &mut Arc::make_mut(machine).annotations
        {
            annotations.remove(MACHINE_PRIORITY);
        }
    }
    machine_deployment::plan(&s)
}

/// A pass that only waits gives no reason.
pub(super) fn silent_wait(s: &machine::Snapshot) -> Plan<machine::Action> {
    let plan = machine::plan(s);
    if plan.actions.is_empty() { Plan { why: Why::up_to_date(), ..plan } } else { plan }
}

/// No status names a pod whose eviction was rejected.
pub(super) fn unreported_rejection(s: &machine::Snapshot) -> Plan<machine::Action> {
    let mut plan = machine::plan(s);
    let names_a_pod = |action: &machine::Action| match action {
        machine::Action::SetStatus(write) => {
            let pods = s.evictions.values().map(|eviction| eviction.pod.as_str());
            let text = write.operation.as_ref().map_or("", |operation| operation.description.as_str());
            pods.into_iter().any(|pod| text.contains(pod))
        }
        _ => false,
    };
    plan.actions.retain(|action| !names_a_pod(action));
    plan
}

/// While the API server of the Nodes does not answer, the label `force-deletion` has no effect.
pub(super) fn force_needs_nodes(s: &machine::Snapshot) -> Plan<machine::Action> {
    if s.nodes_freshness.is_fresh() && s.reads.silence.is_none() {
        return machine::plan(s);
    }
    let mut s = s.clone();
    if let Some(labels) = &mut Arc::make_mut(&mut s.machine).labels {
        labels.remove(FORCE_DELETION);
    }
    machine::plan(&s)
}

/// A Machine without an instance is looked up every minute, before its creation.
pub(super) fn idle_lookups(s: &machine::Snapshot) -> Plan<machine::Action> {
    const EVERY: Duration = Duration::from_secs(60);
    let mut plan = machine::plan(s);
    let is_due = |found: &Found| found.answered.ended + EVERY <= s.now;
    let creates = |action: &machine::Action| matches!(action, machine::Action::Queue(Call::ENSURE));
    if plan.actions.iter().any(creates) && s.answers.find.as_deref().is_none_or(is_due) {
        let name = NodeName::new(&s.machine.name);
        let which = InstanceRef { name, ..InstanceRef::default() };
        plan.actions = vec![machine::Action::Find(which)];
    }
    plan
}

/// A token that is made for a short creation timeout expires with it.
pub(super) fn short_token(s: &machine::Snapshot) -> Plan<machine::Action> {
    const SHORT: Duration = Duration::from_secs(60);
    let mut plan = machine::plan(s);
    let timeout = s.machine.creation_timeout.unwrap_or(s.defaults.creation_timeout);
    for action in &mut plan.actions {
        if let machine::Action::CreateToken { expires, .. } = action
            && timeout <= SHORT
        {
            *expires = (*expires).min(s.now + timeout);
        }
    }
    plan
}

/// An initialization that failed counts as done.
pub(super) fn failed_initialization(s: &machine::Snapshot) -> Plan<machine::Action> {
    let mut s = s.clone();
    if let Some((_, answered)) = s.answers.initialized.as_deref_mut() {
        answered.answer = Ok(());
    }
    machine::plan(&s)
}

/// Every earlier call counts as one in the zone that the class names now.
pub(super) fn forgotten_zone(s: &machine::Snapshot) -> Plan<machine::Action> {
    let mut s = s.clone();
    s.key_scope.called = None;
    s.key_scope.intended = Some(s.key_scope.of_class.clone());
    machine::plan(&s)
}

/// No Node is released.
pub(super) fn kept_node(_: &orphaned_node::Snapshot) -> Plan<orphaned_node::Action> {
    Plan::idle(Why::up_to_date())
}

/// Whether a Machine without an instance is older than its creation timeout.
fn is_late_to_be_made(s: &machine::Snapshot) -> bool {
    let timeout = s.machine.creation_timeout.unwrap_or(s.defaults.creation_timeout);
    let age = Duration::try_from(s.now.duration_since(s.machine.created)).unwrap_or_default();
    let is_to_be_made = s.machine.provider_id.is_none() && s.machine.deleting_since.is_none();
    is_to_be_made && s.machine.status.phase != Phase::Failed && timeout < age
}

/// The creation of the Machine counts as failed since it exists.
fn fail_creation(s: &mut machine::Snapshot) {
    s.gaps = Unseen::default();
    s.waited = Duration::ZERO;
    s.answers.wanted_since = None;
    Arc::make_mut(&mut s.machine).status.operation = LastOperation {
        type_: Some(OperationType::Create),
        state: Some(OperationState::Failed),
        ..LastOperation::default()
    };
}
