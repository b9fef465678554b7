//! Locations, server types, images and load balancer types.

use serde_json::{Value, json};

use super::call::{Call, Handled, MaybeHandled, Reply, found, id_of};
use super::list::page;
use crate::catalogue::{IMAGES, LOAD_BALANCER_TYPES, LOCATIONS, SERVER_TYPES};
use crate::error::ApiError;

/// One entry: its id, name, architecture and JSON.
type Entry = (i64, &'static str, Option<&'static str>, Value);

pub(super) fn handle(call: &Call<'_>, method: &str, segments: &[&str]) -> MaybeHandled {
    let shows_deprecated = call.query.get("include_deprecated") == Some("true");
    let (sort, sorts, entries): (_, _, Vec<Entry>) = match *segments.first()? {
        "locations" => (
            "location",
            "locations",
            LOCATIONS.iter().map(|location| (location.id, location.name, None, location.json())).collect(),
        ),
        "server_types" => (
            "server_type",
            "server_types",
            SERVER_TYPES
                .iter()
                .map(|server_type| {
                    (server_type.id, server_type.name, Some(server_type.architecture), server_type.json())
                })
                .collect(),
        ),
        "images" => (
            "image",
            "images",
            IMAGES
                .iter()
                .filter(|image| image.deprecated.is_none() || shows_deprecated)
                .map(|image| (image.id, image.name, Some(image.architecture), image.json()))
                .collect(),
        ),
        "load_balancer_types" => (
            "load_balancer_type",
            "load_balancer_types",
            LOAD_BALANCER_TYPES
                .iter()
                .map(|balancer_type| (balancer_type.id, balancer_type.name, None, balancer_type.json()))
                .collect(),
        ),
        _ => return None,
    };
    match (method, &segments[1..]) {
        ("GET", []) => found(list(call, sorts, entries)),
        ("GET", [id]) => found(get(sort, id, entries)),
        _ => None,
    }
}

fn list(call: &Call<'_>, sorts: &str, mut entries: Vec<Entry>) -> Handled {
    if let Some(wanted) = call.query.get("name") {
        entries.retain(|(_, name, ..)| *name == wanted);
    }
    let architectures: Vec<&str> = call.query.all("architecture").collect();
    if !architectures.is_empty() {
        entries
            .retain(|(_, _, architecture, _)| architecture.is_some_and(|name| architectures.contains(&name)));
    }
    page(call, sorts, &entries, |(.., json)| json.clone())
}

fn get(sort: &str, id: &str, entries: Vec<Entry>) -> Handled {
    let id = id_of(id, sort)?;
    let entry = entries.into_iter().find(|(candidate, ..)| *candidate == id);
    let (.., json) = entry.ok_or_else(|| ApiError::not_found(sort))?;
    Ok(Reply::ok(json!({sort: json})))
}
