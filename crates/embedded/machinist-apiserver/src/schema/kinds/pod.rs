//! Pods: the defaults of admission and strategy, graceful deletion, and the rules for updates.

use std::collections::HashSet;
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use crate::schema::kinds::pod_references::{self as refers, MIRROR};
use crate::schema::kinds::{Context, Part, Rules, pod_template, scheduling, topology};
use crate::values::key::Key;
use crate::values::object::{child_map, copy_meta, meta_str};
use crate::values::status::{ApiError, ApiResult, FieldErrors, Target};

/// How long a Pod tolerates a node that is not ready or unreachable, unless the Pod sets its own
/// time (DefaultTolerationSeconds).
const TOLERATION_SECONDS: i64 = 300;

pub(crate) struct Pods;

impl Rules for Pods {
    fn fill_defaults(&self, object: &mut Value) {
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            pod_template::fill_spec(spec);
            pod_template::fill_pod(spec);
        }
        if object.get("status").is_some_and(Value::is_object) {
            list_addresses(object);
        }
    }

    fn on_create(&self, object: &mut Value, context: &Context<'_>) -> ApiResult<()> {
        admit_service_account(object, context)?;
        context.admission.admit_new_pod(object)?;
        scheduling::admit_priority(object, context)?;
        topology::place(object, context.store);
        let spec = child_map(object, "spec");
        tolerate_lost_nodes(spec);
        let class = quality_of_service(spec);
        object["status"] = json!({"phase": "Pending", "qosClass": class});
        Ok(())
    }

    fn admit_delete(&self, object: &Target<'_>, key: &Key, context: &Context<'_>) -> ApiResult<()> {
        context.admission.admit_pod_delete(key, object.name)
    }

    fn on_update(&self, new: &mut Value, old: &Value, part: Part, context: &Context<'_>) -> ApiResult<()> {
        context.admission.admit_pod_update(new, old, part)?;
        if part == Part::Status {
            copy_meta(new, old, "ownerReferences");
            copy_meta(new, old, "deletionTimestamp");
            let class = old.pointer("/status/qosClass").cloned();
            if let (Some(class), false) = (class, new.pointer("/status/qosClass").is_some()) {
                child_map(new, "status").insert("qosClass".into(), class);
            }
        }
        if part == Part::Main {
            // An update that omits the values of defaults and admission keeps them.
            let spec = child_map(new, "spec");
            tolerate_lost_nodes(spec);
            for key in ["priority", "preemptionPolicy"] {
                if let (false, Some(given)) = (spec.contains_key(key), old.pointer(&format!("/spec/{key}"))) {
                    spec.insert(key.into(), given.clone());
                }
            }
        }
        Ok(())
    }

    fn validate(&self, object: &Value, old: Option<&Value>, part: Part, errors: &mut FieldErrors) {
        validate_mirror(object, old, errors);
        match (old, part) {
            (None, _) => pod_template::validate_containers(object.get("spec"), "spec", errors),
            (Some(old), Part::Main) => {
                pod_template::validate_containers(object.get("spec"), "spec", errors);
                validate_spec_update(object, old, errors);
            }
            (Some(_), Part::Status | Part::Approval | Part::Finalize) => validate_addresses(object, errors),
        }
    }

    fn grace(&self, object: &Value, asked: Option<i64>) -> Option<i64> {
        let spec = |key: &str| object.pointer(&format!("/spec/{key}"));
        let unscheduled = spec("nodeName").and_then(Value::as_str).unwrap_or_default().is_empty();
        let ended =
            matches!(object.pointer("/status/phase").and_then(Value::as_str), Some("Failed" | "Succeeded"));
        if unscheduled || ended {
            return Some(0);
        }
        let own = spec("terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or_default();
        let period = asked.unwrap_or(own);
        Some(if period < 0 { 1 } else { period })
    }
}

/// Makes an address in the old field the first entry of the list.
fn list_addresses(object: &mut Value) {
    let status = child_map(object, "status");
    for (one, list) in [("podIP", "podIPs"), ("hostIP", "hostIPs")] {
        let address = status.get(one).and_then(Value::as_str).unwrap_or_default().to_owned();
        let first = status.get(list).and_then(|list| list.get(0)).and_then(|address| address["ip"].as_str());
        match first {
            Some(first) if address.is_empty() => {
                let first = json!(first);
                status.insert(one.into(), first);
            }
            Some(first) if first == address => {}
            Some(_) | None if address.is_empty() => {}
            Some(_) | None => {
                status.insert(list.into(), json!([{"ip": address}]));
            }
        }
    }
}

