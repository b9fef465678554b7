//! The meaning of the answer to a write.
//!
//! Each write contains its precondition, so its answer has only a few meanings. A caller reacts to
//! the meaning, not to the HTTP code: it reads again (`Stale`), reports to the user (`Invalid`,
//! `Denied`), waits (`Throttled`), or finds out whether the write took effect (`Unknown`).

use std::time::Duration;

use kube::core::Status;
use kube::core::response::StatusDetails;

use crate::client::was_never_sent;

/// The meaning of the answer to a create, update, patch or delete.
///
/// ```
/// use kube::core::Status;
/// use machinist_kube::WriteOutcome;
///
/// let answer = |code, reason: &str| {
///     let status = Status::failure("no", reason).with_code(code).boxed();
///     WriteOutcome::of_error(&kube::Error::Api(status))
/// };
/// assert_eq!(answer(409, "Conflict"), WriteOutcome::Stale);
/// assert_eq!(answer(409, "AlreadyExists"), WriteOutcome::AlreadyExists);
/// assert_eq!(answer(403, "Forbidden"), WriteOutcome::Denied { message: "no".to_owned() });
/// // After an error of the server the write may have taken effect.
/// assert!(!answer(500, "InternalError").is_without_effect());
/// assert_eq!(WriteOutcome::of(&Ok(())), WriteOutcome::Done);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The write is committed.
    Done,
    /// Nothing was written: the object has changed since we read it. Read it again.
    Stale,
    /// Nothing was written: the request is invalid, and a retry would fail again.
    Invalid {
        /// Message of the API server.
        message: String,
        /// The invalid fields, with reasons.
        causes: Vec<Cause>,
    },
    /// Nothing was written: an object of that name exists. Read the object and check its owner.
    AlreadyExists,
    /// Nothing was written: the object or its namespace does not exist.
    NotFound,
    /// Nothing was written: the API server does not permit the request.
    Denied {
        /// Message of the API server.
        message: String,
    },
    /// Nothing was written: the API server did not process the request, or the request did not
    /// reach a server. Wait.
    Throttled {
        /// Time that the server told us to wait.
        retry_after: Option<Duration>,
    },
    /// The write may or may not be committed. Repeat the write or read the object before a decision
    /// depends on the result.
    Unknown {
        /// The error that occurred instead of an answer.
        message: String,
    },
}

/// One invalid field, as reported by the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Path of the field; empty if the server named no field.
    pub field: String,
    /// CamelCase reason of the server.
    pub reason: String,
    /// Message of the server.
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
            // Never sent: the client could not build the request.
            kube::Error::BuildRequest(_) | kube::Error::HttpError(_) => {
                Self::Invalid { message: error.to_string(), causes: Vec::new() }
            }
            kube::Error::Auth(_) => Self::Denied { message: error.to_string() },
            error if was_never_sent(error) => Self::Throttled { retry_after: None },
            // The outcome is also unknown after a success that cannot be parsed: the write is
            // committed, but the committed object is unknown.
            error => Self::Unknown { message: error.to_string() },
        }
    }

    fn of_status(status: &Status) -> Self {
        let message = || status.message.clone();
        match effective_code(status) {
            409 if status.is_already_exists() => Self::AlreadyExists,
            409 | 410 | 412 => Self::Stale,
            404 if is_absent(status) => Self::NotFound,
            404 => Self::Unknown { message: message() },
            // The test of a JSON patch failed. For an invalid field, the answer would contain
            // causes.
            422 if causes(status).is_empty() => Self::Stale,
            401 | 403 => Self::Denied { message: message() },
            429 if is_of_a_webhook(status) => Self::Denied { message: message() },
            429 => Self::Throttled { retry_after: retry_after(status) },
            400..=499 => Self::Invalid { message: message(), causes: causes(status) },
            _ => Self::Unknown { message: message() },
        }
    }

    /// True if the write certainly had no effect.
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
    /// The pod was deleted, or another pod has its name by now.
    Gone,
    /// A PodDisruptionBudget forbids the eviction for now.
    Blocked {
        /// Message of the API server, which names the budget.
        message: String,
        /// Time that the server told us to wait.
        retry_after: Option<Duration>,
    },
    /// The eviction is forbidden until a user corrects the budgets, for example if two budgets
    /// select the pod.
    Misconfigured {
        /// Message of the API server.
        message: String,
    },
    /// Another result, classified as for other writes.
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

