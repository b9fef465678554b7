//! Parses manifests: YAML documents with Kubernetes objects, as for `kubectl apply`.
//!
//! Objects of our four kinds are compared with their CRD, field by field. Otherwise the API server
//! would drop an unknown field silently, and a typing error would stay unnoticed. Objects of other
//! kinds are passed through: their server validates them.
//!
//! Errors name the document, the field and the expected value. They never quote a value, because a
//! manifest may contain Secrets.

use std::fmt;
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::crd;
use crate::mcm::{API_VERSION, GROUP};
use crate::validation::{self, FieldError};

/// One object of a manifest.
#[derive(Clone, PartialEq)]
pub struct ManifestObject {
    /// Position in the manifest.
    pub place: DocumentPlace,
    /// Group and version, such as `v1`.
    pub api_version: String,
    /// Kind, such as `Secret`.
    pub kind: String,
    /// Namespace, if one is given.
    pub namespace: Option<String>,
    /// Name from the metadata.
    pub name: String,
    /// The whole object, ready to be sent.
    pub body: Value,
}

impl ManifestObject {
    /// Decodes the object as a type; `None` if it has another kind or cannot be decoded.
    pub fn decode<K: k8s_openapi::Resource + DeserializeOwned>(&self) -> Option<K> {
        let is_same_kind = self.api_version == K::API_VERSION && self.kind == K::KIND;
        if is_same_kind { serde_json::from_value(self.body.clone()).ok() } else { None }
    }

    /// Returns errors of an object of our four kinds that its schema does not find, and that a
    /// controller would reject.
    pub fn invalid_fields(&self) -> Vec<FieldError> {
        let of = |found: Option<Vec<FieldError>>| found.into_iter().flatten();
        of(self.decode().map(|machine| validation::validate_machine(&machine)))
            .chain(of(self.decode().map(|class| validation::validate_machine_class(&class))))
            .chain(of(self.decode().map(|set| validation::validate_machine_set(&set))))
            .chain(of(self.decode().map(|deployment| validation::validate_machine_deployment(&deployment))))
            .collect()
    }
}

/// Position of an object in its manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentPlace {
    /// Number of the document, counted from 1 without empty documents.
    pub document: usize,
    /// Index in a `List`, counted from 0.
    pub item: Option<usize>,
}

impl fmt::Display for DocumentPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { document, item } = self;
        match item {
            None => write!(f, "document {document}"),
            Some(item) => write!(f, "document {document}: items[{item}]"),
        }
    }
}

/// Omits the body, which may be a Secret's.
impl fmt::Debug for ManifestObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place: _, api_version, kind, namespace, name, body: _ } = self;
        let namespace = namespace.as_deref().unwrap_or("-");
        write!(f, "ManifestObject({api_version} {kind} {namespace}/{name})")
    }
}

/// The reason why a manifest cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestError {
    /// Number of the document, counted from 1 without empty documents; `None` for a syntax error,
    /// which has a line instead.
    pub document: Option<usize>,
    /// Line, counted from 1, if known.
    pub line: Option<u64>,
    /// Kind and name, if known.
    pub object: Option<String>,
    /// Path of the field, if one field causes the error.
    pub field: Option<String>,
    /// The error, and the expected value.
    pub problem: String,
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(document) = self.document {
            write!(f, "document {document}: ")?;
        }
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if let Some(object) = &self.object {
            write!(f, "{object}: ")?;
        }
        if let Some(field) = &self.field {
            write!(f, "{field}: ")?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for ManifestError {}

/// Parses all documents. Empty documents are skipped; a `v1` `List` is replaced by its items.
///
/// # Errors
/// The first error: invalid YAML, an object without kind or name, or a field of our kinds that is
/// unknown, missing or of another type.
pub fn parse_manifest(text: &str) -> Result<Vec<ManifestObject>, ManifestError> {
    // No snippet in errors: it would print the lines around the error, which may contain a Secret.
    let options = serde_saphyr::options! { with_snippet: false };
    let documents: Vec<Value> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| ManifestError {
            document: None,
            line: error.location().map(|location| location.line()).filter(|line| 0 < *line),
            object: None,
            field: None,
            problem: format!("invalid YAML: {error}"),
        })?;
    let mut objects = Vec::new();
    for (index, document) in documents.into_iter().filter(|document| !document.is_null()).enumerate() {
        let mut found = read_document(document, index + 1).map_err(|error| error.in_document(index + 1))?;
        objects.append(&mut found);
    }
    Ok(objects)
}

