//! Tests of JSON rules that the fixtures do not cover.

use machinist_api::code::Code;
use machinist_api::{
    GoDuration, Machine, MachineClass, MachineDeployment, MachineSet, MachineSpec, NodeTemplateSpec,
    OperationState, Phase, StrategyType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn read<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("a readable object")
}

fn write(object: &impl Serialize) -> Value {
    serde_json::to_value(object).expect("a writable object")
}

#[test]
fn null_is_an_unset_time_and_empty_structs_are_kept() {
    let machine: Machine = read(json!({
        "spec": {"class": {}, "nodeTemplate": {"metadata": {"creationTimestamp": null}, "spec": {}}},
        "status": {
            "addresses": null,
            "conditions": null,
            "lastOperation": {"lastUpdateTime": null},
            "currentStatus": {"lastUpdateTime": null},
        },
    }));
    assert_eq!(machine.phase(), Phase::Empty);
    assert_eq!(
        write(&machine),
        json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1",
            "kind": "Machine",
            "metadata": {},
            "spec": {"class": {}, "nodeTemplate": {"metadata": {}, "spec": {}}},
            "status": {"lastOperation": {}, "currentStatus": {}},
        })
    );
}

#[test]
fn templates_with_a_null_creation_timestamp_are_equal() {
    let old: NodeTemplateSpec = read(json!({"metadata": {"creationTimestamp": null, "labels": {"a": "b"}}}));
    let new: NodeTemplateSpec = read(json!({"metadata": {"labels": {"a": "b"}}, "spec": {}}));
    assert_eq!(old, new);
}

#[test]
fn the_configuration_is_flattened_into_the_spec() {
    let spec: MachineSpec = read(json!({
        "class": {"kind": "MachineClass", "name": "c"},
        "drainTimeout": "1.5h",
        "healthTimeout": "90s",
        "creationTimeout": "whenever",
        "disableHealthTimeout": false,
        "maxEvictRetries": 7,
    }));
    assert_eq!(spec.configuration.drain_timeout(), Some(GoDuration::from_seconds(90 * 60)));
    assert_eq!(spec.configuration.creation_timeout(), None);
    assert_eq!(
        write(&spec),
        json!({
            "class": {"kind": "MachineClass", "name": "c"},
            "nodeTemplate": {"metadata": {}, "spec": {}},
            "drainTimeout": "1h30m0s",
            "healthTimeout": "1m30s",
            "creationTimeout": "whenever",
            "disableHealthTimeout": false,
            "maxEvictRetries": 7,
        })
    );
}

#[test]
fn absent_and_empty_fields_stay_distinct_for_patch_tests() {
    let absent: MachineSpec = read(json!({}));
    let empty: MachineSpec = read(json!({"providerID": ""}));
    assert_eq!((absent.provider_id.as_deref(), empty.provider_id.as_deref()), (None, Some("")));
    assert_eq!((absent.provider_id(), empty.provider_id()), (None, None));
    let zero: MachineSet = read(json!({"spec": {"replicas": 0}}));
    assert_eq!(write(&zero)["spec"]["replicas"], json!(0));
}

#[test]
fn the_conditions_of_a_set_keep_their_wire_name() {
    let condition = json!({"type": "Frozen", "status": "True", "reason": "OverShootingReplicaCount"});
    let set: MachineSet = read(json!({"status": {"replicas": 0, "machineSetCondition": [condition]}}));
    assert_eq!(write(&set)["status"], json!({"machineSetCondition": [condition]}));
}

#[test]
fn unknown_fields_survive_where_the_crd_keeps_them() {
    let class = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "MachineClass",
        "metadata": {"name": "c"},
        "nodeTemplate": {
            "capacity": {"cpu": "2"}, "instanceType": "m", "region": "r", "zone": "z", "later": {"than": "us"},
        },
        "providerSpec": {"anything": [1, {"deep": null}]},
    });
    assert_eq!(write(&read::<MachineClass>(class.clone())), class);

    let metadata = json!({"labels": {"a": "b"}, "name": "n", "later": {"than": "us"}});
    let node = json!({"taints": [{"key": "k", "effect": "NoSchedule"}], "later": 2});
    let template = json!({"metadata": metadata, "spec": node});
    let machine: Machine = read(json!({"spec": {"nodeTemplate": template, "later": 1}}));
    let back = write(&machine);
    assert_eq!(back["spec"]["nodeTemplate"], template);
    assert_eq!(back["spec"]["later"], 1, "the CRD of a newer version may keep the field");
}

#[test]
fn unknown_enum_values_are_kept() {
    let machine = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "Machine",
        "metadata": {},
        "spec": {"class": {}, "nodeTemplate": {"metadata": {}, "spec": {}}},
        "status": {
            "lastOperation": {"state": "Paused", "type": "Repair", "errorCode": "TooBusy"},
            "currentStatus": {"phase": "Resting"},
        },
    });
    let typed: Machine = read(machine.clone());
    assert_eq!(typed.phase(), Phase::Other("Resting".to_owned()));
    let operation = typed.last_operation().expect("a last operation");
    assert_eq!(operation.state, Some(OperationState::Other("Paused".to_owned())));
    assert_eq!(operation.code(), Some(Code::Unknown));
    assert_eq!(write(&typed), machine);

    let deployment: MachineDeployment = read(json!({"spec": {"strategy": {"type": "Blue"}}}));
    let strategy = deployment.spec.strategy.expect("a strategy");
    assert_eq!(strategy.type_, Some(StrategyType::Other("Blue".to_owned())));
}

#[test]
fn an_object_of_another_kind_is_rejected() {
    for (api_version, kind) in
        [("v1", "Pod"), ("machine.sapcloud.io/v1alpha1", "MachineSet"), ("v1", "Machine")]
    {
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {}});
        assert!(serde_json::from_value::<Machine>(object).is_err(), "{api_version} {kind}");
    }
}

#[test]
fn the_node_and_deletion_of_a_machine_come_from_its_metadata() {
    let machine: Machine = read(json!({"metadata": {
        "labels": {"node": "n-1"},
        "deletionTimestamp": "2026-01-02T03:04:05Z",
    }}));
    assert_eq!(machine.node_name(), Some("n-1"));
    assert!(machine.is_deleting());
    let bare: Machine = read(json!({"metadata": {"labels": {"node": ""}}}));
    assert_eq!((bare.node_name(), bare.is_deleting()), (None, false));
}
