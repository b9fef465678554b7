//! The two processes under test and their lives: they are started, killed at a call, and started
//! again with no state except the API's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use machinist_apiserver::{Identity, ReplicaView, Server};
use machinist_cloud_sim::Cloud;
use machinist_controllers::mcm::{
    MachineController, MachineOptions, Manager, Options, Planners, Running, ServerLimits,
};
use machinist_controllers::{Clients, ProcessOptions};
use machinist_driver_sim::{PROMISES, SimProvider};
use machinist_instance::Promises;
use machinist_kube::{ClientOptions, layer_client};
use machinist_plan::mcm::{machine, orphan};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::NAMESPACE;
use super::workload::Election;
use crate::actor::{Side, TestedProcess};
use crate::ask::SeenRevisions;
use crate::faults::Gate;
use crate::faults::cloud::CloudWire;
use crate::faults::crash::{Life, Victims};
use crate::faults::wire::FaultyWire;
use crate::lab::Lab;
use crate::lives::{self, Replica, Terms};
use crate::said::Said;
use crate::seed::Seed;
use crate::sight::{CLUSTER, LEASES, SeenObject};

/// Time between death and restart. It is as short as a restart can be, because a longer gap would
/// hide errors of a quick successor.
const DEAD_FOR: Duration = Duration::from_millis(500);

/// Interval in which each object is reconciled at least once.
pub const RESYNC: Duration = Duration::from_secs(600);

/// The dependencies of the processes.
pub struct MachineSurroundings {
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
    pub views: BTreeMap<(TestedProcess, Side), ReplicaView>,
    /// Whether each process takes part in an election.
    pub election: Election,
    /// Whether the machine controller has its safety options.
    pub has_safety: bool,
}

/// Both processes.
pub struct Processes {
    surroundings: MachineSurroundings,
    running: Mutex<BTreeMap<(TestedProcess, Replica), Replicated>>,
    lives: Mutex<BTreeMap<TestedProcess, u32>>,
    held: Mutex<Option<Instant>>,
    standbys: Mutex<Standbys>,
}

/// One life of a replica.
struct Replicated {
    life: Arc<Life>,
    gate: Gate,
    // Dropped first, so that the process ends before its election.
    running: Running,
    _election: Option<JoinSet<()>>,
}

/// The replica of a process that acts now, as an observer sees it.
pub struct Acting {
    /// Number of its life.
    pub life: u32,
    /// The revisions that it has seen.
    pub observed: SeenRevisions,
    /// The answers of `why`, by `kind/namespace/name`.
    pub whys: BTreeMap<String, Said>,
    /// Whether `why` names an API server that does not answer, or a kind that was not listed yet,
    /// before the reason of any object.
    pub names_outage: bool,
}

/// Whether a second replica that dies is started again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Standbys {
    #[default]
    Unwanted,
    Wanted,
}

impl Processes {
    /// Creates the processes without starting them.
    pub fn new(surroundings: MachineSurroundings) -> Arc<Self> {
        Arc::new(Self {
            surroundings,
            running: Mutex::default(),
            lives: Mutex::default(),
            held: Mutex::default(),
            standbys: Mutex::default(),
        })
    }

    /// Starts the first replica of a process.
    pub fn start(&self, process: TestedProcess) {
        self.start_replica(process, Replica::First);
    }