/// An error in one field of one object.
struct Problem {
    object: Option<String>,
    field: Option<String>,
    text: String,
}

impl Problem {
    fn at(field: &str, text: impl Into<String>) -> Self {
        Self { object: None, field: Some(field.to_owned()), text: text.into() }
    }

    fn of(mut self, kind: &str, name: Option<&str>) -> Self {
        self.object = Some(name.map_or_else(|| kind.to_owned(), |name| format!("{kind} {name}")));
        self
    }

    fn in_document(self, document: usize) -> ManifestError {
        ManifestError {
            document: Some(document),
            line: None,
            object: self.object,
            field: self.field,
            problem: self.text,
        }
    }
}

fn read_document(mut document: Value, number: usize) -> Result<Vec<ManifestObject>, Problem> {
    let at = |item| DocumentPlace { document: number, item };
    let is_list = document["apiVersion"] == "v1" && document["kind"] == "List";
    if !is_list {
        return Ok(vec![read_object(document, at(None))?]);
    }
    match document["items"].take() {
        Value::Array(items) => {
            items.into_iter().enumerate().map(|(index, item)| read_object(item, at(Some(index)))).collect()
        }
        other => {
            Err(Problem::at("items", format!("expected an array, got {}", type_name(&other)))
                .of("List", None))
        }
    }
}

fn read_object(body: Value, place: DocumentPlace) -> Result<ManifestObject, Problem> {
    if !body.is_object() {
        let text = format!("expected an object with apiVersion, kind and metadata, got {}", type_name(&body));
        return Err(Problem { object: None, field: None, text });
    }
    let api_version = required_text(&body, "/apiVersion", "apiVersion")?;
    let kind = required_text(&body, "/kind", "kind")?;
    let name =
        required_text(&body, "/metadata/name", "metadata.name").map_err(|problem| problem.of(&kind, None))?;
    check_against_crd(&api_version, &kind, &body).map_err(|problem| problem.of(&kind, Some(&name)))?;
    let namespace = body.pointer("/metadata/namespace").and_then(Value::as_str).map(str::to_owned);
    Ok(ManifestObject { place, api_version, kind, namespace, name, body })
}

fn required_text(body: &Value, pointer: &str, field: &str) -> Result<String, Problem> {
    match body.pointer(pointer) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        Some(Value::String(_) | Value::Null) | None => Err(Problem::at(field, "is missing")),
        Some(other) => Err(Problem::at(field, format!("expected a string, got {}", type_name(other)))),
    }
}

/// The definitions of our group. A manifest may have thousands of objects.
static CRDS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(crd::all_crds);

/// The schema of the `metadata` fields that a manifest may contain. The API server knows these
/// fields, and a CRD must not repeat them.
static METADATA: LazyLock<JSONSchemaProps> = LazyLock::new(|| {
    let [text, number, time] = [
        json!({"type": "string"}),
        json!({"type": "integer"}),
        json!({"type": "string", "format": "date-time"}),
    ];
    let texts = json!({"type": "object", "additionalProperties": text});
    let owner = json!({
        "type": "object",
        "properties": {
            "apiVersion": text, "kind": text, "name": text, "uid": text,
            "controller": {"type": "boolean"}, "blockOwnerDeletion": {"type": "boolean"},
        },
        "required": ["apiVersion", "kind", "name", "uid"],
    });
    let managed = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({
        "type": "object",
        "properties": {
            "name": text, "generateName": text, "namespace": text,
            "labels": texts, "annotations": texts,
            "finalizers": {"type": "array", "items": text},
            "ownerReferences": {"type": "array", "items": owner},
            // A manifest may be the output of `kubectl get -o yaml`, so fields that the server
            // writes are ignored, not rejected.
            "creationTimestamp": time, "deletionTimestamp": time, "deletionGracePeriodSeconds": number,
            "generation": number, "managedFields": {"type": "array", "items": managed},
            "resourceVersion": text, "selfLink": text, "uid": text,
        },
    });
    serde_json::from_value(schema).expect("this is a schema")
});

