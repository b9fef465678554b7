//! Planners that are called with altered facts, or whose plans are altered.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use machinist_api::StrategyType;
use machinist_api::constants::annotations;
use machinist_api::constants::finalizers::ORPHAN;
use machinist_core::{Known, Wait};
use machinist_plan::mcm::drain::NodeVolumes;
use machinist_plan::mcm::facts::NodeFacts;
use machinist_plan::mcm::{Plan, PodList};
use machinist_plan::mcm::{machine, machine_deployment, machine_set, replacement};

pub(super) fn early_finalizer(s: &machine::Snapshot) -> Plan<machine::Action> {
    let mut plan = machine::plan(s);
    if let Some(delete) = plan.actions.iter().position(|action| matches!(action, machine::Action::Delete(_)))
    {
        plan.actions.truncate(delete);
        plan.actions.push(machine::Action::RemoveFinalizer);
    }
    plan
}

pub(super) fn absence_without_lag(s: &machine::Snapshot) -> Plan<machine::Action> {
    let mut s = s.clone();
    s.process.promises.visible_within = Duration::ZERO;
    s.process.promises.call_bound = Duration::ZERO;
    machine::plan(&s)
}

pub(super) fn no_ownership_proof(s: &machine::Snapshot) -> Plan<machine::Action> {
    let mut s = s.clone();
    s.ownership.recorded = s.ownership.account.clone();
    machine::plan(&s)
}

pub(super) fn node_by_name(s: &machine::Snapshot) -> Plan<machine::Action> {
    let mut s = s.clone();
    if let Known::Present(node) = &mut s.node {
        let node = Arc::make_mut(node);
        node.provider_id = s.machine.provider_id.as_ref().map(|id| id.as_str().to_owned());
        node.created = node.created.max(s.machine.created);
        s.identity.same_instance = true;
        s.identity.claimed_by = None;
    }
    machine::plan(&s)
}

pub(super) fn unbounded_requeue(s: &machine::Snapshot) -> Plan<machine::Action> {
    let mut plan = machine::plan(s);
    plan.wait = Wait::Until(s.now);
    plan
}

/// Cordons the Node, and in the same pass takes it as cordoned, and as empty if the store shows no
/// pod.
pub(super) fn unseen_cordon(s: &machine::Snapshot) -> Plan<machine::Action> {
    let Known::Present(node) = &s.node else { return machine::plan(s) };
    let mut hasty = s.clone();
    let closed = NodeFacts { unschedulable: Some(true), ..(**node).clone() };
    hasty.node_seen.cordoned = Some(s.now);
    hasty.reads.pods = Some(PodList { node_uid: node.uid.clone(), started: s.now, leaving: 0, running: 0 });
    hasty.node = Known::Present(Arc::new(closed));
    let mut plan = machine::plan(&hasty);
    let is_told = |action: &machine::Action| matches!(action, machine::Action::SetTerminating { .. });
    // The call to delete waits in the queue of its account first. The pass that makes the call
    // closes the Node.
    if plan.actions.iter().any(|action| matches!(action, machine::Action::Queue(_))) {
        plan.actions.retain(|action| !is_told(action));
        return plan;
    }
    // The correct plan also writes the Terminating condition directly before it cordons the Node.
    let is_open = node.unschedulable != Some(true);
    let told = plan.actions.iter().position(is_told);
    if let Some(told) = told.filter(|_| is_open) {
        plan.actions.insert(told + 1, machine::Action::Cordon(node.clone()));
    }
    plan
}

/// Does not ask what the deployment of the set wants now.
pub(super) fn late_size(s: &machine_set::Snapshot) -> Plan<machine_set::Action> {
    machine_set::plan(&machine_set::Snapshot { limits: None, ..s.clone() })
}

