//! Tests the rendering of the CRDs, and that they are structural schemas.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use machinist_api::crd;
use serde_json::Value;

/// The definitions of all contracts.
fn every_crd() -> Vec<CustomResourceDefinition> {
    [crd::all_crds(), crd::docker_crds(), crd::mailgun_crds()].concat()
}

#[test]
fn the_yaml_parses_back_to_the_same_crd() {
    for definition in every_crd() {
        let yaml = crd::render_yaml(&definition).expect("a CRD renders");
        let back: CustomResourceDefinition = serde_saphyr::from_str(&yaml).expect("our own YAML");
        assert_eq!(back, definition);
    }
}

/// Checks the API server's rules for a structural schema that our schemas could break, and our own
/// rule: no schema may reject or change an object that Go MCM has stored.
#[test]
fn schemas_are_structural_and_as_lenient_as_upstream() {
    for definition in crd::all_crds() {
        let value = serde_json::to_value(&definition).expect("a CRD is JSON");
        let schema = &value["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["properties"]["metadata"], serde_json::json!({"type": "object"}));
        let problems = problems_of(schema, "");
        assert!(problems.is_empty(), "{}: {problems:#?}", definition.spec.names.kind);
    }
}

fn problems_of(schema: &Value, path: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let is_int_or_string = schema["x-kubernetes-int-or-string"] == true;
    if schema["type"].is_string() == is_int_or_string {
        problems.push(format!("{path}: expected exactly one of type and int-or-string"));
    }
    let sorts = ["properties", "additionalProperties", "items"];
    if 1 < sorts.iter().filter(|sort| !schema[**sort].is_null()).count() {
        problems.push(format!("{path}: expected at most one of {sorts:?}"));
    }
    for keyword in
        ["default", "enum", "x-kubernetes-validations", "nullable", "allOf", "oneOf", "not", "maxLength"]
    {
        if !schema[keyword].is_null() {
            problems.push(format!("{path}: {keyword}"));
        }
    }
    if !schema["anyOf"].is_null() && !is_int_or_string {
        problems.push(format!("{path}: anyOf"));
    }
    if !schema["pattern"].is_null() && !is_int_or_string {
        problems.push(format!("{path}: pattern"));
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str().unwrap_or_default();
        if schema["properties"][name].is_null() {
            problems.push(format!("{path}: the required field {name} is not a property"));
        }
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        problems.extend(problems_of(property, &format!("{path}.{name}")));
    }
    for (keyword, step) in [("additionalProperties", "*"), ("items", "[]")] {
        if schema[keyword].is_object() {
            problems.extend(problems_of(&schema[keyword], &format!("{path}.{step}")));
        }
    }
    problems
}

/// `kubectl explain` shows the descriptions. They come from comments in the code.
#[test]
fn descriptions_are_short_and_name_no_code() {
    const LONGEST: usize = 120;
    for definition in every_crd() {
        let value = serde_json::to_value(&definition).expect("a CRD is JSON");
        for text in descriptions_of(&value) {
            let names_code = ["`", "::", "[", "Self"].iter().any(|part| text.contains(part));
            assert!(!names_code && text.len() <= LONGEST, "{}: {text}", definition.spec.names.kind);
        }
    }
}

fn descriptions_of(value: &Value) -> Vec<&str> {
    let below: Vec<&Value> = match value {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    };
    value["description"].as_str().into_iter().chain(below.into_iter().flat_map(descriptions_of)).collect()
}
