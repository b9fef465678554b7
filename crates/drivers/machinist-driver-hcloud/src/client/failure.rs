//! Converts refusals of the cloud into errors. Pure functions.

use std::time::Duration;

use http::StatusCode;
use machinist_driver_http::{Nature, excerpt};
use machinist_instance::{Error, ErrorKind};
use serde::Deserialize;
use serde_json::Value;

/// A failed call: the error for the caller of the driver, and the code for the driver.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// The code in the JSON error; absent if the answer was not a JSON error or no answer arrived.
    pub(crate) code: Option<Code>,
    /// The fields that the JSON error names.
    pub(crate) fields: Vec<String>,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { error: Error::new(kind, message), code: None, fields: Vec::new() }
    }

    pub(crate) fn is(&self, code: Code) -> bool {
        self.code.as_ref() == Some(&code)
    }

    /// Whether the cloud proved that the object does not exist: with the code `not_found` in JSON.
    pub(crate) fn is_absence(&self) -> bool {
        self.is(Code::NotFound)
    }

    /// Whether another action holds the object for a short time.
    pub(crate) fn is_busy(&self) -> bool {
        self.is(Code::Locked) || self.is(Code::ResourceLocked) || self.is(Code::Conflict)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, code: None, fields: Vec::new() }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

/// A code of a JSON error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Code {
    Forbidden,
    Unauthorized,
    TokenReadonly,
    InvalidInput,
    JsonError,
    Locked,
    ResourceLocked,
    NotFound,
    RateLimitExceeded,
    ResourceLimitExceeded,
    ResourceUnavailable,
    PlacementError,
    ServerError,
    ServiceError,
    UniquenessError,
    Protected,
    Maintenance,
    Unavailable,
    Conflict,
    UnsupportedError,
    BadGateway,
    Timeout,
    TargetAlreadyDefined,
    ServerNotAttachedToNetwork,
    LoadBalancerNotAttachedToNetwork,
    LoadBalancerAlreadyAttached,
    CloudResourceIpNotAllowed,
    IpNotOwned,
    MissingIpv4,
    /// A code that the driver does not know. The status decides.
    Other(String),
}

impl Code {
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "forbidden" => Self::Forbidden,
            "unauthorized" => Self::Unauthorized,
            "token_readonly" => Self::TokenReadonly,
            "invalid_input" => Self::InvalidInput,
            "json_error" => Self::JsonError,
            "locked" => Self::Locked,
            "resource_locked" => Self::ResourceLocked,
            "not_found" => Self::NotFound,
            "rate_limit_exceeded" => Self::RateLimitExceeded,
            "resource_limit_exceeded" => Self::ResourceLimitExceeded,
            "resource_unavailable" => Self::ResourceUnavailable,
            "placement_error" => Self::PlacementError,
            "server_error" => Self::ServerError,
            "service_error" => Self::ServiceError,
            "uniqueness_error" => Self::UniquenessError,
            "protected" => Self::Protected,
            "maintenance" => Self::Maintenance,
            "unavailable" => Self::Unavailable,
            "conflict" => Self::Conflict,
            "unsupported_error" => Self::UnsupportedError,
            "bad_gateway" => Self::BadGateway,
            "timeout" => Self::Timeout,
            "target_already_defined" => Self::TargetAlreadyDefined,
            "server_not_attached_to_network" => Self::ServerNotAttachedToNetwork,
            "load_balancer_not_attached_to_network" => Self::LoadBalancerNotAttachedToNetwork,
            "load_balancer_already_attached" => Self::LoadBalancerAlreadyAttached,
            "cloud_resource_ip_not_allowed" => Self::CloudResourceIpNotAllowed,
            "ip_not_owned" => Self::IpNotOwned,
            "missing_ipv4" => Self::MissingIpv4,
            other => Self::Other(other.to_owned()),
        }
    }

    fn kind(&self, nature: Nature, status: Option<StatusCode>, retry_after: Option<Duration>) -> ErrorKind {
        match self {
            Self::Forbidden | Self::Unauthorized | Self::TokenReadonly => ErrorKind::Denied,
            Self::RateLimitExceeded => ErrorKind::Throttled { retry_after },
            // The cloud refused the call at once, and a repetition may succeed.
            Self::Locked
            | Self::ResourceLocked
            | Self::Conflict
            | Self::Protected
            | Self::Maintenance
            | Self::Unavailable
            | Self::NotFound => ErrorKind::Unavailable,
            Self::ResourceLimitExceeded | Self::ResourceUnavailable | Self::PlacementError => {
                ErrorKind::Exhausted
            }
            Self::InvalidInput
            | Self::JsonError
            | Self::UniquenessError
            | Self::UnsupportedError
            | Self::TargetAlreadyDefined
            | Self::ServerNotAttachedToNetwork
            | Self::LoadBalancerNotAttachedToNetwork
            | Self::LoadBalancerAlreadyAttached
            | Self::CloudResourceIpNotAllowed
            | Self::IpNotOwned
            | Self::MissingIpv4 => ErrorKind::InvalidSpec,
            // The cloud may have begun to act before it failed.
            Self::ServerError | Self::ServiceError | Self::BadGateway | Self::Timeout => {
                nature.unknown_effect()
            }
            Self::Other(_) => status.map_or(nature.unknown_effect(), |status| {
                kind_of_status(nature, status, retry_after, Source::Api)
            }),
        }
    }
}

