//! Faults on request: from rules that are added while the cloud runs, or from a [`Schedule`] that
//! decides call by call.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use machinist_instance::{InstanceKey, NodeName};
use serde::{Deserialize, Serialize};

use crate::{CallRecord, Code, IncomingCall, Operation, seconds};

/// One fault of one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Fault {
    /// The cloud refuses the call before any effect.
    #[serde(rename_all = "camelCase")]
    Refuse {
        /// The error code of the refusal.
        code: Code,
        /// Seconds after which to retry, for `rateLimited`.
        #[serde(default)]
        retry_after_seconds: Option<u64>,
    },
    /// The call takes effect, and the answer is an internal error.
    EffectThenError,
    /// The call takes effect, and the answer is withheld until no caller waits.
    EffectThenSilence,
    /// The connection breaks at once and nothing is done. The caller cannot know that.
    Reset,
    /// The connection breaks at once and the effect comes later, even if the caller is dead by
    /// then.
    LateEffect {
        /// Delay of the effect.
        #[serde(with = "seconds", rename = "seconds")]
        by: Duration,
    },
    /// The call takes longer.
    Delay {
        /// Additional time.
        #[serde(with = "seconds", rename = "seconds")]
        by: Duration,
    },
    /// Reads do not show the instance that this `ensure` makes for a while.
    HideNew {
        /// How long the instance stays hidden. Beyond `Settings::visible_within` the cloud breaks
        /// its promise.
        #[serde(with = "seconds", rename = "seconds")]
        span: Duration,
    },
    /// This `find` returns no instance, even if one exists.
    NotFound,
    /// The deletion that this `delete` begins takes longer.
    Linger {
        /// Duration of the deletion.
        #[serde(with = "seconds", rename = "seconds")]
        span: Duration,
    },
    /// This `delete` succeeds and does nothing.
    ClaimGone,
    /// The instance that this `ensure` makes dies without a request.
    Dies {
        /// Age at which the instance dies.
        #[serde(with = "seconds", rename = "seconds")]
        after: Duration,
    },
    /// The instance that this `ensure` makes runs and never boots.
    NeverBoots,
    /// The instance that this `ensure` makes boots late.
    BootsLate {
        /// Time from running to booted.
        #[serde(with = "seconds", rename = "seconds")]
        by: Duration,
    },
}

impl Fault {
    /// Whether this fault can happen to a call of that operation.
    pub fn fits(&self, operation: Operation) -> bool {
        match self {
            Self::Refuse { .. }
            | Self::EffectThenError
            | Self::EffectThenSilence
            | Self::Reset
            | Self::Delay { .. }
            | Self::LateEffect { .. } => true,
            Self::HideNew { .. } | Self::Dies { .. } | Self::NeverBoots | Self::BootsLate { .. } => {
                operation == Operation::Ensure
            }
            Self::NotFound => operation == Operation::Find,
            Self::Linger { .. } | Self::ClaimGone => operation == Operation::Delete,
        }
    }
}

/// Selects calls that meet a fault, and says how often. An absent condition matches every call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FaultRule {
    /// Matches only calls of this operation.
    #[serde(default)]
    pub operation: Option<Operation>,
    /// Matches only calls that name the instance of this name.
    #[serde(default)]
    pub name: Option<NodeName>,
    /// Matches only calls that name the instance of this key.
    #[serde(default)]
    pub key: Option<InstanceKey>,
    /// Number of matching calls that meet the fault; all if absent.
    #[serde(default)]
    pub times: Option<u32>,
    /// The fault of a matching call.
    pub fault: Fault,
}

impl FaultRule {
    /// A rule for every call of the operation, until the rule is removed.
    pub fn always(operation: Operation, fault: Fault) -> Self {
        Self { operation: Some(operation), name: None, key: None, times: None, fault }
    }

    /// A rule for the next call of the operation.
    pub fn once(operation: Operation, fault: Fault) -> Self {
        Self { times: Some(1), ..Self::always(operation, fault) }
    }

    /// Limits the rule to calls that name the instance of this name.
    #[must_use]
    pub fn for_name(self, name: NodeName) -> Self {
        Self { name: Some(name), ..self }
    }

