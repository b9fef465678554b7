//! What the answer to a write means.
//!
//! Every write names its precondition, so its answer has few meanings, and a caller reacts to the meaning, not to codes:
//! look again (`Stale`), tell the user (`Invalid`, `Denied`), wait (`Throttled`), or find out what happened (`Unknown`).

use std::time::Duration;

use kube::core::Status;
use kube::core::response::StatusDetails;

use crate::client::is_connection_refused;

/// The meaning of the answer to a create, update, patch or delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It is committed.
    Done,
    /// Nothing was written: the object is not as it was when we looked. Look again.
    Stale,
    /// Nothing was written: the request itself is wrong, and will be wrong next time.
    Invalid {
        /// The server's words.
        message: String,
        /// Which fields, and why.
        causes: Vec<Cause>,
    },
    /// Nothing was written: there is an object of that name. Read it and look at whose it is.
    AlreadyExists,
    /// Nothing was written: there is no such object (or no such namespace, or kind).
    NotFound,
    /// Nothing was written: we may not.
    Denied {
        /// The server's words.
        message: String,
    },
    /// Nothing was written: the server took no notice of the request, or it never reached one. Wait.
    Throttled {
        /// How long the server asked us to wait.
        retry_after: Option<Duration>,
    },
    /// It may or may not be committed. Repeat it, or read, before deciding anything that depends on it.
    Unknown {
        /// What happened instead of an answer.
        message: String,
    },
}

/// One field that the server found wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The path of the field; empty when the server named none.
    pub field: String,
    /// The server's CamelCase reason.
    pub reason: String,
    /// The server's words.
    pub message: String,
}

impl WriteOutcome {
    /// The meaning of a write's result.
    pub fn of<T>(result: &Result<T, kube::Error>) -> Self {
        match result {
            Ok(_) => Self::Done,
            Err(error) => Self::of_error(error),
        }
    }

    /// The meaning of a write's error.
    pub fn of_error(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(status),
            // Never sent: our own request could not be made.
            kube::Error::BuildRequest(_) | kube::Error::HttpError(_) => {
                Self::Invalid { message: error.to_string(), causes: Vec::new() }
            }
            kube::Error::Auth(_) => Self::Denied { message: error.to_string() },
            error if is_connection_refused(error) => Self::Throttled { retry_after: None },
            // A success that cannot be parsed ends up here too: it is committed, but what was committed is not known.
            error => Self::Unknown { message: error.to_string() },
        }
    }

    fn of_status(status: &Status) -> Self {
        let message = || status.message.clone();
        match effective_code(status) {
            409 if status.is_already_exists() => Self::AlreadyExists,
            409 | 410 | 412 => Self::Stale,
            404 => Self::NotFound,
            // The test of a JSON patch failed; a field that is wrong is listed in the causes.
            422 if causes(status).is_empty() => Self::Stale,
            401 | 403 => Self::Denied { message: message() },
            429 => Self::Throttled { retry_after: retry_after(status) },
            400..=499 => Self::Invalid { message: message(), causes: causes(status) },
            _ => Self::Unknown { message: message() },
        }
    }

    /// True when the write certainly had no effect.
    pub fn is_without_effect(&self) -> bool {
        match self {
            Self::Done | Self::Unknown { .. } => false,
            Self::Stale
            | Self::Invalid { .. }
            | Self::AlreadyExists
            | Self::NotFound
            | Self::Denied { .. }
            | Self::Throttled { .. } => true,
        }
    }
}

/// The meaning of the answer to an eviction, which overloads status codes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictionOutcome {
    /// The pod is being deleted.
    Evicted,
    /// The pod is gone, or it is another one by now.
    Gone,
    /// A disruption budget forbids it for now.
    Blocked {
        /// The server's words; they name the budget.
        message: String,
        /// How long the server asked us to wait.
        retry_after: Option<Duration>,
    },
    /// It will stay forbidden until someone repairs the budgets, for example when two select the pod.
    Misconfigured {
        /// The server's words.
        message: String,
    },
    /// Anything else, as for any write.
    Failed(WriteOutcome),
}

impl EvictionOutcome {
    /// The meaning of an eviction's result.
    pub fn of<T>(result: &Result<T, kube::Error>) -> Self {
        const BUDGET_CAUSE: &str = "DisruptionBudget";
        let outcome = WriteOutcome::of(result);
        let status = match result {
            Err(kube::Error::Api(status)) => Some(status),
            _ => None,
        };
        let budget =
            status.is_some_and(|status| causes(status).iter().any(|cause| cause.reason == BUDGET_CAUSE));
        let two_budgets =
            status.is_some_and(|s| s.code == 500 && s.message.contains("more than one PodDisruptionBudget"));
        match (outcome, status) {
            (WriteOutcome::Done, _) => Self::Evicted,
            (WriteOutcome::NotFound | WriteOutcome::Stale, _) => Self::Gone,
            (WriteOutcome::Throttled { retry_after }, Some(status)) if budget => {
                Self::Blocked { message: status.message.clone(), retry_after }
            }
            (_, Some(status)) if two_budgets => Self::Misconfigured { message: status.message.clone() },
            (outcome, _) => Self::Failed(outcome),
        }
    }
}

