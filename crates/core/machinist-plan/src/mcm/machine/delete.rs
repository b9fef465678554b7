//! Deletes a Machine: drain, volumes, instance, confirmation of its absence, Node, finalizer.
//!
//! An instance is deleted only with evidence that the deletion loses no pod that must be evicted
//! first. The evidence is read from the API server, after the last event that could change it. So a
//! list of the pods counts only if it began after the cordon was observed. If the store shows no
//! Node, the API server is asked, because the store may be older than the Node.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_api::constants::markers::DeletionMarker;
use machinist_api::constants::{conditions, labels, reasons};
use machinist_api::{OperationState, OperationType, Phase};
use machinist_instance::{AccountId, Error, Instance, NodeName, Sighting};

use super::status::{code_of, code_text};
use super::{
    Action, DELETE_FAILED, DRAIN_BLOCKED, INSTANCE_NOT_OURS, NodeSync, OperationWrite, OwnNode, Snapshot,
    proof,
};
use crate::drain::{CLOCKS_AGAIN_AFTER, Drain, Manner, Progress};
use crate::facts::{NodeFacts, Token};
use crate::looks::{DEADLY, PodList, Renewal, again_at, is_untimed};
use crate::why::{McmReason, Reason, Step, why_finalizers_of_others};
use crate::{Plan, Why};
use machinist_core::Evidence;
use machinist_core::instance::{Departure, Next, Proof, Refused};
use machinist_core::{Call, Known, is_past, just_before, just_past, plus, since};

/// Time for the calls of a forced drain, which does not wait for pods.
const FORCED_DRAIN_TAKES: Duration = Duration::from_secs(60);
/// Minimum interval between two status writes about a blocked drain.
const DRAIN_TEXT_EVERY: Duration = Duration::from_secs(30);
/// Maximum number of VolumeAttachments that one pass deletes. The next deletions follow after these
/// are answered.
const DELETIONS_PER_PASS: usize = 20;

pub(super) fn plan(s: &Snapshot, since: Timestamp) -> Plan<Action> {
    if !s.machine.has_finalizer {
        return Plan::idle(why_finalizers_of_others(Some(since)));
    }
    if let Some((call, started, until)) = s.answers.waiting(&s.process, s.now) {
        return Plan::until(
            until,
            Why::new(Reason::Calling(call), Step::Expect("the cloud answers")).since(started),
        );
    }
    if s.machine.status.phase != Phase::Terminating {
        return begin(s, since);
    }
    if let Some(unusable) = s.unusable_id().filter(|_| !s.machine.wants_force_deletion()) {
        return hold(s, unusable, since);
    }
    if let Some(holder) = &s.identity.held_by {
        return held(s, holder, since);
    }
    if let Some(sync) = unlabelled_node(s) {
        let why = Why::new(Reason::Writing("labeling the Node"), Step::Expect("the Node is drained"));
        return Plan::act(Action::SyncNode(Box::new(sync)), why.since(since));
    }
    if let Some(name) = unrecorded_node(s) {
        // Go MCM does not delete the Node of a Machine without this label, so the label comes
        // before the drain.
        return label_node(name);
    }
    match (stage(s), s.own_node()) {
        (Stage::Drain, OwnNode::Ours(node)) => drain(s, node, since),
        (Stage::Drain, OwnNode::Missing | OwnNode::NotOurs(..)) => remove_instance(s, since, without_node(s)),
        (Stage::Volumes, _) => detach(s, since),
        (Stage::Instance, _) => {
            let stage = DeletionMarker::DeleteInstance.as_str();
            remove_instance(s, since, Some(Evidence::PastDrain { stage }))
        }
        (Stage::Node, _) => remove_node(s, since),
    }
}

/// The next stage according to the marker. A marker may lag reality, so it skips only stages that
/// it reports as ended: a drain, which does not start again even if pods are present, and the
/// deletion of the instance, which is not requested again.
enum Stage {
    /// The drain, or an earlier stage.
    Drain,
    /// Volumes that a forced drain left attached.
    Volumes,
    /// Deletion of the instance.
    Instance,
    /// Deletion of the Node. Only Go MCM writes the markers for this stage, after the cloud has
    /// deleted the instance.
    Node,
}

fn stage(s: &Snapshot) -> Stage {
    if s.machine.status.operation.type_ != Some(OperationType::Delete) {
        return Stage::Drain;
    }
    match s.machine.deletion_marker() {
        None | Some(DeletionMarker::FindInstance | DeletionMarker::DrainNode) => Stage::Drain,
        Some(DeletionMarker::DeleteVolumeAttachments) => Stage::Volumes,
        Some(DeletionMarker::DeleteInstance) => Stage::Instance,
        Some(DeletionMarker::DeleteNode | DeletionMarker::RemoveFinalizer) => Stage::Node,
    }
}

