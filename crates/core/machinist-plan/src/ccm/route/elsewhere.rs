//! Routes of Nodes that are not in this cloud.
//!
//! A user made the route, for example to a dedicated server. If its Node leaves, the route looks
//! like one without an instance and without a Node. So the process remembers it for as long as the
//! cloud shows it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use machinist_instance::{RecordedId, Route, RouteTable};

use super::{RouteChange, Snapshot};
use crate::ccm::addresses::internal_ips;
use crate::ccm::cidr::Cidr;

/// Returns the routes of Nodes that are or were in another cloud, by their deletion. The controller
/// stores them for the next decision.
pub fn elsewhere(s: &Snapshot) -> BTreeSet<RouteChange> {
    match s.memory.listed.as_ref().filter(|listed| listed.account == s.account.id) {
        Some(listed) => of(s, &listed.table),
        None => s.memory.elsewhere.clone(),
    }
}

/// Returns these routes of a table.
pub(super) fn of(s: &Snapshot, table: &RouteTable) -> BTreeSet<RouteChange> {
    // A Node without a provider id may be one of this cloud.
    let is_elsewhere = |recorded: &RecordedId| matches!(recorded, RecordedId::NotOurs { .. });
    let nodes = || s.nodes.iter().filter(|routed| is_elsewhere(&routed.recorded)).map(|routed| &routed.node);
    let destinations: BTreeSet<Cidr> =
        nodes().flat_map(|node| &node.pod_cidrs).filter_map(|text| text.parse().ok()).collect();
    let addresses: BTreeSet<IpAddr> = nodes().flat_map(|node| internal_ips(node.addresses())).collect();
    let is_theirs = |route: &&Route| {
        s.memory.elsewhere.contains(&RouteChange::delete(route))
            || addresses.contains(&route.gateway)
            || route.destination.parse().is_ok_and(|destination| destinations.contains(&destination))
    };
    let routes = table.routes.iter().filter(|route| route.instance.is_none());
    routes.filter(is_theirs).map(RouteChange::delete).collect()
}
