//! Node removal: deletes the Nodes of instances that do not exist, all in one decision.
//!
//! A Node is deleted if all of this holds:
//!
//! - The Node is not ready, is initialised, and has a provider id of this cloud.
//! - Two lookups by that id found nothing, at least the confirm period apart. A list that lacks the
//!   instance proves nothing.
//! - The account of both lookups is known to be the account of the instance
//!   ([`machinist_core::ownership`]). Two absences in an account that cannot be compared with
//!   anything never count for a Node.
//! - The Node is old enough, no user excluded it, and no live Machine is about to replace it.
//! - Not too many instances are missing. If more than the brake allows are missing, or all of them,
//!   or the account shows no instance of any Node, the cause is rarely in the instances, so no Node
//!   is deleted.
//!
//! Only this planner creates a [`NodeRemoval`], and all Nodes share one key: two decisions at the
//! same time could each see the other Node as present.

mod evidence;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::ownership::Ownership;
use machinist_core::{Answers, Attempts, Call, Process, Step, Wait, plus};
use machinist_instance::RecordedId;

use super::account::{self, AccountFacts};
use super::names;
use super::node::snapshot::{ListedNode, Options, Owner};
use super::why::BrakeRule;
use crate::ccm::facts::CloudNodeFacts;
use crate::ccm::why::{CcmReason, Plan, Reason, Why};
use crate::event::{EmittedEvents, EventText};

pub use self::evidence::Absences;
pub(crate) use self::evidence::{Case, Verdict};

/// All facts for one decision about the removal of Nodes.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The moment of the decision.
    pub now: Timestamp,
    /// The deciding process.
    pub process: Process,
    /// The flags of the node controllers.
    pub options: Arc<Options>,
    /// The state of today's account.
    pub account: AccountFacts,
    /// Number of initialised Nodes that are not being deleted and have a provider id of this
    /// cloud, including the suspects.
    pub nodes: u32,
    /// When the last list of today's account was answered, and how many of these Nodes it shows.
    pub shown: Option<(Timestamp, u32)>,
    /// The Nodes whose instance was absent in the last lookup by id.
    pub suspects: Vec<Suspect>,
    /// When this process deleted Nodes whose removal was not expected
    /// ([`NodeRemoval::is_expected`]); times older than [`RECENT`] may be omitted.
    pub removed: Vec<Timestamp>,
    /// Value of the annotation [`super::names::ALLOW_NODE_DELETION_UNTIL`].
    pub allowed_until: Option<String>,
    /// Kind and name of the object that may have this annotation, for messages.
    pub allowed_on: Arc<str>,
    /// Events that were emitted about the removal of Nodes.
    pub emitted: Arc<EmittedEvents>,
}

impl Hash for Snapshot {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            now: _,
            process: _,
            options: _,
            account,
            nodes,
            shown,
            suspects,
            removed,
            allowed_until,
            allowed_on: _,
            emitted,
        } = self;
        (account, nodes, shown, suspects, removed, allowed_until, emitted).hash(state);
    }
}

/// Deletions within this time count towards the brake, so that many missing instances are noticed
/// although their Nodes are deleted one after the other.
pub const RECENT: Duration = Duration::from_secs(600);

/// A Node whose instance was absent in the last lookup by id.
#[derive(Debug, Clone, Hash)]
pub struct Suspect {
    /// The Node.
    pub node: Arc<CloudNodeFacts>,
    /// `spec.providerID` of the Node, as the provider classifies it.
    pub recorded: RecordedId,
    /// The driver's answers for this Node.
    pub answers: Answers,
    /// The result of the account's last list for this Node.
    pub listed: Option<ListedNode>,
    /// Evidence whether today's credential opens the account of the instance.
    pub ownership: Ownership,
    /// The Machine of the Node, if the machine controller runs and has one.
    pub owner: Option<Owner>,
    /// The DELETEs of the Node that the API server rejected.
    pub refused: Option<DeletionRefusal>,
}

