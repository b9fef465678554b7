//! Compares the routes that the Nodes need with the routes that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use machinist_instance::{ProviderId, Route, RouteSpec, RouteTable};

use super::{Options, RouteChange, RoutedNode, Snapshot, elsewhere};
use crate::ccm::addresses::internal_ips;
use crate::ccm::cidr::Cidr;
use crate::ccm::facts::CloudNodeFacts;

/// The differences between the needed and the existing routes.
#[derive(Debug, Default)]
pub(super) struct Differences {
    /// The routes to delete, in order.
    pub(super) delete: Vec<Route>,
    /// The routes without an instance and without a Node, in order. The Node may only be
    /// unregistered for a moment, and the list of instances may lack one.
    pub(super) abandoned: Vec<Route>,
    /// The routes to create, in order.
    pub(super) create: Vec<Missing>,
    /// The pod networks that have another Node's route, or are not networks.
    pub(super) impossible: Vec<Impossible>,
    /// The Nodes that need routes and have an instance of this cloud.
    pub(super) nodes: Vec<Arc<CloudNodeFacts>>,
}

/// A route that a Node lacks.
#[derive(Debug)]
pub(super) struct Missing {
    pub(super) node: Arc<CloudNodeFacts>,
    pub(super) spec: RouteSpec,
}

/// A pod network for which no route can be created.
#[derive(Debug)]
pub(super) struct Impossible {
    pub(super) node: Arc<CloudNodeFacts>,
    pub(super) destination: String,
}

/// A pod network of a Node.
struct Claim<'n> {
    node: &'n Arc<CloudNodeFacts>,
    instance: &'n ProviderId,
    addresses: Vec<IpAddr>,
    /// The destination as the Node spells it.
    text: &'n str,
}

/// Compares the routes of a table with the Nodes.
pub(super) fn compare(s: &Snapshot, table: &RouteTable) -> Differences {
    let (options, nodes) = (&*s.options, &s.nodes);
    let elsewhere = elsewhere::of(s, table);
    let mut differences = Differences::default();
    let mut claims: BTreeMap<Cidr, Claim<'_>> = BTreeMap::new();
    let mut claiming: BTreeSet<&ProviderId> = BTreeSet::new();
    let mut has_unreadable = false;
    let mut routed: Vec<(&RoutedNode, &ProviderId)> = nodes
        .iter()
        .filter(|routed| !routed.node.pod_cidrs.is_empty())
        .filter_map(|routed| Some((routed, routed.recorded.ours()?)))
        .collect();
    // If two Nodes want the same destination, the older one has it.
    routed.sort_by(|(a, _), (b, _)| (a.node.created, &a.node.name).cmp(&(b.node.created, &b.node.name)));
    for (routed, instance) in routed {
        differences.nodes.push(routed.node.clone());
        let mut is_readable = true;
        let addresses = internal_ips(routed.node.addresses());
        for text in &routed.node.pod_cidrs {
            let parsed = text.parse::<Cidr>().ok();
            is_readable &= parsed.is_some();
            let free = parsed.filter(|destination| !claims.contains_key(destination));
            let Some(destination) = free else {
                let (node, destination) = (routed.node.clone(), text.clone());
                differences.impossible.push(Impossible { node, destination });
                continue;
            };
            let claim = Claim { node: &routed.node, instance, addresses: addresses.clone(), text };
            claims.insert(destination, claim);
        }
        // A pod network that cannot be read may be the pod network of an existing route in another
        // spelling.
        if is_readable {
            claiming.insert(instance);
        }
        has_unreadable |= !is_readable;
    }
    let others = nodes.iter().filter(|routed| routed.recorded.ours().is_none());
    let of_others: BTreeSet<Cidr> =
        others.flat_map(|routed| &routed.node.pod_cidrs).filter_map(|text| text.parse().ok()).collect();
    let destinations = || table.routes.iter().map(|route| route.destination.parse::<Cidr>().ok());
    let mut kept: BTreeMap<Cidr, &Route> = BTreeMap::new();
    for (route, destination) in table.routes.iter().zip(destinations()) {
        let Some(destination) = destination else { continue };
        if claims.get(&destination).is_some_and(|claim| serves(options, table, claim, route)) {
            kept.entry(destination).or_insert(route);
        }
    }
    let has_all = |instance: &ProviderId| {
        let mut own = claims.iter().filter(|(_, claim)| claim.instance == instance);
        own.all(|(destination, claim)| kept.contains_key(destination) || is_accepted(table, claim))
    };
    for (route, destination) in table.routes.iter().zip(destinations()) {
        let Some(destination) = destination else { continue };
        let claim = claims.get(&destination);
        if kept.get(&destination).is_some_and(|kept| std::ptr::eq(*kept, route)) {
            continue;
        }
        if of_others.contains(&destination) && claim.is_none() {
            continue;
        }
        let is_in_cluster = options.cluster.iter().any(|cluster| cluster.touches(&destination));
        let is_wrong = match (&route.instance, claim) {
            // The pod network of a Node is ours, even if the flag does not contain it. The route of
            // a server that exists is deleted only for a route that the cloud will accept: the Node
            // may be restored, and its server deleted.
            (Some(instance), Some(claim)) => instance == claim.instance || is_accepted(table, claim),
            // A Node that has just registered again has no addresses yet.
            (None, Some(claim)) => !claim.addresses.is_empty(),
            (Some(instance), None) => is_in_cluster && claiming.contains(instance) && has_all(instance),
            (None, None) => {
                // Without a Node of this cloud, nothing suggests that the routes belong to the
                // cluster.
                let is_of_a_user = elsewhere.contains(&RouteChange::delete(route));
                if is_in_cluster && !is_of_a_user && !claims.is_empty() && !has_unreadable {
                    differences.abandoned.push(route.clone());
                }
                false
            }
        };
        if is_wrong {
            differences.delete.push(route.clone());
        }
    }
    for (destination, claim) in &claims {
        if !kept.contains_key(destination) {
            let spec = RouteSpec {
                destination: claim.text.to_owned(),
                instance: claim.instance.clone(),
                addresses: claim.addresses.clone(),
            };
            differences.create.push(Missing { node: claim.node.clone(), spec });
        }
    }
    differences
}

/// Whether a route leads to the Node that wants its destination. A route to the instance stays
/// until the cloud accepts a route over an address of the Node.
fn serves(options: &Options, table: &RouteTable, claim: &Claim<'_>, route: &Route) -> bool {
    let is_reached = || {
        !options.follows_addresses
            || claim.addresses.is_empty()
            || claim.addresses.contains(&route.gateway)
            || !is_accepted(table, claim)
    };
    match &route.instance {
        Some(instance) => instance == claim.instance && is_reached(),
        // A list of servers that lacks one is not proof that the server does not exist.
        None => claim.addresses.contains(&route.gateway),
    }
}

/// Whether the cloud accepts a new route to the Node that wants a destination.
fn is_accepted(table: &RouteTable, claim: &Claim<'_>) -> bool {
    table.gateways.get(claim.instance).is_some_and(|gateway| claim.addresses.contains(gateway))
}

/// Whether a change of a Node may change its routes.
pub fn is_affected_by(old: &CloudNodeFacts, new: &CloudNodeFacts) -> bool {
    old.pod_cidrs != new.pod_cidrs || old.addresses != new.addresses || old.provider_id() != new.provider_id()
}
