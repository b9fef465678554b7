//! Scenarios with more Machines than a set may have.

use std::time::Duration;

use machinist_api::constants::labels;
use serde_json::Value;

use super::life::{settled, start_with};
use crate::world::user::{HELD, WORKERS};
use crate::world::{MachineView, MachineWorld, Outcome, ScenarioError, ensure};

/// The Machines that another actor adds. They are more than each surge allows.
const ADDED: [&str; 8] = ["w-x1", "w-x2", "w-x3", "w-x4", "w-x5", "w-x6", "w-x7", "w-x8"];
/// Longer than the period after which a set with too many Machines is frozen.
const LONG: Duration = Duration::from_secs(150);

/// Another actor adds Machines to a set, and a finalizer keeps them from leaving. The set and its
/// deployment are frozen, and stay so. The freeze ends when the Machines have left.
pub async fn overshoot(world: &dyn MachineWorld) -> Outcome {
    let user = start_with(world, 3).await?;
    let view = world.look().await?;
    let set = view.sets.first().ok_or_else(|| ScenarioError::new("the deployment has no set"))?;
    let selected = set.seen().0.pointer("/spec/selector/matchLabels").cloned().unwrap_or(Value::Null);
    world.begin("another actor adds Machines to the set of 3, and keeps them");
    for name in ADDED {
        user.create_held_worker(name, &selected).await?;
    }
    world
        .until("the surplus to lose its instances", |view| ADDED.iter().try_for_each(|n| is_held(view, n)))
        .await?;
    world.until("the set and the deployment to be frozen", is_frozen).await?;
    tokio::time::sleep(LONG).await;
    let view = world.look().await?;
    ensure(is_frozen(&view).is_ok(), || "the freeze ended although no Machine has left".to_owned())?;
    for name in ADDED {
        user.release(name).await?;
    }
    let thawed = |view: &MachineView| match freezes(view) {
        [false, false] => settled(view, 3),
        [set, deployment] => Err(format!("frozen: set {set}, deployment {deployment}")),
    };
    world.until("3 workers, and no freeze", thawed).await?;
    Ok(())
}

/// Whether only the finalizer of the other actor keeps a Machine.
fn is_held(view: &MachineView, name: &str) -> Result<(), String> {
    let Some(machine) = view.machine(name) else { return Err(format!("Machine {name} does not exist")) };
    if machine.is_deleting() && machine.list("/metadata/finalizers") == [HELD] {
        return Ok(());
    }
    Err(format!("Machine {name} has not lost its instance"))
}

fn is_frozen(view: &MachineView) -> Result<(), String> {
    match freezes(view) {
        [true, true] => Ok(()),
        [set, deployment] => Err(format!("frozen: set {set}, deployment {deployment}")),
    }
}

/// Whether the set and the deployment are frozen.
fn freezes(view: &MachineView) -> [bool; 2] {
    let has_label = |label: &str| label == labels::TRUE;
    let set = view.sets.iter().any(|set| has_label(set.seen().label(labels::FREEZE)));
    let deployment = view.deployment(WORKERS);
    [set, deployment.is_some_and(|deployment| has_label(deployment.label(labels::FREEZE)))]
}