/// Writes the phase Terminating, with the marker of the stage at which Go MCM would have to begin.
fn begin(s: &Snapshot, since: Timestamp) -> Plan<Action> {
    let marker = match s.machine.node {
        Some(_) => DeletionMarker::DrainNode,
        None => DeletionMarker::FindInstance,
    };
    let operation = OperationWrite::processing(OperationType::Delete, marker.as_str());
    let write = s.status(Phase::Terminating, operation).map(|write| Action::SetStatus(Box::new(write)));
    let why =
        Why::new(Reason::Writing("starting the deletion"), Step::Expect("the Node is drained")).since(since);
    Plan::act_all(write.into_iter().collect(), why)
}

/// Returns the name of the Node that has our label while the Machine does not name the Node.
fn unrecorded_node(s: &Snapshot) -> Option<NodeName> {
    if s.machine.node.is_some() || s.machine.provider_id.is_none() {
        return None;
    }
    match s.own_node() {
        OwnNode::Ours(node) if labels::is_value(&node.name) => NodeName::new(&node.name),
        OwnNode::Ours(_) => None,
        OwnNode::Missing | OwnNode::NotOurs(..) => None,
    }
}

/// Returns the patch that adds our label to a Node that registered after the last pass. Without the
/// label the Node would be neither drained nor deleted.
fn unlabelled_node(s: &Snapshot) -> Option<NodeSync> {
    match (stage(s), s.own_node(), s.joined_node()) {
        (Stage::Drain, OwnNode::NotOurs(..), OwnNode::Ours(node)) if !node.is_not_managed() => {
            NodeSync::needed(&s.machine, node)
        }
        _ => None,
    }
}

/// Handles an instance that another Machine owns. This Machine is deleted without it after a user
/// sets the label `force-deletion`.
fn held(s: &Snapshot, holder: &str, deleting_since: Timestamp) -> Plan<Action> {
    if s.machine.wants_force_deletion() {
        let because = format!("the older Machine {holder} also records it");
        return leave_behind(s, &proof::left_behind(s, &because), deleting_since);
    }
    let reason = McmReason::InstanceShared { instance: s.instance().to_string(), machine: holder.to_owned() };
    let fix = format!("set label {}=true to leave the instance to Machine {holder}", labels::FORCE_DELETION);
    let why = Why::new(reason, Step::Fix(fix)).since(deleting_since);
    await_person(s, DeletionMarker::FindInstance, why)
}

fn label_node(node: NodeName) -> Plan<Action> {
    let why = Why::new(Reason::Writing("recording the Node"), Step::Expect("the Node is drained"));
    Plan::act(Action::LabelNode(node), why)
}

fn drain(s: &Snapshot, node: &Arc<NodeFacts>, deleting_since: Timestamp) -> Plan<Action> {
    let timeout = s.machine.spec.configuration.drain_timeout().and_then(|timeout| timeout.to_std());
    let patience_ends = plus(deleting_since, timeout.unwrap_or(s.defaults.drain_timeout));
    let (manner, deadline) = manner(s, node, patience_ends);
    let mut actions = prepare(node);
    if manner == Manner::Polite && is_lease_needed(s, node) {
        actions.push(Action::LookAtLease(node.clone()));
        let why = Why::new(
            Reason::Looking("the Lease of the Node, which shows the last kubelet heartbeat,"),
            Step::Expect("the Node is drained"),
        );
        return Plan::act_all(actions, why.since(deleting_since));
    }
    let progress = Drain {
        now: s.now,
        pods: &s.pods,
        budgets: &s.budgets,
        attempts: &s.evictions,
        deadline,
        manner,
        max_evictions: max_evictions(s, timeout),
    }
    .progress();
    let (calls, left, blocked, look_at) = match progress {
        Progress::Done | Progress::GivenUp { .. } => {
            let left = Left { node, manner, deadline, actions, deleting_since };
            return left.plan(s);
        }
        Progress::Leaving { calls, left, blocked, look_at } => (calls, left, blocked, look_at),
    };
    let reason = McmReason::Draining { left, blocked: blocked.clone() };
    if blocked.is_some() {
        actions.extend(say_blocked(s, &reason));
    }
    actions.extend(calls.into_iter().map(Action::Drain));
    let never = blocked.filter(|blocked| blocked.never).and_then(|blocked| blocked.budget);
    let next = match never {
        // More pods do not help if all pods must stay: `maxUnavailable: 0`, `minAvailable: 100%`.
        Some(budget) => Step::Fix(format!("change PodDisruptionBudget {budget} to allow a disruption")),
        None => Step::Expect("the pods leave the Node"),
    };
    let why = Why::new(reason, next).since(deleting_since);
    let why = match manner {
        Manner::Polite => {
            why.deadline(just_past(deadline), Step::Expect("the pods are deleted without grace"))
        }
        Manner::Forced => why.deadline(just_past(deadline), Step::Expect("the instance is deleted")),
    };
    Plan::act_all(actions, why).no_later_than(look_at)
}

