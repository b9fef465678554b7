//! Scenarios of updates in place. The scenario acts as the program on the Nodes that updates them.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use machinist_api::constants::{labels, taints};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::drain::no_force;
use super::heal::pod_is_ready;
use super::life::{settled, start_with};
use crate::sight::SeenObject;
use crate::world::{MachineView, MachineWorld, Outcome, ScenarioError, User, ensure};

/// The number of workers before the update, and the number after the last step.
const WORKERS: u32 = 3;
const FEWER: u32 = 2;
/// The pod on the Node that is updated first or later.
const POD: &str = "p";
/// How long a failed update is watched.
const MEANWHILE: Duration = Duration::from_secs(20);

/// The instances of three Machines stay while they are updated one by one. The first update fails,
/// and nothing else happens until a user has repaired the Node.
pub async fn update_in_place(world: &dyn MachineWorld) -> Outcome {
    let before = begin(world, "Auto").await?;
    let mut agents = Agents { world, selects: false, result: labels::UPDATE_FAILED };
    let failed = |view: &MachineView| match view.machines().find(|machine| machine.phase() == FAILED) {
        Some(_) => Ok(()),
        None => Err("no update has failed".to_owned()),
    };
    let view = agents.until("the first update to fail", failed).await?;
    let broken = view.machines().find(|machine| machine.phase() == FAILED).map(SeenObject::node_label);
    let broken = broken.unwrap_or_default().to_owned();
    agents.result = labels::UPDATE_SUCCESSFUL;
    agents.pass(MEANWHILE).await?;
    let view = world.look().await?;
    let others = view.machines().filter(|machine| machine.node_label() != broken);
    let is_touched = |machine: &SeenObject<'_>| {
        machine.phase() != "Running" || !machine.label(labels::SELECTED_FOR_UPDATE).is_empty()
    };
    if world.is_prompt() {
        let touched = others.filter(is_touched).count();
        ensure(touched == 0, || format!("{touched} Machines are updated in addition to a failed update"))?;
    }
    agents.patch(&broken, json!({"metadata": {"labels": {(labels::UPDATE_RESULT): null}}})).await?;
    end(&agents, &before).await
}

/// The same without a failure. A user selects one Node after the other.
pub async fn update_in_place_by_hand(world: &dyn MachineWorld) -> Outcome {
    let before = begin(world, "Manual").await?;
    let agents = Agents { world, selects: true, result: labels::UPDATE_SUCCESSFUL };
    end(&agents, &before).await
}

/// The phase of a Machine whose update has failed.
const FAILED: &str = "InPlaceUpdateFailed";
/// The label of the new template.
const COLOR: (&str, &str) = ("color", "blue");

/// Begins the update, and returns the names of the Machines.
async fn begin(world: &dyn MachineWorld, orchestration: &str) -> Result<BTreeSet<String>, ScenarioError> {
    let user = start_with(world, WORKERS).await?;
    user.update_workers_in_place(orchestration).await?;
    let view = world.until("the strategy to be observed", |view| settled(view, WORKERS)).await?;
    let node = view.running().map(|machine| machine.node_label().to_owned()).min();
    user.create_pod(POD, "a", &node.ok_or(ScenarioError::new("no worker runs"))?).await?;
    let view = world.until("the pod to be ready", |view| pod_is_ready(view, POD)).await?;
    world.begin("the user changes the template of a deployment whose Machines are updated in place");
    user.label_template_of_workers(COLOR.0, COLOR.1).await?;
    Ok(view.machines().map(|machine| machine.name().to_owned()).collect())
}

/// Waits for the end of the update, and then for the deletion of one Machine, which shows that the
/// new set decides about them.
async fn end(agents: &Agents<'_>, before: &BTreeSet<String>) -> Outcome {
    let world = agents.world;
    let view = agents.until("all Machines to be updated", all_updated).await?;
    let after: BTreeSet<_> = view.machines().map(|machine| machine.name().to_owned()).collect();
    let ever = view.ledger.ever().len();
    ensure(after == *before || !world.keeps_machines(), || format!("{after:?} are not {before:?}"))?;
    ensure(ever == WORKERS as usize || !world.keeps_machines(), || {
        format!("{ever} instances were ever made, expected {WORKERS}")
    })?;
    User::of(world).scale_workers(FEWER).await?;
    agents.until("one worker less", |view| settled(view, FEWER)).await?;
    no_force(world)
}

