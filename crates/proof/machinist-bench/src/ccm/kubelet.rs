//! The kubelets of all Nodes: registrations, and status renewals.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use machinist_kube::SharedClock;
use serde_json::{Value, json};

use super::nodes::UNINITIALIZED;
use crate::objects;

/// Period of the status renewals of a kubelet.
const HEARTBEAT: Duration = Duration::from_secs(5 * 60);
/// Number of kubelets that register at the same time.
const AT_ONCE: usize = 50;

/// Registers all Nodes, as kubelets with `--cloud-provider=external`.
pub(super) async fn register(client: &Client, clock: &SharedClock, names: &[String]) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    let registrations = stream::iter(names).map(|name| register_one(&api, clock, name));
    registrations.buffer_unordered(AT_ONCE).try_collect().await
}

async fn register_one(api: &Api<Node>, clock: &SharedClock, name: &str) -> Result<()> {
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {"taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]},
        "status": {"addresses": [{"type": "Hostname", "address": name}], "conditions": [ready(clock)]},
    });
    let created = api.create(&PostParams::default(), &objects::from_json(node)).await;
    created.map(drop).with_context(|| format!("cannot register {name}"))
}

/// Renews the status of each Node at intervals, forever. The renewals are spread over the
/// interval, as kubelets spread them.
pub(super) async fn heartbeats(client: Client, clock: SharedClock, names: Vec<String>) {
    let api: Api<Node> = Api::all(client);
    let pause = HEARTBEAT / u32::try_from(names.len()).unwrap_or(u32::MAX).max(1);
    loop {
        for name in &names {
            tokio::time::sleep(pause).await;
            let patch = Patch::Strategic(json!({"status": {"conditions": [ready(&clock)]}}));
            // A kubelet renews again after its period.
            let _ = api.patch_status(name, &PatchParams::default(), &patch).await;
        }
    }
}

fn ready(clock: &SharedClock) -> Value {
    let now = format!("{:.0}", clock.now());
    json!({
        "type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now,
        // The first time stays, because a strategic patch merges conditions by type; it is written
        // again only so that the registration has it.
        "lastTransitionTime": "2027-01-15T08:00:00Z",
    })
}
