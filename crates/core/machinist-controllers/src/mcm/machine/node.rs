//! Writes to the Node of a Machine, and reads of Node, pods and Lease from the API server directly.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use machinist_api::constants::{conditions, finalizers, reasons};
use machinist_kube::outcome::{existing, is_of_an_api_server};
use machinist_kube::store::RelistPart;
use machinist_kube::{Delta, GuardedPatch, ObjectKey, list_once};
use machinist_plan::mcm::facts::{MachineFacts, NodeFacts, PodFacts};
use machinist_plan::mcm::machine::{NodeSync, PreservedCondition, UpdateCondition};
use machinist_plan::mcm::{LeaseRead, NodeRead, PodList, Reads, Renewal};
use machinist_runtime::{Stop, refresh, take_in};
use serde_json::{Value, json};

use super::memory::remember;
use super::status::time;
use crate::mcm::contract::{Mcm, Runtime};
use crate::mcm::seen::BY_NODE;

/// Namespace of the kubelets' Leases.
const NODE_LEASE_NAMESPACE: &str = "kube-node-lease";

/// Returns the patch that syncs finalizer, labels, annotations and taints to a Node.
pub(super) fn patch(sync: &NodeSync) -> GuardedPatch {
    let node = &sync.node;
    let mut patch = GuardedPatch::new(&node.uid);
    if sync.finalizers.is_some() {
        patch = patch.add_finalizer(node.finalizers.as_deref(), finalizers::NODE);
    }
    patch = patch
        .change_labels(node.labels.as_ref(), &sync.labels)
        .change_annotations(node.annotations.as_ref(), &sync.annotations);
    if let Some(taints) = &sync.taints {
        let read = node.taints.as_ref().and_then(|taints| serde_json::to_value(taints).ok());
        let taints = serde_json::to_value(taints).unwrap_or(Value::Null);
        patch = patch.test(&["spec", "taints"], read.as_ref()).add(&["spec", "taints"], taints);
    }
    let path = ["spec", "unschedulable"];
    let read = node.unschedulable.map(Value::from);
    patch = match (sync.schedulable, &read) {
        (Some(true), Some(_)) => patch.test(&path, read.as_ref()).remove(&path),
        (Some(false), _) => patch.test(&path, read.as_ref()).add(&path, Value::from(true)),
        (Some(true), None) | (None, _) => patch,
    };
    patch
}

pub(super) fn terminating(node: &NodeFacts, reason: &str, now: Timestamp) -> Value {
    let message = match reason {
        reasons::UNHEALTHY => "Machine Controller is terminating failed machine",
        _ => "Machine Controller is scaling down machine",
    };
    json!({
        "metadata": { "uid": node.uid },
        "status": { "conditions": [{
            "type": conditions::NODE_TERMINATING,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": time(now),
            "lastTransitionTime": time(now),
        }] },
    })
}

/// Returns the patch of the capacity of a Node. A resource without a value is removed.
pub(super) fn capacity(node: &NodeFacts, changes: &BTreeMap<String, Option<String>>) -> Value {
    json!({ "metadata": { "uid": node.uid }, "status": { "capacity": changes } })
}

/// Returns the patch that adds the condition `InPlaceUpdate`.
pub(super) fn add_update(node: &NodeFacts, condition: &UpdateCondition, now: Timestamp) -> Value {
    json!({
        "metadata": { "uid": node.uid },
        "status": { "conditions": [update_condition(condition, now)] },
    })
}

/// Returns the patch that changes the condition `InPlaceUpdate` from the stage that was read;
/// absent if the Node has no such condition. A write that takes effect late must not take the Node
/// back to an earlier stage: the program on the Node would update it while pods run there.
pub(super) fn change_update(
    node: &NodeFacts,
    condition: &UpdateCondition,
    now: Timestamp,
) -> Option<GuardedPatch> {
    let place = node.conditions.iter().position(|other| other.kind == conditions::NODE_IN_PLACE_UPDATE)?;
    let (index, read) = (place.to_string(), &node.conditions[place]);
    let at = ["status", "conditions", &index];
    let field = |name| [at[0], at[1], at[2], name];
    let patch = GuardedPatch::new(&node.uid)
        .test(&field("type"), Some(&Value::from(conditions::NODE_IN_PLACE_UPDATE)))
        .test(&field("reason"), Some(&Value::from(read.reason())));
    // The program on the Node begins when it sees this stage.
    let patch = match condition.reason {
        reasons::READY_FOR_UPDATE => patch.test(&["spec", "unschedulable"], Some(&Value::from(true))),
        _ => patch,
    };
    Some(patch.replace(&at, update_condition(condition, now)))
}

fn update_condition(condition: &UpdateCondition, now: Timestamp) -> Value {
    json!({
        "type": conditions::NODE_IN_PLACE_UPDATE,
        "status": "True",
        "reason": condition.reason,
        "message": condition.message,
        "lastHeartbeatTime": time(now),
        "lastTransitionTime": time(now),
    })
}

/// Returns the patch of the condition `Preserved`. The time of its last transition stays while
/// status and reason stay.
pub(super) fn preserved(node: &NodeFacts, condition: &PreservedCondition, now: Timestamp) -> Value {
    let current = node.condition(conditions::NODE_PRESERVED);
    let same = current
        .filter(|current| (&*current.status, current.reason()) == (condition.status, condition.reason));
    let since = same.and_then(|current| current.since).unwrap_or(now);
    json!({
        "metadata": { "uid": node.uid },
        "status": { "conditions": [{
            "type": conditions::NODE_PRESERVED,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
            "lastHeartbeatTime": time(now),
            "lastTransitionTime": time(since),
        }] },
    })
}

