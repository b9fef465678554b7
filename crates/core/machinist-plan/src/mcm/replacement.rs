//! Decides which unhealthy Machine of a deployment is marked Failed: one at a time.
//!
//! A Machine is marked Failed if its Node is unhealthy for longer than the health timeout, and its
//! set replaces it. If many Nodes are unhealthy at once, the cause is rarely in the Nodes. So the
//! next Machine is marked only after the previous one has been replaced. All Machines of a
//! deployment share this limit, and only this module decides it.
//!
//! A Machine is being replaced if it is Failed, being deleted, or created and not Running yet. The
//! last case cannot be distinguished from an ordinary scale-up without memory. So a scale-up also
//! delays the next replacement, by at most the creation timeout. Machines whose instance cannot be
//! created cause no delay; otherwise a used-up quota would stop all healing.
//!
//! A Machine that was marked and deleted leaves a gap until its set creates another one. If the set
//! is frozen, or its POSTs are rejected, the gap stays. Then each further marked Machine would only
//! shrink the deployment. So no Machine is marked while fewer Machines are live than desired:
//!
//! - A Machine is live unless it is Failed or being deleted. A Machine that is unhealthy, or whose
//!   instance cannot be created, is live, because its set would not create another one beside it. A
//!   Failed Machine that is preserved is also live. That may last for days: the Machine is not
//!   being replaced and delays no other Machine.
//! - The desired number is the total of the sets' replicas, limited by the deployment's replicas
//!   (an annotation on its sets). The total is a bound because no more Machines are created. The
//!   deployment's replicas are a bound because the surge of a rollout is optional: a new template
//!   whose Machines are rejected must not stop the healing of old Machines.
//!
//! A Machine with an unknown set is not marked: the watch of sets may be behind the watch of
//! Machines, and only the set identifies the deployment that shares the limit.
//!
//! A scale-up is also a gap, but only until its Machines are POSTed. From then on they are live and
//! count as above. A set that is stopped for longer reports this, and the wait ends when the cause
//! is fixed.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_api::constants::annotations;
use machinist_api::{OperationState, OperationType, Phase};

use super::live::{is_live, number};
use super::machine::{OperationWrite, PhaseWrite, StatusWrite};
use crate::facts::{MachineFacts, MachineSetFacts};
use crate::why::{McmReason, Reason, Step};
use crate::{Plan, Why};
use machinist_core::{SKEW_LIMIT, is_past, just_past, plus};

/// Wait before the next look if a write is unseen that was charged to another key, because such a
/// write does not wake this deployment. By then the write has been seen or read.
const UNSEEN_AGAIN: Duration = Duration::from_secs(10);

/// All facts for one decision about the replacements of one deployment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The moment of the decision.
    pub now: Timestamp,
    /// Upper bound of the difference between the wall clock and the API server's clock.
    pub skew: Duration,
    /// Every Machine of the deployment.
    pub machines: Vec<Arc<MachineFacts>>,
    /// UIDs of the Machines that do not carry the current preserve annotation of their Node yet.
    pub unheard: BTreeSet<String>,
    /// Every set of the deployment; empty if the Machines have no set.
    pub sets: Vec<Arc<MachineSetFacts>>,
    /// Name of the set that owns the Machines, if that set is unknown. Then the deployment is also
    /// unknown.
    pub unknown_owner: Option<String>,
    /// A Machine that this process marked Failed under another deployment or none, in a write that
    /// the watch has not shown yet.
    pub unseen: Option<String>,
    /// `--machine-health-timeout`
    pub health_timeout: Duration,
}

impl Hash for Snapshot {
    /// Hashes everything that determines a decision. Values that change without news are excluded:
    /// the moment, and the settings and measurements of the process.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { now: _, skew: _, machines, unheard, sets, unknown_owner, unseen, health_timeout: _ } =
            self;
        (machines, unheard, sets, unknown_owner, unseen).hash(state);
    }
}

/// One call. This planner has only one kind.
#[derive(Debug)]
pub enum Action {
    /// Marks a Machine as Failed.
    MarkFailed {
        /// The Machine.
        machine: Arc<MachineFacts>,
        /// The status write, which contains the Event message.
        write: Box<StatusWrite>,
    },
}

/// Decides which Machine is marked Failed, if any.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    let mut overdue: Option<(&Arc<MachineFacts>, Timestamp)> = None;
    let mut next: Option<Timestamp> = None;
    for machine in &s.machines {
        let Some(deadline) = deadline(s, machine) else { continue };
        if !is_past(s.now, deadline) {
            next = Some(next.map_or(deadline, |next| next.min(deadline)));
        } else if overdue.is_none_or(|(_, earliest)| deadline < earliest) {
            overdue = Some((machine, deadline));
        }
    }
    let plan = match overdue {
        None => Plan::idle(Why::settled()),
        Some(_) if s.skew > SKEW_LIMIT => {
            let why = Why::new(
                Reason::ClockSkew { seconds: s.skew.as_secs() },
                Step::Fix("synchronize the clocks".to_owned()),
            );
            Plan::until(plus(s.now, Duration::from_secs(60)), why)
        }
        Some((machine, deadline)) => give_up(s, machine, deadline),
    };
    match next {
        Some(next) => plan.no_later_than(just_past(next)),
        None => plan,
    }
}

