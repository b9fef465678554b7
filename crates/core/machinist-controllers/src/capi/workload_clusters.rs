//! Clients of workload clusters.

use std::time::Duration;

use futures::future::BoxFuture;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use machinist_instance::{Error, ErrorKind};

/// Makes clients of workload clusters. Tests replace it, to reach a server in their process.
pub trait WorkloadClusters: Send + Sync {
    /// Makes a client from a kubeconfig that was checked.
    fn client(&self, kubeconfig: Kubeconfig) -> BoxFuture<'static, Result<Client, Error>>;
}

/// Clients that connect over the network.
#[derive(Debug, Clone, Copy)]
pub struct KubeWorkloads;

impl WorkloadClusters for KubeWorkloads {
    fn client(&self, kubeconfig: Kubeconfig) -> BoxFuture<'static, Result<Client, Error>> {
        Box::pin(async move {
            // The errors of kube may quote a part of the kubeconfig.
            let invalid = || Error::new(ErrorKind::InvalidSpec, "the kubeconfig cannot be used");
            let options = KubeConfigOptions::default();
            let mut config =
                Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|_| invalid())?;
            config.connect_timeout = Some(Duration::from_secs(5));
            config.read_timeout = Some(Duration::from_secs(10));
            config.write_timeout = Some(Duration::from_secs(10));
            Client::try_from(config).map_err(|_| invalid())
        })
    }
}

/// A client of a workload cluster.
#[derive(Clone)]
pub(crate) struct Connection(pub(super) Client);
