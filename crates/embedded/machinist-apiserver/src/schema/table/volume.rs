//! The columns of volumes, claims and attachments.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::built_in::{AGE, Column, NAME, age, column, list, name, text, text_or, wide};
use crate::values::object::is_deleting;

const UNSET: &str = "<unset>";

pub(super) const VOLUME: &[Column] = &[
    NAME,
    column("Capacity", "Size of the volume"),
    column("Access Modes", "How many may use it, and how"),
    column("Reclaim Policy", "What becomes of it when its claim goes"),
    column("Status", "Phase of the volume"),
    column("Claim", "Claim that it is bound to"),
    column("StorageClass", "Class of the volume"),
    column("VolumeAttributesClass", "Class of its changeable attributes"),
    column("Reason", "Why it is in its phase"),
    AGE,
    wide("VolumeMode", "Whether it is a file system or a block device"),
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

/// Each mode once, by its initials.
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
    column("Volume", "Volume that it is bound to"),
    column("Capacity", "Size of that volume"),
    column("Access Modes", "How many may use it, and how"),
    column("StorageClass", "Class that is asked for"),
    column("VolumeAttributesClass", "Class of its changeable attributes"),
    AGE,
    wide("VolumeMode", "Whether it is a file system or a block device"),
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
    column("Attacher", "Driver that attaches"),
    column("PV", "Volume that is attached"),
    column("Node", "Node that it is attached to"),
    Column { name: "Attached", of: "boolean", description: "Whether it is attached", priority: 0 },
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
