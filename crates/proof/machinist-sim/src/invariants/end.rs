//! L1, L2, L4, L6: the rules for the end state, after the last fault.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use machinist_api::constants::markers::DeletionMarker;
use machinist_api::constants::{annotations, taints};

use super::violation::{Id, Violations};
use crate::actor::Side;
use crate::history::RunState;
use crate::sight::{MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, NODES, SECRETS, SeenObject};

/// L1 and L2: every deployment has what its spec requests, and nothing else exists.
#[derive(Debug, Clone, Copy)]
pub struct EndState;

impl EndState {
    /// Checks the end state.
    pub fn judge(state: &RunState) -> Violations {
        let mut found = Violations::default();
        for deployment in state.objects(Side::Control, MACHINE_DEPLOYMENTS) {
            let (name, wanted) = (deployment.name(), i64::from(deployment.replicas()));
            if deployment.is_deleting() {
                found.add(Id::L1, format!("deployment {name} is still being deleted"));
            }
            for field in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"] {
                let has = deployment.number(&format!("/status/{field}")).unwrap_or(0);
                if has != wanted {
                    found.add(
                        Id::L1,
                        format!("deployment {name} has status.{field} {has}, expected {wanted}"),
                    );
                }
            }
            let (generation, observed) =
                (deployment.number("/metadata/generation"), deployment.number("/status/observedGeneration"));
            if generation != observed {
                found.add(
                    Id::L1,
                    format!(
                        "deployment {name} has generation {generation:?} and observedGeneration {observed:?}"
                    ),
                );
            }
        }
        for set in state.objects(Side::Control, MACHINE_SETS) {
            let children =
                state.objects(Side::Control, MACHINES).filter(|m| m.owner_uid() == Some(set.uid()));
            let (name, has) = (set.name(), u32::try_from(children.count()).unwrap_or(u32::MAX));
            if set.is_deleting() || has != set.replicas() {
                found.add(Id::L1, format!("set {name} has {has} Machines, expected {}", set.replicas()));
            }
        }
        for machine in state.objects(Side::Control, MACHINES) {
            judge_machine(state, machine, &mut found);
        }
        judge_leftovers(state, &mut found);
        found
    }
}

fn judge_machine(state: &RunState, machine: SeenObject<'_>, found: &mut Violations) {
    let name = machine.name();
    if machine.is_deleting() {
        return found.add(Id::L1, format!("Machine {name} is still being deleted"));
    }
    if machine.phase() != "Running" {
        found.add(Id::L1, format!("Machine {name} has phase {:?}, expected Running", machine.phase()));
    }
    if !machine.has_intent() {
        found.add(Id::L1, format!("Machine {name} has no finalizer"));
    }
    match state.instance(machine.provider_id()).filter(|instance| instance.is_alive_at(state.now)) {
        None => found.add(
            Id::L1,
            format!(
                "Machine {name} has provider id {:?}, but no such instance exists",
                machine.provider_id()
            ),
        ),
        // The Machine still has the instance of the Machine that it replaced.
        Some(_) if state.was_replaced(machine.uid()) => {}
        Some(instance) if instance.key.as_deref().is_some_and(|key| key != machine.uid()) => {
            found.add(Id::L1, format!("Machine {name} has an instance with key {:?}", instance.key));
        }
        Some(_) => {}
    }
    let node = state.track(Side::Target, NODES, machine.node_label()).and_then(|track| track.now());
    match node {
        Some(node) if node.provider_id() == machine.provider_id() && node.condition("Ready") == "True" => {
            if node.is_cordoned() || node.machine_label() != name {
                found.add(Id::L1, format!("the Node of {name} is cordoned, or has no label with its name"));
            }
        }
        _ => found.add(Id::L1, format!("Machine {name} has no Ready Node")),
    }
}

