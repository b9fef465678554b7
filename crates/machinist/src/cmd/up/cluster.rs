//! Runs all parts of a cluster in one process. Each part uses its own client, User-Agent and
//! credentials, as if the parts were separate processes.
//!
//! ```text
//! API server <- built-in controllers
//!     ^  ^ ^--- manager
//!     |  +----- machine controller -> cloud -> its instances -> (HTTPS) API server
//!     +-------- cloud controller manager -> cloud, with `--cloud hcloud`
//! ```
//!
//! With `--cloud local`, the instances are pods of this API server, and a simulated host runs them.
//! With `--cloud docker`, the instances join a second API server, which runs in a container.

use std::collections::BTreeMap;
use std::future::pending;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use machinist_api::crd;
use machinist_apiserver::Server;
use machinist_controllers::mcm::{
    Inspector, MachineController, MachineOptions, Manager, Running, ServerLimits,
};
use machinist_controllers::{Clients, Contract, Ended, ProcessInspector, ProcessOptions, ccm as controllers};
use machinist_driver_docker::PROMISES;
use machinist_node_sim::{Fleet, FleetOptions, Host, HttpsConnector, Metadata};
use machinist_plan::mcm::machine::Defaults;
use machinist_serve::{listen, serve};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::BrokenControlPlane;
use super::ccm;
use super::cloud::{Backend, Choice, CloudUrls, TOKEN_GROUP, Target};
use super::data_folder::{self, Opened, Purpose};
use super::earlier_run::{Note, Others};
use super::manifest::Manifest;
use super::view::Found;
use super::writes::{MACHINE_CONTROLLER, MANAGER, UP};
use crate::args::{Until, UpArgs};
use crate::clouds::UpCloud;
use crate::embedded::{self, ApiServer, Place};
use crate::progress::Progress;
use crate::wiring;

/// Name of this installation in the cloud.
const CLUSTER: &str = "up";

/// User-Agent of the host of pods.
const HOST: &str = "machinist-host";

/// Retry interval after the cloud reported exhausted resources. For a real cloud it is
/// ten minutes; here a user who raises the quota is waiting for the result.
const ASK_AN_EXHAUSTED_CLOUD_AGAIN: Duration = Duration::from_secs(5);

/// A running cluster. Dropping it stops the cluster.
pub(super) struct Cluster {
    pub server: Server,
    /// The cloud of the instances.
    pub cloud: Backend,
    pub cloud_urls: CloudUrls,
    /// Path of the administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The cluster of the Nodes, if it is not this one.
    pub target: Option<Target>,
    /// Nodes of that cluster by name; never changes if the Nodes are in this cluster.
    pub nodes: watch::Receiver<BTreeMap<String, Value>>,
    /// Client of `up` itself.
    pub client: Client,
    /// Access to the decisions of the two controllers.
    pub inspectors: [Inspector; 2],
    /// Namespace that the controllers serve.
    pub namespace: String,
    /// Note of an earlier run. If it exists, nothing is applied.
    pub note: Option<Note>,
    /// State before any part of the cluster ran.
    pub found: Found,
    /// Remarks about the data directory, for the user.
    pub remarks: Vec<String>,
    api_server: ApiServer,
    /// The simulated machines; absent for a Docker engine.
    fleet: Option<Fleet>,
    /// The host of the pods of `--cloud local`.
    host: Option<Host>,
    manager: Running,
    machine_controller: Running,
    cloud_controller_manager: Option<controllers::Running>,
    /// The built-in controllers, the instances, and the HTTP ports.
    parts: JoinSet<anyhow::Error>,
}

