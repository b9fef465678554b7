//! The manifests that `up` applies, and takes away again.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, bail};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client};
use machinist_api::manifest::{ManifestObject, parse_manifest};
use machinist_api::mcm::API_VERSION;

use super::progress::Progress;
use super::view::Awaited;

/// What is applied when nobody names a manifest.
const QUICK_START: &str = include_str!("../../../../../examples/quickstart.yaml");

/// The namespace of objects that name none.
const DEFAULT_NAMESPACE: &str = "default";

/// The kinds whose objects bring machines about, in the order in which they are deleted: owners first, or they would replace
/// what they own.
const MACHINE_KINDS: [&str; 3] = ["MachineDeployment", "MachineSet", "Machine"];

/// Every object of every manifest, in the order in which they were written.
#[derive(Debug)]
pub(super) struct Manifest {
    objects: Vec<ManifestObject>,
    /// The namespace of its machine objects.
    pub namespace: String,
}

/// Reads manifests; the quick start if there are none. Nothing is started before all of them are sound.
///
/// # Errors
/// Names the file, the document and the field.
pub(super) fn read(files: &[PathBuf]) -> anyhow::Result<Manifest> {
    let mut objects = Vec::new();
    if files.is_empty() {
        objects = parse_manifest(QUICK_START).context("the built-in quick start")?;
    }
    for file in files {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("manifest {}: cannot be read", file.display()))?;
        let mut found = parse_manifest(&text).with_context(|| format!("manifest {}", file.display()))?;
        if found.is_empty() {
            bail!("manifest {}: expected at least one object, found none", file.display());
        }
        objects.append(&mut found);
    }
    let namespace = machine_namespace(&objects)?;
    Ok(Manifest { objects, namespace })
}

/// The one namespace of all machine objects: controllers serve one each.
fn machine_namespace(objects: &[ManifestObject]) -> anyhow::Result<String> {
    let mut namespaces = objects.iter().filter(|object| object.api_version == API_VERSION).map(namespace_of);
    let Some(first) = namespaces.next() else { return Ok(DEFAULT_NAMESPACE.to_owned()) };
    match namespaces.find(|other| *other != first) {
        None => Ok(first.to_owned()),
        Some(other) => bail!(
            "manifests: expected all machine objects in one namespace, because a controller serves one; found {first} and {other}"
        ),
    }
}

fn namespace_of(object: &ManifestObject) -> &str {
    object.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)
}

impl Manifest {
    /// One of objects that are there already.
    pub(super) fn of(objects: Vec<ManifestObject>, namespace: &str) -> Self {
        Self { objects, namespace: namespace.to_owned() }
    }

    /// The objects to wait for.
    pub(super) fn awaited(&self) -> Vec<Awaited> {
        let ours = self.objects.iter().filter(|object| object.api_version == API_VERSION);
        ours.filter_map(|object| {
            let (namespace, name) = (namespace_of(object).to_owned(), object.name.clone());
            match object.kind.as_str() {
                "MachineDeployment" => Some(Awaited::Deployment(namespace, name)),
                "MachineSet" => Some(Awaited::Set(namespace, name)),
                "Machine" => Some(Awaited::Machine(namespace, name)),
                _ => None,
            }
        })
        .collect()
    }

    /// Creates each object, or merges it into the one that is there.
    ///
    /// # Errors
    /// Names the object and says what the API server objected to.
    pub(super) async fn apply(&self, kinds: &mut Kinds, progress: &Progress) -> anyhow::Result<()> {
        for object in &self.objects {
            let api = kinds.api_of(object).await?;
            let title = title(object);
            let body: DynamicObject = serde_json::from_value(object.body.clone())
                .with_context(|| format!("{title}: cannot be read as an object"))?;
            let how = match api.create(&PostParams::default(), &body).await {
                Ok(_) => "created",
                Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
                    let merge = Patch::Merge(&object.body);
                    api.patch(&object.name, &PatchParams::default(), &merge)
                        .await
                        .map_err(|error| refusal(&title, error))?;
                    "updated"
                }
                Err(error) => return Err(refusal(&title, error)),
            };
            progress.applied(&title, how)?;
        }
        Ok(())
    }

    /// Resource, namespace and name of every object, as the commit log names them.
    ///
    /// # Errors
    /// When a kind is not served any more.
    pub(super) async fn identities(
        &self,
        kinds: &mut Kinds,
    ) -> anyhow::Result<Vec<(String, String, String)>> {
        let mut identities = Vec::new();
        for object in &self.objects {
            let (resource, scope) = kinds.of(object).await?;
            let table = match resource.group.as_str() {
                "" => resource.plural.clone(),
                group => format!("{}.{group}", resource.plural),
            };
            let namespace = match scope {
                Scope::Cluster => String::new(),
                Scope::Namespaced => namespace_of(object).to_owned(),
            };
            identities.push((table, namespace, object.name.clone()));
        }
        Ok(identities)
    }

    /// Asks for the deletion of everything that brings machines about.
    ///
    /// # Errors
    /// Names the object and says what the API server objected to.
    pub(super) async fn delete_machines(&self, kinds: &mut Kinds) -> anyhow::Result<()> {
        for kind in MACHINE_KINDS {
            for object in self.objects.iter().filter(|it| it.api_version == API_VERSION && it.kind == kind) {
                delete(kinds, object).await?;
            }
        }
        Ok(())
    }

    /// Asks for the deletion of the rest, last first. Classes and Secrets go when no machine needs them any more.
    ///
    /// # Errors
    /// Names the object and says what the API server objected to.
    pub(super) async fn delete_rest(&self, kinds: &mut Kinds) -> anyhow::Result<()> {
        let is_rest = |it: &&ManifestObject| {
            it.api_version != API_VERSION || !MACHINE_KINDS.contains(&it.kind.as_str())
        };
        for object in self.objects.iter().rev().filter(is_rest) {
            delete(kinds, object).await?;
        }
        Ok(())
    }
}