fn judge_leftovers(state: &RunState, found: &mut Violations) {
    let machines: Vec<SeenObject<'_>> = state.objects(Side::Control, MACHINES).collect();
    let recorded: BTreeSet<&str> = machines.iter().map(|machine| machine.provider_id()).collect();
    for instance in state.instances().filter(|instance| instance.is_alive_at(state.now)) {
        if !recorded.contains(instance.id.as_str()) {
            found.add(Id::L2, format!("instance {} ({}) has no Machine", instance.id, instance.name));
        }
    }
    for node in state.objects(Side::Target, NODES) {
        // A Node that no instance of this cloud registered is foreign.
        let is_ours = state.instance(node.provider_id()).is_some();
        if is_ours && !recorded.contains(node.provider_id()) {
            found.add(Id::L2, format!("Node {} ({}) has no Machine", node.name(), node.provider_id()));
        }
    }
    for secret in state.objects(Side::Target, SECRETS) {
        if secret.name().starts_with("bootstrap-token-") {
            found.add(Id::L2, format!("bootstrap token {} still exists", secret.name()));
        }
    }
}

/// L4: the activity of the processes in a window in which they must do nothing.
#[derive(Debug, Clone, Default)]
pub struct Quiet {
    /// Duration of the window.
    pub window: Duration,
    /// Number of writes, by process, verb and object.
    pub writes: BTreeMap<String, u32>,
    /// Number of driver calls.
    pub calls: u32,
    /// Number of planner passes, by kind.
    pub passes: BTreeMap<&'static str, u64>,
}

/// Maximum passes per object and resync period: one for the resync, and one for each of a few
/// changes that other components make (such as a Node's heartbeat).
const PASSES_PER_RESYNC: u64 = 4;

impl Quiet {
    /// Checks the window. `objects` is the number of objects of each kind.
    pub fn judge(&self, objects: &BTreeMap<&'static str, u64>, resync: Duration) -> Violations {
        let mut found = Violations::default();
        for (what, count) in &self.writes {
            found.add(Id::L4, format!("{what}, {count} times, with nothing to do"));
        }
        if self.calls != 0 {
            found.add(Id::L4, format!("{} driver calls with nothing to do", self.calls));
        }
        let periods = self.window.as_secs().div_ceil(resync.as_secs().max(1)) + 1;
        for (kind, passes) in &self.passes {
            let allowed = objects.get(kind).copied().unwrap_or(0).max(1) * periods * PASSES_PER_RESYNC;
            if allowed < *passes {
                found.add(Id::L4, format!("{passes} passes for {kind}, expected at most {allowed}"));
            }
        }
        found
    }
}

/// L6: the number of writes for creating and deleting Machines, and the events that justify more
/// writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Writes of the machine controller about Machines, Nodes and tokens, successful or not.
    pub writes: usize,
    /// Number of Machines that were created.
    pub made: usize,
    /// Number of these without a set. For them the machine controller adds the finalizer itself.
    pub alone: usize,
    /// Number of Machines that were deleted.
    pub deleted: usize,
    /// How often a Machine became Unknown or Failed, or Running again.
    pub health: usize,
    /// How often the reason for a waiting drain, or the progress of a drain, was written.
    pub drain_texts: usize,
    /// How often a drain ended by force, which needs one more write for its marker.
    pub forced: usize,
    /// How often the marks of a rollout on a Node changed.
    pub marked: usize,
    /// How often an update in place of a Node began.
    pub updated: usize,
    /// How often the preservation of a Machine began.
    pub preserved: usize,
    /// Number of fields that a user overwrote: labels with the name of the Node, and phases.
    pub overwritten: usize,
}

/// Writes per created Machine; docs/src/develop/writes.md lists them.
const WRITES_TO_MAKE: usize = 6;
/// Writes per deleted Machine.
const WRITES_TO_DELETE: usize = 7;
/// Writes per update in place: labels and cordon of the Node, its conditions and their copies on
/// the Machine, phases and one label of the Machine.
const WRITES_TO_UPDATE: usize = 18;
/// Writes per preservation of a Machine, from its expiry to the removal of its marks.
const WRITES_TO_PRESERVE: usize = 7;
/// Writes per field that a user overwrote: an empty phase becomes Pending, and then Running.
const WRITES_TO_REPAIR: usize = 2;
/// Writes per Machine under faults, where writes are refused, lost and repeated.
const WRITES_UNDER_FAULTS: usize = 15;

/// The starts of the texts of a drain in progress, which a drain of more than 30 seconds writes.
const DRAIN_TEXTS: [&str; 2] = ["Drain in progress: ", "The pods have left the Node; waiting for volumes"];

