//! The measured system: an API server, a stand-in for Hetzner Cloud, and the cloud controller
//! manager.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use machinist_apiserver::{Commit, Subscription};
use machinist_controllers::ccm::{
    CcmOptions, CloudControllerManager, Controllers, CredentialSource, Running, Versioned,
};
use machinist_controllers::{Clients, ProcessOptions};
use machinist_driver_hcloud::{Endpoint, HcloudOptions, HcloudProvider};
use machinist_instance::Credential;
use machinist_plan::ccm::{route, service};
use machinist_standin_hcloud::{NewServer, Settings, Standin};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::in_process::InProcess;
use super::kubelet;
use crate::embedded::{EmbeddedServer, RequestsOf};
use crate::progress;
use crate::requests::Counts;

/// Taint of a Node that is not initialised.
pub(super) const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// User-Agent of the measured program.
const CCM: &str = "machinist-cloud-controller-manager";
/// User-Agent of the kubelets.
const KUBELET: &str = "kubelet";
/// The token and the project of the stand-in's default settings.
const ACCOUNT: (&str, &str) = ("stand-in", "default");
/// All clocks begin at this time.
const EPOCH: i64 = 1_800_000_000;

/// All parts of the measured system. Dropping it ends them.
pub(super) struct MeasuredNodes {
    api: EmbeddedServer,
    standin: Standin,
    names: Vec<String>,
    requests: RequestsOf,
    commits: Subscription<Arc<Commit>>,
    pub(super) ccm: Running,
    parts: JoinSet<()>,
}

impl MeasuredNodes {
    /// Creates the servers and starts the program.
    pub(super) fn new(nodes: u32) -> Result<Self> {
        let epoch = Timestamp::from_second(EPOCH).context("a time")?;
        let api = EmbeddedServer::starting_at(epoch);
        let standin = Standin::in_memory(Settings::instant(), machinist_cloud_sim::Clock::starting_at(epoch));
        let names: Vec<String> = (0..nodes).map(|number| format!("node-{number:05}")).collect();
        let (_, project) = ACCOUNT;
        for name in &names {
            standin.create_server(&NewServer::new(project, name))?;
        }
        let (requests, commits) = (api.requests_of(CCM), api.server.commits());
        let client = api.client(CCM);
        let clients = Clients { control: client.clone(), target: client };
        let process = ProcessOptions {
            clock: api.clock.clone(),
            ..ProcessOptions::new("kube-system", "cloud-controller-manager")
        };
        let ccm = CloudControllerManager::start(clients, process, options(&standin), None);
        Ok(Self { api, standin, names, requests, commits, ccm, parts: JoinSet::new() })
    }

    /// Registers all Nodes, and waits until each is initialised. Their kubelets then stay.
    pub(super) async fn initialize(&mut self) -> Result<()> {
        let (client, clock) = (self.api.client(KUBELET), self.api.clock.clone());
        let mut left = self.names.len();
        let initialized = async {
            while 0 < left {
                let commit = self.commits.next().await.context("the API server stopped")?;
                let was = commit.old.as_ref().is_some_and(|old| has_taint(old.value()));
                let is = commit.new.as_ref().is_some_and(|new| has_taint(new.value()));
                left -= usize::from(&*commit.resource == "nodes" && was && !is);
            }
            anyhow::Ok(())
        };
        tokio::try_join!(kubelet::register(&client, &clock, &self.names), initialized)?;
        self.parts.spawn(kubelet::heartbeats(client, clock, self.names.clone()));
        Ok(())
    }

    /// Fails if a Node lost its facts.
    pub(super) fn ensure_initialized(&self) -> Result<()> {
        let nodes = self.api.server.snapshot("nodes");
        let complete = nodes.iter().filter(|node| {
            let node = node.value();
            let addresses = node["status"]["addresses"].as_array();
            let is_complete = node["spec"]["providerID"].is_string() && !has_taint(node);
            is_complete
                && addresses.is_some_and(|all| all.iter().any(|address| address["type"] == "ExternalIP"))
        });
        let complete = complete.count();
        ensure!(complete == self.names.len(), "{complete} of {} Nodes are complete", self.names.len());
        Ok(())
    }

    /// Returns the writes of the program since the last call, as the API server recorded them.
    pub(super) fn take_writes(&mut self) -> Counts {
        let mut writes = Counts::default();
        // The view of the initialisation is no longer needed.
        self.commits.drain();
        for request in self.requests.take().filter(|request| request.is_write()) {
            writes.add(&request);
        }
        writes
    }

    /// Returns the requests since the last call, as the stand-in recorded them, by method and path.
    pub(super) fn take_calls(&self) -> BTreeMap<String, u64> {
        let calls = self.standin.counters();
        self.standin.clear_requests();
        calls
    }

    /// Explains why Nodes wait.
    pub(super) fn explain(&self) -> String {
        let whys = self.ccm.inspector().whys().into_iter().map(|(key, record)| (key, record.why));
        progress::explain("the Nodes were not initialised in time", whys)
    }
}

/// The options of `machinist cloud-controller-manager` with default flags.
fn options(standin: &Standin) -> CcmOptions {
    let hcloud = HcloudOptions {
        endpoint: Endpoint::parse("http://stand-in/v1").expect("a URL"),
        ..HcloudOptions::default()
    };
    let clock = standin.clone();
    let provider =
        HcloudProvider::over(Arc::new(InProcess(standin.clone())), hcloud).with_clock(move || clock.now());
    let services = service::Options::new("machinist.dev/hcloud", "load-balancer.hetzner.cloud/");
    let routes =
        route::Options { cluster: Vec::new(), period: Duration::from_secs(300), follows_addresses: true };
    let mut options = CcmOptions::new(Arc::new(provider), credential(), services, routes);
    options.controllers = Controllers { route: false, ..Controllers::ALL };
    options
}

#[expect(clippy::disallowed_methods, reason = "one task waits for the token, which does not change")]
fn credential() -> CredentialSource {
    let (token, _) = ACCOUNT;
    let data = BTreeMap::from([("token".to_owned(), token.as_bytes().to_vec())]);
    let credential = Versioned { version: 1, credential: Credential::new(data) };
    watch::Sender::new(Some(credential)).subscribe()
}

fn has_taint(node: &Value) -> bool {
    let taints = node["spec"]["taints"].as_array();
    taints.is_some_and(|all| all.iter().any(|taint| taint["key"] == UNINITIALIZED))
}
