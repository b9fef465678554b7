//! Balancer drift: lists the load balancers of the account, so that Services notice what other
//! programs changed, and reports those without a Service.
//!
//! The list only reads. A Service compares its load balancer with the load balancer that its last
//! `ensure` returned. A load balancer without a Service is reported and never deleted: another
//! cluster may own it. Nothing is reported from an account until it is known to have the Nodes.
//!
//! A deletion without an answer may take effect when the Service wants its load balancer again. So
//! a list follows as soon as it shows whether that has happened, also after the start of a process:
//! an earlier one may have sent the deletion.
//!
//! The targets of a load balancer follow the watch of Nodes. If that watch is silent, the Nodes are
//! listed once per period, and Services report a list without an answer.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::{FreshRead, Freshness, Process, Silence, plus};
use machinist_instance::{Balancer, BalancerKey};

use super::account::{self, AccountFacts, Failure};
use super::listed_balancers::{LIST_AGAIN, LIST_BALANCERS, ListedBalancers};
use super::names;
use crate::ccm::why::{Plan, Why};
use crate::event::{EmittedEvents, EventText};

/// All facts for one decision about the list of load balancers.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The moment of the decision.
    pub now: Timestamp,
    /// The deciding process.
    pub process: Process,
    /// The state of today's account.
    pub account: AccountFacts,
    /// Since when a list of the load balancers is in flight.
    pub in_flight: Option<Timestamp>,
    /// The last successful list.
    pub listed: Option<Arc<ListedBalancers>>,
    /// The last list, if it failed.
    pub failed: Option<Failure>,
    /// The keys of all Services that exist, of every type.
    pub services: Arc<Vec<BalancerKey>>,
    /// Whether a Service has a load balancer.
    pub has_balancers: bool,
    /// The end of the last call of this process that may still delete a load balancer that its
    /// Service wants again.
    pub late_deletion: Option<Timestamp>,
    /// Time between two lists.
    pub period: Duration,
    /// How recently the watch of Nodes delivered something.
    pub nodes_freshness: Freshness,
    /// When this process last asked for a list of the Nodes because their watch was silent.
    pub nodes_asked: Option<Timestamp>,
    /// Events that were emitted about load balancers without a Service.
    pub emitted: Arc<EmittedEvents>,
}

impl Hash for Snapshot {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            now: _,
            process: _,
            account,
            in_flight,
            listed,
            failed,
            services,
            has_balancers,
            late_deletion,
            period: _,
            nodes_freshness,
            nodes_asked,
            emitted,
        } = self;
        (account, in_flight, listed, failed, services, has_balancers, emitted).hash(state);
        late_deletion.hash(state);
        (nodes_freshness.is_fresh(), nodes_asked).hash(state);
    }
}

impl Snapshot {
    /// The last successful list, if it is one of today's account.
    fn listed(&self) -> Option<&ListedBalancers> {
        self.listed.as_deref().filter(|listed| listed.account == self.account.id)
    }
}

/// One call.
#[derive(Debug)]
pub enum Action {
    /// Lists the Nodes, because their watch is silent.
    ReadNodes,
    /// Asks the driver to list the load balancers.
    List,
    /// Emits an Event about the cluster.
    Tell(EventText),
}

/// Time between two lists while no Service has a load balancer. They find only those without a
/// Service.
const WITHOUT_BALANCERS_EVERY: Duration = Duration::from_secs(3600);

/// Decides whether the load balancers are listed.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    let mut plan = list(s);
    // In the account of another project, the load balancers belong to its clusters.
    let listed = s.listed().filter(|_| s.account.is_proven());
    let orphans: Vec<&Balancer> = listed.iter().flat_map(|listed| listed.orphans(&s.services)).collect();
    let event = orphans_event(&orphans).and_then(|event| s.emitted.if_due(event, s.now));
    plan.actions.splice(0..0, event.map(Action::Tell));
    plan.actions.extend(are_nodes_due(s).then_some(Action::ReadNodes));
    plan
}