/// The disturbances of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disturbed {
    /// No fault and no crash.
    Never,
    /// This number of faults and crashes.
    Times(usize),
}

/// The marks of a rollout on a Node: its taint, and its protection from the autoscaler.
fn rollout_marks(node: SeenObject<'_>) -> (bool, bool) {
    let taints = node.0.pointer("/spec/taints").and_then(serde_json::Value::as_array);
    let mut keys = taints.into_iter().flatten().filter_map(|taint| taint["key"].as_str());
    let by_us = annotations::SCALE_DOWN_DISABLED_BY_MCM;
    let is_protected = node.0["metadata"]["annotations"].get(by_us).is_some();
    (keys.any(|key| key == taints::PREFER_NO_SCHEDULE), is_protected)
}

impl Spent {
    /// Counts the causes of a run's writes.
    pub fn of(state: &RunState, writes: usize) -> Self {
        let mut spent = Self { writes, ..Self::default() };
        for (_, track) in state.table(Side::Target, NODES) {
            let versions: Vec<_> = track.versions().map(|(_, version)| version).collect();
            let is_change = |pair: &&[SeenObject<'_>]| {
                pair[0].uid() == pair[1].uid() && rollout_marks(pair[0]) != rollout_marks(pair[1])
            };
            spent.marked += versions.windows(2).filter(is_change).count();
        }
        for (_, track) in state.table(Side::Control, MACHINES) {
            let births = track.births();
            spent.made += births;
            spent.deleted += births - usize::from(track.now().is_some());
            let mut before: Option<SeenObject<'_>> = None;
            for (_, version) in track.versions() {
                let is_new = before.is_none_or(|before| before.uid() != version.uid());
                spent.alone += usize::from(is_new && version.owner_uid().is_none());
                let was = before.map_or("", SeenObject::phase);
                let turned = match version.phase() {
                    "Unknown" | "Failed" => was != version.phase(),
                    "Running" => was == "Unknown",
                    _ => false,
                };
                spent.health += usize::from(turned);
                let updates = version.phase() == "InPlaceUpdating" && was != version.phase();
                spent.updated += usize::from(updates);
                let expires = |machine: SeenObject<'_>| {
                    machine.time("/status/currentStatus/preserveExpiryTime").is_some()
                };
                spent.preserved += usize::from(expires(version) && !before.is_some_and(expires));
                let has_lost_label = version.node_label().is_empty()
                    && before.is_some_and(|before| !before.node_label().is_empty());
                let is_set_back = was == "Running" && ["", "Pending"].contains(&version.phase());
                spent.overwritten += usize::from(has_lost_label) + usize::from(is_set_back);
                let text =
                    |object: SeenObject<'_>| object.text("/status/lastOperation/description").to_owned();
                let is_held_up =
                    version.text("/status/lastOperation/state") == "Failed" && version.is_deleting();
                let is_news = before.is_some_and(|before| text(before) != text(version));
                let said = text(version);
                let is_progress = DRAIN_TEXTS.iter().any(|start| said.starts_with(start));
                spent.drain_texts += usize::from((is_held_up || is_progress) && is_news);
                let is_forced = text(version).contains(DeletionMarker::DeleteVolumeAttachments.as_str());
                spent.forced += usize::from(is_forced && is_news);
                before = Some(version);
            }
        }
        spent
    }

    /// Checks the number of writes against the budget.
    pub fn judge(self, disturbed: Disturbed) -> Violations {
        let Self { writes, made, alone, deleted, health, drain_texts, forced, marked, .. } = self;
        let Self { updated, preserved, overwritten, .. } = self;
        let rare =
            WRITES_TO_UPDATE * updated + WRITES_TO_PRESERVE * preserved + WRITES_TO_REPAIR * overwritten;
        let apart = alone + health + drain_texts + forced + marked + rare;
        let allowed = match disturbed {
            Disturbed::Never => WRITES_TO_MAKE * made + WRITES_TO_DELETE * deleted + apart,
            Disturbed::Times(faults) => WRITES_UNDER_FAULTS * (made + deleted) + apart + 2 * faults,
        };
        let mut found = Violations::default();
        if allowed < writes {
            found.add(Id::L6, format!("{writes} writes, expected at most {allowed}: {self:?}"));
        }
        found
    }
}
