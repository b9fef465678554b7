//! From a deletion timestamp to nothing: drain, volumes, delete the instance, see it gone, then the Node, then the finalizer.
//!
//! An instance is deleted only with evidence that no pod which has to leave is lost with it, and the evidence is read from the API
//! server itself, after the last thing that could change it: the Node is closed for new pods, that is seen, and only then a list
//! of its pods counts. A Node that the store does not show is looked for, since the store may be older than the Node.

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
use crate::why::{McmReason, Reason, Step};
use crate::{Plan, Why};
use machinist_core::Evidence;
use machinist_core::instance::{Departure, Next, Proof, Refused};
use machinist_core::{Call, Known, is_past, just_before, just_past, plus, since};

/// A forced drain need not wait for anybody, but its calls take a moment.
const FORCED_DRAIN_TAKES: Duration = Duration::from_secs(60);
/// The text about a failing drain is written at most this often.
const DRAIN_TEXT_EVERY: Duration = Duration::from_secs(30);
/// The most VolumeAttachments that one pass deletes: the rest follows when these have been answered.
const DELETIONS_PER_PASS: usize = 20;

pub(super) fn plan(s: &Snapshot, since: Timestamp) -> Plan<Action> {
    if !s.machine.has_finalizer {
        let why = Why::new(
            Reason::Awaiting("the owners of its other finalizers to remove them"),
            Step::Expect("whoever put them there removes them"),
        );
        return Plan::idle(why.since(since));
    }
    if let Some((call, started, until)) = s.answers.waiting(&s.process, s.now) {
        return Plan::until(
            until,
            Why::new(Reason::Calling(call), Step::Expect("the answer")).since(started),
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
        let why = Why::new(
            Reason::Writing("its Node to be labelled as its own"),
            Step::Expect("its node is drained"),
        );
        return Plan::act(Action::SyncNode(Box::new(sync)), why.since(since));
    }
    if let Some(name) = unrecorded_node(s) {
        // Go MCM leaves a Node whose Machine has no label behind, so the label comes before the drain.
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

/// What is next, as far as the marker tells. A marker may lag what has happened, so nothing is skipped for its sake but what it
/// says has ended: a drain, which is not begun again whatever pods are there, and the instance, which is not called for again.
enum Stage {
    /// The drain, or what comes before it.
    Drain,
    /// The volumes that a drain by force left attached.
    Volumes,
    /// The instance.
    Instance,
    /// The Node. Only Go MCM writes the markers from here on, once the cloud has deleted the instance.
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

/// Says that it is going, with the marker of the stage that Go MCM would have to begin with.
fn begin(s: &Snapshot, since: Timestamp) -> Plan<Action> {
    let marker = match s.machine.node {
        Some(_) => DeletionMarker::DrainNode,
        None => DeletionMarker::FindInstance,
    };
    let operation = OperationWrite::processing(OperationType::Delete, marker.as_str());
    let write = s.status(Phase::Terminating, operation).map(|write| Action::SetStatus(Box::new(write)));
    let why =
        Why::new(Reason::Writing("its deletion to begin"), Step::Expect("its node is drained")).since(since);
    Plan::act_all(write.into_iter().collect(), why)
}

/// The Node that carries our label while the Machine does not name it.
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

/// What brings our label onto a Node that registered after the Machine was last looked at: without a label it would not be drained,
/// and stay behind.
fn unlabelled_node(s: &Snapshot) -> Option<NodeSync> {
    match (stage(s), s.own_node(), s.joined_node()) {
        (Stage::Drain, OwnNode::NotOurs(..), OwnNode::Ours(node)) if !node.is_not_managed() => {
            NodeSync::needed(&s.machine, node)
        }
        _ => None,
    }
}

/// Another Machine has the instance: this one goes without it, once a person has said so.
fn held(s: &Snapshot, holder: &str, deleting_since: Timestamp) -> Plan<Action> {
    if s.machine.wants_force_deletion() {
        let because = format!("Machine {holder}, which is older, records it, too");
        return leave_behind(s, &proof::left_behind(s, &because), deleting_since);
    }
    let reason = McmReason::InstanceShared { instance: s.instance().to_string(), machine: holder.to_owned() };
    let mend = format!("set label {}=true to leave the instance to Machine {holder}", labels::FORCE_DELETION);
    let why = Why::new(reason, Step::Mend(mend)).since(deleting_since);
    await_person(s, DeletionMarker::FindInstance, why)
}

fn label_node(node: NodeName) -> Plan<Action> {
    let why = Why::new(Reason::Writing("the record of its Node"), Step::Expect("its node is drained"));
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
            Reason::Looking("the Lease of its Node, which says for how long the kubelet has been silent"),
            Step::Expect("its node is drained"),
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
        // More pods would not help where all of them are to stay: `maxUnavailable: 0`, `minAvailable: 100%`.
        Some(budget) => Step::Mend(format!("let PodDisruptionBudget {budget} allow one of its pods to go")),
        None => Step::Expect("the pods leave"),
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

/// How pods leave, and when patience ends. A node that has been dead for a while is not drained politely: nothing there
/// would stop the pods, and budgets count them as disrupted already.
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
        // The node may turn out to be dead before patience ends: then look earlier.
        Some(given_up_at) => (Manner::Polite, given_up_at.min(patience_ends)),
        None => (Manner::Polite, patience_ends),
    }
}

/// When a Node counts as dead, if one of its conditions says that it is going that way.
///
/// A condition without a time counts from when it was first seen; or from ever, if the kubelet has been silent for as long by its
/// Lease. Go MCM takes no time for long ago without asking.
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
    // As of the look, and one second before: a deadline counts from the next whole second on.
    let silent_since = looked.filter(|_| is_silent).map(|look| just_before(look.started));
    silent_since.into_iter().chain(by_conditions).min()
}

/// Since when a Node has been seen with a condition that means a dead Node and has no time, while it is not Ready: then its Lease
/// says more.
fn untimed_since(s: &Snapshot, node: &NodeFacts) -> Option<Timestamp> {
    let is_ready = node.condition(conditions::NODE_READY).is_none_or(|ready| ready.status == "True");
    let untimed = DEADLY
        .into_iter()
        .filter(|(kind, fine)| node.condition(kind).is_some_and(|condition| is_untimed(condition, fine)));
    untimed.map(|(kind, _)| seen_untimed_since(s, kind)).min().filter(|_| !is_ready)
}

/// Since when a condition that has no time has been seen as it is.
fn seen_untimed_since(s: &Snapshot, kind: &str) -> Timestamp {
    s.node_seen.untimed.get(kind).copied().unwrap_or(s.now)
}

/// Whether it depends on the Lease of a Node how its pods leave.
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

/// Tells the Node and the scheduler before the first pod is asked to leave.
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

/// Writes what holds the drain up, at most every half minute, keeping the marker that Go MCM would go on from.
fn say_blocked(s: &Snapshot, reason: &McmReason) -> Vec<Action> {
    let description = format!("Drain waits for {reason}. {}", DeletionMarker::DrainNode);
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

/// A Node from which no pod has to leave any more, as far as the store shows, or whose pods were given up.
struct Left<'s> {
    node: &'s Arc<NodeFacts>,
    manner: Manner,
    /// When patience with this manner ends.
    deadline: Timestamp,
    /// What the Node still has to be told.
    actions: Vec<Action>,
    deleting_since: Timestamp,
}

impl Left<'_> {
    /// What must still be known, and then what follows the drain.
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

    /// A drain by force asks, too: what the list shows and the store lacks is deleted like the rest. But it does not wait for ever.
    fn by_force(self, s: &Snapshot) -> Plan<Action> {
        let is_over = is_past(s.now, self.deadline);
        if !is_over && !s.machine.wants_force_deletion() && listed(s, self.node).is_none() {
            return self.confirm(s);
        }
        let marker = DeletionMarker::DeleteVolumeAttachments.as_str();
        let operation = OperationWrite::processing(OperationType::Delete, marker);
        let said = s.status(Phase::Terminating, operation).map(|write| Action::SetStatus(Box::new(write)));
        // What the Node refuses to be told must not keep its instance.
        let told = if is_over { Vec::new() } else { self.actions };
        let why = Why::new(
            Reason::Writing("its drain to be ended by force"),
            Step::Expect("its VolumeAttachments are deleted"),
        );
        Plan::act_all(told.into_iter().chain(said).collect(), why.since(self.deleting_since))
    }

    /// Closes the Node, and then asks for the list that counts.
    fn confirm(mut self, s: &Snapshot) -> Plan<Action> {
        if self.node.unschedulable != Some(true) || s.node_seen.cordoned.is_none() {
            let why = Why::new(
                Reason::Writing("its Node to be closed for new pods"),
                Step::Expect("its pods leave"),
            );
            return Plan::act_all(self.actions, why.since(self.deleting_since));
        }
        let last = listed(s, self.node).map(|(_, list)| list);
        let left = last.map_or(0, |list| list.leaving);
        let reason = McmReason::ConfirmingDrain { node: self.node.name.clone(), left };
        let why = Why::new(reason, Step::Expect("the instance is deleted")).since(self.deleting_since);
        let why =
            why.deadline(just_past(self.deadline), Step::Expect("the instance is deleted all the same"));
        match last.map(|list| again_at(list.started)) {
            Some(again) if s.now < again => Plan::act_all(self.actions, why).no_later_than(again),
            _ => {
                self.actions.push(Action::ListPods(self.node.clone()));
                Plan::act_all(self.actions, why)
            }
        }
    }
}

/// The list of the pods on a Node that began after the Node was seen closed, and since when it has been seen so.
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

/// After a drain by force: the volumes that are still attached are detached by deleting their attachments, as Go MCM does, and
/// waited for, up to a limit: their attacher may be gone.
fn detach(s: &Snapshot, deleting_since: Timestamp) -> Plan<Action> {
    let is_labelled = s.machine.wants_force_deletion();
    let evidence = if is_labelled { Evidence::ForceDeletion } else { Evidence::Forced };
    // The attachments of a Node of that name which is not the Machine's are not the Machine's either.
    let (OwnNode::Ours(node), false) = (s.own_node(), s.attachments.is_empty()) else {
        return drained(s, deleting_since, evidence);
    };
    // Others may have written the marker long ago, and then ended.
    let written = s.machine.status.operation.last_update_time.as_ref().map_or(Timestamp::MIN, |time| time.0);
    let until = plus(written.max(s.process.acting_since()), s.defaults.detach_timeout);
    if (is_labelled || s.process.may_enforce_deadlines()) && is_past(s.now, until) {
        return drained(s, deleting_since, evidence);
    }
    let staying = s.attachments.iter().filter(|attachment| attachment.deleting_since.is_none());
    let actions = staying.take(DELETIONS_PER_PASS).cloned().map(Action::DeleteAttachment).collect();
    let why = volumes_attached(s, node, "their attacher detaches them").since(deleting_since);
    let why = why.deadline(just_past(until), Step::Expect("the instance is deleted all the same"));
    let ends = just_past(until);
    let look_at = if s.now < ends { ends } else { plus(s.now, CLOCKS_AGAIN_AFTER) };
    Plan::act_all(actions, why).no_later_than(look_at)
}

/// The drain has ended: say so, and go on with the instance in the same pass. The marker lags the fact, so whoever takes over
/// repeats a deletion, not a drain.
///
/// The marker is written with the deletion that the evidence is for, and not before. Where the deletion has to wait, pods may be bound
/// to the Node again, so the evidence has to be found once more.
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

/// Why the deletion of an instance without a Node costs no pod, if that is known: the store may be older than the Node.
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

/// Asks the API server whether the Node exists that the store does not show.
fn look_for_node(s: &Snapshot, reason: McmReason, next: Step, deleting_since: Timestamp) -> Plan<Action> {
    let why = Why::new(reason, next).since(deleting_since);
    let name = s.machine.node_name();
    let last = s.looks.node.as_ref().filter(|look| look.name == name && look.uid.is_some());
    match last.map(|look| again_at(look.started)) {
        // It was found, and the store is about to show it.
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
        Why::new(reason, Step::Expect("its Node and its finalizer are removed")).since(deleting_since)
    };
    match next {
        Next::Gone(proof) => {
            let plan = with_remark(remove_node(s, deleting_since), proof::remark(s, &proof));
            // The remark names it already.
            let refused = refused.filter(|_| !matches!(proof, Proof::NameTaken(_)));
            name_refused(s, refused, plan)
        }
        Next::Wait { call, since, until } => {
            Plan::until(until, Why::new(Reason::Calling(call), Step::Expect("the answer")).since(since))
        }
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
                Next::NotOurs { foreign, .. } => format!("it carries key {}", foreign.key),
                _ => format!("{} may open another account", proof::secrets(s)),
            };
            leave_behind(s, &proof::left_behind(s, &because), deleting_since)
        }
        Next::LookTwice { look_at } => proof::look_twice(s, look_at, deleting_since),
        Next::OtherAccount { look_at } => proof::other_account_plan(s, look_at, deleting_since),
        Next::NotOurs { foreign, look_at } => proof::not_ours(s, &foreign, look_at, deleting_since),
    }
}

