//! The two processes under test and their lives: they are started, killed at a call, and started
//! again with no state except the API's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use machinist_apiserver::{Identity, ReplicaView, Server};
use machinist_cloud_sim::Cloud;
use machinist_controllers::{
    Clients, MachineController, MachineOptions, Manager, Options, Planners, ProcessOptions, Running,
};
use machinist_driver_sim::{PROMISES, SimProvider};
use machinist_instance::Promises;
use machinist_kube::{ClientOptions, layer_client};
use tokio::sync::mpsc;

use super::NAMESPACE;
use crate::actor::{Process, Side};
use crate::faults::cloud::CloudWire;
use crate::faults::crash::{Life, Victims};
use crate::faults::wire::Wire;
use crate::lab::Lab;
use crate::seed::Seed;

/// Time between death and restart. It is as short as a restart can be, because a longer gap would
/// hide errors of a quick successor.
const DEAD_FOR: Duration = Duration::from_millis(500);

/// Interval in which each object is reconciled at least once.
pub const RESYNC: Duration = Duration::from_secs(600);

/// The dependencies of the processes.
pub struct Surroundings {
    /// The shared parts of the run.
    pub lab: Arc<Lab>,
    /// The control server.
    pub control: Server,
    /// The target server.
    pub target: Server,
    /// The cloud.
    pub cloud: Cloud,
    /// The planners.
    pub planners: Planners,
    /// The seed for the processes' random draws.
    pub seed: Seed,
    /// The replicas that each process reads from, if its request allows it.
    pub views: BTreeMap<(Process, Side), ReplicaView>,
}

/// Both processes.
pub struct Processes {
    surroundings: Surroundings,
    running: Mutex<BTreeMap<Process, Running>>,
    lives: Mutex<BTreeMap<Process, u32>>,
}

impl Processes {
    /// Creates the processes without starting them.
    pub fn new(surroundings: Surroundings) -> Arc<Self> {
        Arc::new(Self { surroundings, running: Mutex::default(), lives: Mutex::default() })
    }

    /// Starts a process with a new client, new stores and no memory.
    pub fn start(&self, process: Process) {
        let number = {
            let mut lives = lock(&self.lives);
            let number = lives.entry(process).or_default();
            *number += 1;
            *number - 1
        };
        let life = Arc::new(Life::new(process, number));
        let Surroundings { lab, .. } = &self.surroundings;
        lab.points.born(life.clone());
        if number != 0 {
            lab.history.note(format!("the {process} starts again"));
        }
        let clients =
            Clients { control: self.client(&life, Side::Control), target: self.client(&life, Side::Target) };
        let options = self.options(&life);
        let running = match process {
            Process::Manager => Manager::start(clients, options, None),
            Process::MachineController => {
                MachineController::start(clients, options, self.machine_options(&life), None)
            }
            // `crate::ccm::process` starts it.
            Process::CloudController => return,
        };
        lock(&self.running).insert(process, running);
    }

    /// Stops a process as its user does, while it has no call in flight.
    pub fn stop(&self, process: Process) {
        self.bury(process);
        self.surroundings.lab.history.note(format!("the {process} is stopped"));
    }

    /// Drops a process after its life has ended.
    fn bury(&self, process: Process) {
        let buried = lock(&self.running).remove(&process);
        drop(buried);
    }

    /// Runs for ever: drops killed processes and starts them again.
    pub async fn tend(self: Arc<Self>, mut deaths: mpsc::UnboundedReceiver<Victims>) {
        while let Some(victims) = deaths.recv().await {
            let struck = Process::ALL.into_iter().filter(|process| victims.include(*process));
            let struck: Vec<Process> = struck.collect();
            for process in &struck {
                self.bury(*process);
                self.surroundings.lab.history.note(format!("the {process} is dead"));
            }
            tokio::time::sleep(DEAD_FOR).await;
            for process in struck {
                self.start(process);
            }
        }
    }

    fn client(&self, life: &Arc<Life>, side: Side) -> kube::Client {
        let Surroundings { lab, control, target, seed, views, .. } = &self.surroundings;
        let server = match side {
            Side::Control => control,
            Side::Target => target,
        };
        let agent = life.process.user_agent();
        let mut service = server.service_as(Identity::admin()).with_user_agent(agent);
        if let Some(view) = views.get(&(life.process, side)) {
            service = service.with_replica_view(view.clone());
        }
        let wire = Wire::new(side, life.clone(), lab.clone(), server.clone(), service);
        let options = ClientOptions {
            clock: lab.shared_clock(),
            seed: seed.stream(&format!("client/{agent}/{side}/{}", life.number)).bits(),
            ..ClientOptions::new(agent)
        };
        layer_client(wire, &options)
    }

    fn options(&self, life: &Life) -> Options {
        let Surroundings { lab, planners, seed, .. } = &self.surroundings;
        let agent = life.process.user_agent();
        let process = ProcessOptions {
            clock: lab.shared_clock(),
            resync: RESYNC,
            seed: seed.stream(&format!("options/{agent}/{}", life.number)).bits(),
            instance: "sim".to_owned(),
            ..ProcessOptions::new(NAMESPACE, agent)
        };
        Options { planners: *planners, ..Options::from(process) }
    }

    fn machine_options(&self, life: &Arc<Life>) -> MachineOptions {
        let Surroundings { lab, cloud, seed, .. } = &self.surroundings;
        let settings = cloud.settings();
        let promises =
            Promises { visible_within: settings.visible_within, call_bound: settings.call_bound, ..PROMISES };
        let wire = CloudWire::new(life.clone(), lab.clone(), cloud.clone());
        // The classes of the Go fixtures name the provider `Fast`.
        let provider =
            SimProvider::over(Arc::new(wire), promises).also_serving("Fast").with_scheme(settings.scheme);
        let entropy = Mutex::new(seed.stream(&format!("entropy/{}", life.number)));
        MachineOptions {
            entropy: Arc::new(move |bytes| lock(&entropy).fill(bytes)),
            ..MachineOptions::new(Arc::new(provider), "sim")
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
