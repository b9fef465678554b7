//! Leases.

use serde_json::Value;

use crate::schema::kinds::{Context, Part, Rules};
use crate::values::key::Key;
use crate::values::object::meta_str;
use crate::values::status::{ApiResult, FieldErrors, Target};

pub(crate) struct Leases;

impl Rules for Leases {
    fn takes_plain_finalizers(&self) -> bool {
        true
    }

    fn on_create(&self, object: &mut Value, context: &Context<'_>) -> ApiResult<()> {
        context.admission.admit_lease(meta_str(object, "namespace"), meta_str(object, "name"))
    }

    fn admit_delete(&self, object: &Target<'_>, key: &Key, context: &Context<'_>) -> ApiResult<()> {
        context.admission.admit_lease(key.namespace(), object.name)
    }

    fn on_update(&self, new: &mut Value, _old: &Value, _part: Part, context: &Context<'_>) -> ApiResult<()> {
        context.admission.admit_lease(meta_str(new, "namespace"), meta_str(new, "name"))
    }

    fn validate(&self, object: &Value, _old: Option<&Value>, _part: Part, errors: &mut FieldErrors) {
        let spec = |key: &str| object.get("spec").and_then(|s| s.get(key));
        if let Some(seconds) = spec("leaseDurationSeconds").filter(|s| s.as_i64().is_some_and(|s| s <= 0)) {
            errors.invalid("spec.leaseDurationSeconds", seconds.clone(), "must be greater than 0");
        }
        if let Some(count) = spec("leaseTransitions").filter(|c| c.as_i64().is_some_and(|c| c < 0)) {
            errors.invalid("spec.leaseTransitions", count.clone(), "must be greater than or equal to 0");
        }
    }
}
