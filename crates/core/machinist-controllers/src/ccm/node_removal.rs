//! Connects the deletion of Nodes with the work loop. The rules are in
//! `machinist_plan::ccm::node_removal`. This is the only module that deletes Nodes.

use super::seen::Seen;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use machinist_core::Attempts;
use machinist_instance::RecordedId;
use machinist_kube::ObjectKey;
use machinist_plan::ccm::facts::CloudNodeFacts;
use machinist_plan::ccm::node_removal::{
    Action, DeletionRefusal, NodeRemoval, Snapshot, Suspect, suspension,
};
use machinist_plan::ccm::{Plan, Why, names};
use machinist_runtime::{Kind, Observed, Opened, Stop};

use super::contract::{Ccm, Runtime, World, Write};
use super::events::{reference_of_program, tell};
use super::key::Key;
use super::memory::{self, REMOVAL};
use super::node::{listed, owner, recorded, reference_of};
use super::options::{SETTINGS_NAMESPACE, Tools};
use super::{account_proof, cloud};

/// The removal of Nodes in the work loop.
pub(crate) struct NodeRemovals;

impl Kind<Ccm> for NodeRemovals {
    type Id = ();
    type Snapshot = Snapshot;
    type Action = Action;

    fn ids(_: &Seen, _: &Tools) -> Vec<()> {
        vec![()]
    }
    fn is_decided(tools: &Tools) -> bool {
        tools.options.controllers.node_lifecycle
    }

    fn observe(runtime: &Runtime, world: &World, (): &()) -> Observed<Snapshot> {
        let opened = cloud::open(runtime, &world.seen).ok();
        let suspects: Vec<Suspect> = world
            .seen
            .memory
            .suspects
            .iter()
            .filter_map(|(uid, name)| suspect(runtime, world, opened.as_ref(), uid, name))
            .collect();
        // Only a suspect makes the other Nodes matter.
        let (nodes, shown) =
            if suspects.is_empty() { (0, None) } else { count(runtime, world, opened.as_ref()) };
        let settings = ObjectKey::new(SETTINGS_NAMESPACE, &runtime.tools.options.settings_name);
        let settings = world.seen.settings.get(&settings);
        Observed::Ready(Snapshot {
            now: runtime.now(),
            process: runtime.process_facts(opened.as_ref()),
            options: runtime.tools.options.nodes.clone(),
            account: cloud::account(runtime, world, opened.as_ref()),
            nodes,
            shown,
            suspects,
            removed: world.seen.memory.removed.clone(),
            allowed_on: format!("ConfigMap {SETTINGS_NAMESPACE}/{}", runtime.tools.options.settings_name)
                .into(),
            allowed_until: settings.and_then(|settings| settings.facts.allow_deletion_until.clone()),
            emitted: world.seen.memory.emitted(REMOVAL),
        })
    }

    fn plan(tools: &Tools, snapshot: &Snapshot) -> Plan<Action> {
        (tools.options.planners.node_removal)(snapshot)
    }

    /// Stores why the deletion of Nodes is suspended. A user asks about the Node, and not about the
    /// brake, so the suspects explain themselves with this reason.
    fn publish(runtime: &Runtime, snapshot: &Snapshot, why: &Why) {
        let brake = suspension(why).cloned();
        let before = std::mem::replace(&mut runtime.lock().seen.memory.brake, brake.clone());
        if before != brake {
            let suspects = snapshot.suspects.iter();
            suspects.for_each(|suspect| runtime.wake(Key::Node(suspect.node.name.clone())));
        }
    }

    async fn act(runtime: &Arc<Runtime>, _: &Snapshot, action: Action) -> Result<(), Stop> {
        match action {
            Action::List => cloud::list(runtime, Key::NodeRemoval),
            Action::Delete(removal) => delete(runtime, &removal).await,
            Action::Tell { node, event } => {
                let object =
                    node.as_ref().map_or_else(|| reference_of_program(runtime), |node| reference_of(node));
                if event.reason == names::NODE_DELETION_SUSPENDED {
                    tracing::warn!(message = event.message, "Deletion of Nodes is suspended");
                }
                tell(runtime, &object, REMOVAL, &event);
                Ok(())
            }
        }
    }