/// Compares an object of our group with the schema of its kind.
fn check_against_crd(api_version: &str, kind: &str, body: &Value) -> Result<(), Problem> {
    let is_ours = api_version.split('/').next() == Some(GROUP);
    if !is_ours {
        return Ok(());
    }
    if api_version != API_VERSION {
        return Err(Problem::at("apiVersion", format!("expected {API_VERSION}, got {api_version}")));
    }
    let Some(found) = CRDS.iter().find(|crd| crd.spec.names.kind == kind) else {
        let known: Vec<&str> = CRDS.iter().map(|crd| crd.spec.names.kind.as_str()).collect();
        return Err(Problem::at("kind", format!("expected one of {}", known.join(", "))));
    };
    if let Some(metadata) = body.get("metadata") {
        check(&METADATA, "metadata", metadata)?;
    }
    let schema =
        found.spec.versions.iter().find_map(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
    schema.map_or(Ok(()), |schema| check(schema, "", body))
}

/// Compares value and schema recursively. The depth of the schema limits the recursion: an unknown
/// field ends it.
fn check(schema: &JSONSchemaProps, path: &str, value: &Value) -> Result<(), Problem> {
    // As everywhere in Kubernetes, null means absent.
    if value.is_null() {
        return Ok(());
    }
    if schema.x_kubernetes_int_or_string == Some(true) {
        let fits = value.is_string() || value.is_i64();
        return if fits { Ok(()) } else { Err(mismatch(path, "an integer or a string", value)) };
    }
    match (schema.type_.as_deref(), value) {
        (Some("object"), Value::Object(fields)) => check_fields(schema, path, fields),
        (Some("array"), Value::Array(items)) => check_items(schema, path, items),
        (Some("string"), Value::String(_)) | (Some("boolean"), Value::Bool(_)) => Ok(()),
        (Some("integer"), value) if value.is_i64() => check_range(schema, path, value),
        (Some("object"), _) => Err(mismatch(path, "an object", value)),
        (Some("array"), _) => Err(mismatch(path, "an array", value)),
        (Some("boolean"), _) => Err(mismatch(path, "true or false", value)),
        (Some("integer"), _) => Err(mismatch(path, "an integer", value)),
        (Some(_), _) => Err(mismatch(path, "a string", value)),
        (None, _) => Ok(()),
    }
}

fn check_fields(
    schema: &JSONSchemaProps,
    path: &str,
    fields: &serde_json::Map<String, Value>,
) -> Result<(), Problem> {
    let says_nothing = schema.properties.is_none() && schema.additional_properties.is_none();
    let keeps_unknown = says_nothing || schema.x_kubernetes_preserve_unknown_fields == Some(true);
    for (name, value) in fields {
        let path = join(path, name);
        let known = schema.properties.as_ref().and_then(|properties| properties.get(name));
        match (known, &schema.additional_properties) {
            (Some(known), _) => check(known, &path, value)?,
            (None, Some(JSONSchemaPropsOrBool::Schema(values))) => check(values, &path, value)?,
            (None, Some(JSONSchemaPropsOrBool::Bool(true))) => {}
            (None, Some(JSONSchemaPropsOrBool::Bool(false)) | None) if keeps_unknown => {}
            (None, Some(JSONSchemaPropsOrBool::Bool(false)) | None) => {
                return Err(unknown_field(schema, &path));
            }
        }
    }
    let is_missing = |name: &&String| fields.get(*name).is_none_or(Value::is_null);
    match schema.required.iter().flatten().find(is_missing) {
        Some(name) => Err(Problem::at(&join(path, name), "is missing")),
        None => Ok(()),
    }
}

fn check_items(schema: &JSONSchemaProps, path: &str, items: &[Value]) -> Result<(), Problem> {
    let Some(JSONSchemaPropsOrArray::Schema(item_schema)) = &schema.items else { return Ok(()) };
    for (index, item) in items.iter().enumerate() {
        check(item_schema, &format!("{path}[{index}]"), item)?;
    }
    Ok(())
}

fn check_range(schema: &JSONSchemaProps, path: &str, value: &Value) -> Result<(), Problem> {
    let fits =
        schema.format.as_deref() != Some("int32") || value.as_i64().is_some_and(|n| i32::try_from(n).is_ok());
    if fits { Ok(()) } else { Err(mismatch(path, "a 32-bit integer", value)) }
}

fn unknown_field(schema: &JSONSchemaProps, path: &str) -> Problem {
    let known: Vec<&str> = schema.properties.iter().flatten().map(|(name, _)| name.as_str()).collect();
    Problem::at(path, format!("unknown field; expected one of {}", known.join(", ")))
}

fn mismatch(path: &str, expected: &str, value: &Value) -> Problem {
    Problem::at(path, format!("expected {expected}, got {}", type_name(value)))
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(number) if number.is_f64() => "a fraction",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcm::{Machine, MachineDeployment};

    const GOOD: &str = "\
# A comment, then an empty document.
---
apiVersion: v1
kind: Secret
metadata: {name: s, namespace: default}
stringData: {userData: a, anything: goes}
---
apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineDeployment
metadata:
  name: workers
spec:
  replicas: 3
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxSurge: 1, maxUnavailable: 10%}
  template:
    metadata: {labels: {name: workers}, anything: goes}
    spec: {class: {kind: MachineClass, name: c}, drainTimeout: 5m}
";

    fn refused(text: &str) -> String {
        match parse_manifest(text) {
            Ok(objects) => format!("accepted: {objects:?}"),
            Err(error) => error.to_string(),
        }
    }

    fn ours(kind: &str, rest: &str) -> String {
        format!("apiVersion: machine.sapcloud.io/v1alpha1\nkind: {kind}\nmetadata: {{name: x}}\n{rest}\n")
    }

    #[test]
    fn documents_are_read_in_order_and_decode_as_their_kind() {
        let objects = parse_manifest(GOOD).expect("a good manifest");
        assert_eq!(
            format!("{objects:?}"),
            "[ManifestObject(v1 Secret default/s), \
             ManifestObject(machine.sapcloud.io/v1alpha1 MachineDeployment -/workers)]"
        );
        let deployment: MachineDeployment = objects[1].decode().expect("a deployment");
        assert_eq!(deployment.spec.replicas(), 3);
        assert_eq!(objects[1].decode::<Machine>(), None);
        assert!(parse_manifest("").expect("an empty manifest").is_empty());
    }

    #[test]
    fn a_list_is_replaced_by_its_items() {
        let text =
            "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Namespace, metadata: {name: a}}]}";
        let objects = parse_manifest(text).expect("a list");
        assert_eq!(objects.len(), 1);
        assert_eq!(objects[0].place.to_string(), "document 1: items[0]");
        assert_eq!(
            refused("{apiVersion: v1, kind: List}"),
            "document 1: List: items: expected an array, got nothing"
        );
    }

    #[test]
    fn invalid_yaml_is_rejected_with_its_line() {
        let error = parse_manifest("apiVersion: v1\nkind: Secret\nmetadata: {name: s\ndata: [secret\n")
            .expect_err("an open bracket");
        assert!(error.line.is_some_and(|line| 3 <= line), "{error:?}");
        assert!(error.to_string().contains("invalid YAML"), "{error}");
        let twice = refused("a: 1\na: 2\n");
        assert!(twice.contains("line 2") && twice.contains("duplicate"), "{twice}");
    }

    #[test]
    fn an_invalid_field_is_rejected_with_its_path() {
        for (text, expected) in [
            (
                ours("Machine", "spec: {class: {nam: c}}"),
                "Machine x: spec.class.nam: unknown field; expected one of apiGroup, kind, name",
            ),
            (
                ours("MachineSet", "spec: {replicas: three}"),
                "MachineSet x: spec.replicas: expected an integer, got a string",
            ),
            (
                ours("MachineSet", "spec: {replicas: 3000000000}"),
                "MachineSet x: spec.replicas: expected a 32-bit integer, got a number",
            ),
            (
                ours("MachineDeployment", "spec: {replicas: 1}"),
                "MachineDeployment x: spec.template: is missing",
            ),
            (
                ours(
                    "MachineDeployment",
                    "spec: {template: {}, strategy: {rollingUpdate: {maxSurge: 1.5}}}",
                ),
                "MachineDeployment x: spec.strategy.rollingUpdate.maxSurge: expected an integer or a string, got a \
                 fraction",
            ),
            (ours("MachineClass", "provider: sim"), "MachineClass x: providerSpec: is missing"),
            (
                ours("MachineClass", "providerSpec: small"),
                "MachineClass x: providerSpec: expected an object, got a string",
            ),
            (
                ours("Machine", "spec: {nodeTemplate: {spec: {taints: [{key: a}]}}}"),
                "Machine x: spec.nodeTemplate.spec.taints[0].effect: is missing",
            ),
            (
                ours("MachinePool", ""),
                "MachinePool x: kind: expected one of MachineClass, MachineDeployment, Machine, MachineSet",
            ),
            (
                "{apiVersion: machine.sapcloud.io/v1, kind: Machine, metadata: {name: x}}".to_owned(),
                "Machine x: apiVersion: expected machine.sapcloud.io/v1alpha1, got machine.sapcloud.io/v1",
            ),
            (
                "{apiVersion: machine.sapcloud.io/v1alpha1, kind: Machine, metadata: {name: x, labels: {a: 1}}}"
                    .to_owned(),
                "Machine x: metadata.labels.a: expected a string, got a number",
            ),
            ("{apiVersion: v1, kind: Pod, metadata: {}}".to_owned(), "Pod: metadata.name: is missing"),
            ("{apiVersion: v1, metadata: {name: a}}".to_owned(), "kind: is missing"),
            (
                "just text".to_owned(),
                "expected an object with apiVersion, kind and metadata, got a string",
            ),
        ] {
            assert_eq!(refused(&text), format!("document 1: {expected}"), "for {text}");
        }
    }

    #[test]
    fn fields_that_a_controller_would_reject_are_reported() {
        let invalid = |text: &str| {
            let objects = parse_manifest(text).expect("a manifest");
            objects[0].invalid_fields().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let machine = ours("Machine", "spec: {class: {kind: MachineClass, name: c}, drainTimeout: soon}");
        let expected = "spec.drainTimeout: expected a duration such as 20m or 1h30m, got \"soon\"";
        assert_eq!(invalid(&machine), [expected]);
        let set =
            "spec: {replicas: -1, selector: {}, template: {spec: {class: {kind: MachineClass, name: c}}}}";
        assert_eq!(invalid(&ours("MachineSet", set)), ["spec.replicas: expected 0 or more, got -1"]);
        assert_eq!(invalid("{apiVersion: v1, kind: Secret, metadata: {name: s}}"), [""; 0]);
    }

    #[test]
    fn errors_and_debug_never_quote_a_secret() {
        let text = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: hunter2}\n";
        let objects = parse_manifest(text).expect("a secret");
        assert!(!format!("{objects:?}").contains("hunter2"));
        let broken = refused(&format!("{text}  oops: [hunter2\n"));
        assert!(broken.contains("invalid YAML") && !broken.contains("hunter2"), "{broken}");
    }
}
