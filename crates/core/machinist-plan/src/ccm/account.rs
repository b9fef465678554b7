//! The account of the cloud: its state for all planners, and the periodic list of its instances.
//!
//! One list serves all Nodes: the addresses and labels of every Node follow it, and it proves which
//! account the credential opens. A Node never asks for its own periodic lookup. Without Nodes, the
//! list still shows whether the credential and the settings work.

mod balancers;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::{Call, MAX_RETRY_AFTER, Step, plus};
use machinist_instance::{AccountId, CallBudget, Error, ErrorKind};

use super::names;
use crate::ccm::why::{CcmReason, Plan, Reason, Why};
use crate::event::{EmittedEvents, EventText};

pub use self::balancers::{BalancerProof, RecordedBalancer};

/// The state of today's account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccountFacts {
    /// The account that today's credential opens; absent while the credential opens none.
    pub id: Option<AccountId>,
    /// Whether this account is known to be the account of the Nodes.
    pub proof: Proof,
    /// Whether this account is known to be the account of the load balancers, while no Node can
    /// prove it.
    pub balancers: BalancerProof,
    /// Whether no answer has shown yet that the credential works: no Node proves it, and no list
    /// has ended well.
    pub is_untried: bool,
    /// Until when the cloud throttles the account. No call begins earlier.
    pub paused_until: Option<Timestamp>,
    /// Whether the cloud did not say how long the pause lasts, so that a test request may end it.
    pub is_pause_assumed: bool,
    /// Since when a list of the instances is in flight.
    pub list_since: Option<Timestamp>,
    /// The last list, if it failed.
    pub list_failed: Option<Failure>,
    /// The outage of the cloud, if calls fail now.
    pub outage: Option<Outage>,
    /// End of the answer that ended the last outage. Calls that the outage let fail before are
    /// repeated without waiting.
    pub works_since: Option<Timestamp>,
    /// Number of calls that one list takes: its pages.
    pub list_cost: u32,
    /// The remaining calls of the account, if the cloud reports them.
    pub budget: Option<CallBudget>,
}

/// Whether an account is known to be the account of the Nodes. In the account of another project
/// every load balancer and every route looks missing, and a server of the same name may exist. So
/// nothing is created or deleted there, and no Node is initialised by its name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Proof {
    /// A Node records it, or it has shown an instance of a Node, or no Node has an instance.
    #[default]
    Given,
    /// Not known: it was not listed yet.
    Unlisted,
    /// The last list shows the instance of no Node.
    Missing,
}

/// Facts from the stores and the calls about the account that today's credential opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProofFacts {
    /// Whether a Node records the account.
    pub is_recorded: bool,
    /// Whether the account has shown the instance that a Node records.
    pub has_shown: bool,
    /// Whether a Node records an instance of this cloud.
    pub has_instances: bool,
    /// Whether the account was listed.
    pub is_listed: bool,
}

impl ProofFacts {
    /// Whether no Node can prove or disprove the account, so that what the Services record counts.
    pub fn decides_nothing(self) -> bool {
        !self.is_recorded && !self.has_shown && !self.has_instances
    }
}

impl Proof {
    /// Returns what is known about the account that today's credential opens. A credential that
    /// opens none needs no proof: no call can be made.
    pub fn of(facts: Option<ProofFacts>) -> Self {
        match facts {
            None => Self::Given,
            Some(proof) if proof.is_recorded || proof.has_shown || !proof.has_instances => Self::Given,
            Some(proof) if proof.is_listed => Self::Missing,
            Some(_) => Self::Unlisted,
        }
    }
}

/// A row of failed calls, each of which says something about all calls of the account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Outage {
    /// When the first call of the row failed.
    pub since: Timestamp,
    /// When the last test request of the row was sent.
    pub probed: Option<Timestamp>,
}

/// A shorter row of failures wakes no object when it ends: their own waits are shorter, or the
/// failures concern one object.
const SHORTEST_OUTAGE: Duration = Duration::from_secs(10);
/// Time between two test requests during an outage. One request per time shows its end to all
/// objects, which wait for their own retries.
const PROBED_EVERY: Duration = Duration::from_secs(4);

impl Outage {
    /// Whether objects that failed during this row are woken if it ends at that moment.
    pub fn wakes_at(self, end: Timestamp) -> bool {
        plus(self.since, SHORTEST_OUTAGE) <= end
    }
}

