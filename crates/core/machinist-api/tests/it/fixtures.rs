//! Tests that objects of a real Go MCM are read and written back unchanged, field by field, without
//! exception.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::Resource;
use machinist_api::constants::markers::DeletionMarker;
use machinist_api::{Machine, MachineClass, MachineDeployment, MachineSet, Phase};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(crate) fn fixture_files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/go-mcm");
    let entries = std::fs::read_dir(folder).expect("the fixtures are checked in");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder entry").path()).collect();
    files.sort();
    files
}

fn items_of(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).expect("a readable fixture");
    let list: Value = serde_json::from_str(&text).expect("a JSON fixture");
    list["items"].as_array().expect("a list").clone()
}

fn there_and_back<K: DeserializeOwned + Serialize>(object: &Value) -> Value {
    let typed: K = serde_json::from_value(object.clone()).expect("a readable object");
    serde_json::to_value(typed).expect("a writable object")
}

#[test]
fn every_object_of_our_kinds_is_written_back_unchanged() {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for file in fixture_files() {
        for object in items_of(&file) {
            let (kind, back) = match object["kind"].as_str() {
                Some("Machine") => (Machine::KIND, there_and_back::<Machine>(&object)),
                Some("MachineClass") => (MachineClass::KIND, there_and_back::<MachineClass>(&object)),
                Some("MachineSet") => (MachineSet::KIND, there_and_back::<MachineSet>(&object)),
                Some("MachineDeployment") => {
                    (MachineDeployment::KIND, there_and_back::<MachineDeployment>(&object))
                }
                _ => continue,
            };
            *seen.entry(kind).or_default() += 1;
            let name = &object["metadata"]["name"];
            assert_eq!(
                without_nulls(back),
                without_nulls(object.clone()),
                "{kind} {name} of {}",
                file.display()
            );
        }
    }
    let expected = [("Machine", 55), ("MachineClass", 17), ("MachineDeployment", 15), ("MachineSet", 16)];
    assert_eq!(seen, BTreeMap::from(expected), "the number of fixtures changed");
}

/// Removes `null` values, the only allowed difference: Go writes an unset time as `null`, which
/// means absent.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

#[test]
fn each_fixture_contains_a_machine_in_its_phase() {
    for (file, phase, marker) in [
        ("creating.json", Phase::Empty, None),
        ("create-exhausted.json", Phase::CrashLoopBackOff, None),
        ("joining.json", Phase::Pending, None),
        ("running.json", Phase::Running, None),
        ("unknown.json", Phase::Unknown, None),
        ("draining.json", Phase::Terminating, Some(DeletionMarker::DrainNode)),
        ("deletion-vm-deletion.json", Phase::Terminating, Some(DeletionMarker::DeleteInstance)),
        ("vm-deletion-failing.json", Phase::Terminating, Some(DeletionMarker::DeleteInstance)),
        (
            "deletion-machine-object-finalizer-removal.json",
            Phase::Terminating,
            Some(DeletionMarker::RemoveFinalizer),
        ),
    ] {
        let path =
            fixture_files().into_iter().find(|path| path.ends_with(file)).expect("the fixture is there");
        let machines: Vec<Machine> = items_of(&path)
            .into_iter()
            .filter(|object| object["kind"] == "Machine")
            .map(|object| serde_json::from_value(object).expect("a readable Machine"))
            .collect();
        let found = machines.iter().any(|machine| {
            machine.phase() == phase
                && machine.last_operation().and_then(|operation| operation.deletion_marker()) == marker
        });
        assert!(found, "{file}: no Machine is {phase:?} at {marker:?}");
    }
}
