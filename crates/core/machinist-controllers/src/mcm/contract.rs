//! The machine API as a contract of the runtime: its kinds, its keys, and which process decides
//! about which kind.

use std::time::Duration;

use jiff::Timestamp;
use machinist_core::Reason;
use machinist_plan::mcm::facts::{
    AttachmentFacts, BudgetFacts, ClaimFacts, ClassFacts, MachineDeploymentFacts, MachineFacts,
    MachineSetFacts, NodeFacts, PodFacts, VolumeFacts,
};
use machinist_plan::mcm::{McmReason, Why};
use machinist_runtime::{Contract, Feed, Measurement, ServerChecks, feed};
use machinist_serve::{Gauge, Metrics};

use super::key::Key;
use super::measure;
use super::options::Tools;
use super::seen::{SecretEntry, Seen, TokenEntry};
use super::server_freeze::server_checks;

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
            feeds.extend([feed::<Self, ClassFacts>(), feed::<Self, SecretEntry>()]);
        }
        if tools.decides_nodes() {
            feeds.extend([
                feed::<Self, TokenEntry>(),
                feed::<Self, NodeFacts>(),
                feed::<Self, PodFacts>(),
                feed::<Self, BudgetFacts>(),
                feed::<Self, AttachmentFacts>(),
                feed::<Self, ClaimFacts>(),
                feed::<Self, VolumeFacts>(),
            ]);
        }
        feeds
    }

    /// Only drains look at pods, budgets and volumes.
    fn needs_deferred(seen: &Seen, key: &Key) -> bool {
        let Key::Machine(id) = key else { return false };
        seen.machines.get(id).is_some_and(|machine| machine.facts.may_be_drained())
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

    fn server_checks(tools: &Tools) -> Option<ServerChecks> {
        server_checks(tools.machine.as_ref()?)
    }

    fn forget_moments(seen: &mut Seen, now: Timestamp) {
        seen.memory.forget_moments(now);
    }

    fn measure(seen: &Seen, _: Timestamp, metrics: &Metrics) {
        let (machines, owners) = seen.memory.remembered();
        metrics.set_number(&REMEMBERED_MACHINES, &[], machines);
        metrics.set_number(&REMEMBERED_OWNERS, &[], owners);
    }

    fn measure_state(runtime: &Runtime, metrics: &Metrics) {
        measure::record(runtime, metrics);
    }

    fn queue_of(seen: &Seen, key: &Key) -> &'static str {
        measure::queue_of(seen, key)
    }

    fn note(tools: &Tools, measurement: &Measurement<'_>, metrics: &Metrics) {
        measure::note(tools, measurement, metrics);
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
