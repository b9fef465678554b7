//! The result of a decision: calls to make, the reason, and when to look again.

use std::fmt;

use jiff::Timestamp;

use crate::why::{ContractReason, Why};

/// The result of one decision about one object.
///
/// The actions run in order. Each action is one call with its own precondition, and the first
/// failure ends the pass.
#[derive(Debug)]
#[must_use = "a plan has no effect until its actions are performed"]
pub struct Plan<A, R> {
    /// The calls to make, in order.
    pub actions: Vec<A>,
    /// The first thing this object waits for, or the action that comes next.
    pub why: Why<R>,
    /// When to look again if nothing changes earlier.
    pub wait: Wait,
}

impl<A, R> Plan<A, R> {
    /// A plan without actions that waits for a change.
    pub fn idle(why: Why<R>) -> Self {
        Self { actions: Vec::new(), why, wait: Wait::Idle }
    }

    /// A plan without actions until `at`, unless something changes earlier.
    pub fn until(at: Timestamp, why: Why<R>) -> Self {
        Self { actions: Vec::new(), why, wait: Wait::Until(at) }
    }

    /// A plan with one call. The change that it makes wakes the object again.
    pub fn act(action: A, why: Why<R>) -> Self {
        Self { actions: vec![action], why, wait: Wait::Idle }
    }

    /// A plan with several calls in order.
    pub fn act_all(actions: Vec<A>, why: Why<R>) -> Self {
        Self { actions, why, wait: Wait::Idle }
    }

    /// Sets the wait so that the object is looked at again no later than `at`.
    pub fn no_later_than(mut self, at: Timestamp) -> Self {
        self.wait = self.wait.earliest(Wait::Until(at));
        self
    }
}

impl<A: fmt::Display, R: ContractReason> fmt::Display for Plan<A, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for action in &self.actions {
            writeln!(f, "do    {action}")?;
        }
        writeln!(f, "why   {}", self.why)?;
        writeln!(f, "wait  {}", self.wait)
    }
}

/// When an object is looked at again if it does not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// At this moment at the latest.
    Until(Timestamp),
    /// Only when something changes (or at the periodic resync, which the queue triggers).
    Idle,
}

impl Wait {
    /// Returns the earlier of two waits.
    pub fn earliest(self, other: Self) -> Self {
        match (self, other) {
            (Self::Until(a), Self::Until(b)) => Self::Until(a.min(b)),
            (Self::Until(a), Self::Idle) | (Self::Idle, Self::Until(a)) => Self::Until(a),
            (Self::Idle, Self::Idle) => Self::Idle,
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Until(at) => write!(f, "until {at}"),
            Self::Idle => f.write_str("for a change"),
        }
    }
}
