//! Tables: objects as the rows that `kubectl get` prints.
//!
//! [`built_in`] has the columns of the built-in kinds; [`custom`] reads the columns of a custom
//! resource from its definition. Ages refer to the injected clock. Column descriptions are this
//! server's own words.
//!
//! Absent: the v1beta1 form of tables, because clients that ask for it also accept v1; tables of
//! Scale and Status objects, which are answered as objects.

mod age;
mod built_in;
mod column;
pub(crate) mod custom;
mod json_path;
mod service;
mod volume;
mod workload;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::schema::conversion::{in_version, metadata_only};
use crate::schema::resource::Served;
use crate::values::query::Query;
use crate::values::status::{ApiError, ApiResult};

/// Part of the object that a row includes (`includeObject`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    /// `PartialObjectMetadata`.
    Metadata,
    Object,
    Nothing,
}

impl Include {
    pub(crate) fn asked(query: &Query) -> ApiResult<Self> {
        match query.text("includeObject") {
            "" | "Metadata" => Ok(Include::Metadata),
            "Object" => Ok(Include::Object),
            "None" => Ok(Include::Nothing),
            other => Err(ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: \"{other}\": must be 'Metadata', 'Object', 'None', or empty"
            ))),
        }
    }
}

/// Whether a table has column definitions. In a watch, only the first table has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Header {
    Shown,
    Omitted,
}

/// Creates a table of `rows`, with the metadata of the list.
pub(crate) fn table(
    served: &Served,
    header: Header,
    metadata: Map<String, Value>,
    rows: Vec<Value>,
) -> Value {
    let columns = match header {
        Header::Shown => columns(served),
        Header::Omitted => Value::Null,
    };
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": columns, "rows": rows,
    })
}

/// Creates a table of one object.
pub(crate) fn of_one(
    object: &Value,
    served: &Served,
    header: Header,
    include: Include,
    now: Timestamp,
) -> Value {
    let mut metadata = Map::new();
    if let Some(revision) = object.pointer("/metadata/resourceVersion") {
        metadata.insert("resourceVersion".into(), revision.clone());
    }
    table(served, header, metadata, vec![row(object, served, include, now)])
}

/// Creates the row of one object.
pub(crate) fn row(object: &Value, served: &Served, include: Include, now: Timestamp) -> Value {
    let mut row = Map::new();
    let cells = match served.built_in() {
        // Both kinds of Event are printed in their stored form.
        Some(kind) => built_in::printer(kind.type_name).cells(object, now),
        None => custom::cells(&in_version(object, served), &served.version().columns, now),
    };
    row.insert("cells".into(), Value::Array(cells));
    if served.built_in().is_some_and(|kind| kind.type_name == "Pod")
        && let Some(conditions) = built_in::pod_row_conditions(object)
    {
        row.insert("conditions".into(), conditions);
    }
    let shown = match include {
        Include::Metadata => Some(metadata_only(object)),
        Include::Object => Some(in_version(object, served)),
        Include::Nothing => Some(Value::Null),
    };
    row.insert("object".into(), shown.unwrap_or(Value::Null));
    Value::Object(row)
}

fn columns(served: &Served) -> Value {
    let list = match served.built_in() {
        Some(kind) => built_in::printer(kind.type_name).columns(),
        None => custom::definitions(&served.version().columns),
    };
    Value::Array(list)
}

#[test]
fn includes_are_named_as_in_kubernetes() {
    let check = |text: &str| Include::asked(&Query::parse(Some(text)).expect("a query"));
    assert_eq!(check("includeObject=None").expect("known"), Include::Nothing);
    assert_eq!(check("").expect("known"), Include::Metadata);
    assert_eq!(check("includeObject=All").expect_err("unknown").code(), 400);
}