/// Whether a failure of this kind says something about all calls of the account, and not only about
/// one of them, so that a good answer to any call is a reason to repeat it.
pub fn is_outage(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::Throttled { .. } | ErrorKind::Unavailable | ErrorKind::Ambiguous => true,
        ErrorKind::InvalidSpec
        | ErrorKind::Denied
        | ErrorKind::Exhausted
        | ErrorKind::Unsupported
        | ErrorKind::Bug => false,
    }
}

impl Hash for AccountFacts {
    /// The end of a pause is converted from the monotonic clock, so its value varies slightly. The
    /// budget changes with each call of any program.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            id,
            proof,
            balancers,
            is_untried,
            paused_until,
            is_pause_assumed,
            list_since,
            list_failed,
            outage,
            works_since,
            list_cost,
            budget: _,
        } = self;
        (id, proof, balancers, is_untried, paused_until.is_some(), is_pause_assumed, list_since).hash(state);
        (list_failed, outage, works_since, list_cost).hash(state);
    }
}

/// A failed call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Failure {
    /// The error of the driver.
    pub error: Error,
    /// When the answer arrived.
    pub ended: Timestamp,
    /// Number of consecutive failures.
    pub count: u32,
}

/// All facts for one decision about the list of the account.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The moment of the decision.
    pub now: Timestamp,
    /// The state of the account.
    pub account: AccountFacts,
    /// When the last successful list was answered.
    pub listed: Option<Timestamp>,
    /// The setting that does not fit the account, as the last list showed.
    pub misconfigured: Option<String>,
    /// `--node-status-update-frequency`
    pub status_period: Duration,
    /// Events that were emitted about the account.
    pub emitted: Arc<EmittedEvents>,
}

impl Hash for Snapshot {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { now: _, account, listed, misconfigured, status_period: _, emitted } = self;
        (account, listed, misconfigured, emitted).hash(state);
    }
}

/// One call for the account.
#[derive(Debug)]
pub enum Action {
    /// Asks the driver to list the account.
    List,
    /// Makes one cheap call, which shows whether the cloud answers again.
    Probe,
    /// Emits an Event. This planner decides about no object of the API, so the controller chooses
    /// the object.
    Tell(EventText),
}

/// Wait before a failed list is repeated: at first, and at most.
const FAILED_AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

/// Decides whether the account is listed.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    let mut plan = probed(s, list(s));
    let event = match (&s.account.list_failed, &s.misconfigured) {
        (Some(failure), _) => failure_event(&failure.error),
        (None, Some(message)) => Some(settings_event(message)),
        (None, None) => None,
    };
    let event = event.and_then(|event| s.emitted.if_due(event, s.now));
    plan.actions.splice(0..0, event.map(Action::Tell));
    plan
}

/// Returns the Event about a list that fails until a user acts.
fn failure_event(error: &Error) -> Option<EventText> {
    let message = &error.message;
    match error.kind {
        ErrorKind::Denied => {
            let text = format!(
                "The cloud rejects the credential: {message}. Nothing is created or deleted. Renew the \
                 credential."
            );
            Some(EventText::warning(names::CREDENTIAL_DENIED, text))
        }
        // A list has no spec, so the settings of the program are wrong.
        ErrorKind::InvalidSpec => Some(settings_event(message)),
        ErrorKind::Exhausted
        | ErrorKind::Throttled { .. }
        | ErrorKind::Unavailable
        | ErrorKind::Ambiguous
        | ErrorKind::Unsupported
        | ErrorKind::Bug => None,
    }
}

fn settings_event(message: &str) -> EventText {
    let text = format!("The settings of the program are wrong: {message}. Correct them.");
    EventText::warning(names::SETTINGS_INVALID, text)
}

fn list(s: &Snapshot) -> Plan<Action> {
    if let Some(since) = s.account.list_since {
        return Plan::idle(calling(Call::LIST).since(since));
    }
    let due_at = match (&s.account.list_failed, s.listed) {
        (Some(failure), _) if s.account.has_recovered_since(&failure.error, failure.ended) => Timestamp::MIN,
        (Some(failure), _) => plus(failure.ended, failure_wait(failure, FAILED_AGAIN)),
        (None, Some(listed)) => plus(listed, s.account.stretched(s.status_period, s.now)),
        (None, None) => Timestamp::MIN,
    };
    if s.now < due_at {
        return match &s.account.list_failed {
            Some(failure) => {
                Plan::until(due_at, Why::call_failed(Call::LIST, &failure.error, failure.count, due_at))
            }
            None => Plan::until(due_at, Why::up_to_date()),
        };
    }
    if let Some(plan) = s.account.cannot_spend(s.now) {
        return plan;
    }
    Plan::act(Action::List, calling(Call::LIST))
}