/// DELETEs of one Node that the API server rejected.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DeletionRefusal {
    /// The rejected DELETEs.
    pub attempts: Attempts,
    /// The message of the API server for the last one.
    pub message: String,
}

/// One call. Events about one Node name it; the others are about the cluster.
#[derive(Debug)]
pub enum Action {
    /// Asks the driver to list the account.
    List,
    /// DELETEs a Node, with its UID and resourceVersion as preconditions.
    Delete(NodeRemoval),
    /// Emits an Event.
    Tell {
        /// The Node of the Event; absent for an Event about the cluster.
        node: Option<Arc<CloudNodeFacts>>,
        /// The Event.
        event: EventText,
    },
}

/// Permission to delete one Node once.
///
/// Only the planner of this module creates it, from evidence. It cannot be copied, and it expires:
/// after that, the planner must decide again.
#[derive(Debug)]
pub struct NodeRemoval {
    node: Arc<CloudNodeFacts>,
    absences: Absences,
    is_expected: bool,
    valid_until: Timestamp,
}

impl NodeRemoval {
    /// The Node that may be deleted, as it was read. Its UID and resourceVersion are the
    /// preconditions of the DELETE.
    pub fn node(&self) -> &Arc<CloudNodeFacts> {
        &self.node
    }

    /// The lookups that prove that the instance does not exist.
    pub fn absences(&self) -> &Absences {
        &self.absences
    }

    /// Whether another program announced the deletion of the instance. Only other removals belong
    /// into [`Snapshot::removed`].
    pub fn is_expected(&self) -> bool {
        self.is_expected
    }

    /// The last moment at which this permission may be used.
    pub fn valid_until(&self) -> Timestamp {
        self.valid_until
    }
}

/// Lifetime of a permission: longer than a call takes to start, shorter than a lease.
const REMOVAL_VALID: Duration = Duration::from_secs(10);
/// A list of this age still shows whether the account has instances of Nodes.
const SHOWN_VALID: Duration = Duration::from_secs(600);
/// Maximum number of Nodes that one decision deletes.
const MAX_AT_ONCE: usize = 10;
/// First and longest wait after a rejected DELETE.
const REFUSED_AGAIN: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));
/// Wait before the next look while the brake holds.
const HELD_AGAIN: Duration = Duration::from_secs(60);

/// Decides which Nodes are deleted, if any.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    let judged: Vec<(&Suspect, Verdict)> =
        s.suspects.iter().map(|suspect| (suspect, suspect.case(s).judge())).collect();
    let unexpected =
        judged.iter().filter(|(suspect, verdict)| is_missing(verdict) && !suspect.is_expected()).count();
    let missing = judged.iter().filter(|(_, verdict)| is_missing(verdict)).count();
    let wakes_at = judged.iter().filter_map(|(_, verdict)| match verdict {
        // A lookup that is due wakes this key with its answer.
        Verdict::LookAgain { look_at, .. } => Some(*look_at).filter(|look_at| s.now < *look_at),
        Verdict::Held { until, .. } => *until,
        Verdict::Present | Verdict::Unsure | Verdict::ListFirst | Verdict::Proven(_) => None,
    });
    let wakes_at = wakes_at.min();
    let mut proven: Vec<(&Suspect, Absences)> = judged
        .into_iter()
        .filter_map(|(suspect, verdict)| match verdict {
            Verdict::Proven(absences) => Some((suspect, absences)),
            Verdict::Present
            | Verdict::Unsure
            | Verdict::LookAgain { .. }
            | Verdict::ListFirst
            | Verdict::Held { .. } => None,
        })
        .collect();
    let held = if proven.iter().any(|(suspect, _)| !suspect.is_expected()) {
        brake(s, number(unexpected), number(missing))
    } else {
        Held::Free
    };
    if held != Held::Free {
        proven.retain(|(suspect, _)| suspect.is_expected());
    }
    let mut plan = delete(s, proven);
    match held {
        Held::Free => {}
        Held::Unlisted => {
            if plan.actions.is_empty() {
                plan = list(s);
            }
        }
        Held::By(reason) => hold(s, reason, &mut plan),
    }
    match wakes_at {
        Some(at) => plan.no_later_than(at),
        None => plan,
    }
}

