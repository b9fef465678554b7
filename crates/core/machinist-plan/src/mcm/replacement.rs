//! Decides which Machines of a deployment are marked Failed because of their Nodes.
//!
//! | Machine | marked Failed | limit |
//! |---|---|---|
//! | Unknown: its Node is unhealthy or missing | after the health timeout | `--replacements-at-once` |
//! | InPlaceUpdateFailed | after the health timeout, even if its Node is healthy | as above |
//! | Pending: its Node has not joined | after the creation timeout | a tenth of the replicas at a time |
//! | Pending: its instance can never join | after a back-off of its set | as above |
//!
//! If many Nodes are unhealthy or missing at once, the cause is rarely in the Nodes. So by default
//! the next Machine is marked only after the previous one has been replaced. All Machines of a
//! deployment share these limits, and only this module decides them.
//!
//! An instance that can never join, for example because its container restarts in a circle, does
//! not use up the creation timeout. Its replacement would often have the same problem, so each one
//! of a set waits twice as long as the one before, at most for the creation timeout. Meanwhile the
//! instance stays, so that a user can look into it. A Machine of the set that joins ends this.
//!
//! The times end only with fresh facts, and leave out the time in which no process saw anything:
//! otherwise an outage of the Nodes' API server would end them. The Node must be unhealthy in a
//! fresh store. If the store has no Node, a GET must confirm it, because a store may be older than
//! a Node that registers.
//!
//! A Machine is being replaced if it is Failed, being deleted, or created and not Running yet. The
//! last case cannot be distinguished from an ordinary scale-up without memory. So a scale-up also
//! delays the next replacement, by at most the creation timeout, even if its Machines wait longer
//! than that in our queue for the cloud.
//!
//! No Machine is marked while its set cannot create its replacement: while another Machine of the
//! set has no instance, and its last attempt to create one failed. Otherwise a used-up quota or
//! stock would turn an outage of some Nodes into the loss of all instances. A Machine that waits in
//! our queue for the cloud has not failed.
//!
//! A Machine that was marked and deleted leaves a gap until its set creates another one. If the set
//! is frozen, or its POSTs are rejected, the gap stays. Then each further marked Machine would only
//! shrink the deployment. So no unhealthy Machine is marked while as many Machines are missing as
//! may be replaced at once, by default one:
//!
//! - A Machine is live unless it is Failed or being deleted. A Machine that is unhealthy, or whose
//!   instance cannot be created, is live, because its set would not create another Machine in
//!   addition. A Failed Machine that is preserved is also live. That may last for days: the Machine
//!   is not being replaced and delays no other Machine.
//! - The desired number is the total of the sets' replicas, limited by the deployment's replicas
//!   (an annotation on its sets). The total is a bound because no more Machines are created. The
//!   deployment's replicas are a bound because the surge of a rollout is optional: a new template
//!   whose Machines are rejected must not stop the healing of old Machines.
//!
//! A Machine with an unknown set is not marked: the watch of sets may be behind the watch of
//! Machines, and only the set identifies the deployment that shares the limit.
//!
//! A scale-up is also a gap, but only until its Machines are POSTed. From then on they are live and
//! count as above. A set that is stopped for longer reports this, and the wait ends when the cause
//! is fixed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_api::constants::{annotations, labels};
use machinist_api::{OperationState, OperationType, Phase};
use machinist_instance::{Boot, BootTrouble};

use super::live::{is_live, number};
use super::machine::{
    CREATE_FAILED, Defaults, Judged, MachineIdentity, NODE_UNHEALTHY, OperationWrite, PhaseWrite,
    StatusWrite, boot_problem, creation_failed, health_deadline, join_deadline, judge,
};
use crate::mcm::facts::{MachineFacts, MachineSetFacts, NodeFacts};
use crate::mcm::reads::Reads;
use crate::mcm::server_freeze::Frozen;
use crate::mcm::why::{McmReason, Plan, Reason, Step, Why};
use machinist_core::{Answered, Freshness, Known, SKEW_LIMIT, Unseen, is_past, just_past, plus};

/// Wait before the next look if a write is unseen that was charged to another key, because that
/// write does not wake this deployment. By then the write has been seen or read.
const UNSEEN_AGAIN: Duration = Duration::from_secs(10);

/// One of this many replicas may be replaced at a time because its Node did not join.
const JOINS_AT_ONCE: u32 = 10;