impl Cluster {
    /// Starts all parts, the API server first.
    ///
    /// # Errors
    /// If an address is in use or the directory is not writable. The error names it.
    pub(super) async fn start(
        args: &UpArgs,
        manifest: &Manifest,
        place: Place,
        choice: &Choice,
        progress: &Progress,
        others: &Others,
    ) -> anyhow::Result<Self> {
        let Opened { server, cloud, is_continued, note, mut remarks, strangers } =
            open(args, manifest, choice)?;
        others.note(&server, manifest);
        // A run that continues with stored objects applies no manifest.
        if is_continued && note.is_none() {
            manifest.rehearse(Some(&server)).await?;
        }
        // Read before any part of this run writes.
        let found = Found {
            revision: server.revision(),
            silent_nodes: server.snapshot("nodes").iter().map(|node| node.name().to_owned()).collect(),
        };
        let namespace = note.as_ref().map_or(&manifest.namespace, |note| &note.namespace).to_owned();
        let api_server = ApiServer::listen(server.clone(), place, args.listen).await?;
        remarks.extend(api_server.address_change_notice());
        let client = embedded::client(&server, UP);
        embedded::let_machines_join(&client).await?;
        install_crds(&client).await?;

        let mut parts = JoinSet::new();
        // Before anything runs that would report the end of a process without this address.
        let cloud_urls = cloud.serve(&mut parts, args.cloud_listen).await?;
        embedded::run_built_in_controllers(&mut parts, &server)?;
        remarks.extend(strangers.map(|strangers| strangers.remark(args.cloud, &cloud_urls.control)));
        let network = args.cloud_network.as_deref();
        remarks.extend(cloud.ensure_network(network).await?);
        let fleet = cloud.machines().map(|machines| {
            let metadata = Metadata { server: api_server.url(), ca_pem: api_server.ca_pem().to_owned() };
            Fleet::start(machines, FleetOptions::new(metadata, Arc::new(HttpsConnector)))
        });
        let host = match &cloud {
            Backend::Local(machines) => {
                Some(Host::start(machines, embedded::client(&server, HOST), &namespace))
            }
            Backend::Sim(_) | Backend::Hcloud(_) | Backend::Docker(_) => None,
        };
        let (target, nodes) = match cloud.docker() {
            #[expect(clippy::disallowed_methods, reason = "nothing is ever sent")]
            None => (None, watch::channel(BTreeMap::new()).1),
            Some(docker) => {
                remarks.extend(docker.lost_clusters().await?);
                let target = match (docker.start(progress).await, args.until) {
                    (Err(error), Some(Until::Gone)) => return Err(error.context(BrokenControlPlane)),
                    (started, _) => started?,
                };
                docker.follow(&mut parts, &target, progress);
                let nodes = target.nodes(&mut parts, docker, progress).await?;
                (Some(target), nodes)
            }
        };

        let manager = Manager::start(
            clients(&server, target.as_ref(), MANAGER).await?,
            options(&namespace, "machine-controller-manager"),
            None,
        );
        let provider = cloud.provider(network, &server, &namespace);
        let installation = cloud.docker().map_or(CLUSTER, |docker| docker.name());
        let mut machine_options = MachineOptions::new(provider.clone(), installation);
        if target.is_some() {
            TOKEN_GROUP.clone_into(&mut machine_options.token_groups);
        }
        machine_options.server_limits = Some(ServerLimits::default());
        machine_options.defaults =
            Arc::new(Defaults { exhausted_retry: ASK_AN_EXHAUSTED_CLOUD_AGAIN, ..Defaults::default() });
        // The control plane in Docker is an instance without a Machine.
        machine_options.orphans = target.is_none().then(machinist_plan::mcm::orphan::OrphanOptions::default);
        let machine_controller = MachineController::start(
            clients(&server, target.as_ref(), MACHINE_CONTROLLER).await?,
            options(&namespace, "machine-controller"),
            machine_options,
            None,
        );
        let inspectors = [machine_controller.inspector(), manager.inspector()];
        let mut controllers = Vec::new();
        for inspector in &inspectors {
            controllers.push(serve_inspector(&mut parts, inspector.clone()).await?);
        }
        let cloud_controller_manager = match args.cloud {
            UpCloud::Sim | UpCloud::Docker | UpCloud::Local => None,
            UpCloud::Hcloud => {
                embedded::let_nodes_be_initialized(&client, &namespace).await?;
                let running = ccm::start(&server, provider, &namespace, network)?;
                controllers.push(serve_inspector(&mut parts, running.inspector()).await?);
                Some(running)
            }
        };
        let kubeconfig = api_server.write_kubeconfig(&controllers, args.kubeconfig_out.as_deref())?;
        Ok(Self {
            server,
            cloud,
            cloud_urls,
            kubeconfig,
            target,
            nodes,
            client,
            inspectors,
            namespace,
            note,
            found,
            remarks,
            api_server,
            fleet,
            host,
            manager,
            machine_controller,
            cloud_controller_manager,
            parts,
        })
    }

    /// Returns the URL of the API server.
    pub(super) fn api_server(&self) -> String {
        self.api_server.url()
    }

