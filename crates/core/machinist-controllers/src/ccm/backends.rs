//! Computes the Nodes behind load balancers. The rules are in `machinist_plan::ccm::backends`.
//!
//! All Services share one set. The queue limits how often it is computed, so that a hundred Nodes
//! that join together change each load balancer a few times and not a hundred times.

use std::sync::Arc;

use machinist_plan::ccm::backends::Backends;

use super::contract::Runtime;
use super::key::Key;
use super::seen::{BALANCED, YES};

/// Computes the set again if a Node has changed, and wakes the Services if the set differs.
pub(super) fn compute(runtime: &Arc<Runtime>) {
    let mut world = runtime.lock();
    let seen = &mut world.seen;
    if !seen.nodes.synced() || !seen.memory.are_backends_stale {
        return;
    }
    let provider = &runtime.tools.options.provider;
    let nodes = seen.nodes.iter().map(|(_, node)| {
        let recorded = provider.parse_id(node.facts.provider_id().unwrap_or_default());
        (&*node.facts, recorded)
    });
    let backends = Backends::of(nodes);
    seen.memory.are_backends_stale = false;
    if seen.memory.backends.as_deref() == Some(&backends) {
        return;
    }
    // Before the first computation, the Services without a load balancer wait too.
    let is_first = seen.memory.backends.replace(Arc::new(backends)).is_none();
    let services: Vec<Key> = match is_first {
        true => seen.services.iter().map(|(key, _)| Key::Service(key.clone())).collect(),
        false => seen.services.by_index(BALANCED, YES).map(|(key, _)| Key::Service(key.clone())).collect(),
    };
    drop(world);
    services.into_iter().for_each(|key| runtime.wake(key));
}
