//! Connects Nodes without a Machine, and Nodes that may have none, with the work loop. The rules
//! are in `machinist_plan::mcm::orphaned_node`.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use machinist_api::constants::{annotations, finalizers};
use machinist_core::plus;
use machinist_driver::Providers;
use machinist_kube::{GuardedPatch, ObjectKey};
use machinist_plan::mcm::Plan;
use machinist_plan::mcm::facts::{MachineFacts, NODE_MARK, NodeFacts};
use machinist_plan::mcm::orphaned_node::{self, Action, MachineRead, Snapshot, is_young, may_have};
use machinist_runtime::{Kind, Observed, Stop};
use serde_json::Value;

use super::contract::{Mcm, Runtime, World, Write};
use super::key::Key;
use super::machine::has_better_node;
use super::machine_list::list_machines;
use super::namespace;
use super::options::Tools;
use super::seen::{BY_NODE, HELD, Seen, YES};

/// How long the list of Machines for all Nodes may take.
const LISTED_WITHIN: Duration = Duration::from_secs(30);

/// Nodes that no Machine has: those that are being deleted, and those that are annotated.
pub(crate) struct OrphanedNodes;

impl Kind<Mcm> for OrphanedNodes {
    type Id = String;
    type Snapshot = Snapshot;
    type Action = Action;

    fn ids(seen: &Seen, tools: &Tools) -> Vec<String> {
        let held = seen.nodes.by_index(HELD, YES).map(|(key, _)| key.name.clone());
        let is_marked = |node: &NodeFacts| marks_unmanaged(tools) && may_be_unmanaged(seen, node);
        let unmanaged = seen.nodes.iter().filter(|(_, node)| is_marked(&node.facts));
        held.chain(unmanaged.map(|(key, _)| key.name.clone())).collect()
    }
    fn is_decided(tools: &Tools) -> bool {
        tools.decides_nodes()
    }

    fn observe(runtime: &Runtime, world: &World, name: &String) -> Observed<Snapshot> {
        let node = world.seen.nodes.get(&ObjectKey::cluster_scoped(name)).map(|node| &node.facts);
        let Some(node) = node else { return Observed::Gone };
        let machine = runtime.tools.machine();
        if marks_unmanaged(&runtime.tools) && may_be_unmanaged(&world.seen, node) {
            return Observed::Ready(staying(runtime, world, node));
        }
        if !node.is_held() {
            return Observed::Gone;
        }
        let providers = &machine.providers;
        // The Machine of the Node removes the finalizer itself. If the Machine is gone, this key is
        // woken. Comparing with all Machines takes time, and the Node's name is usually enough.
        // A Machine keeps only one Node of its instance.
        let machines = &world.seen.machines;
        let keeps = |machine: &MachineFacts| !has_better_node(runtime, &world.seen, machine, node);
        let is_kept = machines.by_index(BY_NODE, &node.name).any(|(_, machine)| keeps(&machine.facts));
        let may_have = |machine: &MachineFacts| has(providers, machine, node) && keeps(machine);
        if is_kept || machines.iter().any(|(_, machine)| may_have(&machine.facts)) {
            return Observed::Gone;
        }
        Observed::Ready(Snapshot {
            now: runtime.now(),
            node: node.clone(),
            has_machine: false,
            listing_until: None,
            installation: (machine.cluster.clone(), runtime.options.namespace.clone()),
            namespace_uid: world.seen.memory.namespace_uid.clone().flatten(),
            look: world.seen.memory.machine_looks.get(&node.uid).cloned(),
            creation_timeout: machine.defaults.creation_timeout,
        })
    }

    fn plan(tools: &Tools, snapshot: &Snapshot) -> Plan<Action> {
        (tools.planners.orphaned_node)(snapshot)
    }