/// Whether the API itself wrote the answer, or possibly a proxy before the API.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Api,
    Unknown,
}

fn kind_of_status(
    nature: Nature,
    status: StatusCode,
    retry_after: Option<Duration>,
    source: Source,
) -> ErrorKind {
    match (status.as_u16(), source) {
        // The API says that it does not accept calls. From a proxy, the same status can mean that
        // the API broke off during the call.
        (503, Source::Api) => ErrorKind::Unavailable,
        (400 | 412 | 422, Source::Api) => ErrorKind::InvalidSpec,
        // A 404 or 410 without a JSON error comes from a proxy or a wrong endpoint.
        _ => nature.with_status(status, retry_after),
    }
}

/// Whether the cloud refuses a request because of one of its parts, so that a request without the
/// part may succeed.
pub(crate) fn refuses_part(failure: &Failure) -> bool {
    matches!(
        failure.code,
        Some(
            Code::InvalidInput
                | Code::NotFound
                | Code::ResourceLimitExceeded
                | Code::ServerNotAttachedToNetwork
                | Code::LoadBalancerNotAttachedToNetwork
                | Code::CloudResourceIpNotAllowed
                | Code::IpNotOwned
                | Code::MissingIpv4
                | Code::TargetAlreadyDefined
        )
    )
}

/// The answer has a success status, but not the expected content.
pub(crate) fn unreadable(nature: Nature, expected: &str) -> Failure {
    Failure::new(
        nature.unknown_effect(),
        format!("cannot parse the answer of the cloud: expected {expected}"),
    )
}

/// An answer with an error status.
pub(crate) struct Refusal<'a> {
    pub(crate) status: StatusCode,
    pub(crate) body: &'a [u8],
    pub(crate) retry_after: Option<Duration>,
}

/// Converts a refusal. Its message is for users, so it contains no path and no id of the request:
/// the log has both.
pub(crate) fn refused(nature: Nature, refusal: &Refusal<'_>) -> Failure {
    let status = refusal.status;
    match serde_json::from_slice::<Envelope>(refusal.body) {
        Ok(Envelope { error }) => {
            let code = Code::parse(&error.code);
            let kind = code.kind(nature, Some(status), refusal.retry_after);
            Failure { code: Some(code), fields: error.fields(), ..Failure::new(kind, error.to_string()) }
        }
        Err(_) => {
            let text = format!(
                "status {} without a JSON error; check the endpoint and any proxy before it",
                status.as_u16()
            );
            Failure::new(kind_of_status(nature, status, refusal.retry_after, Source::Unknown), text)
        }
    }
}

/// An action that the cloud accepted and that failed later.
pub(crate) fn action_failed(command: &str, code: &str, text: &str) -> Failure {
    let parsed = Code::parse(code);
    // The cloud reports the end of the action, so its effect is known: a repetition is safe.
    let kind = match parsed.kind(Nature::Reads, None, None) {
        ErrorKind::Ambiguous => ErrorKind::Unavailable,
        kind => kind,
    };
    let message = format!("action {command} failed: {code}: {}", excerpt(text));
    Failure { code: Some(parsed), ..Failure::new(kind, message) }
}

#[derive(Deserialize)]
struct Envelope {
    error: ErrorBody,
}

#[derive(Deserialize)]
struct ErrorBody {
    code: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    details: Value,
}

impl ErrorBody {
    fn named(&self, list: &str) -> impl Iterator<Item = (&str, &Value)> {
        let entries = self.details.get(list).and_then(Value::as_array);
        let entries = entries.map(Vec::as_slice).unwrap_or_default().iter();
        entries.filter_map(|entry| Some((entry.get("name")?.as_str()?, entry)))
    }

    fn fields(&self) -> Vec<String> {
        self.named("fields").map(|(name, _)| name.to_owned()).collect()
    }
}