/// Whether all Machines belong to the set of the new template, and their Nodes take pods again.
fn all_updated(view: &MachineView) -> Result<(), String> {
    settled(view, WORKERS)?;
    let of_template = |set: &SeenObject<'_>| {
        let color = set.0.pointer("/spec/template/metadata/labels").and_then(|labels| labels.get(COLOR.0));
        color.and_then(Value::as_str) == Some(COLOR.1)
    };
    let sets = || view.sets.iter().map(crate::sight::Item::seen);
    let new = sets().find(of_template).ok_or("the new set does not exist")?;
    if let Some(old) = view.machines().find(|machine| machine.owner_uid() != Some(new.uid())) {
        return Err(format!("{} belongs to the old set", old.name()));
    }
    let left = [labels::UPDATE_RESULT, labels::SELECTED_FOR_UPDATE, labels::CANDIDATE_FOR_UPDATE];
    let marked = |object: SeenObject<'_>| left.iter().any(|key| !object.label(key).is_empty());
    if let Some(machine) = view.machines().find(|machine| marked(*machine)) {
        return Err(format!("Machine {} has labels of the update", machine.name()));
    }
    let nodes = view.nodes.iter().map(crate::sight::Item::seen);
    let mut in_update = nodes.filter(|node| marked(*node) || node.is_cordoned() || is_held_back(*node));
    match in_update.next() {
        None => Ok(()),
        Some(node) => Err(format!("Node {} is not as before the update", node.name())),
    }
}

/// Whether the taint of a new Node keeps pods off.
fn is_held_back(node: SeenObject<'_>) -> bool {
    node.list("/spec/taints").iter().any(|taint| taint["key"] == taints::CRITICAL_COMPONENTS_NOT_READY)
}

/// The programs on the Nodes that update them, and the user who selects Nodes.
struct Agents<'w> {
    world: &'w dyn MachineWorld,
    /// Whether the user selects Nodes.
    selects: bool,
    /// The result of the next update.
    result: &'static str,
}

impl Agents<'_> {
    /// Acts on all Nodes as they are now.
    async fn act(&self, view: &MachineView) -> Outcome {
        let nodes = || view.nodes.iter().map(crate::sight::Item::seen);
        for node in nodes() {
            let is_ready = node.condition_reason("InPlaceUpdate") == "ReadyForUpdate";
            if is_ready && node.label(labels::UPDATE_RESULT).is_empty() {
                ensure(node.is_cordoned(), || format!("{} is updated, and takes pods", node.name()))?;
                let labelled = json!({"metadata": {"labels": {(labels::UPDATE_RESULT): self.result}}});
                self.patch(node.name(), labelled).await?;
            }
            if is_held_back(node) {
                let mut rest = node.list("/spec/taints").to_vec();
                rest.retain(|taint| taint["key"] != taints::CRITICAL_COMPONENTS_NOT_READY);
                self.patch(node.name(), json!({"spec": {"taints": rest}})).await?;
            }
        }
        let is_selected = |node: SeenObject<'_>| !node.label(labels::SELECTED_FOR_UPDATE).is_empty();
        if self.selects && !nodes().any(|node| is_selected(node) || node.is_cordoned()) {
            let mut candidates = nodes().filter(|node| {
                node.condition_reason("InPlaceUpdate") == "CandidateForUpdate"
                    && !node.label(labels::CANDIDATE_FOR_UPDATE).is_empty()
            });
            if let Some(node) = candidates.next() {
                let selected = json!({"metadata": {"labels": {(labels::SELECTED_FOR_UPDATE): "true"}}});
                self.patch(node.name(), selected).await?;
            }
        }
        Ok(())
    }

    /// Acts until a state is reached, and returns it. `is_so` returns what is still missing.
    async fn until(
        &self,
        what: &str,
        is_so: impl Fn(&MachineView) -> Result<(), String>,
    ) -> Result<MachineView, ScenarioError> {
        let (began, patience) = (Instant::now(), self.world.pace().patience);
        loop {
            if let Some(trouble) = self.world.trouble() {
                return Err(trouble);
            }
            let view = self.world.look().await?;
            let missing = match is_so(&view) {
                Ok(()) => return Ok(view),
                Err(missing) => missing,
            };
            if patience < began.elapsed() {
                return Err(ScenarioError(format!("waited {patience:?} for {what}: {missing}\n{view}")));
            }
            self.act(&view).await?;
            self.world.changed().await;
        }
    }

    /// Acts for a time.
    async fn pass(&self, time: Duration) -> Outcome {
        let began = Instant::now();
        while began.elapsed() < time {
            if let Some(trouble) = self.world.trouble() {
                return Err(trouble);
            }
            let view = self.world.look().await?;
            self.act(&view).await?;
            self.world.changed().await;
        }
        Ok(())
    }

    async fn patch(&self, node: &str, change: Value) -> Outcome {
        let nodes: Api<Node> = Api::all(self.world.target());
        nodes.patch(node, &PatchParams::default(), &Patch::Merge(change)).await?;
        Ok(())
    }
}
