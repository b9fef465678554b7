//! The simulated world: two embedded servers, a cloud in memory and its machines, the built-in
//! controllers of both clusters, and both processes behind connections with faults. Everything runs
//! in one thread under tokio's paused time, and draws from one seed.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::PostParams;
use machinist_api::crd;
use machinist_apiserver::{CertificateAuthority, ReplicaView, Server};
use machinist_cloud_sim::{Clock as CloudClock, Cloud, IdStyle, Settings};
use machinist_controllers::mcm::Planners;
use machinist_node_sim::{Auth, ClientError, Fleet, FleetOptions, Metadata, NODE_USER_AGENT, SeededKeys};
use serde_json::Value;
use tokio::task::JoinSet;

use super::built_in::BuiltIn;
use super::processes::{MachineSurroundings, Processes};
use super::workload::{Election, TENANT};
use super::{
    Ability, MachineView, MachineWorld, NAMESPACE, Outcome, Pace, ScenarioError, Workload, operator,
    progress, tenants, weather,
};
use crate::actor::{Side, TestedProcess, USER};
use crate::faults::cloud::CloudFaults;
use crate::faults::{Crash, Fault, LongFault, Profile};
use crate::history::RunHistory;
use crate::invariants;
use crate::lab::{AnswerRecord, Lab, RunClock};
use crate::mutants::Mutant;
use crate::passes;
use crate::seed::Seed;
use crate::sight::{Item, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, NODES, PODS, SECRETS};
use crate::stage::{ScenarioStage, client, server};

/// The setup of a simulated world.
#[derive(Debug, Clone)]
pub struct MachineSetup {
    /// The seed of all random draws.
    pub seed: Seed,
    /// The faults.
    pub profile: Profile,
    /// The planned crash.
    pub crash: Option<Crash>,
    /// The mutant of the program.
    pub mutant: Option<Mutant>,
    /// The simulated time at which the run begins.
    pub epoch: Option<Timestamp>,
    /// The settings of the cloud.
    pub cloud: Settings,
    /// When the processes start.
    pub processes: Start,
    /// The timeouts of the Machines, and the pods on their Nodes.
    pub workload: Workload,
    /// Whether the machine controller has its safety options.
    pub has_safety: bool,
}

/// When the processes start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Together with the world.
    AtOnce,
    /// On [`MachineWorld::start_processes`].
    Later,
}

impl MachineSetup {
    /// The correct program in a world without faults.
    pub fn calm(seed: Seed) -> Self {
        Self {
            seed,
            profile: Profile::calm(),
            crash: None,
            mutant: None,
            epoch: None,
            cloud: cloud_settings(),
            processes: Start::AtOnce,
            workload: Workload::USUAL,
            has_safety: false,
        }
    }

    /// The correct program in a world with these faults.
    pub fn swarm(seed: Seed, profile: Profile) -> Self {
        let mut setup = Self { profile, ..Self::calm(seed) };
        if setup.profile.rates.contains_key(&Fault::D4) {
            // Besides the fault that hides a single instance, all reads may lag, so that a lost
            // answer can coincide with a lagging read.
            let mut stream = seed.stream("lag");
            setup.cloud.lag = stream.within(Duration::ZERO..setup.cloud.visible_within);
        }
        setup
    }
}

/// A cloud with realistic delays.
fn cloud_settings() -> Settings {
    Settings {
        ids: IdStyle::Numbered,
        visible_within: Duration::from_secs(5),
        call_bound: Duration::from_secs(10),
        latency: Duration::from_millis(50),
        boot: Duration::from_secs(5),
        delete: Duration::from_secs(3),
        ..Settings::default()
    }
}

/// A simulated world. Dropping it ends all its parts.
pub struct Simulated {
    stage: ScenarioStage,
    control: Server,
    target: Server,
    cloud: Cloud,
    processes: Arc<Processes>,
    workload: Workload,
    seed: Seed,
    has_safety: bool,
    _built_in: Arc<BuiltIn>,
    _fleet: Fleet,
    _tasks: JoinSet<()>,
}

/// The CA of all simulated clusters. It is generated once, because keys take time to generate and
/// no test depends on them.
pub(super) fn authority() -> CertificateAuthority {
    static AUTHORITY: OnceLock<CertificateAuthority> = OnceLock::new();
    let make = || {
        let epoch = crate::lab::EPOCH.parse().expect("the epoch is a valid time");
        CertificateAuthority::generate(epoch).expect("a key can be generated")
    };
    AUTHORITY.get_or_init(make).clone()
}

impl Simulated {
    /// Whether the machine controller has its safety options. Then it lists the account from time
    /// to time, to find orphans.
    pub fn has_safety(&self) -> bool {
        self.has_safety
    }

