//! The cloud of a run: the simulated cloud, or a stand-in for the API of Hetzner Cloud.
//!
//! Each of them has a simulated cloud inside that boots the instances, so `up` counts instances in
//! the same ledger.

mod folder;
mod in_process;
mod network;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use machinist_cloud_sim::{Clock, Cloud, Settings};
use machinist_driver::Provider;
use machinist_driver_hcloud::{BalancerDefaults, Endpoint, HcloudOptions, HcloudProvider};
use machinist_driver_sim::SimProvider;
use machinist_standin_hcloud::Standin;
use serde_json::Value;
use tokio::task::JoinSet;

pub(super) use self::folder::HCLOUD;
use self::in_process::InProcess;
pub(super) use self::network::POD_NETWORK;
use crate::args::UpCloud;

/// Token of the stand-in, which the quick start also has. The stand-in listens on loopback only.
pub(super) const TOKEN: &str = "stand-in";
/// Location and type of a load balancer whose Service names none.
const BALANCER: (&str, &str) = ("fsn1", "lb11");
/// Base URL for clients in this process. The port of the stand-in changes from run to run, and the
/// URL is part of the account that Machines record.
const ENDPOINT: &str = "http://stand-in/v1";

/// The cloud of a run.
#[derive(Debug, Clone)]
pub(super) enum Backend {
    /// The simulated cloud.
    Sim(Cloud),
    /// A stand-in for Hetzner Cloud.
    Hcloud(Standin),
}

/// Addresses of a cloud.
#[derive(Debug, Clone)]
pub(super) struct CloudUrls {
    /// URL for clients of the cloud.
    pub api: String,
    /// URL of the functions for the operator.
    pub control: String,
}

impl Backend {
    /// Creates a cloud without state.
    pub(super) fn in_memory(which: UpCloud) -> Self {
        match which {
            UpCloud::Sim => Self::Sim(Cloud::in_memory(Settings::default(), Clock::wall())),
            UpCloud::Hcloud => {
                Self::Hcloud(Standin::in_memory(machinist_standin_hcloud::Settings::default(), Clock::wall()))
            }
        }
    }

    /// Returns the cloud that boots the instances, with the ledger of all of them.
    pub(super) fn machines(&self) -> &Cloud {
        match self {
            Self::Sim(cloud) => cloud,
            Self::Hcloud(standin) => standin.machines(),
        }
    }

    /// Returns the provider for the controllers, with the network of that name. The provider calls
    /// the cloud in this process.
    pub(super) fn provider(&self, network: Option<&str>) -> Arc<dyn Provider> {
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
        }
    }

    /// Creates the network of `--cloud-network`. Returns a remark with its id.
    ///
    /// # Errors
    /// If the cloud rejects the name.
    pub(super) async fn ensure_network(&self, name: Option<&str>) -> anyhow::Result<Option<String>> {
        match (self, name) {
            (Self::Sim(_), _) | (Self::Hcloud(_), None) => Ok(None),
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
                let server = machinist_cloud_sim::http::Server::bind(cloud.clone(), address);
                let server = server.await.context(FLAG)?;
                let url = server.url();
                parts.spawn(async move {
                    server.serve(std::future::pending()).await;
                    anyhow::anyhow!("the simulated cloud stopped listening")
                });
                Ok(CloudUrls { control: format!("{url}/admin"), api: url })
            }
            Self::Hcloud(standin) => {
                let server = machinist_standin_hcloud::http::Server::bind(standin.clone(), address);
                let server = server.await.context(FLAG)?;
                let (api, control) = (server.endpoint(), format!("http://{}/_control", server.address()));
                parts.spawn(async move {
                    server.serve(std::future::pending()).await;
                    anyhow::anyhow!("the stand-in for Hetzner Cloud stopped listening")
                });
                Ok(CloudUrls { api, control })
            }
        }
    }
}

impl UpCloud {
    /// Returns the name on the command line, which a MachineClass has as its provider.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Hcloud => "hcloud",
        }
    }

    /// Checks the providerSpec of a class for this cloud.
    ///
    /// # Errors
    /// The first wrong field, with the expected value.
    pub(super) fn check(self, provider_spec: &Value) -> Result<(), String> {
        let checked = match self {
            Self::Sim => machinist_driver_sim::ProviderSpec::parse(provider_spec).map(drop),
            Self::Hcloud => machinist_driver_hcloud::ProviderSpec::parse(provider_spec).map(drop),
        };
        checked.map_err(|error| error.message)
    }

    /// Returns `machinist up` for this cloud and this data directory, for advice.
    pub(super) fn command_line(self, data_dir: &Path) -> String {
        let data_dir = crate::wiring::in_shell(data_dir);
        match self {
            Self::Sim => format!("machinist up --data-dir {data_dir}"),
            Self::Hcloud => format!("machinist up --cloud hcloud --data-dir {data_dir}"),
        }
    }
}
