//! The machine API as a contract of the runtime: its kinds, its keys, and which process decides
//! about which kind.

use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use machinist_core::Reason;
use machinist_kube::ObjectKey;
use machinist_plan::facts::{
    AttachmentFacts, BudgetFacts, ClassFacts, MachineDeploymentFacts, MachineFacts, MachineSetFacts,
    NodeFacts, PodFacts,
};
use machinist_plan::{McmReason, Why};
use machinist_runtime::{Contract, Feed, WhyRecord, feed, pass};

use super::key::Key;
use super::kinds;
use super::options::Tools;
use super::seen::{SecretEntry, Seen, TokenEntry};

/// The machine API.
pub struct Mcm;

/// The runtime of a process of the machine API.
pub(crate) type Runtime = machinist_runtime::Runtime<Mcm>;
/// Everything that a process of the machine API has observed.
pub(crate) type World = machinist_runtime::World<Mcm>;
/// One write of a process of the machine API.
pub(crate) type Write<'a> = machinist_runtime::Write<'a, Mcm>;

impl Contract for Mcm {
    type Key = Key;
    type Seen = Seen;
    type Tools = Tools;
    type Reason = McmReason;

    fn feeds(tools: &Tools) -> Vec<Box<dyn Feed<Self>>> {
        let mut feeds = vec![feed::<Self, MachineFacts>(), feed::<Self, MachineSetFacts>()];
        if tools.decides_sets {
            feeds.push(feed::<Self, MachineDeploymentFacts>());
        }
        if tools.machine.is_some() {
            feeds.extend([
                feed::<Self, ClassFacts>(),
                feed::<Self, SecretEntry>(),
                feed::<Self, TokenEntry>(),
                feed::<Self, NodeFacts>(),
                feed::<Self, PodFacts>(),
                feed::<Self, BudgetFacts>(),
                feed::<Self, AttachmentFacts>(),
            ]);
        }
        feeds
    }

    fn keys(seen: &Seen, _: &Tools) -> Vec<Key> {
        let mut keys = Vec::new();
        keys.extend(seen.machines.iter().map(|(key, _)| Key::Machine(key.clone())));
        keys.extend(seen.machines.iter().map(|(_, entry)| seen.replacement_key(&entry.facts)));
        keys.extend(seen.classes.iter().map(|(key, _)| Key::Class(key.clone())));
        keys.extend(seen.secrets.iter().map(|(key, _)| Key::Secret(key.clone())));
        keys.extend(seen.sets.iter().map(|(key, _)| Key::Set(key.clone())));
        keys.extend(seen.deployments.iter().map(|(key, _)| Key::Deployment(key.clone())));
        keys
    }

    fn decides_about(tools: &Tools, key: &Key) -> bool {
        match key {
            Key::Machine(_) | Key::Class(_) | Key::Secret(_) | Key::Replacement(_) => tools.machine.is_some(),
            Key::Set(_) | Key::Deployment(_) => tools.decides_sets,
        }
    }

    fn pass<'a>(runtime: &'a Arc<Runtime>, key: &'a Key) -> BoxFuture<'a, ()> {
        match key {
            Key::Machine(id) => Box::pin(pass::<Self, kinds::Machines>(runtime, key, id)),
            Key::Class(id) => Box::pin(pass::<Self, kinds::Classes>(runtime, key, id)),
            Key::Secret(id) => Box::pin(pass::<Self, kinds::Secrets>(runtime, key, id)),
            Key::Replacement(id) => Box::pin(pass::<Self, kinds::Replacements>(runtime, key, id)),
            Key::Set(id) => Box::pin(pass::<Self, kinds::Sets>(runtime, key, id)),
            Key::Deployment(id) => Box::pin(pass::<Self, kinds::Deployments>(runtime, key, id)),
        }
    }

    fn forget_moments(seen: &mut Seen, now: Timestamp) {
        seen.memory.forget_moments(now);
    }

    fn gauges(seen: &Seen, _: Timestamp) -> Vec<(&'static str, usize)> {
        let (machines, owners) = seen.memory.remembered();
        vec![("machinist_remembered_machines", machines), ("machinist_remembered_owners", owners)]
    }

    fn key_named(kind: &str, namespace: &str, name: &str) -> Option<Key> {
        let id = ObjectKey::new(namespace, name);
        match kind {
            "machine" => Some(Key::Machine(id)),
            "machineclass" => Some(Key::Class(id)),
            "machineset" => Some(Key::Set(id)),
            "machinedeployment" => Some(Key::Deployment(id)),
            "replacement" => Some(Key::Replacement(name.to_owned())),
            _ => None,
        }
    }

    /// For a Machine that waits for its replacement, returns the reason of the decision about
    /// replacements.
    fn why<'w>(world: &'w World, key: &Key, record: &'w WhyRecord<McmReason>, now: Timestamp) -> &'w Why {
        let turn = || {
            let Key::Machine(id) = key else { return None };
            let machine = world.seen.machines.get(id)?;
            let turn = world.passes.whys.get(&world.seen.replacement_key(&machine.facts))?;
            is_about_turns(&turn.why).then_some(&turn.why)
        };
        may_await_turn(&record.why, now).then(turn).flatten().unwrap_or(&record.why)
    }
}

/// Returns whether a Machine may wait for its replacement. Another decision, which considers all
/// Machines of the deployment, marks Machines that were unhealthy for too long as Failed.
pub(crate) fn may_await_turn(machine: &Why, now: Timestamp) -> bool {
    let is_overdue = machine.deadline.as_ref().is_some_and(|deadline| deadline.at <= now);
    matches!(machine.reason, Reason::Contract(McmReason::Unhealthy { .. })) && is_overdue
}

/// Returns whether that other decision currently marks no Machine as Failed.
pub(crate) fn is_about_turns(replacement: &Why) -> bool {
    matches!(
        replacement.reason,
        Reason::Contract(
            McmReason::ReplacementLimit { .. }
                | McmReason::ReplacementGap { .. }
                | McmReason::OwnerUnknown { .. }
        ) | Reason::ClockSkew { .. }
    )
}
