//! Writes of a Machine's status, and the comparison with the current status.
//!
//! Statuses are compared without timestamps, so that an unchanged status causes no write.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeAddress, NodeCondition};
use machinist_api::code::{Code, CodedMessage};
use machinist_api::constants::conditions;
use machinist_api::{OperationState, OperationType, Phase};
use machinist_instance::{Error, ErrorKind};

use super::snapshot::Snapshot;
use crate::mcm::facts::{ConditionFacts, StatusFacts};

/// One write of a Machine's status. Absent parts are not changed, even if other clients write them
/// in between. The write fails unless the phase is still the one on which the decision is based.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusWrite {
    /// The new phase, with `at` as its time.
    pub phase: Option<PhaseWrite>,
    /// The new last operation, with `at` as its time.
    pub operation: Option<OperationWrite>,
    /// The new conditions.
    pub conditions: Option<Vec<NodeCondition>>,
    /// The new addresses.
    pub addresses: Option<Vec<NodeAddress>>,
    /// The change of the text that the driver stores.
    pub last_known_state: Option<StateWrite>,
    /// The moment of the decision.
    pub at: Timestamp,
}

/// A change of `status.lastKnownState`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateWrite {
    /// The driver returned this text.
    Set(String),
    /// The text no longer describes the instance.
    Clear,
}

/// A phase, with the fields that depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseWrite {
    /// The phase.
    pub phase: Phase,
    /// The flag `timeoutActive`.
    pub timeout_active: bool,
    /// Whether the preservation expiry is removed.
    pub ends_promise: bool,
}

impl PhaseWrite {
    /// Returns the write of a phase and its dependent fields.
    pub fn of(phase: Phase) -> Self {
        let (timeout_active, ends_promise) = (timeout_runs(&phase), !StatusFacts::keeps_promise_in(&phase));
        Self { phase, timeout_active, ends_promise }
    }
}

/// A last operation, without the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationWrite {
    /// Type of the operation.
    pub kind: OperationType,
    /// State of the operation.
    pub state: OperationState,
    /// Text for users, followed by the marker in a deletion.
    pub description: String,
    /// Error code that the cluster-autoscaler knows.
    pub code: Option<Code>,
}

impl OperationWrite {
    /// An operation in progress.
    pub fn processing(kind: OperationType, description: impl Into<String>) -> Self {
        Self { kind, state: OperationState::Processing, description: description.into(), code: None }
    }

    /// An operation that succeeded.
    pub fn successful(kind: OperationType, description: impl Into<String>) -> Self {
        Self { kind, state: OperationState::Successful, description: description.into(), code: None }
    }

    /// Whether the operation is a creation that failed.
    pub fn is_failed_creation(&self) -> bool {
        self.kind == OperationType::Create && self.state == OperationState::Failed
    }

    /// An operation that failed.
    pub fn failed(kind: OperationType, description: impl Into<String>, code: Option<Code>) -> Self {
        Self { kind, state: OperationState::Failed, description: description.into(), code }
    }
}

impl Snapshot {
    /// Returns the write of this phase and operation, unless the status already has both.
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
        Some(StatusWrite { phase, operation: Some(operation), ..self.no_change() })
    }

    /// A status write without a change.
    pub(super) fn no_change(&self) -> StatusWrite {
        StatusWrite {
            phase: None,
            operation: None,
            conditions: None,
            addresses: None,
            last_known_state: None,
            at: self.now,
        }
    }

    /// Returns the change of the driver's text after a failed call, as in Go MCM: a text in the
    /// error counts, and otherwise the old one stays or is removed.
    pub(super) fn state_after(&self, error: &Error, otherwise: OldState) -> Option<StateWrite> {
        let old = self.machine.status.last_known_state.as_deref();
        match (error.state.as_deref(), otherwise) {
            (Some(new), _) => (old != Some(new)).then(|| StateWrite::Set(new.to_owned())),
            (None, OldState::Removed) => old.map(|_| StateWrite::Clear),
            (None, OldState::Kept) => None,
        }
    }

    /// Adds the change of the driver's text to a write. If nothing else changes, only the text is
    /// written.
    pub(super) fn with_state(
        &self,
        write: Option<StatusWrite>,
        state: Option<StateWrite>,
    ) -> Option<StatusWrite> {
        match (write, state) {
            (Some(write), last_known_state) => Some(StatusWrite { last_known_state, ..write }),
            (None, Some(state)) => Some(StatusWrite { last_known_state: Some(state), ..self.no_change() }),
            (None, None) => None,
        }
    }

    /// Whether the Node's conditions differ from the copy in a relevant way: a type was added or
    /// removed, or a status changed. Heartbeats, messages and reasons do not count, except for the
    /// reason that shows the progress of an in-place update.
    pub(super) fn conditions_differ(&self, node: &[ConditionFacts]) -> bool {
        let copy = &self.machine.status.conditions;
        let differs = |condition: &ConditionFacts| {
            let tells_by_reason = condition.kind == conditions::NODE_IN_PLACE_UPDATE;
            copy.iter().find(|c| c.kind == condition.kind).is_none_or(|c| {
                c.status != condition.status || (tells_by_reason && c.reason() != condition.reason())
            })
        };
        copy.len() != node.len() || node.iter().any(differs)
    }
}

/// Whether the driver's text stays if an error has no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OldState {
    /// The text stays.
    Kept,
    /// The text is removed.
    Removed,
}

impl OldState {
    /// The rule for a failed creation: after a failure that passes, the text still describes the
    /// instance.
    pub(super) fn after_creation(error: &Error) -> Self {
        match error.kind {
            ErrorKind::Exhausted
            | ErrorKind::Ambiguous
            | ErrorKind::Unavailable
            | ErrorKind::Throttled { .. } => Self::Kept,
            ErrorKind::InvalidSpec | ErrorKind::Denied | ErrorKind::Unsupported | ErrorKind::Bug => {
                Self::Removed
            }
        }
    }
}

/// Whether `timeoutActive` is set in a phase.
fn timeout_runs(phase: &Phase) -> bool {
    *phase == Phase::Pending
}

impl StatusWrite {
    /// Adds a copy of the Node's conditions to the write.
    pub(super) fn with_conditions(mut self, node: &[ConditionFacts]) -> Self {
        self.conditions = Some(node.iter().map(ConditionFacts::copied).collect());
        self
    }
}

/// Maps a driver error to a status code of the machine API. This is the only such mapping.
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

/// Renders a failed call in the text form of the machine API's descriptions.
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
        let addresses = self.addresses.as_ref().map(|all| format!("{} addresses", all.len()));
        let state = self.last_known_state.as_ref().map(|state| match state {
            StateWrite::Set(_) => "last known state".to_owned(),
            StateWrite::Clear => "no last known state".to_owned(),
        });
        let parts: Vec<_> = [phase, operation, conditions, addresses, state].into_iter().flatten().collect();
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

    /// Matches the fixtures of Go's machine-controller-manager, where Unknown and CrashLoopBackOff
    /// do not have the flag.
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
