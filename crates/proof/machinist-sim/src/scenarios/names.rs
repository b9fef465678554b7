//! Scenarios in which a name is used by more than one object.

use std::time::Duration;

use machinist_cloud_sim::{Foreigner, LedgerEntry};
use machinist_instance::{NodeName, ProviderId};

use super::life::wait_for_long_faults;
use crate::world::{MachineView, MachineWorld, Outcome, ScenarioError, User, ensure};

const LONE: &str = "lone";
/// A Machine whose objects are erased by hand.
const ERASED: &str = "erased";

/// A Machine without a set is deleted, and created again with the same name as soon as it is
/// deleted.
pub async fn same_name_again(world: &dyn MachineWorld) -> Outcome {
    let user = User::of(world);
    user.create_class("c").await?;
    user.create_machine(LONE).await?;
    let first = world.until("the Machine to run", |view| runs(view, LONE, None)).await?;
    let first = first.machine(LONE).map(|machine| machine.uid().to_owned());
    world.begin("the user deletes a Machine, and makes it again under its name");
    wait_for_long_faults(world).await;
    user.delete_machine(LONE).await?;
    let gone = |view: &MachineView| match view.machine(LONE) {
        None => Ok(()),
        Some(machine) => Err(format!("the Machine has phase {:?}", machine.phase())),
    };
    world.until("the Machine to be deleted", gone).await?;
    user.create_machine(LONE).await?;
    world.until("the new Machine to run", |view| runs(view, LONE, first.as_deref())).await?;
    wait_for_long_faults(world).await;
    user.delete_machine(LONE).await?;
    world.until("all objects to be deleted", |view| view.is_empty()).await?;
    Ok(())
}

fn runs(view: &MachineView, name: &str, not: Option<&str>) -> Result<(), String> {
    let Some(machine) = view.machine(name) else { return Err("the Machine does not exist".to_owned()) };
    let is_another = not != Some(machine.uid());
    let is_ready = view.node(machine.node_label()).is_some_and(|node| node.condition("Ready") == "True");
    let is_new_node =
        view.node(machine.node_label()).is_some_and(|node| node.provider_id() == machine.provider_id());
    if is_another && machine.phase() == "Running" && is_ready && is_new_node && view.tokens.is_empty() {
        Ok(())
    } else {
        Err(format!("the Machine has phase {:?}, new: {is_another}, node ready: {is_ready}", machine.phase()))
    }
}

/// A foreign Node has the name of a Machine. It must not be changed when the Machine is deleted. A
/// Node whose Machine was erased by hand can be deleted.
pub async fn foreign_node(world: &dyn MachineWorld) -> Outcome {
    let user = User::of(world);
    user.create_class("c").await?;
    user.create_foreign_node(LONE).await?;
    user.create_machine(ERASED).await?;
    let view = world.until("the other Machine to run", |view| runs(view, ERASED, None)).await?;
    let erased = view.machine(ERASED).map(|machine| machine.provider_id().to_owned()).unwrap_or_default();
    let erased = ProviderId::parse(&erased).map_err(|error| ScenarioError(error.to_string()))?;
    world.begin("the user makes and deletes a Machine whose name a foreign Node has, and erases another one");
    user.create_machine(LONE).await?;
    let has_instance =
        |view: &MachineView| match view.machine(LONE).map(|machine| machine.provider_id().to_owned()) {
            Some(id) if !id.is_empty() => Ok(()),
            _ => Err("no instance is recorded".to_owned()),
        };
    world.until("the Machine to have an instance", has_instance).await?;
    user.delete_machine(LONE).await?;
    let gone = |view: &MachineView| match (view.machine(LONE), view.ledger.alive().count()) {
        (None, 1) => Ok(()),
        (machine, alive) => {
            Err(format!("{alive} instances, the Machine has phase {:?}", machine.map(|m| m.phase())))
        }
    };
    world.until("the Machine to be deleted", gone).await?;
    let view = world.look().await?;
    ensure(view.node(LONE).is_some_and(|node| !node.is_deleting()), || {
        "the foreign Node was deleted".to_owned()
    })?;
    user.delete_node(LONE).await?;
    user.erase_machine_objects().await?;
    world.cloud().kill(&erased).map_err(|refusal| ScenarioError(refusal.to_string()))?;
    // The end state has no Node without a Machine, so our finalizer must be taken off.
    user.delete_node(ERASED).await
}

/// A foreign, older instance has the name of a Machine. It is neither adopted nor deleted. The
/// Machine reports this and can be deleted.
pub async fn foreign_instance(world: &dyn MachineWorld) -> Outcome {
    let user = User::of(world);
    user.create_class("c").await?;
    let pet = load_pet(world)?;
    world.begin("the user makes and deletes a Machine whose name a foreign instance has");
    // Otherwise the instance would count as absent only after a second look, ten minutes later.
    tokio::time::sleep(world.pace().until_younger).await;
    user.create_machine(LONE).await?;
    let says_so =
        |view: &MachineView| match view.machine(LONE).map(|machine| machine.operation_text().to_owned()) {
            Some(text) if text.contains("made by others") => Ok(()),
            text => Err(format!("the Machine has the operation text {text:?}")),
        };
    world.until("the Machine to report the foreign instance", says_so).await?;
    user.delete_machine(LONE).await?;
    let gone = |view: &MachineView| match view.machine(LONE) {
        None => Ok(()),
        Some(machine) => Err(format!("the Machine has phase {:?}", machine.phase())),
    };
    world.until("the Machine to be deleted", gone).await?;
    let view = world.look().await?;
    ensure(view.ledger.alive().any(|entry| entry.id == pet.id && entry.key.is_none()), || {
        format!("{} was adopted or deleted", pet.id)
    })?;
    // The foreign owner of the instance deletes it.
    world.cloud().kill(&pet.id).map_err(|refusal| ScenarioError(refusal.to_string()))
}

fn load_pet(world: &dyn MachineWorld) -> Result<LedgerEntry, ScenarioError> {
    let a_day_ago = world.now().checked_sub(Duration::from_secs(24 * 3600));
    let pet = Foreigner {
        id: None,
        name: NodeName::new(LONE).ok_or(ScenarioError::new("a Node has a name"))?,
        key: None,
        project: String::new(),
        created: a_day_ago.unwrap_or_else(|_| world.now()),
        instance_type: "small".to_owned(),
        user_data: Default::default(),
    };
    world.cloud().load(&pet).map_err(|refusal| ScenarioError(refusal.to_string()))
}
