//! Columns of volumes, claims and attachments.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::built_in::{AGE, Column, NAME, age, column, list, name, text, text_or, wide};
use crate::values::object::is_deleting;

const UNSET: &str = "<unset>";

pub(super) const VOLUME: &[Column] = &[
    NAME,
    column("Capacity", "Size of the volume"),
    column("Access Modes", "Allowed access to the volume"),
    column("Reclaim Policy", "Action on the volume after its claim is deleted"),
    column("Status", "Phase of the volume"),
    column("Claim", "Claim to which the volume is bound"),
    column("StorageClass", "Class of the volume"),
    column("VolumeAttributesClass", "Class of the volume's changeable attributes"),
    column("Reason", "Reason for the phase"),
    AGE,
    wide("VolumeMode", "File system or block device"),
];

pub(super) fn volume(object: &Value, now: Timestamp) -> Vec<Value> {
    let claim = object.pointer("/spec/claimRef");
    let claim = claim.map(|claim| format!("{}/{}", text(claim, "/namespace"), text(claim, "/name")));
    vec![
        name(object),
        json!(text_or(object, "/spec/capacity/storage", "0")),
        json!(access_modes(list(object, "/spec/accessModes"))),
        json!(text(object, "/spec/persistentVolumeReclaimPolicy")),
        json!(phase(object)),
        json!(claim.unwrap_or_default()),
        json!(text(object, "/spec/storageClassName")),
        json!(text_or(object, "/spec/volumeAttributesClassName", UNSET)),
        json!(text(object, "/status/reason")),
        age(object, now),
        json!(text_or(object, "/spec/volumeMode", UNSET)),
    ]
}

fn phase(object: &Value) -> &str {
    if is_deleting(object) { "Terminating" } else { text(object, "/status/phase") }
}

/// Formats the modes by their initials, each mode once.
fn access_modes(modes: &[Value]) -> String {
    let known = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let held = known.iter().filter(|(mode, _)| modes.iter().any(|held| held == mode));
    held.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

pub(super) const CLAIM: &[Column] = &[
    NAME,
    column("Status", "Phase of the claim"),
    column("Volume", "Volume to which the claim is bound"),
    column("Capacity", "Size of the volume"),
    column("Access Modes", "Allowed access to the volume"),
    column("StorageClass", "Requested class"),
    column("VolumeAttributesClass", "Class of the volume's changeable attributes"),
    AGE,
    wide("VolumeMode", "File system or block device"),
];

pub(super) fn claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let volume = text(object, "/spec/volumeName");
    let (capacity, modes) = match volume {
        "" => (String::new(), String::new()),
        _ => (
            text_or(object, "/status/capacity/storage", "0").to_owned(),
            access_modes(list(object, "/status/accessModes")),
        ),
    };
    vec![
        name(object),
        json!(phase(object)),
        json!(volume),
        json!(capacity),
        json!(modes),
        json!(text(object, "/spec/storageClassName")),
        json!(text_or(object, "/spec/volumeAttributesClassName", UNSET)),
        age(object, now),
        json!(text_or(object, "/spec/volumeMode", UNSET)),
    ]
}

pub(super) const ATTACHMENT: &[Column] = &[
    NAME,
    column("Attacher", "Driver that attaches the volume"),
    column("PV", "Attached volume"),
    column("Node", "Node to which the volume is attached"),
    Column { name: "Attached", of: "boolean", description: "Whether the volume is attached", priority: 0 },
    AGE,
];

pub(super) fn attachment(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        json!(text(object, "/spec/attacher")),
        json!(text(object, "/spec/source/persistentVolumeName")),
        json!(text(object, "/spec/nodeName")),
        json!(object.pointer("/status/attached") == Some(&Value::Bool(true))),
        age(object, now),
    ]
}
