//! Sums up how many Pods the controllers of some Pods want.
//!
//! | controller of the Pod | wanted Pods |
//! |---|---|
//! | a ReplicaSet of an existing Deployment | the Deployment's replicas, once for all of its sets |
//! | any other kind with a scale subresource | the replicas of its scale |
//! | none | none: the Pod does not count |
//! | deleted, or of a kind that is not served or has no scale | unknown, and so is the sum |
//!
//! Deliberately absent: a watch on the controllers. As with kube-controller-manager, a changed
//! scale changes Pods, and each changed Pod recomputes its budgets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::{Client, Error as ReadError};
use thiserror::Error;

use crate::facts::pod::{OwningController, PodFacts};
use crate::kinds::{Kinds, Resource};

/// The reason why the number of wanted Pods is unknown, in the words of kube-controller-manager:
/// budgets quote them.
#[derive(Debug, Error)]
pub(crate) enum ScaleError {
    #[error("found no controllers for pod {pod:?}")]
    NoController { pod: String },
    #[error("no matches for kind {kind:?} in version {api_version:?}")]
    NotServed { kind: String, api_version: String },
    #[error("{resource} does not implement the scale subresource")]
    NoScale { resource: String },
    /// The read failed.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Reads the scale of controllers.
pub(crate) struct Scales {
    client: Client,
    kinds: Arc<Kinds>,
}

impl Scales {
    pub(crate) fn new(client: Client, kinds: Arc<Kinds>) -> Self {
        Self { client, kinds }
    }

    /// Returns the sum over all controllers of these Pods.
    ///
    /// # Errors
    /// If the replica count of one controller is unknown. A sum without it would be too small, and
    /// allow too many evictions.
    pub(crate) async fn wanted(
        &self,
        namespace: &str,
        pods: &[(String, Arc<PodFacts>)],
    ) -> Result<i32, ScaleError> {
        let mut asked = BTreeSet::new();
        // By UID, because several sets may belong to one Deployment, and its replicas count only
        // once.
        let mut wanted = BTreeMap::new();
        for (pod, facts) in pods {
            let Some(controller) = facts.controller.as_ref().filter(|owner| asked.insert(*owner)) else {
                continue;
            };
            let scale = self.scale_for(namespace, controller).await?;
            let (uid, replicas) = scale.ok_or_else(|| ScaleError::NoController { pod: pod.clone() })?;
            wanted.insert(uid, replicas);
        }
        Ok(wanted.into_values().fold(0, i32::saturating_add))
    }

    /// Returns the UID and the replica count of the object that controls the number of Pods; `None`
    /// if it does not exist.
    async fn scale_for(
        &self,
        namespace: &str,
        controller: &OwningController,
    ) -> Result<Option<(String, i32)>, ScaleError> {
        if let Some(deployment) = self.deployment_of(namespace, controller).await?
            && let Some(scale) = self.scale_of(namespace, &deployment).await?
        {
            return Ok(Some(scale));
        }
        self.scale_of(namespace, controller).await
    }

    /// Returns the Deployment that owns the ReplicaSet.
    async fn deployment_of(
        &self,
        namespace: &str,
        controller: &OwningController,
    ) -> Result<Option<OwningController>, ScaleError> {
        if BuiltIn::of(controller) != Some(BuiltIn::ReplicaSet) {
            return Ok(None);
        }
        let resource = self.resource(controller).await?;
        let set = resource.api(&self.client, namespace).get_metadata_opt(&controller.name).await?;
        let set = set.filter(|set| set.metadata.uid.as_deref() == Some(&controller.uid));
        let above = set.and_then(|set| OwningController::of(set.metadata.owner_references.as_deref()));
        Ok(above.filter(|above| BuiltIn::of(above) == Some(BuiltIn::Deployment)))
    }

    async fn scale_of(
        &self,
        namespace: &str,
        controller: &OwningController,
    ) -> Result<Option<(String, i32)>, ScaleError> {
        let resource = self.resource(controller).await?;
        match resource.api(&self.client, namespace).get_scale(&controller.name).await {
            Ok(scale) if scale.metadata.uid.as_deref() == Some(&controller.uid) => {
                let replicas = scale.spec.and_then(|spec| spec.replicas).unwrap_or_default();
                Ok(Some((controller.uid.clone(), replicas)))
            }
            // Another object has the name now.
            Ok(_) => Ok(None),
            // Either the object or the scale subresource does not exist.
            Err(ReadError::Api(status)) if status.code == 404 => {
                if self.has_scale(&resource).await? {
                    Ok(None)
                } else {
                    Err(ScaleError::NoScale { resource: group_resource(&resource) })
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn resource(&self, controller: &OwningController) -> Result<Resource, ScaleError> {
        let api_version = match BuiltIn::of(controller) {
            // Old Pods may name versions that are no longer served.
            Some(BuiltIn::ReplicaSet | BuiltIn::Deployment | BuiltIn::StatefulSet) => "apps/v1",
            None => &controller.api_version,
        };
        let resource = self.kinds.resource(api_version, &controller.kind).await?;
        resource.ok_or_else(|| ScaleError::NotServed {
            kind: controller.kind.clone(),
            api_version: controller.api_version.clone(),
        })
    }

    async fn has_scale(&self, resource: &Resource) -> Result<bool, ReadError> {
        let api = &resource.api;
        let served = match api.group.as_str() {
            "" => self.client.list_core_api_resources(&api.version).await?,
            _ => self.client.list_api_group_resources(&api.api_version).await?,
        };
        let name = format!("{}/scale", api.plural);
        Ok(served.resources.iter().any(|resource| resource.name == name && resource.kind == "Scale"))
    }
}

/// Controllers that are identified by their group, independent of the version in a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BuiltIn {
    Deployment,
    ReplicaSet,
    StatefulSet,
}

impl BuiltIn {
    fn of(controller: &OwningController) -> Option<Self> {
        let (group, _version) = controller.api_version.split_once('/')?;
        match (group, controller.kind.as_str()) {
            ("apps" | "extensions", "Deployment") => Some(Self::Deployment),
            ("apps" | "extensions", "ReplicaSet") => Some(Self::ReplicaSet),
            ("apps", "StatefulSet") => Some(Self::StatefulSet),
            _ => None,
        }
    }
}

/// Formats a resource as kube-controller-manager does.
fn group_resource(resource: &Resource) -> String {
    match resource.api.group.as_str() {
        "" => resource.api.plural.clone(),
        group => format!("{}.{group}", resource.api.plural),
    }
}