    /// Builds the world. Must be called in a current-thread runtime with paused time.
    ///
    /// # Errors
    /// When the servers refuse the CRDs.
    pub async fn new(setup: &MachineSetup) -> Result<Self, ScenarioError> {
        let clock = setup.epoch.map_or_else(RunClock::start, RunClock::starting_at);
        let is_usual = setup.workload == Workload::USUAL;
        let rules = if is_usual { invariants::all() } else { invariants::every() };
        let history = RunHistory::new(Arc::new(clock), rules);
        let control = server(clock, setup.seed, "control", Some(authority()));
        let target = server(clock, setup.seed, "target", Some(authority()));
        let cloud = Cloud::in_memory(setup.cloud.clone(), CloudClock::from_fn(move || clock.time()));
        let tamper = setup.mutant.and_then(Mutant::tamper);
        let (lab, dead) = Lab::new(clock, history.clone(), setup.seed, &setup.profile, setup.crash, tamper);
        for (side, server) in [(Side::Control, &control), (Side::Target, &target)] {
            history.follow(side, server.commits());
        }
        let ledger = history.clone();
        cloud.observe(move |commit| ledger.ledger(commit));
        cloud.set_schedule(Arc::new(CloudFaults::new(lab.clone(), &cloud)));
        apply_crds(&control).await?;

        let mut tasks = JoinSet::new();
        let servers = BTreeMap::from([(Side::Control, control.clone()), (Side::Target, target.clone())]);
        let built_in = Arc::new(BuiltIn::new(servers, clock, setup.seed));
        // After the last fault, several drains may end by their timeouts, one after the other.
        let patience = PATIENCE + if is_usual { Duration::ZERO } else { AFTER_LONG_FAULTS };
        let stage = ScenarioStage::new(lab.clone(), patience);
        for (side, server) in [(Side::Control, &control), (Side::Target, &target)] {
            stage.follow(server, &mut tasks);
            built_in.start(side);
        }
        let views = replica_views();
        for ((process, side), view) in &views {
            let server = if *side == Side::Control { control.clone() } else { target.clone() };
            tasks.spawn(lag(view.clone(), server, lab.clone(), format!("{process}/{side}")));
        }
        let fleet = Fleet::start(&cloud, fleet_options(&target, setup));
        let planners = setup.mutant.map_or_else(Planners::default, Mutant::planners);
        let processes = Processes::new(MachineSurroundings {
            lab: lab.clone(),
            control: control.clone(),
            target: target.clone(),
            cloud: cloud.clone(),
            planners: passes::counted(planners, lab.fuse.clone()),
            seed: setup.seed,
            views,
            has_safety: setup.has_safety,
            election: match (setup.workload.election, setup.mutant) {
                (Election::Lease, Some(Mutant::IgnoredLease)) => Election::Ignored,
                (election, _) => election,
            },
        });
        tasks.spawn(processes.clone().tend(dead));
        for fault in setup.profile.long.iter().copied() {
            let elements = weather::Elements {
                lab: lab.clone(),
                control: control.clone(),
                target: target.clone(),
                cloud: cloud.clone(),
                processes: processes.clone(),
                built_in: built_in.clone(),
                seed: setup.seed,
            };
            tasks.spawn(weather::happen(elements, fault));
        }
        if setup.profile.long.iter().any(|fault| operator::is_needed_after(fault.kind)) {
            tasks.spawn(operator::clean_up(lab.clone(), control.clone(), target.clone(), cloud.clone()));
        }
        if !is_usual {
            tasks.spawn(progress::watch(lab.clone(), control.clone(), processes.clone()));
            tasks.spawn(progress::watch_forced(lab.clone(), control.clone()));
        }
        tasks.spawn(tenants::move_in(setup.workload.tenants, target.clone(), lab.clone()));
        let MachineSetup { workload, seed, has_safety, .. } = *setup;
        let (_built_in, _fleet, _tasks) = (built_in, fleet, tasks);
        let world = Self {
            stage,
            control,
            target,
            cloud,
            processes,
            workload,
            seed,
            has_safety,
            _built_in,
            _fleet,
            _tasks,
        };
        if setup.processes == Start::AtOnce {
            world.start_processes().await?;
        }
        Ok(world)
    }

    /// The shared parts of the run.
    pub fn lab(&self) -> &Arc<Lab> {
        self.stage.lab()
    }

    /// The place where the scenario waits.
    pub fn stage(&self) -> &ScenarioStage {
        &self.stage
    }

    /// One of the servers.
    pub fn server(&self, side: Side) -> &Server {
        match side {
            Side::Control => &self.control,
            Side::Target => &self.target,
        }
    }

    /// All existing objects.
    pub fn view(&self) -> MachineView {
        let all = |server, table| Item::all(server, &[table]);
        let mut tokens = all(&self.target, SECRETS);
        tokens.retain(|secret| secret.seen().name().starts_with("bootstrap-token-"));
        let mut pods = all(&self.target, PODS);
        pods.retain(|pod| !pod.seen().name().starts_with(TENANT));
        MachineView {
            machines: all(&self.control, MACHINES),
            sets: all(&self.control, MACHINE_SETS),
            deployments: all(&self.control, MACHINE_DEPLOYMENTS),
            nodes: all(&self.target, NODES),
            pods,
            tokens,
            ledger: self.cloud.ledger(),
        }
    }

    /// The certificate authority of both clusters.
    pub fn authority(&self) -> CertificateAuthority {
        authority()
    }
}

