//! The lives of the provider: it is started, killed at a call, and started again with no state
//! except the state in the API, the engine and the mail service.

use std::sync::Arc;

use futures::future::BoxFuture;
use kube::config::Kubeconfig;
use machinist_apiserver::{Identity, Server};
use machinist_controllers::capi::{
    CapiOptions, CapiProvider, CoreApi, DockerOptions, MailOptions, Planners, Running, Serves,
    WorkloadClusters,
};
use machinist_controllers::{Clients, ProcessOptions};
use machinist_instance::Error;
use machinist_kube::{ClientOptions, SharedClock, Skew, layer_client};
use machinist_mailgun::Mailgun;
use machinist_standin_docker::Engine;
use machinist_standin_mailgun::Standin;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::engine::EngineWire;
use super::mail::MailWire;
use crate::actor::{Side, TestedProcess};
use crate::faults::crash::{Life, Victims};
use crate::faults::wire::FaultyWire;
use crate::faults::{Gate, LongFault};
use crate::lab::Lab;
use crate::lives::{Begun, HostClock, Lives, RESYNC, Replica, Terms, elect};
use crate::seed::Seed;

/// The domain of the mail service.
const DOMAIN: &str = "mail.example.com";
/// The key of the mail service.
pub(super) const KEY: &str = "key-of-the-domain";

/// The kind of infrastructure that the provider of a world serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderKind {
    /// Containers.
    Docker,
    /// Requests by mail.
    Mail,
}

/// The dependencies of the provider.
pub struct ProviderSurroundings {
    /// The shared parts of the run.
    pub lab: Arc<Lab>,
    /// The management cluster.
    pub management: Server,
    /// The workload cluster.
    pub workload: Server,
    /// The engine.
    pub engine: Engine,
    /// The mail service.
    pub post: Standin,
    /// The clock of the host.
    pub clock: Arc<HostClock>,
    /// The planners.
    pub planners: Planners,
    /// The kind of infrastructure that the provider serves.
    pub kind: ProviderKind,
    /// The version of the core kinds.
    pub core: CoreApi,
    /// The seed for the random draws of the provider.
    pub seed: Seed,
    /// Whether the provider takes part in an election.
    pub has_election: bool,
}

/// The provider.
pub struct ProviderProcess {
    surroundings: ProviderSurroundings,
    lives: Lives<Running>,
}

impl ProviderProcess {
    /// Creates the provider without starting it.
    pub fn new(surroundings: ProviderSurroundings) -> Arc<Self> {
        let election = surroundings.has_election.then(|| surroundings.management.clone());
        let lives = Lives::new(TestedProcess::Provider, surroundings.lab.clone(), election);
        Arc::new(Self { surroundings, lives })
    }

    /// The lives of the provider.
    pub fn lives(&self) -> &Lives<Running> {
        &self.lives
    }

    /// Starts the provider with a new client, new stores and no memory.
    pub fn start(&self) {
        self.lives.start(Replica::First, |life, gate| self.begin(life, gate));
    }

    /// Runs forever: drops the killed provider and starts it again.
    pub async fn tend(self: Arc<Self>, deaths: mpsc::UnboundedReceiver<Victims>) {
        self.lives.tend(deaths, |life, gate| self.begin(life, gate)).await;
    }

    /// Runs a second replica until then, and suspends or kills leaders.
    pub async fn replicate_until(&self, fault: LongFault, until: Instant) {
        let begin = |life: &Arc<Life>, gate: &Gate| self.begin(life, gate);
        self.lives.replicate_until(self.surroundings.seed, fault, until, begin).await;
    }

    fn begin(&self, life: &Arc<Life>, gate: &Gate) -> Begun<Running> {
        let ProviderSurroundings { lab, planners, core, seed, has_election, .. } = &self.surroundings;
        let skew = Skew::default();
        let control = self.client(life, Side::Control, &skew);
        let (agent, number) = (life.process.user_agent(), life.number);
        let process = ProcessOptions {
            clock: self.clock(),
            resync: RESYNC,
            skew,
            seed: seed.stream(&format!("options/{agent}/{number}")).bits(),
            instance: "sim".to_owned(),
            wrap: gate.wrap(),
            ..ProcessOptions::new("", agent)
        };
        let options = CapiOptions { planners: *planners, ..CapiOptions::new(self.serves(life), *core) };
        let election =
            has_election.then(|| elect(lab, *seed, life, gate, control.clone(), Terms::short(self.clock())));
        let (leadership, election) = election.unzip();
        let clients = Clients { control: control.clone(), target: control };
        Begun { running: CapiProvider::start(clients, process, options, leadership), election }
    }

    fn clock(&self) -> SharedClock {
        self.surroundings.clock.clone()
    }

    fn client(&self, life: &Arc<Life>, side: Side, skew: &Skew) -> kube::Client {
        let ProviderSurroundings { lab, management, workload, seed, .. } = &self.surroundings;
        let server = match side {
            Side::Control => management,
            Side::Target => workload,
        };
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

    fn serves(&self, life: &Arc<Life>) -> Serves {
        let ProviderSurroundings { lab, engine, post, kind, .. } = &self.surroundings;
        match kind {
            ProviderKind::Docker => {
                let wire = EngineWire::new(life.clone(), lab.clone(), engine.clone());
                let workloads = InProcess(self.client(life, Side::Target, &Skew::default()));
                Serves::Docker(DockerOptions {
                    workloads: Arc::new(workloads),
                    ..DockerOptions::new(Arc::new(wire))
                })
            }
            ProviderKind::Mail => {
                let wire = MailWire::new(life.clone(), lab.clone(), post.clone());
                let base = "https://api.mailgun.net";
                Serves::Mailgun(MailOptions {
                    mailer: Arc::new(Mailgun::over(Arc::new(wire), base, DOMAIN, KEY)),
                    domain: DOMAIN.to_owned(),
                    service: "service".to_owned(),
                    recipient: "ops@example.com".to_owned(),
                    recipient_domains: Vec::new(),
                    credential: "credential".to_owned(),
                    process: format!("life-{}", life.number),
                })
            }
        }
    }
}

/// The workload cluster, which is in this process.
struct InProcess(kube::Client);

impl WorkloadClusters for InProcess {
    fn client(&self, _: Kubeconfig) -> BoxFuture<'static, Result<kube::Client, Error>> {
        Box::pin(std::future::ready(Ok(self.0.clone())))
    }
}
