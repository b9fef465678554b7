//! The long faults that are not on a connection: a process that does not run, servers without
//! power, an account without requests, and other writers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use machinist_apiserver::Server;
use machinist_standin_hcloud::Standin;
use tokio::time::Instant;

use super::invariants::SERVICES;
use super::process::{CloudController, PROJECT};
use super::settled::SERVICE_UID;
use crate::actor::Side;
use crate::faults::{LongFault, LongKind};
use crate::invariants::{Id, outage};
use crate::lab::Lab;
use crate::seed::Seed;
use crate::sight::Seen;
use crate::world::marks::Marks;

/// The parts of a world that long faults change.
pub(super) struct Elements {
    pub(super) lab: Arc<Lab>,
    pub(super) server: Server,
    pub(super) standin: Standin,
    pub(super) controller: Arc<CloudController>,
    pub(super) seed: Seed,
}

/// Waits for the fault, and lets it happen.
pub(super) async fn happen(elements: Elements, fault: LongFault) {
    let lab = elements.lab.clone();
    let (shared, server, standin) = (lab.clone(), elements.server.clone(), elements.standin.clone());
    lab.endure(fault, "", |until| async move {
        match fault.kind {
            LongKind::Suspended => elements.controller.lives().suspend_until(until).await,
            LongKind::Down => elements.controller.lives().down_until(until).await,
            LongKind::ZoneOut => elements.cut_power(fault, until).await,
            LongKind::RateLimit => elements.use_up(until).await,
            LongKind::ForeignMarks => {
                let servers = BTreeMap::from([(Side::Target, elements.server.clone())]);
                Marks { lab: elements.lab.clone(), servers, seed: elements.seed }
                    .set_until(fault, until)
                    .await;
            }
            // The connections ask the plan.
            LongKind::ServerAway
            | LongKind::SilentWatch
            | LongKind::CloudAway
            | LongKind::LateWrites
            | LongKind::NoStock
            | LongKind::RefusedEvictions
            | LongKind::RefusedTargets
            | LongKind::FinalizersOff
            | LongKind::ControlRestored
            | LongKind::TargetRestored
            | LongKind::SecondReplica
            | LongKind::Crowd => tokio::time::sleep_until(until).await,
        }
    })
    .await;
    if fault.kind == LongKind::CloudAway && outage::is_undisturbed(fault, shared.plan.profile()) {
        let waiting = unserved(&server, &standin);
        tokio::time::sleep(outage::GOES_ON_WITHIN).await;
        let still = unserved(&server, &standin);
        for name in waiting.intersection(&still) {
            let within = outage::GOES_ON_WITHIN;
            shared.history.violate(
                Id::L8,
                format!("the cloud is back for {within:?}, and Service {name} has no load balancer"),
            );
        }
    }
}

/// The Services without a load balancer.
fn unserved(server: &Server, standin: &Standin) -> BTreeSet<String> {
    let cloud = standin.dump();
    let has_balancer = |uid: &str| {
        cloud.load_balancers.values().any(|it| it.labels.get(SERVICE_UID).is_some_and(|label| label == uid))
    };
    let services = server.snapshot(SERVICES);
    let seen = services.iter().map(|service| Seen(service.value()));
    seen.filter(|service| {
        let wants_one = service.text("/spec/type") == "LoadBalancer" && !service.is_deleting();
        wants_one && !has_balancer(service.uid())
    })
    .map(|service| service.name().to_owned())
    .collect()
}

impl Elements {
    async fn cut_power(&self, fault: LongFault, until: Instant) {
        let servers = self.standin.servers_ever();
        let hit = servers.iter().filter(|server| server.is_alive() && fault.is_in_zone(&server.name));
        let hit: Vec<i64> = hit.map(|server| server.id).collect();
        for id in &hit {
            // The server may have been deleted in this instant.
            let _ = self.standin.power_off(*id);
        }
        tokio::time::sleep_until(until).await;
        for id in &hit {
            let _ = self.standin.power_on(*id);
        }
    }

    /// Other users of the account use up its requests again and again.
    async fn use_up(&self, until: Instant) {
        const PAUSE: Duration = Duration::from_secs(60);
        let limit = self.standin.settings().requests_per_hour.get();
        while Instant::now() < until {
            self.standin.set_rate(PROJECT, limit, 0);
            tokio::time::sleep(PAUSE).await;
        }
        self.standin.set_rate(PROJECT, limit, limit);
    }
}
