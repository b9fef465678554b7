//! Routes: which instance receives the traffic to the pods of a Node.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::identity::ProviderId;

/// A route as the cloud shows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    /// The destination in CIDR notation, for example `10.244.1.0/24`.
    pub destination: String,
    /// The address to which the cloud forwards.
    pub gateway: IpAddr,
    /// The instance that has the gateway's address. `None` if no instance has it: the cloud drops
    /// the traffic.
    pub instance: Option<ProviderId>,
}

/// A route that a caller wants.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteSpec {
    /// The destination in CIDR notation.
    pub destination: String,
    /// The instance that receives the traffic.
    pub instance: ProviderId,
    /// The internal addresses of the Node. The gateway must be one of them.
    pub addresses: Vec<IpAddr>,
}

/// The routes of an account, and how many it may have.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RouteTable {
    /// All routes, including those that other programs made.
    pub routes: Vec<Route>,
    /// The largest number of routes that the cloud accepts, if it has a limit.
    pub limit: Option<usize>,
    /// The gateway of a new route to each instance. The cloud accepts no route to an instance that
    /// has no entry.
    pub gateways: BTreeMap<ProviderId, IpAddr>,
}