impl std::fmt::Display for ErrorBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, excerpt(&self.message))?;
        for (name, entry) in self.named("fields") {
            let messages = entry.get("messages").and_then(Value::as_array);
            let messages = messages.map(Vec::as_slice).unwrap_or_default().iter();
            let texts: Vec<&str> = messages.filter_map(Value::as_str).map(excerpt).collect();
            match texts.as_slice() {
                [] => write!(f, "; field {name}")?,
                texts => write!(f, "; field {name}: {}", texts.join(", "))?,
            }
        }
        self.named("limits").try_for_each(|(name, _)| write!(f, "; limit {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(nature: Nature, status: u16, body: &str) -> Failure {
        let status = StatusCode::from_u16(status).expect("a status");
        let retry_after = Some(Duration::from_secs(7));
        refused(nature, &Refusal { status, body: body.as_bytes(), retry_after })
    }

    fn json(code: &str) -> String {
        format!(r#"{{"error":{{"code":"{code}","message":"m","details":null}}}}"#)
    }

    #[test]
    fn each_code_has_one_kind_for_callers() {
        let throttled = ErrorKind::Throttled { retry_after: Some(Duration::from_secs(7)) };
        let cases = [
            (401, "unauthorized", ErrorKind::Denied),
            (403, "token_readonly", ErrorKind::Denied),
            (429, "rate_limit_exceeded", throttled),
            (423, "locked", ErrorKind::Unavailable),
            (409, "conflict", ErrorKind::Unavailable),
            (403, "protected", ErrorKind::Unavailable),
            (503, "maintenance", ErrorKind::Unavailable),
            (403, "resource_limit_exceeded", ErrorKind::Exhausted),
            (422, "resource_unavailable", ErrorKind::Exhausted),
            (422, "invalid_input", ErrorKind::InvalidSpec),
            (409, "uniqueness_error", ErrorKind::InvalidSpec),
            (422, "a_new_code", ErrorKind::InvalidSpec),
            (423, "a_new_code", ErrorKind::Unavailable),
            (500, "server_error", ErrorKind::Ambiguous),
            (504, "timeout", ErrorKind::Ambiguous),
        ];
        for (status, code, kind) in cases {
            assert_eq!(refusal(Nature::Changes, status, &json(code)).error.kind, kind, "{status} {code}");
        }
        assert_eq!(refusal(Nature::Reads, 500, &json("server_error")).error.kind, ErrorKind::Unavailable);
    }

    #[test]
    fn only_a_json_not_found_proves_absence() {
        assert!(refusal(Nature::Reads, 404, &json("not_found")).is_absence());
        for (status, body) in [(404, "<html>not found</html>"), (404, ""), (410, "gone"), (404, "{}")] {
            let failure = refusal(Nature::Reads, status, body);
            assert!(!failure.is_absence(), "{status} {body}");
            assert_eq!(failure.error.kind, ErrorKind::Unavailable);
        }
        for (status, code) in [(401, "unauthorized"), (429, "rate_limit_exceeded"), (500, "server_error")] {
            assert!(!refusal(Nature::Reads, status, &json(code)).is_absence(), "{code}");
        }
    }

    #[test]
    fn a_proxy_error_on_a_change_leaves_the_effect_unknown() {
        for status in [500, 502, 503, 504] {
            let failure = refusal(Nature::Changes, status, "<html>");
            assert_eq!(failure.error.kind, ErrorKind::Ambiguous, "{status}");
        }
        assert_eq!(refusal(Nature::Changes, 503, &json("unavailable")).error.kind, ErrorKind::Unavailable);
    }

    #[test]
    fn messages_list_fields_and_limits() {
        let fields = r#"{"error":{"code":"invalid_input","message":"invalid","details":
            {"fields":[{"name":"image","messages":["is unknown","is old"]},{"name":"name"}]}}}"#;
        let failure = refusal(Nature::Changes, 422, fields);
        let expected = "invalid_input: invalid; field image: is unknown, is old; field name";
        assert_eq!(failure.error.message, expected);
        assert_eq!(failure.fields, ["image", "name"]);
        let limits = r#"{"error":{"code":"resource_limit_exceeded","message":"limit","details":
            {"limits":[{"name":"server_limit"}]}}}"#;
        assert!(refusal(Nature::Changes, 403, limits).error.message.contains("; limit server_limit"));
    }

    #[test]
    fn a_failed_action_is_never_ambiguous() {
        for code in ["action_failed", "timeout", "server_error", "locked"] {
            let failure = action_failed("attach_to_network", code, "text");
            assert_eq!(failure.error.kind, ErrorKind::Unavailable, "{code}");
            assert!(failure.error.message.contains("attach_to_network"), "{code}");
        }
    }
}
