//! The forms in which an object is shown: whole, metadata only or as a table.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::HeaderMap;
use jiff::Timestamp;
use serde_json::Value;

use crate::schema::conversion::{converted, is_shown_as_stored, metadata_only};
use crate::schema::resource::Served;
use crate::schema::table::{self, Header, Include};
use crate::values::object::{Object, to_bytes};
use crate::values::query::Query;
use crate::values::status::{ApiError, ApiResult};

/// Format of objects in the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Full,
    /// `PartialObjectMetadata`.
    Metadata,
    /// A `Table`, with this part of each object in its row.
    Table(Include),
}

impl Shape {
    /// Picks the first media type in `Accept` that the server can produce, or answers 406.
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

/// Renders the object's text for the version `served`.
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

/// The object in the given shape, if that differs from its stored form. Tables keep the object as
/// it is: each row is converted on its own.
pub(crate) fn reshaped(object: &Value, served: &Served, shape: Shape) -> Option<Value> {
    match shape {
        Shape::Metadata => Some(metadata_only(object)),
        Shape::Full | Shape::Table(_) => converted(object, served),
    }
}
