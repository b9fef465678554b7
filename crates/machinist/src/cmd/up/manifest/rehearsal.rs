//! Rehearsal: applies a manifest to a temporary API server without controllers.
//!
//! A manifest may need objects of an earlier run. The temporary server therefore gets the stored
//! namespaces and definitions, and the stored objects that the manifest names.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::discovery::Scope;
use kube::{Api, Client, ResourceExt as _};
use machinist_apiserver::{Config, Identity, LoadError, Object, Server};
use machinist_kube::{ClientOptions, layer_client};

use super::{Kinds, Manifest, apply};
use crate::cmd::up::cluster::install_crds;
use crate::cmd::up::writes::UP;
use crate::documents::Written;

/// Resources that other objects need, in this order: the namespace of an object, and the definition
/// of its kind.
const FOUNDATIONS: [(&str, &str); 2] =
    [("namespaces", "Namespace"), ("customresourcedefinitions", "CustomResourceDefinition")];

/// Returns whether an object is being deleted. Applying a manifest waits for that.
fn is_leaving(object: &Object) -> bool {
    object.value().pointer("/metadata/deletionTimestamp").is_some()
}

/// Loads a stored object into the temporary server, unless the server has already created that
/// object.
fn lay(server: &Server, object: &Object) -> anyhow::Result<()> {
    match server.load(object.whole()) {
        Ok(_) | Err(LoadError::Taken { .. }) => Ok(()),
        Err(error @ LoadError::Field { .. }) => {
            Err(anyhow::Error::new(error).context(format!("{} of the data directory", object.name())))
        }
    }
}

impl Manifest {
    /// Checks that an API server accepts all objects in their order. `kept` has the state of an
    /// earlier run, if any.
    ///
    /// # Errors
    /// If an object is rejected. The error names the manifest, the document, the object and the
    /// reason.
    pub(in crate::cmd::up) async fn rehearse(&self, kept: Option<&Server>) -> anyhow::Result<()> {
        let server = Server::new(Config::default());
        for (resource, kind) in FOUNDATIONS {
            for object in kept.iter().flat_map(|kept| kept.snapshot(resource)) {
                let is_it = |document: &Written| {
                    document.object.kind == kind && document.object.name == object.name()
                };
                let is_recreated = is_leaving(&object) && self.objects.iter().any(is_it);
                if !is_recreated {
                    lay(&server, &object)?;
                }
            }
        }
        let client = layer_client(server.service_as(Identity::admin()), &ClientOptions::new(UP));
        install_crds(&client).await?;
        let mut kinds = Kinds::new(client.clone());
        for document in &self.objects {
            let (resource, scope) = kinds.of(document).await?;
            if scope == Scope::Namespaced {
                self.has_namespace(document, &client).await?;
            }
            let namespace = if scope == Scope::Namespaced { document.namespace() } else { "" };
            let same = |object: &Arc<Object>| {
                object.name() == document.object.name && object.namespace() == namespace
            };
            let there = kept.and_then(|kept| {
                let resource = kept.resource(&resource.group, &resource.plural)?;
                kept.snapshot(&resource).into_iter().find(same)
            });
            if let Some(object) = there.filter(|object| !is_leaving(object)) {
                lay(&server, &object)?;
            }
            apply(&mut kinds, document).await?;
        }
        Ok(())
    }

    async fn has_namespace(&self, document: &Written, client: &Client) -> anyhow::Result<()> {
        let present = Api::<Namespace>::all(client.clone()).list(&Default::default()).await?;
        let present: BTreeSet<String> = present.iter().map(|namespace| namespace.name_any()).collect();
        let namespace = document.namespace();
        if present.contains(namespace) {
            return Ok(());
        }
        let title = document.title();
        let makes_it = |other: &&Written| other.object.kind == "Namespace" && other.object.name == namespace;
        match self.objects.iter().find(makes_it) {
            Some(later) => anyhow::bail!(
                "{title}: metadata.namespace: Namespace {namespace} must come before this object. Move {}, {} up",
                later.source,
                later.object.place
            ),
            None => anyhow::bail!(
                "{title}: metadata.namespace: expected an existing namespace ({}) or one that the manifest creates before this object, got {namespace}",
                present.into_iter().collect::<Vec<_>>().join(", ")
            ),
        }
    }
}
