//! Compares templates, and builds the MachineSet of a template.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use machinist_api::constants::{annotations, finalizers, labels};
use machinist_api::{
    ClassSpec, MachineConfiguration, MachineSet, MachineSetSpec, MachineSpec, MachineTemplateSpec,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::generated::{hash_of_bytes, suffix};
use crate::mcm::facts::{MachineDeploymentFacts, PROTECTED_FROM_AUTOSCALER};
use crate::mcm::machine_set::names::RESERVED_NUMBERS;
use crate::mcm::refusal::Refusal;

/// Annotations of this program that belong to one set.
const OF_A_SET: [&str; 2] = [RESERVED_NUMBERS, PROTECTED_FROM_AUTOSCALER];

/// Whether a set's template equals the deployment's template in all parts that need a rollout.
///
/// The hash label, the node template, the timeouts and the class's kind are excluded, because they
/// reach Machines without a rollout. Absent and empty are equal.
pub fn is_same_template(ours: &MachineTemplateSpec, theirs: &MachineTemplateSpec) -> bool {
    compared(ours) == compared(theirs)
}

/// Whether the parts of a template that reach Machines without a rollout are equal: node template,
/// timeouts and the class's kind. Absent and empty are equal, so that an explicit empty value of
/// another writer causes no write.
pub(crate) fn is_synced(ours: &MachineSpec, theirs: &MachineSpec) -> bool {
    synced_changes(ours, theirs).is_empty()
}

/// A field below a spec: its path, and its new value. If the value is absent, the field is removed.
pub type FieldChange = (&'static [&'static str], Option<Value>);

/// Returns the fields that reach Machines without a rollout and that `theirs` must take over. A
/// patch of these fields alone keeps fields that only newer programs know.
pub fn synced_changes(ours: &MachineSpec, theirs: &MachineSpec) -> Vec<FieldChange> {
    // The names of all fields, so that a new field cannot be forgotten.
    let MachineConfiguration {
        drain_timeout,
        health_timeout,
        creation_timeout,
        in_place_update_timeout,
        machine_preserve_timeout,
        disable_health_timeout,
        max_evict_retries,
        node_conditions,
    } = &ours.configuration;
    let other = &theirs.configuration;
    let kind = (ours.class.kind() != theirs.class.kind()).then(|| ours.class.kind.clone().map(Value::from));
    let changes = [
        change(&["nodeTemplate"], &Some(&ours.node_template), &Some(&theirs.node_template)),
        change(&["drainTimeout"], drain_timeout, &other.drain_timeout),
        change(&["healthTimeout"], health_timeout, &other.health_timeout),
        change(&["creationTimeout"], creation_timeout, &other.creation_timeout),
        change(&["inPlaceUpdateTimeout"], in_place_update_timeout, &other.in_place_update_timeout),
        change(&["machinePreserveTimeout"], machine_preserve_timeout, &other.machine_preserve_timeout),
        change(&["disableHealthTimeout"], disable_health_timeout, &other.disable_health_timeout),
        change(&["maxEvictRetries"], max_evict_retries, &other.max_evict_retries),
        change(&["nodeConditions"], node_conditions, &other.node_conditions),
        kind.map(|kind| (&["class", "kind"][..], kind)),
    ];
    changes.into_iter().flatten().collect()
}

fn change<T: PartialEq + Serialize>(
    path: &'static [&'static str],
    ours: &Option<T>,
    theirs: &Option<T>,
) -> Option<FieldChange> {
    if ours == theirs {
        return None;
    }
    let value = |field: &Option<T>| field.as_ref().and_then(|field| serde_json::to_value(field).ok());
    let (ours, theirs) = (value(ours), value(theirs));
    let differs = ours.clone().map(without_empty) != theirs.map(without_empty);
    differs.then_some((path, ours))
}

/// Removes nulls, empty lists and empty objects, at any depth.
fn without_empty(value: Value) -> Value {
    let is_there = |value: &Value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    };
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(key, value)| (key, without_empty(value)));
            Value::Object(fields.filter(|(_, value)| is_there(value)).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_empty).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

/// Returns the compared part of a template, in canonical form.
fn compared(template: &MachineTemplateSpec) -> Value {
    let mut labels = template.metadata.labels.clone();
    labels.remove(labels::MACHINE_TEMPLATE_HASH);
    json!({
        "labels": labels,
        "annotations": template.metadata.annotations,
        "finalizers": template.metadata.finalizers,
        "other": without_empty(Value::Object(template.metadata.other.clone())),
        "class": {
            "name": template.spec.class.name(),
            "apiGroup": template.spec.class.api_group.as_deref().unwrap_or_default(),
        },
        "providerID": template.spec.provider_id().unwrap_or_default(),
    })
}

