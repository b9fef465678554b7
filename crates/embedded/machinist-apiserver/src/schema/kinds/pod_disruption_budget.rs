//! PodDisruptionBudgets. The disruption controller writes their status, and `verbs::evict` reads
//! it.

use serde_json::{Value, json};

use crate::schema::kinds::workload::shown_selector;
use crate::schema::kinds::{Context, Part, Rules};
use crate::values::amount::{at_most_all, validate_amount};
use crate::values::object::child_map;
use crate::values::status::{ApiResult, FieldErrorKind, FieldErrors};

pub(crate) struct PodDisruptionBudgets;

impl Rules for PodDisruptionBudgets {
    fn takes_plain_finalizers(&self) -> bool {
        true
    }

    fn on_create(&self, object: &mut Value, _context: &Context<'_>) -> ApiResult<()> {
        let status = child_map(object, "status");
        for count in ["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"] {
            status.insert(count.into(), json!(0));
        }
        Ok(())
    }

    fn validate(&self, object: &Value, _old: Option<&Value>, part: Part, errors: &mut FieldErrors) {
        if part == Part::Status {
            for count in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
                let place = format!("/status/{count}");
                if let Some(value) = object.pointer(&place).filter(|v| v.as_i64().is_some_and(|n| n < 0)) {
                    errors.invalid(
                        format!("status.{count}"),
                        value.clone(),
                        "must be greater than or equal to 0",
                    );
                }
            }
            return;
        }
        let spec = |key: &str| object.get("spec").and_then(|s| s.get(key));
        if let (Some(_), Some(_)) = (spec("minAvailable"), spec("maxUnavailable")) {
            let why = "minAvailable and maxUnavailable cannot be both set";
            errors.push_shown(FieldErrorKind::Invalid, "spec", Some(shown_spec(&object["spec"])), why);
        }
        for bound in ["minAvailable", "maxUnavailable"] {
            if let Some(amount) = spec(bound) {
                validate_amount(amount, &format!("spec.{bound}"), errors);
                at_most_all(amount, &format!("spec.{bound}"), errors);
            }
        }
        let policies = ["AlwaysAllow", "IfHealthyBudget"];
        if let Some(policy) = spec("unhealthyPodEvictionPolicy").and_then(Value::as_str)
            && !policies.contains(&policy)
        {
            errors.not_supported(
                "spec.unhealthyPodEvictionPolicy",
                json!(policy),
                &policies.map(str::to_owned),
            );
        }
    }
}

/// Formats a specification with the names and order of its internal type, as errors show it.
fn shown_spec(spec: &Value) -> String {
    let shown = |key: &str| spec.get(key).unwrap_or(&Value::Null).to_string();
    let selector = shown_selector(spec.get("selector").unwrap_or(&Value::Null));
    format!(
        "{{\"MinAvailable\":{},\"Selector\":{selector},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
        shown("minAvailable"),
        shown("maxUnavailable"),
        shown("unhealthyPodEvictionPolicy")
    )
}