    /// Starts a replica with a new client, new stores and no memory.
    fn start_replica(&self, process: TestedProcess, replica: Replica) {
        let number = {
            let mut lives = lock(&self.lives);
            let number = lives.entry(process).or_default();
            *number += 1;
            *number - 1
        };
        let life = Arc::new(Life::new(process, number));
        let MachineSurroundings { lab, .. } = &self.surroundings;
        lab.points.born(life.clone());
        lab.history.reborn(process);
        if number != 0 {
            lab.history.note(format!("the {process} starts again"));
        }
        let clients =
            Clients { control: self.client(&life, Side::Control), target: self.client(&life, Side::Target) };
        let gate = Gate::default();
        let elect = || {
            let (seed, terms) = (self.surroundings.seed, Terms::long(lab.shared_clock()));
            lives::elect(lab, seed, &life, &gate, clients.control.clone(), terms)
        };
        let (leadership, election) = match self.surroundings.election {
            Election::None => (None, None),
            Election::Lease => {
                let (leadership, election) = elect();
                (Some(leadership), Some(election))
            }
            Election::Ignored => (None, Some(elect().1)),
        };
        let options = self.options(&life, &gate);
        let running = match process {
            TestedProcess::Manager => Manager::start(clients, options, leadership),
            TestedProcess::MachineController => {
                MachineController::start(clients, options, self.machine_options(&life), leadership)
            }
            // Their worlds start them.
            TestedProcess::CloudController | TestedProcess::Provider => return,
        };
        let live = Replicated { life, gate, running, _election: election };
        lock(&self.running).insert((process, replica), live);
    }

    /// Stops a replica in the middle of its work, until [`Self::resume`].
    pub fn suspend(&self, process: TestedProcess, replica: Replica) {
        if let Some(live) = lock(&self.running).get(&(process, replica)) {
            live.gate.close();
        }
    }

    /// Lets a suspended replica continue.
    pub fn resume(&self, process: TestedProcess, replica: Replica) {
        if let Some(live) = lock(&self.running).get(&(process, replica)) {
            live.gate.open();
        }
    }

    /// Kills a replica. It is started again soon, unless a fault keeps it down.
    pub fn kill(&self, process: TestedProcess, replica: Replica) {
        let life = lock(&self.running).get(&(process, replica)).map(|live| live.life.clone());
        if let Some(life) = life {
            self.surroundings.lab.points.strike_life(&life);
        }
    }

    /// Kills all replicas, and starts none before that moment.
    pub fn hold_until(&self, until: Instant) {
        *lock(&self.held) = Some(until);
        self.surroundings.lab.points.strike(Victims::Both);
    }

    /// Starts a second replica of each process.
    pub fn add_standbys(&self) {
        *lock(&self.standbys) = Standbys::Wanted;
        TestedProcess::ALL.into_iter().for_each(|process| self.start_replica(process, Replica::Second));
    }

    /// Ends the second replicas forever.
    pub fn remove_standbys(&self) {
        *lock(&self.standbys) = Standbys::Unwanted;
        TestedProcess::ALL.into_iter().for_each(|process| self.kill(process, Replica::Second));
    }

    /// The replica that holds the Lease of its process, as the Lease on the server says.
    pub fn leader(&self, process: TestedProcess) -> Option<Replica> {
        let leases = self.surroundings.control.snapshot(LEASES);
        let lease = leases.iter().map(|lease| SeenObject(lease.value()));
        let holder = lease
            .filter(|lease| lease.name() == process.user_agent())
            .map(|lease| lease.text("/spec/holderIdentity"))
            .next()?;
        let running = lock(&self.running);
        let mut of_process = running.iter().filter(|((of, _), _)| *of == process);
        of_process.find(|(_, live)| live.life.identity() == holder).map(|((_, replica), _)| *replica)
    }

    /// The replica of a process that acts now; `None` if none runs, or it is suspended.
    pub fn acting(&self, process: TestedProcess) -> Option<Acting> {
        let replica = match self.surroundings.election {
            Election::None => Replica::First,
            Election::Lease | Election::Ignored => self.leader(process)?,
        };
        let running = lock(&self.running);
        let live = running.get(&(process, replica)).filter(|live| !live.gate.is_closed())?;
        let inspector = live.running.inspector();
        let names_outage = !inspector.silent_servers().is_empty() || inspector.not_ready().is_some();
        let whys = inspector.whys().into_iter().map(|(key, record)| (key.to_string(), Said::of(&record.why)));
        let (life, observed) = (live.life.number, live.life.observed());
        Some(Acting { life, observed, whys: whys.collect(), names_outage })
    }

    /// Stops a process as its user does, while it has no call in flight.
    pub fn stop(&self, process: TestedProcess) {
        self.bury(process, Replica::First);
        self.surroundings.lab.history.note(format!("the {process} is stopped"));
    }

