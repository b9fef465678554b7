//! Evicts the pods of a Node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use machinist_kube::outcome::is_of_an_api_server;
use machinist_kube::{WriteOutcome, outcome};
use machinist_plan::mcm::drain::{Eviction, EvictionAnswer, PodCall, PodRef, VolumeWait};
use machinist_plan::mcm::facts::MachineFacts;
use machinist_runtime::Stop;

use super::memory::remember;
use crate::mcm::contract::Runtime;

/// Evicts or deletes one pod. The result is remembered per pod, so that one blocked pod does not
/// delay the others.
pub(super) async fn perform(
    runtime: &Arc<Runtime>,
    machine: &MachineFacts,
    call: PodCall,
) -> Result<(), Stop> {
    let asked = runtime.now();
    let (outcome, pod) = match &call {
        PodCall::Evict(pod) => (evict(runtime, pod).await, pod),
        PodCall::Delete(pod) => (delete_pod(runtime, pod).await, pod),
    };
    let now = runtime.now();
    let unanswered = match &outcome {
        EvictionAnswer::Unanswered(error) => Some(error.clone()),
        _ => None,
    };
    remember(runtime, machine, |memory| {
        let evictions = Arc::make_mut(memory.evictions.entry(machine.uid.clone()).or_default());
        let eviction = Eviction::after(evictions.get(&pod.uid), &call, outcome, asked, now);
        evictions.insert(pod.uid.clone(), eviction);
        memory.reads.entry(machine.uid.clone()).or_default().heard(asked, now, unanswered);
    });
    Ok(())
}

/// Remembers the waits for the volumes of pods that leave.
pub(super) fn note_volumes(runtime: &Runtime, machine: &MachineFacts, waits: BTreeMap<String, VolumeWait>) {
    remember(runtime, machine, |memory| {
        memory.volume_waits.insert(machine.uid.clone(), Arc::new(waits));
    });
}

fn with_uid(uid: &str) -> DeleteParams {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

async fn evict(runtime: &Runtime, pod: &PodRef) -> EvictionAnswer {
    let pods: Api<Pod> = Api::namespaced(runtime.clients.target.clone(), &pod.namespace);
    let result = machinist_kube::eviction::evict(&pods, &pod.name, &pod.uid).await;
    match outcome::EvictionOutcome::of(&result) {
        outcome::EvictionOutcome::Gone if !is_of_the_api(&result) => failed(&result),
        outcome::EvictionOutcome::Evicted | outcome::EvictionOutcome::Gone => EvictionAnswer::Accepted,
        outcome::EvictionOutcome::Blocked { message, .. } => EvictionAnswer::Held(message),
        outcome::EvictionOutcome::Misconfigured { message } => EvictionAnswer::Held(message),
        outcome::EvictionOutcome::Failed(_) => failed(&result),
    }
}

async fn delete_pod(runtime: &Runtime, pod: &PodRef) -> EvictionAnswer {
    let pods: Api<Pod> = Api::namespaced(runtime.clients.target.clone(), &pod.namespace);
    let result = pods.delete(&pod.name, &with_uid(&pod.uid).grace_period(0)).await;
    match WriteOutcome::of(&result) {
        WriteOutcome::Done | WriteOutcome::NotFound | WriteOutcome::Stale if is_of_the_api(&result) => {
            EvictionAnswer::Deleted
        }
        _ => failed(&result),
    }
}

/// Whether an API server gave the answer.
fn is_of_the_api<T>(result: &Result<T, kube::Error>) -> bool {
    match result {
        Err(kube::Error::Api(status)) => is_of_an_api_server(status),
        Err(_) => false,
        Ok(_) => true,
    }
}

/// Distinguishes a rejection of the API server from an error of the server and from no answer.
fn failed<T>(result: &Result<T, kube::Error>) -> EvictionAnswer {
    let status = match result {
        Err(kube::Error::Api(status)) => status,
        Err(error) => return EvictionAnswer::Unanswered(error.to_string()),
        Ok(_) => return EvictionAnswer::Accepted,
    };
    let message = status.message.clone();
    match (status.code, WriteOutcome::of(result)) {
        (_, WriteOutcome::Throttled { retry_after }) => {
            EvictionAnswer::Throttled { retry_after: retry_after.unwrap_or(Duration::from_secs(5)) }
        }
        // The answer says nothing about the pod: a proxy answered, or the credential is not valid
        // now.
        _ if !is_of_an_api_server(status) => EvictionAnswer::Unanswered(message),
        (401, _) => EvictionAnswer::Unanswered(message),
        (500, _) => EvictionAnswer::Failed(message),
        (_, WriteOutcome::Unknown { message }) => EvictionAnswer::Unanswered(message),
        _ => EvictionAnswer::Refused(message),
    }
}
