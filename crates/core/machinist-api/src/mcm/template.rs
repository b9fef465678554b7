//! The template of a Machine: the spec that MachineSets and MachineDeployments contain.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::absent::null_as_default;
use crate::duration::{DurationText, GoDuration};
use crate::schema;

/// Template of the Machines of a MachineSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineTemplateSpec {
    /// Labels and annotations of the Machines.
    #[serde(default, deserialize_with = "null_as_default")]
    pub metadata: TemplateMetadata,
    /// Desired state of the Machine.
    #[serde(default, deserialize_with = "null_as_default")]
    pub spec: MachineSpec,
}

/// Desired state of a Machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineSpec {
    /// Reference to the MachineClass.
    #[serde(default, deserialize_with = "null_as_default")]
    pub class: ClassSpec,
    /// Identity of the instance; set by the controller.
    ///
    /// Always empty in a template.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Fields that are synced to the Node.
    #[serde(default, deserialize_with = "null_as_default")]
    pub node_template: NodeTemplateSpec,
    /// Timeouts and limits; on the wire these fields are at the same level as the ones above.
    #[serde(flatten)]
    pub configuration: MachineConfiguration,
    /// Fields of a newer version of the CRD, unchanged, so that a template passes them on.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: Map<String, Value>,
}

impl MachineSpec {
    /// Returns the provider id, if there is one.
    pub fn provider_id(&self) -> Option<&str> {
        super::non_empty::non_empty(&self.provider_id)
    }
}

/// Reference to a MachineClass of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClassSpec {
    /// API group; not evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// `MachineClass`.
    ///
    /// Older spellings are valid, but Machines with them do not count as users of the class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name of the class, in the same namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl ClassSpec {
    /// Returns the kind, empty if there is none.
    pub fn kind(&self) -> &str {
        self.kind.as_deref().unwrap_or_default()
    }

    /// Returns the name, empty if there is none.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }
}

/// Fields that are synced to the Node: labels and annotations of `metadata`, taints of `spec`. The
/// same JSON is the value of the annotation that records what was synced last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeTemplateSpec {
    /// Labels and annotations for the Node.
    #[serde(default, deserialize_with = "null_as_default")]
    pub metadata: TemplateMetadata,
    /// Spec of the Node; only `taints` are applied.
    #[serde(default, deserialize_with = "null_as_default")]
    pub spec: NodeTemplateNode,
}

/// Spec of a Node in a template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(schema_with = "schema::node_spec")]
pub struct NodeTemplateNode {
    /// Taints for the Node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taints: Option<Vec<Taint>>,
    /// All other fields, unchanged. None is applied.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl NodeTemplateSpec {
    /// Returns the taints for the Node.
    pub fn taints(&self) -> &[Taint] {
        self.spec.taints.as_deref().unwrap_or_default()
    }
}

/// Metadata inside a template. The CRDs keep unknown fields here, and so does this type.
///
/// Older Go versions write `creationTimestamp: null`; newer ones omit it. Both read as the same
/// value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "TemplateMetadataWire")]
#[schemars(schema_with = "schema::open_object")]
pub struct TemplateMetadata {
    /// Labels of the object.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the object.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Finalizers of the object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// All other fields, unchanged.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

#[derive(Deserialize)]
struct TemplateMetadataWire {
    #[serde(default, deserialize_with = "null_as_default")]
    labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "null_as_default")]
    annotations: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "null_as_default")]
    finalizers: Vec<String>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

impl From<TemplateMetadataWire> for TemplateMetadata {
    fn from(wire: TemplateMetadataWire) -> Self {
        let TemplateMetadataWire { labels, annotations, finalizers, mut other } = wire;
        if other.get("creationTimestamp").is_some_and(Value::is_null) {
            other.remove("creationTimestamp");
        }
        Self { labels, annotations, finalizers, other }
    }
}

/// Timeouts and limits of a Machine. They are compared and synced as one block. For an absent field
/// the value of the controller's flag applies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfiguration {
    /// Maximum duration of a normal drain, such as 20m.
    ///
    /// Counted from the deletion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_timeout: Option<DurationText>,
    /// Time that the Node may be unhealthy before the Machine is replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_timeout: Option<DurationText>,
    /// Maximum duration of creation and joining.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timeout: Option<DurationText>,
    /// Maximum duration of an update in place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_place_update_timeout: Option<DurationText>,
    /// Time that a preserved Machine is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_preserve_timeout: Option<DurationText>,
    /// Never replace the Machine because of its health.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_health_timeout: Option<bool>,
    /// Eviction attempts for each pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_evict_retries: Option<i32>,
    /// Comma-separated condition types that mean unhealthy unless their status is False.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_conditions: Option<String>,
}

/// Access to the durations as values. An invalid duration counts as absent;
/// [`crate::validation::validate_machine`] reports it.
impl MachineConfiguration {
    /// Returns [`Self::drain_timeout`] as a value.
    pub fn drain_timeout(&self) -> Option<GoDuration> {
        self.drain_timeout.as_ref()?.duration()
    }

    /// Returns [`Self::in_place_update_timeout`] as a value.
    pub fn in_place_update_timeout(&self) -> Option<GoDuration> {
        self.in_place_update_timeout.as_ref()?.duration()
    }

    /// Returns [`Self::health_timeout`] as a value.
    pub fn health_timeout(&self) -> Option<GoDuration> {
        self.health_timeout.as_ref()?.duration()
    }

    /// Returns [`Self::creation_timeout`] as a value.
    pub fn creation_timeout(&self) -> Option<GoDuration> {
        self.creation_timeout.as_ref()?.duration()
    }

    /// Returns [`Self::machine_preserve_timeout`] as a value.
    pub fn machine_preserve_timeout(&self) -> Option<GoDuration> {
        self.machine_preserve_timeout.as_ref()?.duration()
    }

    /// Returns whether the health timeout is disabled.
    pub fn disables_health_timeout(&self) -> bool {
        self.disable_health_timeout.unwrap_or_default()
    }
}
