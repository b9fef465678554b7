//! The lives of the cloud-controller-manager: it is started, killed at a call, and started again
//! with no state except the API's and the cloud's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use machinist_apiserver::{Identity, Server};
use machinist_controllers::ccm::{
    CcmOptions, CloudControllerManager, Controllers, Planners, Running, Versioned,
};
use machinist_controllers::{Clients, ProcessOptions};
use machinist_driver_hcloud::{BalancerDefaults, Endpoint, HcloudOptions, HcloudProvider};
use machinist_instance::Credential;
use machinist_kube::{ClientOptions, Clock, SharedClock, Skew, layer_client};
use machinist_plan::ccm::{route, service};
use machinist_standin_hcloud::Standin;
use tokio::sync::{mpsc, watch};

use super::wire::HcloudWire;
use crate::actor::{Process, Side};
use crate::faults::crash::{Life, Victims};
use crate::faults::wire::Wire;
use crate::lab::{Lab, RunClock};
use crate::seed::Seed;

/// Time between death and restart. It is as short as a restart can be, because a longer gap would
/// hide errors of a quick successor.
const DEAD_FOR: Duration = Duration::from_millis(500);
/// Interval in which each object is reconciled at least once.
pub const RESYNC: Duration = Duration::from_secs(600);
/// The token of the account.
pub const TOKEN: &str = "token-of-the-project";
/// The project of that token.
pub const PROJECT: &str = "project";

/// The wall clock of the host of the process. It may step.
pub struct HostClock {
    clock: RunClock,
    step: Mutex<SignedDuration>,
}

impl HostClock {
    /// A clock without a step.
    pub fn new(clock: RunClock) -> Self {
        Self { clock, step: Mutex::default() }
    }

    /// Sets the difference from simulated time.
    pub fn step_to(&self, step: SignedDuration) {
        *lock(&self.step) = step;
    }
}

impl Clock for HostClock {
    fn now(&self) -> Timestamp {
        self.clock.time().saturating_add(*lock(&self.step)).unwrap_or(Timestamp::MAX)
    }
}

/// The dependencies of the process.
pub struct Surroundings {
    /// The shared parts of the run.
    pub lab: Arc<Lab>,
    /// The clusters; both may be the same server.
    pub servers: BTreeMap<Side, Server>,
    /// The stand-in.
    pub standin: Standin,
    /// The clock of the host.
    pub clock: Arc<HostClock>,
    /// The planners.
    pub planners: Planners,
    /// The seed for the random draws of the process.
    pub seed: Seed,
    /// Namespace of the Machines that own Nodes, if the machine controller runs.
    pub machines: Option<String>,
}

/// The process.
pub struct CloudController {
    surroundings: Surroundings,
    token: watch::Sender<Option<Versioned>>,
    running: Mutex<Option<Running>>,
    lives: Mutex<u32>,
}

impl CloudController {
    /// Creates the process without starting it.
    #[expect(clippy::disallowed_methods, reason = "the token never changes")]
    pub fn new(surroundings: Surroundings) -> Arc<Self> {
        let data = BTreeMap::from([("token".to_owned(), TOKEN.as_bytes().to_vec())]);
        let token = watch::Sender::new(Some(Versioned { version: 1, credential: Credential::new(data) }));
        Arc::new(Self { surroundings, token, running: Mutex::default(), lives: Mutex::default() })
    }

    /// Starts the process with a new client, new stores and no memory.
    pub fn start(&self) {
        let number = {
            let mut lives = lock(&self.lives);
            *lives += 1;
            *lives - 1
        };
        let life = Arc::new(Life::new(Process::CloudController, number));
        let Surroundings { lab, .. } = &self.surroundings;
        lab.points.born(life.clone());
        if number != 0 {
            lab.history.note("the ccm starts again");
        }
        let skews = [Side::Control, Side::Target].map(|side| (side, Skew::default()));
        let [control, target] = skews.each_ref().map(|(side, skew)| self.client(&life, *side, skew));
        let [(_, skew), (_, target_skew)] = skews;
        let agent = life.process.user_agent();
        let process = ProcessOptions {
            clock: self.clock(),
            resync: RESYNC,
            skew,
            target_skew,
            seed: self.surroundings.seed.stream(&format!("options/{agent}/{number}")).bits(),
            instance: "sim".to_owned(),
            ..ProcessOptions::new("kube-system", agent)
        };
        let options = self.options(&life);
        let running = CloudControllerManager::start(Clients { control, target }, process, options, None);
        *lock(&self.running) = Some(running);
    }

    /// Runs for ever: drops the killed process and starts it again.
    pub async fn tend(self: Arc<Self>, mut deaths: mpsc::UnboundedReceiver<Victims>) {
        while let Some(victims) = deaths.recv().await {
            if !victims.include(Process::CloudController) {
                continue;
            }
            let buried = lock(&self.running).take();
            drop(buried);
            self.surroundings.lab.history.note("the ccm is dead");
            tokio::time::sleep(DEAD_FOR).await;
            self.start();
        }
    }

    fn clock(&self) -> SharedClock {
        self.surroundings.clock.clone()
    }

    fn client(&self, life: &Arc<Life>, side: Side, skew: &Skew) -> kube::Client {
        let Surroundings { lab, servers, seed, .. } = &self.surroundings;
        let server = &servers[&side];
        let agent = life.process.user_agent();
        let service = server.service_as(Identity::admin()).with_user_agent(agent);
        let wire = Wire::new(side, life.clone(), lab.clone(), server.clone(), service);
        let options = ClientOptions {
            clock: self.clock(),
            skew: skew.clone(),
            seed: seed.stream(&format!("client/{agent}/{side}/{}", life.number)).bits(),
            ..ClientOptions::new(agent)
        };
        layer_client(wire, &options)
    }

    fn options(&self, life: &Arc<Life>) -> CcmOptions {
        let Surroundings { lab, standin, clock, planners, machines, .. } = &self.surroundings;
        let wire = HcloudWire::new(life.clone(), lab.clone(), standin.clone(), PROJECT);
        let clock = clock.clone();
        let provider = HcloudProvider::over(Arc::new(wire), hcloud_options()).with_clock(move || clock.now());
        let services = service::Options {
            class: "machinist.dev/hcloud".to_owned(),
            prefix: "load-balancer.hetzner.cloud/".to_owned(),
        };
        let routes =
            route::Options { cluster: Vec::new(), period: Duration::from_secs(300), follows_addresses: true };
        let options = CcmOptions::new(Arc::new(provider), self.token.subscribe(), services, routes);
        CcmOptions {
            controllers: Controllers { route: false, ..Controllers::ALL },
            planners: *planners,
            machines: machines.clone(),
            ..options
        }
    }
}

/// The options of the provider: no network, and load balancers in one location.
pub fn hcloud_options() -> HcloudOptions {
    HcloudOptions {
        endpoint: Endpoint::parse("http://stand-in/v1").expect("a URL"),
        balancer_defaults: BalancerDefaults {
            location: Some("fsn1".to_owned()),
            balancer_type: Some("lb11".to_owned()),
            ..BalancerDefaults::default()
        },
        ..HcloudOptions::default()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
