//! Connects the Nodes behind load balancers with the work loop. The rules are in
//! `machinist_plan::ccm::backends`.
//!
//! All Services share one set. The queue limits how often it is computed, so that a hundred Nodes
//! that join together change each load balancer a few times and not a hundred times.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use machinist_plan::ccm::Plan;
use machinist_plan::ccm::backends::{Action, Snapshot, is_due, plan};
use machinist_runtime::{Kind, Observed, Stop};

use super::contract::{Ccm, Runtime, World};
use super::key::Key;
use super::options::Tools;
use super::seen::{BALANCED, Seen, YES};

/// The set of Nodes in the work loop.
pub(crate) struct BackendSets;

impl Kind<Ccm> for BackendSets {
    type Id = ();
    type Snapshot = Snapshot;
    type Action = Action;

    /// The set of Nodes is computed only after a change, so its key is usually in no queue.
    fn ids(seen: &Seen, _: &Tools) -> Vec<()> {
        if seen.memory.are_backends_stale() { vec![()] } else { Vec::new() }
    }
    fn is_decided(tools: &Tools) -> bool {
        tools.options.controllers.service
    }

    fn observe(runtime: &Runtime, world: &World, (): &()) -> Observed<Snapshot> {
        let seen = &world.seen;
        if !seen.nodes.synced() {
            return Observed::NotYet;
        }
        let (memory, now) = (&seen.memory, runtime.now());
        let provider = &runtime.tools.options.provider;
        let is_due = is_due(memory.are_backends_stale(), &memory.departed, now);
        let all = seen.nodes.iter().filter(|_| is_due);
        let nodes = all.map(|(_, node)| {
            let recorded = provider.parse_id(node.facts.provider_id().unwrap_or_default());
            (node.facts.clone(), recorded)
        });
        Observed::Ready(Snapshot {
            now,
            nodes: nodes.collect(),
            revision: memory.node_changes,
            computed: memory.backends_computed,
            last: memory.backends.clone(),
            departed: memory.departed.clone(),
        })
    }

    fn plan(_: &Tools, snapshot: &Snapshot) -> Plan<Action> {
        plan(snapshot)
    }

    async fn act(runtime: &Arc<Runtime>, _: &Snapshot, action: Action) -> Result<(), Stop> {
        share(runtime, action);
        Ok(())
    }

    /// The key stands for all Nodes.
    fn reference(_: &Snapshot) -> Option<ObjectReference> {
        None
    }
}

/// Computes the set at once, for a process without workers.
pub(super) fn compute(runtime: &Runtime) {
    let observed = BackendSets::observe(runtime, &runtime.lock(), &());
    if let Observed::Ready(snapshot) = observed {
        plan(&snapshot).actions.into_iter().for_each(|action| share(runtime, action));
    }
}

/// Stores the set, and wakes the Services whose load balancers it may change.
fn share(runtime: &Runtime, Action::Share { backends, revision, departed }: Action) {
    let services: Vec<Key> = {
        let seen = &mut runtime.lock().seen;
        seen.memory.backends_computed = Some(revision);
        seen.memory.departed = departed;
        if seen.memory.backends.as_ref() == Some(&backends) {
            return;
        }
        // Before the first computation, the Services without a load balancer wait too.
        let is_first = seen.memory.backends.replace(backends).is_none();
        if is_first {
            seen.services.iter().map(|(key, _)| Key::Service(key.clone())).collect()
        } else {
            let balanced = seen.services.by_index(BALANCED, YES);
            balanced.map(|(key, _)| Key::Service(key.clone())).collect()
        }
    };
    services.into_iter().for_each(|key| runtime.wake(key));
}
