//! What must hold in every run, whatever goes wrong.
//!
//! | | holds | judged |
//! |---|---|---|
//! | S1 | one instance per Machine, ever | each commit of the ledger |
//! | S2 | no instance is deleted whose Machine is not to go | each commit of the ledger |
//! | S3 | the finalizer says "an instance may exist": none is made without it, and it leaves after the instance | both |
//! | S4 | no Machine is made beyond replicas + surge | each Machine that is made |
//! | S5 | no voluntary deletion takes availability below replicas - maxUnavailable | each deletion of a Machine |
//! | S6 | cordon before the first eviction; no pod, and no instance under a pod that has to leave, goes before the drain may use force | each write about pods, each deletion in the ledger |
//! | S7 | provider ids are set once and unique; a Node is deleted only with the Machine that it belongs to | each commit |
//! | S13 | one unhealthy Machine of a deployment is given up at a time | each Machine that is marked Failed |
//! | L1 | what is asked for is there, and stays | at the end |
//! | L2 | nothing is left over | at the end |
//! | L4 | nobody writes, calls or looks when there is nothing to do | at the end |
//! | L6 | 6 writes to make a Machine, 7 to delete one | at the end, without faults |
//!
//! They are judged on the commit log and the ledger, never by polling. Where a rule is about what a process knew when it wrote,
//! it is judged on the newest revision that had been delivered to that process when it sent the write.

mod availability;
mod drain;
mod end;
mod identity;
mod instances;
mod replacement;
mod surge;

use std::fmt;

pub use self::end::{Disturbed, Quiet, Settled, Spent};
use crate::history::{Event, State};

/// Names an invariant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the table at the top of this module says what each is")]
pub enum Id {
    S1,
    S2,
    S3,
    S4,
    S5,
    S6,
    S7,
    S13,
    L1,
    L2,
    L4,
    L6,
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{self:?}"))
    }
}

/// One rule. It sees everything that happens, in order.
pub trait Invariant: Send {
    /// Looks at one thing that happened; `state` contains it already.
    fn see(&mut self, state: &State, event: &Event<'_>, found: &mut Violations);
}

/// What one look found.
#[derive(Debug, Default)]
pub struct Violations(Vec<(Id, String)>);

impl Violations {
    /// Something is wrong.
    pub fn add(&mut self, id: Id, what: impl Into<String>) {
        self.0.push((id, what.into()));
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn into_inner(self) -> Vec<(Id, String)> {
        self.0
    }
}

/// An invariant that was violated, with what led to it.
#[derive(Debug, Clone)]
pub struct Violation {
    /// Which.
    pub id: Id,
    /// How.
    pub what: String,
    /// What was being looked at.
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

/// All rules that are judged while the run goes on.
pub fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(instances::OnePerMachine),
        Box::new(instances::OnlyWithCause),
        Box::new(instances::FinalizerTruth),
        Box::new(surge::SurgeBound),
        Box::new(availability::Availability),
        Box::new(drain::DrainOrder::default()),
        Box::new(identity::ProviderIds),
        Box::new(identity::OwnNodesOnly),
        Box::new(replacement::OneAtATime),
    ]
}