    fn hits(&self, call: &IncomingCall) -> bool {
        self.fault.fits(call.operation)
            && self.times != Some(0)
            && self.operation.is_none_or(|operation| operation == call.operation)
            && self.name.as_ref().is_none_or(|name| call.which.name.as_ref() == Some(name))
            && self.key.as_ref().is_none_or(|key| call.which.key.as_ref() == Some(key))
    }
}

/// Identifies a rule, for its removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RuleId(pub u64);

/// The rules in force. A handle: clones share the same rules.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<Rules>>);

#[derive(Debug, Default)]
struct Rules {
    next: u64,
    rules: BTreeMap<RuleId, FaultRule>,
}

impl Faults {
    /// Adds a rule. If several rules match a call, the oldest applies.
    pub fn add(&self, rule: FaultRule) -> RuleId {
        let mut rules = self.lock();
        let id = RuleId(rules.next);
        rules.next += 1;
        rules.rules.insert(id, rule);
        id
    }

    /// Removes a rule; an absent rule is not an error.
    pub fn remove(&self, id: RuleId) {
        self.lock().rules.remove(&id);
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.lock().rules.clear();
    }

    /// The rules in force, oldest first; `times` is the number of remaining uses.
    pub fn rules(&self) -> Vec<(RuleId, FaultRule)> {
        self.lock().rules.iter().map(|(id, rule)| (*id, rule.clone())).collect()
    }

    /// The fault that a rule has for this call. The call counts as a use of the rule.
    pub(crate) fn take(&self, call: &IncomingCall) -> Option<Fault> {
        let mut rules = self.lock();
        let (id, rule) = rules.rules.iter_mut().find(|(_, rule)| rule.hits(call))?;
        let (id, fault) = (*id, rule.fault.clone());
        if let Some(left) = &mut rule.times {
            *left -= 1;
            if *left == 0 {
                rules.rules.remove(&id);
            }
        }
        Some(fault)
    }

    fn lock(&self) -> MutexGuard<'_, Rules> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Decides call by call, for simulations that draw faults from a seed.
pub trait Schedule: Send + Sync {
    /// The fault of this call, or none. The cloud asks once, when the call arrives and no rule
    /// matched. A fault that does not fit the operation is ignored.
    fn decide(&self, call: &IncomingCall) -> Option<Fault>;

    /// Called after the call was decided and any effect was committed, before its answer is sent.
    fn decided(&self, _record: &CallRecord) {}
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use machinist_instance::InstanceRef;

    use super::*;

    fn call(operation: Operation, name: &str) -> IncomingCall {
        let which = InstanceRef { name: NodeName::new(name), ..InstanceRef::default() };
        IncomingCall { number: 0, operation, which, arrived: Timestamp::UNIX_EPOCH }
    }

    #[test]
    fn only_matching_calls_use_up_a_counted_rule() {
        let faults = Faults::default();
        let rule = FaultRule::once(Operation::Ensure, Fault::Reset);
        faults.add(rule.for_name(NodeName::new("a").expect("not empty")));
        assert_eq!(faults.take(&call(Operation::Ensure, "b")), None);
        assert_eq!(faults.take(&call(Operation::Find, "a")), None);
        assert_eq!(faults.take(&call(Operation::Ensure, "a")), Some(Fault::Reset));
        assert_eq!(faults.take(&call(Operation::Ensure, "a")), None);
        assert!(faults.rules().is_empty());
    }

    #[test]
    fn a_fault_applies_to_the_first_call_that_it_fits() {
        let faults = Faults::default();
        faults.add(FaultRule {
            operation: None,
            name: None,
            key: None,
            times: None,
            fault: Fault::ClaimGone,
        });
        assert_eq!(faults.take(&call(Operation::Find, "a")), None);
        assert_eq!(faults.take(&call(Operation::Delete, "a")), Some(Fault::ClaimGone));
    }

    #[test]
    fn rules_are_parsed_from_hand_written_json() {
        let text = r#"{"operation":"ensure","times":2,"fault":{"kind":"hideNew","seconds":1.5}}"#;
        let rule: FaultRule = serde_json::from_str(text).expect("valid");
        assert_eq!(rule.fault, Fault::HideNew { span: Duration::from_millis(1500) });
        let error = serde_json::from_str::<FaultRule>(r#"{"fault":{"kind":"delay","seconds":-1}}"#);
        assert!(error.expect_err("negative").to_string().contains("expected seconds, zero or more"));
    }
}