    /// Drops a replica after its life has ended.
    fn bury(&self, process: TestedProcess, replica: Replica) {
        let buried = lock(&self.running).remove(&(process, replica));
        drop(buried);
    }

    /// Runs forever: drops killed processes and starts them again.
    pub async fn tend(self: Arc<Self>, mut deaths: mpsc::UnboundedReceiver<Victims>) {
        let mut restarts = JoinSet::new();
        while let Some(victims) = deaths.recv().await {
            let dead = |(of, live): (&(TestedProcess, Replica), &Replicated)| {
                (victims.include(of.0) && !live.life.is_alive()).then_some(*of)
            };
            let struck: Vec<(TestedProcess, Replica)> = lock(&self.running).iter().filter_map(dead).collect();
            for (process, replica) in &struck {
                self.bury(*process, *replica);
                self.surroundings.lab.history.note(format!("the {process} is dead"));
            }
            restarts.spawn(self.clone().restart(struck));
        }
    }

    async fn restart(self: Arc<Self>, struck: Vec<(TestedProcess, Replica)>) {
        tokio::time::sleep(DEAD_FOR).await;
        for (process, replica) in struck {
            while let Some(until) = self.down_until(process, replica) {
                tokio::time::sleep_until(until).await;
            }
            let is_wanted = replica == Replica::First || *lock(&self.standbys) == Standbys::Wanted;
            // Another death may have restarted the process meanwhile.
            if is_wanted && !lock(&self.running).contains_key(&(process, replica)) {
                self.start_replica(process, replica);
            }
        }
    }

    /// The end of the time in which a replica must not run.
    fn down_until(&self, process: TestedProcess, replica: Replica) -> Option<Instant> {
        let down = match replica {
            Replica::First => self.surroundings.lab.plan.down(process),
            Replica::Second => None,
        };
        down.max(lock(&self.held).filter(|until| Instant::now() < *until))
    }

    fn client(&self, life: &Arc<Life>, side: Side) -> kube::Client {
        let MachineSurroundings { lab, control, target, seed, views, .. } = &self.surroundings;
        let server = match side {
            Side::Control => control,
            Side::Target => target,
        };
        let agent = life.process.user_agent();
        let mut service = server.service_as(Identity::admin()).with_user_agent(agent);
        if let Some(view) = views.get(&(life.process, side)) {
            service = service.with_replica_view(view.clone());
        }
        let wire = FaultyWire::new(side, life.clone(), lab.clone(), server.clone(), service);
        let options = ClientOptions {
            clock: lab.shared_clock(),
            seed: seed.stream(&format!("client/{agent}/{side}/{}", life.number)).bits(),
            ..ClientOptions::new(agent)
        };
        layer_client(wire, &options)
    }

    fn options(&self, life: &Life, gate: &Gate) -> Options {
        let MachineSurroundings { lab, planners, seed, .. } = &self.surroundings;
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
        let MachineSurroundings { lab, cloud, seed, has_safety, .. } = &self.surroundings;
        let settings = cloud.settings();
        let promises =
            Promises { visible_within: settings.visible_within, call_bound: settings.call_bound, ..PROMISES };
        let wire = CloudWire::new(life.clone(), lab.clone(), cloud.clone());
        // The classes of the Go fixtures name the provider `Fast`.
        let provider =
            SimProvider::over(Arc::new(wire), promises).also_serving("Fast").with_scheme(settings.scheme);
        let entropy = Mutex::new(seed.stream(&format!("entropy/{}", life.number)));
        let orphans = has_safety.then(orphan::OrphanOptions::default);
        let orphan_period = orphans.map(|settings| settings.period);
        MachineOptions {
            entropy: Arc::new(move |bytes| lock(&entropy).fill(bytes)),
            orphans,
            server_limits: has_safety.then(ServerLimits::default),
            defaults: Arc::new(machine::Defaults { orphan_period, ..machine::Defaults::default() }),
            ..MachineOptions::new(Arc::new(provider), CLUSTER)
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
