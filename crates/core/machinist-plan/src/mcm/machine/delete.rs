//! Deletes a Machine: drain, volumes, instance, confirmation of its absence, Node, finalizer.
//!
//! An instance is deleted only with evidence that the deletion loses no pod that must be evicted
//! first. The evidence is read from the API server, after the last event that could change it. So a
//! list of the pods counts only if it began after the cordon was observed. If the store shows no
//! Node, the API server is asked, because the store may be older than the Node. A drain that is
//! ended by force needs answers, too: to the deletion of each pod, and to a list. While the API
//! server of the Nodes does not answer, the instance stays.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_api::constants::markers::DeletionMarker;
use machinist_api::constants::{conditions, labels, reasons};
use machinist_api::{OperationState, OperationType, Phase};
use machinist_instance::{AccountId, Error, Instance, NodeName, Sighting};

use super::action::Action;
use super::action::DELETE_FAILED;
use super::action::DRAIN_FORCED;
use super::action::INSTANCE_LEFT_BEHIND;
use super::action::INSTANCE_NOT_OURS;
use super::action::TARGET_SILENT;
use super::action::VOLUMES_LEFT;
use super::hindrance::{self, DRAIN_TEXT_EVERY};
use super::identity::OwnNode;
use super::node_sync::NodeSync;
use super::proof;
use super::snapshot::OtherNode;
use super::snapshot::Snapshot;
use super::status::{OldState, OperationWrite};
use super::status::{code_of, code_text};
use super::target_cluster::TargetCluster;
use crate::mcm::drain::{
    AwaitedVolume, Drain, DrainProgress, DrainVolumes, Eviction, EvictionAnswer, Manner, PodCall,
    UNANSWERED_FOR, VolumeStep, VolumeTurn, end_or_later,
};
use crate::mcm::facts::{AttachmentFacts, ClassFacts, NODE_MARK, NodeFacts, PodFacts, Token};
use crate::mcm::reads::{DEADLY, NodeRead, PodList, Renewal, again_at, is_untimed};
use crate::mcm::why::{BlockedPod, McmReason, Plan, Reason, Step, Why, why_finalizers_of_others};
use machinist_core::Evidence;
use machinist_core::instance::{AbsenceEvidence, Departure, Next, Refused};
use machinist_core::{Call, Known, Unseen, is_past, just_before, just_past, minus, plus, since};

/// Time for the calls of a forced drain, which does not wait for pods.
const FORCED_DRAIN_TAKES: Duration = Duration::from_secs(60);
/// Maximum number of VolumeAttachments that one pass deletes. The next deletions follow after these
/// are answered.
const DELETIONS_PER_PASS: usize = 20;
/// Minimum wait before the next look at a progress that could not be written.
const LOOK_AT_LEAST: Duration = Duration::from_secs(5);
/// A drain that timed out does not wait for pods that came to a Node without a cordon less than
/// this ago.
const OPEN_NODE_PATIENCE: Duration = Duration::from_secs(300);
/// Maximum number of pods that an Event names.
const PODS_NAMED: usize = 10;
/// Why a dead Node is drained by force, as a phrase.
const NODE_IS_DEAD: &str = "the Node is dead";
/// Start of the description of a drain that was tried and is blocked. A process that takes over
/// reads from it that the pods were evicted before.
const BLOCKED: &str = "Drain is blocked: ";
/// Start of the description of a deletion that begins with a failed Machine. The condition of the
/// Node names the reason, and the phase no longer shows it.
const HAD_FAILED: &str = "The Machine had failed. ";
/// Start of the description of a drain in progress.
const DRAINING: &str = "Drain in progress: ";
/// Start of the description of a deletion that waits for a user.
const HELD: &str = "Deletion is blocked: ";

pub(super) fn plan(s: &Snapshot, since: Timestamp) -> Plan<Action> {
    name_silence(s, plan_step(s, since))
}

fn plan_step(s: &Snapshot, since: Timestamp) -> Plan<Action> {
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
    let wrong_id = || s.unusable_id().or_else(|| s.overwritten_id());
    if !s.machine.wants_force_deletion()
        && let Some(wrong) = wrong_id()
    {
        return hold(s, wrong, since);
    }
    // Once the cloud was asked to delete the instance, this Machine owned it. Its Node, which
    // showed that, may be gone.
    let owned_it = is_past_drain(s) || is_accepted(s);
    if let Some(holder) = s.identity.held_by.as_ref().filter(|_| !owned_it) {
        return held(s, holder, since);
    }
    if s.target == TargetCluster::None {
        return without_target(s, since);
    }
    if has_no_answer(s) && s.machine.wants_force_deletion() && !matches!(stage(s), Stage::Node) {
        return drained(s, since, Evidence::ForceDeletion);
    }
    if let Some(sync) = unlabelled_node(s) {
        let why = Why::new(Reason::Writing("labeling the Node"), Step::Expect("the Node is drained"));
        return Plan::act(Action::SyncNode(Box::new(sync)), why.since(since));
    }
    if let Some(name) = s.unrecorded_node() {
        // Go MCM does not delete the Node of a Machine without this label, so the label comes
        // before the drain.
        return label_node(name);
    }
    if let Some(plan) = rejected(s, since).filter(|_| matches!(stage(s), Stage::Drain | Stage::Volumes)) {
        return plan;
    }
    match (stage(s), s.own_node()) {
        (Stage::Drain, OwnNode::Ours(node)) => drain(s, node, since),
        (Stage::Drain, OwnNode::Missing | OwnNode::NotOurs(..)) => remove_instance(s, since, without_node(s)),
        (Stage::Volumes, _) => detach(s, since),
        (Stage::Instance, _) => {
            let stage = DeletionMarker::DeleteInstance.as_str();
            with_marker(s, remove_instance(s, since, Some(Evidence::PastDrain { stage })))
        }
        (Stage::Node, _) => remove_node(s, since),
    }
}

/// Deletes the instance and removes the finalizer. Without a target cluster there is no Node to
/// drain or to delete, as in Go MCM.
fn without_target(s: &Snapshot, since: Timestamp) -> Plan<Action> {
    match stage(s) {
        Stage::Drain | Stage::Volumes | Stage::Instance => drained(s, since, Evidence::NoTargetCluster),
        Stage::Node => remove_node(s, since),
    }
}

/// Whether the API server of the target cluster has been silent for so long that a deletion that a
/// user forces goes on without it. Rejections count as silence in a forced deletion.
fn has_no_answer(s: &Snapshot) -> bool {
    s.reads.silence.as_ref().is_some_and(|silence| UNANSWERED_FOR <= since(s.now, silence.since))
}

/// The next stage according to the marker, and to the answer that the marker will report.
///
/// A marker may lag reality, so it skips only stages that it reports as ended: a drain, which does
/// not start again even if pods are present, and the deletion of the instance, which is not
/// requested again.
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
    match written_marker(s) {
        Some(DeletionMarker::DeleteInstance) => Stage::Instance,
        Some(DeletionMarker::DeleteNode | DeletionMarker::RemoveFinalizer) => Stage::Node,
        _ if is_accepted(s) => Stage::Instance,
        None | Some(DeletionMarker::FindInstance | DeletionMarker::DrainNode) => Stage::Drain,
        Some(DeletionMarker::DeleteVolumeAttachments) => Stage::Volumes,
    }
}

/// Whether the cloud has accepted a call of this process to delete the instance. From then on, no
/// drain is needed.
fn is_accepted(s: &Snapshot) -> bool {
    let recorded = s.identity.recorded.ours();
    recorded.is_some() && s.answers.deleted(recorded).is_some_and(|asked| asked.answer.is_ok())
}

/// Returns the marker in the status of a deletion.
fn written_marker(s: &Snapshot) -> Option<DeletionMarker> {
    let is_deletion = s.machine.status.operation.type_ == Some(OperationType::Delete);
    s.machine.deletion_marker().filter(|_| is_deletion)
}

/// Returns when the last operation was written to the status.
fn written_at(s: &Snapshot) -> Option<Timestamp> {
    s.machine.status.operation.last_update_time.as_ref().map(|time| time.0)
}