/// How long the first Machine of a set waits whose instance can never join.
const FIRST_BACK_OFF: Duration = Duration::from_secs(10);
/// The back-off is then longer than every creation timeout.
const MAX_DOUBLINGS: u32 = 20;
/// An observation of an instance counts for this long. It is repeated several times meanwhile.
const BOOT_COUNTS_FOR: Duration = Duration::from_secs(120);

/// All facts for one decision about the replacements of one deployment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The moment of the decision.
    pub now: Timestamp,
    /// Upper bound of the difference between the wall clock and the API server's clock.
    pub skew: Duration,
    /// The time that deadlines leave out.
    pub gaps: Unseen,
    /// How fresh the Nodes are.
    pub nodes_freshness: Freshness,
    /// The freeze of the machine controller, if it is frozen.
    pub frozen: Option<Frozen>,
    /// Every Machine of the deployment.
    pub machines: Vec<Arc<MachineFacts>>,
    /// The Nodes of the Machines that are Unknown, Pending or InPlaceUpdateFailed, by UID of the
    /// Machine.
    pub nodes: BTreeMap<String, NodeOf>,
    /// The instances that have not joined, as the cloud shows them, by UID of the Machine.
    pub boots: BTreeMap<String, Answered<Boot>>,
    /// How many Machines in a row were marked because they could never join, by UID of their set.
    pub never_joined: BTreeMap<String, u32>,
    /// UIDs of the Machines that do not carry the current preserve annotation of their Node yet.
    pub unheard: BTreeSet<String>,
    /// Every set of the deployment; empty if the Machines have no set.
    pub sets: Vec<Arc<MachineSetFacts>>,
    /// Name of the set that owns the Machines, if that set is unknown. Then the deployment is also
    /// unknown.
    pub unknown_owner: Option<String>,
    /// A Machine that this process marked Failed under another deployment or none, in a write that
    /// the watch has not shown yet.
    pub unseen: Option<String>,
    /// Defaults for fields that Machines do not set.
    pub defaults: Arc<Defaults>,
}

/// The Node of a Machine.
#[derive(Debug, Clone, Hash)]
pub struct NodeOf {
    /// The Node in the store.
    pub node: Known<Arc<NodeFacts>>,
    /// Other Nodes of the instance. The store may be too old to show that one of them is Ready.
    pub others: Vec<Arc<NodeFacts>>,
    /// The provider's comparison of the ids of the Machine and the Node.
    pub identity: MachineIdentity,
    /// The last reads about the Machine.
    pub reads: Reads,
}

impl Hash for Snapshot {
    /// Hashes everything that determines a decision. Values that change without news are excluded:
    /// the moment, and the settings and measurements of the process.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            now: _,
            skew: _,
            gaps: _,
            nodes_freshness,
            frozen,
            machines,
            nodes,
            boots,
            never_joined,
            unheard,
            sets,
            unknown_owner,
            unseen,
            defaults: _,
        } = self;
        (nodes_freshness.is_fresh(), machines, nodes, unheard, sets, unknown_owner, unseen).hash(state);
        (boots, never_joined, frozen.is_some()).hash(state);
    }
}

/// One call.
#[derive(Debug)]
pub enum Action {
    /// Marks a Machine as Failed.
    MarkFailed {
        /// The Machine.
        machine: Arc<MachineFacts>,
        /// The status write, which contains the Event message.
        write: Box<StatusWrite>,
        /// Reason of the Event.
        event: &'static str,
    },
    /// Lists the Nodes at the API server, because the watch is silent.
    ReadNodes,
    /// Checks at the API server whether the Node of a Machine exists.
    LookForNode {
        /// The Machine.
        machine: Arc<MachineFacts>,
        /// Name of the Node.
        node: String,
    },
}

/// A Machine whose time has passed.
#[derive(Clone, Copy)]
struct Overdue<'s> {
    machine: &'s Arc<MachineFacts>,
    deadline: Timestamp,
}

