//! L9: no Machine counts as up to date while it makes no progress. A person who asks `why` about it
//! learns what it waits for.
//!
//! L10: a Machine that is deleted with the label `force-deletion` is gone soon, also while the API
//! server of the Nodes does not answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use machinist_api::constants::{finalizers, labels};
use machinist_apiserver::Server;
use tokio::time::Instant;

use super::processes::Processes;
use crate::actor::{Side, TestedProcess};
use crate::faults::{LongFault, LongKind};
use crate::invariants::Id;
use crate::lab::Lab;
use crate::sight::{MACHINES, SeenObject};

const LOOK_EVERY: Duration = Duration::from_secs(60);
/// A Machine that did not change for this time makes no progress.
const UNCHANGED_FOR: Duration = Duration::from_secs(5 * 60);

/// Time in which a Machine with the label is gone: three questions to the API server of the Nodes
/// of twenty seconds each, and the deletion of the instance with its evidence.
const FORCED_WITHIN: Duration = Duration::from_secs(4 * 60);

/// Runs forever: checks that the label `force-deletion` needs no API server of the Nodes. A
/// Machine is judged if nothing else was disturbed since it has the label.
pub(super) async fn watch_forced(lab: Arc<Lab>, control: Server) {
    let began = lab.plan.beginning().await;
    let mut forced: BTreeMap<String, Instant> = BTreeMap::new();
    loop {
        tokio::time::sleep(LOOK_EVERY / 2).await;
        let mut still = BTreeMap::new();
        for machine in control.snapshot(MACHINES) {
            let seen = SeenObject(machine.value());
            let is_forced = labels::parse_bool(seen.label(labels::FORCE_DELETION)) == Some(true);
            if !is_forced || !seen.is_deleting() || is_held_by_others(seen) {
                continue;
            }
            let since = forced.get(seen.uid()).copied().unwrap_or_else(Instant::now);
            still.insert(seen.uid().to_owned(), since);
            let only_nodes_away = lab.plan.was_calm_since(began, since, is_about_nodes_only);
            if FORCED_WITHIN <= since.elapsed() && only_nodes_away {
                let (name, text) = (seen.name(), seen.text("/status/lastOperation/description"));
                lab.history.violate(
                    Id::L10,
                    format!("Machine {name} has the label force-deletion for {FORCED_WITHIN:?} and still exists: {text}"),
                );
            }
        }
        forced = still;
    }
}

/// Whether a finalizer of another actor keeps the object.
fn is_held_by_others(seen: SeenObject<'_>) -> bool {
    let is_ours = |finalizer: &serde_json::Value| finalizer == finalizers::MACHINE_CONTROLLER_MANAGER;
    !seen.list("/metadata/finalizers").iter().all(is_ours)
}

/// Whether the fault concerns the API server of the Nodes, and nothing else.
fn is_about_nodes_only(fault: LongFault) -> bool {
    let is_an_outage = matches!(fault.kind, LongKind::ServerAway | LongKind::SilentWatch);
    let is_harmless = matches!(fault.kind, LongKind::RefusedEvictions | LongKind::ZoneOut);
    is_harmless || (is_an_outage && fault.side() == Side::Target)
}

/// Runs forever: checks that the machine controller has a reason for each Machine that is not
/// settled and does not change. Only versions count that the controller has seen. A server that
/// does not answer is the first thing that `why` names, so it is a reason for all Machines. A write
/// without an answer is also a reason.
pub(super) async fn watch(lab: Arc<Lab>, control: Server, processes: Arc<Processes>) {
    let mut unchanged: BTreeMap<String, (u64, u32, Instant)> = BTreeMap::new();
    lab.plan.beginning().await;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(acting) = processes.acting(TestedProcess::MachineController) else {
            unchanged.clear();
            continue;
        };
        // The end of a write wakes the objects that it is about.
        let awaits_answer = lab.history.look(|state| state.awaits_answer(TestedProcess::MachineController));
        let is_excused = acting.names_outage || awaits_answer;
        let mut still = BTreeMap::new();
        for machine in control.snapshot(MACHINES) {
            let seen = SeenObject(machine.value());
            let key = format!("{}/{}", seen.namespace(), seen.name());
            let is_settled = seen.phase() == "Running" && !seen.is_deleting();
            let is_seen = machine.revision() <= acting.observed.table_seen(Side::Control, MACHINES);
            if is_settled || !is_seen {
                continue;
            }
            let version = (machine.revision(), acting.life);
            let known = unchanged.get(seen.uid()).filter(|(revision, life, _)| (*revision, *life) == version);
            let since = known.map_or_else(Instant::now, |(.., since)| *since);
            still.insert(seen.uid().to_owned(), (version.0, version.1, since));
            if since.elapsed() < UNCHANGED_FOR {
                continue;
            }
            let why = acting.whys.get(&format!("machine/{key}"));
            if !is_excused && why.is_none_or(|why| why.is_settled) {
                let (phase, text) = (seen.phase(), why.map(|why| why.text.as_str()));
                lab.history.violate(
                    Id::L9,
                    format!("Machine {key} has phase {phase:?} and does not change, and why says {text:?}"),
                );
            }
        }
        unchanged = still;
    }
}