/// Returns the write of the deletion's progress, if the status differs.
fn write_progress(s: &Snapshot, description: impl Into<String>) -> Option<Action> {
    let operation = OperationWrite::processing(OperationType::Delete, description);
    s.status(Phase::Terminating, operation).map(|write| Action::SetStatus(Box::new(write)))
}

/// Returns the marker at which Go MCM would have to begin.
fn first_marker(s: &Snapshot) -> DeletionMarker {
    match (s.target, &s.machine.node) {
        (TargetCluster::Given, Some(_)) => DeletionMarker::DrainNode,
        (TargetCluster::Given, None) | (TargetCluster::None, _) => DeletionMarker::FindInstance,
    }
}

/// Returns the marker of the current stage. A status without a marker has completed no stage.
fn current_marker(s: &Snapshot) -> DeletionMarker {
    match written_marker(s) {
        _ if is_accepted(s) && !is_past_drain(s) => DeletionMarker::DeleteInstance,
        written => written.unwrap_or_else(|| first_marker(s)),
    }
}

/// Whether the status shows that the drain has ended.
fn is_past_drain(s: &Snapshot) -> bool {
    use DeletionMarker::{DeleteInstance, DeleteNode, RemoveFinalizer};
    matches!(written_marker(s), Some(DeleteInstance | DeleteNode | RemoveFinalizer))
}

/// Names the API server of the target cluster in a plan that needs its answer, if it does not
/// answer.
fn name_silence(s: &Snapshot, mut plan: Plan<Action>) -> Plan<Action> {
    let Some(silence) = &s.reads.silence else { return plan };
    if !plan.actions.iter().any(Action::is_for_the_nodes) && !awaits_the_nodes(&plan.why.reason) {
        return plan;
    }
    let waiting = plan.why.reason.to_string();
    let reason = McmReason::NodesUnanswered { since: silence.since, error: silence.error.clone(), waiting };
    let fix = format!(
        "restore the API server of the target cluster, or set label {}=true to give up the pods",
        labels::FORCE_DELETION
    );
    if DRAIN_TEXT_EVERY <= since(s.now, silence.since) {
        // The condition of the Node may not be written yet.
        let prefix = if began_failed(s) { HAD_FAILED } else { "" };
        let description = format!("{prefix}Deletion waits: {reason}. {}", current_marker(s));
        plan.actions.splice(0..0, say(s, description));
    }
    plan.why = Why::new(reason, Step::Fix(fix)).since(plan.why.since);
    plan
}

/// Whether an object with this reason waits for an answer of the API server of the target cluster.
fn awaits_the_nodes(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::Contract(
            McmReason::Draining { .. }
                | McmReason::VolumeTurn { .. }
                | McmReason::ConfirmingDrain { .. }
                | McmReason::ConfirmingNoNode { .. }
                | McmReason::NodeLeaving { .. }
        )
    )
}

/// Writes the phase Terminating, with the marker of the stage at which Go MCM would have to begin.
fn begin(s: &Snapshot, since: Timestamp) -> Plan<Action> {
    let had_failed = if s.machine.status.phase == Phase::Failed { HAD_FAILED } else { "" };
    let write = write_progress(s, format!("{had_failed}{}", first_marker(s)));
    let why =
        Why::new(Reason::Writing("starting the deletion"), Step::Expect("the Node is drained")).since(since);
    Plan::act_all(write.into_iter().collect(), why)
}

/// Returns the patch that adds our label to a Node that registered after the last pass. Without the
/// label the Node would be neither drained nor deleted.
fn unlabelled_node(s: &Snapshot) -> Option<NodeSync> {
    match (stage(s), s.own_node(), s.joined_node()) {
        (Stage::Drain, OwnNode::NotOurs(..), OwnNode::Ours(node)) if !node.is_not_managed() => {
            NodeSync::needed(&s.machine, node, &s.cluster, None).filter(|_| s.may_mark())
        }
        _ => None,
    }
}

/// Handles an instance that another Machine owns. This Machine is deleted without it after a user
/// sets the label `force-deletion`.
fn held(s: &Snapshot, holder: &str, deleting_since: Timestamp) -> Plan<Action> {
    if s.machine.wants_force_deletion() {
        let because = format!("Machine {holder} also records it");
        return leave_behind(s, &proof::left_behind(s, &because), deleting_since);
    }
    let reason = McmReason::InstanceShared { instance: s.instance().to_string(), machine: holder.to_owned() };
    let fix = format!(
        "correct spec.providerID of the Machine that does not own the instance, or set label {}=true to leave it to \
         Machine {holder}",
        labels::FORCE_DELETION
    );
    let why = Why::new(reason, Step::Fix(fix)).since(deleting_since);
    await_person(s, why)
}

fn label_node(node: NodeName) -> Plan<Action> {
    let why = Why::new(Reason::Writing("recording the Node"), Step::Expect("the Node is drained"));
    Plan::act(Action::LabelNode(node), why)
}

fn drain(s: &Snapshot, node: &Arc<NodeFacts>, deleting_since: Timestamp) -> Plan<Action> {
    let patience_ends = patience_ends(s, deleting_since);
    let Pressure { manner, deadline, cause } = pressure(s, node, &s.pods, patience_ends);
    let is_forced = manner != Manner::Polite;
    let is_over = is_forced && is_past(s.now, deadline);
    let writes: Vec<_> = nodes_of_instance(s, node).flat_map(|node| prepare(s, node)).collect();
    // Rejected writes to the Node must not keep its pods forever. A pass ends with the first
    // rejected call, so these writes come last if a polite drain has not ended in time.
    let is_rejected = s.reads.is_write_rejected(s.now) && is_past(s.now, patience_ends);
    let (mut actions, mut last) = match (is_over, is_rejected) {
        (true, _) => (Vec::new(), Vec::new()),
        (false, true) => (Vec::new(), writes),
        (false, false) => (writes, Vec::new()),
    };
    if !is_forced && is_lease_needed(s, node) {
        actions.push(Action::LookAtLease(node.clone()));
        let why = Why::new(
            Reason::Looking("the Lease of the Node, which shows the last kubelet heartbeat,"),
            Step::Expect("the Node is drained"),
        );
        return Plan::act_all(actions, why.since(deleting_since));
    }
    let force_from = given_up_at(s, node).map_or(patience_ends, |given_up_at| given_up_at.min(patience_ends));
    if is_past(s.now, force_from) && !is_forced && s.nodes_freshness.may_be_read() {
        actions.push(Action::ReadNodes);
    }
    if is_past(s.now, patience_ends) && !is_forced && is_list_missing(s, node) {
        actions.push(Action::ListPods(node.clone()));
    }
    if is_dead_unread(s, node, manner, cause) {
        actions.push(Action::LookForNode(node.name.clone()));
        let why = Why::new(Reason::Looking("the Node"), Step::Expect("a dead Node is drained by force"));
        return Plan::act_all(actions, why.since(deleting_since));
    }
    let (noted, turn) = match manner {
        Manner::Polite => volumes(s, node, deadline),
        Manner::Forced { .. } => (None, None),
    };
    actions.extend(noted);
    let (calls, left, blocked, look_at) = match progress(s, node, &s.pods, manner, deadline) {
        DrainProgress::Done | DrainProgress::GivenUp { .. } => {
            actions.append(&mut last);
            let left = Left { node, deadline, actions, deleting_since };
            return match manner {
                Manner::Polite => left.politely(s),
                Manner::Forced { since } => left.by_force(s, since, cause),
            };
        }
        DrainProgress::Leaving { calls, left, blocked, look_at } => (calls, left, blocked, look_at),
    };
    let reason = match turn.filter(|_| blocked.is_none()) {
        Some(VolumeTurn { pods, first }) => McmReason::VolumeTurn { pods, moving: first },
        None => McmReason::Draining { left, blocked: blocked.clone() },
    };
    let mut look_at = look_at;
    let mut said = Vec::new();
    if blocked.is_some() && s.reads.silence.is_none() {
        actions.extend(say_blocked(s, &reason));
    } else if !is_forced {
        look_at = look_at.min(say_progress(s, &reason, &mut said));
    }
    if !is_forced {
        actions.extend(tell_impatience(&calls));
    }
    if !actions.iter().chain(&said).any(|action| matches!(action, Action::RecordHold(_))) {
        actions.extend(record_hold(s));
    }
    let is_said = volumes_awaited_since(s).is_some() || held_since(s).is_some();
    if is_said && said.is_empty() && !actions.iter().any(|action| matches!(action, Action::SetStatus(_))) {
        // The hold has ended. The wait for volumes begins again when these pods have left.
        actions.extend(write_progress(s, DeletionMarker::DrainNode.as_str()));
    }
    actions.extend(calls.into_iter().map(Action::Drain));
    actions.append(&mut said);
    actions.append(&mut last);
    let why = Why::new(reason, what_lets_pods_leave(blocked)).since(deleting_since);
    let why = match manner {
        Manner::Polite => {
            why.deadline(just_past(deadline), Step::Expect("the pods are deleted without grace"))
        }
        Manner::Forced { .. } if is_over => why,
        Manner::Forced { .. } => why.deadline(just_past(deadline), Step::Expect("the instance is deleted")),
    };
    Plan::act_all(actions, why).no_later_than(look_at)
}

