//! Compares the CRD schemas with the serde code of the types, of which a part is written by hand,
//! and with objects that Go MCM stored.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::{Metadata, Resource};
use machinist_api::manifest::parse_manifest;
use machinist_api::{Machine, MachineClass, MachineDeployment, MachineSet, capi, crd};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::fixtures::fixture_files;

/// Builds an object with every field of the schema.
fn filled(schema: &Value) -> Value {
    if schema["x-kubernetes-int-or-string"] == true {
        // Our types hold a quantity as text; a limit may be a number or text.
        return if schema["pattern"].is_string() { json!("1") } else { json!(1) };
    }
    match schema["type"].as_str() {
        Some("object") => filled_object(schema),
        Some("array") => json!([filled(&schema["items"])]),
        Some("integer") => json!(1),
        Some("boolean") => json!(true),
        Some("string") if schema["enum"].is_array() => schema["enum"][0].clone(),
        Some("string") if schema["format"] == "date-time" => json!("2026-01-02T03:04:05Z"),
        _ => json!("text"),
    }
}

fn filled_object(schema: &Value) -> Value {
    let mut fields = Map::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        fields.insert(name.clone(), filled(property));
    }
    if schema["additionalProperties"].is_object() {
        fields.insert("key".to_owned(), filled(&schema["additionalProperties"]));
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        fields.insert("unknown".to_owned(), json!({"to": "us"}));
    }
    Value::Object(fields)
}

fn holds_every_field<K: Resource + Metadata + Serialize + DeserializeOwned>() {
    let object = round_trip::<K>(&crd::all_crds());
    parse_manifest(&object.to_string()).expect("the schema accepts the generated object");
}

/// Reads an object with every field of the schema, and writes it back.
fn round_trip<K: Resource + Metadata + Serialize + DeserializeOwned>(
    all: &[CustomResourceDefinition],
) -> Value {
    let definition =
        all.iter().find(|definition| definition.spec.names.kind == K::KIND).expect("a CRD of this kind");
    let definition = serde_json::to_value(definition).expect("a CRD is JSON");
    let mut object = filled(&definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
    object["apiVersion"] = json!(K::API_VERSION);
    object["kind"] = json!(K::KIND);
    object["metadata"] = json!({"name": "x"});
    let typed: K = serde_json::from_value(object.clone()).expect("the type reads what the schema allows");
    assert_eq!(serde_json::to_value(&typed).expect("a writable object"), object, "{}", K::KIND);
    object
}

#[test]
fn every_field_of_a_schema_is_a_field_of_its_type() {
    holds_every_field::<Machine>();
    holds_every_field::<MachineClass>();
    holds_every_field::<MachineSet>();
    holds_every_field::<MachineDeployment>();
}

#[test]
fn every_field_of_a_provider_is_a_field_of_its_type() {
    round_trip::<capi::DockerCluster>(&crd::docker_crds());
    round_trip::<capi::DockerClusterTemplate>(&crd::docker_crds());
    round_trip::<capi::DockerMachine>(&crd::docker_crds());
    round_trip::<capi::DockerMachineTemplate>(&crd::docker_crds());
    round_trip::<capi::MailgunCluster>(&crd::mailgun_crds());
    round_trip::<capi::MailgunMachine>(&crd::mailgun_crds());
}

/// Core controllers fail on `null`.
#[test]
fn absent_fields_are_omitted_and_never_null() {
    let machine = capi::DockerMachine {
        status: Some(capi::DockerMachineStatus::default()),
        ..capi::DockerMachine::default()
    };
    let written = serde_json::to_value(&machine).expect("a writable object");
    assert_eq!(written["spec"], json!({}), "providerID is omitted");
    assert_eq!(written["status"], json!({}), "addresses are omitted");
}

#[test]
fn the_schemas_know_every_field_that_go_wrote() {
    for file in fixture_files() {
        let text = std::fs::read_to_string(&file).expect("a readable fixture");
        let objects = parse_manifest(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert!(5 < objects.len(), "{} contains too few objects", file.display());
    }
}
