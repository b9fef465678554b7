//! Conditions of a Node that show what happens to its Machine.

use std::fmt;

/// The condition `InPlaceUpdate` of a Node. Its status is always `True`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateCondition {
    /// The stage of the update.
    pub reason: &'static str,
    /// Message for users.
    pub message: String,
}

impl fmt::Display for UpdateCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InPlaceUpdate, {}", self.reason)
    }
}

/// The condition `Preserved` of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreservedCondition {
    /// `True` or `False`.
    pub status: &'static str,
    /// Reason of the condition; Go MCM has texts with spaces there.
    pub reason: &'static str,
    /// Message for users. It begins with a marker if the drain has ended or is blocked.
    pub message: String,
}

impl fmt::Display for PreservedCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Preserved={}, {} {}", self.status, self.reason, self.message)
    }
}