pub(super) fn drain_timeout(s: &Snapshot) -> Duration {
    let own = s.machine.spec.configuration.drain_timeout().and_then(|timeout| timeout.to_std());
    own.unwrap_or(s.defaults.drain_timeout)
}

/// Returns when the drain times out.
fn patience_ends(s: &Snapshot, deleting_since: Timestamp) -> Timestamp {
    unseen(s).deadline(deleting_since, drain_timeout(s))
}

fn progress(
    s: &Snapshot,
    node: &NodeFacts,
    pods: &[Arc<PodFacts>],
    manner: Manner,
    deadline: Timestamp,
) -> DrainProgress {
    with_drain(s, node, pods, manner, deadline, |drain| drain.progress())
}

/// Returns the note about the volumes of the pods on the Node, if it has changed, and the pods that
/// wait for their turn.
fn volumes(s: &Snapshot, node: &NodeFacts, deadline: Timestamp) -> (Option<Action>, Option<VolumeTurn>) {
    let (waits, turn) = with_drain(s, node, &s.pods, Manner::Polite, deadline, |drain| {
        (drain.volume_waits(), drain.volume_turn())
    });
    ((waits != *s.volumes.waits).then_some(Action::NoteVolumes(waits)), turn)
}

fn with_drain<T>(
    s: &Snapshot,
    node: &NodeFacts,
    pods: &[Arc<PodFacts>],
    manner: Manner,
    deadline: Timestamp,
    ask: impl FnOnce(&Drain<'_>) -> T,
) -> T {
    let drain = Drain {
        now: s.now,
        pods,
        budgets: &s.budgets,
        attempts: &s.evictions,
        deadline,
        manner,
        gives_up: s.machine.wants_force_deletion(),
        is_silent: s.reads.silence.is_some(),
        unseen: &unseen(s),
        max_evictions: max_evictions(s),
        volumes: DrainVolumes { node, seen: &s.volumes, limits: s.defaults.volume_limits() },
    };
    ask(&drain)
}

/// Returns the time that the drain timeout leaves out: no process acted, or the deletion waited for
/// a user.
fn unseen(s: &Snapshot) -> Unseen {
    let mut unseen = s.gaps.clone();
    unseen.add_all(&s.machine.deletion_held());
    if let Some(since) = held_since(s) {
        unseen.add(since, s.now);
    }
    unseen
}

/// Returns since when the deletion waits for a user, according to the status.
fn held_since(s: &Snapshot) -> Option<Timestamp> {
    let operation = &s.machine.status.operation;
    let is_held = operation.type_ == Some(OperationType::Delete) && operation.description().starts_with(HELD);
    written_at(s).filter(|_| is_held)
}

/// Records the period in which the deletion waited for a user, before the status no longer shows
/// it.
fn record_hold(s: &Snapshot) -> Option<Action> {
    let began = held_since(s)?;
    let mut held = s.machine.deletion_held();
    held.add(began, s.now);
    Some(Action::RecordHold(held.to_string()))
}

/// How pods are removed, and why.
pub(super) struct Pressure {
    pub manner: Manner,
    /// When the drain times out, or when the calls of a forced drain should have been made.
    pub deadline: Timestamp,
    /// Why the drain is forced, as a phrase.
    pub cause: &'static str,
}

impl Pressure {
    /// Decides how a drain that began at `began` removes pods. `request` says that a user requests
    /// force, as a phrase. A Node that has been dead for a while is drained by force: nothing on it
    /// would stop the pods, and budgets already count them as disrupted.
    pub(super) fn of(
        s: &Snapshot,
        node: &NodeFacts,
        request: Option<&'static str>,
        began: Timestamp,
        patience_ends: Timestamp,
        was_polite: impl FnOnce() -> bool,
    ) -> Self {
        let forced = |since: Timestamp, cause| {
            let deadline = plus(since, FORCED_DRAIN_TAKES);
            Self { manner: Manner::Forced { since }, deadline, cause }
        };
        let polite = |deadline| Self { manner: Manner::Polite, deadline, cause: "" };
        if let Some(cause) = request {
            return forced(began, cause);
        }
        // In an old view, a Node that has recovered looks dead, and unseen time still counts.
        let may_force = s.process.may_enforce_deadlines() && s.nodes_freshness.is_fresh();
        match given_up_at(s, node) {
            Some(given_up_at) if may_force && is_past(s.now, given_up_at) => {
                forced(began.max(given_up_at), NODE_IS_DEAD)
            }
            _ if may_force && is_past(s.now, patience_ends) && shows_pods(s, node) && was_polite() => {
                forced(patience_ends, "the drain timed out")
            }
            // The Node may count as dead before the drain times out, so the next look is earlier.
            Some(given_up_at) => polite(given_up_at.min(patience_ends)),
            None => polite(patience_ends),
        }
    }
}

/// Returns how pods are removed in a deletion, and the deadline.
fn pressure(s: &Snapshot, node: &NodeFacts, pods: &[Arc<PodFacts>], patience_ends: Timestamp) -> Pressure {
    let request = s.machine.wants_force_deletion().then_some("the label force-deletion is set");
    let began = s.machine.deleting_since.unwrap_or(s.now);
    Pressure::of(s, node, request, began, patience_ends, || was_polite(s, node, pods, patience_ends))
}

/// Returns what ends the wait for pods to leave.
pub(super) fn what_lets_pods_leave(blocked: Option<BlockedPod>) -> Step {
    match blocked.filter(|blocked| blocked.never).and_then(|blocked| blocked.budget) {
        // More pods do not help if all pods must stay: `maxUnavailable: 0`, `minAvailable: 100%`.
        Some(budget) => Step::Fix(format!("change PodDisruptionBudget {budget} to allow a disruption")),
        None => Step::Expect("the pods leave the Node"),
    }
}

/// Whether pods are about to be deleted because a Node is dead, and no GET has just shown that. A
/// watch may deliver and still lag by minutes, so that the Node has recovered.
pub(super) fn is_dead_unread(s: &Snapshot, node: &NodeFacts, manner: Manner, cause: &str) -> bool {
    let Manner::Forced { since } = manner else { return false };
    let is_read = |look: &NodeRead| look.uid.as_ref() == Some(&node.uid);
    let has_begun = s.evictions.values().any(|attempt| attempt.is_deletion && since <= attempt.asked);
    cause == NODE_IS_DEAD && !has_begun && !s.reads.node_now(&node.name, s.now).is_some_and(is_read)
}

/// Whether the store shows the pods that are on the Node now. A pod that an old store lacks was
/// never evicted.
fn shows_pods(s: &Snapshot, node: &NodeFacts) -> bool {
    s.pods_freshness.is_fresh() || s.reads.pods_since(&node.uid, Timestamp::MIN, s.now).is_some()
}

/// Whether only a list of the pods is missing for a drain to time out.
pub(super) fn is_list_missing(s: &Snapshot, node: &NodeFacts) -> bool {
    !shows_pods(s, node) && s.nodes_freshness.is_fresh()
}

/// Whether each pod that is left was tried politely, with an answer. After a takeover, the status
/// of the former process shows that it has tried. A pod that was first evicted after the timeout
/// keeps its grace period.
fn was_polite(s: &Snapshot, node: &NodeFacts, pods: &[Arc<PodFacts>], patience_ends: Timestamp) -> bool {
    let operation = &s.machine.status.operation;
    let is_said =
        operation.type_ == Some(OperationType::Delete) && operation.description().starts_with(BLOCKED);
    let is_said_before = is_said && written_at(s).is_some_and(|at| at < s.process.acting_since());
    let is_tried = |pod: &PodFacts| was_tried(s, pod, patience_ends, came_late(s, node, pod));
    is_said_before || pods.iter().filter(|pod| pod.leaves_in_a_drain()).all(|pod| is_tried(pod))
}

/// Whether a pod was tried politely, with an answer. A pod that was first evicted after the timeout
/// keeps its grace period, unless it came to a Node that should take none.
pub(super) fn was_tried(s: &Snapshot, pod: &PodFacts, patience_ends: Timestamp, is_late: bool) -> bool {
    let attempt = s.evictions.get(&pod.uid);
    let has_answer = |eviction: &Eviction| 0 < eviction.attempts.count || eviction.outcome.is_failure();
    let accepted = attempt
        .filter(|attempt| attempt.outcome == EvictionAnswer::Accepted && patience_ends < attempt.first);
    let leaves_until = accepted.map(|attempt| plus(attempt.attempts.last, pod.grace.min(drain_timeout(s))));
    let has_grace = leaves_until.is_some_and(|until| s.now < until) && !is_late;
    !has_grace && (attempt.is_some_and(has_answer) || pod.deleting_since.is_some())
}

/// Whether a pod came to a Node that should take none: the pod tolerates the cordon, or the cordon
/// is rejected. Others would follow it forever, so a drain that timed out does not wait for its
/// grace period, and an instance not for its end.
fn came_late(s: &Snapshot, node: &NodeFacts, pod: &PodFacts) -> bool {
    let closed_since = cordoned_since(s, node).unwrap_or(minus(s.now, OPEN_NODE_PATIENCE));
    plus(closed_since, s.process.skew) < pod.created
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
    let looked = untimed_since(s, node).and_then(|since| s.reads.lease_since(&node.uid, since));
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
pub(super) fn is_lease_needed(s: &Snapshot, node: &NodeFacts) -> bool {
    s.process.may_enforce_deadlines()
        && untimed_since(s, node).is_some_and(|since| s.reads.lease_since(&node.uid, since).is_none())
}

pub(super) fn max_evictions(s: &Snapshot) -> u32 {
    const EVICTION_RETRY_SECONDS: u64 = 20;
    let own = s.machine.spec.configuration.max_evict_retries.and_then(|most| u32::try_from(most).ok());
    let fits = drain_timeout(s).as_secs() / EVICTION_RETRY_SECONDS;
    own.unwrap_or(s.defaults.max_evictions).min(u32::try_from(fits).unwrap_or(u32::MAX)).max(1)
}

/// Returns the actions before the first eviction: the condition Terminating and the cordon.
fn prepare(s: &Snapshot, node: &Arc<NodeFacts>) -> Vec<Action> {
    let mut actions = Vec::new();
    if node.condition(conditions::NODE_TERMINATING).is_none_or(|condition| condition.status != "True") {
        actions.push(Action::SetTerminating { node: node.clone(), reason: terminating_reason(s) });
    }
    if node.unschedulable != Some(true) {
        actions.push(Action::Cordon(node.clone()));
    }
    actions
}

/// Returns the reason of the condition Terminating.
fn terminating_reason(s: &Snapshot) -> &'static str {
    if began_failed(s) { reasons::UNHEALTHY } else { reasons::SCALE_DOWN }
}

/// Whether the status says that the deletion began with a failed Machine.
fn began_failed(s: &Snapshot) -> bool {
    let operation = &s.machine.status.operation;
    operation.type_ == Some(OperationType::Delete) && operation.description().starts_with(HAD_FAILED)
}

/// Reports a blocked drain, at most every 30 seconds. The description keeps the marker from which
/// Go MCM would continue.
fn say_blocked(s: &Snapshot, reason: &McmReason) -> Vec<Action> {
    say(s, format!("{BLOCKED}{reason}. {}", DeletionMarker::DrainNode))
}

/// Reports the progress of a drain in the status, at most every 30 seconds. Returns when to look
/// again.
fn say_progress(s: &Snapshot, reason: &McmReason, actions: &mut Vec<Action>) -> Timestamp {
    let Some(write) = write_progress(s, format!("{DRAINING}{reason}. {}", DeletionMarker::DrainNode)) else {
        return Timestamp::MAX;
    };
    let began = s.machine.deleting_since.unwrap_or(s.now);
    let said = written_at(s).map_or(began, |written| written.max(began));
    if s.reads.silence.is_some() {
        return Timestamp::MAX;
    }
    if since(s.now, said) < DRAIN_TEXT_EVERY {
        return plus(said, DRAIN_TEXT_EVERY).max(plus(s.now, LOOK_AT_LEAST));
    }
    actions.extend(record_hold(s));
    actions.push(write);
    Timestamp::MAX
}

/// Reports a hindrance in the status and by an Event, at most every 30 seconds.
fn say(s: &Snapshot, description: String) -> Vec<Action> {
    let operation = OperationWrite::failed(OperationType::Delete, &description, None);
    let is_failing = s.machine.status.operation.state == Some(OperationState::Failed);
    let said = written_at(s).filter(|_| is_failing);
    let write = s.status(Phase::Terminating, operation).map(|write| Action::SetStatus(Box::new(write)));
    let report = hindrance::report(s.now, said, write, description);
    let hold = if report.is_empty() { None } else { record_hold(s) };
    hold.into_iter().chain(report).collect()
}

/// Reports the pods that a polite drain deletes without grace, because their eviction was rejected
/// too often.
pub(super) fn tell_impatience(calls: &[PodCall]) -> Option<Action> {
    let deleted = calls.iter().filter_map(|call| match call {
        PodCall::Delete(pod) => Some(format!("{}/{}", pod.namespace, pod.name)),
        PodCall::Evict(_) => None,
    });
    let deleted = named(deleted.collect())?;
    let message =
        format!("Deleting pods without grace, because their eviction was rejected too often: {deleted}");
    Some(Action::warn(DRAIN_FORCED, message))
}

/// Returns the Event about a drain that ends by force.
pub(super) fn tell_forced(s: &Snapshot, since: Timestamp, cause: &str) -> Option<Action> {
    let with = |is: fn(&EvictionAnswer) -> bool| {
        let attempts = s
            .evictions
            .values()
            .filter(|eviction| eviction.is_deletion && since <= eviction.asked && is(&eviction.outcome));
        named(attempts.map(|attempt| attempt.pod.clone()).collect())
    };
    let killed = with(|outcome| matches!(outcome, EvictionAnswer::Deleted));
    let refused = with(|outcome| matches!(outcome, EvictionAnswer::Refused(_)));
    let ends = [
        ("deleted without grace", killed),
        ("left on the Node, because their deletion was rejected", refused),
    ];
    let ends: Vec<_> =
        ends.into_iter().filter_map(|(end, pods)| Some(format!("Pods {end}: {}", pods?))).collect();
    if ends.is_empty() {
        return None;
    }
    Some(Action::warn(DRAIN_FORCED, format!("The drain ended by force: {cause}. {}", ends.join(". "))))
}

/// Renders the names of pods; `None` without a pod.
fn named(mut pods: Vec<String>) -> Option<String> {
    pods.sort_unstable();
    let more = pods.len().saturating_sub(PODS_NAMED);
    pods.truncate(PODS_NAMED);
    match (pods.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(pods.join(", ")),
        (false, more) => Some(format!("{} and {more} more", pods.join(", "))),
    }
}

/// The state after a drain: the store shows no pod to evict, or the API server has answered the
/// deletion of each pod.
struct Left<'s> {
    node: &'s Arc<NodeFacts>,
    /// When the drain times out.
    deadline: Timestamp,
    /// Actions that prepare the Node and are still missing.
    actions: Vec<Action>,
    deleting_since: Timestamp,
}

