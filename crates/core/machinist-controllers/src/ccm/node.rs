//! Connects Nodes with the work loop. The rules are in `machinist_plan::ccm::node`.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use machinist_core::{Answered, Call, Found};
use machinist_instance::{Instance, InstanceRef, NodeName, Power, RecordedId, Sighting};
use machinist_kube::{GuardedPatch, ObjectKey};
use machinist_plan::ccm::Plan;
use machinist_plan::ccm::facts::CloudNodeFacts;
use machinist_plan::ccm::names::SYNCED;
use machinist_plan::ccm::node::{Action, Crowd, ListedNode, NodePatch, Owner, SharedReasons, Snapshot};
use machinist_plan::facts::ACCOUNT;
use machinist_runtime::{Fed, Kind, Observed, Opened, Stop};
use serde_json::Value;

use super::account::claimed_by;
use super::cloud::{self, Start};
use super::contract::{Ccm, Runtime, World, Write};
use super::events::{reference, tell};
use super::key::Key;
use super::options::Tools;
use super::seen::{BY_NODE, NOT_READY, Seen, UNINITIALIZED, YES};
use super::{account_proof, measure};

/// From this number of waiting Nodes on, a list is cheaper than lookups for every size of an
/// account, so they are not counted further.
const COUNTED: usize = 200;

/// Nodes in the work loop.
pub(crate) struct Nodes;

impl Kind<Ccm> for Nodes {
    const EXPLAINS: Option<&'static str> = Some(<CloudNodeFacts as Fed<Ccm>>::RESOURCE);

    type Id = String;
    type Snapshot = Snapshot;
    type Action = Action;

    fn ids(seen: &Seen, _: &Tools) -> Vec<String> {
        seen.nodes.keys().map(|key| key.name.clone()).collect()
    }
    fn is_decided(tools: &Tools) -> bool {
        tools.options.controllers.any_node()
    }

    fn observe(runtime: &Runtime, world: &World, name: &String) -> Observed<Snapshot> {
        let Some(node) = world.seen.nodes.get(&ObjectKey::cluster_scoped(name)) else {
            return Observed::Gone;
        };
        Observed::Ready(snapshot(runtime, world, node.facts.clone()))
    }

    fn plan(tools: &Tools, snapshot: &Snapshot) -> Plan<Action> {
        (tools.options.planners.node)(snapshot)
    }

    async fn act(runtime: &Arc<Runtime>, s: &Snapshot, action: Action) -> Result<(), Stop> {
        let node = &s.node;
        let own_key = [Key::Node(node.name.clone())];
        let write = Write { runtime, charged: &own_key, key: ObjectKey::cluster_scoped(&node.name) };
        match action {
            Action::List => cloud::list(runtime, own_key[0].clone()),
            Action::Find(which) => find(runtime, node, which),
            Action::SetAddresses { node, addresses } => {
                let field = ["status", "addresses"];
                let read = node.addresses.as_ref().and_then(|read| serde_json::to_value(read).ok());
                let addresses = serde_json::to_value(addresses).unwrap_or(Value::Null);
                let patch = GuardedPatch::new(&node.uid).test(&field, read.as_ref()).add(&field, addresses);
                write.patch_status::<CloudNodeFacts>(patch).await
            }
            Action::Patch(patch) => {
                write.patch::<CloudNodeFacts>(guarded(&patch)).await?;
                if patch.node.is_uninitialized() && patch.taints.is_some() {
                    measure::untainted(runtime, node);
                }
                Ok(())
            }
            Action::Tell(event) => {
                if event.reason == SYNCED {
                    measure::synced(runtime, node);
                }
                tell(runtime, &reference_of(node), &node.uid, &event);
                Ok(())
            }
        }
    }

    fn is_rehearsed(runtime: &Runtime, action: &Action) -> bool {
        runtime.tools.options.dry_run
            && match action {
                Action::List | Action::Find(_) => false,
                Action::SetAddresses { .. } | Action::Patch(_) | Action::Tell(_) => true,
            }
    }

    fn reference(s: &Snapshot) -> Option<ObjectReference> {
        Some(reference_of(&s.node))
    }
}

pub(super) fn reference_of(node: &CloudNodeFacts) -> ObjectReference {
    reference("Node", None, &node.name, &node.uid)
}

/// Returns the name of a Node's calls.
fn subject(uid: &str) -> String {
    format!("node/{uid}")
}

fn snapshot(runtime: &Runtime, world: &World, node: Arc<CloudNodeFacts>) -> Snapshot {
    let seen = &world.seen;
    let opened = cloud::open(runtime, seen).ok();
    let recorded = recorded(runtime, &node);
    let mut answers = seen.memory.answers.get(&node.uid).cloned().unwrap_or_default();
    answers.in_flight = world.asks.of(&subject(&node.uid));
    let listed = opened.as_ref().and_then(|opened| listed(opened, &node, &recorded));
    let found = answers.find.as_ref().and_then(|found| match &found.answered.answer {
        Ok(Sighting::Present(instance)) => Some(instance),
        Ok(_) | Err(_) => None,
    });
    let shown: Option<&Instance> =
        found.or_else(|| listed.as_ref().and_then(|listed| listed.instance.as_deref()));
    let account = opened.as_ref().map(|opened| opened.account().clone());
    Snapshot {
        now: runtime.now(),
        process: runtime.process_facts(opened.as_ref()),
        options: runtime.tools.options.nodes.clone(),
        account: cloud::account(runtime, world, opened.as_ref()),
        claimed_by: shown.and_then(|instance| claimed_by(seen, &node, instance)),
        crowd: crowd(seen),
        stopped_since: seen.memory.stopped.get(&node.uid).copied(),
        ownership: account_proof::ownership(seen, &node, account, &answers),
        owner: owner(seen, &node),
        emitted: seen.memory.emitted(&node.uid),
        shared: SharedReasons {
            unrouted: seen.memory.unrouted.get(&node.name).cloned(),
            brake: seen.memory.brake.clone(),
        },
        recorded,
        listed,
        answers,
        node,
    }
}

