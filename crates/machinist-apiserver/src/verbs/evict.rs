//! The subresources of pods that are acts: eviction, which asks the disruption budgets first, and binding.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::authz::restriction;
use crate::fields::track::own_status;
use crate::object::{Object, child_map, is_deleting, meta_str, to_bytes};
use crate::status::{ApiError, ApiResult, Target};
use crate::store::mvcc::{Change, Key};
use crate::store::selector::Selector;
use crate::verbs::delete::{DeleteOptions, Deleted, delete_one};
use crate::verbs::write::{MAX_ATTEMPTS, context, decode_body};
use crate::verbs::{Answer, Call};

const BUDGETS: &str = "poddisruptionbudgets";
/// More unconfirmed evictions than this mean that nobody confirms them.
const MAX_DISRUPTED_PODS: usize = 2000;
/// When to ask again while the disruption controller has not looked at a budget yet.
const RETRY_AFTER_SECONDS: u32 = 10;

pub(crate) fn evict(call: &Call) -> ApiResult<Answer> {
    let eviction = decode_body(call)?;
    let named = meta_str(&eviction, "name");
    if !named.is_empty() && named != call.path.name {
        return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
    }
    let body = eviction.get("deleteOptions").cloned().unwrap_or_else(|| json!({}));
    let options = DeleteOptions::parse(&body, call)?;
    let key = Key::new(&call.path.namespace, &call.path.name);
    restriction::admit_eviction(&context(call), &key, &call.path.name)?;
    let Some(pod) = call.core.store.get("pods", &key) else {
        return Err(call.served.not_found(&call.path.name));
    };
    if !needs_no_budget(pod.value()) {
        let budgets = budgets_of(call, pod.value());
        let judged = match budgets.as_slice() {
            [] => Judged::Any,
            // The verdict holds for the pod as it was read: one that became ready meanwhile is not evicted on it.
            [budget] if may_go_unready(pod.value(), budget.value()) => Judged::Version(pod.revision()),
            [budget] => {
                take_disruption(call, budget.name(), pod.name())?;
                Judged::Any
            }
            _ => {
                return Err(ApiError::unexpected(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        mark_disrupted(call, &key, judged)?;
    }
    let revision = match delete_one(call, &key, &options)? {
        Deleted::Gone(object) | Deleted::Deleting(object) => Some(object.revision()),
        Deleted::Unchanged(_) => None,
    };
    Ok(success(call, revision))
}

fn success(call: &Call, revision: Option<u64>) -> Answer {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    let answer = Answer::json(201, to_bytes(&status));
    match revision {
        Some(revision) => answer.committed(call, revision),
        None => answer,
    }
}

/// Pods that are over, not begun, or going disturb no budget.
fn needs_no_budget(pod: &Value) -> bool {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    matches!(phase, "Succeeded" | "Failed" | "Pending") || is_deleting(pod)
}

fn budgets_of(call: &Call, pod: &Value) -> Vec<Arc<Object>> {
    let prefix = format!("{}/", call.path.namespace);
    let slice = call.core.store.slice(BUDGETS, &prefix, None, None);
    let items = slice.map(|s| s.items).unwrap_or_default();
    items
        .into_iter()
        .map(|(_, budget)| budget)
        .filter(|budget| {
            let selector = Selector::from_label_selector(budget.glance().pointer("/spec/selector"));
            selector.is_some_and(|s| s.matches(pod))
        })
        .collect()
}

/// Which version of the pod a verdict was about.
#[derive(Debug, Clone, Copy)]
enum Judged {
    Any,
    Version(u64),
}

/// Whether the pod is not ready and its budget lets such pods go without being counted.
fn may_go_unready(pod: &Value, budget: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let ready =
        conditions.is_some_and(|list| list.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"));
    let policy = budget.pointer("/spec/unhealthyPodEvictionPolicy").and_then(Value::as_str);
    let (healthy, desired) = (count(budget, "currentHealthy"), count(budget, "desiredHealthy"));
    !ready && (policy == Some("AlwaysAllow") || (desired <= healthy && 0 < desired))
}

fn count(budget: &Value, field: &str) -> i64 {
    budget.get("status").and_then(|s| s.get(field)).and_then(Value::as_i64).unwrap_or_default()
}

/// Takes one of the budget's allowed disruptions, or says why there is none.
fn take_disruption(call: &Call, name: &str, pod: &str) -> ApiResult<()> {
    let key = Key::new(&call.path.namespace, name);
    let table: Arc<str> = BUDGETS.into();
    for _ in 0..MAX_ATTEMPTS {
        // Deleted meanwhile: nothing is guarded any more.
        let Some(budget) = call.core.store.get(BUDGETS, &key) else { return Ok(()) };
        let mut value = budget.value().clone();
        check_budget(&value, name)?;
        let left = count(&value, "disruptionsAllowed") - 1;
        let now = call.core.now();
        let observed = value.pointer("/status/observedGeneration").cloned();
        let status = child_map(&mut value, "status");
        status.insert("disruptionsAllowed".into(), json!(left));
        let disrupted = status.entry("disruptedPods").or_insert_with(|| json!({}));
        if let Some(disrupted) = disrupted.as_object_mut() {
            disrupted.insert(pod.to_owned(), json!(now));
        }
        if left == 0 {
            set_insufficient(status, &now, observed);
        }
        if let Some(served) = call.core.registry().find("policy", "v1", BUDGETS) {
            own_status(&call.core, served, &budget, &mut value);
        }
        let change = Change::Update { read: budget, value };
        if call.commit(&table, &key, change).is_ok() {
            return Ok(());
        }
    }
    Err(too_many(None).with_retry_after(RETRY_AFTER_SECONDS))
}

fn check_budget(budget: &Value, name: &str) -> ApiResult<()> {
    let observed = count(budget, "observedGeneration");
    if observed < crate::object::generation(budget) {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(too_many(Some(&why)).with_retry_after(RETRY_AFTER_SECONDS));
    }
    let target = Target { group: "policy", resource: "poddisruptionbudgets", name };
    let allowed = count(budget, "disruptionsAllowed");
    if allowed < 0 {
        return Err(ApiError::forbidden(&target, "pdb disruptions allowed is negative"));
    }
    let disrupted =
        budget.pointer("/status/disruptedPods").and_then(Value::as_object).map_or(0, serde_json::Map::len);
    if MAX_DISRUPTED_PODS < disrupted {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(ApiError::forbidden(&target, why));
    }
    if allowed == 0 {
        return Err(too_many(Some(&refusal(budget, name))));
    }
    Ok(())
}

fn too_many(cause: Option<&str>) -> ApiError {
    let error = ApiError::new(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
    );
    match cause {
        Some(cause) => error.with_cause("DisruptionBudget", cause, ""),
        None => error,
    }
}

/// Why a budget has no disruption left.
fn refusal(budget: &Value, name: &str) -> String {
    let conditions = budget.pointer("/status/conditions").and_then(Value::as_array);
    let condition = conditions.and_then(|list| list.iter().find(|c| c["type"] == "DisruptionAllowed"));
    let failed = condition.filter(|c| c["status"] == "False" && c["reason"] == "SyncFailed");
    if let Some(condition) = failed {
        let why = condition["message"].as_str().unwrap_or_default();
        return format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {why}"
        );
    }
    let (healthy, desired) = (count(budget, "currentHealthy"), count(budget, "desiredHealthy"));
    if healthy <= desired {
        return format!(
            "The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        );
    }
    let (reason, why) = condition.map_or(("", ""), |c| {
        (c["reason"].as_str().unwrap_or_default(), c["message"].as_str().unwrap_or_default())
    });
    format!("The disruption budget {name} does not allow evicting pods currently: {reason} {why}")
}

fn set_insufficient(status: &mut serde_json::Map<String, Value>, now: &str, observed: Option<Value>) {
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(list) = conditions.as_array_mut() else { return };
    let mut condition = json!({
        "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
        "lastTransitionTime": now,
    });
    if let Some(observed) = observed {
        condition["observedGeneration"] = observed;
    }
    match list.iter().position(|c| c["type"] == "DisruptionAllowed") {
        Some(at) => {
            if list[at]["status"] == "False" {
                condition["lastTransitionTime"] = list[at]["lastTransitionTime"].clone();
            }
            list[at] = condition;
        }
        None => list.push(condition),
    }
}

/// The condition by which an evicted pod says why it goes.
fn mark_disrupted(call: &Call, key: &Key, judged: Judged) -> ApiResult<()> {
    for _ in 0..MAX_ATTEMPTS {
        let Some(pod) = call.core.store.get("pods", key) else {
            return Err(call.served.not_found(&call.path.name));
        };
        if matches!(judged, Judged::Version(revision) if revision != pod.revision()) {
            return Err(ApiError::stale(&call.served.target(&call.path.name)));
        }
        let mut value = pod.value().clone();
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastProbeTime": Value::Null,
            "lastTransitionTime": call.core.now(),
        });
        let conditions = child_map(&mut value, "status").entry("conditions").or_insert_with(|| json!([]));
        let Some(list) = conditions.as_array_mut() else { return Ok(()) };
        match list.iter().position(|c| c["type"] == "DisruptionTarget") {
            Some(at) if list[at]["status"] == "True" => return Ok(()),
            Some(at) => list[at] = condition,
            None => list.push(condition),
        }
        let change = Change::Update { read: pod, value };
        if call.commit(&call.served.resource.table, key, change).is_ok() {
            return Ok(());
        }
    }
    Err(ApiError::stale(&call.served.target(&call.path.name)))
}

/// Assigns a pod to a node.
pub(crate) fn bind(call: &Call) -> ApiResult<Answer> {
    let binding = decode_body(call)?;
    let node = binding.pointer("/target/name").and_then(Value::as_str).unwrap_or_default();
    if node.is_empty() {
        return Err(ApiError::unexpected("target.name: Required value"));
    }
    restriction::admit_binding(&context(call), &call.path.name)?;
    let key = Key::new(&call.path.namespace, &call.path.name);
    for _ in 0..MAX_ATTEMPTS {
        let Some(pod) = call.core.store.get("pods", &key) else {
            return Err(call.served.not_found(&call.path.name));
        };
        let target = call.served.target(&call.path.name);
        if is_deleting(pod.value()) {
            return Err(ApiError::conflict(
                &target,
                &format!("pod {} is being deleted, cannot be assigned to a host", call.path.name),
            ));
        }
        if let Some(held) = pod.value().pointer("/spec/nodeName").and_then(Value::as_str) {
            let target = Target { resource: "pods/binding", ..target };
            let why = format!("pod {} is already assigned to node \"{held}\"", call.path.name);
            return Err(ApiError::conflict(&target, &why));
        }
        let mut value = pod.value().clone();
        child_map(&mut value, "spec").insert("nodeName".into(), json!(node));
        let conditions = child_map(&mut value, "status").entry("conditions").or_insert_with(|| json!([]));
        if let Some(list) = conditions.as_array_mut() {
            list.retain(|c| c["type"] != "PodScheduled");
            list.push(json!({
                "type": "PodScheduled", "status": "True", "lastProbeTime": Value::Null,
                "lastTransitionTime": call.core.now(),
            }));
        }
        let change = Change::Update { read: pod, value };
        if let Ok(object) = call.commit(&call.served.resource.table, &key, change) {
            return Ok(success(call, Some(object.revision())));
        }
    }
    Err(ApiError::stale(&call.served.target(&call.path.name)))
}