impl Left<'_> {
    fn politely(self, s: &Snapshot) -> Plan<Action> {
        if let Some(Awaiting { said, why, look_at }) = volumes_awaited(s, &self) {
            let plan = Plan::act_all(self.actions.into_iter().chain(said).collect(), why);
            return match look_at {
                Some(at) => plan.no_later_than(at),
                None => plan,
            };
        }
        if let Some((left, last)) = self.expected_elsewhere(s) {
            return self.until_attached(s, left, last);
        }
        match listed(s, self.node) {
            Some((cordoned, list)) if list.leaving == 0 => {
                // Another actor may have uncordoned the Node since the store last changed.
                if let Some(wait) = s.nodes_freshness.obstacle(|| Action::ReadNodes) {
                    return wait;
                }
                if let Some((node, calls)) = unconfirmed(s, self.deleting_since) {
                    return Left { node, actions: with(self.actions, calls), ..self }.confirm(s);
                }
                let evidence = Evidence::EmptyAfterCordon {
                    node: self.node.name.clone(),
                    cordoned,
                    listed: list.started,
                };
                let mut plan = drained(s, self.deleting_since, evidence);
                let left = volumes_left(s).filter(|_| deletes(&plan));
                plan.actions.splice(0..0, self.actions.into_iter().chain(left));
                plan
            }
            _ => self.confirm(s),
        }
    }

    /// Returns the volumes that are detached and expected on other Nodes: their number, and the
    /// volume that is waited for the longest.
    fn expected_elsewhere(&self, s: &Snapshot) -> Option<(usize, AwaitedVolume)> {
        if is_past(s.now, self.deadline) && s.process.may_enforce_deadlines() {
            return None;
        }
        let (node, manner) = (self.node, Manner::Polite);
        let mut awaited =
            with_drain(s, node, &s.pods, manner, self.deadline, |drain| drain.awaited_volumes());
        awaited.retain(|awaited| awaited.step == VolumeStep::Attach);
        Some((awaited.len(), awaited.pop()?))
    }

    /// Waits until these volumes are attached to other Nodes.
    fn until_attached(mut self, s: &Snapshot, left: usize, last: AwaitedVolume) -> Plan<Action> {
        let until = last.until.min(just_past(self.deadline)).max(plus(s.now, LOOK_AT_LEAST));
        let node = self.node.name.clone();
        let reason =
            McmReason::VolumesUnattached { node, left, volume: last.volume, claim: last.claim, id: last.id };
        // This text would end the wait for volumes that are still attached, and begin it again.
        let may_say = awaited_attachments(s).next().is_none();
        let look_at = if may_say { say_progress(s, &reason, &mut self.actions) } else { until };
        let why = Why::new(reason, Step::Expect("the volumes are attached to other Nodes"));
        let why =
            why.since(self.deleting_since).deadline(until, Step::Expect("the instance is deleted anyway"));
        Plan::act_all(self.actions, why).no_later_than(look_at.min(until))
    }

    /// A forced drain also requests a list: pods that only the list shows are deleted, too. While
    /// there is time, the Node must be cordoned before the list.
    fn by_force(self, s: &Snapshot, began: Timestamp, cause: &str) -> Plan<Action> {
        if !s.machine.wants_force_deletion() {
            let is_over = is_past(s.now, self.deadline);
            let list = s.reads.pods_since(&self.node.uid, began, s.now);
            if is_over && list.is_none() {
                return self.list_anyway(s);
            }
            let listed =
                |node: &NodeFacts| listed(s, node).map(|(_, list)| list).filter(|list| began <= list.started);
            if !is_over && listed(self.node).is_none() {
                return self.confirm(s);
            }
            if let Some((node, calls)) = unconfirmed(s, self.deleting_since) {
                let other = Left { node, actions: with(self.actions, calls), ..self };
                return if is_over { other.list_anyway(s) } else { other.confirm(s) };
            }
        }
        let said = write_progress(s, DeletionMarker::DeleteVolumeAttachments.as_str());
        let why = Why::new(
            Reason::Writing("ending the drain by force"),
            Step::Expect("the VolumeAttachments are deleted"),
        );
        let events = tell_forced(s, began, cause);
        let actions = self.actions.into_iter().chain(said).chain(events).collect();
        Plan::act_all(actions, why.since(self.deleting_since))
    }

    /// Requests the list that a forced drain needs, without a cordon: a rejected write to the Node
    /// must not keep the instance forever.
    fn list_anyway(self, s: &Snapshot) -> Plan<Action> {
        let last = s.reads.pods_since(&self.node.uid, Timestamp::MIN, s.now);
        let left = last.map_or(0, |list| list.leaving);
        let reason = McmReason::ConfirmingDrain { node: self.node.name.clone(), left };
        let why = Why::new(reason, Step::Expect("the instance is deleted")).since(self.deleting_since);
        match last.map(|list| again_at(list.started)) {
            // The store will show these pods soon.
            Some(again) if 0 < left && s.now < again => Plan::until(again, why),
            _ => Plan::act(Action::ListPods(self.node.clone()), why),
        }
    }

    /// Cordons the Node, and then requests the list that counts as evidence.
    fn confirm(mut self, s: &Snapshot) -> Plan<Action> {
        // The evidence would expire in the queue, so it is collected when the deletion has a slot.
        if let Some(wait) = s.still_queued(Call::DELETE) {
            return Plan::act_all(self.actions, wait.why.since(self.deleting_since));
        }
        if cordoned_since(s, self.node).is_none() {
            let why =
                Why::new(Reason::Writing("cordoning the Node"), Step::Expect("the pods leave the Node"));
            return Plan::act_all(self.actions, why.since(self.deleting_since));
        }
        let last = listed(s, self.node).map(|(_, list)| list);
        let left = last.map_or(0, |list| list.leaving);
        let reason = McmReason::ConfirmingDrain { node: self.node.name.clone(), left };
        let why = Why::new(reason, Step::Expect("the instance is deleted")).since(self.deleting_since);
        let why = why.deadline(just_past(self.deadline), Step::Expect("the drain is ended by force"));
        match last.map(|list| again_at(list.started)) {
            Some(again) if s.now < again => Plan::act_all(self.actions, why).no_later_than(again),
            _ => {
                self.actions.push(Action::ListPods(self.node.clone()));
                Plan::act_all(self.actions, why)
            }
        }
    }
}

