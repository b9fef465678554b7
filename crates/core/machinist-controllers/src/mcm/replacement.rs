//! Connects the decision about replacements with the work loop: which unhealthy Machine of a
//! MachineDeployment is marked as Failed. The rules are in `machinist_plan::mcm::replacement`.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use machinist_api::Phase;
use machinist_core::{Answered, Known};
use machinist_instance::Boot;
use machinist_kube::recorder::EventType;
use machinist_plan::mcm::facts::{MachineFacts, MachineSetFacts, NodeFacts};
use machinist_plan::mcm::replacement::{Action, NodeOf, Snapshot};

use super::contract::{Mcm, Runtime, World, Write};
use super::key::Key;
use super::machine::{deadline_patch, identity, look_for, node_of, other_nodes};
use super::memory::NeverJoined;
use super::options::Tools;
use super::reference::{machine_reference, object_key};
use super::seen::{BY_OWNER, BY_UID, NO_OWNER, Seen};
use super::server_freeze::frozen_by_server;
use machinist_plan::mcm::Plan;
use machinist_runtime::{Kind, Observed, Stop};

/// Replacements in the work loop.
pub(crate) struct Replacements;

impl Kind<Mcm> for Replacements {
    /// UID of the MachineDeployment, or of the MachineSet or the Machine if there is none.
    type Id = String;
    type Snapshot = Snapshot;
    type Action = Action;

    fn ids(seen: &Seen, _: &Tools) -> Vec<String> {
        seen.machines.iter().map(|(_, machine)| seen.replacement_id(&machine.facts).to_owned()).collect()
    }
    fn is_decided(tools: &Tools) -> bool {
        tools.decides_nodes()
    }

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
        let unheard = machines.iter().filter(is_unheard).map(|machine| machine.uid.clone()).collect();
        let waits = |machine: &&Arc<MachineFacts>| {
            matches!(machine.status.phase, Phase::Unknown | Phase::Pending | Phase::InPlaceUpdateFailed)
                && machine.deleting_since.is_none()
        };
        let nodes = machines.iter().filter(waits);
        let nodes = nodes.map(|machine| (machine.uid.clone(), node_facts(runtime, world, machine))).collect();
        let snapshot = Snapshot {
            now: runtime.now(),
            skew: runtime.skew(),
            gaps: runtime.unseen(),
            nodes_freshness: runtime.freshness::<NodeFacts>(world),
            frozen: frozen_by_server(runtime, world),
            nodes,
            boots: boots(&world.seen, &machines),
            never_joined: never_joined(&world.seen, &machines),
            machines,
            unheard,
            sets,
            unknown_owner,
            unseen,
            defaults: runtime.tools.machine().defaults.clone(),
        };
        Observed::Ready(snapshot)
    }

    fn plan(tools: &Tools, snapshot: &Snapshot) -> Plan<Action> {
        (tools.planners.replacement)(snapshot)
    }

    async fn act(runtime: &Arc<Runtime>, s: &Snapshot, action: Action) -> Result<(), Stop> {
        let (machine, write, event) = match action {
            Action::MarkFailed { machine, write, event } => (machine, write, event),
            Action::ReadNodes => {
                let key = s.machines.first().map(|machine| runtime.lock().seen.replacement_key(machine));
                key.iter().for_each(|key| runtime.read_soon::<NodeFacts>(key));
                return Ok(());
            }
            Action::LookForNode { machine, node } => {
                look_for(runtime, &machine, &node).await?;
                let key = runtime.lock().seen.replacement_key(&machine);
                runtime.queue.wake(key);
                return Ok(());
            }
        };
        let key = object_key(&machine.namespace, &machine.name);
        let replacement = runtime.lock().seen.replacement_key(&machine);
        let charged = [Key::Machine(key.clone()), replacement, given_up(&machine)];
        // Since it was read, the Machine may have recovered, or its owner may have changed, which
        // shares the limit with other Machines.
        let patch = deadline_patch(&machine, &write)
            .test(&["metadata", "ownerReferences"], machine.owners_as_read().as_ref());
        let failed = Write { runtime, charged: &charged, key };
        failed.patch_status_that_takes_away::<MachineFacts>(patch).await?;
        if let (Some(_), Some(set)) = (s.never_joins(&machine), &machine.owner) {
            let rows = &mut runtime.lock().seen.memory.never_joined;
            let before = rows.get(&set.uid).map_or(0, |row| row.count);
            rows.insert(set.uid.clone(), NeverJoined { count: before.saturating_add(1), last: s.now });
        }
        let said = write.operation.as_ref().map_or("", |operation| operation.description.as_str());
        runtime.recorder.record(&machine_reference(&machine), EventType::Warning, event, said);
        Ok(())
    }

    fn takes_away(action: &Action) -> bool {
        match action {
            Action::MarkFailed { .. } => true,
            Action::ReadNodes | Action::LookForNode { .. } => false,
        }
    }

    fn reference(_: &Snapshot) -> Option<ObjectReference> {
        None
    }
}