/// The HTTP code of a status; derived from its reason when the server left it out.
fn effective_code(status: &Status) -> u16 {
    match (status.code, status.reason.as_str()) {
        (0, "AlreadyExists" | "Conflict") => 409,
        (0, "NotFound") => 404,
        (0, "Invalid") => 422,
        (0, "Forbidden") => 403,
        (0, "Unauthorized") => 401,
        (0, "TooManyRequests") => 429,
        (0, "BadRequest") => 400,
        (code, _) => code,
    }
}

fn causes(status: &Status) -> Vec<Cause> {
    let causes = status.details.iter().flat_map(|details: &StatusDetails| &details.causes);
    causes
        .map(|cause| Cause {
            field: cause.field.clone(),
            reason: cause.reason.clone(),
            message: cause.message.clone(),
        })
        .collect()
}

fn retry_after(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (0 < seconds).then(|| Duration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(body: serde_json::Value) -> Result<(), kube::Error> {
        let status: Status = serde_json::from_value(body).expect("a Status");
        Err(kube::Error::Api(status.boxed()))
    }

    fn code(code: u16, reason: &str) -> WriteOutcome {
        WriteOutcome::of(&api(serde_json::json!({ "code": code, "reason": reason, "message": "m" })))
    }

    #[test]
    fn codes_have_the_meaning_of_the_table() {
        let message = || "m".to_owned();
        for (status, reason, meaning) in [
            (409, "Conflict", WriteOutcome::Stale),
            (409, "AlreadyExists", WriteOutcome::AlreadyExists),
            (0, "AlreadyExists", WriteOutcome::AlreadyExists),
            (404, "NotFound", WriteOutcome::NotFound),
            (422, "Invalid", WriteOutcome::Stale),
            (403, "Forbidden", WriteOutcome::Denied { message: message() }),
            (401, "Unauthorized", WriteOutcome::Denied { message: message() }),
            (400, "BadRequest", WriteOutcome::Invalid { message: message(), causes: Vec::new() }),
            (429, "TooManyRequests", WriteOutcome::Throttled { retry_after: None }),
            (500, "InternalError", WriteOutcome::Unknown { message: message() }),
            (503, "ServiceUnavailable", WriteOutcome::Unknown { message: message() }),
            (504, "Timeout", WriteOutcome::Unknown { message: message() }),
        ] {
            assert_eq!(code(status, reason), meaning, "{status} {reason}");
        }
    }

    #[test]
    fn a_422_with_causes_is_the_users_business() {
        let outcome = WriteOutcome::of(&api(serde_json::json!({
            "code": 422, "reason": "Invalid", "message": "bad",
            "details": { "causes": [{ "field": "spec.replicas", "reason": "FieldValueInvalid", "message": "negative" }] },
        })));
        let cause = Cause {
            field: "spec.replicas".into(),
            reason: "FieldValueInvalid".into(),
            message: "negative".into(),
        };
        assert_eq!(outcome, WriteOutcome::Invalid { message: "bad".into(), causes: vec![cause] });
    }

    #[test]
    fn a_refused_connection_had_no_effect_and_a_reset_may_have() {
        let io = |kind| Err::<(), _>(kube::Error::Service(Box::new(std::io::Error::from(kind))));
        let refused = WriteOutcome::of(&io(std::io::ErrorKind::ConnectionRefused));
        assert_eq!(refused, WriteOutcome::Throttled { retry_after: None });
        let reset = WriteOutcome::of(&io(std::io::ErrorKind::ConnectionReset));
        assert!(matches!(reset, WriteOutcome::Unknown { .. }), "{reset:?}");
        assert!(refused.is_without_effect() && !reset.is_without_effect());
    }

    #[test]
    fn a_blocked_eviction_is_told_apart_from_a_throttled_one() {
        let blocked = api(serde_json::json!({
            "code": 429, "reason": "TooManyRequests", "message": "Cannot evict pod as it would violate the budget",
            "details": { "causes": [{ "reason": "DisruptionBudget" }], "retryAfterSeconds": 10 },
        }));
        let EvictionOutcome::Blocked { retry_after, .. } = EvictionOutcome::of(&blocked) else {
            panic!("a budget blocks it");
        };
        assert_eq!(retry_after, Some(Duration::from_secs(10)));

        let throttled = EvictionOutcome::of(&api(serde_json::json!({ "code": 429 })));
        assert_eq!(throttled, EvictionOutcome::Failed(WriteOutcome::Throttled { retry_after: None }));
    }

    #[test]
    fn two_budgets_for_one_pod_need_a_person() {
        let result = api(serde_json::json!({
            "code": 500, "message": "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        }));
        assert!(matches!(EvictionOutcome::of(&result), EvictionOutcome::Misconfigured { .. }));
    }
}