/// The description while a polite drain waits for volumes.
fn awaiting_volumes() -> String {
    format!("The pods have left the Node; waiting for volumes. {}", DeletionMarker::DrainNode)
}

/// A polite drain that waits for volumes.
struct Awaiting {
    said: Option<Action>,
    why: Why,
    look_at: Option<Timestamp>,
}

/// Returns how a polite drain waits until the volumes are detached, after the pods have left. The
/// wait is limited, because volumes may belong to pods that a drain does not evict. The status
/// records when the wait began.
fn volumes_awaited(s: &Snapshot, left: &Left<'_>) -> Option<Awaiting> {
    let attached: Vec<_> = awaited_attachments(s).collect();
    if attached.is_empty() {
        return None;
    }
    let why = volumes_attached(&attached, left.node, "the volumes are detached").since(left.deleting_since);
    let Some(began) = volumes_awaited_since(s) else {
        let said = write_progress(s, awaiting_volumes());
        return Some(Awaiting { said, why, look_at: None });
    };
    let until = unseen(s).deadline(began, s.defaults.detach_timeout).min(left.deadline);
    if s.process.may_enforce_deadlines() && is_past(s.now, until) {
        return None;
    }
    let ends = just_past(until);
    let why = why.deadline(ends, Step::Expect("the instance is deleted anyway"));
    Some(Awaiting { said: None, why, look_at: Some(end_or_later(s.now, ends)) })
}

/// Returns since when a polite drain has waited for volumes.
fn volumes_awaited_since(s: &Snapshot) -> Option<Timestamp> {
    let operation = &s.machine.status.operation;
    let is_said = operation.type_ == Some(OperationType::Delete)
        && operation.state == Some(OperationState::Processing)
        && operation.description() == awaiting_volumes();
    written_at(s).filter(|_| is_said)
}

