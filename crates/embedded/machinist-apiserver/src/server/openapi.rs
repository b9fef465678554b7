//! OpenAPI v3: an index, and one document per group and version, generated from the schemas that
//! validate objects.
//!
//! `kubectl` reads the documents to explain fields, to find out whether the server validates fields
//! itself, and to compute patches of built-in kinds, for which they contain the merge keys. Clients
//! of server-side apply read the ownership of lists and maps. The schemas of custom resources come
//! from their definitions, the schemas of the built-in kinds from `kinds/types/*.txt`.
//!
//! Not included: descriptions of the built-in kinds, the content of `any` in `types/*.txt`, the
//! documents of `/api`, `/apis` and `/apis/GROUP`, the protobuf form, and OpenAPI v2.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha512};

use crate::schema::crd::format::Format;
use crate::schema::crd::schema::{ListType, MAX_DEPTH, MapType, PatchStrategy, Schema, Type};
use crate::schema::kinds::notation;
use crate::schema::resource::{Registry, Served};
use crate::server::discovery::git_version;
use crate::values::object::to_bytes;
use crate::values::route::Verb;

/// Everything that is served under `/openapi/v3`.
pub(crate) struct Documents {
    pub(crate) index: Bytes,
    documents: BTreeMap<String, GroupDocument>,
}

/// The document of one group and version.
pub(crate) struct GroupDocument {
    pub(crate) text: Bytes,
    pub(crate) hash: String,
}

impl Documents {
    pub(crate) fn of_registry(registry: &Registry) -> Self {
        let mut documents = BTreeMap::new();
        for group in std::iter::once("").chain(registry.named_groups()) {
            for version in registry.versions(group) {
                let served: Vec<&Served> = registry.resources(group, version).into_iter().flatten().collect();
                let text = to_bytes(&document(&served));
                documents.insert(root(group, version), GroupDocument { hash: hash(&text), text });
            }
        }
        let link = |(path, document): (&String, &GroupDocument)| {
            let url = format!("/openapi/v3/{path}?hash={}", document.hash);
            (path.clone(), json!({"serverRelativeURL": url}))
        };
        let paths: Map<String, Value> = documents.iter().map(link).collect();
        Documents { index: to_bytes(&json!({"paths": paths})), documents }
    }

    /// Returns the document of `api/v1` or `apis/GROUP/VERSION`.
    pub(crate) fn of(&self, path: &str) -> Option<&GroupDocument> {
        self.documents.get(path)
    }
}

/// Returns the hash that clients use to distinguish documents.
pub(crate) fn hash(text: &[u8]) -> String {
    Sha512::digest(text).iter().map(|byte| format!("{byte:02X}")).collect()
}

fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn document(all: &[&Served]) -> Value {
    let mut schemas = Schemas::default();
    let mut paths = Map::new();
    for served in all {
        let kind = schemas.kind(served);
        resource_paths(served, &kind, &mut schemas, &mut paths);
    }
    json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": git_version()},
        "paths": paths, "components": {"schemas": schemas.0},
    })
}

/// Component schemas of one document, by name.
#[derive(Default)]
struct Schemas(Map<String, Value>);

