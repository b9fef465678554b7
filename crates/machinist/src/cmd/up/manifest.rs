//! The manifests that `up` applies and deletes.
//!
//! They are checked in two steps before the cluster starts: as texts, and by applying them to a
//! temporary API server without clients. The API server of the cluster would reject the same
//! objects.

mod rehearsal;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client};
use machinist_api::MachineClass;
use machinist_api::manifest::ManifestObject;
use machinist_api::mcm::API_VERSION;
use machinist_apiserver::Server;

use super::view::{Awaited, Identity};
use crate::clouds::UpCloud;
use crate::documents::{self, DEFAULT_NAMESPACE, Written, refusal};

/// Kinds that create machines, in the order of deletion. Owners come first, or they would replace
/// their deleted objects.
const MACHINE_KINDS: [&str; 3] = ["MachineDeployment", "MachineSet", "Machine"];

/// All objects of all manifests, in their order.
#[derive(Debug)]
pub(super) struct Manifest {
    objects: Vec<Written>,
    /// Namespace of the machine objects.
    pub namespace: String,
}

/// Reads and checks manifests, or the quick start if there are none. `variables` are replaced by
/// their values in every text; a shell script of user data may have other variables.
///
/// # Errors
/// If an object is invalid. The error names the file, the document and the field.
pub(super) fn read(
    cloud: UpCloud,
    files: &[PathBuf],
    variables: &[(&str, String)],
) -> anyhow::Result<Manifest> {
    let replaced = |text: &str| {
        variables.iter().fold(text.to_owned(), |text, (variable, value)| text.replace(variable, value))
    };
    let mut objects = Vec::new();
    if files.is_empty() {
        let quick_start = replaced(cloud.run().quick_start);
        documents::append(&mut objects, "the built-in quick start", &quick_start)?;
    }
    for file in files {
        let source = format!("manifest {}", file.display());
        documents::append_file(&mut objects, &source, file, replaced)?;
    }
    documents::each_once(&objects)?;
    for document in &objects {
        if let Some(invalid) = document.object.invalid_fields().first() {
            bail!("{}: {invalid}", document.title());
        }
        if let Some(class) = document.object.decode::<MachineClass>() {
            check_provider_spec(cloud, &class).map_err(|why| anyhow!("{}: {why}", document.title()))?;
        }
    }
    let namespace = machine_namespace(&objects)?;
    Ok(Manifest { objects, namespace })
}

/// Checks the providerSpec of a class for the cloud of this run.
fn check_provider_spec(cloud: UpCloud, class: &MachineClass) -> Result<(), String> {
    let cloud = cloud.cloud();
    match class.provider.as_deref() {
        Some(other) if other != cloud.name => Ok(()),
        Some(_) | None => (cloud.check)(&class.provider_spec).map_err(|error| error.message),
    }
}

/// Returns the namespace of all machine objects. Controllers serve only one namespace.
fn machine_namespace(objects: &[Written]) -> anyhow::Result<String> {
    let mut machine_objects = objects.iter().filter(|document| document.object.api_version == API_VERSION);
    let Some(first) = machine_objects.next() else { return Ok(DEFAULT_NAMESPACE.to_owned()) };
    let namespace = first.namespace();
    match machine_objects.find(|other| other.namespace() != namespace) {
        None => Ok(namespace.to_owned()),
        Some(other) => bail!(
            "{}: metadata.namespace: all machine objects must be in one namespace, because the controllers serve only one; found \
             {namespace} before and {} here",
            other.title(),
            other.namespace(),
        ),
    }
}

fn is_of(document: &Written, kind: &str) -> bool {
    document.object.api_version == API_VERSION && document.object.kind == kind
}

impl Manifest {
    /// Creates a manifest of existing objects.
    pub(super) fn of(objects: Vec<ManifestObject>, namespace: &str) -> Self {
        let objects =
            objects.into_iter().map(|object| Written { source: "the kept state".into(), object }).collect();
        Self { objects, namespace: namespace.to_owned() }
    }

    /// Returns the objects that create machines.
    pub(super) fn awaited(&self) -> Vec<Awaited> {
        self.awaited_among(|_| true)
    }

    /// Returns the objects whose machines must run, without those that are already being deleted.
    pub(super) fn awaited_to_run(&self) -> Vec<Awaited> {
        self.awaited_among(|document| document.object.body["metadata"]["deletionTimestamp"].is_null())
    }

    fn awaited_among(&self, is_wanted: impl Fn(&Written) -> bool) -> Vec<Awaited> {
        let ours = self
            .objects
            .iter()
            .filter(|document| document.object.api_version == API_VERSION && is_wanted(document));
        ours.filter_map(|document| {
            Awaited::of(&document.object.kind, document.namespace(), &document.object.name)
        })
        .collect()
    }

