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
#[derive(Debug)]
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

/// Compares the routes of a table with the Nodes.
pub(super) fn compare(s: &Snapshot, table: &RouteTable) -> Differences {
    let routed = routed_nodes(&s.nodes);
    let claims = Claims::of(&routed);
    let kept = kept_routes(&s.options, table, &claims);
    let of_others = networks_of_others(&s.nodes);
    let elsewhere = elsewhere::of(s, table);
    let judge = Judge { options: &s.options, table, claims: &claims, kept: &kept, of_others, elsewhere };
    let (mut delete, mut abandoned) = (Vec::new(), Vec::new());
    for (route, destination) in readable_routes(table) {
        match judge.verdict(route, &destination) {
            Verdict::Stays => {}
            Verdict::Wrong => delete.push(route.clone()),
            Verdict::Abandoned => abandoned.push(route.clone()),
        }
    }
    let create = missing_routes(&claims, &kept);
    let nodes = routed.iter().map(|(node, _)| (*node).clone()).collect();
    Differences { delete, abandoned, create, impossible: claims.impossible, nodes }
}

/// A Node that needs routes, and its instance in this cloud.
type Routed<'n> = (&'n Arc<CloudNodeFacts>, &'n ProviderId);

/// Returns the Nodes that need routes. If two Nodes want the same destination, the older one has
/// it, so it comes first.
fn routed_nodes(nodes: &[RoutedNode]) -> Vec<Routed<'_>> {
    let mut routed: Vec<Routed<'_>> = nodes
        .iter()
        .filter(|routed| !routed.node.pod_cidrs.is_empty())
        .filter_map(|routed| Some((&routed.node, routed.recorded.ours()?)))
        .collect();
    routed.sort_by(|(a, _), (b, _)| (a.created, &a.name).cmp(&(b.created, &b.name)));
    routed
}

/// The pod networks of the Nodes that need routes.
#[derive(Default)]
struct Claims<'n> {
    by_destination: BTreeMap<Cidr, Claim<'n>>,
    /// The instances of Nodes with readable pod networks. A pod network that cannot be read may be
    /// the destination of an existing route in another spelling.
    readable: BTreeSet<&'n ProviderId>,
    /// Whether a pod network cannot be read.
    has_unreadable: bool,
    impossible: Vec<Impossible>,
}

/// A pod network of a Node.
struct Claim<'n> {
    node: &'n Arc<CloudNodeFacts>,
    instance: &'n ProviderId,
    addresses: Vec<IpAddr>,
    /// The destination as the Node spells it.
    text: &'n str,
}

impl<'n> Claims<'n> {
    fn of(routed: &[Routed<'n>]) -> Self {
        let mut claims = Self::default();
        for (node, instance) in routed {
            if claims.add(node, instance) {
                claims.readable.insert(instance);
            } else {
                claims.has_unreadable = true;
            }
        }
        claims
    }

    /// Adds the pod networks of a Node. Returns whether all of them can be read.
    fn add(&mut self, node: &'n Arc<CloudNodeFacts>, instance: &'n ProviderId) -> bool {
        let mut is_readable = true;
        let addresses = internal_ips(node.addresses());
        for text in &node.pod_cidrs {
            let parsed = text.parse::<Cidr>().ok();
            is_readable &= parsed.is_some();
            match parsed.filter(|destination| !self.by_destination.contains_key(destination)) {
                Some(destination) => {
                    let claim = Claim { node, instance, addresses: addresses.clone(), text };
                    self.by_destination.insert(destination, claim);
                }
                None => {
                    let (node, destination) = (node.clone(), text.clone());
                    self.impossible.push(Impossible { node, destination });
                }
            }
        }
        is_readable
    }
}

/// Returns the pod networks of the Nodes without an instance of this cloud.
fn networks_of_others(nodes: &[RoutedNode]) -> BTreeSet<Cidr> {
    let others = nodes.iter().filter(|routed| routed.recorded.ours().is_none());
    others.flat_map(|routed| &routed.node.pod_cidrs).filter_map(|text| text.parse().ok()).collect()
}

/// The routes whose destination is a network.
fn readable_routes(table: &RouteTable) -> impl Iterator<Item = (&Route, Cidr)> {
    table.routes.iter().filter_map(|route| Some((route, route.destination.parse().ok()?)))
}

/// Returns the first route of each destination that serves the Node which wants it.
fn kept_routes<'t>(
    options: &Options,
    table: &'t RouteTable,
    claims: &Claims<'_>,
) -> BTreeMap<Cidr, &'t Route> {
    let mut kept = BTreeMap::new();
    for (route, destination) in readable_routes(table) {
        let claim = claims.by_destination.get(&destination);
        if claim.is_some_and(|claim| serves(options, table, claim, route)) {
            kept.entry(destination).or_insert(route);
        }
    }
    kept
}

