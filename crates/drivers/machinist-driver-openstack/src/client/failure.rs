//! Converts refusals of the cloud into errors. Pure functions.

use std::time::Duration;

use http::StatusCode;
use machinist_driver_http::{Nature, excerpt};
use machinist_instance::{Error, ErrorKind};
use serde_json::Value;

/// A failed call: the error for the caller of the driver, and what the driver itself must know.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// The status of the answer, if the answer was an error document of OpenStack.
    pub(crate) status: Option<StatusCode>,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { error: Error::new(kind, message), status: None }
    }

    pub(crate) fn is(&self, status: StatusCode) -> bool {
        self.status == Some(status)
    }

    /// Whether the cloud proved that the object does not exist. A page of a proxy proves nothing.
    pub(crate) fn is_absence(&self) -> bool {
        self.is(StatusCode::NOT_FOUND)
    }

    /// Whether the credential may not make this call, although the cloud knows it.
    pub(crate) fn is_forbidden(&self) -> bool {
        self.is(StatusCode::FORBIDDEN) && self.error.kind == ErrorKind::Denied
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, status: None }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

/// The answer has a success status, but not the expected content.
pub(crate) fn unreadable(nature: Nature, action: &str) -> Failure {
    let text = format!("{action}: cannot parse the answer; check the service catalogue and any proxy");
    Failure::new(nature.unknown_effect(), text)
}

/// An answer with an error status.
pub(crate) struct Refusal<'a> {
    pub(crate) action: &'a str,
    pub(crate) status: StatusCode,
    pub(crate) body: &'a [u8],
    /// The wait that the answer asks for.
    pub(crate) retry_after: Option<Duration>,
}

/// Converts a refusal.
pub(crate) fn refused(nature: Nature, refusal: &Refusal<'_>) -> Failure {
    let Refusal { action, status, body, retry_after } = refusal;
    let Some(document) = Document::parse(body) else {
        let number = status.as_u16();
        let text = format!("{action}: status {number} without an error of OpenStack; check any proxy");
        return Failure::new(nature.with_status(*status, *retry_after), text);
    };
    let kind = kind(nature, *status, &document, *retry_after);
    let error = Error::new(kind, format!("{action}: {}", shown(&document.message)));
    Failure { error, status: Some(*status) }
}

/// The error document of a service: `{"NAME": {"message": …, "code": …, "type": …}}`.
struct Document {
    message: String,
    /// The type of an error of Neutron.
    sort: String,
}

impl Document {
    fn parse(body: &[u8]) -> Option<Self> {
        let document: Value = serde_json::from_slice(body).ok()?;
        let (_, error) = document.as_object()?.iter().next()?;
        let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        error.get("message")?.as_str()?;
        Some(Self { message: text("message"), sort: text("type") })
    }
}

/// Parts of a message of the cloud that say that quota or stock are used up. The first is Nova's
/// text about its own quotas and the quotas of Neutron.
const EXHAUSTED: [&str; 11] = [
    "quota exceeded",
    "exceeded for quota",
    "exceeds allowed gigabytes quota",
    "no valid host",
    "exceeded maximum number of retries",
    "not enough hosts",
    "insufficient compute resources",
    "maximum number of ports exceeded",
    "maximum number of fixed ips exceeded",
    "no fixed ip addresses available",
    "no valid backend",
];

/// Types of Neutron's errors that say the same.
const EXHAUSTED_TYPES: [&str; 2] = ["OverQuota", "IpAddressGenerationFailure"];

/// Types of Neutron's errors about the setting of a class, with status 404 or 409.
const INVALID_TYPES: [&str; 6] = [
    "NetworkNotFound",
    "SubnetNotFound",
    "SecurityGroupNotFound",
    "InvalidIpForSubnet",
    "AddressPairAndPortSecurityRequired",
    "PortSecurityAndIPRequiredForSecurityGroups",
];

/// Whether a message of the cloud says that quota or stock are used up.
pub(crate) fn says_exhausted(message: &str) -> bool {
    let message = message.to_lowercase();
    EXHAUSTED.iter().any(|part| message.contains(part))
}

fn kind(nature: Nature, status: StatusCode, document: &Document, retry_after: Option<Duration>) -> ErrorKind {
    let is_type = |types: &[&str]| types.iter().any(|sort| document.sort.starts_with(sort));
    let number = status.as_u16();
    if number == 401 {
        ErrorKind::Denied
    } else if number == 413 || says_exhausted(&document.message) || is_type(&EXHAUSTED_TYPES) {
        ErrorKind::Exhausted
    } else if number == 400 || is_type(&INVALID_TYPES) {
        ErrorKind::InvalidSpec
    } else {
        nature.with_status(status, retry_after)
    }
}