fn validate_addresses(object: &Value, errors: &mut FieldErrors) {
    for list in ["podIPs", "hostIPs"] {
        let addresses = object.pointer(&format!("/status/{list}")).and_then(Value::as_array);
        for (index, address) in addresses.into_iter().flatten().enumerate() {
            let address = address["ip"].as_str().unwrap_or_default();
            if address.parse::<IpAddr>().is_err() {
                errors.invalid(
                    format!("status.{list}[{index}]"),
                    json!(address),
                    "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                );
            }
        }
    }
}

/// The ServiceAccount admission: the account must exist, and is "default" if none is named. A
/// mirror Pod may not reference an account, a Secret or a token.
fn admit_service_account(object: &mut Value, context: &Context<'_>) -> ApiResult<()> {
    let (namespace, name) = (meta_str(object, "namespace").to_owned(), meta_str(object, "name").to_owned());
    let account = refers::account(object).to_owned();
    if refers::is_mirror(object) {
        let refuse =
            |why| Err(ApiError::forbidden(&Target { group: "", resource: "pods", name: &name }, why));
        return match () {
            () if !account.is_empty() => refuse("a mirror pod may not reference service accounts"),
            () if !refers::secrets(object).is_empty() => refuse("a mirror pod may not reference secrets"),
            () if refers::projects_tokens(object) => {
                refuse("a mirror pod may not use ServiceAccountToken volume projections")
            }
            () => Ok(()),
        };
    }
    let account = if account.is_empty() { "default".to_owned() } else { account };
    let spec = child_map(object, "spec");
    spec.insert("serviceAccountName".into(), json!(account));
    spec.insert("serviceAccount".into(), json!(account));
    if context.store.get("serviceaccounts", &Key::new(&namespace, &account)).is_none() {
        let why = format!(
            "error looking up service account {namespace}/{account}: serviceaccount \"{account}\" not found"
        );
        return Err(ApiError::forbidden(&Target { group: "", resource: "pods", name: &name }, &why));
    }
    Ok(())
}

fn tolerate_lost_nodes(spec: &mut Map<String, Value>) {
    let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Some(list) = tolerations.as_array_mut() else { return };
    let tolerates = |list: &[Value], key: &str| {
        list.iter().any(|t| {
            let of = |field: &str| t.get(field).and_then(Value::as_str).unwrap_or_default();
            let covers_key = of("key") == key || (of("key").is_empty() && of("operator") == "Exists");
            let covers_effect = of("effect").is_empty() || of("effect") == "NoExecute";
            covers_key && covers_effect
        })
    };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        if !tolerates(list, key) {
            list.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS
            }));
        }
    }
}

/// Returns the QoS class: Guaranteed if every container's cpu and memory limits equal its requests,
/// BestEffort if no container has any.
fn quality_of_service(spec: &Map<String, Value>) -> &'static str {
    let mut any = false;
    let mut guaranteed = true;
    for list in ["containers", "initContainers"] {
        for container in spec.get(list).and_then(Value::as_array).into_iter().flatten() {
            for resource in ["cpu", "memory"] {
                let limit = container.pointer(&format!("/resources/limits/{resource}"));
                let request = container.pointer(&format!("/resources/requests/{resource}"));
                any |= limit.is_some() || request.is_some();
                guaranteed &= limit.is_some() && request.is_none_or(|r| Some(r) == limit);
            }
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Validates the mirror annotation: only a new Pod with a node name may have it, and it never
/// changes.
fn validate_mirror(object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let place = format!("metadata.annotations[{MIRROR}]");
    let mirrored = refers::mirrored(object);
    let change = old.map(|old| (refers::mirrored(old), mirrored)).filter(|(before, after)| before != after);
    match change {
        Some((Some(_), _)) => {
            errors.forbidden(place.clone(), "may not remove or update mirror pod annotation");
        }
        Some((None, _)) => errors.forbidden(place.clone(), "may not add mirror pod annotation"),
        None => {}
    }
    let node = object.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
    if let (Some(mirrored), true) = (mirrored, node.is_empty()) {
        errors.invalid(place, mirrored.clone(), "must set spec.nodeName if mirror pod annotation is set");
    }
}

/// Rejects changes of the spec, except for images, the deadline, and additional tolerations.
fn validate_spec_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let count =
        |object: &Value| object.pointer("/spec/containers").and_then(Value::as_array).map_or(0, Vec::len);
    if count(new) != count(old) {
        errors.forbidden("spec.containers", "pod updates may not add or remove containers");
        return;
    }
    if frozen_spec(new) != frozen_spec(old) {
        errors.forbidden(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        );
    }
    let tolerations = |object: &Value| {
        object.pointer("/spec/tolerations").and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let kept: HashSet<String> = tolerations(new).iter().map(Value::to_string).collect();
    if !tolerations(old).iter().all(|t| kept.contains(&t.to_string())) {
        errors.forbidden(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        );
    }
}

fn frozen_spec(object: &Value) -> Value {
    let mut spec = object.get("spec").cloned().unwrap_or(Value::Null);
    if let Some(map) = spec.as_object_mut() {
        map.remove("activeDeadlineSeconds");
        map.remove("tolerations");
        for list in ["containers", "initContainers"] {
            for container in map.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(container) = container.as_object_mut() {
                    container.remove("image");
                }
            }
        }
    }
    spec
}