impl Schemas {
    /// Adds the kind and the list of a resource, and returns the name of the kind.
    fn kind(&mut self, served: &Served) -> String {
        let (group, version) = (&served.resource.group, &served.version().name);
        let kind = &served.resource.kind;
        let name = match &served.version().declared {
            Some(declared) => {
                let name = custom_name(group, version, kind);
                let mut shown = published(declared, 0);
                self.describe_resource(&mut shown);
                shown["x-kubernetes-group-version-kind"] = group_version_kind(served, kind);
                self.0.insert(name.clone(), shown);
                name
            }
            None => {
                let name = built_in_name(group, version, kind);
                let mut shown = self.built_in(&served.version().schema, group, version);
                shown["x-kubernetes-group-version-kind"] = group_version_kind(served, kind);
                self.0.insert(name.clone(), shown);
                name
            }
        };
        let list_kind = &served.resource.list_kind;
        let list = json!({
            "description": format!("{list_kind} is a list of {kind}"), "type": "object", "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"}, "kind": {"type": "string"},
                "metadata": self.shared("ListMeta"),
                "items": {"type": "array", "items": reference(&name)},
            },
            "x-kubernetes-group-version-kind": group_version_kind(served, list_kind),
        });
        let list_name = if served.is_custom() {
            custom_name(group, version, list_kind)
        } else {
            built_in_name(group, version, list_kind)
        };
        self.0.insert(list_name, list);
        name
    }

    /// Adds the fields of every object to a custom resource.
    fn describe_resource(&mut self, schema: &mut Value) {
        if !schema.get("properties").is_some_and(Value::is_object) {
            schema["properties"] = json!({});
        }
        let fields = &mut schema["properties"];
        fields["apiVersion"] = json!({
            "type": "string", "description": "Group and version of the schema that this object follows"
        });
        fields["kind"] = json!({"type": "string", "description": "Kind of this object, in CamelCase"});
        fields["metadata"] = self.shared("ObjectMeta");
        fields["metadata"]["description"] = json!("Metadata of every object: name, labels, owners and more");
    }

    /// Returns a type that all groups share, as the schema of a field.
    fn shared(&mut self, type_name: &str) -> Value {
        self.field(&notation::schema(type_name), "", "")
    }

    /// Returns the schema of a named type.
    fn built_in(&mut self, schema: &Schema, group: &str, version: &str) -> Value {
        let fields: Map<String, Value> =
            schema.properties.iter().map(|(name, s)| (name.clone(), self.field(s, group, version))).collect();
        let mut shown = json!({"type": "object", "properties": fields});
        if !schema.required.is_empty() {
            shown["required"] = json!(schema.required);
        }
        if schema.preserve_unknown {
            shown["x-kubernetes-preserve-unknown-fields"] = json!(true);
        }
        if schema.map == MapType::Atomic {
            shown["x-kubernetes-map-type"] = json!("atomic");
        }
        shown
    }

    /// Returns the schema of a field.
    fn field(&mut self, schema: &Schema, group: &str, version: &str) -> Value {
        let mut shown = self.plain_field(schema, group, version);
        if let (Some(default), Some(map)) = (&schema.default, shown.as_object_mut()) {
            map.insert("default".into(), default.clone());
        }
        match &schema.patch {
            PatchStrategy::Replace => {}
            PatchStrategy::ReplaceMap => shown["x-kubernetes-patch-strategy"] = json!("replace"),
            PatchStrategy::MergeValues => shown["x-kubernetes-patch-strategy"] = json!("merge"),
            PatchStrategy::MergeByKey(key) => {
                let strategy = if schema.retain_keys { "merge,retainKeys" } else { "merge" };
                shown["x-kubernetes-patch-strategy"] = json!(strategy);
                shown["x-kubernetes-patch-merge-key"] = json!(key);
            }
        }
        match (&schema.list, schema.of) {
            (ListType::Atomic, Some(Type::Array)) => shown["x-kubernetes-list-type"] = json!("atomic"),
            (ListType::Atomic, _) => {}
            (ListType::Set, _) => shown["x-kubernetes-list-type"] = json!("set"),
            (ListType::Map(keys), _) => {
                shown["x-kubernetes-list-type"] = json!("map");
                shown["x-kubernetes-list-map-keys"] = json!(keys);
            }
        }
        if schema.map == MapType::Atomic && schema.name.is_empty() {
            shown["x-kubernetes-map-type"] = json!("atomic");
        }
        shown
    }

    fn plain_field(&mut self, schema: &Schema, group: &str, version: &str) -> Value {
        if !schema.name.is_empty() {
            let name = type_path(schema.name, group, version);
            if !self.0.contains_key(&name) {
                // Types do not contain themselves. Otherwise the type table could not be parsed.
                let shown = self.built_in(schema, group, version);
                self.0.insert(name.clone(), shown);
            }
            return json!({"allOf": [reference(&name)]});
        }
        if schema.format == Some(Format::Quantity) {
            return self.scalar(
                "io.k8s.apimachinery.pkg.api.resource.Quantity",
                json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
            );
        }
        if schema.int_or_string {
            return self.scalar(
                "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
                json!({"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"}),
            );
        }
        let Some(of) = schema.of else {
            return json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        };
        let mut shown = json!({"type": of.as_str()});
        if let Some(format) = format_name(schema) {
            shown["format"] = json!(format);
        }
        if let Some(items) = &schema.items {
            shown["items"] = bare(self.field(items, group, version));
        }
        if let Some(values) = &schema.additional {
            shown["additionalProperties"] = bare(self.field(values, group, version));
        }
        shown
    }

    /// Returns a named type that is a single value in JSON.
    fn scalar(&mut self, name: &str, shown: Value) -> Value {
        self.0.entry(name).or_insert(shown);
        json!({"allOf": [reference(name)]})
    }
}

