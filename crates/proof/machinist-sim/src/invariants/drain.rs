//! S6: a Node is cordoned before its first pod is evicted; the Node of a preserved Machine has a
//! taint instead. Before the drain may use force, no pod
//! is deleted without grace, and no instance is deleted under a pod that has to leave.
//!
//! S14: a timeout ends a drain by force only after the API server has answered about each pod: an
//! eviction before the pod is deleted, and the deletion before the instance is deleted. An attempt
//! without an answer is not enough.
//!
//! S23: a pod whose eviction was rejected is named in the status of the Machine before it is
//! deleted by force. A user cannot correct what nothing shows.
//!
//! Whether a pod is on a Node is judged by the server's commits at the moment when the cloud
//! accepts the deletion. It does not matter what the process had seen by then.

use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use machinist_api::GoDuration;
use machinist_api::constants::{labels, taints};
use machinist_cloud_sim as cloud;

use super::preserve::is_kept;
use super::violation::{Id, Violations};
use crate::actor::{Side, TestedProcess};
use crate::ask::WriteInFlight;
use crate::history::{Event, Invariant, RunState};
use crate::sight::{MACHINES, NODES, PODS, SeenObject};

/// Options of the machine controller in a run; see `machinist_plan::mcm::machine::Defaults`.
#[derive(Debug, Clone, Copy)]
pub(super) struct DrainOrder {
    drain_timeout: Duration,
    dead_node_after: Duration,
}

impl Default for DrainOrder {
    fn default() -> Self {
        let defaults = machinist_plan::mcm::machine::Defaults::default();
        Self { drain_timeout: defaults.drain_timeout, dead_node_after: defaults.dead_node_after }
    }
}

impl Invariant for DrainOrder {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        match event {
            Event::Arrived(sent) => self.see_write(state, sent, found),
            Event::Ledger(cloud::LedgerCommit::DeletionBegun { id, .. }) => {
                self.see_end(state, id.as_str(), found)
            }
            Event::Ledger(_)
            | Event::Committed { .. }
            | Event::Called(_)
            | Event::Hcloud(_)
            | Event::Outside(..) => {}
        }
    }
}

impl DrainOrder {
    /// Whether the drain of a Node may use force now.
    pub(super) fn may_force(&self, state: &RunState, node: &str) -> bool {
        self.force(state, state.now, node) != Force::Never
    }

    fn see_write(&self, state: &RunState, sent: &WriteInFlight, found: &mut Violations) {
        if sent.process != TestedProcess::MachineController || sent.about.table != PODS {
            return;
        }
        let Some(pod) = state.track(Side::Target, PODS, &sent.about.key()).and_then(|track| track.now())
        else {
            return;
        };
        let node = pod.text("/spec/nodeName");
        let is_eviction = sent.method == Method::POST && sent.about.subresource == "eviction";
        if is_eviction {
            let on = state.track(Side::Target, NODES, node).and_then(|track| track.now());
            if on.is_some_and(|node| !node.is_cordoned() && tainted_since(node).is_none()) {
                found
                    .add(Id::S6, format!("pod {} is evicted from {node}, which is not cordoned", pod.name()));
            }
        }
        if sent.method != Method::DELETE {
            return;
        }
        match self.force(state, sent.at, node) {
            Force::Never => found.add(
                Id::S6,
                format!("pod {} is deleted by force before the drain of {node} may use force", pod.name()),
            ),
            Force::AfterTimeout if !state.answers_about(&sent.about.key()).eviction => found.add(
                Id::S14,
                format!("pod {} is deleted by force, but no eviction of it was answered", pod.name()),
            ),
            Force::AfterTimeout | Force::Always => {}
        }
        let Some((first, last)) = state.answers_about(&sent.about.key()).rejected else { return };
        if REPORTED_WITHIN <= elapsed(first, last) && !is_rejection_reported(state, node, first) {
            let name = pod.name();
            found.add(
                Id::S23,
                format!("pod {name} is deleted by force, and no status named it since {first}, when its eviction was rejected"),
            );
        }
    }

    /// Checks the start of an instance's deletion.
    fn see_end(&self, state: &RunState, id: &str, found: &mut Violations) {
        let machine = state.objects(Side::Control, MACHINES).find(|machine| machine.provider_id() == id);
        let Some(node) = machine.map(SeenObject::node_label).filter(|node| !node.is_empty()) else { return };
        // A Node that an earlier instance of that name registered belongs to another Machine, which
        // was lost.
        let registered = state.track(Side::Target, NODES, node).and_then(|track| track.now());
        if registered.is_some_and(|node| !node.provider_id().is_empty() && node.provider_id() != id) {
            return;
        }
        let on_node = |pod: &SeenObject<'_>| pod.text("/spec/nodeName") == node && has_to_leave(*pod);
        let force = self.force(state, state.now, node);
        for pod in state.objects(Side::Target, PODS).filter(on_node) {
            let name = pod.name();
            let key = format!("{}/{name}", pod.namespace());
            match force {
                Force::Never => {
                    found.add(Id::S6, format!("{id} is being deleted while pod {name} is on {node}"));
                }
                Force::AfterTimeout if !pod.is_deleting() && !state.answers_about(&key).deletion => found.add(
                    Id::S14,
                    format!("{id} is being deleted while pod {name} is on {node}, whose deletion was not answered"),
                ),
                Force::AfterTimeout | Force::Always => {}
            }
        }
    }