fn give_up(s: &Snapshot, machine: &Arc<MachineFacts>, deadline: Timestamp) -> Plan<Action> {
    if let Some(set) = s.unknown_owner.clone() {
        // Another Machine of the deployment may be in replacement already.
        let next = Step::Expect("the MachineSet appears, or the garbage collector deletes its machines");
        return Plan::idle(Why::new(McmReason::OwnerUnknown { set }, next).since(deadline));
    }
    if let Some(other) = s.unseen.clone() {
        let why =
            Why::new(McmReason::ReplacementLimit { other }, Step::Expect("the other Machine is replaced"));
        return Plan::until(plus(s.now, UNSEEN_AGAIN), why.since(deadline));
    }
    if let Some(other) = s.machines.iter().find(|other| is_being_replaced(s, other)) {
        let reason = McmReason::ReplacementLimit { other: other.name.clone() };
        return Plan::idle(Why::new(reason, Step::Expect("the other Machine is replaced")).since(deadline));
    }
    let (live, wanted) = (live(s), wanted(s));
    if live < wanted {
        return Plan::idle(gap(s, live, wanted).since(deadline));
    }
    let description = format!(
        "Machine {} health checks failing since {}: its health timeout has passed",
        machine.name,
        machine.status.phase_since.unwrap_or(deadline)
    );
    let why = Why::new(
        Reason::Writing("marking an unhealthy Machine as Failed"),
        Step::Expect("the MachineSet deletes and replaces the Machine"),
    );
    let kind = machine.status.operation.type_.clone().unwrap_or(OperationType::HealthCheck);
    let write = StatusWrite {
        phase: Some(PhaseWrite::of(Phase::Failed)),
        operation: Some(OperationWrite::failed(kind, description, None)),
        conditions: None,
        at: s.now,
    };
    Plan::act(Action::MarkFailed { machine: machine.clone(), write: Box::new(write) }, why)
}

/// Returns the health deadline of a Machine; absent if it is healthy, being deleted, or never
/// marked Failed.
fn deadline(s: &Snapshot, machine: &MachineFacts) -> Option<Timestamp> {
    let configuration = &machine.spec.configuration;
    let waits = machine.status.phase == Phase::Unknown && machine.deleting_since.is_none();
    // The set deletes a Failed Machine at once unless the Machine carries the preserve annotation.
    let waits = waits && !s.unheard.contains(&machine.uid);
    if !waits || configuration.disables_health_timeout() {
        return None;
    }
    let timeout =
        configuration.health_timeout().and_then(|timeout| timeout.to_std()).unwrap_or(s.health_timeout);
    Some(plus(machine.status.phase_since?, timeout))
}

/// Whether a Machine has failed and will be replaced. A preserved Machine is not replaced while it
/// is preserved.
fn has_failed(s: &Snapshot, machine: &MachineFacts) -> bool {
    machine.status.phase == Phase::Failed && machine.preserved(s.now).is_none()
}

fn is_being_replaced(s: &Snapshot, machine: &MachineFacts) -> bool {
    let failed = has_failed(s, machine);
    // A Machine that is being deleted may have failed before: its last operation is Delete by now.
    // An ordinary deletion delays a replacement a little, which is harmless.
    failed || !is_live(machine) || is_replacement(machine)
}

/// Whether a Machine is not Running yet and may replace a Machine that just failed. Then the next
/// replacement must wait.
fn is_replacement(machine: &MachineFacts) -> bool {
    let operation = &machine.status.operation;
    let creating = operation.type_.as_ref().is_none_or(|kind| *kind == OperationType::Create)
        && operation.state.as_ref().is_none_or(|state| *state == OperationState::Processing);
    matches!(machine.status.phase, Phase::Empty | Phase::Pending) && creating
}

/// Returns the number of live Machines.
fn live(s: &Snapshot) -> u32 {
    number(s.machines.iter().filter(|machine| is_live(machine) && !has_failed(s, machine)).count())
}

/// Returns how many Machines must be live before another one is marked Failed.
fn wanted(s: &Snapshot) -> u32 {
    let growing = || s.sets.iter().filter(|set| set.deleting_since.is_none());
    let told = growing().map(|set| set.replicas()).fold(0, u32::saturating_add);
    // Sets without replicas are not kept up to date. If two sets disagree, the deployment will
    // correct one of them.
    let active = growing().filter(|set| 0 < set.replicas());
    let by_deployment =
        active.filter_map(|set| set.annotation(annotations::DESIRED_REPLICAS)?.parse::<u32>().ok()).max();
    by_deployment.map_or(told, |desired| told.min(desired))
}

/// Returns why Machines are missing, as far as the sets show it.
fn gap(s: &Snapshot, live: u32, wanted: u32) -> Why {
    let frozen = s.sets.iter().find(|set| set.is_frozen() && 0 < set.replicas());
    let next = match frozen {
        Some(set) => {
            Step::Fix(format!("set the annotation {} on MachineSet {}", annotations::UNFREEZE, set.name))
        }
        None => Step::Expect("the missing machines are created"),
    };
    let frozen = frozen.map(|set| set.name.clone());
    Why::new(McmReason::ReplacementGap { live, wanted, frozen }, next)
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MarkFailed { machine, .. } => write!(f, "machine {}: Failed", machine.name),
        }
    }
}

#[cfg(test)]
mod tests;
