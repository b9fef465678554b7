//! Applying a manifest to an API server without controllers, which is gone afterwards.
//!
//! Where an earlier run left something, a manifest builds on that: the server of the rehearsal is given the namespaces and definitions that
//! there are, and of other objects those that the manifest names.

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

/// What other objects need to be there at all, in this order: a namespace for those in it, a definition for those of its kind.
const FOUNDATIONS: [(&str, &str); 2] =
    [("namespaces", "Namespace"), ("customresourcedefinitions", "CustomResourceDefinition")];

/// Whether an object is on its way out: a manifest that has it waits until it is gone.
fn is_leaving(object: &Object) -> bool {
    object.value().pointer("/metadata/deletionTimestamp").is_some()
}

/// Puts a kept object into the server of the rehearsal, unless it made the same by itself.
fn lay(server: &Server, object: &Object) -> anyhow::Result<()> {
    match server.load(object.whole()) {
        Ok(_) | Err(LoadError::Taken { .. }) => Ok(()),
        Err(error @ LoadError::Field { .. }) => {
            Err(anyhow::Error::new(error).context(format!("{} of the data folder", object.name())))
        }
    }
}

impl Manifest {
    /// Finds out whether an API server would take all objects, in their order; one with what is `kept` from an earlier run, if
    /// anything is.
    ///
    /// # Errors
    /// Names the manifest, the document and the object, and what was expected of it.
    pub(in crate::cmd::up) async fn rehearse(&self, kept: Option<&Server>) -> anyhow::Result<()> {
        let server = Server::new(Config::default());
        for (resource, kind) in FOUNDATIONS {
            for object in kept.iter().flat_map(|kept| kept.snapshot(resource)) {
                let is_it = |it: &Written| it.object.kind == kind && it.object.name == object.name();
                let is_made_anew = is_leaving(&object) && self.objects.iter().any(is_it);
                if !is_made_anew {
                    lay(&server, &object)?;
                }
            }
        }
        let client = layer_client(server.service_as(Identity::admin()), &ClientOptions::new(UP));
        install_crds(&client).await?;
        let mut kinds = Kinds::new(client.clone());
        for it in &self.objects {
            let (resource, scope) = kinds.of(it).await?;
            if scope == Scope::Namespaced {
                self.has_namespace(it, &client).await?;
            }
            let namespace = if scope == Scope::Namespaced { it.namespace() } else { "" };
            let same =
                |object: &Arc<Object>| object.name() == it.object.name && object.namespace() == namespace;
            let there = kept.and_then(|kept| {
                let resource = kept.resource(&resource.group, &resource.plural)?;
                kept.snapshot(&resource).into_iter().find(same)
            });
            if let Some(object) = there.filter(|object| !is_leaving(object)) {
                lay(&server, &object)?;
            }
            apply(&mut kinds, it).await?;
        }
        Ok(())
    }

    async fn has_namespace(&self, it: &Written, client: &Client) -> anyhow::Result<()> {
        let present = Api::<Namespace>::all(client.clone()).list(&Default::default()).await?;
        let present: BTreeSet<String> = present.iter().map(|namespace| namespace.name_any()).collect();
        let namespace = it.namespace();
        if present.contains(namespace) {
            return Ok(());
        }
        let title = it.title();
        let makes_it = |it: &&Written| it.object.kind == "Namespace" && it.object.name == namespace;
        match self.objects.iter().find(makes_it) {
            Some(later) => anyhow::bail!(
                "{title}: metadata.namespace: expected {namespace} to be created before; move {}, {} up",
                later.source,
                later.object.place
            ),
            None => anyhow::bail!(
                "{title}: metadata.namespace: expected one that exists ({}) or that a Namespace before it creates, got {namespace}",
                present.into_iter().collect::<Vec<_>>().join(", ")
            ),
        }
    }
}