    async fn act(runtime: &Arc<Runtime>, s: &Snapshot, action: Action) -> Result<(), Stop> {
        // An annotated Node of another namespace must not be released.
        namespace::know(runtime).await?;
        match action {
            Action::LookForMachine => look_for_machine(runtime, s).await,
            Action::ListMachines => list_for_all_nodes(runtime).await,
            Action::Disown => disown(runtime, s).await,
            Action::Release => release(runtime, s, unchanged_mark(s)).await,
            Action::ReleaseUnmarked => {
                let read = s.node.annotations.as_ref();
                let key = annotations::NOT_MANAGED_BY_MCM;
                let value = annotations::NOT_MANAGED;
                release(runtime, s, GuardedPatch::new(&s.node.uid).set_annotation(read, key, value)).await
            }
        }
    }

    fn reference(_: &Snapshot) -> Option<ObjectReference> {
        None
    }
}

/// Whether this process annotates Nodes that no Machine has.
fn marks_unmanaged(tools: &Tools) -> bool {
    tools.machine.as_ref().is_some_and(|machine| machine.defaults.orphan_period.is_some())
}

/// Whether a Node may have to be annotated: it lacks a mark of that, and no Machine names it.
fn may_be_unmanaged(seen: &Seen, node: &NodeFacts) -> bool {
    orphaned_node::may_be_unmanaged(node) && seen.machines.by_index(BY_NODE, &node.name).next().is_none()
}

/// Collects the facts about a Node that stays.
fn staying(runtime: &Runtime, world: &World, node: &Arc<NodeFacts>) -> Snapshot {
    let (now, machine, machines) = (runtime.now(), runtime.tools.machine(), &world.seen.machines);
    let own = machine.defaults.creation_timeout;
    // Comparing with all Machines takes time, and most of these Nodes are about to be recorded.
    let is_young = is_young(node, now, own);
    let mut others = machines.iter().filter(|_| !is_young);
    let has_machine = others.any(|(_, other)| has(&machine.providers, &other.facts, node));
    let timeouts =
        machines.iter().filter(|_| !is_young).filter_map(|(_, other)| other.facts.creation_timeout);
    Snapshot {
        now,
        node: node.clone(),
        has_machine,
        installation: (machine.cluster.clone(), runtime.options.namespace.clone()),
        namespace_uid: world.seen.memory.namespace_uid.clone().flatten(),
        look: world.seen.memory.machine_looks.get(&node.uid).cloned(),
        listing_until: world.seen.memory.listing_until.filter(|until| now < *until),
        creation_timeout: timeouts.chain([own]).max().unwrap_or(own),
    }
}

/// Lists the Machines with quorum, and remembers the answer for every Node that may have to be
/// annotated.
async fn list_for_all_nodes(runtime: &Arc<Runtime>) -> Result<(), Stop> {
    let started = runtime.now();
    {
        let listing = &mut runtime.lock().seen.memory.listing_until;
        if listing.is_some_and(|until| started < until) {
            // That list wakes the key.
            return Ok(());
        }
        *listing = Some(plus(started, LISTED_WITHIN));
    }
    let list = list_machines(runtime).await;
    let options = runtime.tools.machine();
    let nodes: Vec<_> = {
        let seen = &mut runtime.lock().seen;
        seen.memory.listing_until = None;
        let all = seen.nodes.iter().map(|(_, node)| &node.facts).filter(|node| may_be_unmanaged(seen, node));
        all.filter(|node| !is_young(node, started, options.defaults.creation_timeout)).cloned().collect()
    };
    let list = list?;
    // A Machine that cannot be parsed may have any Node.
    let unreadable = list.unreadable.first().map(|(key, _)| key.name.clone());
    for node in nodes {
        // Comparing with all Machines takes time, so nothing is locked.
        let has_it = |machine: &MachineFacts| has(&options.providers, machine, &node);
        let machine = list.items.iter().find(|(_, machine)| has_it(&machine.facts));
        let claimed_by = machine.map(|(key, _)| key.name.clone()).or_else(|| unreadable.clone());
        let seen = &mut runtime.lock().seen;
        let now = seen.nodes.get(&ObjectKey::cluster_scoped(&node.name));
        if now.is_some_and(|now| now.uid == node.uid) {
            seen.memory.machine_looks.insert(node.uid.clone(), MachineRead { started, claimed_by });
            runtime.queue.wake(Key::Node(node.name.clone()));
        }
    }
    Ok(())
}

