//! The names of the invariants, and the violations that their checks find.

use std::fmt;

/// Identifies an invariant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the table at the top of `invariants` describes each of them")]
pub enum Id {
    S1,
    S2,
    S3,
    S4,
    S5,
    S6,
    S7,
    S13,
    S14,
    S15,
    S16,
    S17,
    S18,
    S19,
    S20,
    S21,
    S22,
    S23,
    S24,
    S25,
    S26,
    S27,
    S28,
    S29,
    S30,
    S31,
    S32,
    L1,
    L2,
    L4,
    L6,
    L8,
    L9,
    L10,
    C1,
    C2,
    C3,
    C4,
    C5,
    C6,
    C7,
    C8,
    C9,
    C10,
    C11,
    C12,
    K1,
    K2,
    K3,
    K4,
    K5,
    K6,
    K7,
    K8,
    K9,
    K10,
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{self:?}"))
    }
}

/// The violations found by one check.
#[derive(Debug, Default)]
pub struct Violations(Vec<(Id, String)>);

impl Violations {
    /// Adds a violation.
    pub fn add(&mut self, id: Id, what: impl Into<String>) {
        self.0.push((id, what.into()));
    }

    /// Whether there is no violation.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn into_inner(self) -> Vec<(Id, String)> {
        self.0
    }
}

/// A violated invariant, with the events before the violation.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The invariant.
    pub id: Id,
    /// The violation, in words.
    pub what: String,
    /// The event that was checked.
    pub at: String,
    /// The end of the trace at that moment.
    pub tail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} violated at {}: {}", self.id, self.at, self.what)?;
        write!(f, "{}", self.tail)
    }
}
