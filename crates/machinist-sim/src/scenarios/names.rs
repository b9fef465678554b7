//! Names that mean something else than they did.

use crate::world::{Outcome, User, View, World, ensure};

const LONE: &str = "lone";

/// A Machine of no set is deleted, and made again under its name as soon as it is gone.
pub async fn same_name_again(world: &dyn World) -> Outcome {
    let user = User::of(world);
    user.create_class("c").await?;
    user.create_machine(LONE).await?;
    let first = world.until("the Machine to run", |view| runs(view, None)).await?;
    let first = first.machine(LONE).map(|machine| machine.uid().to_owned());
    world.begin("the user deletes a Machine, and makes it again under its name");
    user.delete_machine(LONE).await?;
    let gone = |view: &View| match view.machine(LONE) {
        None => Ok(()),
        Some(machine) => Err(format!("it is {:?}", machine.phase())),
    };
    world.until("the Machine to be gone", gone).await?;
    user.create_machine(LONE).await?;
    world.until("the new Machine to run", |view| runs(view, first.as_deref())).await?;
    user.delete_machine(LONE).await?;
    world.until("nothing to be left", |view| view.is_empty()).await?;
    Ok(())
}

fn runs(view: &View, not: Option<&str>) -> Result<(), String> {
    let Some(machine) = view.machine(LONE) else { return Err("there is none".to_owned()) };
    let is_another = not != Some(machine.uid());
    let is_ready = view.node(machine.node_label()).is_some_and(|node| node.condition("Ready") == "True");
    let is_new_node =
        view.node(machine.node_label()).is_some_and(|node| node.provider_id() == machine.provider_id());
    match is_another && machine.phase() == "Running" && is_ready && is_new_node && view.tokens.is_empty() {
        true => Ok(()),
        false => Err(format!("it is {:?}, another: {is_another}, node ready: {is_ready}", machine.phase())),
    }
}

/// Somebody else's Node has the name of a Machine: it is left alone when the Machine goes.
pub async fn foreign_node(world: &dyn World) -> Outcome {
    let user = User::of(world);
    user.create_class("c").await?;
    user.create_foreign_node(LONE).await?;
    world.begin("the user makes and deletes a Machine whose name a foreign Node has");
    user.create_machine(LONE).await?;
    let has_instance = |view: &View| match view.machine(LONE).map(|machine| machine.provider_id().to_owned())
    {
        Some(id) if !id.is_empty() => Ok(()),
        _ => Err("no instance is recorded".to_owned()),
    };
    world.until("the Machine to have an instance", has_instance).await?;
    user.delete_machine(LONE).await?;
    let gone = |view: &View| match (view.machine(LONE), view.ledger.alive().count()) {
        (None, 0) => Ok(()),
        (machine, alive) => {
            Err(format!("{alive} instances, the Machine is {:?}", machine.map(|m| m.phase())))
        }
    };
    world.until("the Machine to be gone", gone).await?;
    let view = world.look().await?;
    ensure(view.node(LONE).is_some_and(|node| !node.is_deleting()), || {
        "the foreign Node was deleted".to_owned()
    })?;
    user.delete_node(LONE).await
}
