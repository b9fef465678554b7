//! Credentials that are exchanged, and objects that come back from a backup.

use std::time::Duration;

use super::life::{settled, start_with};
use crate::actor::Side;
use crate::sight::Seen;
use crate::world::user::WORKERS;
use crate::world::{Outcome, Trouble, User, View, World, ensure};

/// Opens the project in which the workers are made.
const TOKEN: &str = "token-of-the-project";
/// Opens the same project: the token was renewed.
const RENEWED: &str = "renewed-token-of-the-project";
/// Opens another project.
const OTHER: &str = "token-of-another-project";

/// Longer than a Machine waits for a second look, and than it takes to list an account a second time.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// The Secret is exchanged for one of another project, and a Machine is deleted: its instance is not believed gone because that project
/// does not show it. With the old Secret the deletion ends.
pub async fn exchanged_secret(world: &dyn World) -> Outcome {
    let user = start_in_a_project(world, 3).await?;
    world.begin("the Secret is exchanged for one of another project, and the user scales from 3 to 2");
    user.set_token(Some(OTHER)).await?;
    user.scale_workers(2).await?;
    let says_so = |view: &View| {
        let said = view.machines().filter(|machine| machine.is_deleting()).map(Seen::operation_text);
        let said: Vec<&str> = said.collect();
        match said.iter().any(|text| text.contains("looks like another account")) {
            true => Ok(()),
            false => Err(format!("the Machine that is deleted says {said:?}")),
        }
    };
    world.until("the Machine to say what it waits for", says_so).await?;
    let until = world.now().checked_add(PATIENCE).map_err(|error| Trouble(error.to_string()))?;
    let waits = |view: &View| match until <= world.now() {
        true => Ok(()),
        false => Err(format!("{} Machines", view.machines.len())),
    };
    let view = world.until("a quarter of an hour to pass", waits).await?;
    ensure(view.machines.len() == 3 && view.ledger.alive().count() == 3, || {
        format!("a Machine or its instance is gone\n{view}")
    })?;
    user.set_token(Some(TOKEN)).await?;
    world.until("the deletion to end with the old Secret", |view| settled(view, 2)).await?;
    Ok(())
}

/// The token is renewed within the project: Machines are deleted as before, also one whose instance has died.
pub async fn renewed_token(world: &dyn World) -> Outcome {
    let user = start_in_a_project(world, 3).await?;
    world.begin("the token is renewed, one instance dies, and the user scales to 2");
    user.set_token(Some(RENEWED)).await?;
    let view = world.look().await?;
    let worker = super::heal::first_running(&view)?;
    // Its name may come back: a manager that was started anew does not know which names are used up.
    let (dies, uid) = (worker.name().to_owned(), worker.uid().to_owned());
    let entry = view.ledger.alive().find(|entry| entry.name.as_str() == dies);
    let entry = entry.ok_or_else(|| Trouble::new("the worker has no instance"))?;
    world.cloud().kill(&entry.id).map_err(|refusal| Trouble(refusal.to_string()))?;
    let replaced = |view: &View| {
        if view.machine(&dies).is_some_and(|machine| machine.uid() == uid) {
            return Err(format!("Machine {dies} is still there"));
        }
        settled(view, 3)
    };
    world.until("the dead instance to be replaced", replaced).await?;
    user.scale_workers(2).await?;
    world.until("2 workers", |view| settled(view, 2)).await?;
    Ok(())
}

/// All machine objects come back from a backup with new UIDs, as in a migration of the control plane. Their instances are theirs all the
/// same: none is made twice, and each is deleted with its Machine.
pub async fn restored(world: &dyn World) -> Outcome {
    let user = start_with(world, 3).await?;
    world.stop_processes().await?;
    let backup = world.look().await?;
    user.erase_machine_objects().await?;
    let erased = |view: &View| match view.machines.len() + view.sets.len() + view.deployments.len() {
        0 => Ok(()),
        left => Err(format!("{left} objects are left")),
    };
    world.until("the objects to be erased", erased).await?;
    for item in backup.deployments.iter().chain(&backup.sets).chain(&backup.machines) {
        let mut object = item.seen().0.clone();
        give_new_uids(&mut object, &world.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        world.store(Side::Control, &object).await?;
    }
    world.begin("the machine objects are restored with new UIDs, and the user scales from 3 to 1");
    world.start_processes().await?;
    user.scale_workers(1).await?;
    let view = world.until("1 worker", |view| settled(view, 1)).await?;
    let ever = view.ledger.ever().iter().filter(|entry| entry.name.as_str().starts_with(WORKERS)).count();
    ensure(ever == 3, || format!("{ever} instances were ever made, for 3 Machines"))?;
    user.delete_workers().await?;
    world.until("nothing to be left", |view| view.is_empty()).await?;
    Ok(())
}

/// As a restore writes it: another uid, a new creation time, and owners of the same name.
fn give_new_uids(object: &mut serde_json::Value, now: &str) {
    let renew = |uid: &mut serde_json::Value| {
        if let Some(old) = uid.as_str() {
            *uid = format!("{old}-restored").into();
        }
    };
    let metadata = &mut object["metadata"];
    renew(&mut metadata["uid"]);
    metadata["creationTimestamp"] = now.into();
    if let Some(owners) = metadata.get_mut("ownerReferences").and_then(serde_json::Value::as_array_mut) {
        owners.iter_mut().for_each(|owner| renew(&mut owner["uid"]));
    }
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.remove("resourceVersion");
    }
}

/// Workers that were made in a project with [`TOKEN`]; [`RENEWED`] opens it too.
async fn start_in_a_project(world: &dyn World, replicas: u32) -> Result<User<'_>, Trouble> {
    world.cloud().configure(|settings| {
        let projects = [(TOKEN, "project"), (RENEWED, "project"), (OTHER, "another")];
        settings.projects.extend(projects.map(|(token, project)| (token.to_owned(), project.to_owned())));
    });
    let user = User::of(world);
    user.create_class("c").await?;
    user.set_token(Some(TOKEN)).await?;
    user.create_workers(replicas).await?;
    world.until("the deployment to settle", |view| settled(view, replicas)).await?;
    Ok(user)
}
