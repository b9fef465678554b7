//! The label `force-deletion` while the API server of the Nodes is gone for good.

use std::time::Duration;

use anyhow::{Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::proxy::Fault;
use crate::world::{World, name_of};

/// The time that a user waits at most.
const GONE_WITHIN: Duration = Duration::from_secs(60);

/// Both controllers start while the API server of the Nodes is gone. A Machine with the label
/// `force-deletion` is deleted with its instance, and no other.
pub(crate) async fn without_target(world: &mut World) -> Result<()> {
    let live = world.live().await?;
    let deleted = world.deleted().await?;
    ensure!(!live.is_empty(), "the scenario needs a Machine");
    world.kill_controllers()?;
    world.proxy.set(Some(Fault::Refuse))?;
    world.start_controllers()?;
    let name = name_of(&live[0]);
    let label = json!({"metadata": {"labels": {"force-deletion": "True"}}});
    world.machines().patch(&name, &PatchParams::default(), &Patch::Merge(label)).await?;
    world.machines().delete(&name, &DeleteParams::default()).await?;
    world
        .until_within(GONE_WITHIN, "the Machine is deleted", async |w| {
            Ok(w.machines().get_opt(&name).await?.is_none())
        })
        .await?;
    ensure!(world.deleted().await? == deleted + 1, "its instance is alive, or others were deleted, too");
    ensure!(world.live().await?.len() == live.len() - 1, "other Machines were deleted, too");
    world.proxy.set(None)
}
