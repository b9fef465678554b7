//! The measured system: an API server, an instant cloud, and both controllers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::Client;
use machinist_apiserver::{Config, Identity, Server};
use machinist_cloud_sim::{Clock, Cloud, Settings};
use machinist_controllers::mcm::{Inspector, MachineController, MachineOptions, Manager, Running};
use machinist_controllers::{Clients, ProcessOptions};
use machinist_driver_sim::SimProvider;
use machinist_kube::{ClientOptions, layer_client};
use machinist_plan::mcm::Why;
use serde::Serialize;
use tokio::task::JoinSet;

use super::node::Content;
use super::processes::{CLUSTER, Pair, Processes};
use super::{join, limit, raw_writes, warnings};
use crate::clusters::MeasuredClusters;
use crate::loopback;
use crate::objects::{self, NAMESPACE};
use crate::program::{Programs, resident_mb};
use crate::progress;
use crate::requests::{AuditLog, MACHINE_CONTROLLER, MANAGER, Requests};

/// User-Agent of the benchmark, so that its requests are not counted as the controllers'.
const BENCH: &str = "machinist-bench";
/// Period of the checks that the processes still run.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// All parts of the measured system. Dropping it ends them.
pub(super) struct World {
    pub(super) description: String,
    /// The benchmark's own client.
    pub(super) client: Client,
    pub(super) requests: Requests,
    pub(super) cloud: Cloud,
    pub(super) raw_writes_per_second: Option<f64>,
    /// Machines per second with direct writes; absent on the embedded server.
    pub(super) limit_per_second: Option<f64>,
    /// Pods on each Node.
    pub(super) pods: u32,
    controllers: Controllers,
    /// The tasks of the thin join and of the cloud's port.
    _parts: JoinSet<()>,
}

/// Resident memory in megabytes.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Resident {
    /// Memory of the machine controller.
    pub machine_controller: f64,
    /// Memory of the manager.
    pub manager: f64,
}

/// The Nodes that the benchmark plays.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeSettings {
    pub(super) content: Content,
    /// Pods on each Node.
    pub(super) pods: u32,
}

/// Both controllers, as tasks or as processes.
enum Controllers {
    InProcess { machine_controller: Running, manager: Running, inspectors: [Inspector; 2] },
    Processes(Box<Processes>),
}

impl World {
    /// All parts in this process, as in `machinist up`. Each part has its own client of the server.
    pub(super) async fn embedded(settings: NodeSettings) -> Result<Self> {
        let server = Server::new(Config::default());
        let client = |name: &str| {
            layer_client(server.service_as(Identity::admin()), &ClientOptions::new(format!("{name}/bench")))
        };
        let own = client(BENCH);
        objects::install_kinds(&own).await?;
        let requests = Requests::Embedded(server.audit());
        let cloud = instant_cloud();
        let mut parts = JoinSet::new();
        parts.spawn(join::join_all(cloud.clone(), client(BENCH), settings.content));
        let clients = |name| Clients { control: client(name), target: client(name) };
        let provider = Arc::new(SimProvider::in_process(cloud.clone()));
        let machine_controller = MachineController::start(
            clients(MACHINE_CONTROLLER),
            ProcessOptions { concurrency: 50, ..ProcessOptions::new(NAMESPACE, "machine-controller") },
            MachineOptions::new(provider, CLUSTER),
            None,
        );
        let manager = Manager::start(
            clients(MANAGER),
            ProcessOptions::new(NAMESPACE, "machine-controller-manager"),
            None,
        );
        let are_ready = || machine_controller.is_ready() && manager.is_ready();
        progress::until_ready("controllers", are_ready).await?;
        let inspectors = [machine_controller.inspector(), manager.inspector()];
        Ok(Self {
            description: "the embedded API server, in one process with both controllers".to_owned(),
            client: own,
            requests,
            cloud,
            raw_writes_per_second: None,
            limit_per_second: None,
            pods: settings.pods,
            controllers: Controllers::InProcess { machine_controller, manager, inspectors },
            _parts: parts,
        })
    }

