//! Routes: one for each pod network of each Node, and the condition NetworkUnavailable.
//!
//! All routes have one key. Clouds lock a network per change, so one change is in flight at a time.
//! A route is matched by the provider id of its instance, never by a name. Wrong routes are deleted
//! before new ones are created, because a destination can have only one route.
//!
//! A route is deleted if its destination is in the cluster's networks, and
//!
//! - no instance has its gateway, and neither has the Node that wants its destination, or
//! - no instance has its gateway, and for two minutes no Node has wanted its destination, or
//! - another Node wants its destination, or
//! - its Node wants other destinations, or its gateway is no longer an address of its Node. The old
//!   route works, so the cloud must accept the route that the Node needs instead.
//!
//! The two minutes are for a Node that is registered again: its pods run on. A list that began
//! after them must still show the route. If the cloud has no room for the route of another Node, a
//! list that began after the Node left is enough.
//!
//! A silent watch of Nodes proves nothing: before a change, the Nodes are listed once.
//!
//! The route of an instance without a Node stays until the instance is deleted: the store of Nodes
//! may be incomplete, and the route does no harm until its destination is wanted. The routes of
//! Nodes that are not in this cloud belong to their users, also after the Node has left: this
//! program could not create them again. An Event names the routes without a Node that were deleted.

mod abandoned;
mod condition;
mod desired;
mod elsewhere;
mod memory;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::{Call, Freshness, Step, plus};
use machinist_instance::{RecordedId, Route, RouteSpec};

use self::desired::{Differences, Impossible};
use super::account::{AccountFacts, Failure};
use super::cidr::Cidr;
use super::names;
use crate::ccm::facts::CloudNodeFacts;
use crate::ccm::why::{CcmReason, Plan, Reason, Why};
use crate::event::{EmittedEvents, EventText};

pub use self::abandoned::abandoned;
pub use self::condition::NetworkCondition;
pub use self::desired::is_affected_by;
pub use self::elsewhere::elsewhere;
pub use self::memory::{ListedRoutes, RouteChange, RouteMemory, Working};

/// Lists the routes of the account.
pub const LIST_ROUTES: Call = Call::look("list the routes");
/// Creates a route.
pub const CREATE_ROUTE: Call = Call::change("create the route");
/// Deletes a route.
pub const DELETE_ROUTE: Call = Call::change("delete the route");

/// All facts for one decision about the routes.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The moment of the decision.
    pub now: Timestamp,
    /// The flags of the route controller.
    pub options: Arc<Options>,
    /// All Nodes of the cluster.
    pub nodes: Vec<RoutedNode>,
    /// Whether the store of Nodes is complete.
    pub is_synced: bool,
    /// How recently the watch of Nodes delivered something.
    pub nodes_freshness: Freshness,
    /// The state of today's account.
    pub account: AccountFacts,
    /// The driver's answers about routes.
    pub memory: RouteMemory,
    /// Events that were emitted about routes.
    pub emitted: Arc<EmittedEvents>,
}

impl Hash for Snapshot {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { now: _, options: _, nodes, is_synced, nodes_freshness, account, memory, emitted } = self;
        (nodes, is_synced, nodes_freshness.is_fresh(), account, memory, emitted).hash(state);
    }
}

/// A Node that may need routes.
#[derive(Debug, Clone, Hash)]
pub struct RoutedNode {
    /// The Node.
    pub node: Arc<CloudNodeFacts>,
    /// `spec.providerID` of the Node, as the provider classifies it.
    pub recorded: RecordedId,
}

/// The flags of the route controller.
#[derive(Debug, Clone)]
pub struct Options {
    /// `--cluster-cidr`: the networks of all pods. Routes to other destinations are left alone.
    pub cluster: Vec<Cidr>,
    /// `--route-reconciliation-period`: the longest time between two lists of the routes.
    pub period: Duration,
    /// Whether a route whose gateway is no longer an address of its Node is replaced.
    pub follows_addresses: bool,
}

/// One call.
#[derive(Debug)]
pub enum Action {
    /// Lists the Nodes, because their watch is silent and a change is due.
    ReadNodes,
    /// Asks the driver to list the routes.
    List,
    /// Asks the driver to create a route.
    Create(RouteSpec),
    /// Asks the driver to delete a route.
    Delete(Route),
    /// Writes the condition NetworkUnavailable of a Node.
    SetNetwork(NetworkCondition),
    /// Emits an Event.
    Tell {
        /// The Node of the Event; absent for an Event about the cluster.
        node: Option<Arc<CloudNodeFacts>>,
        /// The Event.
        event: EventText,
    },
}

