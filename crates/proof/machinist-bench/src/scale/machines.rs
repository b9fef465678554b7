//! The measured system: an API server, an instant cloud, and both controllers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::Client;
use machinist_cloud_sim::{Clock, Cloud, Settings};
use machinist_controllers::mcm::{MachineController, MachineOptions, Manager, Running};
use machinist_controllers::{Clients, ProcessOptions};
use machinist_driver_sim::SimProvider;
use machinist_plan::mcm::Why;
use tokio::task::JoinSet;

use super::node::Content;
use super::processes::{CLUSTER, Processes};
use super::{join, limit, raw_writes, warnings};
use crate::cluster_state::{ClusterState, Counts};
use crate::clusters::MeasuredClusters;
use crate::embedded::EmbeddedServer;
use crate::loopback;
use crate::objects::{self, NAMESPACE};
use crate::pair::Pair;
use crate::program::{Programs, resident_mb};
use crate::progress;
use crate::requests::{MACHINE_CONTROLLER, MANAGER, Requests, round};

/// User-Agent of the benchmark, so that its requests are not counted as the controllers'.
const BENCH: &str = "machinist-bench/bench";
/// Period of the checks that the processes still run.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// All parts of the measured system. Dropping it ends them.
pub(super) struct MeasuredMachines {
    pub(super) description: String,
    /// The benchmark's own client.
    pub(super) client: Client,
    pub(super) state: ClusterState,
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

/// The Nodes that the benchmark plays.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeSettings {
    pub(super) content: Content,
    /// Pods on each Node.
    pub(super) pods: u32,
}

/// Both controllers, as tasks or as processes.
enum Controllers {
    InProcess(Pair<Running>),
    Processes(Box<Processes>),
}

impl MeasuredMachines {
    /// All parts in this process, as in `machinist up`. Each part has its own client of the server.
    pub(super) async fn embedded(settings: NodeSettings) -> Result<Self> {
        let api = EmbeddedServer::new();
        let client = api.client(BENCH);
        objects::install_kinds(&client).await?;
        let requests = Requests::Embedded(api.server.audit());
        let cloud = instant_cloud();
        let mut parts = JoinSet::new();
        parts.spawn(join::join_all(cloud.clone(), api.client(BENCH), settings.content));
        let clients = |name: &str| {
            let user_agent = format!("{name}/bench");
            Clients { control: api.client(&user_agent), target: api.client(&user_agent) }
        };
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
        Ok(Self {
            description: "the embedded API server, in one process with both controllers".to_owned(),
            state: ClusterState::follow(client.clone(), client.clone()),
            client,
            requests,
            cloud,
            raw_writes_per_second: None,
            limit_per_second: None,
            pods: settings.pods,
            controllers: Controllers::InProcess(Pair { machine_controller, manager }),
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
        let client = cluster.client(BENCH).await?;
        let requests = Requests::Real(cluster.audit_log()?);
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
            state: ClusterState::follow(client.clone(), client.clone()),
            client,
            requests,
            cloud,
            raw_writes_per_second: Some(round(raw)),
            limit_per_second: Some(round(limit)),
            pods: settings.pods,
            controllers: Controllers::Processes(Box::new(processes)),
            _parts: parts,
        })
    }

    /// Waits until the counts satisfy a condition.
    ///
    /// # Errors
    /// After `within`, or when a controller exits.
    pub(super) async fn until(
        &mut self,
        what: &str,
        within: Duration,
        is_reached: impl Fn(&Counts) -> bool,
    ) -> Result<()> {
        tokio::select! {
            reached = self.state.until(what, within, is_reached) => reached,
            ended = self.controllers.ended() => Err(ended),
        }
    }

    /// Completes when a controller exits, which is always an error.
    pub(super) async fn ended(&mut self) -> anyhow::Error {
        self.controllers.ended().await
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
            Controllers::InProcess(_) => bail!("the controllers are not separate processes"),
            Controllers::Processes(processes) => Ok(processes),
        }
    }

    /// Warnings in the logs of the controllers; absent if they are in this process.
    pub(super) fn warnings(&self) -> Result<Option<BTreeMap<String, u64>>> {
        match &self.controllers {
            Controllers::InProcess(_) => Ok(None),
            Controllers::Processes(processes) => warnings::count(processes.logs()).map(Some),
        }
    }

    /// Posts the pods of the Nodes of all instances.
    pub(super) async fn fill_nodes(&self) -> Result<()> {
        let ledger = self.cloud.ledger();
        join::fill(&self.client, ledger.alive().map(|entry| entry.name.to_string()), self.pods).await
    }

    /// Current memory of the controllers. In one process, its memory counts for both.
    pub(super) fn resident(&self) -> Result<Pair<f64>> {
        match &self.controllers {
            Controllers::InProcess(_) => {
                let all = round(resident_mb("self")?);
                Ok(Pair { machine_controller: all, manager: all })
            }
            Controllers::Processes(processes) => {
                processes.leaders().try_map(|leader| Ok(round(leader.process.resident_mb()?)))
            }
        }
    }

    /// CPU time that the controllers have used so far, in seconds.
    pub(super) fn cpu_seconds(&self) -> Result<Pair<f64>> {
        match &self.controllers {
            Controllers::InProcess(_) => {
                bail!("in one process, the CPU time is not the controllers' alone")
            }
            Controllers::Processes(processes) => {
                processes.leaders().try_map(|leader| leader.process.cpu_seconds())
            }
        }
    }

    /// The waits of the controllers, as far as they can be queried.
    pub(super) fn explain(&self) -> String {
        let instances = format!("{} instances are alive", self.cloud.alive());
        let Controllers::InProcess(controllers) = &self.controllers else { return instances };
        let Pair { machine_controller, manager } = controllers;
        let whys = [machine_controller, manager].into_iter().flat_map(|running| running.inspector().whys());
        let whys = whys.map(|(key, record)| (key, record.why)).filter(|(_, why)| *why != Why::up_to_date());
        progress::explain(instances, whys)
    }
}

impl Controllers {
    async fn ended(&mut self) -> anyhow::Error {
        match self {
            Self::InProcess(Pair { machine_controller, manager }) => tokio::select! {
                ended = machine_controller.ended() => ended.into(),
                ended = manager.ended() => ended.into(),
            },
            Self::Processes(processes) => loop {
                if let Err(error) = processes.ensure_alive() {
                    return error;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            },
        }
    }
}

/// A cloud that answers at once, and creates and deletes instances at once.
fn instant_cloud() -> Cloud {
    Cloud::in_memory(Settings::default(), Clock::wall())
}