/// Removes the `allOf` around a reference without other fields.
fn bare(field: Value) -> Value {
    match field.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
        Some([only]) if field.as_object().is_some_and(|map| map.len() == 1) => only.clone(),
        _ => field,
    }
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn format_name(schema: &Schema) -> Option<&'static str> {
    match (schema.of, schema.format) {
        (_, Some(Format::DateTime | Format::MicroTime)) => Some("date-time"),
        (_, Some(Format::Date)) => Some("date"),
        (_, Some(Format::Bytes)) => Some("byte"),
        (_, Some(Format::Duration)) => Some("duration"),
        (_, Some(Format::Int32)) => Some("int32"),
        (Some(Type::Integer), None) => Some("int64"),
        (Some(Type::Number), None) => Some("double"),
        (_, Some(Format::Quantity) | None) => None,
    }
}

fn group_version_kind(served: &Served, kind: &str) -> Value {
    json!([{"group": served.resource.group, "version": served.version().name, "kind": kind}])
}

/// Returns a name such as `io.sapcloud.machine.v1alpha1.Machine`.
fn custom_name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').rev().collect();
    parts.extend([version, kind]);
    parts.join(".")
}

fn built_in_name(group: &str, version: &str, kind: &str) -> String {
    match group {
        "" => format!("io.k8s.api.core.{version}.{kind}"),
        "apiextensions.k8s.io" => {
            format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{version}.{kind}")
        }
        other => {
            let short = other.split('.').next().unwrap_or_default();
            format!("io.k8s.api.{short}.{version}.{kind}")
        }
    }
}

/// Returns the Kubernetes name of a type in `types/*.txt`.
fn type_path(name: &str, group: &str, version: &str) -> String {
    match name {
        "ObjectMeta"
        | "OwnerReference"
        | "ManagedFieldsEntry"
        | "LabelSelector"
        | "LabelSelectorRequirement"
        | "Condition"
        | "ListMeta"
        | "DeleteOptions"
        | "Preconditions" => {
            format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}")
        }
        "ObjectReference"
        | "LocalObjectReference"
        | "TypedLocalObjectReference"
        | "SecretReference"
        | "EventSource" => built_in_name("", "v1", name),
        "EventsEventSeries" => built_in_name("events.k8s.io", "v1", "EventSeries"),
        "Eviction" => built_in_name("policy", "v1", name),
        "TokenRequest" | "TokenRequestSpec" | "TokenRequestStatus" | "BoundObjectReference" => {
            built_in_name("authentication.k8s.io", "v1", name)
        }
        "Scale" | "ScaleSpec" | "ScaleStatus" => built_in_name("autoscaling", "v1", name),
        _ => built_in_name(notation::group_of(name).unwrap_or(group), version, name),
    }
}

/// Returns a definition's schema as clients see it, with the implied parts added.
fn published(declared: &Value, depth: usize) -> Value {
    let Value::Object(declared) = declared else { return declared.clone() };
    if MAX_DEPTH < depth {
        return json!({});
    }
    let mut shown = Map::new();
    for (key, value) in declared {
        let below = match (key.as_str(), value) {
            ("properties", Value::Object(fields)) => {
                fields.iter().map(|(name, schema)| (name.clone(), published(schema, depth + 1))).collect()
            }
            ("items" | "additionalProperties" | "not", schema) => published(schema, depth + 1),
            _ => value.clone(),
        };
        shown.insert(key.clone(), below);
    }
    if shown.get("x-kubernetes-int-or-string") == Some(&json!(true)) && !shown.contains_key("anyOf") {
        shown.insert("anyOf".into(), json!([{"type": "integer"}, {"type": "string"}]));
    }
    Value::Object(shown)
}

/// Query parameters of reads and deletions of a collection.
const ON_LIST: &[(&str, &str)] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const ON_READ: &[(&str, &str)] = &[("resourceVersion", "string")];
const ON_WRITE: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
const ON_PATCH: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")];
const ON_DELETE: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];

