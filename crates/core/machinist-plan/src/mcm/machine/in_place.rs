//! Updates in place, as the Machine and its Node see them. The manager decides which Machines are
//! updated ([`crate::mcm::machine_deployment`]); a program on the Node updates it.
//!
//! ```text
//! the set is of an old template -> label candidate-for-update, condition CandidateForUpdate
//! label selected-for-update     -> condition SelectedForUpdate -> cordon, drain
//! drained                       -> phase InPlaceUpdating -> DrainSuccessful -> ReadyForUpdate
//! label update-result           -> label on the Machine, condition, phase
//! the set is of the new template -> labels removed, Node schedulable
//! ```
//!
//! Each pass writes at most one condition of the Node. A process that takes over finds the stage in
//! the condition, in the phase and in the labels. A result counts only while the Machine is being
//! updated: a result of an earlier update would otherwise end this update before it began.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;
use machinist_api::constants::markers::DeletionMarker;
use machinist_api::constants::{annotations, conditions, labels, markers, reasons, taints};
use machinist_api::{OperationType, Phase};

use super::action::{Action, UPDATE_FAILED};
use super::hindrance;
use super::identity::OwnNode;
use super::living_drain::{DrainState, LivingDrain};
use super::node_condition::UpdateCondition;
use super::node_patch::{change_taints, sync_of};
use super::snapshot::Snapshot;
use super::status::OperationWrite;
use crate::mcm::facts::NodeFacts;
use crate::mcm::why::{BlockedPod, McmReason, Plan, Reason, Step, Why};
use machinist_core::{Wait, is_past, just_past};

/// Annotation of a Node that is drained for an update: when the controller cordoned the Node, RFC
/// 3339, or [`BY_OTHERS`]. The drain timeout counts from that time, and only a Node that the
/// controller cordoned becomes schedulable again.
const CORDONED: &str = "machinist.dev/cordoned-for-update";
/// Value of [`CORDONED`] of a Node that was unschedulable before the drain.
const BY_OTHERS: &str = "by-others";

/// Adds the calls of the update to the plan for a Machine that is not being deleted.
pub(super) fn attend(s: &Snapshot, mut plan: Plan<Action>) -> Plan<Action> {
    let node = match (s.own_node(), s.node_marks) {
        (OwnNode::Ours(node), Some(marks)) if !node.is_not_managed() && node.deleting_since.is_none() => {
            Some((node, marks))
        }
        (OwnNode::Ours(_) | OwnNode::Missing | OwnNode::NotOurs(..), _) => None,
    };
    let Some((node, marks)) = node else {
        time_out(s, &mut plan);
        return plan;
    };
    let update = Update { s, node };
    if marks.is_candidate && update.is_of_go() {
        let why = Why::new(Reason::Writing("recording the result of the update"), MOVED);
        return Plan::act(Action::LabelUpdated, why);
    }
    let writes_phase = |action: &Action| matches!(action, Action::SetStatus(write) if write.phase.is_some());
    if plan.actions.iter().any(writes_phase) {
        return plan;
    }
    if marks.is_candidate {
        update.of_candidate(&mut plan);
    } else {
        update.finish(&mut plan);
    }
    plan
}

struct Update<'s> {
    s: &'s Snapshot,
    node: &'s Arc<NodeFacts>,
}