/// Returns how pods are removed, and the deadline. A Node that has been dead for a while is drained
/// by force: nothing on it would stop the pods, and budgets already count them as disrupted.
fn manner(s: &Snapshot, node: &NodeFacts, patience_ends: Timestamp) -> (Manner, Timestamp) {
    let forced_until = |begin: Timestamp| (Manner::Forced, plus(begin, FORCED_DRAIN_TAKES));
    if s.machine.wants_force_deletion() {
        return forced_until(s.machine.deleting_since.unwrap_or(s.now));
    }
    let may_force = s.process.may_enforce_deadlines();
    match given_up_at(s, node) {
        Some(given_up_at) if may_force && is_past(s.now, given_up_at) => {
            forced_until(s.machine.deleting_since.map_or(given_up_at, |since| since.max(given_up_at)))
        }
        _ if may_force && is_past(s.now, patience_ends) => forced_until(patience_ends),
        // The Node may count as dead before the drain times out, so the next look is earlier.
        Some(given_up_at) => (Manner::Polite, given_up_at.min(patience_ends)),
        None => (Manner::Polite, patience_ends),
    }
}

/// Returns when a Node counts as dead, if one of its conditions is bad.
///
/// A condition without a time counts from its first observation. If the Lease shows that the
/// kubelet has been silent for long enough, the Node counts as dead at once. Go MCM treats a
/// missing time as long ago, without a check of the Lease.
fn given_up_at(s: &Snapshot, node: &NodeFacts) -> Option<Timestamp> {
    let patience = s.defaults.dead_node_after;
    let wrong = DEADLY.into_iter().filter_map(|(kind, fine)| {
        let condition = node.condition(kind)?;
        (condition.status != fine).then_some((kind, condition))
    });
    let since = wrong.map(|(kind, condition)| condition.since.unwrap_or_else(|| seen_untimed_since(s, kind)));
    let by_conditions = since.map(|since| plus(since, patience)).min();
    let looked = untimed_since(s, node).and_then(|since| s.looks.lease_since(&node.uid, since));
    let is_silent = looked.is_some_and(|look| match look.found {
        Renewal::At(renewed) => is_past(look.started, plus(renewed, patience)),
        Renewal::Never => true,
        Renewal::Unknown => false,
    });
    // One second before the lookup, because a deadline is past only in the next whole second.
    let silent_since = looked.filter(|_| is_silent).map(|look| just_before(look.started));
    silent_since.into_iter().chain(by_conditions).min()
}

/// Returns since when a Node that is not Ready has been seen with an untimed condition of a dead
/// Node. Then the Lease is needed.
fn untimed_since(s: &Snapshot, node: &NodeFacts) -> Option<Timestamp> {
    let is_ready = node.condition(conditions::NODE_READY).is_none_or(|ready| ready.status == "True");
    let untimed = DEADLY
        .into_iter()
        .filter(|(kind, fine)| node.condition(kind).is_some_and(|condition| is_untimed(condition, fine)));
    untimed.map(|(kind, _)| seen_untimed_since(s, kind)).min().filter(|_| !is_ready)
}

/// Returns since when an untimed condition has been seen in its current state.
fn seen_untimed_since(s: &Snapshot, kind: &str) -> Timestamp {
    s.node_seen.untimed.get(kind).copied().unwrap_or(s.now)
}

/// Whether the Lease of the Node is needed to choose between eviction and forced deletion.
fn is_lease_needed(s: &Snapshot, node: &NodeFacts) -> bool {
    s.process.may_enforce_deadlines()
        && untimed_since(s, node).is_some_and(|since| s.looks.lease_since(&node.uid, since).is_none())
}

fn max_evictions(s: &Snapshot, drain_timeout: Option<Duration>) -> u32 {
    const EVICTION_RETRY_SECONDS: u64 = 20;
    let own = s.machine.spec.configuration.max_evict_retries.and_then(|most| u32::try_from(most).ok());
    let fits = drain_timeout.unwrap_or(s.defaults.drain_timeout).as_secs() / EVICTION_RETRY_SECONDS;
    own.unwrap_or(s.defaults.max_evictions).min(u32::try_from(fits).unwrap_or(u32::MAX)).max(1)
}

