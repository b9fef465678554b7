//! Classifies refusals of the engine. Pure.

use http::StatusCode;
use machinist_instance::{Error, ErrorKind};
use serde::Deserialize;

use super::call::Nature;

/// Longest text of the engine in an error message.
const MAX_TEXT_LEN: usize = 500;

/// A failed call: the error for the caller of the driver, and the status for the driver.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// The status of the engine's answer; absent if none arrived, or if another program answered.
    pub(crate) status: Option<StatusCode>,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { error: Error::new(kind, message), status: None }
    }

    /// Whether the engine says that something does not exist: the object, or a thing that the
    /// request names.
    pub(crate) fn is_absence(&self) -> bool {
        self.status == Some(StatusCode::NOT_FOUND)
    }

    /// Whether the answer proves that the object of the request does not exist. The engine also
    /// answers with this status if it does not know the path.
    pub(crate) fn proves_absence(&self) -> bool {
        let text = self.error.message.to_lowercase();
        let names_an_object = text.contains("no such ") || text.contains(" not found");
        self.is_absence() && names_an_object && !text.contains("page not found")
    }

    /// Whether the name is taken, or the object is in a state that excludes the call.
    pub(crate) fn is_conflict(&self) -> bool {
        self.status == Some(StatusCode::CONFLICT)
    }

    /// Whether the engine answered, so that the outcome is known.
    pub(crate) fn is_answered(&self) -> bool {
        self.status.is_some()
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

/// No answer arrived, or only a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// No engine accepts connections: the socket does not exist, or no process listens. The request
    /// was not sent.
    NoEngine(String),
    /// This process may not use the socket. The request was not sent.
    NotPermitted(String),
    /// An engine runs, but has no time to accept the connection. The request was not sent.
    Busy(String),
    /// The engine has the request, but did not answer in time.
    Slow(String),
    /// The request may have reached the engine.
    Lost(String),
}

pub(crate) fn no_answer(nature: Nature, call: &str, lost: NoAnswer) -> Failure {
    match lost {
        NoAnswer::NoEngine(text) => Failure { error: Error::closed(format!("{call}: {text}")), status: None },
        NoAnswer::Busy(text) => Failure::new(ErrorKind::Unavailable, format!("{call}: {text}")),
        NoAnswer::NotPermitted(text) => Failure::new(ErrorKind::Denied, format!("{call}: {text}")),
        NoAnswer::Slow(text) | NoAnswer::Lost(text) => {
            Failure::new(unknown_effect(nature), format!("{call}: {text}"))
        }
    }
}

/// The answer has a success status, but not the expected content.
pub(crate) fn unreadable(nature: Nature, call: &str, expected: &str) -> Failure {
    Failure::new(unknown_effect(nature), format!("{call}: cannot parse the answer: expected {expected}"))
}

/// An answer with an error status.
pub(crate) fn refused(nature: Nature, call: &str, status: StatusCode, body: &[u8]) -> Failure {
    #[derive(Deserialize)]
    struct Envelope {
        message: String,
    }
    let envelope = serde_json::from_slice::<Envelope>(body).ok();
    // A proxy before the engine answers in another form, and knows nothing about containers.
    let engine_status = envelope.is_some().then_some(status);
    let text = envelope.map(|envelope| envelope.message).unwrap_or_default();
    let kind = kind(nature, status, &text);
    let text: String = text.trim().chars().take(MAX_TEXT_LEN).collect();
    let text = if text.is_empty() { "no message".to_owned() } else { text };
    let message = format!("{call}: {text} (status {})", status.as_u16());
    Failure { error: Error::new(kind, message), status: engine_status }
}

fn kind(nature: Nature, status: StatusCode, text: &str) -> ErrorKind {
    let says = |part: &str| text.contains(part);
    match status.as_u16() {
        _ if says("no space left on device") || says("non-overlapping") => ErrorKind::Exhausted,
        // The API version was negotiated with an older engine, which was replaced meanwhile.
        400 if says("client version") => ErrorKind::Unavailable,
        400 => ErrorKind::InvalidSpec,
        401 => ErrorKind::Denied,
        403 if says("overlaps with other one") => ErrorKind::InvalidSpec,
        // Another container of the network has the static address.
        403 if says("Address already in use") => ErrorKind::Unavailable,
        403 => ErrorKind::Denied,
        404 | 409 | 503 => ErrorKind::Unavailable,
        // The engine undid its part of the work.
        500 if says("port is already allocated") || says("address already in use") => ErrorKind::Unavailable,
        500..=599 => unknown_effect(nature),
        _ => ErrorKind::Unavailable,
    }
}

