//! What an earlier run left in the data folder, and what a run notes there for the next one.
//!
//! API server and cloud keep their own state. What is noted here is only that something was applied, and for which namespace: a
//! quick start that was scaled, changed or deleted since must not come back by itself.

use std::collections::BTreeSet;

use machinist_api::manifest::{ManifestObject, Place};
use machinist_api::mcm::API_VERSION;
use machinist_apiserver::{Folder, Kept, Object, Server};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The note: `{"namespace":"default"}`.
pub(super) const NOTE_FILE: &str = "up.json";

/// The machine kinds, and the resources under which they are stored.
const KINDS: [(&str, &str); 4] = [
    ("MachineClass", "machineclasses.machine.sapcloud.io"),
    ("MachineDeployment", "machinedeployments.machine.sapcloud.io"),
    ("MachineSet", "machinesets.machine.sapcloud.io"),
    ("Machine", "machines.machine.sapcloud.io"),
];

/// Something was applied before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    /// The namespace of its machine objects.
    pub namespace: String,
    /// Not all of the quick start was applied yet: half of one is not wanted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfinished: bool,
}

impl Note {
    /// Everything was applied.
    pub(super) fn of(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), unfinished: false }
    }

    /// The quick start is being applied.
    pub(super) fn of_unfinished(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), unfinished: true }
    }

    /// The note of an earlier run, if there is one.
    ///
    /// # Errors
    /// Names the file.
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

    /// Leaves it for the next run.
    ///
    /// # Errors
    /// Names the file.
    pub(super) fn write(&self, folder: &Folder) -> anyhow::Result<()> {
        let text = serde_json::to_string(self).expect("plain fields serialise");
        Ok(folder.write(NOTE_FILE, &text)?)
    }
}

/// The namespaces that have machine objects.
pub(super) fn namespaces(kept: &Kept) -> BTreeSet<String> {
    let objects = KINDS.into_iter().flat_map(|(_, resource)| kept.objects(resource));
    objects.map(|(key, _)| key.namespace().to_owned()).collect()
}

/// The machine objects that nobody owns, as a manifest would list them.
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