/// Whether the Nodes are listed now: their watch is silent, and they were not asked for within the
/// period. The decision about the next list of load balancers comes at least as often.
fn are_nodes_due(s: &Snapshot) -> bool {
    let is_due = s.nodes_asked.is_none_or(|asked| plus(asked, s.period) <= s.now);
    s.has_balancers && is_due && s.nodes_freshness.may_be_read()
}

/// Returns the silence of the watch of Nodes, if a list of them has failed since it began. Then
/// this process does not know whether a load balancer has all its targets.
pub fn unanswered(nodes_freshness: &Freshness, nodes_asked: Option<Timestamp>) -> Option<&Silence> {
    let Freshness::Stale(silence) = nodes_freshness else { return None };
    let has_ended = !matches!(silence.read, FreshRead::InFlight(_));
    (has_ended && nodes_asked.is_some_and(|asked| silence.since < asked)).then_some(silence)
}

/// Returns one Event for all load balancers without a Service: several Events with one reason would
/// replace each other.
fn orphans_event(orphans: &[&Balancer]) -> Option<EventText> {
    let [first, others @ ..] = orphans else { return None };
    let named = orphans.iter().take(MAX_NAMED).map(|orphan| format!("{} ({})", orphan.name, orphan.id));
    let named = named.collect::<Vec<_>>().join(", ");
    let message = match (others.is_empty(), orphans.len().saturating_sub(MAX_NAMED)) {
        (true, _) => format!(
            "Load balancer {} ({}) has the label of a Service that this cluster does not have. If no other \
             cluster uses it, delete it in the cloud.",
            first.name, first.id
        ),
        (false, more) => {
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            format!(
                "Load balancers {named}{more} have labels of Services that this cluster does not have. If no \
                 other cluster uses them, delete them in the cloud."
            )
        }
    };
    Some(EventText::warning(names::ORPHANED_BALANCER, message))
}

/// Up to this number of load balancers, the Event names each. The API server limits its text.
const MAX_NAMED: usize = 20;

fn list(s: &Snapshot) -> Plan<Action> {
    if let Some(since) = s.in_flight {
        return Plan::idle(account::calling(LIST_BALANCERS).since(since));
    }
    if let Some(failure) = &s.failed {
        let again_at = plus(failure.ended, account::failure_wait(failure, LIST_AGAIN));
        if s.now < again_at {
            let why = Why::call_failed(LIST_BALANCERS, &failure.error, failure.count, again_at);
            return Plan::until(again_at, why);
        }
    } else if let Some(listed) = s.listed() {
        let period = if s.has_balancers { s.period } else { s.period.max(WITHOUT_BALANCERS_EVERY) };
        let periodic = plus(listed.ended, s.account.stretched(period, s.now));
        let shown_at = late_deletions_shown_at(s);
        let due_at = if listed.started < shown_at { periodic.min(shown_at) } else { periodic };
        if s.now < due_at {
            return Plan::until(due_at, Why::up_to_date());
        }
    }
    if let Some(plan) = s.account.cannot_spend(s.now) {
        return plan;
    }
    Plan::act(Action::List, account::calling(LIST_BALANCERS))
}

/// Returns the moment from which a list shows what the deletions without an answer have done.
fn late_deletions_shown_at(s: &Snapshot) -> Timestamp {
    if !s.has_balancers {
        return Timestamp::MIN;
    }
    let promises = &s.process.promises;
    let late = promises.absence_takes();
    let by_others = promises.calls_outlive_process.then(|| s.process.acting_since());
    by_others.max(s.late_deletion).map_or(Timestamp::MIN, |ended| plus(ended, late))
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadNodes => f.write_str("target: list Nodes"),
            Self::List => f.write_str("driver: list balancers"),
            Self::Tell(event) => event.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
