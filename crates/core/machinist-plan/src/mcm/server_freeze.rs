//! The freeze of the machine controller while an API server does not answer.
//!
//! Go's machine-controller-manager stops to reconcile Machines while an API server is away, so that
//! an outage does not make all Machines fail. Here, each deadline waits for fresh facts anyway. The
//! freeze is the name of that state, for metrics and for decisions without a deadline: Machines or
//! Nodes are not fresh, and the requests that this makes due have had no answer for longer than
//! `--machine-safety-apiserver-statuscheck-timeout`. The first answer ends it.
//!
//! While the controller is frozen, no Machine is marked Failed. Deletions continue by their own
//! rules. The end of a freeze resets no time: a deadline leaves out the time without facts, as in
//! every silence.

use std::time::Duration;

use jiff::Timestamp;
use machinist_core::{Silence, plus};

use super::why::Plan;

/// How often a decision that waits for the end of a freeze is made again.
const AGAIN: Duration = Duration::from_secs(10);

/// A kind that is not fresh, and whose API server does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SilentKind {
    /// The facts that are not fresh.
    pub silence: Silence,
    /// How long the requests have had no answer.
    pub lasts: Duration,
}

/// The freeze of the machine controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frozen {
    /// The facts that are not fresh.
    pub silence: Silence,
}

/// Returns the freeze, if one of the kinds makes it due. `timeout` is
/// `--machine-safety-apiserver-statuscheck-timeout`.
pub fn frozen(unanswered: impl IntoIterator<Item = SilentKind>, timeout: Duration) -> Option<Frozen> {
    let too_long = unanswered.into_iter().find(|unanswered| timeout < unanswered.lasts)?;
    Some(Frozen { silence: too_long.silence })
}

impl Frozen {
    /// Returns the plan of a decision that waits for the end of the freeze.
    pub(super) fn wait<A>(&self, now: Timestamp) -> Plan<A> {
        Plan::until(plus(now, AGAIN), self.silence.why())
    }
}

#[cfg(test)]
mod tests {
    use machinist_core::FreshRead;

    use super::*;
    use crate::testing::at;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn unanswered(seconds: u64) -> SilentKind {
        let server = "the API server of the target cluster".to_owned();
        let silence = Silence { server, since: at(-200), read: FreshRead::Possible };
        SilentKind { silence, lasts: Duration::from_secs(seconds) }
    }

    /// Added condition: both servers answer, or the facts are fresh.
    #[test]
    fn t_55_nothing_is_frozen_while_both_servers_answer() {
        assert_eq!(frozen([], TIMEOUT), None);
        assert_eq!(frozen([], Duration::ZERO), None);
    }

    /// Added condition: Machines or Nodes are not fresh.
    #[test]
    fn t_56_a_long_silence_of_one_server_freezes() {
        for early in [0, 5, 30] {
            assert_eq!(frozen([unanswered(early)], TIMEOUT), None, "{early} s");
            assert_eq!(frozen([unanswered(early), unanswered(early)], TIMEOUT), None, "{early} s");
        }
        assert!(frozen([unanswered(300)], TIMEOUT).is_some());
        assert!(frozen([unanswered(0), unanswered(300)], TIMEOUT).is_some(), "one of the servers");
        assert!(frozen([unanswered(31), unanswered(31)], TIMEOUT).is_some());
    }

    #[test]
    fn the_reason_names_the_silent_server() {
        let frozen = frozen([unanswered(31)], TIMEOUT).expect("frozen");
        let plan: Plan<()> = frozen.wait(at(0));
        assert!(plan.why.to_string().starts_with("the API server of the target cluster is silent"));
        assert_eq!(plan.wait, machinist_core::Wait::Until(at(10)));
    }
}