/// What people are told goes with the finalizer, so that it is told once.
fn with_remark(mut plan: Plan<Action>, remark: Option<Action>) -> Plan<Action> {
    if let Some(remark) = remark.filter(|_| is_last(&plan)) {
        plan.actions.insert(0, remark);
    }
    plan
}

/// Whether the plan ends the Machine.
fn is_last(plan: &Plan<Action>) -> bool {
    plan.actions.iter().any(|action| matches!(action, Action::RemoveFinalizer))
}

/// Records an instance that was found on the way out, so that it is deleted by its id. Nothing else is said: the Machine is going.
fn record(
    s: &Snapshot,
    found: &Instance,
    account: Option<AccountId>,
    deleting_since: Timestamp,
) -> Plan<Action> {
    let why = Why::new(Reason::Writing("the record of its instance"), Step::Expect("it is deleted"));
    Plan::act(s.record(found, account), why.since(deleting_since))
}

/// Without class or credential the cloud cannot be called. Then deletion waits, and says so, until a person brings them back or
/// takes the responsibility with the label force-deletion.
///
/// A credential that is there and refused is a call that failed, and the label does not end it: people set the label to skip a
/// drain, and a typing error in a Secret must not cost an instance that nobody knows of any more.
fn cannot_call(s: &Snapshot, deleting_since: Timestamp) -> Option<Plan<Action>> {
    let (missing, mend) = match &s.class {
        Known::Present(class) => {
            let need = s.secrets.iter().find(|need| !matches!(need.facts, Known::Present(_)))?;
            match need.facts {
                Known::Unasked => (
                    format!("Secret {} (only namespace {} is read)", need.name, s.machine.namespace),
                    format!(
                        "let MachineClass {} refer to one of namespace {}",
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
            let mend = format!("create {class} again");
            (class, mend)
        }
    };
    if s.machine.wants_force_deletion() {
        let because = format!("{missing} is missing");
        return Some(leave_behind(s, &proof::left_behind(s, &because), deleting_since));
    }
    let reason = McmReason::CannotDeleteInstance { missing };
    let mend = format!("{mend}, or set label {}=true to leave the instance behind", labels::FORCE_DELETION);
    let why = Why::new(reason, Step::Mend(mend)).since(deleting_since);
    Some(await_person(s, DeletionMarker::DeleteInstance, why))
}

/// Waits for a person, and says so in the status and once by an Event. The marker that is written already stays.
pub(super) fn await_person(s: &Snapshot, unless_marked: DeletionMarker, why: Why) -> Plan<Action> {
    let marker = s.machine.deletion_marker().unwrap_or(unless_marked);
    let description = format!("Deletion waits for {}. {marker}", why.reason);
    let operation = OperationWrite::failed(OperationType::Delete, &description, None);
    let mut plan = Plan::idle(why);
    if let Some(write) = s.status(Phase::Terminating, operation) {
        plan.actions.push(Action::SetStatus(Box::new(write)));
        plan.actions.push(Action::warn(DELETE_FAILED, description));
    }
    plan
}

/// Lets the Machine go without its instance, and tells people that there may be one: nothing else will.
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

/// The instance is gone: what it left behind goes, and then the Machine.
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
        // The Machine was judged by it, and it is not certain enough to be deleted. It goes with its own instance; but with our
        // finalizer it never could.
        OwnNode::NotOurs(node, _) if node.has_finalizer && node.machine_name() == Some(&s.machine.name) => {
            actions.push(Action::RemoveNodeFinalizer(node.clone()));
        }
        // A Node may have registered a moment before its instance went, and our store may be older than that. Nothing would ever
        // remove it, so ask the API server itself once.
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
    let why = Why::new(Reason::Writing("its Node and its finalizer to be removed"), Step::Nothing)
        .since(deleting_since);
    Plan::act_all(actions, why)
}

/// Whether an instance existed that may have registered a Node.
fn may_have_registered(s: &Snapshot) -> bool {
    s.machine.provider_id.is_some()
        || s.answers.ever_ensured
        || !s.process.saw_the_birth_of(s.machine.created)
}

/// Whether the API server itself has shown, once the instance was gone, that there is no Node.
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

/// The recorded id is none that the provider can read: nothing is called, drained or deleted until a person decides.
fn hold(s: &Snapshot, unusable: Why, deleting_since: Timestamp) -> Plan<Action> {
    let mend = format!(
        "{}, or set label {}=true to leave the instance behind",
        unusable.next,
        labels::FORCE_DELETION
    );
    let why = Why::new(unusable.reason, Step::Mend(mend)).since(deleting_since);
    await_person(s, DeletionMarker::FindInstance, why)
}

/// Lets a Machine go whose recorded id cannot be read, and tells people which instance may be left.
fn leave_unknown_behind(s: &Snapshot, unusable: &Why, deleting_since: Timestamp) -> Plan<Action> {
    let id = s.machine.provider_id.as_ref().map(ToString::to_string).unwrap_or_default();
    let message = format!(
        "Instance {id} may be left behind: label {} is set, and deletion waited for {}",
        labels::FORCE_DELETION,
        unusable.reason
    );
    leave_behind(s, &message, deleting_since)
}

/// Tells people, when the Machine goes, about an instance of its name that was left alone: no other object names that instance.
fn name_refused(s: &Snapshot, refused: Option<Refused<'_>>, mut plan: Plan<Action>) -> Plan<Action> {
    let Some(refused) = refused.filter(|_| is_last(&plan)) else { return plan };
    let (instance, evidence) = told_apart(s, &refused);
    let message =
        format!("The deletion leaves {instance} alone, which has the name of this machine: {evidence}");
    plan.why.reason = McmReason::NamesakeInstance { instance, evidence }.into();
    with_remark(plan, Some(Action::warn(INSTANCE_NOT_OURS, message)))
}

/// The instance, and what tells it from one of the Machine's own.
fn told_apart(s: &Snapshot, refused: &Refused<'_>) -> (String, String) {
    match refused {
        Refused::MadeBefore(instance) => {
            let (made, created) = (instance.created, s.machine.created);
            let evidence =
                format!("it carries no key and was made at {made:.0}, the machine at {created:.0}");
            (format!("instance {}", instance.id), evidence)
        }
        Refused::OfAnotherKey(key) => ("an instance".to_owned(), format!("it was made for key {key}")),
    }
}