    /// Returns the objects that wait, each with its reason.
    pub(super) fn reasons(&self) -> impl Iterator<Item = String> {
        let of_machines = self.inspectors.iter().flat_map(|inspector| inspector.whys());
        let of_machines =
            of_machines.filter(|(_, record)| record.why != machinist_plan::mcm::Why::up_to_date());
        let of_nodes = self.cloud_controller_manager.iter().flat_map(|running| running.inspector().whys());
        let of_nodes = of_nodes.filter(|(_, record)| record.why != machinist_plan::ccm::Why::up_to_date());
        let of_machines = of_machines.map(|(key, record)| format!("{key}: {}", record.why));
        of_machines.chain(of_nodes.map(|(key, record)| format!("{key}: {}", record.why)))
    }

    /// Waits until a part of the cluster ends, which is always an error.
    pub(super) async fn ended(&mut self) -> anyhow::Error {
        tokio::select! {
            ended = self.manager.ended() => ended.into(),
            ended = self.machine_controller.ended() => ended.into(),
            ended = ended(&mut self.cloud_controller_manager) => ended.into(),
            failed = self.api_server.failed() => failed,
            Some(part) = self.parts.join_next() => match part {
                Ok(error) => error,
                Err(error) => anyhow::Error::new(error).context("a part of the cluster panicked"),
            },
        }
    }

    /// Stops everything, controllers first.
    pub(super) async fn stop(self) {
        let Self {
            cloud,
            api_server,
            fleet,
            host,
            manager,
            machine_controller,
            cloud_controller_manager,
            mut parts,
            ..
        } = self;
        // An engine carries out a call whose caller has ended. The container would appear when its
        // cluster is already deleted. The other clouds end with this process.
        if cloud.docker().is_some() {
            machine_controller.drain(PROMISES.call_bound).await.tell();
        }
        drop((manager, machine_controller, cloud_controller_manager, host, fleet));
        parts.shutdown().await;
        api_server.shutdown().await;
    }
}

/// Opens API server and cloud: in memory, or with the state in `--data-dir`.
fn open(args: &UpArgs, manifest: &Manifest, choice: &Choice) -> anyhow::Result<Opened> {
    let config = embedded::config();
    let purpose = if args.manifest.is_empty() {
        Purpose::GoOn(&manifest.namespace)
    } else {
        Purpose::Apply(&manifest.namespace)
    };
    match &args.data_dir {
        Some(path) => data_folder::open(path, config, choice, purpose),
        None => Ok(Opened {
            server: Server::new(config),
            cloud: choice.in_memory()?,
            is_continued: false,
            note: None,
            remarks: Vec::new(),
            strangers: None,
        }),
    }
}

/// Waits until the cloud controller manager ends; forever if it does not run.
async fn ended(running: &mut Option<controllers::Running>) -> Ended {
    match running {
        Some(running) => running.ended().await,
        None => pending().await,
    }
}

/// Returns the clients of a controller. Without a target cluster, the Nodes are in this cluster.
async fn clients(server: &Server, target: Option<&Target>, user_agent: &str) -> anyhow::Result<Clients> {
    let control = embedded::client(server, user_agent);
    match target {
        Some(target) => target.clients(control, user_agent).await,
        None => Ok(Clients { control, target: embedded::client(server, user_agent) }),
    }
}

pub(super) fn options(namespace: &str, component: &'static str) -> ProcessOptions {
    let mut options = ProcessOptions::new(namespace, component);
    options.seed = wiring::seed();
    options.instance = wiring::host_name();
    options
}

/// Installs the CRDs of the machine kinds, and updates CRDs of an earlier run.
pub(super) async fn install_crds(client: &Client) -> anyhow::Result<()> {
    let api = Api::all(client.clone());
    for definition in crd::all_crds() {
        let installed = match api.create(&PostParams::default(), &definition).await {
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
                let merge = Patch::Merge(&definition);
                api.patch(&definition.name_any(), &PatchParams::default(), &merge).await
            }
            created => created,
        };
        installed.with_context(|| format!("cannot install {}", definition.name_any()))?;
    }
    Ok(())
}

/// Serves the HTTP endpoints of a controller. Returns its URL.
async fn serve_inspector<C: Contract>(
    parts: &mut JoinSet<anyhow::Error>,
    inspector: ProcessInspector<C>,
) -> anyhow::Result<String> {
    let listener = listen(any_loopback_port()).await?;
    let url = format!("http://{}", listener.local_addr()?);
    parts.spawn(async move { match serve(listener, inspector).await {} });
    Ok(url)
}

fn any_loopback_port() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}