/// Time between two questions whether the cloud has carried out a change: at first, and at most.
const WORKING_AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// First and longest wait after a failed change or list.
const FAILED_AGAIN: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));
/// A warning is emitted when this part of the possible routes exists, in percent.
const WARN_FROM_PERCENT: usize = 80;

/// Decides the next change of a route, and the conditions of the Nodes.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    if !s.is_synced || s.nodes.is_empty() {
        return Plan::idle(Why::new(CcmReason::NoNodes, Step::Expect("a Node registers")));
    }
    if let Some((call, since)) = s.memory.in_flight {
        return Plan::idle(Why::new(Reason::Calling(call), Step::Expect("the cloud answers")).since(since));
    }
    if let Some(plan) = s.account.is_doubtful_for_balancers() {
        return plan;
    }
    // The table of another account says nothing about the routes of this one.
    let listed = s.memory.listed.as_ref().filter(|listed| listed.account == s.account.id);
    let Some(listed) = listed else { return list(s) };
    let outdated_at = plus(listed.ended, s.account.stretched(s.options.period, s.now));
    let differences = desired::compare(s, &listed.table);
    let mut plan = next_call(s, listed, &differences);
    if s.now < outdated_at {
        plan = plan.no_later_than(outdated_at);
    } else if plan.actions.is_empty() && working_until(s).is_none() {
        // A change that the cloud was carrying out may no longer be wanted: its Node has left.
        plan = list(s);
    }
    with_reports(s, listed, &differences, plan)
}

/// Plans a list, unless the account is paused or the last list has just failed.
fn list(s: &Snapshot) -> Plan<Action> {
    if let Some(plan) = s.account.cannot_spend(s.now) {
        return plan;
    }
    if let Some(failure) = &s.memory.list_failed {
        let again_at = again_at(failure);
        if s.now < again_at && !s.account.has_recovered_since(&failure.error, failure.ended) {
            return Plan::until(again_at, failed_call(LIST_ROUTES, failure, again_at));
        }
    }
    Plan::act(Action::List, Why::new(Reason::Calling(LIST_ROUTES), Step::Expect("the cloud answers")))
}

/// Plans the next change: deletions first, and only one change at a time.
fn next_call(s: &Snapshot, listed: &ListedRoutes, differences: &Differences) -> Plan<Action> {
    if let Some((working, look_at)) = working_until(s) {
        let why = Why::new(
            CcmReason::RouteWorking { change: working.change.clone() },
            Step::Expect("the controller asks again"),
        );
        return Plan::until(look_at, why.since(working.since));
    }
    let has_room = abandoned::has_room(listed, differences);
    let mut first_retry: Option<Timestamp> = None;
    let mut first_due: Option<Timestamp> = None;
    for (change, next) in changes(differences, has_room) {
        if let Next::Delete(route) = &next
            && differences.abandoned.contains(route)
        {
            let due_at = abandoned::due_at(s, &change, has_room);
            if s.now < due_at {
                first_due = Some(first_due.map_or(due_at, |first| first.min(due_at)));
                continue;
            }
            // The list must be younger than the departure of the Node.
            if listed.started < due_at {
                return list(s);
            }
        }
        if let Some(failure) = s.memory.failed.get(&change) {
            let again_at = again_at(failure);
            if s.now < again_at && !s.account.has_recovered_since(&failure.error, failure.ended) {
                first_retry = Some(first_retry.map_or(again_at, |first| first.min(again_at)));
                continue;
            }
            // The table may be the reason for the failure.
            if listed.ended <= failure.ended {
                return list(s);
            }
        }
        if let Some(plan) = s.account.cannot_spend(s.now) {
            return plan;
        }
        if let Some(plan) = s.nodes_freshness.obstacle(|| Action::ReadNodes) {
            return plan;
        }
        return match next {
            Next::Delete(_) if listed.has_assumed => list(s),
            Next::Delete(route) => calling(Action::Delete(route.clone()), DELETE_ROUTE),
            Next::Create(spec) => calling(Action::Create(spec.clone()), CREATE_ROUTE),
        };
    }
    let plan = match first_retry {
        None => Plan::idle(Why::up_to_date()),
        Some(retry_at) => Plan::until(retry_at, failing(s, differences, retry_at)),
    };
    match first_due {
        None => plan,
        Some(due_at) => plan.no_later_than(due_at),
    }
}