/// Returns the actions before the first eviction: the condition Terminating and the cordon.
fn prepare(node: &Arc<NodeFacts>) -> Vec<Action> {
    let mut actions = Vec::new();
    if node.condition(conditions::NODE_TERMINATING).is_none_or(|condition| condition.status != "True") {
        actions.push(Action::SetTerminating { node: node.clone(), reason: reasons::SCALE_DOWN });
    }
    if node.unschedulable != Some(true) {
        actions.push(Action::Cordon(node.clone()));
    }
    actions
}

/// Reports a blocked drain, at most every 30 seconds. The description keeps the marker from which
/// Go MCM would continue.
fn say_blocked(s: &Snapshot, reason: &McmReason) -> Vec<Action> {
    let description = format!("Drain is blocked: {reason}. {}", DeletionMarker::DrainNode);
    let operation = OperationWrite {
        kind: OperationType::Delete,
        state: OperationState::Failed,
        description: description.clone(),
        code: None,
    };
    let current = &s.machine.status.operation;
    let written = current.last_update_time.as_ref().map_or(Timestamp::MIN, |time| time.0);
    let already_failing = current.state == Some(OperationState::Failed);
    if already_failing && since(s.now, written) < DRAIN_TEXT_EVERY {
        return Vec::new();
    }
    let Some(write) = s.status(Phase::Terminating, operation) else { return Vec::new() };
    vec![Action::SetStatus(Box::new(write)), Action::warn(DRAIN_BLOCKED, description)]
}

/// The state after a drain: the store shows no pod to evict, or the pods were deleted by force.
struct Left<'s> {
    node: &'s Arc<NodeFacts>,
    manner: Manner,
    /// When the drain times out.
    deadline: Timestamp,
    /// Actions that prepare the Node and are still missing.
    actions: Vec<Action>,
    deleting_since: Timestamp,
}

impl Left<'_> {
    /// Confirms the drain, and then continues with the next stage.
    fn plan(self, s: &Snapshot) -> Plan<Action> {
        match self.manner {
            Manner::Polite => self.politely(s),
            Manner::Forced => self.by_force(s),
        }
    }

    fn politely(self, s: &Snapshot) -> Plan<Action> {
        if !s.attachments.is_empty() {
            let why = volumes_attached(s, self.node, "the volumes are detached").since(self.deleting_since);
            let why =
                why.deadline(just_past(self.deadline), Step::Expect("the VolumeAttachments are deleted"));
            let ends = just_past(self.deadline);
            let look_at = if s.now < ends { ends } else { plus(s.now, CLOCKS_AGAIN_AFTER) };
            return Plan::act_all(self.actions, why).no_later_than(look_at);
        }
        match listed(s, self.node) {
            Some((cordoned, list)) if list.leaving == 0 => {
                let evidence = Evidence::EmptyAfterCordon {
                    node: self.node.name.clone(),
                    cordoned,
                    listed: list.started,
                };
                let mut plan = drained(s, self.deleting_since, evidence);
                plan.actions.splice(0..0, self.actions);
                plan
            }
            _ => self.confirm(s),
        }
    }

    /// A forced drain also requests a list: pods that only the list shows are deleted, too. But the
    /// wait is limited.
    fn by_force(self, s: &Snapshot) -> Plan<Action> {
        let is_over = is_past(s.now, self.deadline);
        if !is_over && !s.machine.wants_force_deletion() && listed(s, self.node).is_none() {
            return self.confirm(s);
        }
        let marker = DeletionMarker::DeleteVolumeAttachments.as_str();
        let operation = OperationWrite::processing(OperationType::Delete, marker);
        let said = s.status(Phase::Terminating, operation).map(|write| Action::SetStatus(Box::new(write)));
        // A rejected write to the Node must not prevent the deletion of the instance.
        let told = if is_over { Vec::new() } else { self.actions };
        let why = Why::new(
            Reason::Writing("ending the drain by force"),
            Step::Expect("the VolumeAttachments are deleted"),
        );
        Plan::act_all(told.into_iter().chain(said).collect(), why.since(self.deleting_since))
    }

    /// Cordons the Node, and then requests the list that counts as evidence.
    fn confirm(mut self, s: &Snapshot) -> Plan<Action> {
        if self.node.unschedulable != Some(true) || s.node_seen.cordoned.is_none() {
            let why =
                Why::new(Reason::Writing("cordoning the Node"), Step::Expect("the pods leave the Node"));
            return Plan::act_all(self.actions, why.since(self.deleting_since));
        }
        let last = listed(s, self.node).map(|(_, list)| list);
        let left = last.map_or(0, |list| list.leaving);
        let reason = McmReason::ConfirmingDrain { node: self.node.name.clone(), left };
        let why = Why::new(reason, Step::Expect("the instance is deleted")).since(self.deleting_since);
        let why = why.deadline(just_past(self.deadline), Step::Expect("the instance is deleted anyway"));
        match last.map(|list| again_at(list.started)) {
            Some(again) if s.now < again => Plan::act_all(self.actions, why).no_later_than(again),
            _ => {
                self.actions.push(Action::ListPods(self.node.clone()));
                Plan::act_all(self.actions, why)
            }
        }
    }
}

