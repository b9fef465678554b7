//! Faults on request: rules that select requests by method and path.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::settings::seconds;

/// One fault of one request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Fault {
    /// The request fails before any effect, with this error.
    Error {
        /// The error code.
        code: String,
        /// The HTTP status; if absent, the usual status of the code.
        #[serde(default)]
        status: Option<u16>,
    },
    /// The reply is an HTTP status without JSON, as from a proxy. The request has no effect.
    Bare {
        /// The HTTP status.
        status: u16,
    },
    /// The reply is a 404 page in HTML, as from another server. The request has no effect.
    Html404,
    /// The connection breaks, and the request has no effect.
    Reset,
    /// The request has no effect. The connection breaks after this time.
    Hang {
        /// Time until the connection breaks.
        #[serde(with = "seconds", rename = "seconds")]
        span: Duration,
    },
    /// The request takes longer. Its effect comes at the end, even if the client stopped waiting.
    Delay {
        /// Additional time.
        #[serde(with = "seconds", rename = "seconds")]
        by: Duration,
    },
    /// The request takes effect, and the reply is this error.
    EffectThenError {
        /// The error code.
        code: String,
    },
    /// The request takes effect, and the connection breaks.
    EffectThenReset,
    /// The request takes effect, and the connection breaks after this time.
    EffectThenHang {
        /// Time until the connection breaks.
        #[serde(with = "seconds", rename = "seconds")]
        span: Duration,
    },
    /// The connection breaks in the middle of the reply.
    Truncate,
    /// The second half of the reply comes after this time.
    SlowBody {
        /// Time between the halves.
        #[serde(with = "seconds", rename = "seconds")]
        span: Duration,
    },
    /// The list is empty.
    EmptyList,
    /// The list shows the servers that existed this long ago.
    StaleList {
        /// Age of the list.
        #[serde(with = "seconds", rename = "seconds")]
        age: Duration,
    },
    /// The list lacks one object, and its totals do not show that.
    Omit {
        /// Id of the object.
        id: i64,
    },
    /// Every page but the first lacks its first object, as if an earlier object had been deleted
    /// between the pages.
    OmitAtPageBoundary,
}

/// Selects requests that meet a fault. An absent condition matches every request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FaultRule {
    /// Matches only requests with this method.
    #[serde(default)]
    pub method: Option<String>,
    /// Matches only requests with this path template, for example `/v1/servers/{id}`.
    #[serde(default)]
    pub path: Option<String>,
    /// Number of matching requests that pass before the first fault.
    #[serde(default)]
    pub skip: u32,
    /// Number of matching requests that meet the fault; all if absent.
    #[serde(default)]
    pub times: Option<u32>,
    /// Probability of the fault in percent; 100 if absent. The draws depend on the seed only.
    #[serde(default)]
    pub percent: Option<u8>,
    /// The fault.
    pub fault: Fault,
}

impl FaultRule {
    /// A rule for every request with the method and path template, until the rule is removed.
    pub fn always(method: &str, path: &str, fault: Fault) -> Self {
        Self {
            method: Some(method.to_owned()),
            path: Some(path.to_owned()),
            skip: 0,
            times: None,
            percent: None,
            fault,
        }
    }

    /// A rule for the next request with the method and path template.
    pub fn once(method: &str, path: &str, fault: Fault) -> Self {
        Self { times: Some(1), ..Self::always(method, path, fault) }
    }

    /// A rule for every request, until the rule is removed.
    pub fn everywhere(fault: Fault) -> Self {
        Self { method: None, path: None, skip: 0, times: None, percent: None, fault }
    }

    fn selects(&self, method: &str, template: &str) -> bool {
        self.method.as_deref().is_none_or(|wanted| wanted == method)
            && self.path.as_deref().is_none_or(|wanted| wanted == template)
    }
}

/// The rules in force, by number.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    next: u64,
    rules: BTreeMap<u64, FaultRule>,
}

impl Faults {
    pub(crate) fn add(&mut self, rule: FaultRule) -> u64 {
        let number = self.next;
        self.next += 1;
        self.rules.insert(number, rule);
        number
    }

    pub(crate) fn remove(&mut self, number: u64) {
        self.rules.remove(&number);
    }

    pub(crate) fn clear(&mut self) {
        self.rules.clear();
    }

    pub(crate) fn rules(&self) -> &BTreeMap<u64, FaultRule> {
        &self.rules
    }

    /// The fault of this request; the oldest rule applies. `draw` returns a number from 0 to 99.
    pub(crate) fn take(
        &mut self,
        method: &str,
        template: &str,
        mut draw: impl FnMut() -> u8,
    ) -> Option<Fault> {
        let mut found = None;
        for (number, rule) in &mut self.rules {
            if !rule.selects(method, template) {
                continue;
            }
            if 0 < rule.skip {
                rule.skip -= 1;
                continue;
            }
            if rule.percent.is_some_and(|percent| percent <= draw()) {
                continue;
            }
            found = Some((*number, rule.fault.clone()));
            if let Some(left) = &mut rule.times {
                *left = left.saturating_sub(1);
            }
            break;
        }
        self.rules.retain(|_, rule| rule.times != Some(0));
        found.map(|(_, fault)| fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_skips_then_applies_then_ends() {
        let mut faults = Faults::default();
        faults.add(FaultRule { skip: 1, ..FaultRule::once("GET", "/v1/servers", Fault::Reset) });
        let mut take = |method: &str| faults.take(method, "/v1/servers", || 0);
        assert_eq!(take("POST"), None, "another method");
        assert_eq!(take("GET"), None, "skipped");
        assert_eq!(take("GET"), Some(Fault::Reset));
        assert_eq!(take("GET"), None, "used up");
    }

    #[test]
    fn a_percentage_follows_the_draw() {
        let mut faults = Faults::default();
        faults.add(FaultRule { percent: Some(30), ..FaultRule::everywhere(Fault::Html404) });
        assert_eq!(faults.take("GET", "/v1/servers", || 29), Some(Fault::Html404));
        assert_eq!(faults.take("GET", "/v1/servers", || 30), None);
    }
}
