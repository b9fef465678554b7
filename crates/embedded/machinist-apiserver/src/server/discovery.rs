//! Discovery: `/api`, `/apis` and the paths below them, `/version`, and the health endpoints.
//!
//! Discovery has two forms. The legacy form has one document per group and version. In the
//! aggregated form, `/api` and `/apis` return everything at once to clients that ask for it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::schema::resource::{Registry, Served, Subresource, join_group_version};
use crate::values::route::Verb;

/// The Kubernetes release that the server imitates, as `v1.2.3` and a newline. Tests compare the
/// server's answers with that release.
pub const REFERENCE: &str = include_str!("../../REFERENCE");

/// Returns that version with the suffix `+machinist`, because this is not Kubernetes.
pub(crate) fn git_version() -> String {
    format!("{}+machinist", REFERENCE.trim())
}

/// Response of a path without objects.
pub(crate) enum Document {
    Json(Value),
    Text(&'static str),
}

/// Whether unauthenticated callers, such as health checkers, may read a path.
pub(crate) fn is_public(path: &str) -> bool {
    matches!(path.split('/').nth(1), Some("healthz" | "livez" | "readyz" | "version"))
}

pub(crate) fn document(path: &str, registry: &Registry) -> Option<Document> {
    let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
    let found = match segments.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => return Some(Document::Text("ok")),
        ["version"] => version(),
        ["api"] => json!({
            "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [],
        }),
        ["apis"] => json!({
            "kind": "APIGroupList", "apiVersion": "v1",
            "groups": registry.named_groups().map(|name| group(name, registry, false)).collect::<Vec<_>>(),
        }),
        ["api", "v1"] => resources("", "v1", registry)?,
        ["apis", name] if registry.has_group(name) => group(name, registry, true),
        ["apis", name, version] => resources(name, version, registry)?,
        [] => {
            json!({"paths": ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]})
        }
        _ => return None,
    };
    Some(Document::Json(found))
}

/// The media type of aggregated discovery.
pub(crate) const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Whether a client prefers the aggregated form.
pub(crate) fn wants_aggregated(accept: &str) -> bool {
    let first =
        accept.split(',').map(|range| range.split(';').map(str::trim).collect::<Vec<_>>()).find(|range| {
            let is_json = matches!(range[0], "application/json" | "application/*" | "*/*");
            let is_aggregated = range.contains(&"as=APIGroupDiscoveryList");
            is_json
                && (!is_aggregated || (range.contains(&"v=v2") && range.contains(&"g=apidiscovery.k8s.io")))
        });
    first.is_some_and(|range| range.contains(&"as=APIGroupDiscoveryList"))
}

/// Returns `/api` or `/apis` in the aggregated form.
pub(crate) fn aggregated(path: &str, registry: &Registry) -> Option<Value> {
    let groups: Vec<Value> = match path.trim_matches('/') {
        "api" => vec![aggregated_group("", registry)],
        "apis" => registry.named_groups().map(|name| aggregated_group(name, registry)).collect(),
        _ => return None,
    };
    Some(json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": groups,
    }))
}

