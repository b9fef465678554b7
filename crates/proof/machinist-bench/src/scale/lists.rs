//! The time that one client takes for the lists that a controller needs after its start.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{Api, ListParams};
use machinist_api::{MachineClass, MachineSet};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::objects::{self, NAMESPACE};

/// Durations of the lists, one after another, each in one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListTimes {
    /// Machines, sets, classes and Nodes.
    pub(super) without_pods: Duration,
    /// The same, and the pods of all namespaces.
    pub(super) with_pods: Duration,
}

/// Lists all kinds once.
///
/// # Errors
/// When the server refuses a list.
pub(super) async fn measure(client: &Client) -> Result<ListTimes> {
    let began = Instant::now();
    list(objects::machines(client)).await?;
    list::<MachineSet>(Api::namespaced(client.clone(), NAMESPACE)).await?;
    list::<MachineClass>(Api::namespaced(client.clone(), NAMESPACE)).await?;
    list::<Node>(Api::all(client.clone())).await?;
    let without_pods = began.elapsed();
    list::<Pod>(Api::all(client.clone())).await?;
    Ok(ListTimes { without_pods, with_pods: began.elapsed() })
}

async fn list<K: Clone + Debug + DeserializeOwned>(api: Api<K>) -> Result<()> {
    api.list(&ListParams::default()).await.map(drop).context("cannot list the objects of the benchmark")
}
