//! Which unhealthy Machine of a deployment is given up: one at a time.
//!
//! A Machine whose Node is unhealthy for longer than its health timeout is marked Failed, and its set replaces it. When many
//! Nodes are unhealthy at once, the trouble is rarely with the Nodes; so the next Machine is given up only when the one before
//! has been replaced. The limit is shared by all Machines of a deployment and decided here alone.
//!
//! "Being replaced" is: Failed, on the way out, or made and not Running yet. The last cannot be told from an ordinary scale-up
//! without memory, so a scale-up delays the next replacement too: by no more than the creation timeout, and not at all by
//! Machines whose instance cannot be made (or a used-up quota would stop all healing).
//!
//! A Machine that was given up and is gone leaves a gap until its set makes another one. A set that is frozen, or whose POSTs are
//! refused, leaves it open; then giving up the next one would only make the deployment smaller, one Machine after the other.
//! So nobody is given up while fewer Machines live than are wanted:
//!
//! - A Machine lives unless it is Failed or on its way out. One that is unhealthy, or whose instance cannot be made, lives: its
//!   set would not make another one beside it. So does one that is Failed and preserved, which may last for days: it is not
//!   being replaced, and holds nobody up.
//! - Wanted is what the sets were told to have, and no more than the deployment wants (its sets carry that in an annotation).
//!   The first bound, because nobody makes more. The second, because the surge of a rollout is not owed: a new template
//!   whose Machines are refused must not stop the healing of the old ones.
//!
//! A Machine whose set is not known is not given up: the watch of sets may be behind the watch of Machines, and the deployment that
//! shares the limit is known by the set alone.
//!
//! A scale-up is a gap too, but only until its Machines are POSTed; from then on they live, and count as above.
//! A set that is stopped for longer than that says so, and the wait ends with its cause.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_api::constants::annotations;
use machinist_api::{OperationState, OperationType, Phase};

use super::machine::{OperationWrite, PhaseWrite, StatusWrite};
use super::machine_deployment::number;
use super::machine_set::is_live;
use crate::facts::{MachineFacts, MachineSetFacts};
use crate::why::{McmReason, Reason, Step};
use crate::{Plan, Why};
use machinist_core::{SKEW_LIMIT, is_past, just_past, plus};

/// Nothing wakes a deployment for a write of which another key was charged, so it looks again after this long: by then such a write is
/// seen, or was read.
const UNSEEN_AGAIN: Duration = Duration::from_secs(10);

/// All facts for one decision about the replacements of one deployment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The moment of the decision.
    pub now: Timestamp,
    /// How far the wall clock is from the API server's, at most.
    pub skew: Duration,
    /// Every Machine of the deployment.
    pub machines: Vec<Arc<MachineFacts>>,
    /// UIDs of those whose Node says something about preserving them that they do not carry yet.
    pub unheard: BTreeSet<String>,
    /// Every set of the deployment; none where Machines belong to no set.
    pub sets: Vec<Arc<MachineSetFacts>>,
    /// The set that owns the Machines, if it is not known: then their deployment is not known either.
    pub unknown_owner: Option<String>,
    /// A Machine that this process gave up when it was of another deployment or of none, in a write that it has not seen yet.
    pub unseen: Option<String>,
    /// `--machine-health-timeout`
    pub health_timeout: Duration,
}

impl Hash for Snapshot {
    /// Everything that a decision is made from. Left out is what changes without news: the moment, and what the process is told or
    /// measures.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { now: _, skew: _, machines, unheard, sets, unknown_owner, unseen, health_timeout: _ } =
            self;
        (machines, unheard, sets, unknown_owner, unseen).hash(state);
    }
}

/// One call: there is only one thing to do.
#[derive(Debug)]
pub enum Action {
    /// Give a Machine up.
    MarkFailed {
        /// The Machine.
        machine: Arc<MachineFacts>,
        /// Its status, and the Event's text in it.
        write: Box<StatusWrite>,
    },
}

