//! The built-in controllers of both clusters. A restore of a cluster stops and starts them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ApiResource;
use machinist_api::{Machine, MachineDeployment, MachineSet};
use machinist_apiserver::{Identity, Server};
use machinist_kcm::{CaPair, GcResource};
use tokio::task::JoinSet;

use super::NAMESPACE;
use super::simulated::authority;
use crate::actor::Side;
use crate::lab::RunClock;
use crate::seed::Seed;

/// The built-in controllers of both clusters.
pub(super) struct BuiltIn {
    servers: BTreeMap<Side, Server>,
    clock: RunClock,
    seed: Seed,
    running: Mutex<BTreeMap<Side, JoinSet<()>>>,
}

impl BuiltIn {
    /// Controllers that do not run yet.
    pub(super) fn new(servers: BTreeMap<Side, Server>, clock: RunClock, seed: Seed) -> Self {
        Self { servers, clock, seed, running: Mutex::default() }
    }

    /// Starts the controllers of a cluster with no memory.
    pub(super) fn start(&self, side: Side) {
        let mut tasks = JoinSet::new();
        tasks.spawn(run(side, self.servers[&side].clone(), self.clock, self.seed));
        self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(side, tasks);
    }

    /// Stops the controllers of a cluster.
    pub(super) async fn stop(&self, side: Side) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&side);
        if let Some(mut tasks) = running {
            tasks.shutdown().await;
        }
    }
}

async fn run(side: Side, server: Server, clock: RunClock, seed: Seed) {
    let service = server.service_as(Identity::admin()).with_user_agent("kube-controller-manager");
    let client = kube::Client::new(service, NAMESPACE);
    let mut config = machinist_kcm::KcmConfig::new(Arc::new(clock));
    let ca = authority();
    config.ca = CaPair::from_pem(ca.certificate_pem(), ca.key_pem()).ok();
    config.seed = seed.stream("kcm").bits();
    config.gc_resources = collected(side);
    // The controllers end only when a watch can never succeed. The scenario then fails because
    // their work is missing.
    let Err(fatal) = machinist_kcm::run(client, config).await;
    tracing::error!(error = %fatal, "The built-in controllers ended");
}

/// The kinds whose objects have owners or are owners in a run. Watches of kinds without objects,
/// and attempts to list kinds that a server does not serve, would take most of the time of a run.
fn collected(side: Side) -> Vec<GcResource> {
    match side {
        Side::Control => vec![
            GcResource::namespaced(ApiResource::erase::<Machine>(&())),
            GcResource::namespaced(ApiResource::erase::<MachineSet>(&())),
            GcResource::namespaced(ApiResource::erase::<MachineDeployment>(&())),
        ],
        Side::Target => vec![
            GcResource::cluster_scoped(ApiResource::erase::<Node>(&())),
            GcResource::namespaced(ApiResource::erase::<Lease>(&())),
            GcResource::namespaced(ApiResource::erase::<Pod>(&())),
        ],
    }
}