/// Returns the list of the pods on a Node that began after the cordon was observed, and the time of
/// that observation.
fn listed<'s>(s: &'s Snapshot, node: &NodeFacts) -> Option<(Timestamp, &'s PodList)> {
    let cordoned = s.node_seen.cordoned.filter(|_| node.unschedulable == Some(true))?;
    Some((cordoned, s.looks.pods_since(&node.uid, cordoned, s.now)?))
}

fn volumes_attached(s: &Snapshot, node: &NodeFacts, expected: &'static str) -> Why {
    let first = s.attachments.first();
    let reason = McmReason::VolumesAttached {
        node: node.name.clone(),
        left: s.attachments.len(),
        first: first.map(|first| first.name.clone()).unwrap_or_default(),
        volume: first.and_then(|first| first.volume.clone()),
    };
    Why::new(reason, Step::Expect(expected))
}

/// Detaches volumes after a forced drain by deleting their VolumeAttachments, as Go MCM does. The
/// wait is limited, because the attacher may no longer exist.
fn detach(s: &Snapshot, deleting_since: Timestamp) -> Plan<Action> {
    let is_labelled = s.machine.wants_force_deletion();
    let evidence = if is_labelled { Evidence::ForceDeletion } else { Evidence::Forced };
    // If the Node belongs to another owner, its attachments do, too.
    let (OwnNode::Ours(node), false) = (s.own_node(), s.attachments.is_empty()) else {
        return drained(s, deleting_since, evidence);
    };
    // A previous process may have written the marker long ago.
    let written = s.machine.status.operation.last_update_time.as_ref().map_or(Timestamp::MIN, |time| time.0);
    let until = plus(written.max(s.process.acting_since()), s.defaults.detach_timeout);
    if (is_labelled || s.process.may_enforce_deadlines()) && is_past(s.now, until) {
        return drained(s, deleting_since, evidence);
    }
    let staying = s.attachments.iter().filter(|attachment| attachment.deleting_since.is_none());
    let actions = staying.take(DELETIONS_PER_PASS).cloned().map(Action::DeleteAttachment).collect();
    let why = volumes_attached(s, node, "the attacher detaches the volumes").since(deleting_since);
    let why = why.deadline(just_past(until), Step::Expect("the instance is deleted anyway"));
    let ends = just_past(until);
    let look_at = if s.now < ends { ends } else { plus(s.now, CLOCKS_AGAIN_AFTER) };
    Plan::act_all(actions, why).no_later_than(look_at)
}

/// Writes that the drain has ended, and continues with the instance in the same pass. The marker
/// lags the fact, so a process that takes over repeats a deletion, not a drain.
///
/// The marker is written together with the deletion to which the evidence belongs, not before. If
/// the deletion waits, pods may be bound to the Node again, so the evidence must be collected
/// again.
fn drained(s: &Snapshot, deleting_since: Timestamp, evidence: Evidence) -> Plan<Action> {
    let mut plan = remove_instance(s, deleting_since, Some(evidence));
    if !plan.actions.iter().any(|action| matches!(action, Action::Delete(_) | Action::RemoveFinalizer)) {
        return plan;
    }
    let operation =
        OperationWrite::processing(OperationType::Delete, DeletionMarker::DeleteInstance.as_str());
    let said = s.status(Phase::Terminating, operation).map(|write| Action::SetStatus(Box::new(write)));
    plan.actions.splice(0..0, said);
    plan
}

/// Returns the evidence that the deletion of an instance without a Node loses no pod, if known. The
/// store may be older than the Node.
fn without_node(s: &Snapshot) -> Option<Evidence> {
    if s.machine.wants_force_deletion() {
        return Some(Evidence::ForceDeletion);
    }
    let look = s.looks.node_now(s.machine.node_name(), s.now)?;
    let is_so = match (s.own_node(), &look.uid) {
        (OwnNode::Missing, None) => true,
        (OwnNode::NotOurs(node, _), Some(uid)) => node.uid == *uid,
        (OwnNode::NotOurs(..), None) => true,
        (OwnNode::Missing, Some(_)) | (OwnNode::Ours(_), _) => false,
    };
    is_so.then(|| Evidence::NoNode { node: look.name.clone(), looked: look.started })
}