/// The words and parameters that OpenAPI documents use for a verb.
struct Wording {
    method: &'static str,
    /// Value of `x-kubernetes-action`.
    action: &'static str,
    /// Beginning of the operation's id.
    id: &'static str,
    parameters: &'static [(&'static str, &'static str)],
}

/// Watches have no operation of their own. They are lists with a parameter.
fn wording(verb: Verb) -> Wording {
    let (method, action, id, parameters) = match verb {
        Verb::Get => ("get", "get", "read", ON_READ),
        Verb::List | Verb::Watch => ("get", "list", "list", ON_LIST),
        Verb::Create => ("post", "post", "create", ON_WRITE),
        Verb::Update => ("put", "put", "replace", ON_WRITE),
        Verb::Patch => ("patch", "patch", "patch", ON_PATCH),
        Verb::Delete => ("delete", "delete", "delete", ON_DELETE),
        Verb::DeleteCollection => ("delete", "deletecollection", "delete", ON_LIST),
    };
    Wording { method, action, id, parameters }
}

/// One verb on one path.
struct DescribedOperation<'a> {
    verb: Verb,
    /// Kind of the body, if there is one.
    takes: Option<&'a str>,
    gives: &'a str,
}

fn op<'a>(verb: Verb, takes: Option<&'a str>, gives: &'a str) -> DescribedOperation<'a> {
    DescribedOperation { verb, takes, gives }
}

fn resource_paths(served: &Served, kind: &str, schemas: &mut Schemas, paths: &mut Map<String, Value>) {
    let of = &served.resource;
    let base = format!("/{}", root(&of.group, &served.version().name));
    let name = if served.is_custom() { custom_name } else { built_in_name };
    let list = name(&of.group, &served.version().name, &of.list_kind);
    if served.is_only_created() {
        let at = if of.namespaced { format!("{base}/namespaces/{{namespace}}") } else { base };
        let asked = [op(Verb::Create, Some(kind), kind)];
        let (scope, below): (_, &[&str]) =
            if of.namespaced { ("Namespaced", &["namespace"]) } else { ("", &[]) };
        let shown = path_item(served, &asked, &format!("{scope}{}", of.kind), below);
        paths.insert(format!("{at}/{}", of.plural), shown);
        return;
    }
    schemas.shared("DeleteOptions");
    let options = type_path("DeleteOptions", "", "");
    let at = if of.namespaced { format!("{base}/namespaces/{{namespace}}") } else { base.clone() };
    if of.namespaced {
        let everywhere = [op(Verb::List, None, &list)];
        let shown = path_item(served, &everywhere, &format!("{}ForAllNamespaces", of.kind), &[]);
        paths.insert(format!("{base}/{}", of.plural), shown);
    }
    let scope = if of.namespaced { "Namespaced" } else { "" };
    let in_namespace: &[&str] = if of.namespaced { &["namespace"] } else { &[] };
    let mut collection = vec![op(Verb::List, None, &list), op(Verb::Create, Some(kind), kind)];
    if served.deletes_collections() {
        collection.push(op(Verb::DeleteCollection, None, &options));
    }
    let id = format!("{scope}{}", of.kind);
    paths.insert(format!("{at}/{}", of.plural), path_item(served, &collection, &id, in_namespace));
    let named: Vec<&str> = std::iter::once("name").chain(in_namespace.iter().copied()).collect();
    let one = [
        op(Verb::Get, None, kind),
        op(Verb::Update, Some(kind), kind),
        op(Verb::Patch, Some(kind), kind),
        op(Verb::Delete, Some(&options), kind),
    ];
    let object = format!("{at}/{}/{{name}}", of.plural);
    paths.insert(object.clone(), path_item(served, &one, &id, &named));
    for sub in served.subresources() {
        let kind = match sub.kind.as_str() {
            "Scale" | "Eviction" | "TokenRequest" => {
                schemas.shared(&sub.kind);
                type_path(&sub.kind, "", "")
            }
            _ => kind.to_owned(),
        };
        let changing = [
            op(Verb::Get, None, kind.as_str()),
            op(Verb::Update, Some(&kind), &kind),
            op(Verb::Patch, Some(&kind), &kind),
        ];
        let creating = [op(Verb::Create, Some(&kind), &kind)];
        let finalizing = [op(Verb::Update, Some(&kind), &kind)];
        let operations: &[DescribedOperation<'_>] = match sub.name.as_str() {
            "eviction" | "binding" => &creating,
            "finalize" => &finalizing,
            _ => &changing,
        };
        let id = format!("{id}{}", capitalised(&sub.name));
        let mut item = path_item(served, operations, &id, &named);
        if !served.is_custom() {
            for operation in operations {
                item[wording(operation.verb).method]["x-kubernetes-group-version-kind"] =
                    json!({"group": sub.group, "version": sub.version, "kind": sub.kind});
            }
        }
        paths.insert(format!("{object}/{}", sub.name), item);
    }
}

