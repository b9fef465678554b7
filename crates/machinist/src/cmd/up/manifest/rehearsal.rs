//! Applying a manifest to an API server without controllers, which is gone afterwards.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Namespace;
use kube::discovery::Scope;
use kube::{Api, Client, ResourceExt as _};
use machinist_apiserver::{Config, Identity, Server};
use machinist_kube::{ClientOptions, layer_client};

use super::{Kinds, Manifest, Written, apply};
use crate::cmd::up::cluster::install_crds;
use crate::cmd::up::writes::UP;

impl Manifest {
    /// Finds out whether an API server would take all objects, in their order.
    ///
    /// # Errors
    /// Names the manifest, the document and the object, and what was expected of it.
    pub(in crate::cmd::up) async fn rehearse(&self) -> anyhow::Result<()> {
        let server = Server::new(Config::default());
        let client = layer_client(server.service_as(Identity::admin()), &ClientOptions::new(UP));
        install_crds(&client).await?;
        let mut kinds = Kinds::new(client.clone());
        for it in &self.objects {
            let (_, scope) = kinds.of(it).await?;
            if scope == Scope::Namespaced {
                self.has_namespace(it, &client).await?;
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
                later.manifest,
                later.object.place
            ),
            None => anyhow::bail!(
                "{title}: metadata.namespace: expected one that exists ({}) or that a Namespace before it creates, got {namespace}",
                present.into_iter().collect::<Vec<_>>().join(", ")
            ),
        }
    }
}