/// Checks with the API server whether a Node exists that the store does not show.
fn look_for_node(s: &Snapshot, reason: McmReason, next: Step, deleting_since: Timestamp) -> Plan<Action> {
    let why = Why::new(reason, next).since(deleting_since);
    let name = s.machine.node_name();
    let last = s.looks.node.as_ref().filter(|look| look.name == name && look.uid.is_some());
    match last.map(|look| again_at(look.started)) {
        // The Node exists, and the store will show it soon.
        Some(again) if s.now < again => Plan::until(again, why),
        _ => Plan::act(Action::LookForNode(name.to_owned()), why),
    }
}

#[expect(clippy::disallowed_methods, reason = "this planner weighs the evidence for a Permit")]
fn remove_instance(s: &Snapshot, deleting_since: Timestamp, evidence: Option<Evidence>) -> Plan<Action> {
    if let Some(unusable) = s.unusable_id() {
        return leave_unknown_behind(s, &unusable, deleting_since);
    }
    let departure = Departure {
        which: s.instance(),
        owner: s.key(),
        cluster: &s.cluster,
        key_holder: s.key_holder.as_deref(),
        created: s.machine.created,
        evidence,
        answers: &s.answers,
        ownership: &s.ownership,
        shared: &s.shared,
        inputs: s.inputs,
        process: &s.process,
        now: s.now,
    };
    let instance = departure.which.to_string();
    let next = departure.next();
    let refused = departure.refused();
    let hindrance = match next {
        Next::Gone(_) => None,
        Next::Find | Next::Delete(_) => cannot_call(s, deleting_since).or_else(|| s.paused()),
        _ => cannot_call(s, deleting_since),
    };
    if let Some(plan) = hindrance {
        return plan;
    }
    let why = |reason: Reason| {
        Why::new(reason, Step::Expect("the Node and the finalizer are removed")).since(deleting_since)
    };
    match next {
        Next::Gone(proof) => {
            let plan = with_remark(remove_node(s, deleting_since), proof::remark(s, &proof));
            // The remark already names the instance.
            let refused = refused.filter(|_| !matches!(proof, Proof::NameTaken(_)));
            name_refused(s, refused, plan)
        }
        Next::Wait { call, since, until } => Plan::until(
            until,
            Why::new(Reason::Calling(call), Step::Expect("the cloud answers")).since(since),
        ),
        Next::Find => Plan::act(Action::Find(departure.which), why(Reason::Calling(Call::FIND))),
        Next::Record { instance: found, account } => record(s, &found, account, deleting_since),
        Next::Delete(permit) => Plan::act(Action::Delete(permit), why(Reason::Calling(Call::DELETE))),
        Next::NeedsEvidence => {
            let reason = McmReason::ConfirmingNoNode { node: s.machine.node_name().to_owned() };
            look_for_node(s, reason, Step::Expect("the instance is deleted"), deleting_since)
        }
        Next::Going { look_at } => Plan::until(look_at, why(McmReason::InstanceDeleting { instance }.into())),
        Next::NotProven { look_at } => {
            let unproven = McmReason::AbsenceNotProven { instance };
            let not_ours = |refused| {
                let (instance, evidence) = told_apart(s, &refused);
                McmReason::NamesakeInstance { instance, evidence }
            };
            Plan::until(look_at, why(refused.map_or(unproven, not_ours).into()))
        }
        Next::Failed { call, error, retry_at } => call_failed(s, call, &error, retry_at, deleting_since),
        Next::Rekey { id, from } => Plan::act(Action::Rekey { id, from }, why(Reason::Calling(Call::REKEY))),
        Next::List => Plan::act(Action::List, proof::comparing().since(deleting_since)),
        Next::AwaitList { until } => proof::await_list(until, deleting_since),
        Next::LookTwice { .. } | Next::OtherAccount { .. } | Next::NotOurs { .. }
            if s.machine.wants_force_deletion() =>
        {
            let because = match &next {
                Next::NotOurs { foreign, .. } => format!("it has {}", proof::key_of(foreign)),
                _ => format!("{} may open another account", proof::secrets(s)),
            };
            leave_behind(s, &proof::left_behind(s, &because), deleting_since)
        }
        Next::LookTwice { look_at } => proof::look_twice(s, look_at, deleting_since),
        Next::OtherAccount { look_at } => proof::other_account_plan(s, look_at, deleting_since),
        Next::NotOurs { foreign, look_at } => proof::not_ours(s, &foreign, look_at, deleting_since),
    }
}

/// Adds an Event to the plan that removes the finalizer, so that the Event is emitted once.
fn with_remark(mut plan: Plan<Action>, remark: Option<Action>) -> Plan<Action> {
    if let Some(remark) = remark.filter(|_| is_last(&plan)) {
        plan.actions.insert(0, remark);
    }
    plan
}

