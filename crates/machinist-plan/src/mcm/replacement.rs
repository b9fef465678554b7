//! Which unhealthy Machine of a deployment is given up: one at a time.
//!
//! A Machine whose Node is unhealthy for longer than its health timeout is marked Failed, and its set replaces it. When many
//! Nodes are unhealthy at once, the trouble is rarely with the Nodes; so the next Machine is given up only when the one before
//! has been replaced. The limit is shared by all Machines of a deployment and decided here alone.
//!
//! "Being replaced" is: Failed, on the way out, or made and not Running yet. The last cannot be told from an ordinary scale-up
//! without memory, so a scale-up delays the next replacement too: by no more than the creation timeout, and not at all by
//! Machines that cannot be made (or a used-up quota would stop all healing).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_api::{OperationState, OperationType, Phase};

use crate::facts::MachineFacts;
use crate::snapshot::{SKEW_LIMIT, is_past, just_past, plus};
use crate::why::{Reason, Step};
use crate::{Plan, Why};

/// All facts for one decision about the replacements of one deployment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The moment of the decision.
    pub now: Timestamp,
    /// How far the wall clock is from the API server's, at most.
    pub skew: Duration,
    /// Every Machine of the deployment.
    pub machines: Vec<Arc<MachineFacts>>,
    /// `--machine-health-timeout`
    pub health_timeout: Duration,
}

/// One call: there is only one thing to do.
#[derive(Debug)]
pub enum Action {
    /// Give a Machine up.
    MarkFailed {
        /// The Machine.
        machine: Arc<MachineFacts>,
        /// What is said about it.
        description: String,
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
    if let Some(other) = s.machines.iter().find(|other| is_being_replaced(other)) {
        let reason = Reason::ReplacementLimit { other: other.name.clone() };
        return Plan::idle(Why::new(reason, Step::Expect("that Machine is replaced")).since(deadline));
    }
    let description = format!(
        "Machine {} health checks failing since {}: its health timeout has passed",
        machine.name,
        machine.status.phase_since.unwrap_or(deadline)
    );
    let why = Why::new(
        Reason::Acting("an unhealthy Machine to be given up"),
        Step::Expect("its set deletes and replaces it"),
    );
    Plan::act(Action::MarkFailed { machine: machine.clone(), description }, why)
}

/// When patience with a Machine ends; absent for those that are healthy, leaving, or never given up.
fn deadline(s: &Snapshot, machine: &MachineFacts) -> Option<Timestamp> {
    let configuration = &machine.spec.configuration;
    let waits = machine.status.phase == Phase::Unknown && machine.deleting_since.is_none();
    if !waits || configuration.disables_health_timeout() {
        return None;
    }
    let timeout =
        configuration.health_timeout().and_then(|timeout| timeout.to_std()).unwrap_or(s.health_timeout);
    Some(plus(machine.status.phase_since?, timeout))
}

fn is_being_replaced(machine: &MachineFacts) -> bool {
    let failed = machine.status.phase == Phase::Failed;
    let leaving = machine.deleting_since.is_some() || machine.status.phase == Phase::Terminating;
    // Whoever is on the way out may have failed: its last operation says Delete by now. An ordinary deletion delays a
    // replacement a little, which harms nobody.
    failed || leaving || is_replacement(machine)
}

/// A Machine that is not Running yet may be the replacement of one that failed a moment ago; then the next must wait.
fn is_replacement(machine: &MachineFacts) -> bool {
    let operation = &machine.status.operation;
    let creating = operation.type_.as_ref().is_none_or(|kind| *kind == OperationType::Create)
        && operation.state.as_ref().is_none_or(|state| *state == OperationState::Processing);
    matches!(machine.status.phase, Phase::Empty | Phase::Pending) && creating
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
