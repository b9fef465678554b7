//! Provider ids: the name of the pod, without a scheme, exactly as Go's provider writes it. Pure
//! functions.
//!
//! Gardener's webhook writes the same text as the provider id of the Node.

use machinist_instance::{Error, ErrorKind, ProviderId, RecordedId};

use crate::name;

const EXPECTED: &str = "machine-NAME, with the name of the Machine";

/// The id of a pod.
///
/// # Errors
/// `Bug` if the pod is not called like the pod of a Machine.
pub(crate) fn of(pod: &str) -> Result<ProviderId, Error> {
    ProviderId::parse(pod)
        .ok()
        .filter(|_| name::machine_of(pod).is_some())
        .ok_or_else(|| Error::new(ErrorKind::Bug, format!("the pod {pod:?} is not a machine")))
}

/// Parses a recorded id.
pub(crate) fn parse(text: &str) -> RecordedId {
    let expected = || EXPECTED.to_owned();
    if text.is_empty() {
        RecordedId::Unset
    } else if name::machine_of(text).is_some() {
        RecordedId::any(text)
    } else if text.starts_with(name::PREFIX) {
        RecordedId::Malformed { expected: expected() }
    } else {
        RecordedId::NotOurs { expected: expected() }
    }
}

/// The name of the pod of an id.
///
/// # Errors
/// `InvalidSpec` if the id is not an id of this provider.
pub(crate) fn pod(id: &ProviderId) -> Result<&str, Error> {
    let wrong =
        || Error::new(ErrorKind::InvalidSpec, format!("provider id {:?}: expected {EXPECTED}", id.as_str()));
    name::machine_of(id.as_str()).map(|_| id.as_str()).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_the_name_of_the_pod() {
        let id = of("machine-w-1").expect("a machine");
        assert_eq!((id.as_str(), pod(&id)), ("machine-w-1", Ok("machine-w-1")));
        assert_eq!(parse("machine-w-1").ours(), Some(&id));
        assert!(of("web-1").is_err_and(|error| error.kind == ErrorKind::Bug));
    }

    #[test]
    fn other_texts_are_malformed_or_not_ours() {
        for text in ["machine-", "machine-W", "machine-a/b", "machine--"] {
            assert!(matches!(parse(text), RecordedId::Malformed { .. }), "{text}");
        }
        for text in ["hcloud://1", "aws:///eu/i-1", "w-1", "sim:///machine-w-1"] {
            assert!(matches!(parse(text), RecordedId::NotOurs { .. }), "{text}");
            let id = ProviderId::parse(text).expect("not empty");
            assert!(pod(&id).is_err_and(|error| error.kind == ErrorKind::InvalidSpec), "{text}");
        }
        assert_eq!(parse(""), RecordedId::Unset);
    }
}