/// Annotates a Node that stays, and removes our finalizer, in one patch.
async fn disown(runtime: &Arc<Runtime>, s: &Snapshot) -> Result<(), Stop> {
    let node = &s.node;
    let read = node.annotations.as_ref();
    let patch = if node.mark().is_some() { unchanged_mark(s) } else { GuardedPatch::new(&node.uid) };
    let patch = if node.is_not_managed() {
        patch
    } else {
        patch.set_annotation(read, annotations::NOT_MANAGED_BY_MCM, annotations::NOT_MANAGED)
    };
    // Without a mark, the finalizer may belong to another installation.
    let patch = if node.has_finalizer && node.mark().is_some() {
        patch.remove_finalizer(node.finalizers.as_deref(), finalizers::NODE)
    } else {
        patch
    };
    let charged = [Key::Node(node.name.clone())];
    let key = ObjectKey::cluster_scoped(&node.name);
    Write { runtime, charged: &charged, key }.patch::<NodeFacts>(patch).await?;
    tracing::info!(node = node.name, "Annotated a Node that no Machine has");
    Ok(())
}

/// Returns whether a Machine may have a Node.
fn has(providers: &Providers, machine: &MachineFacts, node: &NodeFacts) -> bool {
    may_have(machine, node, |a, b| providers.same_instance(a, b) == Some(true))
}

/// Lists the Machines with quorum.
async fn look_for_machine(runtime: &Arc<Runtime>, s: &Snapshot) -> Result<(), Stop> {
    let started = runtime.now();
    let list = list_machines(runtime).await?;
    let providers = &runtime.tools.machine().providers;
    let mut world = runtime.lock();
    let machine = list.items.iter().find(|(_, machine)| {
        let machine = &machine.facts;
        has(providers, machine, &s.node) && !has_better_node(runtime, &world.seen, machine, &s.node)
    });
    // A Machine that cannot be parsed may have the Node.
    let unreadable = || list.unreadable.first().map(|(key, _)| key.name.clone());
    let claimed_by = machine.map(|(key, _)| key.name.clone()).or_else(unreadable);
    let node = world.seen.nodes.get(&ObjectKey::cluster_scoped(&s.node.name));
    if node.is_some_and(|node| node.uid == s.node.uid) {
        let look = MachineRead { started, claimed_by };
        world.seen.memory.machine_looks.insert(s.node.uid.clone(), look);
    }
    drop(world);
    runtime.queue.wake(Key::Node(s.node.name.clone()));
    Ok(())
}

/// A patch that fails if the mark of the Node has changed since it was read.
fn unchanged_mark(s: &Snapshot) -> GuardedPatch {
    let mark = s.node.annotations.as_ref().and_then(|all| all.get(NODE_MARK)).map(Value::from);
    GuardedPatch::new(&s.node.uid).test(&["metadata", "annotations", NODE_MARK], mark.as_ref())
}

async fn release(runtime: &Arc<Runtime>, s: &Snapshot, patch: GuardedPatch) -> Result<(), Stop> {
    let node = &s.node;
    let key = ObjectKey::cluster_scoped(&node.name);
    let charged = [Key::Node(node.name.clone())];
    let patch = patch.remove_finalizer(node.finalizers.as_deref(), finalizers::NODE);
    Write { runtime, charged: &charged, key }.patch::<NodeFacts>(patch).await?;
    tracing::info!(node = node.name, "Released a Node that no Machine has");
    Ok(())
}