/// Decides which Machines are marked Failed, if any.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    let (mut unhealthy, mut joining) = (Vec::new(), Vec::new());
    let mut next: Option<Timestamp> = None;
    for machine in &s.machines {
        let (deadline, group) = match (unhealthy_until(s, machine), joining_until(s, machine)) {
            (Some(deadline), _) => (deadline, &mut unhealthy),
            (None, Some(deadline)) => (deadline, &mut joining),
            (None, None) => continue,
        };
        if is_past(s.now, deadline) {
            group.push(Overdue { machine, deadline });
        } else {
            next = Some(next.map_or(deadline, |next| next.min(deadline)));
        }
    }
    for group in [&mut unhealthy, &mut joining] {
        group.sort_by_key(|overdue| overdue.deadline);
    }
    let plan = match unhealthy.first().or(joining.first()) {
        None => Plan::idle(Why::up_to_date()),
        Some(_) if s.skew > SKEW_LIMIT => {
            let why = Why::new(
                Reason::ClockSkew { seconds: s.skew.as_secs() },
                Step::Fix("synchronize the clocks".to_owned()),
            );
            Plan::until(plus(s.now, Duration::from_secs(60)), why)
        }
        Some(_) => {
            let stale = s.nodes_freshness.obstacle(|| Action::ReadNodes);
            let frozen = || s.frozen.as_ref().map(|frozen| frozen.wait(s.now));
            stale.or_else(frozen).unwrap_or_else(|| give_up(s, &unhealthy, &joining))
        }
    };
    match next {
        Some(next) => plan.no_later_than(just_past(next)),
        None => plan,
    }
}

/// Decides with fresh facts about Machines whose time has passed.
fn give_up(s: &Snapshot, unhealthy: &[Overdue<'_>], joining: &[Overdue<'_>]) -> Plan<Action> {
    // A Machine whose Node is well again is about to leave its phase.
    let is_bad = |overdue: &&Overdue<'_>| !matches!(judged(s, overdue.machine), Judged::Healthy);
    let mut joining = joining.iter().filter(is_bad).peekable();
    let unhealthy = unhealthy.iter().find(is_bad);
    let Some(first) = joining.peek().copied().or(unhealthy) else { return Plan::idle(Why::up_to_date()) };
    if let Some(set) = s.unknown_owner.clone() {
        // Another Machine of the deployment may be in replacement already.
        let next = Step::Expect("the MachineSet appears, or the garbage collector deletes its machines");
        return Plan::idle(Why::new(McmReason::OwnerUnknown { set }, next).since(first.deadline));
    }
    if let Some(other) = s.unseen.clone() {
        let why =
            Why::new(McmReason::ReplacementLimit { other }, Step::Expect("the other Machine is replaced"));
        return Plan::until(plus(s.now, UNSEEN_AGAIN), why.since(first.deadline));
    }
    let joins = fail_joins(s, joining.copied());
    match (joins, unhealthy) {
        (Some(plan), _) if !plan.actions.is_empty() => plan,
        (_, Some(overdue)) => fail_unhealthy(s, *overdue),
        (Some(plan), None) => plan,
        (None, None) => Plan::idle(Why::up_to_date()),
    }
}

/// Decides about Machines whose Nodes did not join in time. Returns nothing if all joined in time.
fn fail_joins<'s>(s: &'s Snapshot, overdue: impl Iterator<Item = Overdue<'s>>) -> Option<Plan<Action>> {
    let in_replacement = s.machines.iter().filter(|other| is_being_replaced(s, other));
    let (busy, at_once) = (number(in_replacement.count()), (wanted(s) / JOINS_AT_ONCE).max(1));
    let mut left = at_once.saturating_sub(busy);
    let mut plan: Option<Plan<Action>> = None;
    for Overdue { machine, deadline } in overdue {
        let obstacle = match left {
            0 => Some(limit(s, deadline)),
            _ => cannot_be_replaced(s, machine).map(|why| why.since(deadline)),
        };
        if let Some(why) = obstacle {
            plan.get_or_insert_with(|| Plan::idle(why));
            continue;
        }
        let mut mark = mark(s, machine);
        left -= 1;
        match &mut plan {
            Some(plan) if !plan.actions.is_empty() => plan.actions.append(&mut mark.actions),
            _ => plan = Some(mark),
        }
    }
    plan
}

/// Decides about the Machine that has been unhealthy for longest.
fn fail_unhealthy(s: &Snapshot, Overdue { machine, deadline }: Overdue<'_>) -> Plan<Action> {
    let at_once = s.defaults.replacements_at_once.get();
    if at_once <= number(s.machines.iter().filter(|other| is_being_replaced(s, other)).count()) {
        let queued = s.machines.iter().filter_map(|other| queued_until(s, other));
        let plan = Plan::idle(limit(s, deadline));
        return match queued.filter(|until| !is_past(s.now, *until)).min() {
            Some(until) => plan.no_later_than(just_past(until)),
            None => plan,
        };
    }
    if let Some(why) = cannot_be_replaced(s, machine) {
        return Plan::idle(why.since(deadline));
    }
    let (live, wanted) = (live(s), wanted(s));
    if at_once <= wanted.saturating_sub(live) {
        return Plan::idle(gap(s, live, wanted).since(deadline));
    }
    mark(s, machine)
}

