//! The lives of the cloud-controller-manager: it is started, killed at a call, and started again
//! with no state except the API's and the cloud's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use machinist_apiserver::{Identity, Server};
use machinist_controllers::ccm::{
    CcmOptions, CloudControllerManager, Controllers, Planners, Running, Versioned,
};
use machinist_controllers::{Clients, ProcessOptions};
use machinist_driver_hcloud::{BalancerDefaults, Endpoint, HcloudOptions, HcloudProvider};
use machinist_instance::Credential;
use machinist_kube::{ClientOptions, Clock as _, SharedClock, Skew, layer_client};
use machinist_plan::ccm::{route, service};
use machinist_standin_hcloud::Standin;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::wire::HcloudWire;
use crate::actor::{Side, TestedProcess};
use crate::faults::crash::{Life, Victims};
use crate::faults::wire::FaultyWire;
use crate::faults::{Gate, LongFault};
use crate::lab::Lab;
use crate::lives::{Begun, HostClock, Lives, RESYNC, Replica, Terms, elect};
use crate::seed::Seed;

/// The token of the account.
pub const TOKEN: &str = "token-of-the-project";
/// The project of that token.
pub const PROJECT: &str = "project";

/// The dependencies of the process.
pub struct ServiceSurroundings {
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
    /// Whether the process takes part in an election.
    pub has_election: bool,
}

/// The process.
pub struct CloudController {
    surroundings: ServiceSurroundings,
    token: watch::Sender<Option<Versioned>>,
    lives: Lives<Running>,
}

impl CloudController {
    /// Creates the process without starting it.
    #[expect(clippy::disallowed_methods, reason = "the token never changes")]
    pub fn new(surroundings: ServiceSurroundings) -> Arc<Self> {
        let data = BTreeMap::from([("token".to_owned(), TOKEN.as_bytes().to_vec())]);
        let token = watch::Sender::new(Some(Versioned { version: 1, credential: Credential::new(data) }));
        let election = surroundings.has_election.then(|| surroundings.servers[&Side::Control].clone());
        let lives = Lives::new(TestedProcess::CloudController, surroundings.lab.clone(), election);
        Arc::new(Self { surroundings, token, lives })
    }

    /// The lives of the process.
    pub fn lives(&self) -> &Lives<Running> {
        &self.lives
    }

    /// Starts the process with a new client, new stores and no memory.
    pub fn start(&self) {
        self.lives.start(Replica::First, |life, gate| self.begin(life, gate));
    }

    /// Runs forever: drops the killed process and starts it again.
    pub async fn tend(self: Arc<Self>, deaths: mpsc::UnboundedReceiver<Victims>) {
        self.lives.tend(deaths, |life, gate| self.begin(life, gate)).await;
    }

    /// Runs a second replica until then, and suspends or kills leaders.
    pub async fn replicate_until(&self, fault: LongFault, until: Instant) {
        let begin = |life: &Arc<Life>, gate: &Gate| self.begin(life, gate);
        self.lives.replicate_until(self.surroundings.seed, fault, until, begin).await;
    }

    fn begin(&self, life: &Arc<Life>, gate: &Gate) -> Begun<Running> {
        let skews = [Side::Control, Side::Target].map(|side| (side, Skew::default()));
        let [control, target] = skews.each_ref().map(|(side, skew)| self.client(life, *side, skew));
        let [(_, skew), (_, target_skew)] = skews;
        let (agent, number) = (life.process.user_agent(), life.number);
        let process = ProcessOptions {
            clock: self.clock(),
            resync: RESYNC,
            skew,
            target_skew,
            seed: self.surroundings.seed.stream(&format!("options/{agent}/{number}")).bits(),
            instance: "sim".to_owned(),
            wrap: gate.wrap(),
            ..ProcessOptions::new("kube-system", agent)
        };
        let options = self.options(life);
        let election = self.surroundings.has_election.then(|| {
            let ServiceSurroundings { lab, seed, .. } = &self.surroundings;
            elect(lab, *seed, life, gate, control.clone(), Terms::short(self.clock()))
        });
        let (leadership, election) = election.unzip();
        let clients = Clients { control, target };
        Begun { running: CloudControllerManager::start(clients, process, options, leadership), election }
    }

    fn clock(&self) -> SharedClock {
        self.surroundings.clock.clone()
    }

    fn client(&self, life: &Arc<Life>, side: Side, skew: &Skew) -> kube::Client {
        let ServiceSurroundings { lab, servers, seed, .. } = &self.surroundings;
        let server = &servers[&side];
        let agent = life.process.user_agent();
        let service = server.service_as(Identity::admin()).with_user_agent(agent);
        let wire = FaultyWire::new(side, life.clone(), lab.clone(), server.clone(), service);
        let options = ClientOptions {
            clock: self.clock(),
            skew: skew.clone(),
            seed: seed.stream(&format!("client/{agent}/{side}/{}", life.number)).bits(),
            ..ClientOptions::new(agent)
        };
        layer_client(wire, &options)
    }

    fn options(&self, life: &Arc<Life>) -> CcmOptions {
        let ServiceSurroundings { lab, standin, clock, planners, machines, .. } = &self.surroundings;
        let wire = HcloudWire::new(life.clone(), lab.clone(), standin.clone(), PROJECT);
        let clock = clock.clone();
        let provider = HcloudProvider::over(Arc::new(wire), hcloud_options()).with_clock(move || clock.now());
        let services = service::Options::new("machinist.dev/hcloud", "load-balancer.hetzner.cloud/");
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
