//! The note that a run of `up` leaves in the data directory for the next run, and the machine
//! objects of an earlier run.
//!
//! The API server and the cloud store their own state. The note stores only that something was
//! applied, and the namespace. It prevents a second quick start after a user has scaled, changed or
//! deleted the first one.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use machinist_api::manifest::{DocumentPlace, ManifestObject};
use machinist_api::mcm::API_VERSION;
use machinist_apiserver::{Folder, Kept, Object, Server};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::manifest::Manifest;
use super::view::Awaited;

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

/// Returns the machine objects without a controlling owner, as a manifest would list them.
pub(super) fn machine_objects(server: &Server, namespace: &str) -> Vec<ManifestObject> {
    let ours = unowned(server).filter(|(_, object)| object.namespace() == namespace);
    let numbered = ours.enumerate().map(|(index, (kind, object))| ManifestObject {
        place: DocumentPlace { document: index + 1, item: None },
        api_version: API_VERSION.to_owned(),
        kind: kind.to_owned(),
        namespace: Some(namespace.to_owned()),
        name: object.name().to_owned(),
        body: object.value().clone(),
    });
    numbered.collect()
}

/// The machine objects of a directory that no manifest of this run contains, once they were read.
#[derive(Debug, Default)]
pub(super) struct Others(Mutex<Option<Vec<String>>>);

impl Others {
    /// Notes the objects that the API server has now.
    pub(super) fn note(&self, server: &Server, manifest: &Manifest) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(others(server, manifest));
    }

    /// Returns the noted objects; `None` if the objects of the directory were never read.
    pub(super) fn noted(&self) -> Option<Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns the objects without a controlling owner that create machines, of all namespaces, and
/// that are not in the manifest.
pub(super) fn others(server: &Server, manifest: &Manifest) -> Vec<String> {
    let named = manifest.awaited();
    let all =
        unowned(server).filter_map(|(kind, object)| Awaited::of(kind, object.namespace(), object.name()));
    all.filter(|awaited| !named.contains(awaited)).map(|awaited| awaited.to_string()).collect()
}

/// Returns the machine objects without a controlling owner, of all namespaces, with their kinds.
fn unowned(server: &Server) -> impl Iterator<Item = (&'static str, Arc<Object>)> {
    let of_kind = |(kind, resource)| server.snapshot(resource).into_iter().map(move |object| (kind, object));
    KINDS.into_iter().flat_map(of_kind).filter(|(_, object)| !is_owned(object))
}

fn is_owned(object: &Object) -> bool {
    let owners = object.value().pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.is_some_and(|owners| owners.iter().any(|owner| owner["controller"] == true))
}

#[cfg(test)]
mod tests {
    use machinist_apiserver::{Config, Identity};
    use machinist_kube::{ClientOptions, layer_client};
    use serde_json::json;

    use super::*;

    /// An earlier run applied a, this run applies b.
    #[tokio::test]
    async fn objects_of_no_manifest_of_this_run_are_others() {
        let server = Server::new(Config::default());
        let client = layer_client(server.service_as(Identity::admin()), &ClientOptions::new("test"));
        crate::cmd::up::cluster::install_crds(&client).await.expect("installed");
        let noted = Others::default();
        assert_eq!(noted.noted(), None);
        let owned = json!([{
            "apiVersion": API_VERSION, "kind": "MachineDeployment", "name": "d", "uid": "u", "controller": true,
        }]);
        let sets = [("default", "a", json!([])), ("default", "b", json!([])), ("default", "of-a", owned)];
        for (namespace, name, owners) in sets.into_iter().chain([("kube-system", "c", json!([]))]) {
            let set = json!({
                "apiVersion": API_VERSION, "kind": "MachineSet",
                "metadata": {"name": name, "ownerReferences": owners},
                "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": {
                    "metadata": {"labels": {"app": name}}, "spec": {"class": {"kind": "MachineClass", "name": "c"}},
                }},
            });
            let path = format!("/apis/{API_VERSION}/namespaces/{namespace}/machinesets");
            let request = http::Request::post(path).header("content-type", "application/json");
            let request = request.body(set.to_string().into_bytes()).expect("a request");
            client.request::<Value>(request).await.expect("created");
        }
        let mut objects = machine_objects(&server, "default");
        noted.note(&server, &Manifest::of(objects.clone(), "default"));
        let of_another_namespace = "MachineSet c".to_owned();
        assert_eq!(noted.noted(), Some(vec![of_another_namespace.clone()]));
        objects.retain(|object| object.name == "b");
        noted.note(&server, &Manifest::of(objects, "default"));
        assert_eq!(noted.noted(), Some(vec!["MachineSet a".to_owned(), of_another_namespace]));
    }
}
