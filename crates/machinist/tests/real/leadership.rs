//! Two processes and one Lease.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;

use crate::world::World;

/// A successor deletes nothing until the last calls of its predecessor have ended: after the Lease
/// expired, that takes up to a minute.
const SUCCEEDED_WITHIN: Duration = Duration::from_secs(120);

/// The leader is killed while it collects evidence; its successor deletes the Node.
pub(crate) async fn a_killed_leader_is_replaced(world: &mut World) -> Result<()> {
    let id = world.server("orphan")?;
    world.join("orphan", None).await?;
    world
        .until("the Node is initialised", async |w| {
            Ok(!crate::nodes::provider_id(&w.node("orphan").await?).is_empty())
        })
        .await?;
    let deleted_before = world.events("DeletingNode").await?.len();
    let second = world.start_another("second")?;
    let first = holder(world).await?;
    world.standin.delete_server(id).map_err(anyhow::Error::msg)?;
    world.set_ready("orphan", false).await?;
    world.program.process.kill()?;
    world.program = second;
    world
        .until_within(SUCCEEDED_WITHIN, "the Node is deleted", async |w| {
            Ok(w.nodes().get_opt("orphan").await?.is_none())
        })
        .await?;
    let now = holder(world).await?;
    ensure!(now.is_some() && now != first, "the Lease was held by {first:?} and is held by {now:?}");
    world
        .until("one Event reports it", async |w| {
            Ok(w.events("DeletingNode").await?.len() == deleted_before + 1)
        })
        .await?;
    world.ensure_node("worker-1").await?;
    world.ensure_node("worker-2").await
}

/// SIGTERM: the process ends by itself, and the next one need not wait for the Lease to expire.
pub(crate) async fn a_stopped_leader_releases_its_lease(world: &mut World) -> Result<()> {
    let status = world.program.stop()?;
    ensure!(status.success(), "{status}");
    let holder = holder(world).await?;
    ensure!(holder.is_none(), "{holder:?} still holds the Lease");
    world.program = world.start_another("third")?;
    world.after_lists(1).await
}

async fn holder(world: &World) -> Result<Option<String>> {
    let leases: Api<Lease> = Api::namespaced(world.user.clone(), "kube-system");
    let lease = leases.get("cloud-controller-manager").await?;
    Ok(lease.spec.and_then(|spec| spec.holder_identity).filter(|holder| !holder.is_empty()))
}
