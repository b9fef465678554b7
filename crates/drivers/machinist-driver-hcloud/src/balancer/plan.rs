//! The planner: compares a balancer with the wanted state and lists the differences. Pure.
//!
//! The order is as in hcloud-cloud-controller-manager, with one exception: services are deleted
//! before others are added, because a type of balancer limits their number.

use std::net::IpAddr;

use machinist_instance::NameClaim;

use super::SERVICE_UID;
use super::step::Step;
use super::targets::{Known, Scope, TURNED, TargetPlan, targets};
use super::wanted::Wanted;
use crate::model::{BalancerIp, LoadBalancer};

/// The differences between a balancer and the wanted state.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    /// The changes of settings and targets, in order.
    pub(crate) steps: Vec<Step>,
    /// The differences of the targets that are not a step.
    pub(crate) targets: TargetPlan,
}

/// Lists the differences.
pub(crate) fn plan(shown: &LoadBalancer, wanted: &Wanted, scope: Scope, known: Known<'_>) -> Plan {
    if scope == Scope::Targets {
        let (steps, targets) = targets(shown, wanted, scope, known);
        return Plan { steps, targets };
    }
    let (of_targets, targets) = targets(shown, wanted, scope, known);
    let mut steps: Vec<Step> = [
        name_and_label(shown, wanted, targets.is_unfinished),
        dns_ptr(&shown.public_net.ipv4, wanted.settings.ipv4_rdns.as_ref()),
        dns_ptr(&shown.public_net.ipv6, wanted.settings.ipv6_rdns.as_ref()),
        algorithm(shown, wanted),
        balancer_type(shown, wanted),
    ]
    .into_iter()
    .flatten()
    .collect();
    steps.extend(networks(shown, wanted));
    steps.extend(public_interface(shown, wanted));
    // Detaching removes targets with a private address, so the rest is planned after the next read.
    if steps.iter().any(|step| matches!(step, Step::DetachFromNetwork(_))) {
        return Plan { steps, targets: TargetPlan::default() };
    }
    steps.extend(services(shown, wanted));
    steps.extend(of_targets);
    Plan { steps, targets }
}

/// The action that the cloud has not finished, as far as the balancer itself shows one.
pub(crate) fn unfinished(shown: &LoadBalancer) -> Option<&'static str> {
    let public = &shown.public_net;
    if public.enabled && public.ipv4.ip.is_none() && public.ipv6.ip.is_none() {
        return Some("create_load_balancer");
    }
    let is_attaching = shown.private_net.iter().any(|net| net.ip.is_none());
    is_attaching.then_some("attach_to_network")
}

fn name_and_label(shown: &LoadBalancer, wanted: &Wanted, is_turning: bool) -> Option<Step> {
    let has_label = shown.labels.get(SERVICE_UID).map(String::as_str) == Some(wanted.key.as_str());
    let keeps_name = wanted.keeps_name || is_held(shown, wanted);
    let name = if keeps_name { &shown.name } else { &wanted.name };
    if shown.name == *name && has_label && (is_turning || !shown.labels.contains_key(TURNED)) {
        return None;
    }
    // A request replaces all labels, so it contains the labels of other programs, too.
    let mut labels = shown.labels.clone();
    labels.insert(SERVICE_UID.to_owned(), wanted.key.as_str().to_owned());
    // An invitation ends with the adoption.
    labels.remove(NameClaim::INVITATION);
    if !is_turning {
        labels.remove(TURNED);
    }
    Some(Step::Update { name: name.clone(), labels })
}

/// Whether the balancer keeps the name of its creation for now: another creation may still take
/// effect, and the cloud refuses it only because of that name.
fn is_held(shown: &LoadBalancer, wanted: &Wanted) -> bool {
    let is_young = |before| shown.created.is_none_or(|created| before <= created);
    shown.name == wanted.first_name && wanted.claim.renames_if_created_before.is_some_and(is_young)
}

fn dns_ptr(shown: &BalancerIp, wanted: Option<&String>) -> Option<Step> {
    let (ip, wanted) = (shown.ip?, wanted?);
    (shown.dns_ptr.as_ref() != Some(wanted)).then(|| Step::ChangeDnsPtr { ip, dns_ptr: wanted.clone() })
}

fn algorithm(shown: &LoadBalancer, wanted: &Wanted) -> Option<Step> {
    let wanted = wanted.settings.algorithm?;
    (shown.algorithm.kind != wanted.as_str()).then_some(Step::ChangeAlgorithm(wanted))
}

fn balancer_type(shown: &LoadBalancer, wanted: &Wanted) -> Option<Step> {
    let wanted = wanted.settings.balancer_type.as_ref()?;
    (shown.load_balancer_type.name != *wanted).then(|| Step::ChangeType(wanted.clone()))
}

/// Detaches from networks other than the configured one, and attaches to the configured one with
/// the wanted address.
fn networks(shown: &LoadBalancer, wanted: &Wanted) -> Vec<Step> {
    let Some(network) = wanted.network else { return Vec::new() };
    let wanted_ip = wanted.settings.private_ipv4;
    let has_wanted_ip =
        |ip: Option<IpAddr>| ip.is_none() || wanted_ip.is_none_or(|wanted| ip == Some(IpAddr::from(wanted)));
    let (kept, others): (Vec<_>, Vec<_>) =
        shown.private_net.iter().partition(|net| net.network == network && has_wanted_ip(net.ip));
    let mut steps: Vec<Step> = others.iter().map(|net| Step::DetachFromNetwork(net.network)).collect();
    if kept.is_empty() {
        steps.push(Step::AttachToNetwork {
            network,
            ip: wanted_ip,
            ip_range: wanted.settings.private_subnet_ip_range.clone(),
        });
    }
    steps
}

fn public_interface(shown: &LoadBalancer, wanted: &Wanted) -> Option<Step> {
    match (wanted.settings.disable_public_network, shown.public_net.enabled) {
        (Some(true), true) => Some(Step::DisablePublicInterface),
        (Some(false), false) => Some(Step::EnablePublicInterface),
        (Some(true), false) | (Some(false), true) | (None, _) => None,
    }
}

fn services(shown: &LoadBalancer, wanted: &Wanted) -> Vec<Step> {
    let is_wanted = |port: u16| wanted.services.iter().any(|service| service.listen_port == port);
    let unwanted = shown.services.iter().map(|service| service.listen_port).filter(|port| !is_wanted(*port));
    let mut steps: Vec<Step> = unwanted.map(Step::DeleteService).collect();
    for service in &wanted.services {
        let listen_port = service.listen_port;
        match shown.services.iter().find(|service| service.listen_port == listen_port) {
            None => steps.push(Step::AddService { listen_port, body: service.body() }),
            Some(shown) if service.matches(shown) => {}
            Some(shown) => {
                steps.push(Step::UpdateService { listen_port, body: service.body_of_update(shown) });
            }
        }
    }
    steps
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
