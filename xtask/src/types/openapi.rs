//! Reads the schemas of Kubernetes' OpenAPI v3 documents.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

/// The schemas of a document by name, such as `io.k8s.api.core.v1.Pod`.
pub(super) type Schemas = BTreeMap<String, Schema>;

/// A schema: the parts that the tables have.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Schema {
    #[serde(rename = "type")]
    pub(super) of: Option<String>,
    pub(super) format: Option<String>,
    pub(super) properties: BTreeMap<String, Schema>,
    #[serde(rename = "additionalProperties")]
    pub(super) values: Option<Box<Schema>>,
    pub(super) items: Option<Box<Schema>>,
    pub(super) required: Vec<String>,
    pub(super) default: Option<Value>,
    #[serde(rename = "$ref")]
    reference: Option<String>,
    #[serde(rename = "allOf")]
    all_of: Vec<Schema>,
    #[serde(rename = "x-kubernetes-list-type")]
    pub(super) list_type: Option<String>,
    #[serde(rename = "x-kubernetes-list-map-keys")]
    pub(super) list_keys: Vec<String>,
    #[serde(rename = "x-kubernetes-map-type")]
    pub(super) map_type: Option<String>,
    #[serde(rename = "x-kubernetes-patch-strategy")]
    pub(super) patch_strategy: Option<String>,
    #[serde(rename = "x-kubernetes-patch-merge-key")]
    pub(super) patch_key: Option<String>,
}

impl Schema {
    /// Returns the name of the schema that this one refers to. A reference with other fields is
    /// inside `allOf`.
    pub(super) fn refers_to(&self) -> Option<&str> {
        let reference = self.reference.as_ref().or_else(|| self.all_of.first()?.reference.as_ref())?;
        reference.strip_prefix("#/components/schemas/")
    }
}

/// Returns the schemas of a document.
pub(super) fn schemas(text: &str) -> Result<Schemas> {
    #[derive(Deserialize)]
    struct Document {
        #[serde(default)]
        components: Components,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Components {
        schemas: Schemas,
    }

    let document: Document = serde_json::from_str(text).context("not an OpenAPI v3 document")?;
    Ok(document.components.schemas)
}