async fn delete(kinds: &mut Kinds, object: &ManifestObject) -> anyhow::Result<()> {
    let api = kinds.api_of(object).await?;
    match api.delete(&object.name, &DeleteParams::background()).await {
        Ok(_) => Ok(()),
        // Somebody was faster.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(refusal(&title(object), error)),
    }
}

fn title(object: &ManifestObject) -> String {
    format!("{} {}", object.kind, object.name)
}

/// A refusal in the API server's words. The request is left out: it may be a Secret.
fn refusal(title: &str, error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => anyhow::anyhow!("{title}: the API server refuses it: {}", status.message),
        error => anyhow::Error::new(error).context(format!("{title}: no answer from the API server")),
    }
}

/// Where objects of a kind are served; asked once per kind.
pub(super) struct Kinds {
    client: Client,
    known: BTreeMap<(String, String), (ApiResource, Scope)>,
}

impl Kinds {
    /// Nothing is known yet.
    pub(super) fn new(client: Client) -> Self {
        Self { client, known: BTreeMap::new() }
    }

    async fn of(&mut self, object: &ManifestObject) -> anyhow::Result<(ApiResource, Scope)> {
        let key = (object.api_version.clone(), object.kind.clone());
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let found = self.discover(object).await?;
        self.known.insert(key, found.clone());
        Ok(found)
    }

    async fn api_of(&mut self, object: &ManifestObject) -> anyhow::Result<Api<DynamicObject>> {
        let (resource, scope) = self.of(object).await?;
        Ok(match scope {
            Scope::Cluster => Api::all_with(self.client.clone(), &resource),
            Scope::Namespaced => Api::namespaced_with(self.client.clone(), namespace_of(object), &resource),
        })
    }

    async fn discover(&self, object: &ManifestObject) -> anyhow::Result<(ApiResource, Scope)> {
        let (group, version) = object.api_version.split_once('/').unwrap_or(("", &object.api_version));
        let kind = GroupVersionKind::gvk(group, version, &object.kind);
        let (resource, capabilities) = pinned_kind(&self.client, &kind).await.with_context(|| {
            format!("{}: the API server has no kind {} in {}", title(object), object.kind, object.api_version)
        })?;
        Ok((resource, capabilities.scope))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_quick_start_is_one_deployment_of_three_with_its_class_and_secret() {
        let manifest = read(&[]).expect("sound");
        let kinds: Vec<&str> = manifest.objects.iter().map(|object| object.kind.as_str()).collect();
        assert_eq!(kinds, ["Secret", "MachineClass", "MachineDeployment"]);
        assert_eq!(manifest.awaited(), [Awaited::Deployment("default".to_owned(), "workers".to_owned())]);
        let spec = &manifest.objects[2].body["spec"];
        assert_eq!(spec["replicas"], 3);
        assert_eq!(spec["strategy"]["rollingUpdate"]["maxSurge"], 1);
        assert_eq!(spec["strategy"]["rollingUpdate"]["maxUnavailable"], 0);
    }

    fn error_of(text: &str) -> String {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(text.as_bytes()).expect("written");
        let name = file.path().display().to_string();
        let error = read(&[file.path().to_owned()]).expect_err(text);
        format!("{error:#}").replace(&name, "FILE")
    }

    #[test]
    fn what_is_wrong_with_a_manifest_is_said_with_file_document_and_field() {
        let class = "apiVersion: machine.sapcloud.io/v1alpha1\nkind: MachineClass\nmetadata: {name: a}\nproviderSpec: {}\n";
        for (text, parts) in [
            ("a: [", &["manifest FILE: line 1: this is not YAML"][..]),
            ("", &["manifest FILE: expected at least one object, found none"]),
            (&format!("{class}provoder: sim\n"), &["manifest FILE: document 1: MachineClass a: provoder: "]),
            (&format!("{class}---\nkind: Secret\n"), &["manifest FILE: document 2: apiVersion: is missing"]),
            (
                &format!("{class}---\n{}", class.replace("{name: a}", "{name: b, namespace: other}")),
                &["one namespace", "found default and other"],
            ),
        ] {
            let error = error_of(text);
            for part in parts {
                assert!(error.contains(part), "{text}\n{error}");
            }
        }
    }

    #[test]
    fn a_manifest_that_is_not_there_is_named() {
        let error = format!("{:#}", read(&["no/such/file.yaml".into()]).expect_err("not there"));
        assert!(error.starts_with("manifest no/such/file.yaml: cannot be read: "), "{error}");
    }
}
