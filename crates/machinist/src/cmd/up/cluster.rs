//! Runs all parts of a cluster in one process. Each part uses its own client, User-Agent and
//! credentials, as if the parts were separate processes.
//!
//! ```text
//! API server <- built-in controllers
//!     ^  ^ ^--- manager
//!     |  +----- machine controller -> simulated cloud -> its instances -> (HTTPS) API server
//! ```

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use machinist_api::crd;
use machinist_apiserver::Server;
use machinist_cloud_sim::{Clock, Cloud, Settings};
use machinist_controllers::{
    Clients, Inspector, MachineController, MachineOptions, Manager, ProcessOptions, Running, listen, serve,
};
use machinist_driver_sim::SimProvider;
use machinist_node_sim::{Fleet, FleetOptions, HttpsConnector, Metadata};
use machinist_plan::mcm::machine::Defaults;
use tokio::task::JoinSet;

use super::data_folder::{self, Opened, Purpose};
use super::earlier_run::Note;
use super::manifest::Manifest;
use super::view::Found;
use super::writes::{MACHINE_CONTROLLER, MANAGER, UP};
use crate::args::UpArgs;
use crate::embedded::data_folder::Command;
use crate::embedded::{self, ApiServer, Place};
use crate::wiring;

/// Name of this installation in the simulated cloud.
const CLUSTER: &str = "up";

/// Retry interval after the simulated cloud reported exhausted resources. For a real cloud it is
/// ten minutes; here a user who raises the quota is waiting for the result.
const ASK_AN_EXHAUSTED_CLOUD_AGAIN: Duration = Duration::from_secs(5);

/// A running cluster. Dropping it stops the cluster.
pub(super) struct Cluster {
    pub server: Server,
    pub cloud: Cloud,
    pub cloud_url: String,
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
        let cloud_url = serve_cloud(&mut parts, &cloud, args.cloud_listen).await?;
        remarks.extend(strangers.map(|strangers| strangers.told(&cloud_url)));
        let metadata = Metadata { server: api_server.url(), ca_pem: api_server.ca_pem().to_owned() };
        let fleet = Fleet::start(&cloud, FleetOptions::new(metadata, Arc::new(HttpsConnector)));

        let manager = Manager::start(
            clients(&server, MANAGER),
            options(&namespace, "machine-controller-manager"),
            None,
        );
        let provider = Arc::new(SimProvider::in_process(cloud.clone()));
        let mut machine_options = MachineOptions::new(provider, CLUSTER);
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
        let kubeconfig = api_server.write_kubeconfig(&controllers, args.kubeconfig_out.as_deref())?;
        Ok(Self {
            server,
            cloud,
            cloud_url,
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
            parts,
        })
    }

    /// Returns the URL of the API server.
    pub(super) fn api_server(&self) -> String {
        self.api_server.url()
    }

    /// Waits until a part of the cluster ends, which is always an error.
    pub(super) async fn ended(&mut self) -> anyhow::Error {
        tokio::select! {
            ended = self.manager.ended() => ended.into(),
            ended = self.machine_controller.ended() => ended.into(),
            failed = self.api_server.failed() => failed,
            Some(part) = self.parts.join_next() => match part {
                Ok(error) => error,
                Err(error) => anyhow::Error::new(error).context("a part of the cluster panicked"),
            },
        }
    }

    /// Stops everything, controllers first.
    pub(super) async fn stop(self) {
        let Self { api_server, fleet, manager, machine_controller, mut parts, .. } = self;
        drop((manager, machine_controller, fleet));
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
        Some(path) => data_folder::open(path, config, purpose),
        None => Ok(Opened {
            server: Server::new(config),
            cloud: Cloud::in_memory(Settings::default(), Clock::wall()),
            is_continued: false,
            note: None,
            remarks: Vec::new(),
            strangers: None,
        }),
    }
}

fn clients(server: &Server, user_agent: &str) -> Clients {
    Clients { control: embedded::client(server, user_agent), target: embedded::client(server, user_agent) }
}

fn options(namespace: &str, component: &'static str) -> ProcessOptions {
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

/// Serves the cloud's API, with its ledger, settings and faults. Returns its URL.
async fn serve_cloud(
    parts: &mut JoinSet<anyhow::Error>,
    cloud: &Cloud,
    address: SocketAddr,
) -> anyhow::Result<String> {
    let server =
        machinist_cloud_sim::http::Server::bind(cloud.clone(), address).await.context("--cloud-listen")?;
    let url = server.url();
    parts.spawn(async move {
        server.serve(std::future::pending()).await;
        anyhow::anyhow!("the simulated cloud stopped listening")
    });
    Ok(url)
}

/// Serves the HTTP endpoints of a controller. Returns its URL.
async fn serve_inspector(parts: &mut JoinSet<anyhow::Error>, inspector: Inspector) -> anyhow::Result<String> {
    let listener = listen(any_loopback_port()).await?;
    let url = format!("http://{}", listener.local_addr()?);
    parts.spawn(async move { match serve(listener, inspector).await {} });
    Ok(url)
}

fn any_loopback_port() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}
