//! Compares the targets of a balancer with the wanted ones. Pure.
//!
//! A target whose sort of address changes must be removed before it is added again. So one target
//! that carries traffic is turned at a time, and the next one only when the balancer shows the last
//! one as healthy as it was. Targets that carry no traffic are turned at once. A label of the
//! balancer has the target that was turned last, so that a process that takes over continues: the
//! health alone does not distinguish a target that is not healthy yet from a target without pods.
//!
//! A target that was removed for this, and that the cloud rejects with its new address, gets its
//! old one back.

use std::collections::BTreeSet;
use std::fmt;

use machinist_instance::{SkipCause, SkippedTarget};
use tokio::time::Instant;

use super::reach::{Skip, Skips};
use super::step::{OldTarget, Step};
use super::wanted::{Wanted, WantedTarget};
use crate::label::{self, Labels};
use crate::model::{BalancerTargetModel, LoadBalancer, TargetHealth, TargetKind};

/// The part of a balancer that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Everything,
    /// The targets follow the Nodes, and the settings stay.
    Targets,
}

/// The facts that the driver knows in addition to the balancer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known<'a> {
    /// The targets that the cloud would reject.
    pub(crate) skips: &'a Skips,
    /// The target that got another sort of address last.
    pub(crate) turned: Option<&'a Turned>,
    /// The servers that were targets, and were removed to get another sort of address.
    pub(crate) detached: &'a BTreeSet<i64>,
    /// The targets whose wanted sort of address the cloud has refused not long ago, although its
    /// data do not explain it. While they carry traffic, they are not removed for another try.
    pub(crate) refused_turns: &'a Skips,
}

/// The differences of the targets, except the targets to remove and to add.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct TargetPlan {
    /// The targets that get another sort of address now.
    pub(crate) turns: Vec<Turn>,
    /// Whether targets wait until the last one is healthy.
    pub(crate) is_waiting: bool,
    /// Whether targets that carry traffic still have the old sort of address, or the last one is
    /// missing.
    pub(crate) is_unfinished: bool,
    /// The wanted targets that the balancer lacks, or has with another sort of address.
    pub(crate) skipped: Vec<SkippedTarget>,
}

/// A target that gets another sort of address.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Turn {
    pub(crate) target: WantedTarget,
    /// The ports on which the target is healthy now.
    pub(crate) healthy: Vec<u16>,
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target: WantedTarget { server, node }, healthy: _ } = self;
        write!(f, "remove_target and add_target server {server} (Node {node})")
    }
}

/// A target with traffic whose other sort of address the cloud has refused.
#[derive(Debug)]
pub(crate) struct RefusedTurn {
    pub(crate) balancer: i64,
    pub(crate) server: i64,
    /// Whether the refused address is private.
    pub(crate) is_private: bool,
    /// When the cloud refused it.
    pub(crate) at: Instant,
    /// The refusal, for users.
    pub(crate) skip: Skip,
}

/// The target that got another sort of address last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Turned {
    pub(crate) server: i64,
    /// The ports on which the target was healthy before.
    pub(crate) healthy: Vec<u16>,
}

/// The label with the target that got another sort of address last: `SERVER.PORT.PORT`.
pub(crate) const TURNED: &str = "machinist.dev/turned-target";

impl Turned {
    /// Reads the label. A text that another program wrote counts for nothing.
    pub(crate) fn of(labels: &Labels) -> Option<Self> {
        let (server, ports) = match labels.get(TURNED)?.split_once('.') {
            Some((server, ports)) => (server, Some(ports)),
            None => (labels.get(TURNED)?.as_str(), None),
        };
        let ports = ports.into_iter().flat_map(|ports| ports.split('.'));
        let healthy = ports.map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Self { server: server.parse().ok()?, healthy })
    }

    /// The value of the label, with as many ports as it has room for.
    pub(crate) fn label(&self) -> String {
        let mut text = self.server.to_string();
        for port in self.healthy.iter().map(|port| format!(".{port}")) {
            if label::LONGEST < text.len() + port.len() {
                break;
            }
            text.push_str(&port);
        }
        text
    }
}

