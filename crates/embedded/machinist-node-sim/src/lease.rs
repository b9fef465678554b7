//! The Lease that shows that a machine is alive.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference};
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use machinist_cloud_sim::Clock;
use machinist_instance::NodeName;
use serde_json::json;

use crate::connect::code;

const NAMESPACE: &str = "kube-node-lease";
/// Lease duration in renewals, as with kubelets: 40 s for a renewal every 10 s.
const RENEWALS_PER_LEASE: u64 = 4;

/// Renews the Lease and never returns. After a failure the next renewal comes at its usual time.
pub(crate) async fn renew(client: kube::Client, name: &NodeName, uid: &str, clock: &Clock, every: Duration) {
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let nodes: Api<Node> = Api::all(client);
    let first = lease(name, uid, MicroTime(clock.now()), every);
    if leases.create(&PostParams::default(), &first).await.is_ok() {
        tokio::time::sleep(every).await;
    }
    loop {
        let now = MicroTime(clock.now());
        let patch = Patch::Merge(json!({"spec": {"renewTime": now}}));
        match leases.patch(name.as_str(), &PatchParams::default(), &patch).await {
            Err(error) if code(&error) == Some(404) => {
                // A Lease without its Node would have no owner and never be deleted.
                let node = nodes.get(name.as_str()).await;
                if node.is_ok_and(|node| node.metadata.uid.as_deref() == Some(uid)) {
                    let _ = leases.create(&PostParams::default(), &lease(name, uid, now, every)).await;
                }
            }
            Ok(_) | Err(_) => {}
        }
        tokio::time::sleep(every).await;
    }
}

fn lease(name: &NodeName, uid: &str, now: MicroTime, every: Duration) -> Lease {
    let seconds = every.as_secs().max(1).saturating_mul(RENEWALS_PER_LEASE);
    Lease {
        metadata: ObjectMeta {
            name: Some(name.to_string()),
            namespace: Some(NAMESPACE.to_owned()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: name.to_string(),
                uid: uid.to_owned(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(name.to_string()),
            lease_duration_seconds: Some(seconds.try_into().unwrap_or(i32::MAX)),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }),
    }
}
