//! Compares our CRDs with those of Go MCM: every field of Go MCM is ours, with the same type, the
//! same limits, and required in the same cases.
//!
//! No file of Go MCM is in this repository. `cargo xtask types --check` starts the test with the
//! folder of the files in Go's module cache.

use serde_json::{Value, json};

use crate::crd_fields::{Fields, Words, fields_of, present};

#[test]
fn every_field_of_go_is_a_field_of_ours() {
    let Some(folder) = std::env::var_os("MACHINIST_GO_CRDS") else { return };
    let mut of_go = Fields::new();
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("a readable file");
        let definition: Value = serde_saphyr::from_str(&text).expect("a CRD is YAML");
        of_go.extend(fields_of(&definition));
    }
    assert!(100 < of_go.len(), "only {} fields", of_go.len());
    let found = differences(&of_go, &present());
    assert!(found.is_empty(), "our CRDs differ from those of Go MCM: {found:#?}");
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
