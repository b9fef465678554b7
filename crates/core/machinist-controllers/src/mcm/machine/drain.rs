//! Evicts the pods of a Node.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use machinist_kube::outcome;
use machinist_plan::drain::{Call, Eviction, EvictionOutcome, PodRef};
use machinist_plan::facts::MachineFacts;
use machinist_runtime::Stop;

use super::super::contract::Runtime;
use super::remember;

/// Evicts or deletes one pod. The result is remembered per pod, so that one blocked pod does not
/// delay the others.
pub(super) async fn perform(runtime: &Arc<Runtime>, machine: &MachineFacts, call: Call) -> Result<(), Stop> {
    let (outcome, pod) = match call {
        Call::Evict(pod) => (evict(runtime, &pod).await, pod),
        Call::Delete(pod) => (delete_pod(runtime, &pod).await, pod),
    };
    let now = runtime.now();
    remember(runtime, machine, |memory| {
        let evictions = Arc::make_mut(memory.evictions.entry(machine.uid.clone()).or_default());
        let eviction = Eviction::after(evictions.get(&pod.uid), outcome, now);
        evictions.insert(pod.uid, eviction);
    });
    Ok(())
}

fn with_uid(uid: &str) -> DeleteParams {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

async fn evict(runtime: &Runtime, pod: &PodRef) -> EvictionOutcome {
    let pods: Api<Pod> = Api::namespaced(runtime.clients.target.clone(), &pod.namespace);
    let result = machinist_kube::eviction::evict(&pods, &pod.name, &pod.uid).await;
    match outcome::EvictionOutcome::of(&result) {
        outcome::EvictionOutcome::Evicted | outcome::EvictionOutcome::Gone => EvictionOutcome::Accepted,
        outcome::EvictionOutcome::Blocked { message, .. } => EvictionOutcome::Held(message),
        outcome::EvictionOutcome::Misconfigured { message } => EvictionOutcome::Held(message),
        outcome::EvictionOutcome::Failed(machinist_kube::WriteOutcome::Throttled { retry_after }) => {
            EvictionOutcome::Throttled { retry_after: retry_after.unwrap_or(Duration::from_secs(5)) }
        }
        outcome::EvictionOutcome::Failed(failed) => EvictionOutcome::Refused(format!("{failed:?}")),
    }
}

async fn delete_pod(runtime: &Runtime, pod: &PodRef) -> EvictionOutcome {
    let pods: Api<Pod> = Api::namespaced(runtime.clients.target.clone(), &pod.namespace);
    let result = pods.delete(&pod.name, &with_uid(&pod.uid).grace_period(0)).await;
    match machinist_kube::WriteOutcome::of(&result) {
        machinist_kube::WriteOutcome::Done
        | machinist_kube::WriteOutcome::NotFound
        | machinist_kube::WriteOutcome::Stale => EvictionOutcome::Deleted,
        machinist_kube::WriteOutcome::Throttled { retry_after } => {
            EvictionOutcome::Throttled { retry_after: retry_after.unwrap_or(Duration::from_secs(5)) }
        }
        failed => EvictionOutcome::Refused(format!("{failed:?}")),
    }
}
