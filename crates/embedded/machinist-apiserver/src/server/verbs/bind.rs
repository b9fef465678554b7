//! Binding: a scheduler posts it to assign a pod to a node.

use serde_json::{Map, Value, json};

use crate::access::authz::restriction;
use crate::schema::kinds::{decode, notation, topology};
use crate::server::verbs::update::{check_uid, precondition_failed};
use crate::server::verbs::write::commit::MAX_ATTEMPTS;
use crate::server::verbs::write::decode::decode_body;
use crate::server::verbs::{Answer, Call};
use crate::store::mvcc::Change;
use crate::values::key::Key;
use crate::values::object::{child_map, is_deleting, labels, meta_str, metadata, metadata_mut, to_bytes};
use crate::values::status::{ApiError, ApiResult, FieldErrors, Target};

pub(crate) fn bind(call: &Call) -> ApiResult<Answer> {
    let binding = decode_act(call, "Binding", &["v1"])?;
    let name = call.path.name.as_str();
    restriction::admit_binding(&call.caller(), name)?;
    if meta_str(&binding, "name") != name {
        return Err(ApiError::bad_request("name in URL does not match name in Binding object"));
    }
    let target = |field: &str| {
        binding.get("target").and_then(|target| target.get(field)).and_then(Value::as_str).unwrap_or_default()
    };
    let (kind, node) = (target("kind"), target("name"));
    check_target(kind, node)?;
    let mut copied = labels(&binding).cloned().unwrap_or_default();
    if kind == "Node" {
        copied.extend(topology::of_node(&call.core.store, node));
    }
    let annotations =
        metadata(&binding).and_then(|metadata| metadata.get("annotations")).and_then(Value::as_object);
    let key = Key::new(&call.path.namespace, name);
    for _ in 0..MAX_ATTEMPTS {
        let Some(read) = call.core.store.get("pods", &key) else {
            return Err(call.served.not_found(name));
        };
        check_uid(call, &binding, read.uid())?;
        check_revision(call, &binding, read.revision())?;
        let refused = Target { resource: "pods/binding", ..call.served.target(name) };
        if let Some(why) = why_not(read.value(), name) {
            return Err(ApiError::conflict(&refused, &why));
        }
        let mut value = read.value().clone();
        child_map(&mut value, "spec").insert("nodeName".into(), json!(node));
        let status = child_map(&mut value, "status");
        status.remove("nominatedNodeName");
        let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null});
        set_condition(status, condition, &call.core.now());
        copy_into(&mut value, "labels", Some(&copied));
        copy_into(&mut value, "annotations", annotations);
        let change = Change::Update { read, value };
        if let Ok(object) = call.commit(&call.served.resource.collection, &key, change) {
            return Ok(success(call, Some(object.revision())));
        }
    }
    Err(ApiError::stale(&call.served.target(name)))
}

/// Decodes the body of an operation on the pod in the path: `kind` in one of `versions`, in the
/// pod's namespace.
pub(crate) fn decode_act(call: &Call, kind: &str, versions: &[&str]) -> ApiResult<Value> {
    let act = decode_body(call)?;
    let text = |key: &str| act.get(key).and_then(Value::as_str).unwrap_or_default();
    let (given, version) = (text("kind"), text("apiVersion"));
    let is_of_version = version.is_empty() || versions.contains(&version);
    if (!given.is_empty() && given != kind) || !is_of_version {
        let given = if given.is_empty() { kind } else { given };
        let short = version.rsplit('/').next().filter(|word| !word.is_empty()).unwrap_or("v1");
        return Err(ApiError::bad_request(format!(
            "{given} in version {short:?} cannot be handled as a {kind}: {}",
            decode::unregistered(given, version)
        )));
    }
    if let Some(why) = decode::mismatch(&act, &notation::schema(kind), kind) {
        return Err(ApiError::bad_request(format!(
            "{kind} in version \"v1\" cannot be handled as a {kind}: {why}"
        )));
    }
    let namespace = meta_str(&act, "namespace");
    if !namespace.is_empty() && namespace != call.path.namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(act)
}

pub(crate) fn success(call: &Call, revision: Option<u64>) -> Answer {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    let answer = Answer::json(201, to_bytes(&status));
    match revision {
        Some(revision) => answer.committed(call, revision),
        None => answer,
    }
}

/// Sets a pod's condition in place of the condition with the same type. An unchanged status keeps
/// its transition time.
pub(crate) fn set_condition(status: &mut Map<String, Value>, mut condition: Value, now: &str) {
    condition["lastTransitionTime"] = json!(now);
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(list) = conditions.as_array_mut() else { return };
    match list.iter_mut().find(|held| held["type"] == condition["type"]) {
        Some(held) => {
            if held["status"] == condition["status"] {
                condition["lastTransitionTime"] = held["lastTransitionTime"].clone();
            }
            *held = condition;
        }
        None => list.push(condition),
    }
}

fn check_target(kind: &str, node: &str) -> ApiResult<()> {
    let mut errors = FieldErrors::default();
    if !kind.is_empty() && kind != "Node" {
        errors.not_supported("target.kind", json!(kind), &["Node", "<empty>"].map(str::to_owned));
    }
    if node.is_empty() {
        errors.required("target.name", "");
    }
    match errors.lines().as_slice() {
        [] => Ok(()),
        [only] => Err(ApiError::unexpected(only.clone())),
        many => Err(ApiError::unexpected(format!("[{}]", many.join(", ")))),
    }
}

/// Rejects a binding with the revision of another version of the pod.
fn check_revision(call: &Call, binding: &Value, current: u64) -> ApiResult<()> {
    let claimed = meta_str(binding, "resourceVersion");
    if claimed.is_empty() || claimed == current.to_string() {
        return Ok(());
    }
    let what =
        format!("ResourceVersion in precondition: {claimed}, ResourceVersion in object meta: {current}");
    Err(precondition_failed(call, &what))
}

/// Returns the reason why a pod cannot be assigned, if any.
fn why_not(pod: &Value, name: &str) -> Option<String> {
    if is_deleting(pod) {
        return Some(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(held) = pod.pointer("/spec/nodeName").and_then(Value::as_str).filter(|node| !node.is_empty())
    {
        return Some(format!("pod {name} is already assigned to node \"{held}\""));
    }
    let gates = pod.pointer("/spec/schedulingGates").and_then(Value::as_array);
    let is_gated = gates.is_some_and(|gates| !gates.is_empty());
    is_gated.then(|| format!("pod {name} has non-empty .spec.schedulingGates"))
}

fn copy_into(pod: &mut Value, key: &str, entries: Option<&Map<String, Value>>) {
    let Some(entries) = entries.filter(|entries| !entries.is_empty()) else { return };
    let held = metadata_mut(pod).entry(key).or_insert_with(|| json!({}));
    if let Some(held) = held.as_object_mut() {
        held.extend(entries.clone());
    }
}
