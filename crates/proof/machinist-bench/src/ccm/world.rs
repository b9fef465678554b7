//! The measured system: an API server, a stand-in for Hetzner Cloud, and the cloud controller
//! manager.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use kube::Client;
use machinist_apiserver::{AuditRecord, Commit, Config, Identity, Server, Subscription};
use machinist_controllers::ccm::{
    CcmOptions, CloudControllerManager, Controllers, CredentialSource, Running, Versioned,
};
use machinist_controllers::{Clients, ProcessOptions};
use machinist_driver_hcloud::{Endpoint, HcloudOptions, HcloudProvider};
use machinist_instance::Credential;
use machinist_kube::{ClientOptions, SharedClock, TokioClock, layer_client};
use machinist_plan::ccm::{route, service};
use machinist_standin_hcloud::{NewServer, Settings, Standin};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::in_process::InProcess;
use super::kubelet;
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
pub(super) struct World {
    server: Server,
    standin: Standin,
    clock: SharedClock,
    names: Vec<String>,
    requests: Subscription<Arc<AuditRecord>>,
    commits: Subscription<Arc<Commit>>,
    pub(super) ccm: Running,
    parts: JoinSet<()>,
}

impl World {
    /// Creates the servers and starts the program.
    pub(super) fn new(nodes: u32) -> Result<Self> {
        let epoch = Timestamp::from_second(EPOCH).context("a time")?;
        let clock: SharedClock = Arc::new(TokioClock::starting_at(epoch));
        let of_server = Arc::new(machinist_apiserver::TokioClock::starting_at(epoch));
        let server = Server::new(Config { clock: of_server, ..Config::default() });
        let standin = Standin::in_memory(Settings::instant(), machinist_cloud_sim::Clock::starting_at(epoch));
        let names: Vec<String> = (0..nodes).map(|number| format!("node-{number:05}")).collect();
        let (_, project) = ACCOUNT;
        for name in &names {
            standin.create_server(&NewServer::new(project, name))?;
        }
        let (requests, commits) = (server.audit(), server.commits());
        let client = client(&server, &clock, CCM);
        let clients = Clients { control: client.clone(), target: client };
        let process = ProcessOptions {
            clock: clock.clone(),
            ..ProcessOptions::new("kube-system", "cloud-controller-manager")
        };
        let ccm = CloudControllerManager::start(clients, process, options(&standin), None);
        Ok(Self { server, standin, clock, names, requests, commits, ccm, parts: JoinSet::new() })
    }

    /// Registers all Nodes, and waits until each is initialised. Their kubelets then stay.
    pub(super) async fn initialize(&mut self) -> Result<()> {
        let client = client(&self.server, &self.clock, KUBELET);
        let mut left = self.names.len();
        let initialized = async {
            while 0 < left {
                let Some(commit) = self.commits.next().await else { bail!("the API server stopped") };
                let is_tainted = |object: &Value| has_taint(object);
                let was = commit.old.as_ref().is_some_and(|old| is_tainted(old.value()));
                let is = commit.new.as_ref().is_some_and(|new| is_tainted(new.value()));
                left -= usize::from(&*commit.resource == "nodes" && was && !is);
            }
            Ok(())
        };
        tokio::try_join!(kubelet::register(&client, &self.clock, &self.names), initialized)?;
        self.parts.spawn(kubelet::heartbeats(client, self.clock.clone(), self.names.clone()));
        Ok(())
    }

    /// Fails if a Node lost its facts.
    pub(super) fn ensure_initialized(&self) -> Result<()> {
        let nodes = self.server.snapshot("nodes");
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
        for request in self.requests.drain() {
            if request.user_agent == CCM && request.is_write() {
                writes.add(request.verb.as_str(), &request.resource, &request.subresource);
            }
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

fn client(server: &Server, clock: &SharedClock, user_agent: &str) -> Client {
    let mut options = ClientOptions::new(user_agent);
    options.clock = clock.clone();
    layer_client(server.service_as(Identity::admin()), &options)
}

fn has_taint(node: &Value) -> bool {
    let taints = node["spec"]["taints"].as_array();
    taints.is_some_and(|all| all.iter().any(|taint| taint["key"] == UNINITIALIZED))
}
