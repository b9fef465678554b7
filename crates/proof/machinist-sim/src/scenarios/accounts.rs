//! Scenarios with replaced credentials, with a class that is moved to another region, and with
//! objects that are restored from a backup.

use std::time::Duration;

use super::life::{settled, start_with};
use crate::actor::Side;
use crate::sight::SeenObject;
use crate::world::user::WORKERS;
use crate::world::{MachineView, MachineWorld, Outcome, ScenarioError, User, ensure};

/// Token of the project of the workers.
const TOKEN: &str = "token-of-the-project";
/// Another token of the same project, after a renewal.
const RENEWED: &str = "renewed-token-of-the-project";
/// Token of another project.
const OTHER: &str = "token-of-another-project";

/// A region besides the default one.
const ELSEWHERE: &str = "sim-2";

/// Two zones of the default region.
const ZONES: [&str; 2] = ["sim-1a", "sim-1b"];

/// Longer than a Machine waits for a second look, and longer than a second list of the account
/// takes.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// The Secret is replaced by one of another project, and a Machine is deleted. The instance does
/// not count as deleted, although that project does not show it. With the old Secret the deletion
/// ends.
pub async fn exchanged_secret(world: &dyn MachineWorld) -> Outcome {
    let user = start_in_a_project(world, 3).await?;
    world.begin("the Secret is exchanged for one of another project, and the user scales from 3 to 2");
    user.set_token(Some(OTHER)).await?;
    user.scale_workers(2).await?;
    let says_so = |view: &MachineView| {
        let said = view.machines().filter(|machine| machine.is_deleting()).map(SeenObject::operation_text);
        let said: Vec<&str> = said.collect();
        if said.iter().any(|text| text.contains("seems to open another account")) {
            Ok(())
        } else {
            Err(format!("the deleted Machine has the operation text {said:?}"))
        }
    };
    world.until("the Machine to report the wrong account", says_so).await?;
    let until = world.now().checked_add(PATIENCE).map_err(|error| ScenarioError(error.to_string()))?;
    let waits = |view: &MachineView| {
        if until <= world.now() { Ok(()) } else { Err(format!("{} Machines", view.machines.len())) }
    };
    let view = world.until("a quarter of an hour to pass", waits).await?;
    let is_whole = view.machines.len() == 3 && view.ledger.alive().count() == 3;
    ensure(is_whole || !world.keeps_machines(), || format!("a Machine or its instance was deleted\n{view}"))?;
    user.set_token(Some(TOKEN)).await?;
    world.until("the deletion to end with the old Secret", |view| settled(view, 2)).await?;
    Ok(())
}

/// The token is renewed within the project. Machines are deleted as before, including one with a
/// dead instance.
pub async fn renewed_token(world: &dyn MachineWorld) -> Outcome {
    let user = start_in_a_project(world, 3).await?;
    world.begin("the token is renewed, one instance dies, and the user scales to 2");
    user.set_token(Some(RENEWED)).await?;
    let view = world.look().await?;
    let worker = super::heal::first_running(&view)?;
    // The name may be used again, because a restarted manager does not know the used names.
    let (dies, uid) = (worker.name().to_owned(), worker.uid().to_owned());
    let entry = view.ledger.alive().find(|entry| entry.name.as_str() == dies);
    let entry = entry.ok_or_else(|| ScenarioError::new("the worker has no instance"))?;
    world.cloud().kill(&entry.id).map_err(|refusal| ScenarioError(refusal.to_string()))?;
    let replaced = |view: &MachineView| {
        if view.machine(&dies).is_some_and(|machine| machine.uid() == uid) {
            return Err(format!("Machine {dies} still exists"));
        }
        settled(view, 3)
    };
    world.until("the dead instance to be replaced", replaced).await?;
    user.scale_workers(2).await?;
    world.until("2 workers", |view| settled(view, 2)).await?;
    Ok(())
}

/// The class is moved to another region while instances exist there and others are being created.
/// An instance belongs to the region in which its creation began: none is doubled, and each is
/// deleted with its Machine.
pub async fn moved_class(world: &dyn MachineWorld) -> Outcome {
    let user = start_with(world, 3).await?;
    world.begin("the user scales from 3 to 6, moves the class to another region, and scales to 2");
    user.scale_workers(6).await?;
    user.set_region(Some(ELSEWHERE)).await?;
    world.until("6 workers", |view| settled(view, 6)).await?;
    user.scale_workers(2).await?;
    world.until("2 workers", |view| settled(view, 2)).await?;
    user.delete_workers().await?;
    world.until("all objects to be deleted", |view| view.is_empty()).await?;
    Ok(())
}

/// In a cloud that recognises a repeated creation in one zone, the class is moved to another zone
/// and back while instances are being created. None is doubled.
pub async fn moved_zone(world: &dyn MachineWorld) -> Outcome {
    world.cloud().configure(|settings| settings.keys_per_zone = true);
    let user = User::of(world);
    user.create_class("c").await?;
    user.set_zone(ZONES[0]).await?;
    world.begin("the user creates 2 workers, and moves the class to another zone while it scales to 8");
    user.create_workers(2).await?;
    world.until("the deployment to settle", |view| settled(view, 2)).await?;
    let mut replicas = 2;
    for zone in [ZONES[1], ZONES[0], ZONES[1]] {
        let before = world.look().await?.ledger.ever().len();
        replicas += 2;
        user.scale_workers(replicas).await?;
        let begins = |view: &MachineView| {
            if before < view.ledger.ever().len() { Ok(()) } else { Err("no new instance".to_owned()) }
        };
        world.until("the first new instance to exist", begins).await?;
        user.set_zone(zone).await?;
    }
    world.until("8 workers", |view| settled(view, replicas)).await?;
    user.delete_workers().await?;
    world.until("all objects to be deleted", |view| view.is_empty()).await?;
    Ok(())
}

/// All machine objects are restored from a backup with new UIDs, as in a migration of the control
/// plane. They keep their instances: no instance is created twice, and each is deleted with its
/// Machine.
pub async fn restored(world: &dyn MachineWorld) -> Outcome {
    let user = start_with(world, 3).await?;
    world.stop_processes().await?;
    let backup = world.look().await?;
    user.erase_machine_objects().await?;
    let erased = |view: &MachineView| match view.machines.len() + view.sets.len() + view.deployments.len() {
        0 => Ok(()),
        left => Err(format!("{left} objects still exist")),
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
    ensure(ever == 3 || !world.keeps_machines(), || {
        format!("{ever} instances were ever made, for 3 Machines")
    })?;
    user.delete_workers().await?;
    world.until("all objects to be deleted", |view| view.is_empty()).await?;
    Ok(())
}

/// Gives an object another uid, a new creation time, and the new uids of its owners, as a restore
/// does.
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

/// Starts workers in a project with [`TOKEN`]; [`RENEWED`] is a token of the same project.
async fn start_in_a_project(world: &dyn MachineWorld, replicas: u32) -> Result<User<'_>, ScenarioError> {
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