/// Returns the last answers about instances that have not joined.
fn boots(seen: &Seen, machines: &[Arc<MachineFacts>]) -> BTreeMap<String, Answered<Boot>> {
    let boot = |machine: &Arc<MachineFacts>| {
        let answered = seen.memory.answers.get(&machine.uid)?.boot.as_deref()?.clone();
        Some((machine.uid.clone(), answered))
    };
    machines.iter().filter_map(boot).collect()
}

/// Returns how many Machines of each set could never join since a Machine of the set joined.
fn never_joined(seen: &Seen, machines: &[Arc<MachineFacts>]) -> BTreeMap<String, u32> {
    let mut rows = BTreeMap::new();
    for set in machines.iter().filter_map(|machine| machine.owner.as_ref()) {
        if let Some(row) = seen.memory.never_joined.get(&set.uid) {
            rows.insert(set.uid.clone(), row);
        }
    }
    for machine in machines.iter().filter(|machine| machine.status.phase == Phase::Running) {
        if let (Some(set), Some(joined)) = (&machine.owner, machine.status.phase_since)
            && rows.get(&set.uid).is_some_and(|row| row.last < joined)
        {
            rows.remove(&set.uid);
        }
    }
    rows.into_iter().map(|(set, row)| (set, row.count)).collect()
}

/// Returns the facts about the Node of a Machine.
fn node_facts(runtime: &Runtime, world: &World, machine: &MachineFacts) -> NodeOf {
    let own = node_of(runtime, &world.seen, machine);
    let others = own.map_or_else(Vec::new, |own| other_nodes(runtime, &world.seen, machine, own));
    let node = own.map(|node| node.facts.clone());
    let identity = identity(runtime, &world.seen, machine, node.as_deref());
    let reads = world.seen.memory.reads.get(&machine.uid).cloned().unwrap_or_default();
    let others = others.into_iter().map(|other| other.node).collect();
    NodeOf { node: Known::from_store(node), others, identity, reads }
}

/// Returns whether the replacements of a Machine are counted under the key with that UID.
fn is_counted_by(world: &World, machine: &MachineFacts, id: &str) -> bool {
    world.seen.replacement_id(machine) == id
}

/// Returns an additional key that is charged when a Machine is marked as Failed. If the Machine is
/// adopted, or its set moves, before the write is seen, its new key must know about this write.
fn given_up(machine: &MachineFacts) -> Key {
    Key::Replacement(machine.uid.clone())
}

/// Returns whether the Node of a Machine has a preservation annotation that was not copied to the
/// Machine yet.
fn is_unheard(runtime: &Runtime, world: &World, machine: &MachineFacts) -> bool {
    node_of(runtime, &world.seen, machine).is_some_and(|node| {
        machine.preserve_news(&node.facts).is_some()
            && identity(runtime, &world.seen, machine, Some(&node.facts)).same_instance
    })
}