/// Decides which Machine is given up, if any.
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
                Step::Mend("synchronise the clocks".to_owned()),
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
        // Among the Machines of its deployment one may be replaced already.
        let next = Step::Expect("the MachineSet appears, or the garbage collector deletes its machines");
        return Plan::idle(Why::new(McmReason::OwnerUnknown { set }, next).since(deadline));
    }
    if let Some(other) = s.unseen.clone() {
        let why = Why::new(McmReason::ReplacementLimit { other }, Step::Expect("that Machine is replaced"));
        return Plan::until(plus(s.now, UNSEEN_AGAIN), why.since(deadline));
    }
    if let Some(other) = s.machines.iter().find(|other| is_being_replaced(s, other)) {
        let reason = McmReason::ReplacementLimit { other: other.name.clone() };
        return Plan::idle(Why::new(reason, Step::Expect("that Machine is replaced")).since(deadline));
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
        Reason::Writing("an unhealthy Machine to be given up"),
        Step::Expect("its set deletes and replaces it"),
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

/// When patience with a Machine ends; absent for those that are healthy, leaving, or never given up.
fn deadline(s: &Snapshot, machine: &MachineFacts) -> Option<Timestamp> {
    let configuration = &machine.spec.configuration;
    let waits = machine.status.phase == Phase::Unknown && machine.deleting_since.is_none();
    // Once it is Failed, its set deletes it at once unless it carries that it is to be kept.
    let waits = waits && !s.unheard.contains(&machine.uid);
    if !waits || configuration.disables_health_timeout() {
        return None;
    }
    let timeout =
        configuration.health_timeout().and_then(|timeout| timeout.to_std()).unwrap_or(s.health_timeout);
    Some(plus(machine.status.phase_since?, timeout))
}

/// Whether a Machine has failed and will be replaced: one that is preserved will not, for as long as that lasts.
fn has_failed(s: &Snapshot, machine: &MachineFacts) -> bool {
    machine.status.phase == Phase::Failed && machine.preserved(s.now).is_none()
}

fn is_being_replaced(s: &Snapshot, machine: &MachineFacts) -> bool {
    let failed = has_failed(s, machine);
    // Whoever is on the way out may have failed: its last operation says Delete by now. An ordinary deletion delays a
    // replacement a little, which harms nobody.
    failed || !is_live(machine) || is_replacement(machine)
}

/// A Machine that is not Running yet may be the replacement of one that failed a moment ago; then the next must wait.
fn is_replacement(machine: &MachineFacts) -> bool {
    let operation = &machine.status.operation;
    let creating = operation.type_.as_ref().is_none_or(|kind| *kind == OperationType::Create)
        && operation.state.as_ref().is_none_or(|state| *state == OperationState::Processing);
    matches!(machine.status.phase, Phase::Empty | Phase::Pending) && creating
}

/// How many Machines hold the place of one that is wanted.
fn live(s: &Snapshot) -> u32 {
    number(s.machines.iter().filter(|machine| is_live(machine) && !has_failed(s, machine)).count())
}

/// How many Machines there must be before one more is given up.
fn wanted(s: &Snapshot) -> u32 {
    let growing = || s.sets.iter().filter(|set| set.deleting_since.is_none());
    let told = growing().map(|set| set.replicas()).fold(0, u32::saturating_add);
    // Sets without replicas are not kept up to date; where two disagree, the deployment is about to correct one.
    let active = growing().filter(|set| 0 < set.replicas());
    let by_deployment =
        active.filter_map(|set| set.annotation(annotations::DESIRED_REPLICAS)?.parse::<u32>().ok()).max();
    by_deployment.map_or(told, |desired| told.min(desired))
}

/// Why Machines are missing, as far as their sets tell.
fn gap(s: &Snapshot, live: u32, wanted: u32) -> Why {
    let frozen = s.sets.iter().find(|set| set.is_frozen() && 0 < set.replicas());
    let next = match frozen {
        Some(set) => {
            Step::Mend(format!("set the annotation {} on MachineSet {}", annotations::UNFREEZE, set.name))
        }
        None => Step::Expect("the missing machines are made"),
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