/// Marks a Machine as Failed after a GET of its Node. A watch may deliver and still lag by minutes,
/// so that its Node has recovered or joined meanwhile.
fn mark(s: &Snapshot, machine: &Arc<MachineFacts>) -> Plan<Action> {
    let name = machine.node_name();
    let last = match judged(s, machine) {
        Judged::Healthy => return Plan::idle(Why::up_to_date()),
        Judged::Bad(reason) => match unread_node(s, machine) {
            Some(node) => {
                let (machine, node) = (machine.clone(), node.name.clone());
                return Plan::act(Action::LookForNode { machine, node }, looking());
            }
            None => reason,
        },
        Judged::Missing => {
            let look = s.nodes.get(&machine.uid).and_then(|of| of.reads.node_now(name, s.now));
            match look {
                Some(look) if look.uid.is_none() => {
                    McmReason::Joining { node: name.to_owned(), token: crate::mcm::TokenUse::Unasked }
                }
                // The store is about to show the Node that the GET found.
                Some(_) => return Plan::until(plus(s.now, UNSEEN_AGAIN), looking()),
                None => {
                    let (machine, node) = (machine.clone(), name.to_owned());
                    return Plan::act(Action::LookForNode { machine, node }, looking());
                }
            }
        }
    };
    let is_joining = machine.status.phase == Phase::Pending;
    let (kind, description, event) = if let Some(trouble) = s.never_joins(machine) {
        let description = format!("Machine {} is replaced. {}", machine.name, boot_problem(trouble));
        (OperationType::Create, description, CREATE_FAILED)
    } else if is_joining {
        let description =
            format!("Machine {} failed to join the cluster in time. Last state: {last}", machine.name);
        (OperationType::Create, description, CREATE_FAILED)
    } else {
        let since = machine.status.phase_since.unwrap_or(s.now);
        let description = format!(
            "Machine {} health checks failing since {since}: its health timeout has passed",
            machine.name
        );
        let kind = machine.status.operation.type_.clone().unwrap_or(OperationType::HealthCheck);
        (kind, description, NODE_UNHEALTHY)
    };
    let what = if is_joining {
        "marking a Machine as Failed whose Node did not join"
    } else {
        "marking an unhealthy Machine as Failed"
    };
    let next = Step::Expect("the MachineSet deletes and replaces the Machine");
    let write = StatusWrite {
        phase: Some(PhaseWrite::of(Phase::Failed)),
        operation: Some(OperationWrite::failed(kind, description, None)),
        conditions: None,
        addresses: None,
        last_known_state: None,
        at: s.now,
    };
    let write = Box::new(write);
    Plan::act(
        Action::MarkFailed { machine: machine.clone(), write, event },
        Why::new(Reason::Writing(what), next),
    )
}

/// Returns a Node of the instance that no GET has just shown. The GETs update the store, and the
/// best Node counts.
fn unread_node<'s>(s: &'s Snapshot, machine: &MachineFacts) -> Option<&'s Arc<NodeFacts>> {
    let NodeOf { node, others, reads, identity: _ } = s.nodes.get(&machine.uid)?;
    let is_unread = |node: &&Arc<NodeFacts>| {
        let look = reads.node_now(&node.name, s.now);
        look.is_none_or(|look| look.uid.as_ref() != Some(&node.uid))
    };
    node.present().into_iter().chain(others).find(is_unread)
}

fn looking() -> Why {
    let next = "the Machine is marked Failed if the Node is missing or unhealthy";
    Why::new(Reason::Looking("the Node"), Step::Expect(next))
}

/// Judges a Machine by its Node. Without facts, the Node counts as missing, so that a GET decides.
fn judged(s: &Snapshot, machine: &MachineFacts) -> Judged {
    match s.nodes.get(&machine.uid) {
        Some(NodeOf { node, identity, .. }) => match judge(machine, node, identity, &s.defaults) {
            Judged::Healthy if has_failed_update(machine, node.present()) => {
                let what = format!("is {}", machine.status.phase);
                Judged::Bad(McmReason::UpdatedInPlace { machine: machine.name.clone(), what })
            }
            judged => judged,
        },
        None => Judged::Missing,
    }
}

