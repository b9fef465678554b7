//! Trouble on request: rules that select requests by their action.

use serde::{Deserialize, Serialize};

/// Number of rules that can wait.
const MAX_RULES: usize = 1000;

/// The trouble of one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub(crate) enum Fault {
    /// The request is refused without an effect.
    Refuse {
        /// The code of the refusal.
        code: String,
        /// The HTTP status; if absent, the status that AWS sends with the code.
        #[serde(default)]
        status: Option<u16>,
        /// The header `Retry-After`; absent if there is none.
        #[serde(default)]
        retry_after_seconds: Option<u64>,
    },
    /// The request takes effect, and the answer is the code `InternalError`.
    EffectThenError,
    /// The request takes effect, and the connection breaks.
    EffectThenClose,
    /// The connection breaks, and the request takes effect this much later.
    CloseThenEffect {
        /// Time until the effect, by the clock of delays.
        seconds: u64,
    },
}

/// Selects requests that meet a fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Rule {
    /// The action of the requests, for example `RunInstances`.
    pub(crate) action: String,
    /// Number of requests that pass before the first fault.
    #[serde(default)]
    pub(crate) skip: u32,
    /// Number of requests that meet the fault; if absent, all until the rule is removed.
    #[serde(default)]
    pub(crate) times: Option<u32>,
    /// The fault.
    pub(crate) fault: Fault,
}

/// The rules in force. An older rule applies first.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<Rule>);

impl Faults {
    /// Adds a rule.
    ///
    /// # Errors
    /// If the rule selects no request, or if there are too many rules.
    pub(crate) fn add(&mut self, rule: Rule) -> Result<(), String> {
        if rule.times == Some(0) {
            return Err("times: expected 1 or more, or no such field for all requests".to_owned());
        }
        if MAX_RULES <= self.0.len() {
            return Err(format!("expected at most {MAX_RULES} rules"));
        }
        self.0.push(rule);
        Ok(())
    }

    /// Removes all rules.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The rules, oldest first.
    pub(crate) fn rules(&self) -> &[Rule] {
        &self.0
    }

    /// The fault of a request.
    pub(crate) fn take(&mut self, action: &str) -> Option<Fault> {
        let mut found = None;
        for rule in self.0.iter_mut().filter(|rule| rule.action == action) {
            if 0 < rule.skip {
                rule.skip -= 1;
                continue;
            }
            if let Some(left) = &mut rule.times {
                *left = left.saturating_sub(1);
            }
            found = Some(rule.fault.clone());
            break;
        }
        self.0.retain(|rule| rule.times != Some(0));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(skip: u32, times: Option<u32>, fault: Fault) -> Rule {
        Rule { action: "RunInstances".to_owned(), skip, times, fault }
    }

    #[test]
    fn a_rule_skips_then_applies_then_ends() {
        let mut faults = Faults::default();
        faults.add(rule(1, Some(2), Fault::EffectThenClose)).expect("added");
        let mut take = || faults.take("RunInstances");
        assert_eq!([take(), take(), take(), take()].map(|fault| fault.is_some()), [false, true, true, false]);
        assert!(faults.rules().is_empty());
    }

    #[test]
    fn rules_apply_in_order_and_to_their_action() {
        let mut faults = Faults::default();
        faults.add(rule(0, Some(1), Fault::EffectThenError)).expect("added");
        faults.add(rule(0, None, Fault::EffectThenClose)).expect("added");
        assert_eq!(faults.take("DescribeInstances"), None);
        let taken: Vec<Fault> = (0..3).filter_map(|_| faults.take("RunInstances")).collect();
        assert_eq!(taken, [Fault::EffectThenError, Fault::EffectThenClose, Fault::EffectThenClose]);
    }

    #[test]
    fn a_rule_without_requests_and_too_many_rules_are_refused() {
        let mut faults = Faults::default();
        assert!(faults.add(rule(0, Some(0), Fault::EffectThenError)).is_err());
        for _ in 0..MAX_RULES {
            faults.add(rule(0, None, Fault::EffectThenError)).expect("added");
        }
        assert!(faults.add(rule(0, None, Fault::EffectThenError)).is_err());
    }
}
