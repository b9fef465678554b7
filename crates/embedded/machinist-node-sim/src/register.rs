//! The Node: registration, Ready status and heartbeats.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use machinist_cloud_sim::{Clock, LedgerEntry};
use machinist_instance::NodeName;

use crate::Kubelet;
use crate::connect::code;
use crate::node::{self, Readiness};

/// The Lease shows that a machine is alive; the status is for people and programs that read the
/// Node.
const HEARTBEAT: Duration = Duration::from_secs(5 * 60);

/// Creates the Node, or gets the existing one, and sets Ready.
pub(crate) async fn register(
    client: kube::Client,
    entry: &LedgerEntry,
    name: &NodeName,
    kubelet: &Kubelet,
    now: jiff::Timestamp,
) -> Result<Registered, kube::Error> {
    let api: Api<Node> = Api::all(client);
    let node = node::registration(entry, name, kubelet, now, Readiness::Starting);
    let (node, was_there) = match api.create(&PostParams::default(), &node).await {
        Ok(node) => (node, false),
        Err(error) if code(&error) == Some(409) => (api.get(name.as_str()).await?, true),
        Err(error) => return Err(error),
    };
    let provider_id = node.spec.and_then(|spec| spec.provider_id).unwrap_or_default();
    say_ready(&api, name, now).await?;
    Ok(Registered { uid: node.metadata.uid.unwrap_or_default(), was_there, provider_id })
}

/// The Node as the server stores it.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) uid: String,
    /// Whether the Node existed before.
    pub(crate) was_there: bool,
    /// The Node's provider id.
    pub(crate) provider_id: String,
}

async fn say_ready(api: &Api<Node>, name: &NodeName, now: jiff::Timestamp) -> Result<(), kube::Error> {
    let patch = Patch::Strategic(node::ready_patch(now));
    api.patch_status(name.as_str(), &PatchParams::default(), &patch).await.map(drop)
}

/// Patches the status at intervals and never returns. After a failure the next patch comes at its
/// usual time. A Node that a user deleted stays deleted.
pub(crate) async fn heartbeat(client: kube::Client, name: &NodeName, clock: &Clock) {
    let api: Api<Node> = Api::all(client);
    loop {
        tokio::time::sleep(HEARTBEAT).await;
        let patch = Patch::Strategic(node::heartbeat_patch(clock.now()));
        let _ = api.patch_status(name.as_str(), &PatchParams::default(), &patch).await;
    }
}