/// Returns the VolumeAttachments that a polite drain waits for: the attachments of pods that have
/// left.
fn awaited_attachments(s: &Snapshot) -> impl Iterator<Item = &Arc<AttachmentFacts>> {
    let others = s.other_nodes.iter().map(|other| &other.pods);
    let pods: Vec<_> = std::iter::once(&s.pods).chain(others).collect();
    let stays = move |attachment: &AttachmentFacts| {
        pods.iter().any(|pods| s.volumes.is_of_a_pod_that_stays(attachment, pods))
    };
    s.attachments.iter().filter(move |attachment| !stays(attachment))
}

/// Returns the Event about volumes that are still attached when the instance is deleted.
fn volumes_left(s: &Snapshot) -> Option<Action> {
    let left = named(awaited_attachments(s).map(|attachment| attachment.name.clone()).collect())?;
    Some(Action::warn(
        VOLUMES_LEFT,
        format!("The instance is deleted with attached volumes: VolumeAttachment {left}"),
    ))
}

/// Whether the plan deletes the instance.
fn deletes(plan: &Plan<Action>) -> bool {
    plan.actions.iter().any(|action| matches!(action, Action::Delete(_)))
}

/// Returns the list of the pods on a Node that began after the cordon was observed, and the time of
/// that observation.
fn listed<'s>(s: &'s Snapshot, node: &NodeFacts) -> Option<(Timestamp, &'s PodList)> {
    let cordoned = cordoned_since(s, node)?;
    Some((cordoned, s.reads.pods_since(&node.uid, cordoned, s.now)?))
}

/// Returns since when a Node of the instance has been cordoned.
fn cordoned_since(s: &Snapshot, node: &NodeFacts) -> Option<Timestamp> {
    let other = s.other_nodes.iter().find(|other| other.node.uid == node.uid);
    let cordoned = other.map_or(s.node_seen.cordoned, |other| other.cordoned);
    cordoned.filter(|_| node.unschedulable == Some(true))
}

fn is_empty(list: Option<&PodList>) -> bool {
    list.is_some_and(|list| list.leaving == 0)
}

/// Returns all Nodes of the instance, beginning with the Node of the Machine.
fn nodes_of_instance<'s>(
    s: &'s Snapshot,
    node: &'s Arc<NodeFacts>,
) -> impl Iterator<Item = &'s Arc<NodeFacts>> {
    std::iter::once(node).chain(s.other_nodes.iter().map(|other| &other.node))
}

/// Returns another Node of the instance on which pods may be left, and the calls about its pods. If
/// the store shows pods on a Node, that Node counts as the Node of the Machine and is drained. Each
/// Node is judged by its own conditions: one may be dead while the other is ready.
fn unconfirmed(s: &Snapshot, deleting_since: Timestamp) -> Option<(&Arc<NodeFacts>, Vec<PodCall>)> {
    s.other_nodes.iter().find_map(|OtherNode { node, pods, .. }| {
        let Pressure { manner, deadline, .. } = pressure(s, node, pods, patience_ends(s, deleting_since));
        let list = match manner {
            Manner::Forced { since } if is_past(s.now, deadline) => {
                s.reads.pods_since(&node.uid, since, s.now)
            }
            Manner::Forced { .. } | Manner::Polite => listed(s, node).map(|(_, list)| list),
        };
        let progress = progress(s, node, pods, manner, deadline);
        let is_confirmed = match manner {
            Manner::Polite => is_empty(list),
            Manner::Forced { .. } => list.is_some() && has_ended(&progress),
        };
        let calls = match progress {
            DrainProgress::Leaving { calls, .. } => calls,
            DrainProgress::Done | DrainProgress::GivenUp { .. } => Vec::new(),
        };
        (!is_confirmed).then_some((node, calls))
    })
}

fn with(mut actions: Vec<Action>, calls: Vec<PodCall>) -> Vec<Action> {
    actions.extend(calls.into_iter().map(Action::Drain));
    actions
}

/// Whether a drain has ended: no pod is left, or the API server has answered about each one.
fn has_ended(progress: &DrainProgress) -> bool {
    matches!(progress, DrainProgress::Done | DrainProgress::GivenUp { .. })
}

fn volumes_attached(attached: &[&Arc<AttachmentFacts>], node: &NodeFacts, expected: &'static str) -> Why {
    let first = attached.first();
    let reason = McmReason::VolumesAttached {
        node: node.name.clone(),
        left: attached.len(),
        first: first.map(|first| first.name.clone()).unwrap_or_default(),
        volume: first.and_then(|first| first.volume.clone()),
    };
    Why::new(reason, Step::Expect(expected))
}

/// Returns the step that is still needed before volumes are detached or the instance is deleted
/// after a forced drain. The drain may have ended long ago: the volumes had to be detached, the
/// cloud could not delete the instance, or no process ran. Meanwhile the Node may have recovered,
/// and taken pods.
///
/// Returns nothing if a list has just shown that no pod is left, or that the API server has
/// answered the deletion of each one by today's force.
fn before_end_by_force(s: &Snapshot, deleting_since: Timestamp) -> Option<Plan<Action>> {
    if s.machine.wants_force_deletion() {
        return None;
    }
    if let Some(wait) = s.nodes_freshness.obstacle(|| Action::ReadNodes) {
        return Some(wait);
    }
    let node = match s.own_node() {
        OwnNode::Ours(node) => node,
        OwnNode::Missing
            if s.reads.node_now(s.machine.node_name(), s.now).is_none_or(|look| look.uid.is_some()) =>
        {
            let reason = McmReason::ConfirmingNoNode { node: s.machine.node_name().to_owned() };
            return Some(look_for_node(s, reason, Step::Expect("the instance is deleted"), deleting_since));
        }
        // A kubelet that registered again may run pods on this instance.
        OwnNode::NotOurs(..) if s.node_of_unknown_owner().is_some() => {
            return Some(drain_again(s, deleting_since));
        }
        OwnNode::Missing | OwnNode::NotOurs(..) => return None,
    };
    let is_listed = |node: &NodeFacts| s.reads.pods_since(&node.uid, Timestamp::MIN, s.now).is_some();
    if let Some(unlisted) = nodes_of_instance(s, node).find(|node| !is_listed(node)) {
        let reason = McmReason::ConfirmingDrain { node: unlisted.name.clone(), left: 0 };
        let why = Why::new(reason, Step::Expect("the instance is deleted")).since(deleting_since);
        return Some(
            s.still_queued(Call::DELETE)
                .unwrap_or_else(|| Plan::act(Action::ListPods(unlisted.clone()), why)),
        );
    }
    let others = s.other_nodes.iter().map(|other| (&other.node, &other.pods));
    let is_free = |(node, pods): (&Arc<NodeFacts>, &Vec<Arc<PodFacts>>)| {
        let Pressure { manner, deadline, .. } = pressure(s, node, pods, patience_ends(s, deleting_since));
        let waited_for: Vec<_> = match manner {
            Manner::Polite => pods.clone(),
            Manner::Forced { .. } => pods.iter().filter(|pod| !came_late(s, node, pod)).cloned().collect(),
        };
        // Without the cordon, pods may be bound to this Node after the list.
        let is_closed = manner != Manner::Polite || is_empty(listed(s, node).map(|(_, list)| list));
        has_ended(&progress(s, node, &waited_for, manner, deadline)) && is_closed
    };
    let are_free = std::iter::once((node, &s.pods)).chain(others).all(is_free);
    (!are_free).then(|| drain_again(s, deleting_since))
}

fn drain_again(s: &Snapshot, deleting_since: Timestamp) -> Plan<Action> {
    let said = write_progress(s, DeletionMarker::DrainNode.as_str());
    let why = Why::new(Reason::Writing("starting the drain again"), Step::Expect("the pods leave the Node"));
    Plan::act_all(said.into_iter().collect(), why.since(deleting_since))
}

