//! Waits for the Node of an instance, and reacts when the Node becomes unhealthy.
//!
//! No Machine is marked Failed here. Machines of one deployment share the limit on replacements, so
//! [`crate::mcm::replacement`] decides whose Node was missing or unhealthy for too long.

use std::sync::Arc;

use jiff::Timestamp;

use machinist_api::constants::{conditions, markers, taints};
use machinist_api::{OperationState, OperationType, Phase};

use super::action::Action;
use super::action::JOINED;
use super::action::NODE_UNHEALTHY;
use super::identity::{MachineIdentity, OwnNode, joined_node};
use super::snapshot::Defaults;
use super::snapshot::Snapshot;
use super::status::OperationWrite;
use super::{Severity, boot, create, initialize, managed_again, stale_node, virtual_capacity};
use crate::mcm::facts::{ConditionFacts, MachineFacts, NodeFacts, Token};
use crate::mcm::why::{McmReason, Plan, Reason, Step, Why, why_updated_in_place};
use machinist_core::{Known, Unseen, is_past, just_past, plus};

pub(super) fn plan(s: &Snapshot) -> Plan<Action> {
    let phase = &s.machine.status.phase;
    let is_new = matches!(phase, Phase::Empty | Phase::CrashLoopBackOff);
    if is_new && let Some(plan) = stale_node::fail(s) {
        return plan;
    }
    // The Machine of an older Node was restored: its instance was completed before, and carries the
    // key of the object that was lost.
    let is_restored = matches!(s.joined_node(), OwnNode::Ours(node) if is_older(s, node));
    if is_new
        && !is_restored
        && let Some(plan) = initialize::plan(s)
    {
        return plan;
    }
    if is_new && let Some(pending) = create::pending(s) {
        let why = Why::new(
            Reason::Writing("updating the status: the instance exists"),
            Step::Expect("the Node joins"),
        );
        return Plan::act(pending, why);
    }
    let had_joined = matches!(phase, Phase::Running | Phase::Unknown | Phase::Available);
    if had_joined && matches!(s.node, Known::Unasked) {
        let reason = McmReason::NodeNotAsked { node: s.machine.node_name().to_owned() };
        let fix = "name the cluster of the Nodes with --target-kubeconfig".to_owned();
        return Plan::idle(Why::new(reason, Step::Fix(fix)));
    }
    let node = match s.joined_node() {
        OwnNode::Ours(node) => node,
        OwnNode::Missing => return without_node(s, None),
        OwnNode::NotOurs(node, evidence) => {
            let reason = McmReason::NodeNotOurs { node: node.name.clone(), evidence };
            return without_node(s, Some(reason));
        }
    };
    let is_of_another = s.of_another(node).is_some();
    if node.deleting_since.is_some() && !node.is_not_managed() && !is_of_another {
        // A user who deletes a Node requests the deletion of its Machine.
        let why = Why::new(
            McmReason::NodeLeaving { node: node.name.clone() },
            Step::Expect("the Machine is deleted"),
        );
        return Plan::act(Action::DeleteMachine, why);
    }
    if node.deleting_since.is_some() && node.has_finalizer && s.identity.held_by.is_none() {
        // A user has excluded the Node from management, or our label is left on the Node of another
        // instance. Its deletion does not delete the Machine, and must not hang while the Machine
        // lives.
        let why = Why::new(Reason::Writing("removing the finalizer of the Node"), Step::Nothing);
        return Plan::act(Action::RemoveNodeFinalizer(node.clone()), why);
    }
    if let Some(value) = s.machine.preserve_news(node) {
        // This comes first: if the Machine fails, the manager must already know that the Machine is
        // preserved.
        let why = Why::new(Reason::Writing("recording the preserve annotation of the Node"), Step::Nothing);
        return Plan::act(Action::CarryPreserve(value), why);
    }
    let mut actions = Vec::new();
    if !node.is_not_managed()
        && let Some(sync) = s.node_sync(node)
    {
        actions.push(Action::SyncNode(Box::new(sync)));
    }
    let mut plan = with_node(s, node);
    actions.append(&mut plan.actions);
    // Other programs find the Node by this label.
    actions.extend(s.unrecorded_node().map(Action::LabelNode));
    plan.actions = actions;
    if !node.is_not_managed() {
        virtual_capacity::attend(s, node, &mut plan);
    }
    managed_again::attend(s, node, plan)
}