fn unknown_effect(nature: Nature) -> ErrorKind {
    match nature {
        Nature::Reads => ErrorKind::Unavailable,
        Nature::Changes => ErrorKind::Ambiguous,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_engine_proves_that_an_object_is_absent() {
        let proves = |body: &str| {
            let path = "GET /containers/-/json";
            refused(Nature::Reads, path, StatusCode::NOT_FOUND, body.as_bytes()).proves_absence()
        };
        for text in ["No such container: a", "no such container", "network kind not found"] {
            assert!(proves(&serde_json::json!({ "message": text }).to_string()), "{text}");
        }
        for body in ["<html>404 Not Found</html>", "", r#"{"message":"page not found"}"#, r#"{"code":404}"#] {
            assert!(!proves(body), "{body}");
        }
        let html = refused(Nature::Changes, "POST /x", StatusCode::NOT_FOUND, b"<html>");
        assert!(!html.is_absence() && !html.is_answered());
    }

    #[test]
    fn a_missing_answer_is_ambiguous_only_after_sending_a_change() {
        let kind = |nature, lost| no_answer(nature, "POST /x", lost).error.kind;
        let lost = || NoAnswer::Lost("reset".to_owned());
        let refused = || NoAnswer::NoEngine("refused".to_owned());
        assert_eq!(kind(Nature::Changes, lost()), ErrorKind::Ambiguous);
        assert_eq!(kind(Nature::Reads, lost()), ErrorKind::Unavailable);
        assert_eq!(kind(Nature::Changes, refused()), ErrorKind::Unavailable);
        assert!(no_answer(Nature::Reads, "GET /x", refused()).error.is_closed());
        assert!(!no_answer(Nature::Reads, "GET /x", lost()).error.is_closed(), "a slow engine");
        assert_eq!(kind(Nature::Reads, NoAnswer::NotPermitted(String::new())), ErrorKind::Denied);
        let slow = |nature| kind(nature, NoAnswer::Slow("no answer".to_owned()));
        assert_eq!(
            (slow(Nature::Reads), slow(Nature::Changes)),
            (ErrorKind::Unavailable, ErrorKind::Ambiguous)
        );
        assert_eq!(kind(Nature::Changes, NoAnswer::Busy(String::new())), ErrorKind::Unavailable);
    }

    #[test]
    fn refusals_are_classified_by_status_and_message() {
        let cases = [
            (400, "bad parameter", ErrorKind::InvalidSpec),
            (400, "client version 1.24 is too old", ErrorKind::Unavailable),
            (403, "Pool overlaps with other one on this address space", ErrorKind::InvalidSpec),
            (403, "Address already in use", ErrorKind::Unavailable),
            (403, "authorization denied by plugin", ErrorKind::Denied),
            (404, "No such container: a", ErrorKind::Unavailable),
            (409, "name in use", ErrorKind::Unavailable),
            (500, "Bind for 127.0.0.1:1 failed: port is already allocated", ErrorKind::Unavailable),
            (500, "write /x: no space left on device", ErrorKind::Exhausted),
            (500, "could not find an available, non-overlapping IPv4 address pool", ErrorKind::Exhausted),
            (500, "boom", ErrorKind::Ambiguous),
        ];
        for (status, text, expected) in cases {
            let status = StatusCode::from_u16(status).expect("a status");
            let body = serde_json::json!({ "message": text }).to_string();
            let failure = refused(Nature::Changes, "POST /containers/create", status, body.as_bytes());
            assert_eq!(failure.error.kind, expected, "{text}");
            assert!(failure.error.message.contains(text), "{}", failure.error.message);
        }
        let html = refused(Nature::Reads, "GET /x", StatusCode::BAD_GATEWAY, b"<html>");
        assert_eq!(html.error, Error::new(ErrorKind::Unavailable, "GET /x: no message (status 502)"));
    }
}