/// The HTTP code of a status, derived from the reason if the server omitted the code.
/// The reason that the client gives to an error whose body is not a `Status` of Kubernetes.
const NO_STATUS: &str = "Failed to parse error data";

/// Whether an API server gave the answer. A proxy before it may answer 404 or 409, too, without a
/// reason of Kubernetes.
pub fn is_of_an_api_server(status: &Status) -> bool {
    status.reason != NO_STATUS
}

/// Whether an API server says that the object does not exist. The 404 of a proxy, or of a server
/// that does not serve the kind now, says nothing about the object.
pub fn is_absent(status: &Status) -> bool {
    status.reason == "NotFound"
}

/// Returns the object that a GET returned, or `None` if it does not exist.
///
/// # Errors
/// Every other error, also a 404 that says nothing about the object.
pub fn existing<T>(result: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match result {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if is_absent(&status) => Ok(None),
        Err(error) => Err(error),
    }
}

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

/// Whether an admission webhook rejected the request. It may choose any code, 429 included, and the
/// API server keeps it. kube-apiserver writes this text before the message of the webhook.
fn is_of_a_webhook(status: &Status) -> bool {
    status.message.starts_with("admission webhook ") && status.message.contains(" denied the request")
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
    fn each_code_has_its_outcome() {
        let message = || "m".to_owned();
        for (status, reason, meaning) in [
            (409, "Conflict", WriteOutcome::Stale),
            (409, "AlreadyExists", WriteOutcome::AlreadyExists),
            (0, "AlreadyExists", WriteOutcome::AlreadyExists),
            (404, "NotFound", WriteOutcome::NotFound),
            (404, NO_STATUS, WriteOutcome::Unknown { message: message() }),
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
    fn only_an_api_server_says_that_an_object_does_not_exist() {
        let read = |code: u16, reason: &str| {
            existing(api(serde_json::json!({ "code": code, "reason": reason, "message": "m" })))
        };
        assert!(matches!(read(404, "NotFound"), Ok(None)));
        assert!(read(404, NO_STATUS).is_err(), "the page of a proxy");
        assert!(read(503, "ServiceUnavailable").is_err());
        assert!(matches!(existing(Ok(1)), Ok(Some(1))));
    }

    #[test]
    fn a_422_with_causes_is_invalid() {
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
    fn only_a_refused_connection_certainly_had_no_effect() {
        let io = |kind| Err::<(), _>(kube::Error::Service(Box::new(std::io::Error::from(kind))));
        let refused = WriteOutcome::of(&io(std::io::ErrorKind::ConnectionRefused));
        assert_eq!(refused, WriteOutcome::Throttled { retry_after: None });
        let reset = WriteOutcome::of(&io(std::io::ErrorKind::ConnectionReset));
        assert!(matches!(reset, WriteOutcome::Unknown { .. }), "{reset:?}");
        assert!(refused.is_without_effect() && !reset.is_without_effect());
    }

    #[test]
    fn a_blocked_eviction_differs_from_a_throttled_one() {
        let blocked = api(serde_json::json!({
            "code": 429, "reason": "TooManyRequests", "message": "Cannot evict pod as it would violate the budget",
            "details": { "causes": [{ "reason": "DisruptionBudget" }], "retryAfterSeconds": 10 },
        }));
        let EvictionOutcome::Blocked { retry_after, .. } = EvictionOutcome::of(&blocked) else {
            panic!("the budget must block the eviction");
        };
        assert_eq!(retry_after, Some(Duration::from_secs(10)));

        let throttled = EvictionOutcome::of(&api(serde_json::json!({ "code": 429 })));
        assert_eq!(throttled, EvictionOutcome::Failed(WriteOutcome::Throttled { retry_after: None }));
    }

    #[test]
    fn a_webhook_that_answers_429_rejects_the_eviction() {
        let message = "admission webhook \"pods.example.com\" denied the request: too many";
        let denied = api(serde_json::json!({
            "code": 429, "reason": "TooManyRequests", "message": message,
        }));
        let outcome = WriteOutcome::Denied { message: message.to_owned() };
        assert_eq!(EvictionOutcome::of(&denied), EvictionOutcome::Failed(outcome));
    }

    #[test]
    fn two_budgets_for_one_pod_are_misconfigured() {
        let result = api(serde_json::json!({
            "code": 500, "message": "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        }));
        assert!(matches!(EvictionOutcome::of(&result), EvictionOutcome::Misconfigured { .. }));
    }
}
