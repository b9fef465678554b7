//! The cloud of a run: the simulated cloud, a stand-in for the API of Hetzner Cloud, pods of the
//! embedded API server, or a Docker engine.
//!
//! The first three have a simulated cloud inside that boots the instances, so `up` counts instances
//! in the same ledger. An engine keeps no ledger.

mod docker;
mod folder;
mod in_process;
mod network;
mod pods;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use machinist_apiserver::Server;
use machinist_cloud_sim::{Clock, Cloud, Settings};
use machinist_driver::Provider;
use machinist_driver_hcloud::{BalancerDefaults, Endpoint, HcloudOptions, HcloudProvider};
use machinist_driver_sim::SimProvider;
use machinist_standin_hcloud::Standin;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub(super) use self::docker::{
    DOCKER, Docker, FILES as DOCKER_FILES, Identity as DockerIdentity, NODE_IMAGE, PortMoved, TOKEN_GROUP,
    Target,
};
pub(super) use self::folder::{HCLOUD, LOCAL};
use self::in_process::InProcess;
pub(super) use self::network::POD_NETWORK;
use crate::args::UpArgs;
use crate::clouds::UpCloud;

/// Token of the stand-in, which the quick start also has. The stand-in listens on loopback only.
pub(super) const TOKEN: &str = "stand-in";
/// Location and type of a load balancer whose Service names none.
const BALANCER: (&str, &str) = ("fsn1", "lb11");
/// Base URL for clients in this process. The port of the stand-in changes from run to run, and the
/// URL is part of the account that Machines record.
const ENDPOINT: &str = "http://stand-in/v1";

/// The cloud that the flags choose, before its state is opened.
#[derive(Clone)]
pub(super) enum Choice {
    /// The simulated cloud.
    Sim,
    /// A stand-in for Hetzner Cloud.
    Hcloud,
    /// An engine that has answered.
    Docker(Arc<Docker>),
    /// Pods.
    Local,
}

/// The cloud of a run.
#[derive(Clone)]
pub(super) enum Backend {
    /// The simulated cloud.
    Sim(Cloud),
    /// A stand-in for Hetzner Cloud.
    Hcloud(Standin),
    /// The containers of an engine.
    Docker(Arc<Docker>),
    /// Pods. The cloud boots the machines inside of them.
    Local(Cloud),
}

/// Numbers of instances.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    /// Instances in the cloud, including those being deleted.
    pub alive: usize,
    /// The existing instances that do not run.
    pub stopped: usize,
    /// Instances ever created, if the cloud has a ledger.
    pub ever: Option<usize>,
}

/// Addresses of a cloud.
#[derive(Debug, Clone)]
pub(super) struct CloudUrls {
    /// URL for clients of the cloud; for pods, their resource.
    pub api: String,
    /// URL of the functions for the operator; for a Docker engine, the name of the cluster; for
    /// pods, their resource.
    pub control: String,
}

impl Choice {
    /// Returns the cloud of the flags. A Docker engine has to answer; `docker` is the identity of
    /// the cluster there, and `folder` the directory of `up`.
    ///
    /// # Errors
    /// If no engine answers, or another one than before.
    pub(super) async fn open(
        args: &UpArgs,
        docker: Option<DockerIdentity>,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        match (args.cloud, docker) {
            (UpCloud::Docker, Some(identity)) => {
                Ok(Self::Docker(Arc::new(Docker::connect(args, identity, folder).await?)))
            }
            (UpCloud::Hcloud, _) => Ok(Self::Hcloud),
            (UpCloud::Local, _) => Ok(Self::Local),
            (UpCloud::Sim | UpCloud::Docker, _) => Ok(Self::Sim),
        }
    }

    /// Returns which cloud this is.
    pub(super) fn which(&self) -> UpCloud {
        match self {
            Self::Sim => UpCloud::Sim,
            Self::Hcloud => UpCloud::Hcloud,
            Self::Docker(_) => UpCloud::Docker,
            Self::Local => UpCloud::Local,
        }
    }

    /// Returns the cluster of containers, if this is a Docker engine.
    pub(super) fn docker(&self) -> Option<&Arc<Docker>> {
        match self {
            Self::Docker(docker) => Some(docker),
            Self::Sim | Self::Hcloud | Self::Local => None,
        }
    }

    /// Creates a cloud without state.
    ///
    /// # Errors
    /// If a file of the temporary directory cannot be written.
    pub(super) fn in_memory(&self) -> anyhow::Result<Backend> {
        match self {
            Self::Sim => Ok(Backend::Sim(Cloud::in_memory(Settings::default(), Clock::wall()))),
            Self::Local => Ok(Backend::Local(Cloud::in_memory(Settings::default(), Clock::wall()))),
            Self::Hcloud => {
                let settings = machinist_standin_hcloud::Settings::default();
                Ok(Backend::Hcloud(Standin::in_memory(settings, Clock::wall())))
            }
            Self::Docker(docker) => {
                docker.keep()?;
                Ok(Backend::Docker(docker.clone()))
            }
        }
    }
}

impl Backend {
    /// Returns the cloud that boots the instances, with the ledger of all of them; `None` for a
    /// Docker engine.
    pub(super) fn machines(&self) -> Option<&Cloud> {
        match self {
            Self::Sim(cloud) | Self::Local(cloud) => Some(cloud),
            Self::Hcloud(standin) => Some(standin.machines()),
            Self::Docker(_) => None,
        }
    }

