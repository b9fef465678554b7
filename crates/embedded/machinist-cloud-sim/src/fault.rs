//! What goes wrong, on request: by rules that are added while the cloud runs, or by a [`Schedule`] that decides
//! call by call. The numbers D1 to D13 are those of the perturbation catalogue that the scenarios name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use machinist_instance::{InstanceKey, NodeName};
use serde::{Deserialize, Serialize};

use crate::{Call, CallRecord, Code, Operation, seconds};

/// One thing that goes wrong with one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Fault {
    /// D1, D11: refused before any effect.
    #[serde(rename_all = "camelCase")]
    Refuse {
        /// The cloud's code.
        code: Code,
        /// When to come back, for `rateLimited`.
        #[serde(default)]
        retry_after_seconds: Option<u64>,
    },
    /// D2: done, then answered with an internal error.
    EffectThenError,
    /// D3: done, then not answered until nobody waits any more.
    EffectThenSilence,
    /// The connection breaks at once; nothing is done. The caller cannot know that.
    Reset,
    /// The connection breaks at once; the effect comes later, also when the caller is long dead.
    LateEffect {
        /// How much later.
        #[serde(with = "seconds", rename = "seconds")]
        by: Duration,
    },
    /// The call takes longer.
    Delay {
        /// How much longer.
        #[serde(with = "seconds", rename = "seconds")]
        by: Duration,
    },
    /// D4: reads do not show the instance that this `ensure` makes for a while.
    HideNew {
        /// How long; beyond `Settings::visible_within` the cloud breaks its promise.
        #[serde(with = "seconds", rename = "seconds")]
        span: Duration,
    },
    /// D5: this `find` says that there is none.
    NotFound,
    /// D6: the deletion that this `delete` begins takes longer.
    Linger {
        /// How long it takes.
        #[serde(with = "seconds", rename = "seconds")]
        span: Duration,
    },
    /// D7: this `delete` says that all is well and does nothing.
    ClaimGone,
    /// D12: the instance that this `ensure` makes dies by itself.
    Dies {
        /// How long after it was made.
        #[serde(with = "seconds", rename = "seconds")]
        after: Duration,
    },
    /// D13: the instance that this `ensure` makes runs and never boots.
    NeverBoots,
    /// D13: the instance that this `ensure` makes boots late.
    BootsLate {
        /// How much later than running.
        #[serde(with = "seconds", rename = "seconds")]
        by: Duration,
    },
}

impl Fault {
    /// Whether it can happen to such a call.
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

/// Which calls go wrong, how, and how often. Absent conditions match every call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FaultRule {
    /// Only such calls.
    #[serde(default)]
    pub operation: Option<Operation>,
    /// Only calls about the instance of that name.
    #[serde(default)]
    pub name: Option<NodeName>,
    /// Only calls about the instance of that key.
    #[serde(default)]
    pub key: Option<InstanceKey>,
    /// Only the first so many of them; all when absent.
    #[serde(default)]
    pub times: Option<u32>,
    /// What goes wrong.
    pub fault: Fault,
}

impl FaultRule {
    /// Every such call meets that fault, until the rule is removed.
    pub fn always(operation: Operation, fault: Fault) -> Self {
        Self { operation: Some(operation), name: None, key: None, times: None, fault }
    }

    /// The next such call meets that fault.
    pub fn once(operation: Operation, fault: Fault) -> Self {
        Self { times: Some(1), ..Self::always(operation, fault) }
    }

    /// Only calls about the instance of that name.
    #[must_use]
    pub fn for_name(self, name: NodeName) -> Self {
        Self { name: Some(name), ..self }
    }

    /// Only calls about the instance of that key.
    #[must_use]
    pub fn for_key(self, key: InstanceKey) -> Self {
        Self { key: Some(key), ..self }
    }

    fn hits(&self, call: &Call) -> bool {
        self.fault.fits(call.operation)
            && self.times != Some(0)
            && self.operation.is_none_or(|operation| operation == call.operation)
            && self.name.as_ref().is_none_or(|name| call.which.name.as_ref() == Some(name))
            && self.key.as_ref().is_none_or(|key| call.which.key.as_ref() == Some(key))
    }
}

/// Names a rule, to remove it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RuleId(pub u64);

/// The rules in force. A handle: clones change the same rules.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<Rules>>);

#[derive(Debug, Default)]
struct Rules {
    next: u64,
    rules: BTreeMap<RuleId, FaultRule>,
}

impl Faults {
    /// Adds a rule. Of several that match a call, the oldest wins.
    pub fn add(&self, rule: FaultRule) -> RuleId {
        let mut rules = self.lock();
        let id = RuleId(rules.next);
        rules.next += 1;
        rules.rules.insert(id, rule);
        id
    }

    /// Removes a rule; removing an absent one is fine.
    pub fn remove(&self, id: RuleId) {
        self.lock().rules.remove(&id);
    }

    /// Removes all rules: the cloud is calm again.
    pub fn clear(&self) {
        self.lock().rules.clear();
    }

    /// The rules in force, oldest first; `times` is what is left.
    pub fn rules(&self) -> Vec<(RuleId, FaultRule)> {
        self.lock().rules.iter().map(|(id, rule)| (*id, rule.clone())).collect()
    }

    /// The fault that a rule has for this call, counting it.
    pub(crate) fn take(&self, call: &Call) -> Option<Fault> {
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
    /// The fault of this call, if it shall meet one. Asked once, when the call arrives, if no rule matched; a
    /// fault that does not fit the operation is ignored.
    fn decide(&self, call: &Call) -> Option<Fault>;

    /// The call was decided and, if it had an effect, committed; its answer has not been sent yet.
    fn decided(&self, _record: &CallRecord) {}
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use machinist_instance::InstanceRef;

    use super::*;

    fn call(operation: Operation, name: &str) -> Call {
        let which = InstanceRef { name: NodeName::new(name), ..InstanceRef::default() };
        Call { number: 0, operation, which, arrived: Timestamp::UNIX_EPOCH }
    }

    #[test]
    fn a_counted_rule_for_one_name_is_used_up_by_that_name_alone() {
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
    fn a_fault_waits_for_a_call_that_it_fits() {
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
    fn rules_read_as_a_person_would_type_them() {
        let text = r#"{"operation":"ensure","times":2,"fault":{"kind":"hideNew","seconds":1.5}}"#;
        let rule: FaultRule = serde_json::from_str(text).expect("valid");
        assert_eq!(rule.fault, Fault::HideNew { span: Duration::from_millis(1500) });
        let error = serde_json::from_str::<FaultRule>(r#"{"fault":{"kind":"delay","seconds":-1}}"#);
        assert!(error.expect_err("negative").to_string().contains("expected seconds, zero or more"));
    }
}