/// Checks whether a Node is healthy.
///
/// The condition `Ready` must be True if it exists. Every condition with a bad type must be False.
///
/// # Errors
/// Returns the failing conditions as text for users.
pub fn health(node: &[ConditionFacts], bad: &[String]) -> Result<(), String> {
    if node.is_empty() {
        return Err("it has no conditions yet".to_owned());
    }
    let speaks_against = |condition: &&ConditionFacts| match condition.kind.as_str() {
        conditions::NODE_READY => condition.status != "True",
        kind => bad.iter().any(|bad| bad.trim() == kind) && condition.status != "False",
    };
    let against: Vec<_> =
        node.iter().filter(speaks_against).map(|c| format!("{} is {}", c.kind, c.status)).collect();
    if against.is_empty() { Ok(()) } else { Err(against.join(", ")) }
}

fn with_node(s: &Snapshot, node: &NodeFacts) -> Plan<Action> {
    if s.machine.is_updating_in_place() {
        // The health of the Node says nothing during the update, which may restart it.
        let mut plan = Plan::idle(why_updated_in_place(&s.machine));
        if s.conditions_differ(&node.conditions) {
            plan.actions.push(copy_conditions(s, node));
        }
        return plan;
    }
    match health_of(&s.machine, node, &s.defaults) {
        Ok(()) if is_essential_missing(&s.machine, node) => {
            awaiting(s, McmReason::CriticalComponents { node: node.name.clone() }, BOOTS)
        }
        Ok(()) => healthy(s, node),
        Err(against) => unhealthy(s, node, against),
    }
}

/// Checks whether a Node is healthy by the conditions that count for the Machine.
fn health_of(machine: &MachineFacts, node: &NodeFacts, defaults: &Defaults) -> Result<(), String> {
    let own = machine.spec.configuration.node_conditions.as_ref();
    let own: Option<Vec<String>> = own.map(|list| list.split(',').map(|t| t.trim().to_owned()).collect());
    health(&node.conditions, own.as_ref().unwrap_or(&defaults.bad_conditions))
}

/// The verdict about a Machine by its Node.
pub(crate) enum Judged {
    /// The Node has joined and is healthy.
    Healthy,
    /// There is no Node of that name.
    Missing,
    /// The Node is unhealthy, not complete, or not the Machine's.
    Bad(McmReason),
}

/// Judges a Machine by its Node.
pub(crate) fn judge(
    machine: &MachineFacts,
    node: &Known<Arc<NodeFacts>>,
    identity: &MachineIdentity,
    defaults: &Defaults,
) -> Judged {
    let node = match joined_node(machine, node, identity) {
        OwnNode::Ours(node) => node,
        OwnNode::Missing => return Judged::Missing,
        OwnNode::NotOurs(node, evidence) => {
            return Judged::Bad(McmReason::NodeNotOurs { node: node.name.clone(), evidence });
        }
    };
    let name = node.name.clone();
    match health_of(machine, node, defaults) {
        Ok(()) if is_essential_missing(machine, node) => {
            Judged::Bad(McmReason::CriticalComponents { node: name })
        }
        Ok(()) => Judged::Healthy,
        Err(conditions) => Judged::Bad(McmReason::Unhealthy { node: name, conditions }),
    }
}

/// Returns when the Node of a Pending Machine must have joined. The time counts from the status
/// that recorded the instance: before, the Machine may have waited for its turn in the cloud.
pub(crate) fn join_deadline(machine: &MachineFacts, defaults: &Defaults, gaps: &Unseen) -> Timestamp {
    let since = machine.status.phase_since.unwrap_or(machine.created);
    gaps.deadline(since, defaults.creation_patience(machine))
}