/// Whether the plan removes the Machine's finalizer.
fn is_last(plan: &Plan<Action>) -> bool {
    plan.actions.iter().any(|action| matches!(action, Action::RemoveFinalizer))
}

/// Records an instance that was found during deletion, so that it is deleted by its id. The status
/// does not change.
fn record(
    s: &Snapshot,
    found: &Instance,
    account: Option<AccountId>,
    deleting_since: Timestamp,
) -> Plan<Action> {
    let why = Why::new(Reason::Writing("recording the instance"), Step::Expect("the instance is deleted"));
    Plan::act(s.record(found, account), why.since(deleting_since))
}

/// Handles a missing class or credential, without which the cloud cannot be called. Deletion waits
/// until a user restores the object or accepts an orphaned instance with the label
/// `force-deletion`.
///
/// A credential that exists and is rejected is a failed call, and the label does not end the
/// retries. Users set the label to skip a drain, and a typing error in a Secret must not orphan an
/// instance.
fn cannot_call(s: &Snapshot, deleting_since: Timestamp) -> Option<Plan<Action>> {
    let (missing, fix) = match &s.class {
        Known::Present(class) => {
            let need = s.secrets.iter().find(|need| !matches!(need.facts, Known::Present(_)))?;
            match need.facts {
                Known::Unasked => (
                    format!(
                        "Secret {} (the controller reads only namespace {})",
                        need.name, s.machine.namespace
                    ),
                    format!(
                        "let MachineClass {} refer to a Secret in namespace {}",
                        class.name, s.machine.namespace
                    ),
                ),
                Known::Absent | Known::Present(_) => {
                    (format!("Secret {}", need.name), format!("create Secret {} again", need.name))
                }
            }
        }
        Known::Absent | Known::Unasked => {
            let class = format!("MachineClass {}", s.machine.spec.class.name());
            let fix = format!("create {class} again");
            (class, fix)
        }
    };
    if s.machine.wants_force_deletion() {
        let because = format!("{missing} is missing");
        return Some(leave_behind(s, &proof::left_behind(s, &because), deleting_since));
    }
    let reason = McmReason::CannotDeleteInstance { missing };
    let fix = format!("{fix}, or set label {}=true to leave the instance behind", labels::FORCE_DELETION);
    let why = Why::new(reason, Step::Fix(fix)).since(deleting_since);
    Some(await_person(s, DeletionMarker::DeleteInstance, why))
}

/// Waits for a user, and reports it in the status and once by an Event. An existing marker is kept.
pub(super) fn await_person(s: &Snapshot, unless_marked: DeletionMarker, why: Why) -> Plan<Action> {
    let marker = s.machine.deletion_marker().unwrap_or(unless_marked);
    let description = format!("Deletion is blocked: {}. {marker}", why.reason);
    let operation = OperationWrite::failed(OperationType::Delete, &description, None);
    let mut plan = Plan::idle(why);
    if let Some(write) = s.status(Phase::Terminating, operation) {
        plan.actions.push(Action::SetStatus(Box::new(write)));
        plan.actions.push(Action::warn(DELETE_FAILED, description));
    }
    plan
}

/// Deletes the Machine without its instance, and emits an Event that the instance may still exist.
fn leave_behind(s: &Snapshot, message: &str, deleting_since: Timestamp) -> Plan<Action> {
    with_remark(remove_node(s, deleting_since), Some(Action::warn(DELETE_FAILED, message)))
}

fn call_failed(
    s: &Snapshot,
    call: Call,
    error: &Error,
    retry_at: Timestamp,
    deleting_since: Timestamp,
) -> Plan<Action> {
    let marker = s.machine.deletion_marker().unwrap_or(DeletionMarker::DeleteInstance);
    let description = format!("{}. {marker}", code_text(error));
    let operation = OperationWrite::failed(OperationType::Delete, &description, Some(code_of(error)));
    let reason = Reason::CallFailed {
        call,
        kind: error.kind,
        message: error.message.clone(),
        failures: s.answers.failures,
    };
    let why = Why::new(reason, Step::Repeat(call, retry_at)).since(deleting_since);
    let mut plan = Plan::until(retry_at, why);
    if let Some(write) = s.status(Phase::Terminating, operation) {
        plan.actions.push(Action::SetStatus(Box::new(write)));
        plan.actions.push(Action::warn(DELETE_FAILED, description));
    }
    plan
}

