//! Scenarios about instances that lose their Machine.

use std::time::Duration;

use machinist_cloud_sim::{CreateRequest, LedgerEntry, Reply, Request};
use machinist_core::orphan::NAMESPACE_TAG;
use machinist_instance::{InstanceKey, NodeName};

use super::life::{settled, start_with};
use crate::sight::{CLUSTER, OTHER_NAMESPACE};
use crate::world::{MachineView, MachineWorld, Outcome, ScenarioError, ensure};

/// Number of workers. With fewer than 40 instances, one orphan is deleted per period.
const WORKERS: u32 = 4;
/// Older instances are collected if two lists show them.
pub(super) const OLD_AFTER: Duration = Duration::from_secs(30 * 60);
/// Longer than the age, the two lists, and the periods of several orphans take together.
pub(super) const COLLECTED_WITHIN: Duration = Duration::from_secs(3 * 3600);

/// A user removes Machines despite their finalizers. Two instances have no Node any longer, and are
/// collected. A third has its Node, and stays until the Node is deleted. An instance of another
/// installation of the same name stays for good.
pub async fn orphans(world: &dyn MachineWorld) -> Outcome {
    let user = start_with(world, WORKERS - 1).await?;
    let stranger = create_for_another_namespace(world).await?;
    let old = workers(&world.look().await?);
    tokio::time::sleep(OLD_AFTER).await;
    user.scale_workers(WORKERS).await?;
    let view = world.until("another worker", |view| have_workers(view, WORKERS)).await?;
    let young = workers(&view).into_iter().find(|worker| !old.contains(worker));
    let (Some(young), [kept, old, ..]) = (young, old.as_slice()) else {
        return Err(ScenarioError::new("expected three old workers and a young one"));
    };
    let ((kept, kept_node), lost) = (kept, [old, &young]);
    world.begin("the user removes three Machines despite their finalizers, and two of their Nodes");
    for (machine, node) in lost {
        user.erase_machine(machine).await?;
        user.delete_node(node).await?;
    }
    user.erase_machine(kept).await?;
    let is_gone = |name: &str| {
        let name = name.to_owned();
        move |view: &MachineView| match view.ledger.alive().find(|entry| entry.name.as_str() == name) {
            None => have_workers(view, WORKERS),
            Some(entry) => Err(format!("{} still exists", entry.id)),
        }
    };
    world.until("the lost Machines to be replaced", |view| have_workers(view, WORKERS)).await?;
    tokio::time::sleep(COLLECTED_WITHIN).await;
    for (machine, _) in lost {
        world.until("the orphans to be collected", is_gone(machine)).await?;
    }
    let exists =
        |view: &MachineView, name: &str| view.ledger.alive().any(|entry| entry.name.as_str() == name);
    let view = world.look().await?;
    ensure(exists(&view, kept), || format!("the instance of {kept} was deleted although its Node exists"))?;
    user.delete_node(kept_node).await?;
    tokio::time::sleep(COLLECTED_WITHIN).await;
    world.until("the last orphan to be collected", is_gone(kept)).await?;
    let view = world.look().await?;
    ensure(exists(&view, stranger.name.as_str()), || {
        "the instance of another installation is gone".to_owned()
    })?;
    // The other installation deletes it.
    world.cloud().kill(&stranger.id).map_err(|refusal| ScenarioError(refusal.to_string()))
}

/// A user removes a new Machine despite its finalizers, and its Node. Its instance is collected,
/// and not before it is older than the creation timeout.
pub async fn young_orphan(world: &dyn MachineWorld) -> Outcome {
    const FEW: u32 = 2;
    let user = start_with(world, FEW).await?;
    let workers = workers(&world.look().await?);
    let (lost, node) = workers.first().ok_or(ScenarioError::new("expected a worker that runs"))?;
    world.begin("the user removes a new Machine despite its finalizers, and its Node");
    user.erase_machine(lost).await?;
    user.delete_node(node).await?;
    world.until("the lost Machine to be replaced", |view| have_workers(view, FEW)).await?;
    tokio::time::sleep(OLD_AFTER).await;
    world.until("the orphan to be collected", |view| settled(view, FEW)).await?;
    Ok(())
}

/// The names of the workers that run, with their Nodes.
pub(super) fn workers(view: &MachineView) -> Vec<(String, String)> {
    view.running().map(|machine| (machine.name().to_owned(), machine.node_label().to_owned())).collect()
}

/// The instance of a Machine.
pub(super) fn instance_of(view: &MachineView, machine: &str) -> Result<LedgerEntry, ScenarioError> {
    let entry = view.ledger.alive().find(|entry| entry.name.as_str() == machine).cloned();
    entry.ok_or_else(|| ScenarioError(format!("{machine} has no instance")))
}

/// Whether all workers run. There may be more instances than workers.
pub(super) fn have_workers(view: &MachineView, wanted: u32) -> Result<(), String> {
    match view.running().count() {
        count if count == wanted as usize => Ok(()),
        count => Err(format!("{count} workers run, expected {wanted}")),
    }
}

/// Another installation with the same cluster name uses the account.
pub(super) async fn create_for_another_namespace(
    world: &dyn MachineWorld,
) -> Result<LedgerEntry, ScenarioError> {
    let name = NodeName::new("stranger").ok_or(ScenarioError::new("a Node has a name"))?;
    let request = CreateRequest {
        key: InstanceKey::new("8c1f0a52-5d0e-4c39-9a3f-000000000000"),
        name: name.clone(),
        cluster: CLUSTER.to_owned(),
        instance_type: "small".to_owned(),
        region: None,
        zone: None,
        image: None,
        boot_seconds: None,
        user_data: Default::default(),
        tags: [(NAMESPACE_TAG.to_owned(), OTHER_NAMESPACE.to_owned())].into(),
        adopt_made_since: None,
    };
    let lost = |_| ScenarioError::new("the cloud gave no answer");
    let answer = world.cloud().call(None, Request::Ensure(request)).await.map_err(lost)?;
    let reply = answer.map_err(|refusal| ScenarioError(refusal.to_string()))?;
    let Reply::Instance(instance) = reply else { return Err(ScenarioError::new("expected an instance")) };
    world.cloud().entry(&instance.id).ok_or(ScenarioError::new("the new instance is in the ledger"))
}