    fn force(&self, state: &RunState, now: Timestamp, node: &str) -> Force {
        let machine = state.objects(Side::Control, MACHINES).find(|machine| machine.node_label() == node);
        let began = |machine: SeenObject<'_>| {
            let node = state.track(Side::Target, NODES, node).and_then(|track| track.now());
            let of_preservation = || node.filter(|_| is_kept(machine, now)).and_then(tainted_since);
            machine.deleting_since().or_else(of_preservation)
        };
        let Some((machine, began)) = machine.and_then(|machine| Some((machine, began(machine)?))) else {
            return Force::Never;
        };
        let forced = labels::parse_bool(machine.label(labels::FORCE_DELETION)) == Some(true);
        let dead_since = state
            .track(Side::Target, NODES, node)
            .and_then(|track| track.now())
            .filter(|node| !matches!(node.condition("Ready"), "True" | ""))
            .and_then(|node| node.condition_since("Ready"));
        let is_dead = dead_since.is_some_and(|since| self.dead_node_after <= elapsed(since, now));
        let is_overdue = self.patience_of(machine) <= elapsed(began, now);
        match (forced || is_dead, is_overdue) {
            (true, _) => Force::Always,
            (false, true) => Force::AfterTimeout,
            (false, false) => Force::Never,
        }
    }

    fn patience_of(&self, machine: SeenObject<'_>) -> Duration {
        let own = machine.text("/spec/drainTimeout");
        own.parse::<GoDuration>().ok().and_then(GoDuration::to_std).unwrap_or(self.drain_timeout)
    }
}

/// Time in which a rejected eviction must be in the status of the Machine.
const REPORTED_WITHIN: Duration = Duration::from_secs(90);

/// Since when a Node has the taint of a preserved Machine.
fn tainted_since(node: SeenObject<'_>) -> Option<Timestamp> {
    let taint = node.list("/spec/taints").iter().find(|taint| taint["key"] == taints::PRESERVED)?;
    taint["timeAdded"].as_str()?.parse().ok()
}

/// Whether a status of the Machine named a pod of that Node since then. A drain with several such
/// pods names one of them. A Machine whose status cannot be written is left out.
fn is_rejection_reported(state: &RunState, node: &str, since: Timestamp) -> bool {
    let machine = state.objects(Side::Control, MACHINES).find(|machine| machine.node_label() == node);
    let key = machine.map(|machine| format!("{}/{}", machine.namespace(), machine.name()));
    // The condition of the Node names the pod while the Machine is preserved.
    if machine.is_some_and(|machine| !machine.is_deleting()) {
        return true;
    }
    let Some(track) = key.and_then(|key| state.track(Side::Control, MACHINES, &key)) else { return true };
    let pods: Vec<String> = state
        .objects(Side::Target, PODS)
        .filter(|pod| pod.text("/spec/nodeName") == node)
        .map(|pod| format!("{}/{}", pod.namespace(), pod.name()))
        .collect();
    let is_later = |version: SeenObject<'_>| {
        let written = version.text("/status/lastOperation/lastUpdateTime").parse::<Timestamp>();
        written.is_ok_and(|written| since.as_second() <= written.as_second())
    };
    let texts: Vec<&str> = track
        .versions()
        .map(|(_, version)| version)
        .filter(|version| is_later(*version))
        .map(|version| version.text("/status/lastOperation/description"))
        .collect();
    texts.is_empty() || texts.iter().any(|text| pods.iter().any(|pod| text.contains(pod.as_str())))
}

/// Whether a drain may use force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Force {
    Never,
    /// The drain timeout has passed.
    AfterTimeout,
    /// The label `force-deletion` is set, or the Node is dead.
    Always,
}

/// Whether a drain evicts a pod. Pods of DaemonSets would be recreated, and mirror pods of static
/// pods cannot be evicted.
fn has_to_leave(pod: SeenObject<'_>) -> bool {
    let mut owners = pod.list("/metadata/ownerReferences").iter();
    let is_daemon = owners.any(|owner| owner["kind"] == "DaemonSet" && owner["controller"] == true);
    !is_daemon && pod.annotation("kubernetes.io/config.mirror").is_empty()
}

fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO)
}
