//! Amounts of pods: a count or a percentage.

use serde_json::{Value, json};

use crate::values::status::FieldErrors;

pub(crate) fn not_negative(value: Option<&Value>, field: &str, errors: &mut FieldErrors) {
    if let Some(value) = value.filter(|value| value.as_i64().is_some_and(|count| count < 0)) {
        errors.invalid(field, value.clone(), "must be greater than or equal to 0");
    }
}

/// Validates an amount, which is a count of at least 0 or a percentage.
pub(crate) fn validate_amount(amount: &Value, field: &str, errors: &mut FieldErrors) {
    match amount {
        Value::String(text) if percent(text).is_none() => errors.invalid(
            field,
            json!(text),
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
        ),
        amount => not_negative(Some(amount), field, errors),
    }
}

pub(crate) fn at_most_all(amount: &Value, field: &str, errors: &mut FieldErrors) {
    if amount.as_str().and_then(percent).is_some_and(|percent| 100 < percent) {
        errors.invalid(field, amount.clone(), "must not be greater than 100%");
    }
}

/// Returns the number of an amount, whether it is a count or a percentage.
pub(crate) fn amount(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| value.as_str().and_then(percent).unwrap_or_default())
}

fn percent(text: &str) -> Option<i64> {
    text.strip_suffix('%').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()
}
