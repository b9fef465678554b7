//! Waits for the Node of an instance, and reacts when the Node becomes unhealthy.

use machinist_api::constants::{conditions, markers, taints};
use machinist_api::{OperationState, OperationType, Phase};

use super::identity::OwnNode;
use super::{Action, JOINED, NODE_UNHEALTHY, NodeSync, OperationWrite, Severity, Snapshot, create};
use crate::facts::{ConditionFacts, NodeFacts, Token};
use crate::why::{McmReason, Reason, Step, why_updated_in_place};
use crate::{Plan, Why};
use machinist_core::{is_past, just_past, plus};

pub(super) fn plan(s: &Snapshot) -> Plan<Action> {
    let phase = &s.machine.status.phase;
    if matches!(phase, Phase::Empty | Phase::CrashLoopBackOff)
        && let Some(pending) = create::pending(s)
    {
        let why = Why::new(
            Reason::Writing("updating the status: the instance exists"),
            Step::Expect("the Node joins"),
        );
        return Plan::act(pending, why);
    }
    let node = match s.joined_node() {
        OwnNode::Ours(node) => node,
        OwnNode::Missing => return without_node(s, None),
        OwnNode::NotOurs(node, evidence) => {
            let reason = McmReason::NodeNotOurs { node: node.name.clone(), evidence };
            return without_node(s, Some(reason));
        }
    };
    if node.deleting_since.is_some() && !node.is_not_managed() {
        // A user who deletes a Node requests the deletion of its Machine.
        let why = Why::new(
            McmReason::NodeLeaving { node: node.name.clone() },
            Step::Expect("the Machine is deleted"),
        );
        return Plan::act(Action::DeleteMachine, why);
    }
    if let Some(value) = s.machine.preserve_news(node) {
        // This comes first: if the Machine fails, the manager must already know that the Machine is
        // preserved.
        let why = Why::new(Reason::Writing("recording the preserve annotation of the Node"), Step::Nothing);
        return Plan::act(Action::CarryPreserve(value), why);
    }
    let mut actions = Vec::new();
    if !node.is_not_managed()
        && let Some(sync) = NodeSync::needed(&s.machine, node)
    {
        actions.push(Action::SyncNode(Box::new(sync)));
    }
    let mut plan = with_node(s, node);
    actions.append(&mut plan.actions);
    plan.actions = actions;
    plan
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
        // In-place updates are not supported yet, so the phase stays for the program that began the
        // update.
        let mut plan = Plan::idle(why_updated_in_place(&s.machine));
        if s.conditions_differ(&node.conditions) {
            plan.actions.push(copy_conditions(s, node));
        }
        return plan;
    }
    let own = s.machine.spec.configuration.node_conditions.as_ref();
    let own: Option<Vec<String>> = own.map(|list| list.split(',').map(|t| t.trim().to_owned()).collect());
    match health(&node.conditions, own.as_ref().unwrap_or(&s.defaults.bad_conditions)) {
        Ok(()) if is_essential_missing(s, node) => {
            awaiting(s, McmReason::CriticalComponents { node: node.name.clone() })
        }
        Ok(()) => healthy(s, node),
        Err(against) => unhealthy(s, node, against),
    }
}

/// Whether critical components of a new Node are not ready. Such a Node does not count as joined
/// yet.
fn is_essential_missing(s: &Snapshot, node: &NodeFacts) -> bool {
    let taints = node.taints.as_deref().unwrap_or_default();
    s.machine.status.phase == Phase::Pending
        && taints
            .iter()
            .any(|t| t.key == taints::CRITICAL_COMPONENTS_NOT_READY && t.effect == taints::EFFECT_NO_SCHEDULE)
}

fn healthy(s: &Snapshot, node: &NodeFacts) -> Plan<Action> {
    let mut plan = Plan::idle(Why::settled().since(s.machine.status.phase_since));
    if s.machine.status.phase != Phase::Running {
        let joins = s.machine.status.operation.type_ == Some(OperationType::Create)
            && s.machine.status.operation.state != Some(OperationState::Successful);
        let operation = if joins {
            OperationWrite::successful(OperationType::Create, markers::joined(&s.machine.name))
        } else {
            let description = format!("Machine {} successfully re-joined the cluster", s.machine.name);
            OperationWrite::successful(OperationType::HealthCheck, description)
        };
        let message = operation.description.clone();
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
    let write = super::StatusWrite { phase: None, operation: None, conditions: None, at: s.now };
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
            awaiting(s, reason)
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
        Phase::Pending => {
            awaiting(s, not_ours.unwrap_or(McmReason::Joining { node: name, token: s.token_use }))
        }
        _ => Plan::idle(unhealthy_why(s, name, missing)),
    }
}

/// Waits for the Node, up to the creation timeout.
fn awaiting(s: &Snapshot, reason: McmReason) -> Plan<Action> {
    let deadline = s.creation_deadline();
    let why = Why::new(reason, Step::Expect("the instance boots and its kubelet registers"))
        .since(s.machine.status.phase_since)
        .deadline(just_past(deadline), Step::Expect("the Machine is marked Failed"));
    if s.machine.status.phase == Phase::Failed || !is_past(s.now, deadline) {
        return match s.machine.status.phase {
            Phase::Failed => Plan::idle(failed_why(s)),
            _ => Plan::until(just_past(deadline), why),
        };
    }
    if !s.process.may_enforce_deadlines() {
        let seconds = s.process.skew.as_secs();
        let why = Why::new(Reason::ClockSkew { seconds }, Step::Fix("synchronize the clocks".to_owned()));
        return Plan::until(plus(s.now, std::time::Duration::from_secs(60)), why);
    }
    let description =
        format!("Machine {} failed to join the cluster in time. Last state: {}", s.machine.name, why.reason);
    let operation = OperationWrite::failed(OperationType::Create, &description, None);
    let write = s.status(Phase::Failed, operation).map(|write| Action::SetStatus(Box::new(write)));
    let mut actions: Vec<_> = write.into_iter().collect();
    actions.push(Action::warn(super::CREATE_FAILED, description));
    Plan::act_all(actions, why)
}

/// Returns why a Machine is unhealthy. The phase stays Unknown until the health timeout. The
/// replacement planner marks the Machine as Failed, so that one limit applies to all Machines of a
/// deployment.
fn unhealthy_why(s: &Snapshot, node: String, against: String) -> Why {
    if s.machine.status.phase == Phase::Failed {
        return failed_why(s);
    }
    let configuration = &s.machine.spec.configuration;
    let timeout =
        configuration.health_timeout().and_then(|t| t.to_std()).unwrap_or(s.defaults.health_timeout);
    let reason = McmReason::Unhealthy { node, conditions: against };
    let why = Why::new(reason, Step::Expect("the Node recovers")).since(s.machine.status.phase_since);
    match s.machine.status.phase_since {
        Some(since) if !configuration.disables_health_timeout() => why.deadline(
            just_past(plus(since, timeout)),
            Step::Expect("the Machine is marked Failed, one per deployment at a time"),
        ),
        _ => why,
    }
}

pub(super) fn failed_why(s: &Snapshot) -> Why {
    if let Some(preserved) = s.machine.preserved(s.now) {
        return crate::why::why_preserved(&s.machine, preserved);
    }
    let description = s.machine.status.operation.description().to_owned();
    Why::new(McmReason::Failed { description }, Step::Expect("the MachineSet deletes the Machine"))
        .since(s.machine.status.phase_since)
}
