//! The remaining calls of the account, and the calls that wait while few are left.
//!
//! Other programs use the same account: the autoscaler, the CSI driver, users. So this program
//! slows down before the cloud throttles all of them.
//!
//! | Remaining | Effect |
//! |---|---|
//! | at least 20 % | none |
//! | less than 20 % | the time between two periodic calls is four times as long |
//! | less than 5 % | only calls that initialise Nodes, or look up the instance of a Node that is not ready |

use std::time::Duration;

use jiff::Timestamp;
use machinist_core::{Step, plus, since};
use machinist_instance::CallBudget;

use super::account::AccountFacts;
use crate::ccm::why::{CcmReason, Plan, Why};

/// Below this part of the limit, in percent, periodic calls are made less often.
const LOW_PERCENT: u64 = 20;
/// Below this part of the limit, in percent, most calls wait.
const SCARCE_PERCENT: u64 = 5;
/// Factor of the time between two periodic calls while the budget is low.
const STRETCH: u32 = 4;

impl AccountFacts {
    /// Returns the time between two periodic calls: longer while few calls are left.
    pub(super) fn stretched(&self, period: Duration, now: Timestamp) -> Duration {
        let is_low = self.budget.is_some_and(|budget| now < reached_at(&budget, LOW_PERCENT));
        if is_low { period.saturating_mul(STRETCH) } else { period }
    }

    /// Returns a plan that waits, if a call that is not urgent cannot be made now.
    pub(super) fn cannot_spend<A>(&self, now: Timestamp) -> Option<Plan<A>> {
        self.cannot_call(now).or_else(|| self.saves(now))
    }

    /// Returns a plan that waits until more calls are left.
    pub(super) fn saves<A>(&self, now: Timestamp) -> Option<Plan<A>> {
        let budget = self.budget?;
        let until = reached_at(&budget, SCARCE_PERCENT);
        if until <= now {
            return None;
        }
        let reason = CcmReason::CallsSaved { remaining: budget.remaining, limit: budget.limit };
        let why = Why::new(reason, Step::Expect("the controller makes the call"));
        Some(Plan::until(until, why.deadline(until, Step::Expect("enough calls are left"))))
    }
}

/// Returns when that part of the limit is left. The cloud gives the calls back evenly.
fn reached_at(budget: &CallBudget, percent: u64) -> Timestamp {
    let wanted = u64::from(budget.limit).saturating_mul(percent).div_ceil(100);
    let remaining = u64::from(budget.remaining);
    let missing_now = u64::from(budget.limit).saturating_sub(remaining);
    if wanted <= remaining || missing_now == 0 {
        return Timestamp::MIN;
    }
    let until_full = since(budget.full_at, budget.seen_at);
    let milliseconds = u64::try_from(until_full.as_millis()).unwrap_or(u64::MAX);
    let wait = milliseconds.saturating_mul(wanted - remaining).div_ceil(missing_now);
    plus(budget.seen_at, Duration::from_millis(wait))
}

#[cfg(test)]
mod tests {
    use machinist_instance::AccountId;

    use super::*;
    use crate::testing::at;

    /// An account of 3600 calls, which regains one per second.
    fn account(remaining: u32) -> AccountFacts {
        let full_at = at(i64::from(3600 - remaining));
        let budget = CallBudget { limit: 3600, remaining, seen_at: at(0), full_at };
        AccountFacts {
            id: Some(AccountId::of([&b"sim"[..]])),
            budget: Some(budget),
            ..AccountFacts::default()
        }
    }

    const PERIOD: Duration = Duration::from_secs(300);

    #[test]
    fn periodic_calls_are_rarer_below_a_fifth() {
        assert_eq!(account(720).stretched(PERIOD, at(0)), PERIOD);
        assert_eq!(account(719).stretched(PERIOD, at(0)), PERIOD * 4);
        assert_eq!(account(620).stretched(PERIOD, at(99)), PERIOD * 4);
        assert_eq!(account(620).stretched(PERIOD, at(100)), PERIOD, "the cloud gave calls back");
        assert_eq!(AccountFacts::default().stretched(PERIOD, at(0)), PERIOD, "nothing is known");
    }

    #[test]
    fn most_calls_wait_below_a_twentieth() {
        assert!(account(180).saves::<()>(at(0)).is_none());
        let waits = account(100).saves::<crate::ccm::account::Action>(at(0)).expect("a plan").to_string();
        assert!(waits.starts_with("why   few calls of the account are left (100 of 3600)"), "{waits}");
        assert!(waits.contains(&format!("wait  until {}", at(80))), "{waits}");
        assert!(account(100).saves::<()>(at(80)).is_none());
        assert!(account(0).cannot_call::<()>(at(0)).is_none(), "urgent calls are made");
    }
}
