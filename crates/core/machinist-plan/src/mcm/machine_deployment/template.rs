//! When two templates are the same, and the set that is made of one.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use machinist_api::constants::{annotations, finalizers, labels};
use machinist_api::{ClassSpec, MachineSet, MachineSetSpec, MachineSpec, MachineTemplateSpec};
use serde_json::{Value, json};

use crate::facts::{MachineDeploymentFacts, fnv1a};

/// Letters of a set's suffix.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Whether a set's template is the deployment's, in everything that needs a rollout.
///
/// Left out are the hash label, the node template, the timeouts and the class's kind: these reach Machines without one. Absent
/// and empty are the same.
pub fn is_same_template(ours: &MachineTemplateSpec, theirs: &MachineTemplateSpec) -> bool {
    compared(ours) == compared(theirs)
}

/// Whether the parts of a template that reach Machines without a rollout are the same: node template, timeouts, the class's
/// kind. Absent and empty are the same, so that what another writer spelled out is not written again.
pub(crate) fn is_synced(ours: &MachineSpec, theirs: &MachineSpec) -> bool {
    let is_equal = ours.node_template == theirs.node_template
        && ours.configuration == theirs.configuration
        && ours.class.kind == theirs.class.kind;
    is_equal || synced(ours) == synced(theirs)
}

fn synced(spec: &MachineSpec) -> Value {
    without_empty(json!({
        "nodeTemplate": spec.node_template,
        "configuration": spec.configuration,
        "kind": spec.class.kind(),
    }))
}

/// The same value without nulls, empty lists and empty objects, however deep.
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

/// The part of a template that is compared, in one canonical form.
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

/// A hash of the compared part. It names sets and labels their Machines, nothing else; how other programs compute theirs does
/// not matter, since sets are found by their template.
pub fn template_hash(template: &MachineTemplateSpec, attempt: u32) -> u32 {
    let text = format!("{}#{attempt}", compared(template));
    let hash = fnv1a(text.as_bytes());
    u32::try_from((hash >> 32) ^ (hash & u64::from(u32::MAX))).unwrap_or(0)
}

/// Name of the set of a deployment's template. `attempt` is 0 unless somebody else's set has that name.
pub fn set_name(deployment: &MachineDeploymentFacts, attempt: u32) -> String {
    let mut hash = template_hash(&deployment.spec.template, attempt);
    let mut name = format!("{}-", deployment.name);
    for _ in 0..5 {
        name.push(char::from(LETTERS[usize::try_from(hash % 27).unwrap_or_default()]));
        hash /= 27;
    }
    name
}

/// The set of a deployment's template.
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
    let mut all_annotations = super::copied_annotations(deployment);
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

/// The reference that makes a deployment the controller of a set.
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