fn path_item(served: &Served, operations: &[DescribedOperation<'_>], id: &str, in_path: &[&str]) -> Value {
    let mut item = Map::new();
    for operation in operations {
        item.insert(wording(operation.verb).method.to_owned(), shown_operation(served, operation, id));
    }
    let parameter = |name: &&str| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "uniqueItems": true}});
    let mut parameters: Vec<Value> = in_path.iter().map(parameter).collect();
    parameters.push(query_parameter("pretty", "string"));
    item.insert("parameters".into(), Value::Array(parameters));
    Value::Object(item)
}

fn query_parameter(name: &str, of: &str) -> Value {
    json!({"name": name, "in": "query", "schema": {"type": of, "uniqueItems": true}})
}

fn shown_operation(served: &Served, operation: &DescribedOperation<'_>, id: &str) -> Value {
    let Wording { method: _, action, id: beginning, parameters } = wording(operation.verb);
    let of = &served.resource;
    let group: String = match of.group.as_str() {
        "" => "Core".to_owned(),
        other => other.trim_end_matches(".k8s.io").split('.').map(capitalised).collect(),
    };
    let version = capitalised(&served.version().name);
    let gives = json!({"application/json": {"schema": reference(operation.gives)}});
    let parameters: Vec<Value> = parameters.iter().map(|(name, of)| query_parameter(name, of)).collect();
    let mut responses = json!({
        "200": {"description": "OK", "content": gives}, "401": {"description": "Unauthorized"},
    });
    if matches!(operation.verb, Verb::Create | Verb::Update) {
        responses["201"] = json!({"description": "Created", "content": gives});
    }
    let mut shown = json!({
        "operationId": match operation.verb {
            Verb::DeleteCollection => format!("{beginning}{group}{version}Collection{id}"),
            Verb::Get | Verb::List | Verb::Watch | Verb::Create | Verb::Update | Verb::Patch | Verb::Delete => {
                format!("{beginning}{group}{version}{id}")
            }
        },
        "parameters": parameters, "responses": responses,
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {
            "group": of.group, "version": served.version().name, "kind": of.kind,
        },
    });
    let is_patch = operation.verb == Verb::Patch;
    let media_types: &[&str] = match (is_patch, served.is_custom()) {
        (true, true) => {
            &["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"]
        }
        (true, false) => &[
            "application/apply-patch+yaml",
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
        ],
        (false, _) => &["application/json", "application/yaml"],
    };
    if let Some(takes) = operation.takes {
        let schema = if is_patch { json!({"type": "object"}) } else { reference(takes) };
        let content: Map<String, Value> = media_types
            .iter()
            .map(|media_type| ((*media_type).to_owned(), json!({"schema": schema})))
            .collect();
        shown["requestBody"] = json!({"content": content});
    }
    shown
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::kinds::rows::BUILT_INS;

    /// Collects every `$ref` in `value`.
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str));
                map.values().for_each(|v| references(v, found));
            }
            Value::Array(items) => items.iter().for_each(|v| references(v, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn every_reference_resolves() {
        let documents = Documents::of_registry(&Registry::of(BUILT_INS));
        assert!(documents.of("api/v1").is_some());
        for document in documents.documents.values() {
            let value: Value = serde_json::from_slice(&document.text).expect("JSON");
            let mut found = Vec::new();
            references(&value, &mut found);
            assert!(!found.is_empty());
            for reference in found {
                let name = reference.trim_start_matches("#/components/schemas/");
                assert!(value["components"]["schemas"].get(name).is_some(), "{reference}");
            }
        }
    }
}