/// Returns the changes in their order. Routes without a Node go first only if others need the room.
fn changes(differences: &Differences, has_room: bool) -> impl Iterator<Item = (RouteChange, Next<'_>)> {
    let deletion = |route| (RouteChange::delete(route), Next::Delete(route));
    let abandoned = differences.abandoned.iter().map(deletion);
    let (first, last) = if has_room { (None, Some(abandoned)) } else { (Some(abandoned), None) };
    let creations = differences.create.iter();
    let creations =
        creations.map(|missing| (RouteChange::create(&missing.spec), Next::Create(&missing.spec)));
    let deletions = differences.delete.iter().map(deletion);
    deletions.chain(first.into_iter().flatten()).chain(creations).chain(last.into_iter().flatten())
}

/// Returns the change that the cloud is carrying out, until the controller asks again.
fn working_until(s: &Snapshot) -> Option<(&Working, Timestamp)> {
    let working = s.memory.working.as_ref()?;
    let look_at = plus(working.ended, wait_for_work(working.since, working.ended));
    (s.now < look_at).then_some((working, look_at))
}

enum Next<'a> {
    Delete(&'a Route),
    Create(&'a RouteSpec),
}

fn calling(action: Action, call: Call) -> Plan<Action> {
    Plan::act(action, Why::new(Reason::Calling(call), Step::Expect("the cloud answers")))
}

/// Returns why changes wait for their retry.
fn failing(s: &Snapshot, differences: &Differences, retry_at: Timestamp) -> Why {
    let pending = differences.delete.iter().chain(&differences.abandoned).map(RouteChange::delete);
    let pending = pending.chain(differences.create.iter().map(|missing| RouteChange::create(&missing.spec)));
    let failed: Vec<_> = pending.filter_map(|change| Some((s.memory.failed.get(&change)?, change))).collect();
    let Some((failure, change)) = failed.first() else { return Why::up_to_date() };
    let failing = u32::try_from(failed.len()).unwrap_or(u32::MAX);
    failed_change(change, failure, failing, retry_at)
}

fn failed_change(change: &RouteChange, failure: &Failure, failing: u32, retry_at: Timestamp) -> Why {
    let message = failure.error.message.clone();
    let reason = CcmReason::RouteFailed { change: change.to_string(), message, failing };
    Why::new(reason, Step::Expect("the controller tries again"))
        .deadline(retry_at, Step::Expect("the controller tries again"))
}

/// Returns why Nodes lack a route, by the names of the Nodes. `why` is the reason of the decision
/// about all routes.
pub fn nodes_without_route(s: &Snapshot, why: &Why) -> BTreeMap<String, Why> {
    if why.reason == Reason::Settled || !s.is_synced {
        return BTreeMap::new();
    }
    let Some(listed) = s.memory.listed.as_ref().filter(|listed| listed.account == s.account.id) else {
        // The first list is usually answered soon.
        if matches!(why.reason, Reason::Calling(_)) {
            return BTreeMap::new();
        }
        let routed = s.nodes.iter().filter(|routed| routed.recorded.ours().is_some());
        let routed = routed.filter(|routed| !routed.node.pod_cidrs.is_empty());
        return routed.map(|routed| (routed.node.name.clone(), why.clone())).collect();
    };
    let is_of_another_node = matches!(
        why.reason,
        Reason::Contract(CcmReason::RouteFailed { .. } | CcmReason::RouteDestinationTaken { .. })
    );
    let differences = desired::compare(s, &listed.table);
    let mut whys = BTreeMap::new();
    for missing in &differences.create {
        let change = RouteChange::create(&missing.spec);
        let failed = s.memory.failed.get(&change);
        let own = failed.map(|failure| failed_change(&change, failure, 1, again_at(failure)));
        let why = own.or_else(|| (!is_of_another_node).then(|| why.clone()));
        whys.extend(why.map(|why| (missing.node.name.clone(), why)));
    }
    let impossible = differences.impossible.iter();
    whys.extend(impossible.map(|impossible| (impossible.node.name.clone(), impossible.why())));
    whys
}

/// Adds the conditions of the Nodes, and the Events.
fn with_reports(
    s: &Snapshot,
    listed: &ListedRoutes,
    differences: &Differences,
    mut plan: Plan<Action>,
) -> Plan<Action> {
    let mut actions: Vec<Action> = conditions(s, differences).into_iter().map(Action::SetNetwork).collect();
    let emit = |node: Option<&Arc<CloudNodeFacts>>, event: EventText| {
        let event = s.emitted.if_due(event, s.now)?;
        Some(Action::Tell { node: node.cloned(), event })
    };
    for missing in &differences.create {
        if let Some(failure) = s.memory.failed.get(&RouteChange::create(&missing.spec)) {
            let message = format!(
                "Could not create route to {} for Node {}: {}",
                missing.spec.destination, missing.node.name, failure.error.message
            );
            let event = EventText::warning(names::FAILED_TO_CREATE_ROUTE, message);
            actions.extend(emit(Some(&missing.node), event));
        }
    }
    for route in differences.delete.iter().chain(&differences.abandoned) {
        if let Some(failure) = s.memory.failed.get(&RouteChange::delete(route)) {
            let message = format!(
                "Could not delete route to {} over {}: {}",
                route.destination, route.gateway, failure.error.message
            );
            actions.extend(emit(None, EventText::warning(names::FAILED_TO_DELETE_ROUTE, message)));
        }
    }
    let deleted = abandoned::deleted_event(&s.memory).and_then(|event| s.emitted.if_new(event));
    actions.extend(deleted.map(|event| Action::Tell { node: None, event }));
    for impossible in &differences.impossible {
        let why = impossible.why();
        let event = EventText::warning(names::FAILED_TO_CREATE_ROUTE, why.reason.to_string());
        actions.extend(emit(Some(&impossible.node), event));
        if matches!(plan.why.reason, Reason::Settled) {
            plan.why = why;
        }
    }
    let count = listed.table.routes.len();
    if let Some(limit) = listed.table.limit
        && limit.saturating_mul(WARN_FROM_PERCENT) <= count.saturating_mul(100)
    {
        // The number changes with every Node, so the Event does not contain it.
        let message = format!(
            "The cloud accepts at most {limit} routes, and at least {WARN_FROM_PERCENT} % of them exist. Use \
             fewer Nodes, or a network plugin that needs no routes."
        );
        actions.extend(emit(None, EventText::warning(names::ROUTE_LIMIT_NEAR, message)));
    }
    actions.append(&mut plan.actions);
    plan.actions = actions;
    plan
}

impl Impossible {
    fn why(&self) -> Why {
        let (destination, node) = (self.destination.clone(), self.node.name.clone());
        let reason = CcmReason::RouteDestinationTaken { destination, node };
        Why::new(reason, Step::Fix("give each Node its own podCIDRs".to_owned()))
    }
}

/// Returns the conditions to write. A Node whose routes were not tried yet keeps its condition.
fn conditions(s: &Snapshot, differences: &Differences) -> Vec<NetworkCondition> {
    let mut failed: BTreeSet<&str> = BTreeSet::new();
    let mut untried: BTreeSet<&str> = BTreeSet::new();
    for missing in &differences.create {
        let set = if s.memory.failed.contains_key(&RouteChange::create(&missing.spec)) {
            &mut failed
        } else {
            &mut untried
        };
        set.insert(&missing.node.uid);
    }
    failed.extend(differences.impossible.iter().map(|impossible| impossible.node.uid.as_str()));
    let nodes = differences.nodes.iter().filter(|node| {
        node.deleting_since.is_none()
            && (failed.contains(node.uid.as_str()) || !untried.contains(node.uid.as_str()))
    });
    nodes
        .filter_map(|node| NetworkCondition::needed(node, !failed.contains(node.uid.as_str()), s.now))
        .collect()
}

/// Returns when a failed call is repeated: exactly when the cloud asks for it, else after a wait
/// that doubles.
fn again_at(failure: &Failure) -> Timestamp {
    plus(failure.ended, super::account::failure_wait(failure, FAILED_AGAIN))
}

fn failed_call(call: Call, failure: &Failure, again_at: Timestamp) -> Why {
    Why::call_failed(call, &failure.error, failure.count, again_at)
}

/// Returns the wait before the next question about a change: as long as it has taken so far.
fn wait_for_work(since: Timestamp, ended: Timestamp) -> Duration {
    machinist_core::since(ended, since).clamp(WORKING_AGAIN.0, WORKING_AGAIN.1)
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadNodes => f.write_str("target: list Nodes"),
            Self::List => f.write_str("driver: list routes"),
            Self::Create(spec) => write!(f, "driver: {}", RouteChange::create(spec)),
            Self::Delete(route) => write!(f, "driver: {}", RouteChange::delete(route)),
            Self::SetNetwork(condition) => condition.fmt(f),
            Self::Tell { node: Some(node), event } => write!(f, "node {}: {event}", node.name),
            Self::Tell { node: None, event } => event.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
