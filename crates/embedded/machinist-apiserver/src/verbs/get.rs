//! GET of one object, and the shapes in which objects are shown.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::crd::{default, prune};
use crate::object::{Object, to_bytes};
use crate::resource::Served;
use crate::route::Query;
use crate::server::Core;
use crate::status::{ApiError, ApiResult};
use crate::store::mvcc::Key;
use crate::table::{self, Header, Include};
use crate::verbs::{Answer, Call};

/// How the caller wants to see objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Full,
    /// `PartialObjectMetadata`.
    Metadata,
    /// A `Table`, with so much of each object beside its row.
    Table(Include),
}

impl Shape {
    /// The first acceptable media type that can be produced, 406 when there is none.
    pub(crate) fn negotiate(headers: &HeaderMap, query: &Query) -> ApiResult<Self> {
        let accept = headers.get(http::header::ACCEPT).and_then(|a| a.to_str().ok()).unwrap_or_default();
        if accept.trim().is_empty() {
            return Ok(Shape::Full);
        }
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default();
            if !matches!(media_type, "application/json" | "application/*" | "*/*") {
                continue;
            }
            let parameters: BTreeMap<&str, &str> = parts.filter_map(|p| p.split_once('=')).collect();
            let is_v1 = parameters.get("v").is_none_or(|v| *v == "v1")
                && parameters.get("g").is_none_or(|g| *g == "meta.k8s.io");
            match parameters.get("as") {
                None => return Ok(Shape::Full),
                Some(&("PartialObjectMetadata" | "PartialObjectMetadataList")) if is_v1 => {
                    return Ok(Shape::Metadata);
                }
                Some(&"Table") if is_v1 => return Include::asked(query).map(Shape::Table),
                Some(_) => {}
            }
        }
        Err(ApiError::not_acceptable())
    }
}

/// The object's text as `served` shows it.
pub(crate) fn render(object: &Object, served: &Served, shape: Shape, now: Timestamp) -> Bytes {
    if let Shape::Table(include) = shape {
        return to_bytes(&table::of_one(&object.whole(), served, Header::Shown, include, now));
    }
    if shape == Shape::Full && is_shown_as_stored(served) {
        return object.text();
    }
    match reshaped(&object.whole(), served, shape) {
        None => object.text(),
        Some(value) => to_bytes(&value),
    }
}

/// Whether objects are shown as they are stored, all of them.
pub(crate) fn is_shown_as_stored(served: &Served) -> bool {
    let is_own_version = || served.version().name == served.resource.storage_version;
    let lacks_nothing = || !served.version().schema.has_defaults;
    !served.is_converted() && (!served.is_custom() || (is_own_version() && lacks_nothing()))
}

/// The object as `served` shows it, when that differs from how it is stored; what a table shows of it is the table's
/// affair.
pub(crate) fn reshaped(object: &Value, served: &Served, shape: Shape) -> Option<Value> {
    if shape == Shape::Metadata {
        return Some(json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
        }));
    }
    if served.is_custom() {
        let schema = &served.version().schema;
        if served.version().name == served.resource.storage_version {
            // What was stored before its definition had a default is shown with it.
            return default::filled(object, schema);
        }
        let mut converted = object.clone();
        converted["apiVersion"] = json!(served.api_version());
        // Another version shows what its own schema knows.
        prune::prune(&mut converted, schema);
        default::fill(&mut converted, schema);
        return Some(converted);
    }
    served.is_converted().then(|| {
        let mut converted = object.clone();
        served.rules().show_stored(&mut converted);
        converted
    })
}

/// The object as seen by `served`, for reading or as the base of a change.
pub(crate) fn in_version(object: &Value, served: &Served) -> Value {
    reshaped(object, served, Shape::Full).unwrap_or_else(|| object.clone())
}

pub(crate) async fn get(call: &Call) -> ApiResult<Answer> {
    let object = read(call).await?;
    Ok(Answer::json(200, call.render(&object)))
}

/// The object that the call's path names, as fresh as `resourceVersion` asks for.
pub(crate) async fn read(call: &Call) -> ApiResult<Arc<Object>> {
    let key = Key::new(&call.path.namespace, &call.path.name);
    let table = &call.served.resource.table;
    let wanted = call.query.text("resourceVersion");
    let found = match (wanted, &call.view) {
        ("0", Some(view)) => match view.limit() {
            Some(limit) => call.core.store.get_at(table, &key, limit),
            None => call.core.store.get_shown(table, &key),
        },
        ("" | "0", _) => call.core.store.get_shown(table, &key),
        (text, _) => {
            wait_for(&call.core, parse_revision(text)?).await?;
            call.core.store.get_shown(table, &key)
        }
    };
    found.ok_or_else(|| call.served.not_found(&call.path.name))
}

/// A `resourceVersion` parameter as a number.
pub(crate) fn parse_revision(text: &str) -> ApiResult<u64> {
    text.parse().map_err(|_| {
        ApiError::unexpected(format!("resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"))
    })
}

/// Waits until the store has reached `revision`; 504 when it does not within a few seconds.
pub(crate) async fn wait_for(core: &Core, revision: u64) -> ApiResult<()> {
    let limit: Duration = core.config.future_revision_wait;
    let reached = tokio::time::timeout(limit, core.store.reaches(revision)).await;
    reached.map_err(|_| ApiError::too_large_resource_version(revision, core.store.revision()))
}
