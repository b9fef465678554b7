//! The measured system: an API server, an instant cloud, and both controllers.

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
use tokio::task::JoinSet;

use super::report::Resident;
use super::{join, raw_writes};
use crate::clusters::MeasuredClusters;
use crate::loopback;
use crate::objects::{self, NAMESPACE};
use crate::program::{Process, Programs, resident_mb};
use crate::progress;
use crate::requests::{AuditLog, MACHINE_CONTROLLER, MANAGER, Requests};

/// User-Agent of the benchmark, so that its requests are not counted as the controllers'.
const BENCH: &str = "machinist-bench";
/// The name of this installation in the cloud.
const CLUSTER: &str = "bench";
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
    controllers: Controllers,
    /// The tasks of the thin join and of the cloud's port.
    _parts: JoinSet<()>,
    _programs: Option<Programs>,
}

/// Both controllers, as tasks or as processes.
enum Controllers {
    InProcess { machine_controller: Running, manager: Running, inspectors: [Inspector; 2] },
    Processes { machine_controller: Box<Process>, manager: Box<Process> },
}

impl World {
    /// All parts in this process, as in `machinist up`. Each part has its own client of the server.
    pub(super) async fn embedded() -> Result<Self> {
        let server = Server::new(Config::default());
        let client = |name: &str| {
            layer_client(server.service_as(Identity::admin()), &ClientOptions::new(format!("{name}/bench")))
        };
        let own = client(BENCH);
        objects::install_kinds(&own).await?;
        let requests = Requests::Embedded(server.audit());
        let cloud = instant_cloud();
        let mut parts = JoinSet::new();
        parts.spawn(join::join_all(cloud.clone(), client(BENCH)));
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
            controllers: Controllers::InProcess { machine_controller, manager, inspectors },
            _parts: parts,
            _programs: None,
        })
    }

    /// kube-apiserver and etcd, and each controller as a separate process. The cloud is in this
    /// process, and the controllers reach it over HTTP.
    pub(super) async fn real(machinist: PathBuf, logs: Option<&Path>) -> Result<Self> {
        let clusters = MeasuredClusters::from_environment()?;
        if !clusters.are_one() {
            bail!("expected one cluster for both roles, because the figures are for one server");
        }
        let cluster = &clusters.control;
        let client = cluster.client(&format!("{BENCH}/bench")).await?;
        let requests = Requests::Real(AuditLog::open(cluster.audit_log()?)?);
        objects::install_kinds(&client).await?;
        let raw = raw_writes::measure(&client).await.context("the raw rate of writes")?;

        let cloud = instant_cloud();
        let server =
            machinist_cloud_sim::http::LoopbackServer::bind(cloud.clone(), loopback::free_address()?).await?;
        let cloud_url = server.url();
        let mut parts = JoinSet::new();
        parts.spawn(server.serve(std::future::pending()));
        parts.spawn(join::join_all(cloud.clone(), client.clone()));

        let programs = Programs::new(machinist, logs)?;
        let start = async |job: &str, more: &[String]| -> Result<Box<Process>> {
            let address = loopback::free_address()?;
            let mut arguments = vec![
                job.to_owned(),
                format!("--target-kubeconfig={}", cluster.kubeconfig.display()),
                format!("--namespace={NAMESPACE}"),
                format!("--address={}", address.ip()),
                format!("--port={}", address.port()),
                // Leases are renewed at intervals. Counted requests would include them as a cost of
                // machines.
                "--leader-elect=false".to_owned(),
            ];
            arguments.extend_from_slice(more);
            let mut process = programs.start(arguments)?;
            process.until_ok(&format!("http://{address}/readyz")).await?;
            Ok(Box::new(process))
        };
        let machine_controller = start(
            "machine-controller",
            &[format!("--sim-endpoint={cloud_url}"), format!("--cluster-name={CLUSTER}")],
        )
        .await?;
        let manager = start("machine-controller-manager", &[]).await?;
        Ok(Self {
            description: format!(
                "kube-apiserver {} with etcd, each controller a process of its own",
                cluster.version
            ),
            client,
            requests,
            cloud,
            raw_writes_per_second: Some(crate::requests::round(raw)),
            controllers: Controllers::Processes { machine_controller, manager },
            _parts: parts,
            _programs: Some(programs),
        })
    }

    /// Completes when a controller exits, which is always an error.
    pub(super) async fn ended(&mut self) -> anyhow::Error {
        match &mut self.controllers {
            Controllers::InProcess { machine_controller, manager, .. } => tokio::select! {
                ended = machine_controller.ended() => ended.into(),
                ended = manager.ended() => ended.into(),
            },
            Controllers::Processes { machine_controller, manager } => loop {
                if let Err(error) = machine_controller.ensure_alive().and_then(|()| manager.ensure_alive()) {
                    return error;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            },
        }
    }

    /// Current memory of the controllers. In one process, its memory counts for both.
    pub(super) fn resident(&self) -> Result<Resident> {
        match &self.controllers {
            Controllers::InProcess { .. } => {
                let all = crate::requests::round(resident_mb("self")?);
                Ok(Resident { machine_controller: all, manager: all })
            }
            Controllers::Processes { machine_controller, manager } => Ok(Resident {
                machine_controller: crate::requests::round(machine_controller.resident_mb()?),
                manager: crate::requests::round(manager.resident_mb()?),
            }),
        }
    }

    /// CPU time that the machine controller and the manager have used so far, in seconds.
    pub(super) fn cpu_seconds(&self) -> Result<(f64, f64)> {
        match &self.controllers {
            Controllers::InProcess { .. } => {
                bail!("in one process, the CPU time is not the controllers' alone")
            }
            Controllers::Processes { machine_controller, manager } => {
                Ok((machine_controller.cpu_seconds()?, manager.cpu_seconds()?))
            }
        }
    }

    /// The waits of the controllers, as far as they can be queried.
    pub(super) fn explain(&self) -> String {
        let instances = format!("{} instances are alive", self.cloud.alive());
        let Controllers::InProcess { inspectors, .. } = &self.controllers else { return instances };
        let whys =
            inspectors.iter().flat_map(Inspector::whys).filter(|(_, record)| record.why != Why::settled());
        progress::explain(instances, whys.map(|(key, record)| (key, record.why)))
    }
}

/// A cloud that answers at once, and creates and deletes instances at once.
fn instant_cloud() -> Cloud {
    Cloud::in_memory(Settings::default(), Clock::wall())
}