/// Whether the update in place of a Machine has failed, and no later one has succeeded.
fn has_failed_update(machine: &MachineFacts, node: Option<&Arc<NodeFacts>>) -> bool {
    let result = node.and_then(|node| node.label(labels::UPDATE_RESULT));
    machine.status.phase == Phase::InPlaceUpdateFailed && result != Some(labels::UPDATE_SUCCESSFUL)
}

/// The reason for the Machines that wait until others have been replaced.
fn limit(s: &Snapshot, deadline: Timestamp) -> Why {
    let other = s.machines.iter().find(|other| is_being_replaced(s, other));
    // Without another one, the Machines that this plan marks are the others.
    let other = other.or(s.machines.first()).map(|other| other.name.clone()).unwrap_or_default();
    Why::new(McmReason::ReplacementLimit { other }, Step::Expect("the other Machine is replaced"))
        .since(deadline)
}

/// Returns why the set of a Machine could not create its replacement: it has a Machine without an
/// instance, whose creation failed.
fn cannot_be_replaced(s: &Snapshot, machine: &MachineFacts) -> Option<Why> {
    let owner = |machine: &MachineFacts| machine.owner.as_ref().map(|owner| owner.uid.clone());
    let set = owner(machine)?;
    let fails = |other: &&Arc<MachineFacts>| {
        // A preserved Machine may be kept for days.
        let counts = is_live(other) && other.status.phase != Phase::Failed;
        counts && creation_failed(other) && other.provider_id.is_none() && owner(other).as_ref() == Some(&set)
    };
    let other = s.machines.iter().find(fails)?;
    let reason = McmReason::ReplacementImpossible {
        machine: other.name.clone(),
        description: other.status.operation.description().to_owned(),
    };
    Some(Why::new(reason, Step::Expect("instances can be created again")))
}

/// Returns until when a Machine may be unhealthy; absent if it is healthy, being deleted, or never
/// marked Failed.
fn unhealthy_until(s: &Snapshot, machine: &MachineFacts) -> Option<Timestamp> {
    let is_bad = matches!(machine.status.phase, Phase::Unknown | Phase::InPlaceUpdateFailed);
    let waits = is_bad && machine.deleting_since.is_none();
    // The set deletes a Failed Machine at once unless the Machine carries the preserve annotation.
    let waits = waits && !s.unheard.contains(&machine.uid);
    health_deadline(machine, &s.defaults, &s.gaps).filter(|_| waits)
}

impl Snapshot {
    /// Returns the final problem of the instance of a Machine that waits for its Node. An old
    /// observation does not count.
    pub fn never_joins(&self, machine: &MachineFacts) -> Option<&BootTrouble> {
        let seen =
            self.boots.get(&machine.uid).filter(|seen| self.now < plus(seen.ended, BOOT_COUNTS_FOR))?;
        match &seen.answer {
            Ok(Boot::Trouble(trouble)) if trouble.is_final && machine.status.phase == Phase::Pending => {
                Some(trouble)
            }
            Ok(Boot::Trouble(_) | Boot::Working) | Err(_) => None,
        }
    }
}

/// Returns until when an instance that can never join stays.
fn given_up_at(s: &Snapshot, machine: &MachineFacts) -> Option<Timestamp> {
    s.never_joins(machine)?;
    let set = &machine.owner.as_ref()?.uid;
    let doublings = s.never_joined.get(set).copied().unwrap_or_default().min(MAX_DOUBLINGS);
    let since = machine.status.phase_since.unwrap_or(machine.created);
    Some(s.gaps.deadline(since, FIRST_BACK_OFF * 2u32.pow(doublings)))
}

/// Returns until when the Node of a Machine must join; absent if the Machine does not wait for it.
fn joining_until(s: &Snapshot, machine: &MachineFacts) -> Option<Timestamp> {
    let waits = machine.status.phase == Phase::Pending && machine.deleting_since.is_none();
    let waits = waits && machine.provider_id.is_some() && !s.unheard.contains(&machine.uid);
    let deadline = waits.then(|| join_deadline(machine, &s.defaults, &s.gaps))?;
    Some(given_up_at(s, machine).map_or(deadline, |given_up_at| given_up_at.min(deadline)))
}