/// The part of a message that users see. An error of a schema repeats the wrong value, which may
/// be user data or a password.
pub(crate) fn shown(message: &str) -> &str {
    let is_of_schema = message.starts_with("Invalid input for");
    let message = match message.find(['.', ':']).filter(|_| is_of_schema) {
        Some(end) => &message[..end],
        None => message,
    };
    excerpt(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(7);

    fn refusal(nature: Nature, status: u16, body: &str) -> Failure {
        let status = StatusCode::from_u16(status).expect("a status");
        let action = "Nova: POST /servers";
        refused(nature, &Refusal { action, status, body: body.as_bytes(), retry_after: Some(WAIT) })
    }

    fn nova(name: &str, message: &str) -> String {
        serde_json::json!({name: {"code": 400, "message": message}}).to_string()
    }

    fn neutron(sort: &str) -> String {
        serde_json::json!({"NeutronError": {"type": sort, "message": "m", "detail": ""}}).to_string()
    }

    /// Go reports a quota as a missing permission, so the autoscaler does not wait.
    #[test]
    fn o_5_a_quota_is_exhausted_and_not_denied() {
        let cases = [
            (403, nova("forbidden", "Quota exceeded for cores: Requested 2, but already used 20 of 20")),
            (403, nova("forbidden", "Maximum number of ports exceeded")),
            (413, nova("overLimit", "VolumeLimitExceeded: Maximum number of volumes allowed (10) exceeded")),
            (409, neutron("OverQuota")),
            (409, neutron("IpAddressGenerationFailure")),
            (409, neutron("IpAddressGenerationFailureNoMatchingSubnet")),
            (500, nova("computeFault", "No valid host was found. There are not enough hosts available.")),
        ];
        for (status, body) in cases {
            let failure = refusal(Nature::Changes, status, &body);
            assert_eq!(failure.error.kind, ErrorKind::Exhausted, "{body}");
            assert!(!failure.is_forbidden());
        }
        let denied = refusal(Nature::Changes, 403, &nova("forbidden", "Policy doesn't allow it"));
        assert!(denied.error.kind == ErrorKind::Denied && denied.is_forbidden());
    }

    #[test]
    fn each_status_has_one_kind_for_callers() {
        let throttled = ErrorKind::Throttled { retry_after: Some(WAIT) };
        let cases = [
            (400, nova("badRequest", "Invalid key_name provided."), ErrorKind::InvalidSpec),
            (401, nova("error", "The request you have made requires authentication."), ErrorKind::Denied),
            (404, neutron("SubnetNotFound"), ErrorKind::InvalidSpec),
            (404, nova("itemNotFound", "m"), ErrorKind::Unavailable),
            (
                409,
                nova("conflictingRequest", "Cannot 'delete' while it is in task_state"),
                ErrorKind::Unavailable,
            ),
            (412, neutron("RevisionNumberConstraintFailed"), ErrorKind::Unavailable),
            (429, nova("overLimit", "m"), throttled),
            (500, nova("computeFault", "m"), ErrorKind::Ambiguous),
            (503, "<html>".to_owned(), ErrorKind::Ambiguous),
            (403, "<html>".to_owned(), ErrorKind::Denied),
            (404, "<html>".to_owned(), ErrorKind::Unavailable),
        ];
        for (status, body, kind) in cases {
            assert_eq!(refusal(Nature::Changes, status, &body).error.kind, kind, "{status} {body}");
        }
        assert_eq!(refusal(Nature::Reads, 503, "").error.kind, ErrorKind::Unavailable);
    }

    #[test]
    fn only_an_error_document_proves_absence() {
        assert!(refusal(Nature::Reads, 404, &nova("itemNotFound", "m")).is_absence());
        assert!(refusal(Nature::Reads, 404, &neutron("PortNotFound")).is_absence());
        for body in ["", "<html>Not Found</html>", "{}", "{\"a\": {}}", "[]"] {
            assert!(!refusal(Nature::Reads, 404, body).is_absence(), "{body}");
        }
    }

    #[test]
    fn no_message_repeats_user_data() {
        let text = "Invalid input for field/attribute user_data. Value: canary. 'canary' is too long";
        let failure = refusal(Nature::Changes, 400, &nova("badRequest", text));
        let expected = "Nova: POST /servers: Invalid input for field/attribute user_data";
        assert_eq!(failure.error.message, expected);
        let long = refusal(Nature::Reads, 403, &nova("forbidden", &"ä".repeat(999)));
        assert!(long.error.message.len() < 360, "{}", long.error);
    }
}
