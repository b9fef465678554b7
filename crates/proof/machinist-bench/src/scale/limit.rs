//! The limit of the server: the writes that a machine needs on its way up, sent directly by 32
//! writers, without controllers and without pauses.
//!
//! The report shows machines per second as a share of it. R, the rate of small status patches
//! ([`super::raw_writes`]), compares computers; the limit compares the controllers with what this
//! server can do with Nodes of this size.

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{Api, DeleteParams, ListParams, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use machinist_api::Machine;
use machinist_kube::GuardedPatch;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::join;
use super::node::Content;
use super::raw_writes::{NAMESPACE, WRITERS};
use crate::objects;

/// The measurement takes this many machines, because a rate of a few machines says little.
const MACHINES: u32 = 500;

/// Machines per second with direct writes. The objects are deleted afterwards.
///
/// # Errors
/// When the server refuses a write.
pub(super) async fn measure(client: &Client, content: Content) -> Result<f64> {
    let machines: Api<Machine> = Api::namespaced(client.clone(), NAMESPACE);
    let began = Instant::now();
    stream::iter((0..MACHINES).map(Ok))
        .try_for_each_concurrent(WRITERS as usize, |number| one(client, number, content))
        .await?;
    let took = began.elapsed();
    machines.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    let nodes: Api<Node> = Api::all(client.clone());
    let deleted = stream::iter(0..MACHINES).map(|number| {
        let nodes = nodes.clone();
        async move { nodes.delete(&name(number), &DeleteParams::default()).await.map(drop) }
    });
    deleted.buffer_unordered(WRITERS as usize).try_collect::<()>().await.context("cannot delete a Node")?;
    Ok(f64::from(MACHINES) / took.as_secs_f64())
}

/// The writes of one machine: the writes of the manager, of the machine controller, and of the
/// kubelet, in the order in which they follow from each other.
async fn one(client: &Client, number: u32, content: Content) -> Result<()> {
    let name = name(number);
    let machines: Api<Machine> = Api::namespaced(client.clone(), NAMESPACE);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let nodes: Api<Node> = Api::all(client.clone());
    let parameters = PatchParams::default();
    let mut machine = objects::machine(&name, "none");
    machine.metadata.labels = Some([("pool".to_owned(), "raw".to_owned())].into());
    let made = machines.create(&PostParams::default(), &machine).await.context("cannot create a Machine")?;
    let uid = made.uid().context("the Machine was created without a UID")?;
    let token: Secret = objects::from_json(json!({
        "metadata": { "name": name },
        "stringData": { "token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true" },
    }));
    secrets.create(&PostParams::default(), &token).await.context("cannot create a Secret")?;
    let patch = GuardedPatch::new(&uid).add(&["spec", "providerID"], Value::from(format!("raw:///{name}")));
    let patch = patch.set_label(made.metadata.labels.as_ref(), "node", &name);
    machines.patch(&name, &parameters, &patch.into_kube()).await.context("cannot patch a Machine")?;
    let status = async |status: Value| {
        let patch = GuardedPatch::new(&uid).add(&["status"], status).into_kube();
        machines.patch_status(&name, &parameters, &patch).await.context("cannot patch a Machine's status")
    };
    let current = |phase: &str| json!({ "currentStatus": { "phase": phase, "lastUpdateTime": "2026-01-01T00:00:00Z" } });
    status(current("Pending")).await?;
    let node = join::join(client, &name, &format!("raw:///{name}"), content).await?;
    let patch = GuardedPatch::new(&node.uid().unwrap_or_default())
        .set_label(node.metadata.labels.as_ref(), "pool", "raw")
        .set_annotation(node.metadata.annotations.as_ref(), "raw", "{}");
    nodes.patch(&name, &parameters, &patch.into_kube()).await.context("cannot patch a Node")?;
    status(current("Running")).await?;
    secrets.delete(&name, &DeleteParams::default()).await.context("cannot delete a Secret")?;
    Ok(())
}

fn name(number: u32) -> String {
    format!("direct-{number}")
}