/// Returns until when a Machine without an instance counts as a replacement in progress. The time
/// in our queue for the cloud counts: thousands of queued creations must not stop all healing.
fn queued_until(s: &Snapshot, machine: &MachineFacts) -> Option<Timestamp> {
    let waits = machine.provider_id.is_none() && is_replacement(machine);
    waits.then(|| s.gaps.deadline(machine.created, s.defaults.creation_patience(machine)))
}

/// Whether a Machine has failed and will be replaced. A preserved Machine is not replaced while it
/// is preserved.
fn has_failed(s: &Snapshot, machine: &MachineFacts) -> bool {
    machine.status.phase == Phase::Failed && machine.preserved(s.now).is_none()
}

fn is_being_replaced(s: &Snapshot, machine: &MachineFacts) -> bool {
    let failed = has_failed(s, machine);
    // A Machine that is being deleted may have failed before: its last operation is Delete by now.
    // An ordinary deletion delays a replacement a little, which is harmless.
    // A Machine that should have joined by now is not a replacement in progress.
    let until = joining_until(s, machine).or_else(|| queued_until(s, machine));
    let is_late = until.is_some_and(|deadline| is_past(s.now, deadline));
    failed || !is_live(machine) || (is_replacement(machine) && !is_late)
}

/// Whether a Machine is not Running yet and may replace a Machine that just failed. Then the next
/// replacement must wait.
fn is_replacement(machine: &MachineFacts) -> bool {
    let operation = &machine.status.operation;
    let creating = operation.type_.as_ref().is_none_or(|kind| *kind == OperationType::Create)
        && operation.state.as_ref().is_none_or(|state| *state == OperationState::Processing);
    matches!(machine.status.phase, Phase::Empty | Phase::Pending) && creating
}

/// Returns the number of live Machines.
fn live(s: &Snapshot) -> u32 {
    number(s.machines.iter().filter(|machine| is_live(machine) && !has_failed(s, machine)).count())
}

/// Returns how many Machines must be live before another one is marked Failed.
fn wanted(s: &Snapshot) -> u32 {
    let growing = || s.sets.iter().filter(|set| set.deleting_since.is_none());
    let specified = growing().map(|set| set.replicas()).fold(0, u32::saturating_add);
    // Sets without replicas are not kept up to date. If two sets disagree, the deployment will
    // correct one of them.
    let active = growing().filter(|set| 0 < set.replicas());
    let by_deployment =
        active.filter_map(|set| set.annotation(annotations::DESIRED_REPLICAS)?.parse::<u32>().ok()).max();
    by_deployment.map_or(specified, |desired| specified.min(desired))
}

/// Returns why Machines are missing, as far as the sets show it.
fn gap(s: &Snapshot, live: u32, wanted: u32) -> Why {
    let frozen = s.sets.iter().find(|set| set.is_frozen() && 0 < set.replicas());
    let next = match frozen {
        Some(set) => {
            Step::Fix(format!("set the annotation {} on MachineSet {}", annotations::UNFREEZE, set.name))
        }
        None => Step::Expect("the missing machines are created"),
    };
    let frozen = frozen.map(|set| set.name.clone());
    Why::new(McmReason::ReplacementGap { live, wanted, frozen }, next)
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MarkFailed { machine, .. } => write!(f, "machine {}: Failed", machine.name),
            Self::ReadNodes => f.write_str("nodes: list them at the API server"),
            Self::LookForNode { node, .. } => {
                write!(f, "node {node}: look for it at the API server")
            }
        }
    }
}

/// A Node that is not ready, for a Machine of a test, and that was read at that moment.
#[cfg(test)]
pub(crate) fn sick_node(machine: &MachineFacts, read_at: Timestamp) -> (String, NodeOf) {
    let uid = format!("node-{}", machine.name);
    let look = crate::mcm::NodeRead { name: machine.name.clone(), started: read_at, uid: Some(uid.clone()) };
    let reads = Reads { nodes: vec![look], ..Reads::default() };
    let node = serde_json::json!({
        "metadata": {"name": machine.name, "uid": uid},
        "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
    });
    let node = serde_json::from_value(node).expect("a Node");
    let identity = MachineIdentity {
        recorded: machinist_instance::RecordedId::Unset,
        same_instance: true,
        node_id_is_read: true,
        recorded_by: None,
        claimed_by: None,
        held_by: None,
        shared_with: None,
        joined_as: None,
    };
    let node = Known::Present(Arc::new(NodeFacts::parse(&node)));
    (machine.uid.clone(), NodeOf { node, others: Vec::new(), identity, reads })
}

#[cfg(test)]
mod tests;
