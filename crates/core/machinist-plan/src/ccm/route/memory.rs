//! The driver's answers about routes, as this process remembers them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::{Answered, Call};
use machinist_instance::{AccountId, Error, Progress, ProviderId, Route, RouteSpec, RouteTable};

use crate::ccm::account::Failure;

/// The driver's answers about routes. They may be lost at any moment: then the routes are listed
/// again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct RouteMemory {
    /// The call in flight and its start. At most one call for all routes is in flight.
    pub in_flight: Option<(Call, Timestamp)>,
    /// The routes, as the last list and the changes since then show them.
    pub listed: Option<ListedRoutes>,
    /// The last list, if it failed.
    pub list_failed: Option<Failure>,
    /// The last change, while the cloud carries it out.
    pub working: Option<Working>,
    /// The changes that failed.
    pub failed: BTreeMap<RouteChange, Failure>,
    /// Since when each decision has found a route without an instance and without a Node, by its
    /// deletion ([`super::abandoned`]).
    pub abandoned: BTreeMap<RouteChange, Timestamp>,
    /// When the cloud accepted the deletion of an abandoned route, for the Event about it.
    pub deleted: BTreeMap<RouteChange, Timestamp>,
    /// The routes of Nodes that are or were in another cloud, by their deletion
    /// ([`super::elsewhere`]).
    pub elsewhere: BTreeSet<RouteChange>,
}

/// A failure is forgotten after this time: twice the longest time between two attempts. An Event
/// names a deleted route for the same time.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// The routes of the account.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ListedRoutes {
    /// The account that was listed.
    pub account: Option<AccountId>,
    /// When the list began.
    pub started: Timestamp,
    /// When the list was answered.
    pub ended: Timestamp,
    /// The routes.
    pub table: Arc<RouteTable>,
    /// Whether routes were created since the list. Their gateways are assumed, so the routes are
    /// listed again before one is deleted.
    pub has_assumed: bool,
}

/// A change that the cloud carries out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Working {
    /// The change, in words of the cloud.
    pub change: String,
    /// Start of the first call.
    pub since: Timestamp,
    /// When the last call was answered.
    pub ended: Timestamp,
}

/// A change of one route.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RouteChange {
    /// The creation of a route.
    Create {
        /// The destination in CIDR notation.
        destination: String,
        /// The instance that receives the traffic.
        instance: ProviderId,
    },
    /// The deletion of a route.
    Delete {
        /// The destination in CIDR notation.
        destination: String,
        /// The gateway of the route.
        gateway: IpAddr,
    },
}

impl RouteChange {
    /// The creation of that route.
    pub fn create(spec: &RouteSpec) -> Self {
        Self::Create { destination: spec.destination.clone(), instance: spec.instance.clone() }
    }

    /// The deletion of that route.
    pub fn delete(route: &Route) -> Self {
        Self::Delete { destination: route.destination.clone(), gateway: route.gateway }
    }
}

impl fmt::Display for RouteChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { destination, instance } => {
                write!(f, "create the route to {destination} over {instance}")
            }
            Self::Delete { destination, gateway } => {
                write!(f, "delete the route to {destination} over {gateway}")
            }
        }
    }
}

impl RouteMemory {
    /// Stores an answer to `list`.
    pub fn take_list(&mut self, answered: Answered<RouteTable>) {
        let Answered { started, ended, account, .. } = answered;
        match answered.answer {
            Ok(table) => {
                let table = Arc::new(table);
                self.listed = Some(ListedRoutes { account, started, ended, table, has_assumed: false });
                self.list_failed = None;
            }
            Err(error) => self.list_failed = Some(next_failure(self.list_failed.take(), error, ended)),
        }
    }

    /// Stores an answer to `create`.
    pub fn take_create(&mut self, spec: &RouteSpec, answered: Answered<Progress<()>>) {
        let account = answered.account.clone();
        if self.take(RouteChange::create(spec), answered)
            && let Some(listed) = self.listed_of(account.as_ref())
        {
            let gateway = spec.addresses.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
            let (destination, instance) = (spec.destination.clone(), Some(spec.instance.clone()));
            let table = Arc::make_mut(&mut listed.table);
            table.routes.retain(|route| route.destination != destination);
            table.routes.push(Route { destination, gateway, instance });
            listed.has_assumed = true;
        }
    }

    /// Stores an answer to `delete`.
    pub fn take_delete(&mut self, route: &Route, answered: Answered<Progress<()>>) {
        let account = answered.account.clone();
        let (deletion, ended) = (RouteChange::delete(route), answered.ended);
        self.deleted.retain(|_, at| machinist_core::since(ended, *at) <= FORGOTTEN_AFTER);
        if answered.answer.is_ok() && self.abandoned.contains_key(&deletion) {
            self.deleted.insert(deletion.clone(), ended);
        }
        if self.take(deletion, answered)
            && let Some(listed) = self.listed_of(account.as_ref())
        {
            let is_other =
                |other: &Route| (&other.destination, other.gateway) != (&route.destination, route.gateway);
            Arc::make_mut(&mut listed.table).routes.retain(is_other);
        }
    }

    /// Returns the routes of that account, if they were listed last.
    fn listed_of(&mut self, account: Option<&AccountId>) -> Option<&mut ListedRoutes> {
        self.listed.as_mut().filter(|listed| listed.account.as_ref() == account)
    }

    /// Stores the answer to a change. Returns whether the cloud has carried it out.
    fn take(&mut self, change: RouteChange, answered: Answered<Progress<()>>) -> bool {
        let Answered { started, ended, answer, .. } = answered;
        let since = self.working.take().map_or(started, |working| working.since);
        // A change that still fails is repeated earlier, so older failures have no change left.
        self.failed.retain(|_, failure| machinist_core::since(ended, failure.ended) <= FORGOTTEN_AFTER);
        match answer {
            Ok(Progress::Done(())) => {
                self.failed.remove(&change);
                true
            }
            Ok(Progress::Working(text)) => {
                self.working = Some(Working { change: text, since, ended });
                false
            }
            Err(error) => {
                let last = self.failed.remove(&change);
                self.failed.insert(change, next_failure(last, error, ended));
                false
            }
        }
    }
}

fn next_failure(last: Option<Failure>, error: Error, ended: Timestamp) -> Failure {
    Failure { error, ended, count: last.map_or(0, |last| last.count).saturating_add(1) }
}
