//! The planner: compares a balancer with the wanted state and lists the differences. Pure.
//!
//! The order is that of hcloud-cloud-controller-manager, with one exception: services are deleted
//! before others are added, because a type of balancer limits their number.

use std::collections::BTreeSet;
use std::net::IpAddr;

use machinist_instance::BalancerNote;

use super::SERVICE_UID;
use super::step::{OldTarget, Step};
use super::wanted::{Wanted, WantedTarget};
use crate::model::{BalancerIp, BalancerTargetModel, LoadBalancer, TargetKind};

/// The differences between a balancer and the wanted state.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    pub(crate) notes: Vec<BalancerNote>,
}

/// Lists the differences. Servers in `skipped` are not added, because the cloud refused them
/// before.
pub(crate) fn plan(shown: &LoadBalancer, wanted: &Wanted, skipped: &BTreeSet<i64>) -> Plan {
    let mut steps: Vec<Step> = [
        name_and_label(shown, wanted),
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
        return Plan { steps, notes: Vec::new() };
    }
    steps.extend(services(shown, wanted));
    let (targets, notes) = targets(shown, wanted, skipped);
    steps.extend(targets);
    Plan { steps, notes }
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

fn name_and_label(shown: &LoadBalancer, wanted: &Wanted) -> Option<Step> {
    let has_label = shown.labels.get(SERVICE_UID).map(String::as_str) == Some(wanted.key.as_str());
    if shown.name == wanted.name && has_label {
        return None;
    }
    // A request replaces all labels, so it contains those of other programs, too.
    let mut labels = shown.labels.clone();
    labels.insert(SERVICE_UID.to_owned(), wanted.key.as_str().to_owned());
    Some(Step::Update { name: wanted.name.clone(), labels })
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
        match shown.services.iter().find(|it| it.listen_port == listen_port) {
            None => steps.push(Step::AddService { listen_port, body: service.body() }),
            Some(shown) if service.matches(shown) => {}
            Some(shown) => {
                steps.push(Step::UpdateService { listen_port, body: service.body_of_update(shown) });
            }
        }
    }
    steps
}

/// Removes targets first, so that the balancer has room for the others.
fn targets(shown: &LoadBalancer, wanted: &Wanted, skipped: &BTreeSet<i64>) -> (Vec<Step>, Vec<BalancerNote>) {
    let use_private_ip = wanted.settings.use_private_ip;
    let is_kept = |target: &BalancerTargetModel| match (target.kind, &target.server) {
        (TargetKind::Server, Some(server)) => {
            target.use_private_ip == use_private_ip && wanted.targets.iter().any(|it| it.server == server.id)
        }
        (TargetKind::Ip, _) => wanted.has_robot_targets,
        // Another program manages selectors.
        (TargetKind::Server | TargetKind::LabelSelector | TargetKind::Unknown, _) => true,
    };
    let mut steps = Vec::new();
    let mut present = BTreeSet::new();
    let mut count = 0;
    for target in &shown.targets {
        if is_kept(target) {
            present.extend(target.server.map(|server| server.id));
            count += 1;
        } else if let Some(old) = old_target(target) {
            steps.push(Step::RemoveTarget(old));
        }
    }
    let most = shown.load_balancer_type.max_targets.unwrap_or(usize::MAX);
    let mut notes = Vec::new();
    let is_new =
        |target: &&WantedTarget| !present.contains(&target.server) && !skipped.contains(&target.server);
    for target in wanted.targets.iter().filter(is_new) {
        if count < most {
            count += 1;
            steps.push(Step::AddTarget { target: target.clone(), use_private_ip });
        } else {
            notes.push(target.beyond_limit());
        }
    }
    (steps, notes)
}

fn old_target(target: &BalancerTargetModel) -> Option<OldTarget> {
    let server = target.server.map(|server| OldTarget::Server(server.id));
    server.or_else(|| target.ip.as_ref().map(|ip| OldTarget::Ip(ip.ip.clone())))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