/// Reads a Node with quorum. The result updates the store.
pub(crate) async fn look_for(runtime: &Arc<Runtime>, machine: &MachineFacts, name: &str) -> Result<(), Stop> {
    let started = runtime.now();
    let found = refresh::<Mcm, NodeFacts>(runtime, &ObjectKey::cluster_scoped(name)).await;
    let found = found.map_err(|error| unanswered(runtime, machine, started, &error))?;
    let look = NodeRead { name: name.to_owned(), started, uid: found.map(|node| node.uid) };
    remember_look(runtime, machine, |reads| reads.looked(look));
    Ok(())
}

/// Lists the pods of a Node with quorum, that is without a `resourceVersion`. The result updates
/// the store, so that pods which the watch has not shown yet are evicted, too.
pub(super) async fn list_pods(
    runtime: &Arc<Runtime>,
    machine: &MachineFacts,
    node: &NodeFacts,
) -> Result<(), Stop> {
    let started = runtime.now();
    let params = ListParams::default().fields(&format!("spec.nodeName={}", node.name));
    let list =
        list_once(Api::all(runtime.clients.target.clone()), &params, |pod: Pod| PodFacts::parse(&pod)).await;
    let list = list.map_err(|error| unanswered(runtime, machine, started, &error))?;
    // An unreadable pod may have to be evicted.
    let count = |is: fn(&PodFacts) -> bool| {
        list.items.iter().filter(|(_, pod)| is(&pod.facts)).count() + list.unreadable.len()
    };
    let (leaving, running) = (count(PodFacts::leaves_in_a_drain), count(PodFacts::is_lost_without_drain));
    let part = RelistPart {
        index: BY_NODE,
        value: node.name.clone(),
        items: list.items,
        resource_version: list.resource_version,
    };
    take_in::<Mcm, PodFacts>(runtime, Delta::RelistPart(part));
    let list = PodList { node_uid: node.uid.clone(), started, leaving, running };
    remember_look(runtime, machine, |reads| reads.listed(list));
    Ok(())
}

/// Reads when a kubelet last renewed its Lease. Leases are renewed every few seconds, so they are
/// not watched.
pub(super) async fn look_at_lease(
    runtime: &Arc<Runtime>,
    machine: &MachineFacts,
    node: &NodeFacts,
) -> Result<(), Stop> {
    let started = runtime.now();
    let leases: Api<Lease> = Api::namespaced(runtime.clients.target.clone(), NODE_LEASE_NAMESPACE);
    let renewed = |lease: Lease| lease.spec.and_then(|spec| spec.renew_time).map(|time| time.0);
    let found = match existing(leases.get(&node.name).await) {
        Ok(lease) => lease.and_then(renewed).map_or(Renewal::Never, Renewal::At),
        // Without permission to read Leases, the decision is made without them.
        Err(kube::Error::Api(status)) if status.code == 403 => Renewal::Unknown,
        Err(error) => return Err(unanswered(runtime, machine, started, &error)),
    };
    let look = LeaseRead { node_uid: node.uid.clone(), started, found };
    remember_look(runtime, machine, |reads| reads.lease = Some(look));
    Ok(())
}

/// Remembers a failed read, and whether the API server was silent.
fn unanswered(runtime: &Runtime, machine: &MachineFacts, asked: Timestamp, error: &kube::Error) -> Stop {
    let is_denied = matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403));
    let is_answer = matches!(error, kube::Error::Api(status) if status.code < 500 && is_of_an_api_server(status))
        && !(is_denied && machine.wants_force_deletion());
    let (ended, silent) = (runtime.now(), (!is_answer).then(|| error.to_string()));
    remember(runtime, machine, |memory| {
        memory.reads.entry(machine.uid.clone()).or_default().heard(asked, ended, silent);
    });
    Stop::Unanswered(error.to_string())
}

/// Remembers the end of a write to the API server of the target cluster, and whether that server
/// was silent. A deletion that a user forces does not wait for a server that rejects the write, for
/// example because the credential was revoked.
pub(super) fn heard(runtime: &Runtime, machine: &MachineFacts, asked: Timestamp, end: &Result<(), Stop>) {
    let silent = match end {
        Err(Stop::Unanswered(error)) => Some(error.clone()),
        Err(Stop::Refused { message, .. }) if machine.wants_force_deletion() => Some(message.clone()),
        Err(Stop::NotNow(_)) => return,
        Ok(()) | Err(Stop::Stale | Stop::Refused { .. }) => None,
    };
    let ended = runtime.now();
    let mut world = runtime.lock();
    let is_known = world.seen.has_machine(&machine.uid);
    let reads = &mut world.seen.memory.reads;
    // Without a silence before, an answer is not news.
    let is_news = silent.is_some() || reads.get(&machine.uid).is_some_and(|reads| reads.silence.is_some());
    if !is_known || !is_news {
        return;
    }
    reads.entry(machine.uid.clone()).or_default().heard(asked, ended, silent);
}

/// Remembers that the API server rejected a write to a Node, so that the drain does not wait for
/// it.
pub(super) fn note_rejection(
    runtime: &Runtime,
    machine: &MachineFacts,
    result: Result<(), Stop>,
) -> Result<(), Stop> {
    if matches!(result, Err(Stop::Refused { .. })) {
        let now = runtime.now();
        remember_look(runtime, machine, |reads| reads.rejected_write = Some(now));
    }
    result
}

fn remember_look(runtime: &Runtime, machine: &MachineFacts, change: impl FnOnce(&mut Reads)) {
    remember(runtime, machine, |memory| {
        let reads = memory.reads.entry(machine.uid.clone()).or_default();
        reads.silence = None;
        change(reads);
    });
}
