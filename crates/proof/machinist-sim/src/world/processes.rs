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
use machinist_kube::lease::{ElectionEnd, Elector, Leadership, LeaseOptions};
use machinist_kube::{ClientOptions, layer_client};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::NAMESPACE;
use super::workload::Election;
use crate::actor::{Process, Side};
use crate::faults::Gate;
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
    /// Whether each process takes part in an election.
    pub election: Election,
}

/// Both processes.
pub struct Processes {
    surroundings: Surroundings,
    running: Mutex<BTreeMap<Process, Running>>,
    elections: Mutex<BTreeMap<Process, JoinSet<()>>>,
    gates: Mutex<BTreeMap<Process, Gate>>,
    lives: Mutex<BTreeMap<Process, u32>>,
}

impl Processes {
    /// Creates the processes without starting them.
    pub fn new(surroundings: Surroundings) -> Arc<Self> {
        Arc::new(Self {
            surroundings,
            running: Mutex::default(),
            elections: Mutex::default(),
            gates: Mutex::default(),
            lives: Mutex::default(),
        })
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
        let gate = Gate::default();
        let leadership = match self.surroundings.election {
            Election::None => None,
            Election::Lease => Some(self.elect(&life, &gate, clients.control.clone())),
        };
        let options = self.options(&life, &gate);
        let running = match process {
            Process::Manager => Manager::start(clients, options, leadership),
            Process::MachineController => {
                MachineController::start(clients, options, self.machine_options(&life), leadership)
            }
            // Their worlds start them.
            Process::CloudController | Process::Provider => return,
        };
        lock(&self.running).insert(process, running);
        lock(&self.gates).insert(process, gate);
    }

    /// Starts the election of a life. The process dies when it loses its Lease.
    fn elect(&self, life: &Arc<Life>, gate: &Gate, client: kube::Client) -> Leadership {
        let Surroundings { lab, seed, .. } = &self.surroundings;
        let agent = life.process.user_agent();
        let options = LeaseOptions {
            // Renewals of hours take most of the time of a run, so they are rare.
            lease_duration: Duration::from_secs(60),
            renew_deadline: Duration::from_secs(40),
            retry_period: Duration::from_secs(10),
            seed: seed.stream(&format!("election/{agent}/{}", life.number)).bits(),
            ..LeaseOptions::new(NAMESPACE, agent, format!("{agent}-{}", life.number))
        };
        let (elector, leadership) = Elector::new(client, options, lab.shared_clock());
        let (lab, process) = (lab.clone(), life.process);
        let election = async move {
            if let ElectionEnd::Lost { reason } = elector.run(std::future::pending()).await {
                lab.history.note(format!("the {process} ends: {reason}"));
                lab.points.strike(Victims::from(process));
            }
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(gate.around(election));
        lock(&self.elections).insert(life.process, tasks);
        leadership
    }

    /// Stops a process in the middle of its work, until [`Self::resume`].
    pub fn suspend(&self, process: Process) {
        if let Some(gate) = lock(&self.gates).get(&process) {
            gate.close();
        }
    }

    /// Lets a suspended process continue.
    pub fn resume(&self, process: Process) {
        if let Some(gate) = lock(&self.gates).get(&process) {
            gate.open();
        }
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
        drop(lock(&self.elections).remove(&process));
    }

    /// Runs for ever: drops killed processes and starts them again.
    pub async fn tend(self: Arc<Self>, mut deaths: mpsc::UnboundedReceiver<Victims>) {
        let mut restarts = JoinSet::new();
        while let Some(victims) = deaths.recv().await {
            let struck = Process::ALL.into_iter().filter(|process| victims.include(*process));
            let struck: Vec<Process> = struck.collect();
            for process in &struck {
                self.bury(*process);
                self.surroundings.lab.history.note(format!("the {process} is dead"));
            }
            restarts.spawn(self.clone().restart(struck));
        }
    }

    async fn restart(self: Arc<Self>, struck: Vec<Process>) {
        tokio::time::sleep(DEAD_FOR).await;
        for process in struck {
            while let Some(until) = self.surroundings.lab.plan.down(process) {
                tokio::time::sleep_until(until).await;
            }
            // Another death may have restarted the process meanwhile.
            if !lock(&self.running).contains_key(&process) {
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

    fn options(&self, life: &Life, gate: &Gate) -> Options {
        let Surroundings { lab, planners, seed, .. } = &self.surroundings;
        let agent = life.process.user_agent();
        let process = ProcessOptions {
            clock: lab.shared_clock(),
            resync: RESYNC,
            seed: seed.stream(&format!("options/{agent}/{}", life.number)).bits(),
            instance: "sim".to_owned(),
            wrap: gate.wrap(),
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
