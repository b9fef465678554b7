//! The measured system: a management cluster, a workload cluster, an engine and the provider.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::BoxFuture;
use kube::Client;
use kube::config::Kubeconfig;
use machinist_apiserver::{Commit, Subscription};
use machinist_controllers::capi::{
    CapiOptions, CapiProvider, CoreApi, DockerOptions, Running, Serves, WorkloadClusters,
};
use machinist_controllers::{Clients, ProcessOptions};
use machinist_instance::Error;
use machinist_standin_docker::{Engine, Speed};
use serde_json::Value;
use tokio::time::Instant;

use super::core::{Cluster, install_kinds};
use crate::embedded::{EmbeddedServer, RequestsOf};
use crate::progress;
use crate::requests::Counts;

/// User-Agent of the measured program.
const PROVIDER: &str = "machinist-capi-docker";
/// User-Agent of the core controllers.
const CORE: &str = "core-controllers";
/// User-Agent of the kubelets.
const KUBELET: &str = "kubelet";
const DOCKER_MACHINES: &str = "dockermachines.infrastructure.cluster.x-k8s.io";

/// All parts of the measured system. Dropping it ends them.
pub(super) struct MeasuredContainers {
    /// Client of the core controllers.
    pub(super) core: Client,
    /// Client of the kubelets.
    pub(super) kubelets: Client,
    engine: Engine,
    commits: Subscription<Arc<Commit>>,
    of_management: RequestsOf,
    of_workload: RequestsOf,
    requests: Requests,
    pub(super) provider: Running,
}

/// Requests of the provider, as the API servers recorded them.
#[derive(Debug, Clone, Default)]
pub(super) struct Requests {
    pub(super) writes: Counts,
    pub(super) reads: Counts,
    /// Reads and writes in the workload cluster.
    pub(super) in_workload: Counts,
}

/// The times of the machines.
pub(super) struct Provisioned {
    /// From the first DockerMachine until the last one was bootstrapped.
    pub(super) took: Duration,
    /// From the creation of each DockerMachine until it was provisioned.
    pub(super) waits: Vec<Duration>,
}

impl MeasuredContainers {
    /// Creates the servers and starts the provider.
    pub(super) async fn new() -> Result<Self> {
        let (management, workload) = (EmbeddedServer::new(), EmbeddedServer::new());
        let core = management.client(CORE);
        install_kinds(&core).await?;
        let engine = Engine::with_speed("provider", Speed::WORKSTATION);
        let mut options = DockerOptions::new(Arc::new(engine.clone()));
        options.workloads = Arc::new(InProcess(workload.clone()));
        let options = CapiOptions::new(Serves::Docker(options), CoreApi::Beta2);
        let client = management.client(PROVIDER);
        let clients = Clients { control: client.clone(), target: client };
        let provider = CapiProvider::start(clients, ProcessOptions::new("", "capi-docker"), options, None);
        Ok(Self {
            core,
            kubelets: workload.client(KUBELET),
            engine,
            commits: management.server.commits(),
            of_management: management.requests_of(PROVIDER),
            of_workload: workload.requests_of(PROVIDER),
            requests: Requests::default(),
            provider,
        })
    }

    /// Creates the DockerMachines, and waits until each is provisioned and bootstrapped.
    pub(super) async fn provision(&mut self, cluster: &Cluster) -> Result<Provisioned> {
        let began = Instant::now();
        let commits = &mut self.commits;
        let followed = async {
            let mut times = Times::default();
            while times.bootstrapped < cluster.len() {
                let commit = commits.next().await.context("the API server stopped")?;
                times.take(&commit);
            }
            anyhow::Ok(times.waits)
        };
        let ((), waits) = tokio::try_join!(cluster.create_infrastructure(&self.core), followed)?;
        Ok(Provisioned { took: began.elapsed(), waits })
    }

    /// Waits until the provider has not written for a while, except Events. Returns false if that
    /// never happens.
    pub(super) async fn until_quiet(&mut self) -> Result<bool> {
        let mut written = self.count();
        progress::until_quiet(|| {
            let now = self.count();
            Ok(std::mem::replace(&mut written, now) != now)
        })
        .await
    }

    /// Returns the requests since the last call.
    pub(super) fn take_requests(&mut self) -> Requests {
        self.count();
        // The view of the set-up is no longer needed.
        self.commits.drain();
        std::mem::take(&mut self.requests)
    }

    /// Number of calls to the engine.
    pub(super) fn engine_calls(&self) -> u64 {
        u64::try_from(self.engine.state().calls).unwrap_or(u64::MAX)
    }

    /// Explains why machines wait.
    pub(super) fn explain(&self) -> String {
        let whys = self.provider.inspector().whys().into_iter().map(|(key, record)| (key, record.why));
        progress::explain("the machines were not bootstrapped in time", whys)
    }

    /// Counts the new requests. Returns the number of all writes except Events.
    fn count(&mut self) -> u64 {
        let requests = &mut self.requests;
        for request in self.of_management.take() {
            let counts = if request.is_write() { &mut requests.writes } else { &mut requests.reads };
            counts.add(&request);
        }
        for request in self.of_workload.take() {
            requests.in_workload.add(&request);
        }
        requests.writes.objects() + requests.in_workload.all()
    }
}

/// When each machine reached its states, from the commits of the API server.
#[derive(Default)]
struct Times {
    created: BTreeMap<String, Instant>,
    waits: Vec<Duration>,
    bootstrapped: usize,
}

impl Times {
    fn take(&mut self, commit: &Commit) {
        let Some(new) = commit.new.as_ref().filter(|_| &*commit.resource == DOCKER_MACHINES) else { return };
        let (old, new) = (commit.old.as_ref().map(|old| old.value()), new.value());
        let (name, now) = (new["metadata"]["name"].as_str().unwrap_or_default(), Instant::now());
        if old.is_none() {
            self.created.insert(name.to_owned(), now);
        }
        let becomes = |has: fn(&Value) -> bool| has(new) && !old.is_some_and(has);
        if becomes(is_provisioned) {
            let created = self.created.get(name).copied().unwrap_or(now);
            self.waits.push(now - created);
        }
        // A condition could change more than once only if the bootstrap were repeated.
        self.bootstrapped += usize::from(becomes(is_bootstrapped));
    }
}

fn is_provisioned(machine: &Value) -> bool {
    machine["status"]["initialization"]["provisioned"] == true
}

fn is_bootstrapped(machine: &Value) -> bool {
    let conditions = machine["status"]["conditions"].as_array();
    conditions.is_some_and(|all| {
        all.iter().any(|condition| condition["type"] == "BootstrapCompleted" && condition["status"] == "True")
    })
}

/// The workload cluster, which is in this process.
struct InProcess(EmbeddedServer);

impl WorkloadClusters for InProcess {
    fn client(&self, _: Kubeconfig) -> BoxFuture<'static, Result<Client, Error>> {
        let client = self.0.client(PROVIDER);
        Box::pin(async move { Ok(client) })
    }
}