/// Plans the deletion of the Nodes that may be deleted.
fn delete(s: &Snapshot, proven: Vec<(&Suspect, Absences)>) -> Plan<Action> {
    let (mut actions, mut failed) = (Vec::new(), Vec::new());
    let mut refused: Option<(Timestamp, &Suspect)> = None;
    for (suspect, absences) in proven {
        failed.extend(failure_event(s, suspect));
        let retry_at = suspect.refused.as_ref().map(|DeletionRefusal { attempts, .. }| {
            let doublings = attempts.count.saturating_sub(1).min(10);
            plus(attempts.last, (REFUSED_AGAIN.0 * 2u32.pow(doublings)).min(REFUSED_AGAIN.1))
        });
        if let Some(retry_at) = retry_at.filter(|retry_at| s.now < *retry_at) {
            if refused.is_none_or(|(first, _)| retry_at < first) {
                refused = Some((retry_at, suspect));
            }
            continue;
        }
        if actions.len() == 2 * MAX_AT_ONCE {
            break;
        }
        let message =
            format!("Deleting node {} because it does not exist in the cloud provider", suspect.node.name);
        let event = EventText::normal(names::DELETING_NODE, message);
        actions.push(Action::Tell { node: Some(suspect.node.clone()), event });
        actions.push(Action::Delete(NodeRemoval {
            node: suspect.node.clone(),
            absences,
            is_expected: suspect.is_expected(),
            valid_until: plus(s.now, REMOVAL_VALID),
        }));
    }
    let mut plan = match refused {
        _ if !actions.is_empty() => {
            let why = Why::new(
                Reason::Writing("deleting the Nodes of instances that do not exist"),
                Step::Expect("the Nodes are deleted"),
            );
            Plan::act_all(actions, why)
        }
        None => Plan::idle(Why::up_to_date()),
        Some((retry_at, suspect)) => {
            let reason = CcmReason::NodeDeletionRefused { node: suspect.node.name.clone() };
            Plan::until(retry_at, Why::new(reason, Step::Expect("the controller tries again")))
        }
    };
    plan.actions.splice(0..0, failed);
    plan
}

/// Returns the Event about the last rejected DELETE of a Node.
fn failure_event(s: &Snapshot, suspect: &Suspect) -> Option<Action> {
    let node = &suspect.node;
    let message = format!("Failed deleting node {}: {}", node.name, suspect.refused.as_ref()?.message);
    let event = s.emitted.if_due(EventText::warning(names::DELETING_NODE_FAILED, message), s.now)?;
    Some(Action::Tell { node: Some(node.clone()), event })
}

/// Returns the reason of a decision that suspends the deletion of Nodes.
pub fn suspension(why: &Why) -> Option<&Why> {
    let is_suspended = matches!(why.reason, Reason::Contract(CcmReason::NodeDeletionSuspended { .. }));
    is_suspended.then_some(why)
}

/// Whether the brake holds the deletion of Nodes that no program announced.
#[derive(Debug, PartialEq)]
enum Held {
    /// The deletion may go on.
    Free,
    /// No young list of the account exists.
    Unlisted,
    /// Too many instances are missing.
    By(CcmReason),
}

fn brake(s: &Snapshot, unexpected: u32, missing: u32) -> Held {
    let Some(limits) = s.options.brake else { return Held::Free };
    if s.allowed_until().is_some_and(|until| s.now < until) {
        return Held::Free;
    }
    let recent = s.removed.iter().filter(|at| s.now < plus(**at, RECENT)).count();
    let recent = number(recent);
    let (missing_in_all, nodes) = (unexpected.saturating_add(recent), s.nodes.saturating_add(recent));
    let most = limits.nodes.max(nodes.saturating_mul(limits.percent) / 100);
    let held_by = match s.shown {
        _ if most < missing_in_all => BrakeRule::Limit { most },
        _ if s.nodes <= missing => BrakeRule::All,
        None => return Held::Unlisted,
        Some((listed, _)) if plus(listed, SHOWN_VALID) <= s.now => return Held::Unlisted,
        Some((_, 0)) => BrakeRule::NothingShown,
        Some(_) => return Held::Free,
    };
    Held::By(CcmReason::NodeDeletionSuspended { missing: missing_in_all, nodes, held_by })
}