/// Returns when a Machine that is unhealthy is marked Failed; absent if its time or its timeout is
/// not set.
pub(crate) fn health_deadline(
    machine: &MachineFacts,
    defaults: &Defaults,
    gaps: &Unseen,
) -> Option<Timestamp> {
    let configuration = &machine.spec.configuration;
    let own = configuration.health_timeout().and_then(|timeout| timeout.to_std());
    let since = machine.status.phase_since.filter(|_| !configuration.disables_health_timeout())?;
    Some(gaps.deadline(since, own.unwrap_or(defaults.health_timeout)))
}

/// Whether critical components of a new Node are not ready. Until they are ready, the Node does not
/// count as joined.
fn is_essential_missing(machine: &MachineFacts, node: &NodeFacts) -> bool {
    let taints = node.taints.as_deref().unwrap_or_default();
    machine.status.phase == Phase::Pending
        && taints
            .iter()
            .any(|t| t.key == taints::CRITICAL_COMPONENTS_NOT_READY && t.effect == taints::EFFECT_NO_SCHEDULE)
}

fn healthy(s: &Snapshot, node: &NodeFacts) -> Plan<Action> {
    let mut plan = Plan::idle(Why::up_to_date().since(s.machine.status.phase_since));
    if s.machine.status.phase != Phase::Running {
        let joins = s.machine.status.operation.type_ == Some(OperationType::Create)
            && s.machine.status.operation.state != Some(OperationState::Successful);
        let operation = if joins {
            OperationWrite::successful(OperationType::Create, markers::joined(&s.machine.name))
        } else {
            let description = format!("Machine {} successfully re-joined the cluster", s.machine.name);
            OperationWrite::successful(OperationType::HealthCheck, description)
        };
        let mut message = operation.description.clone();
        if joins {
            let took = s.now.duration_since(s.machine.created).as_secs().max(0);
            message = format!("{message} after {took} s");
        }
        if let Some(write) = s.status(Phase::Running, operation) {
            plan.actions.push(Action::SetStatus(Box::new(write.with_conditions(&node.conditions))));
            plan.actions.push(Action::Tell { severity: Severity::Normal, reason: JOINED, message });
        }
    } else if s.conditions_differ(&node.conditions) {
        plan.actions.push(copy_conditions(s, node));
    }
    // The Node has its own credential now, so the token is no longer needed.
    if let Token::Ours(token) = &s.token {
        plan.actions.push(Action::DeleteToken(token.clone()));
    }
    plan
}

/// Copies the Node's conditions. Phase and operation do not change.
fn copy_conditions(s: &Snapshot, node: &NodeFacts) -> Action {
    let write = s.no_change();
    Action::SetStatus(Box::new(write.with_conditions(&node.conditions)))
}

fn unhealthy(s: &Snapshot, node: &NodeFacts, against: String) -> Plan<Action> {
    match &s.machine.status.phase {
        // A Machine restored from a backup is not new. All Machines of its deployment have the same
        // age, so the creation timeout would mark all of them Failed at once.
        phase if *phase == Phase::Running || *phase == Phase::Pending && is_older(s, node) => {
            let description = format!(
                "Machine {} is unhealthy - changing MachineState to Unknown. {against}",
                s.machine.name
            );
            let write = s
                .status(Phase::Unknown, OperationWrite::processing(OperationType::HealthCheck, &description));
            let mut actions: Vec<_> = write
                .map(|write| Action::SetStatus(Box::new(write.with_conditions(&node.conditions))))
                .into_iter()
                .collect();
            actions.push(Action::warn(NODE_UNHEALTHY, description));
            Plan::act_all(actions, unhealthy_why(s, node.name.clone(), against))
        }
        Phase::Pending => {
            let reason = McmReason::Unhealthy { node: node.name.clone(), conditions: against };
            awaiting(s, reason, BOOTS)
        }
        _ => {
            let mut plan = Plan::idle(unhealthy_why(s, node.name.clone(), against));
            if s.conditions_differ(&node.conditions) {
                plan.actions.push(copy_conditions(s, node));
            }
            plan
        }
    }
}