    /// A deletion and its announcement: an Event of a deletion that must wait would be wrong, and
    /// would be repeated with each list.
    fn takes_away(action: &Action) -> bool {
        match action {
            Action::Delete(_) => true,
            Action::Tell { event, .. } => event.reason == names::DELETING_NODE,
            Action::List => false,
        }
    }

    fn is_rehearsed(runtime: &Runtime, action: &Action) -> bool {
        runtime.tools.options.dry_run
            && match action {
                Action::List => false,
                Action::Delete(_) | Action::Tell { .. } => true,
            }
    }

    /// The key stands for all Nodes.
    fn reference(_: &Snapshot) -> Option<ObjectReference> {
        None
    }
}

/// Collects the facts about a Node whose instance was absent.
fn suspect(
    runtime: &Runtime,
    world: &World,
    opened: Option<&Opened>,
    uid: &str,
    name: &str,
) -> Option<Suspect> {
    let seen = &world.seen;
    let node = seen.nodes.get(&ObjectKey::cluster_scoped(name)).filter(|node| node.uid == uid)?;
    let node = node.facts.clone();
    let recorded = recorded(runtime, &node);
    let answers = seen.memory.answers.get(uid).cloned().unwrap_or_default();
    let account = opened.map(|opened| opened.account().clone());
    Some(Suspect {
        ownership: account_proof::ownership(seen, &node, account, &answers),
        listed: opened.and_then(|opened| listed(opened, &node, &recorded)),
        owner: owner(seen, &node),
        refused: seen.memory.refused.get(uid).cloned(),
        recorded,
        answers,
        node,
    })
}

/// Counts the Nodes with an instance of this cloud, and how many of them the last list shows.
fn count(runtime: &Runtime, world: &World, opened: Option<&Opened>) -> (u32, Option<(jiff::Timestamp, u32)>) {
    let list = opened.and_then(|opened| opened.account.sightings());
    let (mut nodes, mut shown) = (0, 0);
    for (_, node) in world.seen.nodes.iter() {
        let node = &node.facts;
        if node.deleting_since.is_some() || node.is_uninitialized() {
            continue;
        }
        if let RecordedId::Ours(id) = recorded(runtime, node) {
            nodes += 1;
            shown += u32::from(list.as_ref().is_some_and(|list| list.of(&id).is_some()));
        }
    }
    (nodes, list.map(|list| (list.ended, shown)))
}

async fn delete(runtime: &Arc<Runtime>, removal: &NodeRemoval) -> Result<(), Stop> {
    if removal.valid_until() < runtime.now() {
        return Err(Stop::NotNow("the permission to delete the Node has expired"));
    }
    let node = removal.node();
    let charged = [Key::NodeRemoval, Key::Node(node.name.clone())];
    let write = Write { runtime, charged: &charged, key: ObjectKey::cluster_scoped(&node.name) };
    tracing::info!(node = node.name, evidence = %removal.absences(), "Deleting the Node of a missing instance");
    let deleted =
        write.delete_unchanged::<CloudNodeFacts>(&node.uid, node.resource_version.as_precondition());
    let (now, deleted) = (runtime.now(), deleted.await);
    let memory: &mut memory::Memory = &mut runtime.lock().seen.memory;
    match deleted {
        Ok(()) => {
            memory.refused.remove(&node.uid);
            memory.note_removed(removal.is_expected(), now);
            Ok(())
        }
        // One rejected DELETE must not hold up the other Nodes. The planner retries it later.
        Err(Stop::Refused { message, .. }) => {
            tracing::warn!(node = node.name, message, "The API server rejected the deletion of a Node");
            let before = memory.refused.get(&node.uid).map_or(0, |before| before.attempts.count);
            let attempts = Attempts { count: before.saturating_add(1), last: now };
            memory.refused.insert(node.uid.clone(), DeletionRefusal { attempts, message });
            Ok(())
        }
        Err(stop) => {
            // The DELETE may take effect, and is repeated without this planner: it counts for the
            // brake.
            if matches!(stop, Stop::Unanswered(_)) {
                memory.note_removed(removal.is_expected(), now);
            }
            Err(stop)
        }
    }
}
