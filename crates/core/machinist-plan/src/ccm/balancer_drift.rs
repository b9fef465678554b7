//! Balancer drift: lists the load balancers of the account, so that Services notice what other
//! programs changed, and reports those without a Service.
//!
//! The list only reads. A Service compares its load balancer with the one that its last `ensure`
//! returned. A load balancer without a Service is reported and never deleted: another cluster may
//! own it. Nothing is reported from an account that is not known to be that of the Nodes.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::plus;
use machinist_instance::{AccountId, Balancer, BalancerKey};

use super::account::{self, Account, Failure, Proof};
use super::service::{LIST_BALANCERS, ListedBalancer};
use super::{Plan, Why, names};
use crate::event::{EventText, Told};

/// All facts for one decision about the list of load balancers.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The moment of the decision.
    pub now: Timestamp,
    /// The state of today's account.
    pub account: Account,
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
    /// Time between two lists.
    pub period: Duration,
    /// Events that were emitted about load balancers without a Service.
    pub told: Arc<Told>,
}

impl Hash for Snapshot {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { now: _, account, in_flight, listed, failed, services, has_balancers, period: _, told } =
            self;
        (account, in_flight, listed, failed, services, has_balancers, told).hash(state);
    }
}

/// The load balancers of the account.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ListedBalancers {
    /// When the list began.
    pub started: Timestamp,
    /// When the list was answered.
    pub ended: Timestamp,
    /// The account that was listed.
    pub account: Option<AccountId>,
    /// The keys of all Services that existed when the list began.
    pub services: Arc<Vec<BalancerKey>>,
    /// The load balancers.
    pub balancers: Vec<Balancer>,
}

impl ListedBalancers {
    /// The entry of one Service.
    pub fn of(&self, key: &BalancerKey) -> ListedBalancer {
        let balancer = self.balancers.iter().find(|balancer| balancer.key.as_ref() == Some(key));
        ListedBalancer { started: self.started, balancer: balancer.cloned() }
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
    /// Asks the driver to list the load balancers.
    List,
    /// Emits an Event about the cluster.
    Tell(EventText),
}

/// First and longest wait after a failed list.
const FAILED_AGAIN: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(600));

/// Decides whether the load balancers are listed.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    let mut plan = list(s);
    // In the account of another project, the load balancers belong to its clusters.
    let listed = s.listed().filter(|_| s.account.proof == Proof::Given);
    let all = listed.iter().flat_map(|listed| &listed.balancers);
    // A Service that was deleted after the list began may have had its load balancer then.
    let is_known = |key| s.services.contains(key) || listed.is_some_and(|it| it.services.contains(key));
    let orphans = all.filter(|balancer| balancer.key.as_ref().is_some_and(|key| !is_known(key)));
    let events = orphans.filter_map(|orphan| {
        let message = format!(
            "Load balancer {} ({}) has the label of a Service that this cluster does not have. If no other \
             cluster uses it, delete it in the cloud.",
            orphan.name, orphan.id
        );
        s.told.if_new(EventText::warning(names::ORPHANED_BALANCER, message)).map(Action::Tell)
    });
    let events: Vec<Action> = events.collect();
    plan.actions.splice(0..0, events);
    plan
}

fn list(s: &Snapshot) -> Plan<Action> {
    if let Some(since) = s.in_flight {
        return Plan::idle(account::calling(LIST_BALANCERS).since(since));
    }
    if !s.has_balancers {
        return Plan::idle(Why::settled());
    }
    if let Some(failure) = &s.failed {
        let again_at = plus(failure.ended, account::failure_wait(failure, FAILED_AGAIN));
        if s.now < again_at {
            let why = account::failed(LIST_BALANCERS, &failure.error, failure.count, again_at);
            return Plan::until(again_at, why);
        }
    } else if let Some(listed) = s.listed() {
        let due_at = plus(listed.ended, s.account.stretched(s.period, s.now));
        if s.now < due_at {
            return Plan::until(due_at, Why::settled());
        }
    }
    if let Some(plan) = s.account.cannot_spend(s.now) {
        return plan;
    }
    Plan::act(Action::List, account::calling(LIST_BALANCERS))
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List => f.write_str("driver: list balancers"),
            Self::Tell(event) => event.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