    /// Returns the objects in the order in which they are applied.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Written> {
        self.objects.iter()
    }

    /// Returns the objects whose deletion completes. Namespaces are left out: no controller empties
    /// them, so they stay Terminating until the cluster ends.
    ///
    /// # Errors
    /// If the API server no longer serves a kind.
    pub(super) async fn identities(
        &self,
        kinds: &mut Kinds,
        server: &Server,
    ) -> anyhow::Result<Vec<Identity>> {
        let mut identities = Vec::new();
        let is_namespace =
            |document: &&Written| document.object.api_version == "v1" && document.object.kind == "Namespace";
        for document in self.objects.iter().filter(|document| !is_namespace(document)) {
            // If a kind is no longer served, its objects are deleted.
            identities.extend(identity(document, kinds, server).await?);
        }
        Ok(identities)
    }

    /// Deletes the objects that create machines.
    ///
    /// # Errors
    /// If the API server rejects a deletion. The error names the object and the reason.
    pub(super) async fn delete_machines(&self, kinds: &mut Kinds) -> anyhow::Result<()> {
        for kind in MACHINE_KINDS {
            for document in self.objects.iter().filter(|document| is_of(document, kind)) {
                delete(kinds, document).await?;
            }
        }
        Ok(())
    }

    /// Deletes the other objects in reverse order. Finalizers keep classes and Secrets until no
    /// machine needs them.
    ///
    /// # Errors
    /// If the API server rejects a deletion. The error names the object and the reason.
    pub(super) async fn delete_rest(&self, kinds: &mut Kinds) -> anyhow::Result<()> {
        let is_rest = |document: &&Written| !MACHINE_KINDS.iter().any(|kind| is_of(document, kind));
        for document in self.objects.iter().rev().filter(is_rest) {
            delete(kinds, document).await?;
        }
        Ok(())
    }
}

/// Result of applying an object of a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Applied {
    /// The object did not exist and was created.
    Created,
    /// The object was merged into the existing one.
    Updated,
    /// The existing object is being deleted, so it was not updated.
    Leaving,
}

/// Returns the identity of an object in the commit log, if its kind is served.
///
/// # Errors
/// If the kind cannot be discovered.
pub(super) async fn identity(
    document: &Written,
    kinds: &mut Kinds,
    server: &Server,
) -> anyhow::Result<Option<Identity>> {
    let (resource, scope) = kinds.of(document).await?;
    let namespace = match scope {
        Scope::Cluster => String::new(),
        Scope::Namespaced => document.namespace().to_owned(),
    };
    let resource = server.resource(&resource.group, &resource.plural);
    Ok(resource.map(|resource| Identity { resource, namespace, name: document.object.name.clone() }))
}

/// Creates an object or merges it into the existing one.
///
/// # Errors
/// If the API server rejects the object. The error names the object and the reason.
pub(super) async fn apply(kinds: &mut Kinds, document: &Written) -> anyhow::Result<Applied> {
    let api = kinds.api_of(document).await?;
    let body: DynamicObject = serde_json::from_value(document.object.body.clone())
        .with_context(|| format!("{}: the document is not a Kubernetes object", document.title()))?;
    match api.create(&PostParams::default(), &body).await {
        Ok(_) => Ok(Applied::Created),
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
            let there = api.get_opt(&document.object.name).await.map_err(|error| refusal(document, error))?;
            // An object that no longer exists was being deleted.
            if there.is_none_or(|there| there.metadata.deletion_timestamp.is_some()) {
                return Ok(Applied::Leaving);
            }
            let merge = Patch::Merge(&document.object.body);
            let merged = api.patch(&document.object.name, &PatchParams::default(), &merge).await;
            merged.map(|_| Applied::Updated).map_err(|error| refusal(document, error))
        }
        Err(error) => Err(refusal(document, error)),
    }
}

async fn delete(kinds: &mut Kinds, document: &Written) -> anyhow::Result<()> {
    let api = kinds.api_of(document).await?;
    match api.delete(&document.object.name, &DeleteParams::background()).await {
        Ok(_) => Ok(()),
        // Another client has deleted the object.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(refusal(document, error)),
    }
}

/// Resources of kinds, discovered once per kind.
pub(super) struct Kinds {
    client: Client,
    known: BTreeMap<(String, String), (ApiResource, Scope)>,
}

impl Kinds {
    /// Creates an empty cache.
    pub(super) fn new(client: Client) -> Self {
        Self { client, known: BTreeMap::new() }
    }

    async fn of(&mut self, document: &Written) -> anyhow::Result<(ApiResource, Scope)> {
        let key = (document.object.api_version.clone(), document.object.kind.clone());
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let found = self.discover(document).await?;
        self.known.insert(key, found.clone());
        Ok(found)
    }

    async fn api_of(&mut self, document: &Written) -> anyhow::Result<Api<DynamicObject>> {
        let (resource, scope) = self.of(document).await?;
        Ok(match scope {
            Scope::Cluster => Api::all_with(self.client.clone(), &resource),
            Scope::Namespaced => Api::namespaced_with(self.client.clone(), document.namespace(), &resource),
        })
    }

    async fn discover(&self, document: &Written) -> anyhow::Result<(ApiResource, Scope)> {
        let ManifestObject { api_version, kind, .. } = &document.object;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let is_unknown = |error: &kube::Error| match error {
            kube::Error::Discovery(_) => true,
            // The API server does not serve this group and version.
            kube::Error::Api(status) => status.code == 404,
            _ => false,
        };
        match pinned_kind(&self.client, &gvk).await {
            Ok((resource, capabilities)) => Ok((resource, capabilities.scope)),
            Err(error) if is_unknown(&error) => bail!(
                "{}: kind: the API server has no kind {kind} in {api_version}. Use a built-in kind, or add its CustomResourceDefinition \
                 to the manifest before this object",
                document.title()
            ),
            Err(error) => Err(refusal(document, error)),
        }
    }
}

#[cfg(test)]
mod tests;