    /// Returns the cluster of containers, if this is a Docker engine.
    pub(super) fn docker(&self) -> Option<&Arc<Docker>> {
        match self {
            Self::Docker(docker) => Some(docker),
            Self::Sim(_) | Self::Hcloud(_) | Self::Local(_) => None,
        }
    }

    /// Counts the instances.
    ///
    /// # Errors
    /// If the engine does not answer.
    pub(super) async fn counts(&self) -> anyhow::Result<Counts> {
        match self {
            Self::Docker(docker) => docker.counts().await,
            Self::Sim(cloud) | Self::Local(cloud) => Ok(Counts::of(cloud)),
            Self::Hcloud(standin) => Ok(Counts::of(standin.machines())),
        }
    }

    /// Returns the reason why the cloud cannot write its ledger, while that lasts.
    pub(super) fn ledger_trouble(&self) -> watch::Receiver<Option<Arc<str>>> {
        match self.machines() {
            Some(cloud) => cloud.ledger_trouble(),
            #[expect(clippy::disallowed_methods, reason = "nothing is ever sent")]
            None => watch::channel(None).1,
        }
    }

    /// Returns the provider for the controllers, with the network of that name. The provider calls
    /// the cloud in this process. Pods are in the API server, in the namespace of the Machines.
    pub(super) fn provider(
        &self,
        network: Option<&str>,
        server: &Server,
        namespace: &str,
    ) -> Arc<dyn Provider> {
        match self {
            Self::Sim(cloud) => Arc::new(SimProvider::in_process(cloud.clone())),
            Self::Hcloud(standin) => {
                let (location, balancer_type) = BALANCER;
                let options = HcloudOptions {
                    endpoint: Endpoint::parse(ENDPOINT).expect("a URL"),
                    network: network.map(str::to_owned),
                    balancer_defaults: BalancerDefaults {
                        location: Some(location.to_owned()),
                        balancer_type: Some(balancer_type.to_owned()),
                        ..BalancerDefaults::default()
                    },
                    ..HcloudOptions::default()
                };
                Arc::new(HcloudProvider::over(Arc::new(InProcess(standin.clone())), options))
            }
            Self::Docker(docker) => docker.provider(),
            Self::Local(_) => pods::provider(server, namespace),
        }
    }

    /// Creates the network of `--cloud-network`. Returns a remark with its id.
    ///
    /// # Errors
    /// If the cloud rejects the name.
    pub(super) async fn ensure_network(&self, name: Option<&str>) -> anyhow::Result<Option<String>> {
        match (self, name) {
            (Self::Sim(_) | Self::Docker(_) | Self::Local(_), _) | (Self::Hcloud(_), None) => Ok(None),
            (Self::Hcloud(standin), Some(name)) => {
                let id = network::ensure(standin, name).await?;
                Ok(Some(format!(
                    "Network {name} has id {id}; a MachineClass attaches its servers with providerSpec.networks: [{id}]"
                )))
            }
        }
    }

    /// Serves the API of the cloud and the functions for its operator.
    ///
    /// # Errors
    /// If the address is in use.
    pub(super) async fn serve(
        &self,
        parts: &mut JoinSet<anyhow::Error>,
        address: SocketAddr,
    ) -> anyhow::Result<CloudUrls> {
        const FLAG: &str = "--cloud-listen";
        match self {
            Self::Sim(cloud) => {
                let server = machinist_cloud_sim::http::LoopbackServer::bind(cloud.clone(), address);
                let server = server.await.context(FLAG)?;
                let url = server.url();
                parts.spawn(async move {
                    server.serve(std::future::pending()).await;
                    anyhow::anyhow!("the simulated cloud stopped listening")
                });
                Ok(CloudUrls { control: format!("{url}/admin"), api: url })
            }
            Self::Hcloud(standin) => {
                let server = machinist_standin_hcloud::http::LoopbackServer::bind(standin.clone(), address);
                let server = server.await.context(FLAG)?;
                let (api, control) = (server.url(), format!("http://{}/_control", server.address()));
                parts.spawn(async move {
                    server.serve(std::future::pending()).await;
                    anyhow::anyhow!("the stand-in for Hetzner Cloud stopped listening")
                });
                Ok(CloudUrls { api, control })
            }
            // The API server serves the pods.
            Self::Local(_) => Ok(CloudUrls { api: "pods".to_owned(), control: "pods".to_owned() }),
            // The engine has its own socket.
            Self::Docker(docker) => Ok(CloudUrls { api: docker.engine(), control: docker.name().to_owned() }),
        }
    }
}

impl Counts {
    fn of(cloud: &Cloud) -> Self {
        let ledger = cloud.ledger();
        Self { alive: ledger.alive().count(), stopped: 0, ever: Some(ledger.ever().len()) }
    }
}

impl UpCloud {
    /// Returns `machinist up` for this cloud and this data directory, for advice.
    pub(super) fn command_line(self, data_dir: &Path) -> String {
        let data_dir = crate::wiring::in_shell(data_dir);
        match self {
            Self::Sim => format!("machinist up --data-dir {data_dir}"),
            Self::Hcloud | Self::Docker | Self::Local => {
                format!("machinist up --cloud {} --data-dir {data_dir}", self.cloud().name)
            }
        }
    }
}