/// Does not see that the garbage collector has to release the Machines, and deletes them by name.
pub(super) fn orphaned_machines(s: &machine_set::Snapshot) -> Plan<machine_set::Action> {
    let mut s = s.clone();
    without_orphan(&mut Arc::make_mut(&mut s.set).finalizers);
    let mut plan = machine_set::plan(&s);
    for action in &mut plan.actions {
        if let machine_set::Action::DeleteOwned(machine) = action {
            *action = machine_set::Action::Delete(machine.clone());
        }
    }
    plan
}

pub(super) fn orphaned_sets(s: &machine_deployment::Snapshot) -> Plan<machine_deployment::Action> {
    let mut s = s.clone();
    without_orphan(&mut Arc::make_mut(&mut s.deployment).finalizers);
    let mut plan = machine_deployment::plan(&s);
    for action in &mut plan.actions {
        if let machine_deployment::Action::DeleteOwnedSet(set) = action {
            *action = machine_deployment::Action::DeleteSet(set.clone());
        }
    }
    plan
}

fn without_orphan(finalizers: &mut Option<Vec<String>>) {
    if let Some(names) = finalizers {
        names.retain(|name| name != ORPHAN);
    }
}

pub(super) fn two_raises(s: &machine_deployment::Snapshot) -> Plan<machine_deployment::Action> {
    let mut s = s.clone();
    s.open_raises.clear();
    s.predecessor_until = None;
    machine_deployment::plan(&s)
}

pub(super) fn no_replacement_limit(s: &replacement::Snapshot) -> Plan<replacement::Action> {
    let alone = s.machines.iter().map(|machine| {
        // Without its set, no Machine counts as missing. Otherwise each single Machine would leave
        // a gap in its set.
        let alone = replacement::Snapshot { machines: vec![machine.clone()], sets: Vec::new(), ..s.clone() };
        replacement::plan(&alone)
    });
    let mut whole = replacement::plan(s);
    whole.actions = alone.flat_map(|plan| plan.actions).collect();
    whole
}

pub(super) fn early_recreation(s: &machine_deployment::Snapshot) -> Plan<machine_deployment::Action> {
    let mut s = s.clone();
    if s.deployment.recreates() {
        let strategy = Arc::make_mut(&mut s.deployment).spec.strategy.get_or_insert_default();
        strategy.type_ = Some(StrategyType::RollingUpdate);
    }
    machine_deployment::plan(&s)
}

/// Does not see that failed Machines are preserved.
pub(super) fn forgotten_preservation(s: &machine_set::Snapshot) -> Plan<machine_set::Action> {
    let mut s = s.clone();
    for machine in &mut s.machines {
        let machine = Arc::make_mut(machine);
        machine.status.preserve_until = None;
        if let Some(all) = &mut machine.annotations {
            all.remove(annotations::PRESERVE);
            all.remove(annotations::LAST_APPLIED_NODE_PRESERVE_VALUE);
        }
    }
    machine_set::plan(&s)
}

pub(super) fn forgotten_strays(s: &machine_set::Snapshot) -> Plan<machine_set::Action> {
    machine_set::plan(&machine_set::Snapshot { strays: None, ..s.clone() })
}

/// Takes all Machines as allowed to be unavailable during an update in place.
pub(super) fn hasty_selection(s: &machine_deployment::Snapshot) -> Plan<machine_deployment::Action> {
    let mut s = s.clone();
    let strategy = Arc::make_mut(&mut s.deployment).spec.strategy.as_mut();
    if let Some(in_place) = strategy.and_then(|strategy| strategy.in_place_update.as_mut()) {
        in_place.max_unavailable = Some(IntOrString::String("100%".to_owned()));
    }
    machine_deployment::plan(&s)
}

/// Does not see which volumes are attached to the Node, and which volumes its pods use.
pub(super) fn forgotten_volumes(s: &machine::Snapshot) -> Plan<machine::Action> {
    let mut s = s.clone();
    s.attachments.clear();
    s.volumes = NodeVolumes::default();
    machine::plan(&s)
}
