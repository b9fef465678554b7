//! Provider ids of AWS: `aws:///REGION/INSTANCE`. Pure functions.
//!
//! Gardener's provider of machine-controller-manager compares the id of a Machine as text with the
//! ids of its list, and terminates the instance of a living Machine whose id is spelled otherwise.
//! So the driver writes exactly that spelling. A Node has the zone instead of the region. The cloud
//! controller manager also accepts an id without a zone, and the bare id of the instance.

use machinist_instance::{Error, ErrorKind, Place, ProviderId, RecordedId};

const PREFIX: &str = "aws://";
/// Begins the id of an instance.
const INSTANCE_PREFIX: &str = "i-";
const EXPECTED: &str = "aws:///REGION/i-ID, aws:///ZONE/i-ID or i-ID";

/// The id as Gardener's provider writes it.
///
/// # Errors
/// `Bug` if the cloud's id is empty, which the API excludes.
pub(crate) fn of(region: &str, instance: &str) -> Result<ProviderId, Error> {
    ProviderId::parse(&format!("{PREFIX}/{region}/{instance}"))
        .ok()
        .filter(|_| is_instance(instance))
        .ok_or_else(|| Error::new(ErrorKind::Bug, format!("the cloud returned the instance id {instance:?}")))
}

/// Parses a recorded id.
pub(crate) fn parse(text: &str) -> RecordedId {
    if text.is_empty() {
        return RecordedId::Unset;
    }
    let expected = || EXPECTED.to_owned();
    let looks_like_ours = text.starts_with(PREFIX) || text.starts_with(INSTANCE_PREFIX);
    match parts(text) {
        Some(_) => RecordedId::any(text),
        None if looks_like_ours => RecordedId::Malformed { expected: expected() },
        None => RecordedId::NotOurs { expected: expected() },
    }
}

/// The cloud's id of the instance.
///
/// # Errors
/// `InvalidSpec` if the id is not an id of this provider.
pub(crate) fn instance(id: &ProviderId) -> Result<&str, Error> {
    let wrong =
        || Error::new(ErrorKind::InvalidSpec, format!("provider id {:?}: expected {EXPECTED}", id.as_str()));
    parts(id.as_str()).map(|(_, instance)| instance).ok_or_else(wrong)
}

/// The region of an id. A zone has the name of its region at the beginning.
pub(crate) fn place(id: &ProviderId) -> Option<Place> {
    let (location, _) = parts(id.as_str())?;
    (!location.is_empty()).then(|| Place::new(region_of(location)))
}

/// Whether two ids name the same instance. The id of an instance is unique in all regions.
pub(crate) fn is_same(a: &ProviderId, b: &ProviderId) -> bool {
    a == b || instance(a).is_ok_and(|one| instance(b) == Ok(one))
}

/// The region or zone, which may be empty, and the instance.
fn parts(text: &str) -> Option<(&str, &str)> {
    let (location, instance) = match text.strip_prefix(PREFIX) {
        Some(rest) => rest.strip_prefix('/')?.rsplit_once('/')?,
        None => ("", text),
    };
    let is_location = location.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    (is_location && is_instance(instance)).then_some((location, instance))
}

fn is_instance(text: &str) -> bool {
    let rest = text.strip_prefix(INSTANCE_PREFIX).unwrap_or_default();
    !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// The region of a zone: the text up to its first number. `eu-west-1a` and the local zone
/// `us-west-2-lax-1a` have letters after that number. A text without a number is a region itself.
fn region_of(location: &str) -> &str {
    let Some(number) = location.find(|letter: char| letter.is_ascii_digit()) else { return location };
    let digits = location[number..].find(|letter: char| !letter.is_ascii_digit());
    digits.map_or(location, |digits| &location[..number + digits])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> ProviderId {
        ProviderId::parse(text).expect("not empty")
    }

    #[test]
    fn ids_are_written_exactly_as_go_writes_them() {
        assert_eq!(of("eu-west-1", "i-abc3a7a20cf22279a"), Ok(id("aws:///eu-west-1/i-abc3a7a20cf22279a")));
        assert!(of("eu-west-1", "").is_err_and(|error| error.kind == ErrorKind::Bug));
    }

    #[test]
    fn every_spelling_names_the_same_instance() {
        let written = id("aws:///eu-west-1/i-0a1b");
        for text in ["aws:///eu-west-1/i-0a1b", "aws:///eu-west-1a/i-0a1b", "aws:////i-0a1b", "i-0a1b"] {
            assert_eq!(parse(text).ours(), Some(&id(text)));
            assert_eq!(instance(&id(text)), Ok("i-0a1b"), "{text}");
            assert!(is_same(&written, &id(text)) && is_same(&id(text), &written));
        }
        assert!(!is_same(&written, &id("aws:///eu-west-1/i-0a1c")));
        assert!(!is_same(&id("hcloud://1"), &id("hcloud://2")));
    }

    #[test]
    fn a_6_the_region_of_a_recorded_id_is_known() {
        let place_of = |text: &str| place(&id(text)).map(|place| place.to_string());
        let cases = [
            ("aws:///eu-west-1/i-1", "eu-west-1"),
            ("aws:///eu-west-1a/i-1", "eu-west-1"),
            ("aws:///us-gov-west-1b/i-1", "us-gov-west-1"),
            ("aws:///us-west-2-lax-1a/i-1", "us-west-2"),
            ("aws:///us-east-1-wl1-bos-wlz-1/i-1", "us-east-1"),
            ("aws:///ap-southeast-12c/i-1", "ap-southeast-12"),
            ("aws:///eusc-de-east-1/i-1", "eusc-de-east-1"),
        ];
        for (text, region) in cases {
            assert_eq!(place_of(text).as_deref(), Some(region), "{text}");
        }
        assert_eq!((place_of("aws:////i-1"), place_of("i-1")), (None, None));
    }

    #[test]
    fn other_texts_are_malformed_or_not_ours() {
        let malformed = [
            "aws://",
            "aws:///",
            "aws:///eu-west-1/",
            "aws:///eu-west-1/i-",
            "aws:///eu-west-1/vol-1",
            "aws:///a/b/i-1",
            "aws://i-1",
            "aws://eu-west-1/i-1",
            "i-",
            "i-0a/1",
        ];
        for text in malformed {
            assert!(matches!(parse(text), RecordedId::Malformed { .. }), "{text}");
            assert!(instance(&id(text)).is_err_and(|error| error.kind == ErrorKind::InvalidSpec), "{text}");
        }
        for text in ["hcloud://1", "openstack:///eu/i-1", "machine-w-1", "AWS:///eu-west-1/i-1"] {
            assert!(matches!(parse(text), RecordedId::NotOurs { .. }), "{text}");
        }
        assert_eq!(parse(""), RecordedId::Unset);
    }
}
