//! The meaning of the errors of an API server. Pure functions.
//!
//! No answer is not an answer: a read without one fails, and a write without one has an unknown
//! effect. Only a 404 about the object itself shows that the object does not exist.

use kube::core::Status;
use machinist_instance::{Error, ErrorKind};
use machinist_kube::WriteOutcome;

use crate::spec;

/// A part of the message with which an API server refuses an object because of a ResourceQuota.
const QUOTA: &str = "exceeded quota";
const UNAUTHORIZED: u16 = 401;

/// The result of a read of one object. `None` if the object does not exist.
pub(crate) fn optional<T>(result: Result<T, kube::Error>, name: &str) -> Result<Option<T>, Error> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_absence(&error, name) => Ok(None),
        Err(error) => Err(of_read(&error)),
    }
}

/// Whether the API server says that an object of that name does not exist.
pub(crate) fn is_absence(error: &kube::Error, name: &str) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let named = status.details.as_ref().map(|details| details.name.as_str());
    status.code == 404 && status.reason == "NotFound" && named == Some(name)
}

pub(crate) fn is_already_exists(error: &kube::Error) -> bool {
    WriteOutcome::of_error(error) == WriteOutcome::AlreadyExists
}

pub(crate) fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// The error of a read.
pub(crate) fn of_read(error: &kube::Error) -> Error {
    match WriteOutcome::of_error(error) {
        WriteOutcome::Denied { message } => denied(error, message),
        WriteOutcome::Throttled { retry_after } if is_answer(error) => {
            Error::new(ErrorKind::Throttled { retry_after }, text(error))
        }
        WriteOutcome::Throttled { .. } => Error::closed(text(error)),
        WriteOutcome::Done
        | WriteOutcome::Stale
        | WriteOutcome::Invalid { .. }
        | WriteOutcome::AlreadyExists
        | WriteOutcome::NotFound
        | WriteOutcome::Unknown { .. } => Error::new(ErrorKind::Unavailable, text(error)),
    }
}

/// The error of a write in a namespace.
pub(crate) fn of_write(error: &kube::Error, namespace: &str) -> Error {
    match WriteOutcome::of_error(error) {
        WriteOutcome::Invalid { message, .. } => Error::new(ErrorKind::InvalidSpec, message),
        WriteOutcome::NotFound if is_absence(error, namespace) => spec::no_namespace(namespace),
        // The object was changed or deleted since it was read.
        WriteOutcome::Stale | WriteOutcome::NotFound | WriteOutcome::AlreadyExists => {
            Error::new(ErrorKind::Unavailable, text(error))
        }
        WriteOutcome::Denied { message } if message.contains(QUOTA) => {
            Error::new(ErrorKind::Exhausted, message)
        }
        WriteOutcome::Done | WriteOutcome::Denied { .. } | WriteOutcome::Throttled { .. } => of_read(error),
        WriteOutcome::Unknown { message } => Error::new(ErrorKind::Ambiguous, message),
    }
}

fn denied(error: &kube::Error, message: String) -> Error {
    let message = match error {
        kube::Error::Api(status) if status.code == UNAUTHORIZED => {
            "the API server does not accept the credential; renew the kubeconfig".to_owned()
        }
        _ => message,
    };
    Error::new(ErrorKind::Denied, message)
}

fn is_answer(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(_))
}

/// The error with its causes. A message of an API server contains no content of a Secret.
fn text(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        let Status { code, message, .. } = &**status;
        return format!("the API server answered {code}: {message}");
    }
    let mut text = format!("no answer from the API server: {error}");
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use serde_json::{Value, json};

    use super::*;

    fn api(status: Value) -> kube::Error {
        kube::Error::Api(serde_json::from_value(status).expect("a Status"))
    }

    fn lost(kind: io::ErrorKind) -> kube::Error {
        kube::Error::Service(Box::new(io::Error::from(kind)))
    }

    #[test]
    fn only_a_404_about_the_object_is_an_absence() {
        let about = |name: &str| {
            api(json!({"code": 404, "reason": "NotFound", "message": "no", "details": {"name": name}}))
        };
        assert!(is_absence(&about("machine-w-1"), "machine-w-1"));
        assert!(!is_absence(&about("pods"), "machine-w-1"));
        let of_a_proxy = api(json!({"code": 404, "reason": "", "message": "page not found"}));
        assert!(!is_absence(&of_a_proxy, "machine-w-1"));
        assert_eq!(of_read(&of_a_proxy).kind, ErrorKind::Unavailable);
        assert!(!is_absence(&lost(io::ErrorKind::ConnectionReset), "machine-w-1"));
    }

    #[test]
    fn a_lost_answer_is_ambiguous_for_a_write_only() {
        let reset = lost(io::ErrorKind::ConnectionReset);
        assert_eq!(of_write(&reset, "n").kind, ErrorKind::Ambiguous);
        assert_eq!(of_read(&reset).kind, ErrorKind::Unavailable);
        let failed = api(json!({"code": 500, "reason": "InternalError", "message": "etcd"}));
        assert_eq!(of_write(&failed, "n").kind, ErrorKind::Ambiguous);
        assert_eq!(of_read(&failed).kind, ErrorKind::Unavailable);
        let refused = of_write(&lost(io::ErrorKind::ConnectionRefused), "n");
        assert!(refused.kind == ErrorKind::Unavailable && refused.is_closed());
    }

    #[test]
    fn a_refusal_is_denied_exhausted_or_invalid() {
        let forbidden = |message: &str| api(json!({"code": 403, "reason": "Forbidden", "message": message}));
        let rbac = forbidden("pods is forbidden: User \"u\" cannot create resource \"pods\"");
        assert_eq!((of_write(&rbac, "n").kind, of_read(&rbac).kind), (ErrorKind::Denied, ErrorKind::Denied));
        let quota = forbidden("pods \"machine-w-1\" is forbidden: exceeded quota: q, requested: pods=1");
        assert_eq!(of_write(&quota, "n").kind, ErrorKind::Exhausted);
        let unauthorized = api(json!({"code": 401, "reason": "Unauthorized", "message": "Unauthorized"}));
        assert!(of_read(&unauthorized).message.contains("renew the kubeconfig"));
        let gone = api(json!({
            "code": 404, "reason": "NotFound", "message": "namespaces \"n\" not found", "details": {"name": "n"},
        }));
        assert!(
            of_write(&gone, "n").message.starts_with("providerSpec.namespace: expected a namespace that")
        );
    }
}