/// Whether the Node is older than the Machine, with tolerance for clock skew.
fn is_older(s: &Snapshot, node: &NodeFacts) -> bool {
    plus(node.created, s.process.skew) < s.machine.created
}

fn without_node(s: &Snapshot, not_ours: Option<McmReason>) -> Plan<Action> {
    if s.machine.is_updating_in_place() {
        return Plan::idle(why_updated_in_place(&s.machine));
    }
    let name = s.machine.node_name().to_owned();
    let missing = match &not_ours {
        Some(McmReason::NodeNotOurs { evidence, .. }) => {
            format!("the Node object does not belong to this machine ({evidence})")
        }
        Some(_) | None => "the Node object went missing".to_owned(),
    };
    match &s.machine.status.phase {
        Phase::Running => {
            let description = format!(
                "Node object went missing. Machine {} is unhealthy - changing MachineState to Unknown",
                s.machine.name
            );
            let operation = OperationWrite::processing(OperationType::HealthCheck, &description);
            let write = s.status(Phase::Unknown, operation).map(|write| Action::SetStatus(Box::new(write)));
            let mut actions: Vec<_> = write.into_iter().collect();
            actions.push(Action::warn(NODE_UNHEALTHY, description));
            Plan::act_all(actions, unhealthy_why(s, name, missing))
        }
        Phase::Pending => match not_ours {
            Some(reason) => awaiting(s, reason, BOOTS),
            None => boot::joining(s, name),
        },
        _ => Plan::idle(unhealthy_why(s, name, missing)),
    }
}

/// The event that ends the wait for a Node.
pub(super) const BOOTS: Step = Step::Expect("the instance boots and its kubelet registers");

/// Waits for the Node, up to the creation timeout, which counts from the instance on.
pub(super) fn awaiting(s: &Snapshot, reason: McmReason, next: Step) -> Plan<Action> {
    if s.machine.status.phase == Phase::Failed {
        return Plan::idle(failed_why(s));
    }
    let deadline = join_deadline(&s.machine, &s.defaults, &s.gaps);
    let why = Why::new(reason, next)
        .since(s.machine.status.phase_since)
        .deadline(just_past(deadline), Step::Expect("the Machine is marked Failed"));
    if is_past(s.now, deadline) { Plan::idle(why) } else { Plan::until(just_past(deadline), why) }
}

/// Returns why a Machine is unhealthy. The phase stays Unknown until the health timeout. The
/// replacement planner marks the Machine as Failed, so that one limit applies to all Machines of a
/// deployment.
fn unhealthy_why(s: &Snapshot, node: String, against: String) -> Why {
    if s.machine.status.phase == Phase::Failed {
        return failed_why(s);
    }
    let reason = McmReason::Unhealthy { node, conditions: against };
    let why = Why::new(reason, Step::Expect("the Node recovers")).since(s.machine.status.phase_since);
    match health_deadline(&s.machine, &s.defaults, &s.gaps) {
        Some(deadline) => why.deadline(
            just_past(deadline),
            Step::Expect("the Machine is marked Failed, unless --replacements-at-once is reached"),
        ),
        None => why,
    }
}

pub(super) fn failed_why(s: &Snapshot) -> Why {
    if let Some(preserved) = s.machine.preserved(s.now) {
        return crate::mcm::why::why_preserved(&s.machine, preserved);
    }
    let description = s.machine.status.operation.description().to_owned();
    Why::new(McmReason::Failed { description }, Step::Expect("the MachineSet deletes the Machine"))
        .since(s.machine.status.phase_since)
}
