//! The three patch types that describe a change. Server-side apply, which describes the wanted
//! state, is in `verbs::apply`.

pub(crate) mod json;
pub(crate) mod merge;
pub(crate) mod strategic;

use serde_json::{Map, Value};

use crate::schema::crd::schema::Schema;
use crate::values::status::{ApiError, ApiResult};

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// A decoded patch that can be applied to any version of the object.
#[derive(Debug)]
pub(crate) enum Patch {
    Json(Vec<json::PatchOperation>),
    Merge(Value),
    Strategic(Value),
}

impl Patch {
    /// Decodes a patch body. `strategic` says whether the resource supports strategic merge
    /// patches.
    pub(crate) fn decode(content_type: &str, body: &[u8], strategic: Strategic) -> ApiResult<Self> {
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        let decoded = || -> ApiResult<Value> {
            serde_json::from_slice(body)
                .map_err(|e| ApiError::bad_request(format!("error decoding patch: {e}")))
        };
        match (media_type, strategic) {
            (JSON, _) => Ok(Patch::Json(json::PatchOperation::parse_all(&decoded()?)?)),
            (MERGE, _) => match serde_json::from_slice(body).unwrap_or_default() {
                Value::Null => Err(ApiError::bad_request("Invalid JSON Patch")),
                patch => is_map(&patch)
                    .map_err(|why| ApiError::bad_request(format!("error decoding patch: {why}")))
                    .map(|()| Patch::Merge(patch)),
            },
            (STRATEGIC, Strategic::Supported) => match decoded()? {
                // kube-apiserver treats this as an empty patch.
                Value::Null => Ok(Patch::Strategic(Value::Object(Map::new()))),
                patch => is_map(&patch).map_err(ApiError::bad_request).map(|()| Patch::Strategic(patch)),
            },
            (_, Strategic::Supported) => {
                Err(ApiError::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")
                    .with_empty_details())
            }
            (_, Strategic::Unsupported) => Err(ApiError::unsupported_media_type(&[JSON, MERGE, APPLY])),
        }
    }

    /// Applies the patch. Fails if the result is not an object.
    pub(crate) fn apply(&self, current: Value, schema: &Schema) -> ApiResult<Value> {
        let mut patched = current;
        match self {
            Patch::Json(operations) => json::apply(&mut patched, operations)?,
            Patch::Merge(patch) => merge::apply(&mut patched, patch),
            Patch::Strategic(patch) => strategic::apply(&mut patched, patch, schema)?,
        }
        Ok(patched)
    }
}

/// Rejects a patch that is not an object, in the words of Go's decoder.
fn is_map(patch: &Value) -> Result<(), String> {
    let found = match patch {
        Value::Object(_) => return Ok(()),
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
    };
    Err(format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"))
}

/// Whether a resource supports strategic merge patches: built-in kinds do, custom resources do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategic {
    Supported,
    Unsupported,
}
