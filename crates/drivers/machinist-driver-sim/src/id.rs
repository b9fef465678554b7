//! The id formats of this cloud. Pure functions.
//!
//! The cloud itself writes `sim:///IDENTITY`. The provider ids of its Nodes may include the zone,
//! as on AWS: `sim:///ZONE/IDENTITY`. A cloud without a scheme writes the bare identity.

use machinist_instance::{ProviderId, RecordedId};

/// Parses a recorded id into the form that the cloud writes, so that calls find the instance in
/// every spelling.
pub(crate) fn parse(scheme: &str, text: &str) -> RecordedId {
    if text.is_empty() {
        return RecordedId::Unset;
    }
    let malformed = || RecordedId::Malformed { expected: expected(scheme) };
    match text.split_once("://") {
        None if scheme.is_empty() => RecordedId::any(text),
        None | Some(("", _)) => malformed(),
        Some((theirs, _)) if theirs != scheme => RecordedId::NotOurs { expected: expected(scheme) },
        Some((_, path)) => match path.rsplit('/').next() {
            None | Some("") => malformed(),
            Some(identity) => RecordedId::any(&format!("{scheme}:///{identity}")),
        },
    }
}

/// Whether two ids are equal apart from the zone.
pub(crate) fn is_same(a: &ProviderId, b: &ProviderId) -> bool {
    let identity = |id: &ProviderId| id.identity().rsplit('/').next().unwrap_or_default().to_owned();
    a == b || (a.scheme() == b.scheme() && identity(a) == identity(b) && !identity(a).is_empty())
}

fn expected(scheme: &str) -> String {
    match scheme {
        "" => "the bare name of an instance".to_owned(),
        scheme => format!("{scheme}:///IDENTITY or {scheme}:///ZONE/IDENTITY"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> ProviderId {
        ProviderId::parse(text).expect("not empty")
    }

    #[test]
    fn an_id_with_a_zone_is_read_as_the_cloud_writes_it() {
        for text in ["sim:///i-1", "sim:///sim-1a/i-1", "sim://i-1"] {
            assert_eq!(parse("sim", text), RecordedId::Ours(id("sim:///i-1")), "{text}");
        }
        assert_eq!(parse("", "machine-w-1"), RecordedId::Ours(id("machine-w-1")));
        assert_eq!(parse("sim", ""), RecordedId::Unset);
    }

    #[test]
    fn foreign_ids_are_not_ours_and_invalid_ids_are_malformed() {
        for (scheme, text) in [("sim", "aws:///eu-west-1a/i-1"), ("", "sim:///i-1"), ("sim", "fast:///")] {
            assert!(matches!(parse(scheme, text), RecordedId::NotOurs { .. }), "{text}");
        }
        for text in ["i-1", "sim://", "sim:///", "sim:///sim-1a/", "://i-1", " "] {
            assert!(matches!(parse("sim", text), RecordedId::Malformed { .. }), "{text}");
        }
    }

    #[test]
    fn only_the_zone_may_differ() {
        assert!(is_same(&id("sim:///i-1"), &id("sim:///sim-1a/i-1")));
        assert!(!is_same(&id("sim:///i-1"), &id("sim:///i-2")));
        assert!(!is_same(&id("sim:///i-1"), &id("fast:///i-1")));
        assert!(!is_same(&id("sim:///a/"), &id("sim:///b/")));
    }
}
