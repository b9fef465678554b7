//! How many Pods the controllers of some Pods want.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::{Client, Error};

use crate::facts::pod::{Controller, PodFacts};
use crate::kinds::Kinds;

/// Asks controllers for their scale.
pub(crate) struct Scales {
    client: Client,
    kinds: Arc<Kinds>,
}

impl Scales {
    pub(crate) fn new(client: Client, kinds: Arc<Kinds>) -> Self {
        Self { client, kinds }
    }

    /// The sum over all controllers of these Pods. A controller whose kind has no scale, or is not served here, wants as
    /// many Pods as it has. Pods without a controller are wanted by nobody, so they do not count.
    pub(crate) async fn wanted(
        &self,
        namespace: &str,
        pods: &[(String, Arc<PodFacts>)],
    ) -> Result<i32, Error> {
        let mut pods_of: BTreeMap<&Controller, i32> = BTreeMap::new();
        for controller in pods.iter().filter_map(|(_, pod)| pod.controller.as_ref()) {
            *pods_of.entry(controller).or_default() += 1;
        }
        // Several sets may belong to one deployment, which wants what it wants only once.
        let mut wanted: BTreeMap<String, i32> = BTreeMap::new();
        for (controller, pods) in pods_of {
            let controller =
                self.deployment_of(namespace, controller).await?.unwrap_or_else(|| controller.clone());
            match self.scale_of(namespace, &controller).await? {
                Some(scale) => wanted.insert(controller.uid, scale),
                None => {
                    let others = wanted.get(&controller.uid).copied().unwrap_or_default();
                    wanted.insert(controller.uid, others.saturating_add(pods))
                }
            };
        }
        Ok(wanted.into_values().fold(0, i32::saturating_add))
    }

    /// The controller of a ReplicaSet, where there is one.
    async fn deployment_of(
        &self,
        namespace: &str,
        controller: &Controller,
    ) -> Result<Option<Controller>, Error> {
        let is_set = controller.kind == "ReplicaSet" && controller.api_version.starts_with("apps/");
        if !is_set {
            return Ok(None);
        }
        let Some(resource) = self.kinds.resource(&controller.api_version, &controller.kind).await? else {
            return Ok(None);
        };
        let set = resource.api(&self.client, namespace).get_metadata_opt(&controller.name).await?;
        let set = set.filter(|set| set.metadata.uid.as_deref() == Some(&controller.uid));
        Ok(set.and_then(|set| Controller::of(set.metadata.owner_references.as_deref())))
    }

    /// What this controller wants; `None`: it does not say.
    async fn scale_of(&self, namespace: &str, controller: &Controller) -> Result<Option<i32>, Error> {
        let Some(resource) = self.kinds.resource(&controller.api_version, &controller.kind).await? else {
            return Ok(None);
        };
        match resource.api(&self.client, namespace).get_scale(&controller.name).await {
            Ok(scale) if scale.metadata.uid.as_deref() == Some(&controller.uid) => {
                Ok(Some(scale.spec.and_then(|spec| spec.replicas).unwrap_or_default()))
            }
            Ok(_) => Ok(None),
            Err(Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }
}