    /// kube-apiserver and etcd, and each controller as a separate process. The cloud is in this
    /// process, and the controllers reach it over HTTP.
    pub(super) async fn real(
        machinist: PathBuf,
        logs: Option<&Path>,
        settings: NodeSettings,
    ) -> Result<Self> {
        let clusters = MeasuredClusters::from_environment()?;
        if !clusters.are_one() {
            bail!("expected one cluster for both roles, because the figures are for one server");
        }
        let cluster = &clusters.control;
        let client = cluster.client(&format!("{BENCH}/bench")).await?;
        let requests = Requests::Real(AuditLog::open(cluster.audit_log()?)?);
        objects::install_kinds(&client).await?;
        let raw = raw_writes::measure(&client).await.context("the raw rate of writes")?;
        let limit = limit::measure(&client, settings.content).await.context("the limit of the server")?;

        let cloud = instant_cloud();
        let server =
            machinist_cloud_sim::http::LoopbackServer::bind(cloud.clone(), loopback::free_address()?).await?;
        let cloud_url = server.url();
        let mut parts = JoinSet::new();
        parts.spawn(server.serve(std::future::pending()));
        parts.spawn(join::join_all(cloud.clone(), client.clone(), settings.content));

        let programs = Programs::new(machinist, logs)?;
        let processes = Processes::start(programs, cluster.kubeconfig.clone(), cloud_url).await?;
        Ok(Self {
            description: format!(
                "kube-apiserver {} with etcd, each controller a process of its own",
                cluster.version
            ),
            client,
            requests,
            cloud,
            raw_writes_per_second: Some(crate::requests::round(raw)),
            limit_per_second: Some(crate::requests::round(limit)),
            pods: settings.pods,
            controllers: Controllers::Processes(Box::new(processes)),
            _parts: parts,
        })
    }

    /// Completes when a controller exits, which is always an error.
    pub(super) async fn ended(&mut self) -> anyhow::Error {
        match &mut self.controllers {
            Controllers::InProcess { machine_controller, manager, .. } => tokio::select! {
                ended = machine_controller.ended() => ended.into(),
                ended = manager.ended() => ended.into(),
            },
            Controllers::Processes(processes) => loop {
                if let Err(error) = processes.ensure_alive() {
                    return error;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            },
        }
    }

    /// Fails if a controller that is a process has exited.
    pub(super) fn ensure_alive(&mut self) -> Result<()> {
        self.processes().map_or(Ok(()), Processes::ensure_alive)
    }

    /// The controllers as processes.
    ///
    /// # Errors
    /// When both are in this process.
    pub(super) fn processes(&mut self) -> Result<&mut Processes> {
        match &mut self.controllers {
            Controllers::InProcess { .. } => bail!("the controllers are not separate processes"),
            Controllers::Processes(processes) => Ok(processes),
        }
    }

    /// Warnings in the logs of the controllers; absent if they are in this process.
    pub(super) fn warnings(&self) -> Result<Option<BTreeMap<String, u64>>> {
        match &self.controllers {
            Controllers::InProcess { .. } => Ok(None),
            Controllers::Processes(processes) => warnings::count(processes.logs()).map(Some),
        }
    }

    /// Posts the pods of the Nodes of all instances.
    pub(super) async fn fill_nodes(&self) -> Result<()> {
        let ledger = self.cloud.ledger();
        join::fill(&self.client, ledger.alive().map(|entry| entry.name.to_string()), self.pods).await
    }

    /// Current memory of the controllers. In one process, its memory counts for both.
    pub(super) fn resident(&self) -> Result<Resident> {
        match &self.controllers {
            Controllers::InProcess { .. } => {
                let all = crate::requests::round(resident_mb("self")?);
                Ok(Resident { machine_controller: all, manager: all })
            }
            Controllers::Processes(processes) => {
                let Pair { machine_controller, manager } = processes.leaders();
                Ok(Resident {
                    machine_controller: crate::requests::round(machine_controller.process.resident_mb()?),
                    manager: crate::requests::round(manager.process.resident_mb()?),
                })
            }
        }
    }

    /// CPU time that the machine controller and the manager have used so far, in seconds.
    pub(super) fn cpu_seconds(&self) -> Result<(f64, f64)> {
        match &self.controllers {
            Controllers::InProcess { .. } => {
                bail!("in one process, the CPU time is not the controllers' alone")
            }
            Controllers::Processes(processes) => {
                let Pair { machine_controller, manager } = processes.leaders();
                Ok((machine_controller.process.cpu_seconds()?, manager.process.cpu_seconds()?))
            }
        }
    }

    /// The waits of the controllers, as far as they can be queried.
    pub(super) fn explain(&self) -> String {
        let instances = format!("{} instances are alive", self.cloud.alive());
        let Controllers::InProcess { inspectors, .. } = &self.controllers else { return instances };
        let whys =
            inspectors.iter().flat_map(Inspector::whys).filter(|(_, record)| record.why != Why::up_to_date());
        progress::explain(instances, whys.map(|(key, record)| (key, record.why)))
    }
}

/// A cloud that answers at once, and creates and deletes instances at once.
fn instant_cloud() -> Cloud {
    Cloud::in_memory(Settings::default(), Clock::wall())
}
