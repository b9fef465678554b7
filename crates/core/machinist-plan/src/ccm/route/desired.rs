//! Compares the routes that the Nodes need with the routes that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use machinist_instance::{ProviderId, Route, RouteSpec};

use super::{Options, RoutedNode};
use crate::ccm::addresses::internal_ips;
use crate::ccm::cidr::Cidr;
use crate::facts::CloudNodeFacts;

/// The differences between the needed and the existing routes.
#[derive(Debug, Default)]
pub(super) struct Differences {
    /// The routes to delete, in order.
    pub(super) delete: Vec<Route>,
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
pub(super) fn compare(options: &Options, nodes: &[RoutedNode], routes: &[Route]) -> Differences {
    let mut differences = Differences::default();
    let mut claims: BTreeMap<Cidr, Claim<'_>> = BTreeMap::new();
    let mut claiming: BTreeSet<&ProviderId> = BTreeSet::new();
    let mut routed: Vec<(&RoutedNode, &ProviderId)> = nodes
        .iter()
        .filter(|routed| !routed.node.pod_cidrs.is_empty())
        .filter_map(|routed| Some((routed, routed.recorded.ours()?)))
        .collect();
    // If two Nodes want the same destination, the older one has it.
    routed.sort_by(|(a, _), (b, _)| (a.node.created, &a.node.name).cmp(&(b.node.created, &b.node.name)));
    for (routed, instance) in routed {
        differences.nodes.push(routed.node.clone());
        claiming.insert(instance);
        let addresses = internal_ips(routed.node.addresses());
        for text in &routed.node.pod_cidrs {
            let free = text.parse::<Cidr>().ok().filter(|destination| !claims.contains_key(destination));
            let Some(destination) = free else {
                let (node, destination) = (routed.node.clone(), text.clone());
                differences.impossible.push(Impossible { node, destination });
                continue;
            };
            let claim = Claim { node: &routed.node, instance, addresses: addresses.clone(), text };
            claims.insert(destination, claim);
        }
    }
    let others = nodes.iter().filter(|routed| routed.recorded.ours().is_none());
    let of_others: BTreeSet<Cidr> =
        others.flat_map(|routed| &routed.node.pod_cidrs).filter_map(|text| text.parse().ok()).collect();
    let mut kept: BTreeSet<Cidr> = BTreeSet::new();
    for route in routes {
        let Ok(destination) = route.destination.parse::<Cidr>() else { continue };
        let claim = claims.get(&destination);
        if claim.is_some_and(|claim| !kept.contains(&destination) && serves(options, claim, route)) {
            kept.insert(destination);
            continue;
        }
        if of_others.contains(&destination) && claim.is_none() {
            continue;
        }
        // The pod network of a Node is ours, even if the flag does not contain it.
        let is_ours = claim.is_some() || options.cluster.iter().any(|cluster| cluster.touches(&destination));
        let is_wrong = match &route.instance {
            None => true,
            Some(instance) => claim.is_some() || claiming.contains(instance),
        };
        if is_ours && is_wrong {
            differences.delete.push(route.clone());
        }
    }
    for (destination, claim) in &claims {
        if !kept.contains(destination) {
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

/// Whether a route leads to the Node that wants its destination.
fn serves(options: &Options, claim: &Claim<'_>, route: &Route) -> bool {
    let is_reached =
        !options.follows_addresses || claim.addresses.is_empty() || claim.addresses.contains(&route.gateway);
    match &route.instance {
        Some(instance) => instance == claim.instance && is_reached,
        // A list of servers that lacks one is no proof that the server does not exist.
        None => claim.addresses.contains(&route.gateway),
    }
}

/// Whether a change of a Node may change its routes.
pub fn is_affected_by(old: &CloudNodeFacts, new: &CloudNodeFacts) -> bool {
    old.pod_cidrs != new.pod_cidrs || old.addresses != new.addresses || old.provider_id() != new.provider_id()
}