/// Detaches volumes after a forced drain by deleting their VolumeAttachments, as Go MCM does. The
/// wait is limited, because the attacher may no longer exist.
fn detach(s: &Snapshot, deleting_since: Timestamp) -> Plan<Action> {
    let is_labelled = s.machine.wants_force_deletion();
    let evidence = if is_labelled { Evidence::ForceDeletion } else { Evidence::Forced };
    let end = || {
        before_end_by_force(s, deleting_since).unwrap_or_else(|| drained(s, deleting_since, evidence.clone()))
    };
    // If the Node belongs to another owner, its attachments do, too.
    let (node, are_detached) = match s.own_node() {
        OwnNode::Ours(node) => (node, s.attachments.is_empty()),
        OwnNode::Missing | OwnNode::NotOurs(..) => return end(),
    };
    if are_detached {
        return end();
    }
    // A marker without a time counts from the start of acting.
    let written = written_at(s).unwrap_or_else(|| s.process.acting_since());
    let until = unseen(s).deadline(written, s.defaults.detach_timeout);
    if (is_labelled || s.process.may_enforce_deadlines()) && is_past(s.now, until) {
        return end();
    }
    let staying = s.attachments.iter().filter(|attachment| attachment.deleting_since.is_none());
    // The Node may have recovered since the drain, and run pods with these volumes again.
    if staying.clone().next().is_some()
        && let Some(plan) = before_end_by_force(s, deleting_since)
    {
        return plan;
    }
    let actions = staying.take(DELETIONS_PER_PASS).cloned().map(Action::DeleteAttachment).collect();
    let attached: Vec<_> = s.attachments.iter().collect();
    let why = volumes_attached(&attached, node, "the attacher detaches the volumes").since(deleting_since);
    let why = why.deadline(just_past(until), Step::Expect("the instance is deleted anyway"));
    Plan::act_all(actions, why).no_later_than(end_or_later(s.now, just_past(until)))
}

/// Deletes the instance after the drain has ended.
fn drained(s: &Snapshot, deleting_since: Timestamp, evidence: Evidence) -> Plan<Action> {
    with_marker(s, remove_instance(s, deleting_since, Some(evidence)))
}

/// Adds the status that the drain has ended, once the cloud has accepted the deletion, or there is
/// no instance to delete.
///
/// Before, the marker would lead reality: the call may fail or never begin, and pods may be bound
/// to the Node again. So a failed call, and a process that takes over before the marker is written,
/// collect the evidence again.
fn with_marker(s: &Snapshot, mut plan: Plan<Action>) -> Plan<Action> {
    let is_written =
        is_past_drain(s) || plan.actions.iter().any(|action| matches!(action, Action::SetStatus(_)));
    let is_due = if is_accepted(s) {
        // Without a Node, there is nothing that another process would drain.
        matches!(s.own_node(), OwnNode::Ours(_))
    } else {
        is_last(&plan)
    };
    if is_written || !is_due {
        return plan;
    }
    plan.actions.splice(0..0, write_progress(s, DeletionMarker::DeleteInstance.as_str()));
    plan
}

/// Waits for the next attempt of a deletion that has failed. The evidence is collected again when
/// the attempt is due.
#[expect(clippy::disallowed_methods, reason = "without evidence there is no Permit")]
fn rejected(s: &Snapshot, deleting_since: Timestamp) -> Option<Plan<Action>> {
    let waits = matches!(departure(s, None).next(), Next::Failed { call: Call::DELETE, .. });
    waits.then(|| remove_instance(s, deleting_since, None))
}

/// Returns the evidence that the deletion of an instance without a Node loses no pod, if known. The
/// store may be older than the Node, and the label may name the Node of another instance.
fn without_node(s: &Snapshot) -> Option<Evidence> {
    if s.machine.wants_force_deletion() {
        return Some(Evidence::ForceDeletion);
    }
    if s.may_have_another_node() {
        return None;
    }
    if let Some((node, _)) = s.node_of_unknown_owner() {
        let list = s.reads.pods_since(&node.uid, Timestamp::MIN, s.now).filter(|list| list.running == 0)?;
        return Some(Evidence::NoPods { node: node.name.clone(), listed: list.started });
    }
    let look = s.reads.node_now(s.machine.node_name(), s.now)?;
    let is_so = match (s.own_node(), &look.uid) {
        (OwnNode::Missing, None) => true,
        (OwnNode::NotOurs(node, _), Some(uid)) => node.uid == *uid,
        (OwnNode::NotOurs(..), None) => true,
        (OwnNode::Missing, Some(_)) | (OwnNode::Ours(_), _) => false,
    };
    is_so.then(|| Evidence::NoNode { node: look.name.clone(), looked: look.started })
}

/// Looks for pods on a Node that may run on the instance, although nothing proves it. The Node is
/// neither cordoned nor drained. With pods on it, a user decides.
fn look_for_pods(
    s: &Snapshot,
    node: &Arc<NodeFacts>,
    evidence: String,
    deleting_since: Timestamp,
) -> Plan<Action> {
    let left = s.pods.iter().filter(|pod| pod.is_lost_without_drain()).count();
    let list = s.reads.pods_since(&node.uid, Timestamp::MIN, s.now);
    if 0 < left {
        let reason = McmReason::NodeOfUnknownOwner { node: node.name.clone(), pods: left, evidence };
        let claim = if node.machine_name() == Some(&s.machine.name) {
            format!("remove annotation {NODE_MARK} of the Node")
        } else {
            format!("set label {}={} on the Node", labels::MACHINE_NAME, s.machine.name)
        };
        let fix =
            format!("{claim} if it runs on this machine's instance; otherwise empty the Node, or delete it");
        return await_person(s, Why::new(reason, Step::Fix(fix)).since(deleting_since));
    }
    let reason =
        McmReason::ConfirmingDrain { node: node.name.clone(), left: list.map_or(0, |list| list.running) };
    let why = Why::new(reason, Step::Expect("the instance is deleted")).since(deleting_since);
    match list.map(|list| again_at(list.started)) {
        // The store will show these pods soon.
        Some(again) if s.now < again => Plan::until(again, why),
        _ => Plan::act(Action::ListPods(node.clone()), why),
    }
}

/// Checks with the API server whether a Node exists that the store does not show.
fn look_for_node(s: &Snapshot, reason: McmReason, next: Step, deleting_since: Timestamp) -> Plan<Action> {
    let why = Why::new(reason, next).since(deleting_since);
    let name = s.machine.node_name();
    let last = s.reads.node(name).filter(|look| look.uid.is_some());
    match last.map(|look| again_at(look.started)) {
        // The Node exists, and the store will show it soon.
        Some(again) if s.now < again => Plan::until(again, why),
        _ => Plan::act(Action::LookForNode(name.to_owned()), why),
    }
}

/// Returns the facts about the deletion of the instance.
fn departure(s: &Snapshot, evidence: Option<Evidence>) -> Departure<'_> {
    Departure {
        which: s.instance(),
        owner: s.key(),
        cluster: &s.cluster,
        key_holder: s.key_holder.as_deref(),
        unkeyed: &s.unkeyed,
        created: s.machine.created,
        no_creation_since: s.machine.no_creation_since(),
        evidence,
        answers: &s.answers,
        ownership: &s.ownership,
        shared: &s.shared,
        inputs: s.inputs,
        process: &s.process,
        now: s.now,
    }
}

