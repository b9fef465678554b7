//! S28: before the drain of a Node may use force, its instance is deleted only after the volumes of
//! its pods are detached, or after they were waited for.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use machinist_cloud_sim as cloud;
use serde_json::Value;

use super::drain::DrainOrder;
use super::violation::{Id, Violations};
use crate::actor::Side;
use crate::history::{Event, Invariant, RunState};
use crate::sight::{MACHINES, PODS, SeenObject, VOLUME_ATTACHMENTS};

pub(super) struct VolumesFirst {
    /// When the last pod left a Node, by the name of the Node.
    left: BTreeMap<String, Timestamp>,
    detach_timeout: Duration,
    drain: DrainOrder,
}

impl Default for VolumesFirst {
    fn default() -> Self {
        let detach_timeout = machinist_plan::mcm::machine::Defaults::default().detach_timeout;
        Self { left: BTreeMap::new(), detach_timeout, drain: DrainOrder::default() }
    }
}

impl Invariant for VolumesFirst {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        match event {
            Event::Committed { side: Side::Target, commit, .. } if *commit.resource == *PODS => {
                let old = commit.old.as_deref().filter(|_| commit.new.is_none());
                let node = old.map(|pod| SeenObject(pod.value()).text("/spec/nodeName").to_owned());
                self.left.extend(node.map(|node| (node, state.now)));
            }
            Event::Ledger(cloud::LedgerCommit::DeletionBegun { id, .. }) => {
                self.see_end(state, id.as_str(), found);
            }
            Event::Committed { .. }
            | Event::Ledger(_)
            | Event::Arrived(_)
            | Event::Called(_)
            | Event::Hcloud(_)
            | Event::Outside(..) => {}
        }
    }
}

impl VolumesFirst {
    fn see_end(&self, state: &RunState, id: &str, found: &mut Violations) {
        let Some(machine) = state.objects(Side::Control, MACHINES).find(|m| m.provider_id() == id) else {
            return;
        };
        let node = machine.node_label();
        let Some(left) = self.left.get(node) else { return };
        let began = machine.deleting_since().map_or(*left, |since| since.max(*left));
        let waited = Duration::try_from(state.now.duration_since(began)).unwrap_or(Duration::ZERO);
        if self.detach_timeout <= waited || self.drain.may_force(state, node) {
            return;
        }
        let is_attached = |attachment: &SeenObject<'_>| {
            attachment.text("/spec/nodeName") == node
                && attachment.0.pointer("/status/attached") == Some(&Value::Bool(true))
        };
        if let Some(attached) = state.objects(Side::Target, VOLUME_ATTACHMENTS).find(is_attached) {
            let name = attached.name();
            found.add(Id::S28, format!("{id} is being deleted while {name} is attached to {node}"));
        }
    }
}
