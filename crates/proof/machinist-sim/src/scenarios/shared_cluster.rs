//! A scenario with another installation in the cluster of the Nodes.

use machinist_api::constants::finalizers;

use super::life::start_with;
use super::orphans::{COLLECTED_WITHIN, create_for_another_namespace, have_workers, instance_of, workers};
use crate::sight::SeenObject;
use crate::world::{MachineView, MachineWorld, Outcome, ScenarioError, ensure};

const WORKERS: u32 = 2;
/// The Nodes of the other installation: one stays, and one is being deleted.
const STAYS: &str = "theirs-1";
const LEAVES: &str = "theirs-2";
/// The Node of a user, which no installation has.
const BY_HAND: &str = "by-hand";
/// The id of a bootstrap token of the other installation, whose Machine is not in this one.
const TOKEN: &str = "theirs";

/// Another installation has the same names, and uses the same account and the same cluster of the
/// Nodes. Its instance, its Nodes and its token stay as they are, also a Node that is being
/// deleted. The Nodes that no Machine has are annotated: the Node of a Machine that a user removed,
/// and the Node of a user.
pub async fn shared_cluster(world: &dyn MachineWorld) -> Outcome {
    let user = start_with(world, WORKERS).await?;
    let view = world.look().await?;
    let ours = workers(&view);
    let (lost, lost_node) = ours.first().ok_or(ScenarioError::new("expected a worker that runs"))?;
    let (orphan, lost_node) = (instance_of(&view, lost)?, lost_node.as_str());
    let theirs = create_for_another_namespace(world).await?;
    world.begin("another installation deletes a Node, and a user removes a Machine despite its finalizers");
    user.create_node_of_another(STAYS, Some(theirs.id.as_str())).await?;
    user.create_node_of_another(LEAVES, None).await?;
    user.create_token_of_another(TOKEN).await?;
    user.create_foreign_node(BY_HAND).await?;
    user.delete_node(LEAVES).await?;
    user.erase_machine(lost).await?;
    world.until("the lost Machine to be replaced", |view| have_workers(view, WORKERS)).await?;
    tokio::time::sleep(COLLECTED_WITHIN).await;
    let are_annotated = |view: &MachineView| {
        [BY_HAND, lost_node].into_iter().try_for_each(|name| match view.node(name) {
            Some(node) if node.is_not_managed() => Ok(()),
            _ => Err(format!("Node {name} is not annotated")),
        })
    };
    let view = world.until("the Nodes without a Machine to be annotated", are_annotated).await?;
    for name in [STAYS, LEAVES] {
        let is_kept = |node: SeenObject<'_>| node.has_finalizer(finalizers::NODE) && !node.is_not_managed();
        ensure(view.node(name).is_some_and(is_kept), || format!("Node {name} was changed"))?;
    }
    let is_left = view.node(lost_node).is_some_and(|node| node.has_finalizer(finalizers::NODE));
    ensure(!is_left, || format!("Node {lost_node} still has our finalizer"))?;
    ensure(view.tokens.iter().any(|token| token.seen().name().ends_with(TOKEN)), || {
        "the token of another installation was deleted".to_owned()
    })?;
    ensure(view.ledger.alive().any(|entry| entry.id == theirs.id), || {
        "the instance of another installation was deleted".to_owned()
    })?;
    // The other installation and the user delete what is theirs.
    user.delete_token_of_another(TOKEN).await?;
    for name in [STAYS, LEAVES] {
        user.release_node(name).await?;
    }
    for name in [STAYS, BY_HAND, lost_node] {
        user.delete_node(name).await?;
    }
    for instance in [theirs, orphan] {
        world.cloud().kill(&instance.id).map_err(|refusal| ScenarioError(refusal.to_string()))?;
    }
    Ok(())
}
