//! What a decision results in: calls to make, the reason, and when to look again.

use std::fmt;

use jiff::Timestamp;

use crate::why::{ContractReason, Why};

/// The result of one decision about one object.
///
/// `actions` are performed in order, each one call with its own precondition; the first that fails ends the pass.
#[derive(Debug)]
#[must_use = "a plan that nobody acts on changes nothing"]
pub struct Plan<A, R> {
    /// The calls to make, in order.
    pub actions: Vec<A>,
    /// The first thing this object waits for, or what it is about to do.
    pub why: Why<R>,
    /// When to look again if nothing happens before.
    pub wait: Wait,
}

impl<A, R> Plan<A, R> {
    /// Nothing to do until something changes.
    pub fn idle(why: Why<R>) -> Self {
        Self { actions: Vec::new(), why, wait: Wait::Idle }
    }

    /// Nothing to do before that moment, unless something changes earlier.
    pub fn until(at: Timestamp, why: Why<R>) -> Self {
        Self { actions: Vec::new(), why, wait: Wait::Until(at) }
    }

    /// One call; whatever it changes wakes the object again.
    pub fn act(action: A, why: Why<R>) -> Self {
        Self { actions: vec![action], why, wait: Wait::Idle }
    }

    /// Several calls in order.
    pub fn act_all(actions: Vec<A>, why: Why<R>) -> Self {
        Self { actions, why, wait: Wait::Idle }
    }

    /// The same plan, looked at again no later than `at`.
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

/// When an object is looked at again if nothing happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// At that moment at the latest.
    Until(Timestamp),
    /// Only when something changes (or at the periodic resync, which is the queue's business).
    Idle,
}

impl Wait {
    /// The earlier of two.
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