/// Deletes the Node and the token after the instance is deleted, and then removes the Machine's
/// finalizer.
fn remove_node(s: &Snapshot, deleting_since: Timestamp) -> Plan<Action> {
    let mut actions = Vec::new();
    match s.own_node() {
        OwnNode::Ours(node) => {
            if node.has_finalizer {
                actions.push(Action::RemoveNodeFinalizer(node.clone()));
            }
            if node.deleting_since.is_none() {
                actions.push(Action::DeleteNode(node.clone()));
            }
        }
        // The proof for this Node is enough to judge the Machine, but not to delete the Node. Our
        // finalizer would prevent its later deletion.
        OwnNode::NotOurs(node, _) if node.has_finalizer && node.machine_name() == Some(&s.machine.name) => {
            actions.push(Action::RemoveNodeFinalizer(node.clone()));
        }
        // A Node may have registered just before the deletion of its instance, and our store may be
        // older. No other component would delete that Node, so the API server is asked once.
        OwnNode::Missing if may_have_registered(s) && !is_node_absent(s) => {
            let reason = McmReason::NodeLeaving { node: s.machine.node_name().to_owned() };
            return look_for_node(s, reason, Step::Expect("the finalizer is removed"), deleting_since);
        }
        OwnNode::Missing | OwnNode::NotOurs(..) => {}
    }
    if let Token::Ours(token) = &s.token {
        actions.push(Action::DeleteToken(token.clone()));
    }
    actions.push(Action::RemoveFinalizer);
    let why =
        Why::new(Reason::Writing("removing the Node and the finalizer"), Step::Nothing).since(deleting_since);
    Plan::act_all(actions, why)
}

/// Whether an instance existed that may have registered a Node.
fn may_have_registered(s: &Snapshot) -> bool {
    s.machine.provider_id.is_some()
        || s.answers.ever_ensured
        || !s.process.saw_the_birth_of(s.machine.created)
}

/// Whether the API server has confirmed, after the deletion of the instance, that no Node exists.
fn is_node_absent(s: &Snapshot) -> bool {
    let seen_gone = s
        .answers
        .find
        .as_ref()
        .filter(|find| matches!(find.answered.answer, Ok(Sighting::Absent | Sighting::Foreign(_))));
    let gone = seen_gone.map_or(Timestamp::MIN, |find| find.answered.started);
    s.looks
        .node
        .as_ref()
        .is_some_and(|look| look.name == s.machine.node_name() && look.uid.is_none() && gone <= look.started)
}

/// Handles a recorded id that the provider cannot parse: nothing is called, drained or deleted
/// until a user decides.
fn hold(s: &Snapshot, unusable: Why, deleting_since: Timestamp) -> Plan<Action> {
    let fix = format!(
        "{}, or set label {}=true to leave the instance behind",
        unusable.next,
        labels::FORCE_DELETION
    );
    let why = Why::new(unusable.reason, Step::Fix(fix)).since(deleting_since);
    await_person(s, DeletionMarker::FindInstance, why)
}

/// Deletes a Machine with an unreadable id, and emits an Event that names the instance that may
/// still exist.
fn leave_unknown_behind(s: &Snapshot, unusable: &Why, deleting_since: Timestamp) -> Plan<Action> {
    let id = s.machine.provider_id.as_ref().map(ToString::to_string).unwrap_or_default();
    let message = format!(
        "Instance {id} may be left behind: label {} is set although deletion was blocked: {}",
        labels::FORCE_DELETION,
        unusable.reason
    );
    leave_behind(s, &message, deleting_since)
}

/// Adds an Event about an instance with the Machine's name that was left alone. No other object
/// refers to that instance.
fn name_refused(s: &Snapshot, refused: Option<Refused<'_>>, mut plan: Plan<Action>) -> Plan<Action> {
    let Some(refused) = refused.filter(|_| is_last(&plan)) else { return plan };
    let (instance, evidence) = told_apart(s, &refused);
    let message =
        format!("The deletion leaves {instance} alone, which has the name of this machine: {evidence}");
    plan.why.reason = McmReason::NamesakeInstance { instance, evidence }.into();
    with_remark(plan, Some(Action::warn(INSTANCE_NOT_OURS, message)))
}

/// Returns the instance, and why it does not belong to the Machine.
fn told_apart(s: &Snapshot, refused: &Refused<'_>) -> (String, String) {
    match refused {
        Refused::MadeBefore(instance) => {
            let (made, created) = (instance.created, s.machine.created);
            let evidence = format!("it has no key and was created at {made:.0}, the machine at {created:.0}");
            (format!("instance {}", instance.id), evidence)
        }
        Refused::OfAnotherOwner(Some(key)) => {
            ("an instance".to_owned(), format!("it was created for key {key}"))
        }
        Refused::OfAnotherOwner(None) => {
            ("an instance".to_owned(), "another program created it without a key".to_owned())
        }
    }
}