/// Adds the test request of an outage to a plan that waits. All objects wait longer and longer
/// after their own failures, so no other call would show the end of the outage soon.
fn probed(s: &Snapshot, plan: Plan<Action>) -> Plan<Action> {
    let Some(outage) = s.account.outage.filter(|_| plan.actions.is_empty() && s.account.id.is_some()) else {
        return plan;
    };
    let due_at = plus(outage.probed.unwrap_or(outage.since), PROBED_EVERY);
    // A pause of a stated length is respected.
    let may_from = s.account.paused_until.filter(|_| !s.account.is_pause_assumed).unwrap_or(due_at);
    let due_at = due_at.max(may_from);
    if s.now < due_at {
        return plan.no_later_than(due_at);
    }
    if let Some(saves) = s.account.saves(s.now) {
        return saves;
    }
    Plan::act(Action::Probe, calling(Call::PROBE)).no_later_than(plus(s.now, PROBED_EVERY))
}

impl AccountFacts {
    /// Returns a plan that waits, if no call can be made now: the credential opens no account, or
    /// the cloud throttles it.
    pub(super) fn cannot_call<A>(&self, now: Timestamp) -> Option<Plan<A>> {
        if self.id.is_none() {
            let next = "correct the credential of the cloud: it has characters that no request can contain, for \
                        example a line break";
            return Some(Plan::idle(Why::new(CcmReason::NoAccount, Step::Fix(next.to_owned()))));
        }
        let until = self.paused_until.filter(|until| now < *until)?;
        let why = Why::new(Reason::AccountPaused, Step::Expect("the controller makes the call"));
        Some(Plan::until(until, why.deadline(until, Step::Expect("the pause ends"))))
    }

    /// Returns a plan that waits, if the account may be a wrong one. The list of the account, which
    /// has its own key, gives the proof.
    pub(super) fn is_doubtful<A>(&self) -> Option<Plan<A>> {
        let why = match self.proof {
            Proof::Given => return None,
            // The account showed nothing yet, so nothing suggests that it is a wrong one.
            Proof::Unlisted => self.unlisted(),
            Proof::Missing => {
                let next = "use a credential of the project with the servers of the Nodes";
                Why::new(CcmReason::AccountUnproven, Step::Fix(next.to_owned()))
            }
        };
        Some(Plan::idle(why))
    }

    /// Returns why an object waits for the first list of the account.
    pub(super) fn unlisted(&self) -> Why {
        match &self.list_failed {
            None => calling(Call::LIST).since(self.list_since),
            Some(failure) => {
                let retry_at = plus(failure.ended, failure_wait(failure, FAILED_AGAIN));
                Why::call_failed(Call::LIST, &failure.error, failure.count, retry_at)
            }
        }
    }

    /// Whether an outage ended after a failure that it may have caused, and that ended at `ended`.
    pub(super) fn has_recovered_since(&self, error: &Error, ended: Timestamp) -> bool {
        is_outage(error.kind) && self.works_since.is_some_and(|works| ended < works)
    }
}

/// Returns why an object waits for an answer.
pub(super) fn calling(call: Call) -> Why {
    Why::new(Reason::Calling(call), Step::Expect("the cloud answers"))
}

/// Returns the wait after a failed call: exactly as long as the cloud asks for, else a wait that
/// doubles from the first to the second value.
pub(super) fn failure_wait(failure: &Failure, (first, most): (Duration, Duration)) -> Duration {
    match failure.error.kind {
        ErrorKind::Throttled { retry_after: Some(asked) } => asked.min(MAX_RETRY_AFTER),
        ErrorKind::InvalidSpec
        | ErrorKind::Denied
        | ErrorKind::Exhausted
        | ErrorKind::Throttled { retry_after: None }
        | ErrorKind::Unavailable
        | ErrorKind::Ambiguous
        | ErrorKind::Unsupported
        | ErrorKind::Bug => (first * 2u32.pow(failure.count.saturating_sub(1).min(10))).min(most),
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List => f.write_str("driver: list"),
            Self::Probe => f.write_str("driver: probe"),
            Self::Tell(event) => event.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
