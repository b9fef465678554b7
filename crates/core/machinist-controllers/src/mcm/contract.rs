//! The machine API as a contract of the runtime: its kinds, its keys, and which process decides
//! about which kind.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use machinist_core::Reason;
use machinist_driver::Check;
use machinist_kube::{Cluster, ObjectKey};
use machinist_plan::facts::{
    AttachmentFacts, BudgetFacts, ClassFacts, MachineDeploymentFacts, MachineFacts, MachineSetFacts,
    NodeFacts, PodFacts,
};
use machinist_plan::{McmReason, Why};
use machinist_runtime::{Contract, Feed, WhyRecord, feed, pass};
use machinist_serve::{Gauge, Metrics};

use super::key::Key;
use super::kinds;
use super::options::Tools;
use super::seen::{HELD, SecretEntry, Seen, TokenEntry, YES};

const REMEMBERED_MACHINES: Gauge =
    Gauge::new("machinist_remembered_machines", "Machines with remembered answers, evictions or reads.");
const REMEMBERED_OWNERS: Gauge = Gauge::new(
    "machinist_remembered_owners",
    "MachineSets and MachineDeployments with remembered writes and failures.",
);

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
        let lost = seen.machines.iter().filter(|(_, machine)| seen.unknown_owner(&machine.facts).is_some());
        keys.extend(lost.map(|(key, _)| Key::Owner(key.clone())));
        let orphaned = seen.nodes.by_index(HELD, YES);
        keys.extend(orphaned.map(|(key, _)| Key::Node(key.clone())));
        keys.extend(seen.sets.iter().map(|(key, _)| Key::Set(key.clone())));
        keys.extend(seen.deployments.iter().map(|(key, _)| Key::Deployment(key.clone())));
        keys
    }

    fn decides_about(tools: &Tools, key: &Key) -> bool {
        match key {
            Key::Machine(_)
            | Key::Class(_)
            | Key::Secret(_)
            | Key::Replacement(_)
            | Key::Owner(_)
            | Key::Node(_) => tools.machine.is_some(),
            Key::Set(_) | Key::Deployment(_) => tools.decides_sets,
        }
    }

    /// The label `force-deletion` works without the cluster of the Nodes.
    fn goes_on_without_target(seen: &Seen, key: &Key) -> bool {
        let Key::Machine(id) = key else { return false };
        let machine = seen.machines.get(id).map(|entry| &entry.facts);
        machine.is_some_and(|it| it.deleting_since.is_some() && it.wants_force_deletion())
    }

    fn pass<'a>(runtime: &'a Arc<Runtime>, key: &'a Key) -> BoxFuture<'a, ()> {
        match key {
            Key::Machine(id) => Box::pin(pass::<Self, kinds::Machines>(runtime, key, id)),
            Key::Class(id) => Box::pin(pass::<Self, kinds::Classes>(runtime, key, id)),
            Key::Secret(id) => Box::pin(pass::<Self, kinds::Secrets>(runtime, key, id)),
            Key::Replacement(id) => Box::pin(pass::<Self, kinds::Replacements>(runtime, key, id)),
            Key::Owner(id) => Box::pin(pass::<Self, kinds::LostOwners>(runtime, key, id)),
            Key::Node(id) => Box::pin(pass::<Self, kinds::OrphanedNodes>(runtime, key, id)),
            Key::Set(id) => Box::pin(pass::<Self, kinds::Sets>(runtime, key, id)),
            Key::Deployment(id) => Box::pin(pass::<Self, kinds::Deployments>(runtime, key, id)),
        }
    }

    fn longest_timeout(seen: &Seen, tools: &Tools) -> Duration {
        let Some(machine) = &tools.machine else { return Duration::ZERO };
        let defaults = &machine.defaults;
        let machines = seen.machines.iter().flat_map(|(_, entry)| {
            let configuration = &entry.facts.spec.configuration;
            let own = [configuration.drain_timeout(), configuration.health_timeout()];
            let own = own.into_iter().flatten().filter_map(|timeout| timeout.to_std());
            own.chain(entry.facts.creation_timeout)
        });
        [defaults.creation_timeout, defaults.health_timeout, defaults.drain_timeout]
            .into_iter()
            .chain(machines)
            .max()
            .unwrap_or_default()
    }

    fn forget_moments(seen: &mut Seen, now: Timestamp) {
        seen.memory.forget_moments(now);
    }

    fn measure(seen: &Seen, _: Timestamp, metrics: &Metrics) {
        let (machines, owners) = seen.memory.remembered();
        metrics.set_number(&REMEMBERED_MACHINES, &[], machines);
        metrics.set_number(&REMEMBERED_OWNERS, &[], owners);
    }

    /// Only decisions about Machines and Nodes depend on the target cluster.
    fn depends_on(key: &Key, cluster: &Cluster) -> bool {
        match key {
            Key::Machine(_) | Key::Replacement(_) | Key::Node(_) => true,
            Key::Class(_) | Key::Secret(_) | Key::Owner(_) | Key::Set(_) | Key::Deployment(_) => {
                *cluster == Cluster::Control
            }
        }
    }

    /// Only Machines have instances.
    fn check_cloud(tools: &Tools, key: &Key) -> Option<Check> {
        match key {
            Key::Machine(_) => tools.machine.as_ref()?.provider.check(),
            Key::Class(_)
            | Key::Secret(_)
            | Key::Replacement(_)
            | Key::Owner(_)
            | Key::Node(_)
            | Key::Set(_)
            | Key::Deployment(_) => None,
        }
    }

    fn key_named(kind: &str, namespace: &str, name: &str) -> Option<Key> {
        let id = ObjectKey::new(namespace, name);
        match kind {
            "machine" => Some(Key::Machine(id)),
            "machineclass" => Some(Key::Class(id)),
            "machineset" => Some(Key::Set(id)),
            "machinedeployment" => Some(Key::Deployment(id)),
            "replacement" => Some(Key::Replacement(name.to_owned())),
            "owner" => Some(Key::Owner(id)),
            "node" => Some(Key::Node(ObjectKey::cluster_scoped(name))),
            _ => None,
        }
    }

    fn shows_former_leader(seen: &Seen) -> bool {
        let sets = seen.sets.iter().filter_map(|(_, set)| set.facts.status.as_ref());
        let deployments = seen.deployments.iter().filter_map(|(_, entry)| entry.facts.status.as_ref());
        let observed = sets.map(|status| status.observed_generation);
        observed.chain(deployments.map(|status| status.observed_generation)).any(|generation| 0 < generation)
    }

    fn late_writes(seen: &Seen) -> usize {
        seen.memory.late_raises() + seen.memory.open_adoptions()
    }

    /// For a Machine whose owner does not exist, returns the reason of the decision about the
    /// owner. For a Machine that waits for its replacement, returns the reason of the decision
    /// about replacements.
    fn why<'w>(world: &'w World, key: &Key, record: &'w WhyRecord<McmReason>, now: Timestamp) -> &'w Why {
        let turn = || {
            let Key::Machine(id) = key else { return None };
            let machine = world.seen.machines.get(id)?;
            let turn = world.passes.whys.get(&world.seen.replacement_key(&machine.facts))?;
            is_about_turns(&turn.why).then_some(&turn.why)
        };
        let lost = || {
            let Key::Machine(id) = key else { return None };
            let owner = &world.passes.whys.get(&Key::Owner(id.clone()))?.why;
            matches!(owner.reason, Reason::Contract(McmReason::OwnerUnknown { .. })).then_some(owner)
        };
        let turn = || may_await_turn(&record.why, now).then(turn).flatten();
        lost().or_else(turn).unwrap_or(&record.why)
    }
}

/// Returns whether a Machine may wait for its replacement. Another decision, which considers all
/// Machines of the deployment, marks Machines as Failed that were unhealthy for too long, or whose
/// Node did not join in time.
pub(crate) fn may_await_turn(machine: &Why, now: Timestamp) -> bool {
    let is_overdue = machine.deadline.as_ref().is_some_and(|deadline| deadline.at <= now);
    let waits_for_its_node = matches!(
        machine.reason,
        Reason::Contract(
            McmReason::Unhealthy { .. }
                | McmReason::Joining { .. }
                | McmReason::BootFailed { .. }
                | McmReason::NodeNotOurs { .. }
                | McmReason::CriticalComponents { .. }
        )
    );
    waits_for_its_node && is_overdue
}

/// Returns whether that other decision currently marks no Machine as Failed.
pub(crate) fn is_about_turns(replacement: &Why) -> bool {
    matches!(
        replacement.reason,
        Reason::Contract(
            McmReason::ReplacementLimit { .. }
                | McmReason::ReplacementGap { .. }
                | McmReason::ReplacementImpossible { .. }
                | McmReason::OwnerUnknown { .. }
        ) | Reason::ClockSkew { .. }
            | Reason::ServerSilent { .. }
    )
}
