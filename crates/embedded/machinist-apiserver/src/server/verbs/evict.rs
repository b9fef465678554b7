//! Eviction: deletes a pod if its disruption budget allows it.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::access::authz::restriction;
use crate::server::verbs::bind::{decode_act, set_condition, success};
use crate::server::verbs::write::commit::MAX_ATTEMPTS;
use crate::server::verbs::write::deletion::{DeleteOptions, Deleted, check_preconditions, delete_one};
use crate::server::verbs::{Answer, Call, Effect};
use crate::store::mvcc::Change;
use crate::store::selector::Selector;
use crate::values::key::Key;
use crate::values::object::{Object, child_map, is_deleting, meta_str};
use crate::values::status::{ApiError, ApiResult, Target};

const BUDGETS: &str = "poddisruptionbudgets";
/// Limit on unconfirmed evictions. Beyond it, the disruption controller is apparently not
/// confirming them.
const MAX_DISRUPTED_PODS: usize = 2000;
/// Retry delay while the disruption controller has not processed a budget yet.
const RETRY_AFTER_SECONDS: u32 = 10;

pub(crate) fn evict(call: &Call) -> ApiResult<Answer> {
    let eviction = decode_act(call, "Eviction", &["policy/v1", "policy/v1beta1"])?;
    let key = Key::new(&call.path.namespace, &call.path.name);
    restriction::admit_eviction(&call.caller(), &key, &call.path.name)?;
    if meta_str(&eviction, "name") != call.path.name {
        return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
    }
    let options = eviction.get("deleteOptions").map(DeleteOptions::read).unwrap_or_default();
    let call = &call.taking(effect(call, &options)?);
    let deleted = match evict_beside_budgets(call, &key, &options)? {
        Unbudgeted::Deleted(deleted) => deleted,
        Unbudgeted::NeedsBudget(pod) => evict_within_budget(call, &key, &pod, &options)?,
    };
    let revision = match deleted {
        Deleted::Gone(object) | Deleted::Deleting(object) => Some(object.revision()),
        Deleted::Unchanged(_) => None,
    };
    Ok(success(call, revision))
}

/// Reads the dry-run option, which may be in the query, in the body, or equally in both.
fn effect(call: &Call, options: &DeleteOptions) -> ApiResult<Effect> {
    let (in_query, in_body) = (call.query.all("dryRun"), &options.dry_run);
    if !in_query.is_empty() && !in_body.is_empty() && in_query != in_body.as_slice() {
        return Err(ApiError::unexpected(format!(
            "Non-matching dry-run options in request and content: [{}] and [{}]",
            in_query.join(" "),
            in_body.join(" ")
        )));
    }
    Ok(if in_body.is_empty() { call.effect } else { Effect::of(in_body) })
}

enum Unbudgeted {
    Deleted(Deleted),
    /// The pod as it was read.
    NeedsBudget(Arc<Object>),
}

/// Deletes the pod if this disturbs no budget. The verdict on a pod that has not started holds only
/// for the version that was read: if the pod has started meanwhile, it is not evicted.
fn evict_beside_budgets(call: &Call, key: &Key, options: &DeleteOptions) -> ApiResult<Unbudgeted> {
    let mut attempts = if options.resource_version.is_none() { MAX_ATTEMPTS } else { 1 };
    loop {
        let Some(pod) = call.core.store.get("pods", key) else {
            return Err(call.served.not_found(&call.path.name));
        };
        let judged = match needs_no_budget(pod.value()) {
            None => return Ok(Unbudgeted::NeedsBudget(pod)),
            Some(Validity::Final) => options.clone(),
            Some(Validity::OfThisVersion) => {
                let mut judged = options.clone();
                judged.resource_version.get_or_insert_with(|| pod.revision().to_string());
                judged
            }
        };
        attempts -= 1;
        match say_why_and_delete(call, key, judged) {
            Err(error) if error.code() == 409 && 0 < attempts => {}
            done => return done.map(Unbudgeted::Deleted),
        }
    }
}