/// Lists the steps. Targets are removed first, so that the balancer has room for the others.
pub(crate) fn targets(
    shown: &LoadBalancer,
    wanted: &Wanted,
    scope: Scope,
    known: Known<'_>,
) -> (Vec<Step>, TargetPlan) {
    let use_private_ip = wanted.settings.use_private_ip;
    let mut steps = Vec::new();
    let mut plan = TargetPlan::default();
    let mut present = BTreeSet::new();
    let mut turning = Vec::new();
    // If the cloud rejects the new sort of address of one target, it may reject all.
    let mut is_stopped = known.turned.is_some_and(|turned| known.skips.contains_key(&turned.server));
    let mut count = 0;
    for target in &shown.targets {
        match sort(target, wanted, scope) {
            Sort::Kept => present.extend(target.server.map(|server| server.id)),
            Sort::Turning(wanted) => {
                present.insert(wanted.server);
                match known.skips.get(&wanted.server) {
                    Some(skip) => {
                        is_stopped |= skip.cause == SkipCause::Refused;
                        plan.skipped.push(wanted.skipped(skip.clone()));
                    }
                    None => turning.push((target, wanted)),
                }
            }
            Sort::Old(old) => {
                steps.push(Step::RemoveTarget(old));
                continue;
            }
        }
        count += 1;
    }
    let most = shown.load_balancer_type.max_targets.unwrap_or(usize::MAX);
    for target in wanted.targets.iter().filter(|target| !present.contains(&target.server)) {
        if let Some(skip) = known.skips.get(&target.server) {
            plan.skipped.push(target.skipped(skip.clone()));
            if known.detached.contains(&target.server) && count < most {
                count += 1;
                steps.push(Step::AddTarget { target: target.clone(), use_private_ip: !use_private_ip });
            }
        } else if count < most {
            count += 1;
            steps.push(Step::AddTarget { target: target.clone(), use_private_ip });
        } else {
            plan.skipped.push(target.skipped(full()));
        }
    }
    let (carrying, idle): (Vec<_>, Vec<_>) =
        turning.into_iter().partition(|(target, _)| !healthy_ports(target).is_empty());
    let (held, carrying): (Vec<_>, Vec<_>) =
        carrying.into_iter().partition(|(_, wanted)| known.refused_turns.contains_key(&wanted.server));
    for (_, wanted) in &held {
        let skip = known.refused_turns.get(&wanted.server).cloned();
        plan.skipped.extend(skip.map(|skip| wanted.skipped(skip)));
    }
    is_stopped |= !held.is_empty();
    let may_turn = !is_stopped && may_turn(shown, wanted, known.turned);
    let next = carrying.iter().take(usize::from(may_turn));
    plan.turns = idle
        .iter()
        .chain(next)
        .map(|(target, wanted)| Turn { target: (*wanted).clone(), healthy: healthy_ports(target) })
        .collect();
    plan.is_waiting = !is_stopped && !carrying.is_empty();
    let is_missing = |turned: &Turned| {
        let mut wanted = wanted.targets.iter();
        !present.contains(&turned.server) && wanted.any(|target| target.server == turned.server)
    };
    plan.is_unfinished = !carrying.is_empty() || known.turned.is_some_and(is_missing);
    (steps, plan)
}

/// Why a target beyond the limit of the balancer's type is left out.
pub(crate) fn full() -> Skip {
    let message = "the load balancer has the largest number of targets of its type; choose a larger type";
    Skip { cause: SkipCause::Full, message: message.to_owned() }
}

/// The decision about a target that the balancer has.
enum Sort<'a> {
    Kept,
    Turning(&'a WantedTarget),
    Old(OldTarget),
}

fn sort<'a>(target: &BalancerTargetModel, wanted: &'a Wanted, scope: Scope) -> Sort<'a> {
    match (target.kind, &target.server) {
        (TargetKind::Server, Some(server)) => {
            let has_wanted_address = target.use_private_ip == wanted.settings.use_private_ip;
            match wanted.targets.iter().find(|target| target.server == server.id) {
                None => Sort::Old(OldTarget::Server(server.id)),
                Some(_) if has_wanted_address || scope == Scope::Targets => Sort::Kept,
                Some(wanted) => Sort::Turning(wanted),
            }
        }
        (TargetKind::Ip, _) if scope == Scope::Everything && !wanted.keeps_ip_targets => match &target.ip {
            Some(ip) => Sort::Old(OldTarget::Ip(ip.ip.clone())),
            None => Sort::Kept,
        },
        // Another program manages selectors.
        (TargetKind::Ip | TargetKind::Server | TargetKind::LabelSelector | TargetKind::Unknown, _) => {
            Sort::Kept
        }
    }
}

fn healthy_ports(target: &BalancerTargetModel) -> Vec<u16> {
    let healthy = target.health_status.iter().filter(|health| health.is_healthy());
    healthy.map(|health| health.listen_port).collect()
}

/// Whether a target that carries traffic may get another sort of address: the last one is as
/// healthy as before, or there is none.
fn may_turn(shown: &LoadBalancer, wanted: &Wanted, turned: Option<&Turned>) -> bool {
    let is_wanted = |server: i64| wanted.targets.iter().any(|target| target.server == server);
    let of_wanted_sort = |target: &&BalancerTargetModel| {
        target.use_private_ip == wanted.settings.use_private_ip
            && target.server.is_some_and(|server| is_wanted(server.id))
    };
    let is_turned = |turned: &Turned| {
        let mut same = shown
            .targets
            .iter()
            .filter(|target| target.server.is_some_and(|server| server.id == turned.server));
        same.all(|target| of_wanted_sort(&target))
    };
    // A target that still has its old address was not removed.
    let turned = turned.filter(|turned| is_turned(turned));
    match turned {
        Some(turned) if is_wanted(turned.server) => {
            let mut done = shown.targets.iter().filter(of_wanted_sort);
            let shown_again =
                done.find(|target| target.server.is_some_and(|server| server.id == turned.server));
            let listens = |port: &u16| shown.services.iter().any(|service| service.listen_port == *port);
            shown_again.is_some_and(|target| {
                let mut ports = turned.healthy.iter().filter(|port| listens(port));
                ports.all(|port| is_healthy(&target.health_status, *port))
            })
        }
        // Its Node was deleted.
        Some(_) => true,
        // No target that carried traffic was turned.
        None => true,
    }
}

fn is_healthy(health: &[TargetHealth], port: u16) -> bool {
    health.iter().any(|health| health.listen_port == port && health.is_healthy())
}
