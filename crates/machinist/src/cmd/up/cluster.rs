//! Runs all parts of a cluster in one process. Each part uses its own client, User-Agent and
//! credentials, as if the parts were separate processes.
//!
//! ```text
//! API server <- built-in controllers
//!     ^  ^ ^--- manager
//!     |  +----- machine controller -> cloud -> its instances -> (HTTPS) API server
//!     +-------- cloud controller manager -> cloud, with `--cloud hcloud`
//! ```

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
use machinist_cloud_sim::Cloud;
use machinist_controllers::{
    Clients, Contract, Ended, Inspector, MachineController, MachineOptions, Manager, ProcessInspector,
    ProcessOptions, Running, ccm as controllers, listen, serve,
};
use machinist_node_sim::{Fleet, FleetOptions, HttpsConnector, Metadata};
use machinist_plan::mcm::machine::Defaults;
use tokio::task::JoinSet;

use super::ccm;
use super::cloud::{Backend, CloudUrls};
use super::data_folder::{self, Opened, Purpose};
use super::earlier_run::Note;
use super::manifest::Manifest;
use super::view::Found;
use super::writes::{MACHINE_CONTROLLER, MANAGER, UP};
use crate::args::{UpArgs, UpCloud};
use crate::embedded::data_folder::Command;
use crate::embedded::{self, ApiServer, Place};
use crate::wiring;

/// Name of this installation in the cloud.
const CLUSTER: &str = "up";

/// Retry interval after the cloud reported exhausted resources. For a real cloud it is
/// ten minutes; here a user who raises the quota is waiting for the result.
const ASK_AN_EXHAUSTED_CLOUD_AGAIN: Duration = Duration::from_secs(5);

/// A running cluster. Dropping it stops the cluster.
pub(super) struct Cluster {
    pub server: Server,
    /// The cloud that boots the instances, with its ledger.
    pub cloud: Cloud,
    pub cloud_urls: CloudUrls,
    /// Path of the administrator's kubeconfig.
    pub kubeconfig: PathBuf,
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
    fleet: Fleet,
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
    pub(super) async fn start(args: &UpArgs, manifest: &Manifest) -> anyhow::Result<Self> {
        let place = Place::of(Command::Up, args.data_dir.as_deref())?;
        let Opened { server, cloud, is_continued, note, mut remarks, strangers } = open(args, manifest)?;
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
        remarks.extend(api_server.told_of_move());
        let client = embedded::client(&server, UP);
        embedded::let_machines_join(&client).await?;
        install_crds(&client).await?;

        let mut parts = JoinSet::new();
        embedded::run_built_in_controllers(&mut parts, &server)?;
        let cloud_urls = cloud.serve(&mut parts, args.cloud_listen).await?;
        remarks.extend(strangers.map(|strangers| strangers.told(args.cloud, &cloud_urls.control)));
        let network = args.cloud_network.as_deref();
        remarks.extend(cloud.ensure_network(network).await?);
        let metadata = Metadata { server: api_server.url(), ca_pem: api_server.ca_pem().to_owned() };
        let fleet = Fleet::start(cloud.machines(), FleetOptions::new(metadata, Arc::new(HttpsConnector)));

        let manager = Manager::start(
            clients(&server, MANAGER),
            options(&namespace, "machine-controller-manager"),
            None,
        );
        let provider = cloud.provider(network);
        let mut machine_options = MachineOptions::new(provider.clone(), CLUSTER);
        machine_options.defaults =
            Arc::new(Defaults { exhausted_retry: ASK_AN_EXHAUSTED_CLOUD_AGAIN, ..Defaults::default() });
        let machine_controller = MachineController::start(
            clients(&server, MACHINE_CONTROLLER),
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
            UpCloud::Sim => None,
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
            cloud: cloud.machines().clone(),
            cloud_urls,
            kubeconfig,
            client,
            inspectors,
            namespace,
            note,
            found,
            remarks,
            api_server,
            fleet,
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
        let of_machines = of_machines.filter(|(_, record)| record.why != machinist_plan::Why::settled());
        let of_nodes = self.cloud_controller_manager.iter().flat_map(|running| running.inspector().whys());
        let of_nodes = of_nodes.filter(|(_, record)| record.why != machinist_plan::ccm::Why::settled());
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
            api_server, fleet, manager, machine_controller, cloud_controller_manager, mut parts, ..
        } = self;
        drop((manager, machine_controller, cloud_controller_manager, fleet));
        parts.shutdown().await;
        api_server.shutdown().await;
    }
}

/// Opens API server and cloud: in memory, or with the state in `--data-dir`.
fn open(args: &UpArgs, manifest: &Manifest) -> anyhow::Result<Opened> {
    let config = embedded::config();
    let purpose = match args.manifest.is_empty() {
        false => Purpose::Apply(&manifest.namespace),
        true => Purpose::GoOn(&manifest.namespace),
    };
    match &args.data_dir {
        Some(path) => data_folder::open(path, config, args.cloud, purpose),
        None => Ok(Opened {
            server: Server::new(config),
            cloud: Backend::in_memory(args.cloud),
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

fn clients(server: &Server, user_agent: &str) -> Clients {
    Clients { control: embedded::client(server, user_agent), target: embedded::client(server, user_agent) }
}

pub(super) fn options(namespace: &str, component: &'static str) -> ProcessOptions {
    let mut options = ProcessOptions::new(namespace, component);
    options.seed = wiring::seed();
    options.instance = wiring::host_name();
    options
}

/// Installs the CRDs of the machine kinds, and updates those of an earlier run.
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
        installed.with_context(|| format!("cannot install {}", crd::file_name(&definition)))?;
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