/// Returns the routes that the Nodes lack.
fn missing_routes(claims: &Claims<'_>, kept: &BTreeMap<Cidr, &Route>) -> Vec<Missing> {
    let missing = claims.by_destination.iter().filter(|(destination, _)| !kept.contains_key(destination));
    let create = missing.map(|(_, claim)| {
        let spec = RouteSpec {
            destination: claim.text.to_owned(),
            instance: claim.instance.clone(),
            addresses: claim.addresses.clone(),
        };
        Missing { node: claim.node.clone(), spec }
    });
    create.collect()
}

/// The facts that decide about an existing route.
struct Judge<'s> {
    options: &'s Options,
    table: &'s RouteTable,
    claims: &'s Claims<'s>,
    kept: &'s BTreeMap<Cidr, &'s Route>,
    /// The pod networks of Nodes without an instance of this cloud.
    of_others: BTreeSet<Cidr>,
    /// The routes of Nodes that are or were in another cloud.
    elsewhere: BTreeSet<RouteChange>,
}

enum Verdict {
    Stays,
    Wrong,
    Abandoned,
}

impl Judge<'_> {
    fn verdict(&self, route: &Route, destination: &Cidr) -> Verdict {
        let claim = self.claims.by_destination.get(destination);
        let is_kept = self.kept.get(destination).is_some_and(|kept| std::ptr::eq(*kept, route));
        let is_of_others = claim.is_none() && self.of_others.contains(destination);
        if is_kept || is_of_others {
            return Verdict::Stays;
        }
        let is_in_cluster = self.options.cluster.iter().any(|cluster| cluster.touches(destination));
        let is_wrong = match (&route.instance, claim) {
            // The pod network of a Node is ours, even if the flag does not contain it. The route of
            // a server that exists is deleted only for a route that the cloud will accept: the Node
            // may be restored, and its server deleted.
            (Some(instance), Some(claim)) => instance == claim.instance || is_accepted(self.table, claim),
            // A Node that has just registered again has no addresses yet.
            (None, Some(claim)) => !claim.addresses.is_empty(),
            (Some(instance), None) => is_in_cluster && self.has_all_routes(instance),
            (None, None) if is_in_cluster && self.may_be_abandoned(route) => return Verdict::Abandoned,
            (None, None) => false,
        };
        if is_wrong { Verdict::Wrong } else { Verdict::Stays }
    }

    /// Whether each pod network of the Node of an instance has its route, or can get it.
    fn has_all_routes(&self, instance: &ProviderId) -> bool {
        let all = self.claims.by_destination.iter();
        let mut own = all.filter(|(_, claim)| claim.instance == instance);
        self.claims.readable.contains(instance)
            && own.all(|(destination, claim)| {
                self.kept.contains_key(destination) || is_accepted(self.table, claim)
            })
    }

    /// Whether a route without an instance and without a Node may be a leftover of the cluster.
    /// Without a Node of this cloud, nothing suggests that the routes belong to the cluster.
    fn may_be_abandoned(&self, route: &Route) -> bool {
        let is_of_a_user = self.elsewhere.contains(&RouteChange::delete(route));
        !is_of_a_user && !self.claims.by_destination.is_empty() && !self.claims.has_unreadable
    }
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
