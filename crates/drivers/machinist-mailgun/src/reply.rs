//! Answers of the API. Pure.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode, header};
use machinist_instance::{Error, ErrorKind};
use serde_json::Value;

/// Longest text of the service in an error message.
const MAX_MESSAGE_LEN: usize = 500;

/// Converts the answer to the request that sends a mail.
pub(crate) fn sent(answer: &Response<Bytes>) -> Result<(), Error> {
    match answer.status() {
        status if status.is_success() => Ok(()),
        // Mails were delivered in spite of such answers.
        status if status.is_server_error() => Err(error(ErrorKind::Ambiguous, answer)),
        StatusCode::REQUEST_TIMEOUT => Err(error(ErrorKind::Ambiguous, answer)),
        StatusCode::TOO_MANY_REQUESTS => Err(throttled(answer)),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(denied("send mails", answer)),
        _ => Err(error(ErrorKind::InvalidSpec, answer)),
    }
}

/// Converts the answer to a look-up.
pub(crate) fn looked(answer: &Response<Bytes>) -> Result<bool, Error> {
    match answer.status() {
        status if status.is_success() => {
            let body: Value = serde_json::from_slice(answer.body()).unwrap_or(Value::Null);
            match body["items"].as_array() {
                Some(items) => Ok(!items.is_empty()),
                None => Err(Error::new(ErrorKind::Bug, "the answer has no list of events")),
            }
        }
        StatusCode::TOO_MANY_REQUESTS => Err(throttled(answer)),
        status if status.is_server_error() => Err(error(ErrorKind::Unavailable, answer)),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(denied("read events", answer)),
        // A proxy may have answered. It says nothing about the key or the mail.
        _ => Err(error(ErrorKind::Unavailable, answer)),
    }
}

fn throttled(answer: &Response<Bytes>) -> Error {
    let seconds =
        answer.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    error(ErrorKind::Throttled { retry_after: seconds.map(Duration::from_secs) }, answer)
}

/// The service rejects the key, or the key lacks a permission. Its own text is one word.
fn denied(task: &str, answer: &Response<Bytes>) -> Error {
    let Error { message, .. } = error(ErrorKind::Denied, answer);
    let fix = format!("check MAILGUN_API_KEY, which must be allowed to {task} for the domain MAILGUN_DOMAIN");
    Error::new(ErrorKind::Denied, format!("{message}; {fix}"))
}

fn error(kind: ErrorKind, answer: &Response<Bytes>) -> Error {
    let body: Value = serde_json::from_slice(answer.body()).unwrap_or(Value::Null);
    let text = body["message"].as_str().unwrap_or("no message");
    let text: String = text.chars().take(MAX_MESSAGE_LEN).collect();
    Error::new(kind, format!("{}: {text}", answer.status().as_u16()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_whether_the_mail_was_accepted() {
        for (status, expected) in [
            (400, ErrorKind::InvalidSpec),
            (401, ErrorKind::Denied),
            (404, ErrorKind::InvalidSpec),
            (413, ErrorKind::InvalidSpec),
            (429, ErrorKind::Throttled { retry_after: Some(Duration::from_secs(7)) }),
            (500, ErrorKind::Ambiguous),
            (504, ErrorKind::Ambiguous),
        ] {
            let answer = Response::builder().status(status).header("Retry-After", "7").body(Bytes::new());
            let error = sent(&answer.expect("an answer")).expect_err("not accepted");
            assert_eq!(error.kind, expected, "{status}");
        }
    }

    #[test]
    fn a_rejected_key_is_named() {
        let answer =
            |status| Response::builder().status(status).body(Bytes::from(r#"{"message":"Forbidden"}"#));
        let sent = sent(&answer(401).expect("an answer")).expect_err("rejected");
        assert!(sent.message.starts_with("401: Forbidden; check MAILGUN_API_KEY"), "{sent}");
        let looked = looked(&answer(403).expect("an answer")).expect_err("rejected");
        assert!(looked.message.contains("read events"), "{looked}");
    }

    /// An answer of a proxy must not make a mail count as a mail that no look-up can show.
    #[test]
    fn an_answer_of_a_proxy_to_a_look_up_is_no_answer() {
        for status in [302, 404, 408, 421, 425, 502] {
            let answer = Response::builder().status(status).body(Bytes::from("<html>"));
            let error = looked(&answer.expect("an answer")).expect_err("no list of events");
            assert_eq!(error.kind, ErrorKind::Unavailable, "{status}");
        }
    }
}