/// Returns a hash of the compared part. The hash only names sets and labels their Machines. The
/// hash of other programs may differ, because sets are found by their template.
pub fn template_hash(template: &MachineTemplateSpec, attempt: u32) -> u32 {
    let text = format!("{}#{attempt}", compared(template));
    let hash = hash_of_bytes(text.as_bytes());
    u32::try_from((hash >> 32) ^ (hash & u64::from(u32::MAX))).unwrap_or(0)
}

/// Returns the name of the set of a deployment's template. `attempt` is 0 unless a set of another
/// owner has that name.
pub fn set_name(deployment: &MachineDeploymentFacts, attempt: u32) -> String {
    let hash = template_hash(&deployment.spec.template, attempt);
    format!("{}-{}", deployment.name, suffix(hash.into()))
}

/// Builds the set of a deployment's template.
pub fn new_set(
    deployment: &MachineDeploymentFacts,
    attempt: u32,
    replicas: u32,
    revision: i64,
    sizes: BTreeMap<String, String>,
) -> MachineSet {
    let spec = &deployment.spec;
    let hash = template_hash(&spec.template, attempt).to_string();
    let mut template = spec.template.clone();
    template.metadata.labels.insert(labels::MACHINE_TEMPLATE_HASH.to_owned(), hash.clone());
    let mut selector = spec.selector.clone().unwrap_or_default();
    selector
        .match_labels
        .get_or_insert_with(BTreeMap::new)
        .insert(labels::MACHINE_TEMPLATE_HASH.to_owned(), hash);
    let mut all_annotations = copied_annotations(deployment);
    all_annotations.extend(sizes);
    all_annotations.insert(annotations::REVISION.to_owned(), revision.to_string());
    MachineSet {
        metadata: ObjectMeta {
            name: Some(set_name(deployment, attempt)),
            namespace: Some(deployment.namespace.clone()),
            labels: Some(template.metadata.labels.clone()),
            annotations: Some(all_annotations),
            finalizers: Some(vec![finalizers::MACHINE_CONTROLLER_MANAGER.to_owned()]),
            owner_references: Some(vec![owner_reference(deployment)]),
            ..ObjectMeta::default()
        },
        spec: MachineSetSpec {
            replicas: Some(i32::try_from(replicas).unwrap_or(i32::MAX)),
            selector: Some(selector),
            machine_class: ClassSpec::default(),
            template,
            min_ready_seconds: spec.min_ready_seconds,
            auto_preserve_failed_machine_max: spec.auto_preserve_failed_machine_max,
        },
        status: None,
    }
}

/// Returns why a set must not be created: the deployment would not select it. It would release the
/// set with its Machines, and create another one, without end. The validation of the deployment
/// does not know the label with the hash.
pub(super) fn unselected(deployment: &MachineDeploymentFacts, set: &MachineSet) -> Option<Refusal> {
    const FIELD: &str = "spec.selector";
    let labels = set.metadata.labels.as_ref()?;
    if deployment.selector.as_ref().is_some_and(|selector| selector.selects(labels)) {
        return None;
    }
    let hash = labels.get(labels::MACHINE_TEMPLATE_HASH)?;
    let message = format!(
        "{FIELD}: expected to select the template's labels with {}={hash}, which the controller adds",
        labels::MACHINE_TEMPLATE_HASH
    );
    Some(Refusal::invalid(FIELD, message))
}

/// Returns the owner reference that makes a deployment the controller of a set.
pub fn owner_reference(deployment: &MachineDeploymentFacts) -> OwnerReference {
    OwnerReference {
        api_version: "machine.sapcloud.io/v1alpha1".to_owned(),
        kind: "MachineDeployment".to_owned(),
        name: deployment.name.clone(),
        uid: deployment.uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Returns the annotations that a deployment shares with its sets. All others belong to the object
/// itself.
pub(crate) fn shared_annotations(all: Option<&BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let is_shared =
        |key: &str| !annotations::NOT_COPIED_TO_MACHINE_SET.contains(&key) && !OF_A_SET.contains(&key);
    let all = all.into_iter().flatten().filter(|(key, _)| is_shared(key));
    all.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Returns the annotations of a deployment that are copied to its sets.
pub(crate) fn copied_annotations(deployment: &MachineDeploymentFacts) -> BTreeMap<String, String> {
    shared_annotations(deployment.annotations.as_ref())
}