fn evict_within_budget(call: &Call, key: &Key, pod: &Object, options: &DeleteOptions) -> ApiResult<Deleted> {
    let budgets = budgets_of(call, pod.value());
    let budget = match budgets.as_slice() {
        [] => return say_why_and_delete(call, key, options.clone()),
        [budget] => budget,
        _ => {
            return Err(ApiError::unexpected(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    if !may_go_unready(pod.value(), budget.value()) {
        take_disruption(call, budget.name(), pod.name())?;
        return say_why_and_delete(call, key, options.clone());
    }
    // The verdict holds for the pod as it was read. A pod that became ready meanwhile is not
    // evicted.
    let mut judged = options.clone();
    judged.resource_version = Some(pod.revision().to_string());
    say_why_and_delete(call, key, judged).map_err(|error| match error.code() {
        409 if options.resource_version.is_none() => being_processed(budget.name()),
        _ => error,
    })
}

/// Marks the pod with the reason for its end, and deletes it.
fn say_why_and_delete(call: &Call, key: &Key, mut options: DeleteOptions) -> ApiResult<Deleted> {
    if call.effect == Effect::Commit {
        let marked = mark_disrupted(call, key, &options)?;
        // The mark created a new version.
        options.resource_version = options.resource_version.map(|_| marked.revision().to_string());
    }
    options.check()?;
    delete_one(call, key, &options)
}

/// Validity of a verdict on a pod.
enum Validity {
    Final,
    OfThisVersion,
}

/// Reports whether deleting the pod disturbs no budget: the pod has finished, has not started, or
/// is being deleted.
fn needs_no_budget(pod: &Value) -> Option<Validity> {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    match phase {
        "Succeeded" | "Failed" => Some(Validity::Final),
        _ if is_deleting(pod) => Some(Validity::Final),
        "Pending" => Some(Validity::OfThisVersion),
        _ => None,
    }
}

fn budgets_of(call: &Call, pod: &Value) -> Vec<Arc<Object>> {
    let prefix = format!("{}/", call.path.namespace);
    let slice = call.core.store.slice(BUDGETS, &prefix, None, None);
    let items = slice.map(|s| s.items).unwrap_or_default();
    items
        .into_iter()
        .map(|(_, budget)| budget.opened())
        .filter(|budget| {
            let selector = Selector::from_label_selector(budget.value().pointer("/spec/selector"));
            selector.is_some_and(|s| s.matches(pod))
        })
        .collect()
}

/// Reports whether the pod is not ready and its budget allows the eviction of such pods without
/// counting them.
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

/// Uses one of the budget's allowed disruptions. Returns an error if there is none.
fn take_disruption(call: &Call, name: &str, pod: &str) -> ApiResult<()> {
    let key = Key::new(&call.path.namespace, name);
    let collection: Arc<str> = BUDGETS.into();
    for _ in 0..MAX_ATTEMPTS {
        // The budget was deleted meanwhile, so it protects no pod.
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
            call.core.own_writes().changed_status(served, &budget, &mut value);
        }
        let change = Change::Update { read: budget, value };
        if call.commit(&collection, &key, change).is_ok() {
            return Ok(());
        }
    }
    Err(too_many(None).with_retry_after(RETRY_AFTER_SECONDS))
}

fn check_budget(budget: &Value, name: &str) -> ApiResult<()> {
    let observed = count(budget, "observedGeneration");
    if observed < crate::values::object::generation(budget) {
        return Err(being_processed(name));
    }
    let target = Target { group: "policy", resource: "poddisruptionbudget", name };
    let allowed = count(budget, "disruptionsAllowed");
    if allowed < 0 {
        return Err(ApiError::forbidden(&target, "pdb disruptions allowed is negative"));
    }
    let disrupted = budget.pointer("/status/disruptedPods").and_then(Value::as_object).map_or(0, Map::len);
    if MAX_DISRUPTED_PODS < disrupted {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(ApiError::forbidden(&target, why));
    }
    if allowed == 0 {
        return Err(too_many(Some(&refusal(budget, name))));
    }
    Ok(())
}

/// Error for a budget with an unknown number of allowed disruptions.
fn being_processed(name: &str) -> ApiError {
    let why = format!("The disruption budget {name} is still being processed by the server.");
    too_many(Some(&why)).with_retry_after(RETRY_AFTER_SECONDS)
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

/// Explains why a budget has no allowed disruptions.
fn refusal(budget: &Value, name: &str) -> String {
    let conditions = budget.pointer("/status/conditions").and_then(Value::as_array);
    let condition = conditions.and_then(|list| list.iter().find(|c| c["type"] == "DisruptionAllowed"));
    let text = |field: &str| condition.and_then(|condition| condition[field].as_str()).unwrap_or_default();
    let (why, reason) = (text("message"), text("reason"));
    let is_explained = text("status") == "False" && !why.is_empty();
    let (healthy, desired) = (count(budget, "currentHealthy"), count(budget, "desiredHealthy"));
    let not_now = format!("The disruption budget {name} does not allow evicting pods currently");
    if is_explained && reason == "SyncFailed" {
        // The budget's counts mean nothing in this case.
        format!("{not_now} because it failed sync: {why}")
    } else if healthy <= desired {
        format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
    } else if is_explained {
        format!("{not_now} ({reason}): {why}")
    } else {
        not_now
    }
}

fn set_insufficient(status: &mut Map<String, Value>, now: &str, observed: Option<Value>) {
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

/// Sets the condition with the reason for the pod's eviction.
fn mark_disrupted(call: &Call, key: &Key, options: &DeleteOptions) -> ApiResult<Arc<Object>> {
    for _ in 0..MAX_ATTEMPTS {
        let Some(pod) = call.core.store.get("pods", key) else {
            return Err(call.served.not_found(&call.path.name));
        };
        check_preconditions(call, &pod, options)?;
        let mut value = pod.value().clone();
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastProbeTime": null,
        });
        set_condition(child_map(&mut value, "status"), condition, &call.core.now());
        if value == *pod.value() {
            return Ok(pod);
        }
        let change = Change::Update { read: pod, value };
        if let Ok(marked) = call.commit(&call.served.resource.collection, key, change) {
            return Ok(marked);
        }
    }
    Err(ApiError::stale(&call.served.target(&call.path.name)))
}