impl Update<'_> {
    /// The steps of a Machine in a set of an old template.
    fn of_candidate(&self, plan: &mut Plan<Action>) {
        let machine = &self.s.machine;
        self.label(labels::CANDIDATE_FOR_UPDATE, plan);
        if machine.is_updated_in_place() {
            // The manager moves the Machine.
            self.end_phase(plan);
            return;
        }
        if machine.is_updating_in_place() {
            self.go_on(plan);
            return;
        }
        if !matches!(machine.status.phase, Phase::Running | Phase::Available) {
            // The Machine joins, or its Node is unhealthy. Other rules decide about it.
            return;
        }
        if self.result().is_some() {
            // Both labels are left from an earlier update: the selection was also for that update.
            let stale = [labels::UPDATE_RESULT, labels::SELECTED_FOR_UPDATE];
            let stale = stale.into_iter().filter(|key| self.node.label(key).is_some());
            let changes: Vec<_> = stale.map(|key| (key.to_owned(), None)).collect();
            sync_of(self.node, plan).labels.extend(changes);
            return;
        }
        if machine.is_selected_for_update() {
            self.label(labels::SELECTED_FOR_UPDATE, plan);
        }
        match (self.is_selected(), self.stage()) {
            (true, Some(reasons::CANDIDATE_FOR_UPDATE)) => self.select(plan),
            (true, Some(reasons::SELECTED_FOR_UPDATE)) => self.drain(plan),
            (false, Some(reasons::CANDIDATE_FOR_UPDATE)) => self.open(plan),
            (true | false, _) => {
                self.say(reasons::CANDIDATE_FOR_UPDATE, "The Node may be selected for an update", plan);
            }
        }
    }

    /// The steps of a Machine whose Node was drained.
    fn go_on(&self, plan: &mut Plan<Action>) {
        let is_cordoned = self.node.unschedulable == Some(true);
        match (self.result(), self.stage()) {
            (Some(labels::UPDATE_SUCCESSFUL), _) => {
                plan.actions.push(Action::LabelUpdated);
                plan.why = Why::new(Reason::Writing("recording the result of the update"), MOVED);
            }
            (Some(labels::UPDATE_FAILED), _) => {
                let cause =
                    self.node.annotation(annotations::UPDATE_FAILED_REASON).unwrap_or("no reason given");
                let message = format!("The update of the Node failed: {cause}");
                self.say(reasons::UPDATE_FAILED, message.clone(), plan);
                fail(self.s, message, plan);
            }
            (_, Some(reasons::READY_FOR_UPDATE)) => time_out(self.s, plan),
            // Since the end of the drain, the Node may have been open to pods for a while. So the
            // update needs the evidence of the drain once more.
            (_, Some(reasons::DRAIN_SUCCESSFUL)) if is_cordoned => self.drain(plan),
            (_, Some(reasons::SELECTED_FOR_UPDATE)) => self.drain(plan),
            // A user has removed the label of a failed update, or the Node takes pods again: the
            // Node is drained again before it is updated.
            (_, Some(reasons::DRAIN_SUCCESSFUL | reasons::UPDATE_FAILED)) => self.select(plan),
            (_, Some(_) | None) if self.is_selected() => self.select(plan),
            (_, Some(_) | None) => time_out(self.s, plan),
        }
    }

    /// Whether Go MCM has ended the update and not moved the Machine yet. A result of an update
    /// that this program began is labelled on the Machine before the phase changes.
    fn is_of_go(&self) -> bool {
        let machine = &self.s.machine;
        let is_left = machine.status.phase == Phase::InPlaceUpdateSuccessful
            || machine.status.phase == Phase::Running
                && self.is_selected()
                && self.stage() == Some(reasons::UPDATE_SUCCESSFUL)
                && self.node.annotation(CORDONED).is_none();
        is_left && self.result() == Some(labels::UPDATE_SUCCESSFUL) && !machine.is_updated_in_place()
    }

    fn label(&self, key: &str, plan: &mut Plan<Action>) {
        if self.node.label(key).is_none() {
            sync_of(self.node, plan).labels.insert(key.to_owned(), Some("true".to_owned()));
        }
    }

    fn result(&self) -> Option<&str> {
        self.node.label(labels::UPDATE_RESULT)
    }

    fn is_selected(&self) -> bool {
        self.node.label(labels::SELECTED_FOR_UPDATE).is_some()
    }

    /// The reason of the condition.
    fn stage(&self) -> Option<&str> {
        self.node.condition(conditions::NODE_IN_PLACE_UPDATE).map(|condition| condition.reason())
    }

    fn say(&self, reason: &'static str, message: impl Into<String>, plan: &mut Plan<Action>) {
        if self.stage() != Some(reason) {
            let condition = UpdateCondition { reason, message: message.into() };
            plan.actions.push(Action::SetUpdate { node: self.node.clone(), condition });
        }
    }

    fn select(&self, plan: &mut Plan<Action>) {
        self.say(reasons::SELECTED_FOR_UPDATE, "The Node is drained for its update", plan);
    }

    // === drain ===

    fn drain(&self, plan: &mut Plan<Action>) {
        let (s, node) = (self.s, self.node);
        if !s.machine.undergoes_update() {
            // The pods are observed once the Machine shows the condition.
            return;
        }
        let Some(cordoned) = node.annotation(CORDONED).filter(|_| node.unschedulable == Some(true)) else {
            self.close(plan);
            return;
        };
        let Some(closed) = s.node_seen.cordoned else { return };
        let condition = node.condition(conditions::NODE_IN_PLACE_UPDATE);
        let selected = condition.and_then(|condition| condition.since).unwrap_or(closed);
        let began = cordoned.parse().unwrap_or(selected);
        let why = |left, blocked: Option<BlockedPod>| McmReason::Draining { left, blocked };
        match (LivingDrain { s, node, began, closed, reason: &why }).step(plan) {
            DrainState::Draining => {}
            DrainState::Blocked(blocked) => plan.actions.extend(self.say_blocked(&blocked)),
            DrainState::Drained(_) if self.stage() == Some(reasons::DRAIN_SUCCESSFUL) => {
                self.say(reasons::READY_FOR_UPDATE, "The Node may be updated", plan);
                plan.why = Why::new(Reason::Writing("allowing the update"), UPDATED);
            }
            DrainState::Drained(events) if s.machine.status.phase == Phase::InPlaceUpdating => {
                self.say(reasons::DRAIN_SUCCESSFUL, markers::IN_PLACE_DRAIN_SUCCESSFUL, plan);
                plan.actions.extend(events);
                plan.why = Why::new(Reason::Writing("ending the drain"), UPDATED);
            }
            DrainState::Drained(_) => {
                let text = markers::IN_PLACE_DRAIN_SUCCESSFUL;
                let operation = OperationWrite::processing(OperationType::InPlaceUpdate, text);
                let write = s.status(Phase::InPlaceUpdating, operation);
                plan.actions.extend(write.map(|write| Action::SetStatus(Box::new(write))));
                plan.why = Why::new(Reason::Writing("ending the drain"), UPDATED);
            }
        }
    }

    /// Makes the Node unschedulable, and records who did so.
    fn close(&self, plan: &mut Plan<Action>) {
        let (s, node) = (self.s, self.node);
        let is_open = node.unschedulable != Some(true);
        let now = jiff::Timestamp::from_second(s.now.as_second()).unwrap_or(s.now);
        let record = if is_open { now.to_string() } else { BY_OTHERS.to_owned() };
        let sync = sync_of(node, plan);
        sync.annotations.insert(CORDONED.to_owned(), Some(record));
        sync.schedulable = is_open.then_some(false);
        plan.why = Why::new(Reason::Writing("cordoning the Node"), Step::Expect("the pods leave the Node"));
    }

    /// Lets pods run on the Node again, if this program has cordoned it for an update.
    fn open(&self, plan: &mut Plan<Action>) {
        let Some(cordoned) = self.node.annotation(CORDONED) else { return };
        let is_ours = cordoned != BY_OTHERS && self.node.unschedulable == Some(true);
        let sync = sync_of(self.node, plan);
        sync.annotations.insert(CORDONED.to_owned(), None);
        sync.schedulable = is_ours.then_some(true);
    }

    /// Reports a blocked drain in the status and by an Event, at most every 30 seconds.
    fn say_blocked(&self, blocked: &McmReason) -> Vec<Action> {
        let marker = DeletionMarker::DrainNode;
        let description = format!("Drain for the update is blocked: {blocked}. {marker}");
        let operation = OperationWrite::processing(OperationType::DrainNode, &description);
        let status = &self.s.machine.status;
        let is_drain = status.operation.type_ == Some(OperationType::DrainNode);
        let said = status.operation.last_update_time.as_ref().map(|time| time.0).filter(|_| is_drain);
        let write = self.s.status(status.phase.clone(), operation);
        let write = write.map(|write| Action::SetStatus(Box::new(write)));
        hindrance::report(self.s.now, said, write, description)
    }

    // === end ===

    /// Writes that the update succeeded, in the condition and in the phase.
    fn end_phase(&self, plan: &mut Plan<Action>) {
        if self.result() == Some(labels::UPDATE_SUCCESSFUL) {
            self.say(reasons::UPDATE_SUCCESSFUL, "The Node was updated", plan);
        }
        if self.s.machine.is_updating_in_place() {
            let text = "The Node was updated";
            let operation = OperationWrite::successful(OperationType::InPlaceUpdate, text);
            let write = self.s.status(Phase::InPlaceUpdateSuccessful, operation);
            plan.actions.extend(write.map(|write| Action::SetStatus(Box::new(write))));
            plan.why = Why::new(Reason::Writing("recording the result of the update"), MOVED);
        }
    }

    /// The Machine is in a set that is not of an old template: the update has ended, or the
    /// template has become the present one again.
    fn finish(&self, plan: &mut Plan<Action>) {
        let machine = &self.s.machine;
        let was_updated = self.result() == Some(labels::UPDATE_SUCCESSFUL);
        if machine.is_updated_in_place() && machine.is_updating_in_place() {
            self.end_phase(plan);
            return;
        }
        if machine.is_updating_in_place() {
            let began = matches!(self.stage(), Some(reasons::READY_FOR_UPDATE | reasons::UPDATE_FAILED));
            if began || self.result().is_some() {
                // The program on the Node may be at work. Its result ends the update as usual.
                self.go_on(plan);
            } else {
                self.withdraw(plan);
            }
            return;
        }
        let mut keys = vec![labels::CANDIDATE_FOR_UPDATE, labels::UPDATE_RESULT];
        keys.retain(|key| self.node.label(key).is_some());
        // A user may select a Node just before its set becomes one of an old template.
        if !keys.is_empty() && self.is_selected() {
            keys.push(labels::SELECTED_FOR_UPDATE);
        }
        if was_updated {
            change_taints(self.node, plan, add_not_ready);
        }
        self.open(plan);
        if keys.is_empty() {
            return;
        }
        let sync = sync_of(self.node, plan);
        sync.labels.extend(keys.into_iter().map(|key| (key.to_owned(), None)));
        if self.node.annotation(annotations::UPDATE_FAILED_REASON).is_some() {
            sync.annotations.insert(annotations::UPDATE_FAILED_REASON.to_owned(), None);
        }
        let is_cordoned_by_go = self.node.annotation(CORDONED).is_none() && was_updated;
        if is_cordoned_by_go && self.node.unschedulable == Some(true) {
            // Go MCM does not record whether it cordoned the Node, and makes it schedulable.
            sync.schedulable = Some(true);
        }
        if !was_updated && self.stage() != Some(reasons::UPDATE_SUCCESSFUL) {
            self.say(reasons::CANDIDATE_FOR_UPDATE, "The Node is no longer to be updated", plan);
        }
    }

    /// Ends an update that was not allowed yet. The Machine becomes Running by the health of its
    /// Node.
    fn withdraw(&self, plan: &mut Plan<Action>) {
        let text = "The update in place is withdrawn: the template has become the present one again";
        let operation = OperationWrite::processing(OperationType::HealthCheck, text);
        let write = self.s.status(Phase::Unknown, operation);
        plan.actions.extend(write.map(|write| Action::SetStatus(Box::new(write))));
        plan.why = Why::new(Reason::Writing("withdrawing the update"), Step::Expect("pods run there again"));
    }
}