/// Reports that the brake holds, with the command that releases it.
fn hold(s: &Snapshot, reason: CcmReason, plan: &mut Plan<Action>) {
    let invalid = s.allowed_until.as_ref().filter(|_| s.allowed_until().is_none());
    let invalid = invalid.map_or(String::new(), |given| {
        format!(" (its value {given:?} is not a time such as 2027-01-15T08:00:00Z)")
    });
    let next = format!(
        "check the credential and the instances in the cloud. If the instances were deleted on purpose, set the \
         annotation {} of {} to a time in the future{invalid}",
        names::ALLOW_NODE_DELETION_UNTIL,
        s.allowed_on
    );
    let event = EventText::warning(names::NODE_DELETION_SUSPENDED, format!("{reason}. To go on, {next}."));
    plan.actions.extend(s.emitted.if_due(event, s.now).map(|event| Action::Tell { node: None, event }));
    plan.why = Why::new(reason, Step::Fix(next));
    plan.wait = plan.wait.earliest(Wait::Until(plus(s.now, HELD_AGAIN)));
}

fn list(s: &Snapshot) -> Plan<Action> {
    let plan = match (s.account.list_since, &s.account.list_failed) {
        (Some(since), _) => Some(Plan::idle(account::calling(Call::LIST).since(since))),
        (None, Some(failure)) => {
            let retry_at = plus(failure.ended, account::failure_wait(failure, REFUSED_AGAIN));
            let why = Why::call_failed(Call::LIST, &failure.error, failure.count, retry_at);
            (s.now < retry_at).then(|| Plan::until(retry_at, why))
        }
        (None, None) => None,
    };
    plan.or_else(|| s.account.cannot_call(s.now))
        .unwrap_or_else(|| Plan::act(Action::List, account::calling(Call::LIST)))
}

/// Whether the instance of a Node is missing, proven or not.
fn is_missing(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Present => false,
        Verdict::Unsure
        | Verdict::LookAgain { .. }
        | Verdict::ListFirst
        | Verdict::Held { .. }
        | Verdict::Proven(_) => true,
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl Snapshot {
    /// The time until which a user allows the deletion of any number of Nodes.
    fn allowed_until(&self) -> Option<Timestamp> {
        self.allowed_until.as_ref()?.trim().parse().ok()
    }
}

impl Suspect {
    /// Whether another program announced the deletion of the instance: the cluster-autoscaler, or
    /// the deletion of the Machine. Such Nodes do not count towards the brake.
    fn is_expected(&self) -> bool {
        let has_taint = self.node.taints().iter().any(|taint| taint.key == names::AUTOSCALER_DELETION_TAINT);
        has_taint || self.owner.as_ref().is_some_and(|owner| owner.is_deleting)
    }

    fn case<'s>(&'s self, s: &'s Snapshot) -> Case<'s> {
        Case {
            now: s.now,
            process: &s.process,
            options: &s.options,
            account: &s.account,
            node: &self.node,
            recorded: &self.recorded,
            answers: &self.answers,
            listed: self.listed.as_ref(),
            ownership: &self.ownership,
            owner: self.owner.as_ref(),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List => f.write_str("driver: list"),
            Self::Delete(removal) => {
                write!(f, "node {}: delete because {}", removal.node.name, removal.absences)
            }
            Self::Tell { node: Some(node), event } => write!(f, "node {}: {event}", node.name),
            Self::Tell { node: None, event } => event.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