fn aggregated_group(name: &str, registry: &Registry) -> Value {
    let version = |version: &str| {
        let resources: Vec<Value> =
            registry.resources(name, version).into_iter().flatten().map(aggregated_resource).collect();
        json!({"version": version, "resources": resources, "freshness": "Current"})
    };
    let versions: Vec<Value> = registry.versions(name).into_iter().map(version).collect();
    let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(served: &Served) -> Value {
    let of = &served.resource;
    // Built-in kinds omit the group and version if the document has the same ones.
    let kind = |group: &str, version: &str, kind: &str| {
        let is_own = !served.is_custom() && group == of.group && version == served.version().name;
        let (group, version) = if is_own { ("", "") } else { (group, version) };
        json!({"group": group, "version": version, "kind": kind})
    };
    let mut row = json!({
        "resource": of.plural, "responseKind": kind(&of.group, &served.version().name, &of.kind),
        "scope": if of.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": of.singular, "verbs": resource_verbs(served),
    });
    for (key, names) in [("shortNames", &of.short_names), ("categories", &of.categories)] {
        if !names.is_empty() {
            row[key] = json!(names);
        }
    }
    let subresource = |sub: &Subresource| {
        json!({
            "subresource": sub.name, "responseKind": kind(&sub.group, &sub.version, &sub.kind),
            "verbs": subresource_verbs(&sub.name),
        })
    };
    let mut below = served.subresources();
    if !served.is_custom() {
        below.sort_by(|a, b| a.name.cmp(&b.name));
    }
    if !below.is_empty() {
        row["subresources"] = below.iter().map(subresource).collect();
    }
    row
}

fn version() -> Value {
    let mut numbers = REFERENCE.trim().trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let before = minor.parse::<u32>().unwrap_or_default().saturating_sub(1).to_string();
    json!({
        "major": major, "minor": minor, "emulationMajor": major, "emulationMinor": minor,
        "minCompatibilityMajor": major, "minCompatibilityMinor": before, "gitVersion": git_version(), "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc", "platform": "linux/amd64",
    })
}

fn group(name: &str, registry: &Registry, alone: bool) -> Value {
    let versions: Vec<Value> = registry
        .versions(name)
        .into_iter()
        .map(|version| json!({"groupVersion": join_group_version(name, version), "version": version}))
        .collect();
    let preferred = versions.first().cloned().unwrap_or(Value::Null);
    let mut group = json!({"name": name, "versions": versions, "preferredVersion": preferred});
    if alone {
        group["kind"] = json!("APIGroup");
        group["apiVersion"] = json!("v1");
    }
    group
}

fn resources(group: &str, version: &str, registry: &Registry) -> Option<Value> {
    let mut list = Vec::new();
    for served in registry.resources(group, version)? {
        list.push(resource(served));
        for sub in served.subresources() {
            let mut row = json!({
                "name": format!("{}/{}", served.resource.plural, sub.name), "singularName": "",
                "namespaced": served.resource.namespaced, "kind": sub.kind,
                "verbs": subresource_verbs(&sub.name),
            });
            if sub.group != *group || sub.version != version {
                row["group"] = json!(sub.group);
                row["version"] = json!(sub.version);
            }
            list.push(row);
        }
    }
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": join_group_version(group, version), "resources": list,
    }))
}

fn resource(served: &Served) -> Value {
    let of = &served.resource;
    let mut row = json!({
        "name": of.plural, "singularName": of.singular, "namespaced": of.namespaced, "kind": of.kind,
        "verbs": resource_verbs(served),
    });
    if !served.is_only_created() {
        row["storageVersionHash"] = json!(storage_version_hash(served));
    }
    if !of.short_names.is_empty() {
        row["shortNames"] = json!(of.short_names);
    }
    if !of.categories.is_empty() {
        row["categories"] = json!(of.categories);
    }
    row
}

/// Returns the verbs in kube-apiserver's order, which differs between built-in and custom
/// resources.
fn resource_verbs(served: &Served) -> Vec<&'static str> {
    let verbs: &[Verb] = if served.is_only_created() {
        &[Verb::Create]
    } else if served.is_custom() {
        &CUSTOM_VERBS
    } else {
        &BUILT_IN_VERBS
    };
    let is_served = |verb: &&Verb| **verb != Verb::DeleteCollection || served.deletes_collections();
    verbs.iter().filter(is_served).map(|verb| verb.as_str()).collect()
}

/// Verbs of a built-in resource, in alphabetical order.
const BUILT_IN_VERBS: [Verb; 8] = [
    Verb::Create,
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Update,
    Verb::Watch,
];

/// Verbs of a custom resource, in the order of kube-apiserver.
const CUSTOM_VERBS: [Verb; 8] = [
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Create,
    Verb::Update,
    Verb::Watch,
];

/// Returns a hash that changes with the storage version of a resource, so that clients notice the
/// change.
fn storage_version_hash(served: &Served) -> String {
    let of = &served.resource;
    let digest = Sha256::digest(format!("{}/{}/{}", of.group, of.storage_version, of.kind));
    STANDARD.encode(&digest[..8])
}

fn subresource_verbs(name: &str) -> Vec<&'static str> {
    let verbs: &[Verb] = match name {
        "eviction" | "binding" | "token" => &[Verb::Create],
        "finalize" => &[Verb::Update],
        _ => &[Verb::Get, Verb::Patch, Verb::Update],
    };
    verbs.iter().map(|verb| verb.as_str()).collect()
}
