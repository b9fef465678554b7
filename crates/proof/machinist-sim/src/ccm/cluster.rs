//! The simulated world of the cloud-controller-manager: one cluster, the stand-in, kubelets and the
//! process. Everything runs in one thread under tokio's paused time, and draws from one seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use machinist_apiserver::Server;
use machinist_cloud_sim::Clock as CloudClock;
use machinist_controllers::ccm::Planners;
use machinist_plan::ccm::names::ORPHANED_BALANCER;
use machinist_standin_hcloud::{Access, NewServer, Settings, Standin};
use serde_json::json;
use tokio::task::JoinSet;

use super::invariants::{self, EVENTS, NAME};
use super::kubelets::Kubelets;
use super::mutants::Mutant;
use super::process::{CloudController, PROJECT, ServiceSurroundings, TOKEN};
use super::services::{Repeats, Services};
use super::view::ServiceView;
use super::weather;
use crate::actor::{Side, TestedProcess};
use crate::faults::{Crash, Fault, LongKind, Profile};
use crate::history::{RunHistory, RunState};
use crate::lab::{Lab, RunClock};
use crate::lives::HostClock;
use crate::said::Said;
use crate::seed::Seed;
use crate::sight::SERVICES;
use crate::sight::{Item, MACHINES, NODES};
use crate::stage::{ScenarioStage, client, server};
use crate::world::simulated::apply_crds;
use crate::world::{NAMESPACE, Outcome, ScenarioError};

/// The setup of a world.
#[derive(Debug, Clone)]
pub struct ServiceSetup {
    /// The seed of all random draws.
    pub seed: Seed,
    /// The faults.
    pub profile: Profile,
    /// The planned crash.
    pub crash: Option<Crash>,
    /// The mutant of the program.
    pub mutant: Option<Mutant>,
    /// Whether the machine controller runs on the same cluster, so that Machines own Nodes.
    pub has_machines: bool,
}

/// Timeout for an awaited state.
const PATIENCE: Duration = Duration::from_secs(40 * 60);
/// The same after a Service was lost: its load balancer is looked for every hour, and an Event may
/// be lost.
const PATIENCE_WITH_ORPHANS: Duration = Duration::from_secs(140 * 60);

/// A simulated world. Dropping it ends all its parts.
pub struct ServiceWorld {
    seed: Seed,
    stage: ScenarioStage,
    server: Server,
    standin: Standin,
    kubelets: Kubelets,
    services: Services,
    controller: Arc<CloudController>,
    _tasks: JoinSet<()>,
}

impl ServiceWorld {
    /// Builds the world and starts the process. Must be called in a current-thread runtime with
    /// paused time.
    ///
    /// # Errors
    /// When the server refuses the CRDs of the machine API.
    pub async fn new(setup: &ServiceSetup) -> Result<Self, ScenarioError> {
        let clock = RunClock::start();
        let history = RunHistory::new(Arc::new(clock), invariants::all(&setup.profile));
        let server = server(clock, setup.seed, "target", None);
        let settings = standin_settings(setup);
        let standin = Standin::in_memory(settings, CloudClock::from_fn(move || clock.time()));
        let (lab, dead) = Lab::new(clock, history.clone(), setup.seed, &setup.profile, setup.crash, None);
        history.follow(Side::Target, server.commits());
        let objects = history.clone();
        if setup.has_machines {
            apply_crds(&server).await?;
        }
        standin.observe(move |state| objects.hcloud(state));

        let mut tasks = JoinSet::new();
        let happens = |kind: LongKind| setup.profile.long.iter().any(|fault| fault.kind == kind);
        let loses_services = happens(LongKind::FinalizersOff) || happens(LongKind::TargetRestored);
        let stage =
            ScenarioStage::new(lab.clone(), if loses_services { PATIENCE_WITH_ORPHANS } else { PATIENCE });
        stage.follow(&server, &mut tasks);
        let kubelets = Kubelets::new(lab.clone(), client(&server, "kubelet"), standin.clone());
        tasks.spawn(kubelets.clone().run());
        let host = Arc::new(HostClock::new(clock));
        tasks.spawn(host.clone().step(TestedProcess::CloudController, lab.clone()));
        let controller = CloudController::new(ServiceSurroundings {
            lab: lab.clone(),
            servers: BTreeMap::from([(Side::Control, server.clone()), (Side::Target, server.clone())]),
            standin: standin.clone(),
            clock: host,
            planners: setup.mutant.map_or_else(Planners::default, Mutant::planners),
            seed: setup.seed,
            machines: setup.has_machines.then(|| NAMESPACE.to_owned()),
            has_election: happens(LongKind::SecondReplica),
        });
        tasks.spawn(controller.clone().tend(dead));
        controller.start();
        let repeats = if loses_services { Repeats::WhenUndone } else { Repeats::Never };
        let services = Services::new(server.clone(), repeats);
        if happens(LongKind::Restarts) {
            tasks.spawn(weather::watch_releases(lab.clone(), server.clone()));
        }
        for fault in setup.profile.long.iter().copied() {
            let elements = weather::Elements {
                lab: lab.clone(),
                server: server.clone(),
                standin: standin.clone(),
                controller: controller.clone(),
                kubelets: kubelets.clone(),
                services: services.clone(),
                seed: setup.seed,
            };
            tasks.spawn(weather::happen(elements, fault));
        }
        Ok(Self { seed: setup.seed, stage, server, standin, kubelets, services, controller, _tasks: tasks })
    }

