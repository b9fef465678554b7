//! Provider ids: `docker:////CONTAINER`, with four slashes, as Cluster API's provider writes them.
//! Pure.
//!
//! The container's name is part of the id, and not its internal id, because the kubelet of a node
//! knows only its name. The engine gives a name out again, so the internal id is recorded, too.

use machinist_instance::{Error, ErrorKind, NodeName, ProviderId, RecordedId};

const PREFIX: &str = "docker:////";
const EXPECTED: &str = "docker:////CONTAINER";
/// A host name has at most this number of characters, and the container's name is its host name.
const MAX_NAME_LEN: usize = 63;

/// Parses a recorded id.
pub(crate) fn parse(text: &str) -> RecordedId {
    if text.is_empty() {
        return RecordedId::Unset;
    }
    let expected = || EXPECTED.to_owned();
    match text.strip_prefix(PREFIX) {
        Some(name) if is_name(name) => RecordedId::any(text),
        Some(_) => RecordedId::Malformed { expected: expected() },
        None if text.starts_with("docker:") => RecordedId::Malformed { expected: expected() },
        None => RecordedId::NotOurs { expected: expected() },
    }
}

/// The name of the container.
///
/// # Errors
/// `InvalidSpec` if the id is not an id of this provider.
pub(crate) fn container(id: &ProviderId) -> Result<&str, Error> {
    let name = id.as_str().strip_prefix(PREFIX).filter(|name| is_name(name));
    name.ok_or_else(|| {
        Error::new(ErrorKind::InvalidSpec, format!("provider id {:?}: expected {EXPECTED}", id.as_str()))
    })
}

/// The id of the container with that name.
pub(crate) fn of(name: &str) -> ProviderId {
    ProviderId::parse(&format!("{PREFIX}{name}")).expect("the prefix is not empty")
}

/// Checks that a name can be the name of a container and of its host.
///
/// # Errors
/// `InvalidSpec` with the expected form.
pub(crate) fn check_name(name: &NodeName) -> Result<(), Error> {
    if is_name(name.as_str()) && name.as_str().len() <= MAX_NAME_LEN {
        return Ok(());
    }
    let text = format!(
        "name {:?}: expected at most {MAX_NAME_LEN} letters, digits, -, _ and ., because it is the \
         name of a container and of its host",
        name.as_str()
    );
    Err(Error::new(ErrorKind::InvalidSpec, text))
}

/// The names that the engine accepts.
fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    2 <= bytes.len()
        && bytes[0].is_ascii_alphanumeric()
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_slashes_and_a_name_are_ours() {
        let recorded = parse("docker:////c1-w-1.a_b");
        let id = recorded.ours().expect("ours");
        assert_eq!(container(id), Ok("c1-w-1.a_b"));
        assert_eq!(&of("c1-w-1.a_b"), id);
        assert_eq!(parse(""), RecordedId::Unset);
    }

    #[test]
    fn other_texts_are_malformed_or_of_another_cloud() {
        for text in ["docker://", "docker:////", "docker:///c1", "docker:////a/b", "docker:////-a"] {
            assert!(matches!(parse(text), RecordedId::Malformed { .. }), "{text}");
        }
        for text in ["kind://docker/c1/w-1", "aws:///eu-west-1a/i-1", "c1-w-1"] {
            assert!(matches!(parse(text), RecordedId::NotOurs { .. }), "{text}");
            let id = ProviderId::parse(text).expect("not empty");
            assert!(container(&id).is_err_and(|error| error.kind == ErrorKind::InvalidSpec));
        }
    }

    #[test]
    fn a_name_must_fit_into_a_host_name() {
        let name = |text: &str| NodeName::new(text).expect("not empty");
        assert_eq!(check_name(&name(&"n".repeat(63))), Ok(()));
        for text in ["n".repeat(64), "a b".to_owned(), "a/b".to_owned(), ".a".to_owned()] {
            assert!(
                check_name(&name(&text)).is_err_and(|error| error.message.contains("expected")),
                "{text}"
            );
        }
    }
}