/// Creates the CRDs of the machine API.
pub(crate) async fn apply_crds(server: &Server) -> Result<(), ScenarioError> {
    let api: Api<CustomResourceDefinition> = Api::all(client(server, USER));
    for crd in crd::all_crds() {
        api.create(&PostParams::default(), &crd).await?;
    }
    Ok(())
}

fn fleet_options(target: &Server, setup: &MachineSetup) -> FleetOptions {
    let server = target.clone();
    let connect = move |_: &Metadata, auth: &Auth| {
        let service = match auth {
            Auth::Bearer(token) => server.service_with_bearer(token),
            Auth::ClientCert { cert_pem, .. } => {
                server.service_with_client_cert(cert_pem).map_err(|error| ClientError(error.to_string()))?
            }
        };
        Ok(kube::Client::new(service.with_user_agent(NODE_USER_AGENT), NAMESPACE))
    };
    let metadata = Metadata {
        server: "https://target.simulated".to_owned(),
        ca_pem: authority().certificate_pem().to_owned(),
    };
    let mut options = FleetOptions::new(metadata, Arc::new(connect));
    options.keys = Arc::new(SeededKeys(setup.seed.stream("keys").bits()));
    if setup.workload != Workload::USUAL {
        // Half of the usual rate, because the renewals of hours take most of the time of a run.
        options.machines.lease_renewal = Duration::from_secs(20);
    }
    options
}

fn replica_views() -> BTreeMap<(TestedProcess, Side), ReplicaView> {
    let pairs = TestedProcess::ALL
        .into_iter()
        .flat_map(|process| [(process, Side::Control), (process, Side::Target)]);
    pairs.map(|pair| (pair, ReplicaView::default())).collect()
}

/// P5: makes a replica fall behind from time to time during the chaos.
async fn lag(view: ReplicaView, server: Server, lab: Arc<Lab>, place: String) {
    const LOOK_EVERY: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(20);
    if !lab.plan.profile().rates.contains_key(&Fault::P5) {
        return;
    }
    while !lab.plan.is_over() {
        tokio::time::sleep(LOOK_EVERY).await;
        if lab.plan.strikes(Fault::P5, &place) {
            lab.history.note(format!("fault P5: the replica of {place} lags"));
            view.freeze_at(server.revision());
            tokio::time::sleep(lab.plan.span(Fault::P5, &place, LOOK_EVERY..LONGEST)).await;
            view.thaw();
        }
    }
}

/// Timeout for an awaited state.
const PATIENCE: Duration = Duration::from_secs(40 * 60);
/// Further time for the end state in a run with long faults.
const AFTER_LONG_FAULTS: Duration = Duration::from_secs(2 * 3600);
#[async_trait]
impl MachineWorld for Simulated {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn control(&self) -> kube::Client {
        client(&self.control, USER)
    }

    fn target(&self) -> kube::Client {
        client(&self.target, USER)
    }

    fn cloud(&self) -> &Cloud {
        &self.cloud
    }

    fn pace(&self) -> Pace {
        Pace {
            patience: self.stage.patience(),
            watch_for: Duration::from_secs(10 * 60),
            health_timeout: Duration::from_secs(60),
            boot: Duration::from_secs(5),
            until_younger: Duration::ZERO,
        }
    }

    fn workload(&self) -> Workload {
        self.workload
    }

    fn seed(&self) -> Seed {
        self.seed
    }

    fn long_faults(&self) -> &[LongFault] {
        &self.lab().plan.profile().long
    }

    fn now(&self) -> Timestamp {
        self.lab().clock.time()
    }

    async fn look(&self) -> Result<MachineView, ScenarioError> {
        Ok(self.view())
    }

    async fn changed(&self) {
        self.stage.changed().await;
    }

    fn begin(&self, what: &str) {
        self.stage.begin(what);
    }

    async fn start_processes(&self) -> Outcome {
        TestedProcess::ALL.into_iter().for_each(|process| self.processes.start(process));
        Ok(())
    }

    async fn stop_processes(&self) -> Outcome {
        TestedProcess::ALL.into_iter().for_each(|process| self.processes.stop(process));
        Ok(())
    }

    async fn store(&self, side: Side, object: &Value) -> Outcome {
        let loaded = self.server(side).load(object.clone());
        loaded
            .map(drop)
            .map_err(|error| ScenarioError(format!("the {side} server cannot load the object: {error}")))
    }

    fn silence(&self, side: Side, lasts: Duration) -> Outcome {
        self.lab().history.note(format!("the {side} server is silent for {lasts:?}"));
        self.lab().plan.cut_off(side, lasts);
        Ok(())
    }

    fn answers(&self) -> Vec<AnswerRecord> {
        self.lab().answers()
    }

    fn trouble(&self) -> Option<ScenarioError> {
        self.stage.trouble()
    }

    fn can(&self, ability: Ability) -> bool {
        match ability {
            Ability::SkipTime
            | Ability::JudgeCommits
            | Ability::CrashAtCalls
            | Ability::InjectFaults
            | Ability::StoreVerbatim => true,
        }
    }
}
