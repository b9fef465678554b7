//! Deletion of owners that leaves their objects.

use std::time::Duration;

use anyhow::{Result, ensure};
use kube::api::{Api, DeleteParams, ListParams, PropagationPolicy};
use machinist_api::MachineSet;

use crate::world::{NAMESPACE, WORKERS, World};

/// Longer than a controller needs to delete the objects of a deleted owner.
const UNDISTURBED: Duration = Duration::from_secs(15);

/// `kubectl delete machinedeployment --cascade=orphan` deletes the deployment and nothing else, and
/// the same for its sets. Their Machines and instances stay.
pub(crate) async fn orphaned(world: &mut World) -> Result<()> {
    let (machines, deleted) = (world.live().await?.len(), world.deleted().await?);
    let orphan =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    world.deployments().delete(WORKERS, &orphan).await?;
    world
        .until("the deployment is deleted", async |w| Ok(w.deployments().get_opt(WORKERS).await?.is_none()))
        .await?;
    let sets = |w: &World| Api::<MachineSet>::namespaced(w.control.clone(), NAMESPACE);
    let left = sets(world).list(&ListParams::default()).await?.items;
    ensure!(!left.is_empty(), "the sets were deleted, too");
    for set in left {
        sets(world).delete(set.metadata.name.as_deref().unwrap_or_default(), &orphan).await?;
    }
    world
        .until("the sets are deleted", async |w| {
            Ok(sets(w).list(&ListParams::default()).await?.items.is_empty())
        })
        .await?;
    world
        .always(UNDISTURBED, "all Machines and instances stay", async |w| {
            Ok(w.live().await?.len() == machines && w.deleted().await? == deleted)
        })
        .await
}
