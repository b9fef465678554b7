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
//! updated: one that is left from an earlier update would otherwise end this update before it
//! began.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;
use machinist_api::constants::markers::DeletionMarker;
use machinist_api::constants::{annotations, conditions, labels, markers, reasons, taints};
use machinist_api::{OperationType, Phase};

use super::action::{Action, DRAIN_BLOCKED, UPDATE_FAILED};
use super::delete::DRAIN_TEXT_EVERY;
use super::identity::OwnNode;
use super::living_drain::{DrainState, LivingDrain};
use super::node_condition::UpdateCondition;
use super::node_patch::{change_taints, sync_of};
use super::snapshot::Snapshot;
use super::status::OperationWrite;
use crate::mcm::facts::NodeFacts;
use crate::mcm::why::{BlockedPod, McmReason, Plan, Reason, Step, Why};
use machinist_core::{Wait, is_past, just_past, since};

/// Annotation of a Node that was cordoned before the update. The Node stays cordoned afterwards.
const CORDONED_BEFORE: &str = "machinist.dev/cordoned-before-update";

/// Adds the calls of the update to the plan for a Machine that is not being deleted.
pub(super) fn attend(s: &Snapshot, mut plan: Plan<Action>) -> Plan<Action> {
    let writes_phase = |action: &Action| matches!(action, Action::SetStatus(write) if write.phase.is_some());
    let node = match s.own_node() {
        OwnNode::Ours(node) if !node.is_not_managed() && node.deleting_since.is_none() => node,
        OwnNode::Ours(_) | OwnNode::Missing | OwnNode::NotOurs(..) => return plan,
    };
    let Some(marks) = s.node_marks else { return plan };
    let update = Update { s, node };
    if marks.is_candidate && update.is_unrecorded() {
        let why = Why::new(Reason::Writing("recording the result of the update"), MOVED);
        return Plan::act(Action::LabelUpdated, why);
    }
    if plan.actions.iter().any(writes_phase) {
        return plan;
    }
    if marks.is_candidate {
        update.of_candidate(&mut plan)
    } else {
        update.finish(&mut plan)
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
        self.label(labels::CANDIDATE_FOR_UPDATE, plan);
        if self.s.machine.is_updated_in_place() {
            // The manager moves the Machine.
            self.end_phase(plan);
            return;
        }
        if self.s.machine.is_updating_in_place() {
            self.await_result(plan);
            return;
        }
        if self.result().is_some() {
            // Both labels are left from an earlier update. The selection was for that one, too.
            let stale = [labels::UPDATE_RESULT, labels::SELECTED_FOR_UPDATE];
            let stale = stale.into_iter().filter(|key| self.node.label(key).is_some());
            let changes: Vec<_> = stale.map(|key| (key.to_owned(), None)).collect();
            sync_of(self.node, plan).labels.extend(changes);
            return;
        }
        if self.s.machine.is_selected_for_update() {
            self.label(labels::SELECTED_FOR_UPDATE, plan);
        }
        let is_selected = self.node.label(labels::SELECTED_FOR_UPDATE).is_some();
        match (is_selected, self.stage()) {
            (true, Some(reasons::CANDIDATE_FOR_UPDATE)) => self.begin(plan),
            (true, Some(reasons::SELECTED_FOR_UPDATE)) => self.drain(plan),
            (false, Some(reasons::CANDIDATE_FOR_UPDATE)) => {}
            (true | false, _) => {
                self.say(reasons::CANDIDATE_FOR_UPDATE, "The Node may be selected for an update", plan);
            }
        }
    }

    /// Whether the update has succeeded under Go MCM, which has not moved the Machine yet. The phase
    /// is about to become Running, and then the result would look like one of an earlier update.
    fn is_unrecorded(&self) -> bool {
        let machine = &self.s.machine;
        machine.status.phase == Phase::InPlaceUpdateSuccessful
            && self.result() == Some(labels::UPDATE_SUCCESSFUL)
            && !machine.is_updated_in_place()
    }

    fn label(&self, key: &str, plan: &mut Plan<Action>) {
        if self.node.label(key).is_none() {
            sync_of(self.node, plan).labels.insert(key.to_owned(), Some("true".to_owned()));
        }
    }

    fn result(&self) -> Option<&str> {
        self.node.label(labels::UPDATE_RESULT)
    }

    /// The reason of the condition.
    fn stage(&self) -> Option<&str> {
        self.node.condition(conditions::NODE_IN_PLACE_UPDATE).map(|condition| &*condition.reason)
    }

    fn say(&self, reason: &'static str, message: impl Into<String>, plan: &mut Plan<Action>) {
        if self.stage() != Some(reason) {
            let condition = UpdateCondition { reason, message: message.into() };
            plan.actions.push(Action::SetUpdate { node: self.node.clone(), condition });
        }
    }

    fn begin(&self, plan: &mut Plan<Action>) {
        if self.node.unschedulable == Some(true) && self.node.annotation(CORDONED_BEFORE).is_none() {
            let sync = sync_of(self.node, plan);
            sync.annotations.insert(CORDONED_BEFORE.to_owned(), Some("true".to_owned()));
        }
        self.say(reasons::SELECTED_FOR_UPDATE, "The Node is drained for its update", plan);
    }

    fn drain(&self, plan: &mut Plan<Action>) {
        let (s, node) = (self.s, self.node);
        if !s.machine.undergoes_update() {
            // The pods are observed once the Machine shows the condition.
            return;
        }
        if node.unschedulable != Some(true) {
            plan.actions.push(Action::Cordon(node.clone()));
            plan.why =
                Why::new(Reason::Writing("cordoning the Node"), Step::Expect("the pods leave the Node"));
            return;
        }
        let Some(closed) = s.node_seen.cordoned else { return };
        let condition = node.condition(conditions::NODE_IN_PLACE_UPDATE);
        let began = condition.and_then(|condition| condition.since).unwrap_or(closed);
        let why = |left, blocked: Option<BlockedPod>| McmReason::Draining { left, blocked };
        match (LivingDrain { s, node, began, closed, reason: &why }).step(plan) {
            DrainState::Draining => {}
            DrainState::Blocked(blocked) => plan.actions.extend(self.say_blocked(&blocked)),
            DrainState::Drained(events) => {
                let operation = OperationWrite::processing(
                    OperationType::InPlaceUpdate,
                    markers::IN_PLACE_DRAIN_SUCCESSFUL,
                );
                let write = s.status(Phase::InPlaceUpdating, operation);
                plan.actions.extend(write.map(|write| Action::SetStatus(Box::new(write))));
                plan.actions.extend(events);
                plan.why = Why::new(Reason::Writing("ending the drain"), UPDATED);
            }
        }
    }

    /// Reports a blocked drain in the status and by an Event, at most every 30 seconds.
    fn say_blocked(&self, blocked: &McmReason) -> Vec<Action> {
        let marker = DeletionMarker::DrainNode;
        let description = format!("Drain for the update is blocked: {blocked}. {marker}");
        let operation = OperationWrite::processing(OperationType::DrainNode, &description);
        let written = self.s.machine.status.operation.last_update_time.as_ref().map(|time| time.0);
        let is_drain = self.s.machine.status.operation.type_ == Some(OperationType::DrainNode);
        let is_recent = is_drain && written.is_some_and(|at| since(self.s.now, at) < DRAIN_TEXT_EVERY);
        let write = self.s.status(self.s.machine.status.phase.clone(), operation);
        match write.filter(|_| !is_recent) {
            Some(write) => {
                vec![Action::SetStatus(Box::new(write)), Action::warn(DRAIN_BLOCKED, description)]
            }
            None => Vec::new(),
        }
    }

    /// The Node is drained, and the program on it updates it.
    fn await_result(&self, plan: &mut Plan<Action>) {
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
                self.fail(message, plan);
            }
            (_, Some(reasons::READY_FOR_UPDATE)) => self.time_out(plan),
            (_, Some(reasons::DRAIN_SUCCESSFUL)) => {
                self.say(reasons::READY_FOR_UPDATE, "The Node may be updated", plan);
            }
            // A failed update whose label a user removed is tried again.
            (_, Some(_) | None) => {
                self.say(reasons::DRAIN_SUCCESSFUL, markers::IN_PLACE_DRAIN_SUCCESSFUL, plan);
            }
        }
    }

    fn fail(&self, message: String, plan: &mut Plan<Action>) {
        if self.s.machine.status.phase != Phase::InPlaceUpdating {
            return;
        }
        let operation = OperationWrite::failed(OperationType::InPlaceUpdate, &message, None);
        let write = self.s.status(Phase::InPlaceUpdateFailed, operation);
        plan.actions.extend(write.map(|write| Action::SetStatus(Box::new(write))));
        plan.actions.push(Action::warn(UPDATE_FAILED, message));
    }

    /// Ends an update that takes too long. Only the phase changes; the Node may still report its
    /// result.
    fn time_out(&self, plan: &mut Plan<Action>) {
        let s = self.s;
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
        self.fail(format!("The Node reported no result of the update within {} s", timeout.as_secs()), plan);
    }

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
        let keys = [labels::CANDIDATE_FOR_UPDATE, labels::SELECTED_FOR_UPDATE, labels::UPDATE_RESULT];
        let present: Vec<_> = keys.into_iter().filter(|key| self.node.label(key).is_some()).collect();
        if present.is_empty() {
            return;
        }
        if self.s.machine.is_updating_in_place() && !self.s.machine.is_updated_in_place() {
            // The program on the Node may be at work. Its result ends the update as usual.
            self.await_result(plan);
            return;
        }
        let was_updated = self.result() == Some(labels::UPDATE_SUCCESSFUL);
        if was_updated && self.s.machine.is_updating_in_place() {
            self.end_phase(plan);
            return;
        }
        let stays_cordoned = self.node.annotation(CORDONED_BEFORE).is_some();
        let was_drained = was_updated || !matches!(self.stage(), None | Some(reasons::CANDIDATE_FOR_UPDATE));
        if was_updated {
            change_taints(self.node, plan, |all| {
                let is_there = |taint: &Taint| {
                    taint.key == taints::CRITICAL_COMPONENTS_NOT_READY
                        && taint.effect == taints::EFFECT_NO_SCHEDULE
                };
                if !all.iter().any(is_there) {
                    all.push(Taint {
                        key: taints::CRITICAL_COMPONENTS_NOT_READY.to_owned(),
                        effect: taints::EFFECT_NO_SCHEDULE.to_owned(),
                        ..Default::default()
                    });
                }
            });
        } else {
            self.say(reasons::CANDIDATE_FOR_UPDATE, "The Node is no longer to be updated", plan);
        }
        let sync = sync_of(self.node, plan);
        sync.labels.extend(present.into_iter().map(|key| (key.to_owned(), None)));
        for key in [annotations::UPDATE_FAILED_REASON, CORDONED_BEFORE] {
            if self.node.annotation(key).is_some() {
                sync.annotations.insert(key.to_owned(), None);
            }
        }
        sync.uncordons = was_drained && !stays_cordoned && self.node.unschedulable == Some(true);
    }
}

const UPDATED: Step = Step::Expect("the program on the Node updates it");
const MOVED: Step = Step::Expect("the Machine moves to the MachineSet of the new template");