    /// The shared parts of the run.
    pub fn lab(&self) -> &Arc<Lab> {
        self.stage.lab()
    }

    /// The place where the scenario waits.
    pub fn stage(&self) -> &ScenarioStage {
        &self.stage
    }

    /// The seed of all random draws.
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// The API server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The user's client, which meets no faults.
    pub fn user(&self) -> kube::Client {
        client(&self.server, "user")
    }

    /// The stand-in, as its operator sees it.
    pub fn standin(&self) -> &Standin {
        &self.standin
    }

    /// The kubelets.
    pub fn kubelets(&self) -> &Kubelets {
        &self.kubelets
    }

    /// Marks the beginning of the part of interest.
    pub fn begin(&self, what: &str) {
        self.stage.begin(what);
    }

    /// Creates a server with a kubelet, and returns its id.
    ///
    /// # Errors
    /// When the stand-in refuses the server.
    pub fn boot(&self, name: &str) -> Result<i64, ScenarioError> {
        let id = self.create_server(name)?;
        self.kubelets.install(id, name);
        Ok(id)
    }

    /// Creates a server without a kubelet.
    ///
    /// # Errors
    /// When the stand-in refuses the server.
    pub fn create_server(&self, name: &str) -> Result<i64, ScenarioError> {
        let server = self.standin.create_server(&NewServer::new(PROJECT, name));
        server.map(|server| server.id).map_err(|error| ScenarioError(error.to_string()))
    }

    /// Deletes a server behind the back of all programs.
    ///
    /// # Errors
    /// When no server has that id.
    pub fn kill(&self, id: i64) -> Outcome {
        self.standin.delete_server(id).map_err(|error| ScenarioError(error.to_string()))
    }

    /// Creates servers with kubelets, and waits until their Nodes are initialised.
    ///
    /// # Errors
    /// When a Node is never initialised.
    pub async fn start_with(&self, names: &[&str]) -> Result<Vec<i64>, ScenarioError> {
        let ids: Result<Vec<i64>, ScenarioError> = names.iter().map(|name| self.boot(name)).collect();
        self.until("the Nodes to be initialised", |view| view.are_initialized(names)).await?;
        ids
    }

    /// Creates a Service of type LoadBalancer with one port.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn create_service(&self, name: &str) -> Outcome {
        self.services.create(name, json!({})).await
    }

    /// Creates a Service of type LoadBalancer with one port, which chooses the name of its load
    /// balancer.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn create_service_named(&self, name: &str, balancer: &str) -> Outcome {
        self.services.create(name, json!({NAME: balancer})).await
    }

    /// Deletes a Service.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn delete_service(&self, name: &str) -> Outcome {
        self.services.delete(name).await
    }

    /// All existing objects.
    pub fn look(&self) -> ServiceView {
        let all = |table| Item::all(&self.server, &[table]);
        let (nodes, services, machines) = (all(NODES), all(SERVICES), all(MACHINES));
        let (lost, reports) = self.lab().history.look(|state| {
            let lost = lost_services(state);
            let reports = if lost.is_empty() { Vec::new() } else { reports(state) };
            (lost, reports)
        });
        let whys = self.controller.lives().look(|running| {
            let whys = running.inspector().whys().into_iter();
            whys.map(|(key, record)| (key.to_string(), Said::of(&record.why))).collect()
        });
        let cloud = self.standin.dump();
        ServiceView { nodes, services, machines, cloud, lost, reports, whys: whys.unwrap_or_default() }
    }

    /// Waits for a state and returns it. `is_so` returns what is still missing.
    ///
    /// # Errors
    /// When the state is never reached, or an invariant is violated.
    pub async fn until(
        &self,
        what: &str,
        is_so: impl Fn(&ServiceView) -> Result<(), String>,
    ) -> Result<ServiceView, ScenarioError> {
        self.stage.until(what, || self.look(), is_so).await
    }

    /// Waits for a time in which the world must keep all invariants.
    ///
    /// # Errors
    /// When an invariant is violated.
    pub async fn pass(&self, time: Duration) -> Outcome {
        self.stage.pass(time).await
    }
}

/// The UIDs of the load balancers' Services that another actor or a restore has removed.
fn lost_services(state: &RunState) -> BTreeSet<String> {
    let owners = state.project().balancers().map(|(_, track)| &track.service);
    owners.filter(|uid| state.lost_at(uid).is_some()).cloned().collect()
}

/// The messages about load balancers without a Service.
fn reports(state: &RunState) -> Vec<String> {
    let events = state.table(Side::Target, EVENTS).flat_map(|(_, track)| track.versions());
    let reports = events.filter(|(_, event)| event.text("/reason") == ORPHANED_BALANCER);
    reports.map(|(_, event)| event.text("/message").to_owned()).collect()
}

fn standin_settings(setup: &ServiceSetup) -> Settings {
    let mut settings = Settings::default();
    settings.tokens.set(TOKEN, PROJECT, Access::ReadWrite);
    if setup.profile.rates.contains_key(&Fault::D4) {
        // Within the promise of the driver: a new object is visible after ten seconds.
        let mut stream = setup.seed.stream("lag");
        settings.visible_in_lists = stream.within(Duration::ZERO..Duration::from_secs(8));
    }
    settings
}
