//! The note that a run of `up` leaves in the data directory for the next run, and the machine
//! objects of an earlier run.
//!
//! The API server and the cloud store their own state. The note stores only that something was
//! applied, and the namespace. It prevents a second quick start after a user has scaled, changed or
//! deleted the first one.

use std::collections::BTreeSet;

use machinist_api::manifest::{ManifestObject, Place};
use machinist_api::mcm::API_VERSION;
use machinist_apiserver::{Folder, Kept, Object, Server};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// File of the note, for example `{"namespace":"default"}`.
pub(super) const NOTE_FILE: &str = "up.json";

/// Machine kinds and their stored resources.
const KINDS: [(&str, &str); 4] = [
    ("MachineClass", "machineclasses.machine.sapcloud.io"),
    ("MachineDeployment", "machinedeployments.machine.sapcloud.io"),
    ("MachineSet", "machinesets.machine.sapcloud.io"),
    ("Machine", "machines.machine.sapcloud.io"),
];

/// Note that something was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    /// Namespace of the machine objects.
    pub namespace: String,
    /// The quick start was not applied completely, so the next run applies it again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfinished: bool,
}

impl Note {
    /// Creates the note for a complete apply.
    pub(super) fn of(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), unfinished: false }
    }

    /// Creates the note for a quick start in progress.
    pub(super) fn of_unfinished(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), unfinished: true }
    }

    /// Reads the note of an earlier run, if it exists.
    ///
    /// # Errors
    /// If the file cannot be read. The error names the file.
    pub(super) fn read(folder: &Folder) -> anyhow::Result<Option<Self>> {
        let Some(text) = folder.read(NOTE_FILE)? else { return Ok(None) };
        let note = serde_json::from_str(&text).map_err(|_| {
            let file = folder.path().join(NOTE_FILE);
            anyhow::anyhow!(
                "{} is damaged: expected {{\"namespace\":\"NAME\"}}, the namespace that the controllers serve",
                file.display()
            )
        })?;
        Ok(Some(note))
    }

    /// Writes the note for the next run.
    ///
    /// # Errors
    /// If the file cannot be written. The error names the file.
    pub(super) fn write(&self, folder: &Folder) -> anyhow::Result<()> {
        let text = serde_json::to_string(self).expect("plain fields serialise");
        Ok(folder.write(NOTE_FILE, &text)?)
    }
}

/// Returns the namespaces with machine objects.
pub(super) fn namespaces(kept: &Kept) -> BTreeSet<String> {
    let objects = KINDS.into_iter().flat_map(|(_, resource)| kept.objects(resource));
    objects.map(|(key, _)| key.namespace().to_owned()).collect()
}

/// Returns the machine objects without an owner, as a manifest would list them.
pub(super) fn machine_objects(server: &Server, namespace: &str) -> Vec<ManifestObject> {
    let of_kind = |(kind, resource): (&str, &str)| {
        let objects = server.snapshot(resource).into_iter();
        let ours = objects.filter(|object| object.namespace() == namespace && !is_owned(object));
        ours.map(|object| ManifestObject {
            place: Place { document: 1, item: None },
            api_version: API_VERSION.to_owned(),
            kind: kind.to_owned(),
            namespace: Some(namespace.to_owned()),
            name: object.name().to_owned(),
            body: object.value().clone(),
        })
        .collect::<Vec<_>>()
    };
    let mut objects: Vec<ManifestObject> = KINDS.into_iter().flat_map(of_kind).collect();
    for (index, object) in objects.iter_mut().enumerate() {
        object.place.document = index + 1;
    }
    objects
}

fn is_owned(object: &Object) -> bool {
    let owners = object.value().pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.is_some_and(|owners| owners.iter().any(|owner| owner["controller"] == true))
}