/// Returns `spec.providerID` of a Node, as the provider classifies it.
pub(super) fn recorded(runtime: &Runtime, node: &CloudNodeFacts) -> RecordedId {
    runtime.tools.options.provider.parse_id(node.provider_id().unwrap_or_default())
}

/// Returns the result of the account's last list for a Node.
pub(super) fn listed(opened: &Opened, node: &CloudNodeFacts, recorded: &RecordedId) -> Option<ListedNode> {
    let list = opened.account.sightings()?;
    let instance = match recorded {
        RecordedId::Ours(id) => list.of(id),
        RecordedId::Unset => NodeName::new(&node.name).and_then(|name| list.named(&name)),
        RecordedId::NotOurs { .. } | RecordedId::Malformed { .. } => None,
    };
    Some(ListedNode { started: list.started, ended: list.ended, instance: instance.cloned() })
}

/// Counts the Nodes that need a lookup.
fn crowd(seen: &Seen) -> Crowd {
    let count = |index: &'static str| {
        let counted = seen.nodes.by_index(index, YES).take(COUNTED).count();
        u32::try_from(counted).unwrap_or(u32::MAX)
    };
    Crowd {
        uninitialized: count(UNINITIALIZED),
        since: seen.memory.first_uninitialized,
        not_ready: count(NOT_READY),
    }
}

/// Returns the Machine of a Node.
pub(super) fn owner(seen: &Seen, node: &CloudNodeFacts) -> Option<Owner> {
    let (key, machine) = seen.machines.by_index(BY_NODE, &node.name).next()?;
    Some(Owner { machine: key.to_string(), is_deleting: machine.facts.deleting_since.is_some() })
}

/// Starts the lookup of a Node's instance.
fn find(runtime: &Arc<Runtime>, node: &Arc<CloudNodeFacts>, which: InstanceRef) -> Result<(), Stop> {
    let (uid, name) = (node.uid.clone(), node.name.clone());
    let inputs = runtime.lock().seen.credential.as_ref().map_or(0, |current| current.version);
    let (by, waker, seen_node) = (which.clone(), runtime.clone(), node.clone());
    let remember = {
        let (uid, name) = (uid.clone(), name.clone());
        Box::new(move |seen: &mut Seen, answered: Answered<Sighting>| {
            measure::looked_up(&waker.options.metrics, &answered);
            let exists =
                seen.nodes.get(&ObjectKey::cluster_scoped(&name)).is_some_and(|node| node.uid == uid);
            if !exists {
                return;
            }
            let provider = &waker.tools.options.provider;
            if let (Ok(sighting), Some(account)) = (&answered.answer, &answered.account) {
                account_proof::take_sighting(seen, account, &**provider, &seen_node, sighting);
                // The instance may be the proof for which other keys wait.
                waker.wake(Key::Account);
            }
            if let Ok(sighting) = &answered.answer {
                let power = match sighting {
                    Sighting::Present(instance) => instance.power,
                    Sighting::Foreign(_) | Sighting::Parts(_) | Sighting::Absent | Sighting::Ended => {
                        Power::Changing
                    }
                };
                seen.memory.note_power(&uid, power, answered.ended);
            }
            let take = |answers: &mut machinist_core::Answers, answered| {
                answers.take_found(Found { by, answered });
            };
            seen.memory.answers.entry(uid.clone()).or_default().take(inputs, answered, take);
            seen.memory.suspect(&uid, &name);
            waker.wake(Key::NodeRemoval);
        })
    };
    let still_wanted = {
        let (uid, name) = (uid.clone(), name.clone());
        Box::new(move |seen: &Seen| {
            seen.nodes.get(&ObjectKey::cluster_scoped(&name)).is_some_and(|node| node.uid == uid)
        })
    };
    let start = Start {
        subject: subject(&uid),
        key: Key::Node(name),
        call: Call::FIND,
        decided_for: None,
        bound: std::time::Duration::ZERO,
        begins_by: None,
        confirm: None,
        still_wanted,
        remember,
    };
    cloud::start(runtime, start, |driver| async move { driver.instances().find(&which).await })
}

/// Returns the patch with its guards: each changed field must have the value that was read.
fn guarded(patch: &NodePatch) -> GuardedPatch {
    let node = &patch.node;
    let mut guarded = GuardedPatch::new(&node.uid);
    if let Some(id) = &patch.provider_id {
        let field = ["spec", "providerID"];
        let read = node.provider_id.clone().map(Value::from);
        guarded = guarded.test(&field, read.as_ref()).add(&field, Value::from(id.as_str()));
    }
    for (key, value) in &patch.labels {
        guarded = guarded.set_label(node.labels.as_ref(), key, value);
    }
    if let Some(account) = &patch.account {
        let read = node.has_annotations.then_some(&node.annotations);
        guarded = guarded.set_annotation(read, ACCOUNT, account.as_str());
    }
    if let Some(taints) = &patch.taints {
        let field = ["spec", "taints"];
        let read = node.taints.as_ref().and_then(|taints| serde_json::to_value(taints).ok());
        let taints = serde_json::to_value(taints).unwrap_or(Value::Null);
        guarded = guarded.test(&field, read.as_ref()).add(&field, taints);
    }
    guarded
}
