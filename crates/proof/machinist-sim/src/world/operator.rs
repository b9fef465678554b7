//! The operator of the clusters and of the cloud: other deployments in the same account, and the
//! work that a person does after another actor has released Machines, or after a restore.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use machinist_apiserver::Server;
use machinist_cloud_sim::Cloud;
use serde_json::json;
use tokio::time::Instant;

use super::NAMESPACE;
use crate::actor::Side;
use crate::faults::LongKind;
use crate::lab::Lab;
use crate::objects::{client, resource};
use crate::sight::{MACHINES, NODES, SeenObject};

/// User-Agent of the operator's other requests.
const OPERATOR: &str = "operator";
/// The deployment of another user of the account.
const CROWD: &str = "crowd";

/// Whether the fault leaves instances or Nodes that only a person deletes.
pub(super) fn is_needed_after(fault: LongKind) -> bool {
    matches!(fault, LongKind::FinalizersOff | LongKind::ControlRestored | LongKind::TargetRestored)
}

/// Runs forever: deletes instances whose Machine was lost, and Nodes without an instance and a
/// Machine.
pub(super) async fn clean_up(lab: Arc<Lab>, control: Server, target: Server, cloud: Cloud) {
    const LOOK_EVERY: Duration = Duration::from_secs(60);
    /// A person waits so long before an object counts as left over.
    const PATIENCE: Duration = Duration::from_secs(5 * 60);
    let nodes: Api<DynamicObject> =
        Api::all_with(client(&target, OPERATOR), &resource("v1", "Node", "nodes"));
    let mut first_seen: BTreeMap<String, Instant> = BTreeMap::new();
    lab.plan.beginning().await;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let machines = control.snapshot(MACHINES);
        let recorded =
            |id: &str| machines.iter().any(|machine| SeenObject(machine.value()).provider_id() == id);
        let ledger = cloud.ledger();
        let mut left_over: BTreeMap<String, Instant> = BTreeMap::new();
        let mut is_due = |what: String| {
            let since = first_seen.get(&what).copied().unwrap_or_else(Instant::now);
            left_over.insert(what, since);
            PATIENCE <= since.elapsed()
        };
        for entry in ledger.alive() {
            let key = entry.key.as_ref().map_or("", |key| key.as_str());
            let exists = machines.iter().any(|machine| SeenObject(machine.value()).uid() == key);
            let is_lost = lab.history.look(|state| state.lost_at(key).is_some());
            if is_lost && !exists && !recorded(entry.id.as_str()) && is_due(entry.id.to_string()) {
                lab.history.note(format!("the operator deletes the instance {} of no Machine", entry.id));
                // Our own deletion may have ended in this instant.
                let _ = cloud.kill(&entry.id);
            }
        }
        for node in target.snapshot(NODES) {
            let node = SeenObject(node.value());
            let id = node.provider_id();
            let has_instance = !id.starts_with("sim:") || ledger.alive().any(|entry| entry.id.as_str() == id);
            if !has_instance && !node.is_deleting() && !recorded(id) && is_due(node.uid().to_owned()) {
                lab.history.note(format!("the operator deletes the Node {} of no instance", node.name()));
                let _ = nodes.delete(node.name(), &DeleteParams::default()).await;
            }
        }
        first_seen = left_over;
    }
}

/// Requests of the operator to both clusters.
pub(super) struct Operator<'s> {
    pub(super) control: &'s Server,
}

impl Operator<'_> {
    fn deployments(&self) -> Api<DynamicObject> {
        let resource = resource("machine.sapcloud.io/v1alpha1", "MachineDeployment", "machinedeployments");
        Api::namespaced_with(client(self.control, OPERATOR), NAMESPACE, &resource)
    }

    /// Creates a deployment of so many Machines of class `c`.
    pub(super) async fn create_crowd(&self, replicas: u64) {
        let deployment = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment", "metadata": {"name": CROWD},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"name": CROWD}},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "template": {
                    "metadata": {"labels": {"name": CROWD}},
                    "spec": {"class": {"kind": "MachineClass", "name": "c"}, "drainTimeout": "120s"},
                },
            },
        });
        if let Ok(deployment) = serde_json::from_value(deployment) {
            // A name that is taken is another crowd of the same run.
            let _ = self.deployments().create(&PostParams::default(), &deployment).await;
        }
    }

    /// Deletes that deployment.
    pub(super) async fn delete_crowd(&self) {
        let _ = self.deployments().delete(CROWD, &DeleteParams::default()).await;
    }
}

/// The server of a side.
pub(super) fn server_of<'s>(side: Side, control: &'s Server, target: &'s Server) -> &'s Server {
    match side {
        Side::Control => control,
        Side::Target => target,
    }
}
