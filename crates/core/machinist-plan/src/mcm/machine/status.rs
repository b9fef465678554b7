//! The status of a Machine: what is written, and when that differs from what is there.
//!
//! Statuses are compared without timestamps, so that saying the same thing again is not a write.

use std::fmt;

use jiff::Timestamp;
use machinist_api::code::{Code, CodedMessage};
use machinist_api::constants::conditions;
use machinist_api::{OperationState, OperationType, Phase};
use machinist_instance::{Error, ErrorKind};
use serde_json::Value;

use super::Snapshot;
use crate::facts::{ConditionFacts, StatusFacts};

/// One write of a Machine's status. Parts that are absent stay as they are, whoever writes them meanwhile; and nothing is
/// written unless the phase is still the one that the decision was made from.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusWrite {
    /// The new phase; its time is `at`.
    pub phase: Option<PhaseWrite>,
    /// The new last operation; its time is `at`.
    pub operation: Option<OperationWrite>,
    /// The new conditions.
    pub conditions: Option<Vec<Value>>,
    /// The moment of the decision.
    pub at: Timestamp,
}

/// A phase, and what goes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseWrite {
    /// The phase.
    pub phase: Phase,
    /// The flag `timeoutActive`.
    pub timeout_active: bool,
    /// Whether the time until which the Machine was to be preserved goes.
    pub ends_promise: bool,
}

impl PhaseWrite {
    /// That phase, with what goes with it.
    pub fn of(phase: Phase) -> Self {
        let (timeout_active, ends_promise) = (timeout_runs(&phase), !StatusFacts::keeps_promise_in(&phase));
        Self { phase, timeout_active, ends_promise }
    }
}

/// A last operation without its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationWrite {
    /// What it is.
    pub kind: OperationType,
    /// How it stands.
    pub state: OperationState,
    /// Prose and, in a deletion, the marker.
    pub description: String,
    /// Why it failed, in the words that the autoscaler knows.
    pub code: Option<Code>,
}

impl OperationWrite {
    /// An operation that goes on.
    pub fn processing(kind: OperationType, description: impl Into<String>) -> Self {
        Self { kind, state: OperationState::Processing, description: description.into(), code: None }
    }

    /// An operation that is done.
    pub fn successful(kind: OperationType, description: impl Into<String>) -> Self {
        Self { kind, state: OperationState::Successful, description: description.into(), code: None }
    }

    /// An operation that failed.
    pub fn failed(kind: OperationType, description: impl Into<String>, code: Option<Code>) -> Self {
        Self { kind, state: OperationState::Failed, description: description.into(), code }
    }
}

impl Snapshot {
    /// The write that brings the status to this phase and operation, or nothing if it is there already.
    pub(super) fn status(&self, phase: Phase, operation: OperationWrite) -> Option<StatusWrite> {
        let current = &self.machine.status;
        let moves = current.phase != phase;
        let says = current.operation.type_.as_ref() == Some(&operation.kind)
            && current.operation.state.as_ref() == Some(&operation.state)
            && current.operation.description() == operation.description
            && current.operation.error_code.as_deref().unwrap_or_default()
                == operation.code.map_or("", Code::as_str);
        if !moves && says {
            return None;
        }
        let phase = moves.then(|| PhaseWrite::of(phase));
        Some(StatusWrite { phase, operation: Some(operation), conditions: None, at: self.now })
    }

    /// Whether the Node's conditions differ from the copy in a way that a reader would notice: a type came or went, or a status
    /// changed. Heartbeats, messages and reasons do not count, but for the reason that says how far an update in place is.
    pub(super) fn conditions_differ(&self, node: &[ConditionFacts]) -> bool {
        let copy = &self.machine.status.conditions;
        let differs = |condition: &ConditionFacts| {
            let tells_by_reason = condition.kind == conditions::NODE_IN_PLACE_UPDATE;
            copy.iter().find(|c| c.kind == condition.kind).is_none_or(|c| {
                c.status != condition.status || (tells_by_reason && c.reason != condition.reason)
            })
        };
        copy.len() != node.len() || node.iter().any(differs)
    }
}

/// Whether `timeoutActive` is set in a phase.
fn timeout_runs(phase: &Phase) -> bool {
    *phase == Phase::Pending
}

impl StatusWrite {
    /// The same write, with the Node's conditions copied.
    pub(super) fn with_conditions(mut self, node: &[ConditionFacts]) -> Self {
        self.conditions = Some(node.iter().map(|condition| condition.raw.clone()).collect());
        self
    }
}

/// The status code of a failed call, as the machine API spells it. This is the one table between drivers and codes.
pub fn code_of(error: &Error) -> Code {
    match error.kind {
        ErrorKind::InvalidSpec => Code::InvalidArgument,
        ErrorKind::Denied => Code::PermissionDenied,
        ErrorKind::Exhausted => Code::ResourceExhausted,
        ErrorKind::Throttled { .. } | ErrorKind::Unavailable => Code::Unavailable,
        ErrorKind::Ambiguous => Code::DeadlineExceeded,
        ErrorKind::Unsupported => Code::Unimplemented,
        ErrorKind::Bug => Code::Internal,
    }
}

/// A failed call in the text form that the machine API keeps in descriptions.
pub(super) fn code_text(error: &Error) -> String {
    CodedMessage { code: code_of(error), message: error.message.clone() }.to_string()
}

impl fmt::Display for StatusWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = self.phase.as_ref().map(|write| match &write.phase {
            Phase::Empty => "no phase".to_owned(),
            phase => phase.to_string(),
        });
        let operation = self.operation.as_ref().map(ToString::to_string);
        let conditions = self.conditions.as_ref().map(|all| format!("{} conditions", all.len()));
        let parts: Vec<_> = [phase, operation, conditions].into_iter().flatten().collect();
        f.write_str(&parts.join(", "))
    }
}

impl fmt::Display for OperationWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.state)?;
        if let Some(code) = self.code {
            write!(f, " [{}]", code.as_str())?;
        }
        write!(f, " {:?}", self.description)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in the fixtures of Go's machine-controller-manager, where Unknown and CrashLoopBackOff do not have it.
    #[test]
    fn the_timeout_flag_is_set_while_a_machine_is_pending() {
        let phases = [
            Phase::Empty,
            Phase::Pending,
            Phase::Available,
            Phase::Running,
            Phase::Terminating,
            Phase::Unknown,
            Phase::Failed,
            Phase::CrashLoopBackOff,
            Phase::InPlaceUpdating,
            Phase::InPlaceUpdateSuccessful,
            Phase::InPlaceUpdateFailed,
        ];
        let flagged: Vec<_> = phases.into_iter().filter(timeout_runs).collect();
        assert_eq!(flagged, [Phase::Pending]);
    }
}