#[expect(clippy::disallowed_methods, reason = "this planner weighs the evidence for a Permit")]
fn remove_instance(s: &Snapshot, deleting_since: Timestamp, evidence: Option<Evidence>) -> Plan<Action> {
    if let Some(unusable) = s.unusable_id() {
        return leave_unknown_behind(s, &unusable, deleting_since);
    }
    let departure = departure(s, evidence);
    let instance = departure.which.to_string();
    let next = departure.next();
    if matches!(next, Next::Delete(_) | Next::NeedsEvidence)
        && let Some(wait) = s.still_queued(Call::DELETE)
    {
        return wait;
    }
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
        Next::Gone(evidence) => {
            let plan = with_remark(remove_node(s, deleting_since), proof::remark(s, &evidence));
            // The remark already names the instance.
            let refused = refused.filter(|_| !matches!(evidence, AbsenceEvidence::NameTaken(_)));
            name_refused(s, refused, plan)
        }
        Next::Wait { call, since, until } => Plan::until(
            until,
            Why::new(Reason::Calling(call), Step::Expect("the cloud answers")).since(since),
        ),
        Next::Find => Plan::act(Action::Find(departure.which), why(Reason::Calling(Call::FIND))),
        Next::Record { instance: found, account } => record(s, &found, account, deleting_since),
        // The permit is valid for seconds. The permit that counts is made when the call has its
        // slot.
        Next::Delete(permit) => match s.await_slot(Call::DELETE) {
            Some(wait) => wait,
            None => Plan::act(Action::Delete(permit), why(Reason::Calling(Call::DELETE))),
        },
        Next::NeedsEvidence => {
            let stale = s.nodes_freshness.obstacle(|| Action::ReadNodes);
            if let Some(wait) = stale.filter(|_| s.may_have_another_node()) {
                return wait;
            }
            if let Some((node, evidence)) = s.node_of_unknown_owner() {
                return look_for_pods(s, node, evidence, deleting_since);
            }
            let reason = McmReason::ConfirmingNoNode { node: s.machine.node_name().to_owned() };
            look_for_node(s, reason, Step::Expect("the instance is deleted"), deleting_since)
        }
        Next::Going { parts, look_at } => {
            let leaving = McmReason::InstanceDeleting { instance: instance.clone() };
            let left = McmReason::PartsDeleting { instance, parts: parts.join(", ") };
            Plan::until(look_at, why(if parts.is_empty() { leaving } else { left }.into()))
        }
        Next::NotProven { look_at } => {
            let unproven = McmReason::AbsenceNotProven { instance };
            let not_ours = |refused| {
                let (instance, evidence) = foreign_instance(s, &refused);
                McmReason::NamesakeInstance { instance, evidence }
            };
            let mut plan = Plan::until(look_at, why(refused.map_or(unproven, not_ours).into()));
            // Later processes count from this time, so that restarts do not begin the wait again.
            if s.instance().id.is_none() && s.machine.no_creation_since().is_none() {
                plan.actions.push(Action::RecordWait(s.now));
            }
            plan
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
            let missing = s.secrets.iter().find(|need| !matches!(need.facts, Known::Present(_)));
            let Some(need) = missing else { return without_place(s, class, deleting_since) };
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
    Some(missing_input(s, missing, &fix, deleting_since))
}

/// Returns the plan for a class that does not say in which place of which cloud the instance is.
fn without_place(s: &Snapshot, class: &ClassFacts, deleting_since: Timestamp) -> Option<Plan<Action>> {
    if s.place.place().is_some() {
        return None;
    }
    let name = &class.name;
    let missing = format!("the place of the instance in MachineClass {name}");
    let fix = format!("correct provider and providerSpec of MachineClass {name}");
    Some(missing_input(s, missing, &fix, deleting_since))
}

fn missing_input(s: &Snapshot, missing: String, fix: &str, deleting_since: Timestamp) -> Plan<Action> {
    if s.machine.wants_force_deletion() {
        let because = format!("{missing} is missing");
        return leave_behind(s, &proof::left_behind(s, &because), deleting_since);
    }
    let reason = McmReason::CannotDeleteInstance { missing };
    let fix = format!("{fix}, or set label {}=true to leave the instance behind", labels::FORCE_DELETION);
    let why = Why::new(reason, Step::Fix(fix)).since(deleting_since);
    await_person(s, why)
}

/// Waits for a user, and reports it in the status and once by an Event. The marker is kept.
pub(super) fn await_person(s: &Snapshot, why: Why) -> Plan<Action> {
    let description = format!("{HELD}{}. {}", why.reason, current_marker(s));
    let operation = OperationWrite::failed(OperationType::Delete, &description, None);
    let mut plan = Plan::idle(why);
    if let Some(write) = s.status(Phase::Terminating, operation) {
        plan.actions.extend(record_hold(s));
        plan.actions.push(Action::SetStatus(Box::new(write)));
        plan.actions.push(Action::warn(DELETE_FAILED, description));
    }
    plan
}

/// Deletes the Machine without its instance, and emits an Event that the instance may still exist.
fn leave_behind(s: &Snapshot, message: &str, deleting_since: Timestamp) -> Plan<Action> {
    with_remark(remove_node(s, deleting_since), Some(Action::warn(INSTANCE_LEFT_BEHIND, message)))
}

fn call_failed(
    s: &Snapshot,
    call: Call,
    error: &Error,
    retry_at: Timestamp,
    deleting_since: Timestamp,
) -> Plan<Action> {
    // A failed call completes no stage, so the marker is kept.
    let description = format!("{}. {}", code_text(error), current_marker(s));
    let operation = OperationWrite::failed(OperationType::Delete, &description, Some(code_of(error)));
    let why = Why::call_failed(call, error, s.answers.failures, retry_at).since(deleting_since);
    let old = if call == Call::DELETE { OldState::Removed } else { OldState::Kept };
    let write = s.status(Phase::Terminating, operation);
    let event = write.is_some().then(|| Action::warn(DELETE_FAILED, description));
    let write = s.with_state(write, s.state_after(error, old));
    let mut plan = Plan::until(retry_at, why);
    plan.actions.extend(write.map(|write| Action::SetStatus(Box::new(write))));
    plan.actions.extend(event);
    plan
}

/// Deletes the Node and the token after the instance is deleted, and then removes the Machine's
/// finalizer.
fn remove_node(s: &Snapshot, deleting_since: Timestamp) -> Plan<Action> {
    if let Some(left) = left_in_target(s) {
        let why = Why::new(Reason::Writing("removing the finalizer"), Step::Nothing).since(deleting_since);
        return Plan::act_all(vec![left, Action::RemoveFinalizer], why);
    }
    let mut actions = Vec::new();
    match s.own_node() {
        OwnNode::Ours(node) => {
            for node in nodes_of_instance(s, node) {
                if node.has_finalizer {
                    actions.push(Action::RemoveNodeFinalizer(node.clone()));
                }
                if node.deleting_since.is_none() {
                    actions.push(Action::DeleteNode(node.clone()));
                }
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

/// Returns the Event about objects that are left in the target cluster because its API server does
/// not answer. A user has forced the deletion, or no instance was ever recorded and none exists.
fn left_in_target(s: &Snapshot) -> Option<Action> {
    let silence = s.reads.silence.as_ref().filter(|_| has_no_answer(s))?;
    let is_forced = s.machine.wants_force_deletion();
    let may_go_on =
        is_forced || (s.machine.provider_id.is_none() && matches!(s.own_node(), OwnNode::Missing));
    if !may_go_on || !may_have_registered(s) {
        return None;
    }
    let mut left = vec![format!("Node {}", s.machine.node_name())];
    left.extend(s.other_nodes.iter().map(|other| format!("Node {}", other.node.name)));
    left.extend(match &s.token {
        Token::Ours(token) => Some(format!("bootstrap token {}", token.id)),
        Token::Free(id) if silence.is_blind => Some(format!("bootstrap token {id}")),
        Token::Free(_) | Token::Exhausted => None,
    });
    left.extend(s.attachments.iter().map(|attachment| format!("VolumeAttachment {}", attachment.name)));
    let message = format!(
        "May be left in the target cluster: {}. Its API server has not done what was asked since {:.0} ({})",
        left.join(", "),
        silence.since,
        silence.error
    );
    Some(Action::warn(TARGET_SILENT, message))
}

/// Whether an instance existed that may have registered a Node.
fn may_have_registered(s: &Snapshot) -> bool {
    if s.target == TargetCluster::None {
        return false;
    }
    s.machine.provider_id.is_some() || s.answers.ever_ensured || !s.process.saw_creation_of(s.machine.created)
}

/// Whether the API server has confirmed, after the deletion of the instance, that no Node exists.
fn is_node_absent(s: &Snapshot) -> bool {
    let seen_gone = s.answers.find.as_ref().filter(|find| {
        matches!(find.answered.answer, Ok(Sighting::Absent | Sighting::Ended | Sighting::Foreign(_)))
    });
    let gone = seen_gone.map_or(Timestamp::MIN, |find| find.answered.started);
    s.reads.node(s.machine.node_name()).is_some_and(|look| look.uid.is_none() && gone <= look.started)
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
    await_person(s, why)
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
    let (instance, evidence) = foreign_instance(s, &refused);
    let message =
        format!("The deletion leaves {instance} alone, which has the name of this machine: {evidence}");
    plan.why.reason = McmReason::NamesakeInstance { instance, evidence }.into();
    with_remark(plan, Some(Action::warn(INSTANCE_NOT_OURS, message)))
}

/// Returns the instance, and why it does not belong to the Machine.
fn foreign_instance(s: &Snapshot, refused: &Refused<'_>) -> (String, String) {
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
