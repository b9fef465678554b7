//! Connects the decision about replacements with the work loop: which unhealthy Machine of a
//! MachineDeployment is marked as Failed. The rules are in `machinist_plan::mcm::replacement`.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use machinist_kube::ObjectKey;
use machinist_kube::recorder::EventType;
use machinist_plan::facts::{MachineFacts, MachineSetFacts};
use machinist_plan::mcm::machine::NODE_UNHEALTHY;
use machinist_plan::mcm::replacement::{Action, Snapshot};

use super::contract::{Mcm, Runtime, World, Write};
use super::key::Key;
use super::machine::{deadline_patch, identity, reference};
use super::object_key;
use super::seen::{BY_OWNER, BY_UID, NO_OWNER};
use machinist_plan::Plan;
use machinist_runtime::{Kind, Observed, Stop};

/// Replacements in the work loop.
pub(crate) struct Replacements;

impl Kind<Mcm> for Replacements {
    /// UID of the MachineDeployment, or of the MachineSet or the Machine if there is none.
    type Id = String;
    type Snapshot = Snapshot;
    type Action = Action;

    fn observe(runtime: &Runtime, world: &World, id: &String) -> Observed<Snapshot> {
        let mut sets: Vec<Arc<MachineSetFacts>> = Vec::new();
        for (_, set) in world.seen.sets.by_index(BY_OWNER, id).chain(world.seen.sets.by_index(BY_UID, id)) {
            sets.push(set.facts.clone());
        }
        let mut machines: Vec<Arc<MachineFacts>> = Vec::new();
        // The owner itself is included: it may be a MachineSet, or an object of another kind.
        let owners = sets.iter().map(|set| &set.uid).filter(|uid| *uid != id).chain([id]);
        let owned = owners.flat_map(|owner| world.seen.machines.by_index(BY_OWNER, owner));
        let free = world.seen.machines.by_index(BY_OWNER, NO_OWNER);
        for (_, machine) in owned.chain(free) {
            // A Machine that was adopted, released or moved with its set is decided about only
            // under its new key.
            if !is_counted_by(world, &machine.facts, id) {
                continue;
            }
            machines.push(machine.facts.clone());
        }
        if machines.is_empty() {
            return Observed::Gone;
        }
        let unknown_owner =
            machines.iter().find_map(|machine| world.seen.unknown_owner(machine)).map(str::to_owned);
        let is_unseen = |machine: &&Arc<MachineFacts>| world.is_charged(&given_up(machine));
        let unseen = machines.iter().find(is_unseen).map(|machine| machine.name.clone());
        let is_unheard = |machine: &&Arc<MachineFacts>| is_unheard(runtime, world, machine);
        let unheard = machines.iter().filter(is_unheard).map(|it| it.uid.clone()).collect();
        let snapshot = Snapshot {
            now: runtime.now(),
            skew: runtime.skew(),
            machines,
            unheard,
            sets,
            unknown_owner,
            unseen,
            health_timeout: runtime.tools.machine().defaults.health_timeout,
        };
        Observed::Ready(snapshot)
    }

    fn plan(runtime: &Runtime, snapshot: &Snapshot) -> Plan<Action> {
        (runtime.tools.planners.replacement)(snapshot)
    }

    async fn act(runtime: &Arc<Runtime>, _: &Snapshot, action: Action) -> Result<(), Stop> {
        let Action::MarkFailed { machine, write } = action;
        let key = object_key(&machine.namespace, &machine.name);
        let replacement = runtime.lock().seen.replacement_key(&machine);
        let charged = [Key::Machine(key.clone()), replacement, given_up(&machine)];
        // Since it was read, the Machine may have recovered, or its owner may have changed, which
        // shares the limit with other Machines.
        let patch = deadline_patch(&machine, &write)
            .test(&["metadata", "ownerReferences"], machine.raw_owners.as_ref());
        let failed = Write { runtime, charged: &charged, key };
        failed.patch_status_that_takes_away::<MachineFacts>(patch).await?;
        let said = write.operation.as_ref().map_or("", |operation| operation.description.as_str());
        runtime.recorder.record(&reference(&machine), EventType::Warning, NODE_UNHEALTHY, said);
        Ok(())
    }

    fn takes_away(Action::MarkFailed { .. }: &Action) -> bool {
        true
    }

    fn reference(_: &Snapshot) -> Option<ObjectReference> {
        None
    }
}

/// Returns whether the replacements of a Machine are counted under the key with that UID.
fn is_counted_by(world: &World, machine: &MachineFacts, id: &str) -> bool {
    matches!(world.seen.replacement_key(machine), Key::Replacement(key) if key == *id)
}

/// Returns an additional key that is charged when a Machine is marked as Failed. If the Machine is
/// adopted, or its set moves, before the write is seen, its new key must know about this write.
fn given_up(machine: &MachineFacts) -> Key {
    Key::Replacement(machine.uid.clone())
}

/// Returns whether the Node of a Machine has a preservation annotation that was not copied to the
/// Machine yet.
fn is_unheard(runtime: &Runtime, world: &World, machine: &MachineFacts) -> bool {
    let node = world.seen.nodes.get(&ObjectKey::cluster_scoped(machine.node_name()));
    node.is_some_and(|node| {
        machine.preserve_news(&node.facts).is_some()
            && identity(runtime, &world.seen, machine, Some(&node.facts)).same_instance
    })
}