/// Ends an update that takes too long. Only the phase changes; the Node may still report its
/// result.
fn time_out(s: &Snapshot, plan: &mut Plan<Action>) {
    let Some(began) = s.machine.status.phase_since else { return };
    if s.machine.status.phase != Phase::InPlaceUpdating {
        return;
    }
    let own = s.machine.spec.configuration.in_place_update_timeout();
    let timeout = own.and_then(|timeout| timeout.to_std()).unwrap_or(s.defaults.in_place_update_timeout);
    let until = s.gaps.deadline(began, timeout);
    let then = Step::Expect("the phase becomes InPlaceUpdateFailed");
    plan.why = plan.why.clone().deadline(just_past(until), then);
    if !is_past(s.now, until) {
        plan.wait = plan.wait.earliest(Wait::Until(just_past(until)));
        return;
    }
    if !s.process.may_enforce_deadlines() {
        return;
    }
    if let Some(wait) = s.nodes_freshness.obstacle(|| Action::ReadNodes) {
        plan.actions.extend(wait.actions);
        plan.wait = plan.wait.earliest(wait.wait);
        plan.why = wait.why;
        return;
    }
    fail(s, format!("The Node reported no result of the update within {} s", timeout.as_secs()), plan);
}

fn fail(s: &Snapshot, message: String, plan: &mut Plan<Action>) {
    if s.machine.status.phase != Phase::InPlaceUpdating {
        return;
    }
    let operation = OperationWrite::failed(OperationType::InPlaceUpdate, &message, None);
    let write = s.status(Phase::InPlaceUpdateFailed, operation);
    plan.actions.extend(write.map(|write| Action::SetStatus(Box::new(write))));
    plan.actions.push(Action::warn(UPDATE_FAILED, message));
}

/// Adds the taint that keeps pods off until the critical components of the Node are ready again.
fn add_not_ready(all: &mut Vec<Taint>) {
    let is_there = |taint: &Taint| {
        taint.key == taints::CRITICAL_COMPONENTS_NOT_READY && taint.effect == taints::EFFECT_NO_SCHEDULE
    };
    if !all.iter().any(is_there) {
        all.push(Taint {
            key: taints::CRITICAL_COMPONENTS_NOT_READY.to_owned(),
            effect: taints::EFFECT_NO_SCHEDULE.to_owned(),
            ..Taint::default()
        });
    }
}

const UPDATED: Step = Step::Expect("the program on the Node updates it");
const MOVED: Step = Step::Expect("the Machine moves to the MachineSet of the new template");
