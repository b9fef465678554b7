//! Compares our CRDs with the CRDs of the programs that we replace. Every field of Go MCM is ours,
//! with the same type, the same limits, and required in the same cases. Each object that the Docker
//! provider of Cluster API accepts is accepted with all fields of its spec, except for
//! [`STRICTER`]: its status is written by this project alone.
//!
//! No file of these programs is in this repository. `cargo xtask types --check` starts each test
//! with the folder of the files in Go's module cache.

use std::path::Path;

use serde_json::{Value, json};

use crate::crd_fields::{Fields, Words, fields_of, narrowed, present};

#[test]
fn every_field_of_go_is_a_field_of_ours() {
    let Some(folder) = std::env::var_os("MACHINIST_GO_CRDS") else { return };
    let of_go = fields_in(folder.as_ref(), |_| true);
    assert!(100 < of_go.len(), "only {} fields", of_go.len());
    let found = differences(&of_go, &present());
    assert!(found.is_empty(), "our CRDs differ from the CRDs of Go MCM: {found:#?}");
}

/// Fields of the Docker kinds in which we accept less or other values, as the end of their path,
/// and the reason. No webhook converts our objects, so both versions have one schema.
const STRICTER: [(&str, &str); 9] = [
    ("failureDomains", "v1beta1 has a map and v1beta2 a list: any value is stored"),
    ("controlPlaneEndpoint.host", "the limit of v1beta2 counts for both versions"),
    ("controlPlaneEndpoint.port", "the limit of v1beta2 counts for both versions"),
    ("spec.providerID", "the limit of v1beta2 counts for both versions"),
    ("spec", "the provider's webhooks reject the same changes"),
    ("bootstrapTimeout", "the provider cannot parse other texts"),
    ("extraMounts", "a list without a type is atomic"),
    ("preLoadImages", "a list without a type is atomic"),
    ("containerPath", "the engine rejects a mount without a path"),
];

#[test]
fn the_docker_kinds_accept_the_objects_of_the_docker_provider() {
    let Some(folder) = std::env::var_os("MACHINIST_DOCKER_CRDS") else { return };
    let is_ours = |kind: &str| {
        ["DockerCluster", "DockerClusterTemplate", "DockerMachine", "DockerMachineTemplate"].contains(&kind)
    };
    let mut theirs = fields_in(folder.as_ref(), is_ours);
    theirs.retain(|(_, _, path), _| path == "spec" || path.starts_with("spec."));
    assert!(50 < theirs.len(), "only {} fields", theirs.len());
    let (expected, others): (Vec<_>, Vec<_>) =
        narrowed(&theirs, &present()).into_iter().partition(|line| reason_in(line).is_some());
    assert!(others.is_empty(), "our CRDs accept less than the CRDs of the Docker provider: {others:#?}");
    for (field, _) in STRICTER {
        let is_used = expected.iter().any(|line| reason_in(line) == Some(field));
        assert!(is_used, "{field} is not stricter than in the Docker provider");
    }
}

/// The field of [`STRICTER`] in which a difference lies.
fn reason_in(line: &str) -> Option<&'static str> {
    let path = line.split(": ").next()?.rsplit(' ').next()?;
    // The schema of the entries of a map or list is part of the field.
    let domains = "failureDomains";
    let path = path.find(domains).map_or(path, |start| &path[..start + domains.len()]);
    let (field, _) = STRICTER.iter().find(|(field, _)| {
        path == *field || path.strip_suffix(field).is_some_and(|start| start.ends_with('.'))
    })?;
    Some(field)
}

/// The fields of the definitions in a folder.
fn fields_in(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> Fields {
    let mut found = Fields::new();
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("a readable file");
        let definition: Value = serde_saphyr::from_str(&text).expect("a CRD is YAML");
        let kind = definition.pointer("/spec/names/kind").and_then(Value::as_str).unwrap_or_default();
        if is_wanted(kind) {
            found.extend(fields_of(&definition));
        }
    }
    found
}

fn differences(of_go: &Fields, ours: &Fields) -> Vec<String> {
    let differing = of_go.iter().filter(|(name, field)| ours.get(*name) != Some(field));
    differing
        .map(|(name, field)| match ours.get(name) {
            Some(our) => format!("{}: expected {field:?}, found {our:?}", Words(name)),
            None => format!("{}: is missing", Words(name)),
        })
        .collect()
}

/// The fields of a definition with the fields of the spec.
fn of(required: &Value, properties: &Value) -> Fields {
    let schema = json!({"type": "object", "required": required, "properties": properties});
    let version = json!({"name": "v1", "served": true, "schema": {"openAPIV3Schema": schema}});
    fields_of(&json!({"spec": {"names": {"kind": "Kind"}, "versions": [version]}}))
}

#[test]
fn a_missing_or_another_field_is_a_difference() {
    let go = of(
        &json!(["b"]),
        &json!({
            "a": {"type": "string", "description": "x"},
            "b": {"type": "string"},
            "c": {"type": "integer"},
            "d": {"type": "string", "enum": ["A"]},
            "e": {"type": "boolean"},
        }),
    );
    assert!(differences(&go, &go).is_empty());
    let ours = of(
        &json!([]),
        &json!({
            "a": {"type": "string", "description": "y"},
            "b": {"type": "string"},
            "c": {"type": "string"},
            "d": {"type": "string"},
            "more": {"type": "string"},
        }),
    );
    let found = differences(&go, &ours);
    let fields: Vec<&str> = found.iter().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(fields, ["Kind v1 b", "Kind v1 c", "Kind v1 d", "Kind v1 e"]);
}
