//! The long faults that are not on a connection: a process that does not run or runs twice, servers
//! without power, an account without requests, a cluster that is restored, and other writers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use machinist_apiserver::Server;
use machinist_standin_hcloud::Standin;
use serde_json::json;
use tokio::time::Instant;

use super::invariants::NAME;
use super::kubelets::Kubelets;
use super::process::{CloudController, PROJECT};
use super::project::{FINALIZER, SERVICE_UID};
use super::services::Services;
use super::stranger::Stranger;
use crate::actor::Side;
use crate::backup::{Backup, grow_old};
use crate::faults::{LongFault, LongKind};
use crate::invariants::{Id, outage};
use crate::lab::Lab;
use crate::seed::Seed;
use crate::sight::SERVICES;
use crate::sight::{LEASES, NODES, SeenObject};
use crate::world::marks::Marks;

/// The parts of a world that long faults change.
pub(super) struct Elements {
    pub(super) lab: Arc<Lab>,
    pub(super) server: Server,
    pub(super) standin: Standin,
    pub(super) controller: Arc<CloudController>,
    pub(super) kubelets: Kubelets,
    pub(super) services: Services,
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
            LongKind::FinalizersOff => {
                let Elements { lab, server, services, seed, .. } = elements;
                Stranger { lab, server, services, seed }.interfere_until(fault, until).await;
            }
            LongKind::TargetRestored => elements.restore(fault, until).await,
            LongKind::SecondReplica => elements.controller.replicate_until(fault, until).await,
            LongKind::Crowd => elements.crowd(fault, until).await,
            LongKind::Restarts => elements.controller.lives().restart_until(elements.seed, fault, until).await,
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
            // Nodes and Services are in one cluster.
            | LongKind::ControlRestored => tokio::time::sleep_until(until).await,
        }
    })
    .await;
    if fault.kind == LongKind::CloudAway && outage::is_undisturbed(fault, shared.plan.profile()) {
        let waiting = unserved(&server, &standin);
        tokio::time::sleep(outage::RESUMES_WITHIN).await;
        let still = unserved(&server, &standin);
        for name in waiting.intersection(&still) {
            let within = outage::RESUMES_WITHIN;
            shared.history.violate(
                Id::L8,
                format!("the cloud is back for {within:?}, and Service {name} has no load balancer"),
            );
        }
    }
}

/// C11: runs forever, and checks that a Service that is being deleted is released although the
/// process is killed again and again. Only time without another disturbance counts.
pub(super) async fn watch_releases(lab: Arc<Lab>, server: Server) {
    const LOOK_EVERY: Duration = Duration::from_secs(20);
    /// The wait for calls of earlier lives takes 190 s, and a life of less than a minute must begin
    /// after it.
    const RELEASED_WITHIN: Duration = Duration::from_secs(6 * 60);
    let began = lab.plan.beginning().await;
    let mut deleting: BTreeMap<String, Instant> = BTreeMap::new();
    loop {
        let looked = Instant::now();
        tokio::time::sleep(LOOK_EVERY).await;
        let is_calm = lab.plan.was_calm_since(began, looked, |fault| fault.kind == LongKind::Restarts);
        let mut still = BTreeMap::new();
        for service in server.snapshot(SERVICES) {
            let service = SeenObject(service.value());
            let only_ours = matches!(service.list("/metadata/finalizers"), [only] if only == FINALIZER);
            if !service.is_deleting() || !only_ours {
                continue;
            }
            let known = deleting.get(service.uid()).copied().filter(|_| is_calm);
            let since = known.unwrap_or_else(Instant::now);
            still.insert(service.uid().to_owned(), since);
            if RELEASED_WITHIN <= since.elapsed() {
                let name = service.name();
                lab.history.violate(
                    Id::C11,
                    format!("Service {name} is being deleted for {RELEASED_WITHIN:?}, and is not released"),
                );
            }
        }
        deleting = still;
    }
}

/// The Services without a load balancer that did not choose a name, which another one may have.
fn unserved(server: &Server, standin: &Standin) -> BTreeSet<String> {
    let cloud = standin.dump();
    let has_balancer = |uid: &str| {
        cloud
            .load_balancers
            .values()
            .any(|balancer| balancer.labels.get(SERVICE_UID).is_some_and(|label| label == uid))
    };
    let services = server.snapshot(SERVICES);
    let seen = services.iter().map(|service| SeenObject(service.value()));
    seen.filter(|service| {
        let is_named = !service.annotation(NAME).is_empty();
        let wants_one = service.text("/spec/type") == "LoadBalancer" && !service.is_deleting() && !is_named;
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

    /// Restores the cluster from a backup. Then a person restarts the kubelets, and users repeat
    /// their requests.
    async fn restore(&self, fault: LongFault, until: Instant) {
        const TABLES: [&str; 3] = [NODES, SERVICES, LEASES];
        let Self { lab, server, controller, seed, .. } = self;
        let backup = Backup::of(server, &TABLES);
        lab.history.note("a backup of the cluster is made");
        let age = grow_old(*seed, fault, |until| controller.lives().hold_until(until)).await;
        lab.history.note(format!("the cluster is restored to its state {age:?} before the stop"));
        backup.restore(server, &Backup::of(server, &TABLES), lab).await;
        self.kubelets.restart();
        tokio::spawn(self.services.clone().repeat());
        tokio::time::sleep_until(until).await;
    }

    /// Another user creates many Services while the account has few requests left, and deletes them
    /// before the end.
    async fn crowd(&self, fault: LongFault, until: Instant) {
        const FEWEST: u64 = 8;
        const MORE: u64 = 24;
        let names = (0..FEWEST + fault.pick % MORE).map(|number| format!("crowd-{number}"));
        let names: Vec<String> = names.collect();
        let limit = self.standin.settings().requests_per_hour.get();
        self.standin.set_rate(PROJECT, limit, 0);
        for name in &names {
            // A name that is taken is another crowd of the same run.
            let _ = self.services.create(name, json!({})).await;
        }
        tokio::time::sleep_until(until - fault.lasts / 3).await;
        for name in &names {
            let _ = self.services.delete(name).await;
        }
        tokio::time::sleep_until(until).await;
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
