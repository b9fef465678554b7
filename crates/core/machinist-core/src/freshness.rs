//! How recently a watch delivered something.
//!
//! A store keeps its content when the API server no longer answers. So a planner enforces a
//! deadline only with fresh facts. If they are not fresh, one read decides; without an answer the
//! deadline waits.
//!
//! The runtime measures the freshness, makes the read and limits its rate. A planner asks for a
//! read only if a deadline is due, so freshness costs no request otherwise.

use jiff::Timestamp;

use crate::plan::Plan;
use crate::why::{ContractReason, Reason, Step, Why};

/// How recently the watch of a kind delivered something.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Freshness {
    /// The watch delivered an event or a bookmark within two minutes, or the whole kind was listed.
    #[default]
    Fresh,
    /// The watch has been silent for longer.
    Stale(Silence),
}

/// The silence of a watch, and the read that may end it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Silence {
    /// The API server, as text for users: `the API server of the target cluster`.
    pub server: String,
    /// When the watch last delivered something.
    pub since: Timestamp,
    /// The state of the read.
    pub read: FreshRead,
}

/// The state of the read that may end a silence.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FreshRead {
    /// A planner may ask for a read.
    Possible,
    /// A read is in flight. It ends at this moment at the latest.
    InFlight(Timestamp),
    /// The last read got no answer. The next one may begin at this moment.
    Failed(Timestamp),
}

impl Freshness {
    /// Returns the plan of a due deadline if the facts are not fresh: `read` once, or wait for the
    /// answer. Returns nothing if the facts are fresh.
    pub fn obstacle<A, R: ContractReason>(&self, read: impl FnOnce() -> A) -> Option<Plan<A, R>> {
        let Self::Stale(silence) = self else { return None };
        let why = silence.why();
        Some(match silence.read {
            FreshRead::Possible => Plan::act(read(), why),
            FreshRead::InFlight(until) | FreshRead::Failed(until) => Plan::until(until, why),
        })
    }

    /// Whether the facts are not fresh, and a read may begin now.
    pub fn may_be_read(&self) -> bool {
        matches!(self, Self::Stale(Silence { read: FreshRead::Possible, .. }))
    }

    /// Whether a planner may decide by these facts about a deadline that is due.
    pub fn is_fresh(&self) -> bool {
        matches!(self, Self::Fresh)
    }
}

impl Silence {
    /// Returns the reason for a deadline that waits for fresh facts.
    pub fn why<R: ContractReason>(&self) -> Why<R> {
        let next = match self.read {
            FreshRead::Possible | FreshRead::InFlight(_) => {
                Step::Expect("the controller reads the current state from the API server")
            }
            FreshRead::Failed(_) => Step::Expect("the controller tries to read from the API server again"),
        };
        Why::new(Reason::ServerSilent { server: self.server.clone() }, next).since(self.since)
    }
}
