//! Provider ids of OpenStack: `openstack:///REGION/SERVER`. Pure functions.
//!
//! Gardener's provider of machine-controller-manager compares the id of a Machine as text with the
//! ids of its list, so the driver writes exactly that spelling. The cloud controller manager writes
//! `openstack:///SERVER` on Nodes, or `openstack://REGION/SERVER` if it serves several regions.

use machinist_instance::{Error, ErrorKind, Place, ProviderId, RecordedId};

const PREFIX: &str = "openstack://";
const EXPECTED: &str = "openstack:///REGION/UUID, openstack://REGION/UUID or openstack:///UUID";

/// The id as Gardener's provider writes it.
///
/// # Errors
/// `Bug` if the cloud's id is not a UUID, which the API excludes.
pub(crate) fn of(region: &str, server: &str) -> Result<ProviderId, Error> {
    ProviderId::parse(&format!("{PREFIX}/{region}/{server}"))
        .ok()
        .filter(|_| is_server(server))
        .ok_or_else(|| Error::new(ErrorKind::Bug, format!("the cloud returned the server id {server:?}")))
}

/// Parses a recorded id.
pub(crate) fn parse(text: &str) -> RecordedId {
    if text.is_empty() {
        return RecordedId::Unset;
    }
    let expected = || EXPECTED.to_owned();
    match parts(text) {
        Some(_) => RecordedId::any(text),
        None if text.starts_with(PREFIX) => RecordedId::Malformed { expected: expected() },
        None => RecordedId::NotOurs { expected: expected() },
    }
}

/// The cloud's id of the server.
///
/// # Errors
/// `InvalidSpec` if the id is not an id of this provider.
pub(crate) fn server(id: &ProviderId) -> Result<&str, Error> {
    let wrong =
        || Error::new(ErrorKind::InvalidSpec, format!("provider id {:?}: expected {EXPECTED}", id.as_str()));
    parts(id.as_str()).map(|(_, server)| server).ok_or_else(wrong)
}

/// The region of an id, if the id names one.
pub(crate) fn place(id: &ProviderId) -> Option<Place> {
    let (region, _) = parts(id.as_str())?;
    (!region.is_empty()).then(|| Place::new(region))
}

/// Whether two ids name the same server. The id of a server is unique in all regions.
pub(crate) fn is_same(a: &ProviderId, b: &ProviderId) -> bool {
    a == b || server(a).is_ok_and(|one| server(b) == Ok(one))
}

/// The region, which may be empty, and the server. Some clouds have a slash in the names of their
/// regions.
fn parts(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix(PREFIX)?;
    let (region, server) = rest.strip_prefix('/').unwrap_or(rest).rsplit_once('/').or_else(|| {
        // Without a region there are three slashes.
        rest.strip_prefix('/').map(|server| ("", server))
    })?;
    let has_empty_region = region.is_empty() && rest.starts_with("//");
    (!has_empty_region && is_server(server)).then_some((region, server))
}

/// Whether a text is a UUID. Nova accepts both spellings, and writes the spelling with hyphens.
pub(crate) fn is_server(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_hexdigit).count();
    digits == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "5d8d6bd5-3c39-4bcb-a4c5-0a4c7a8f0001";

    fn id(text: &str) -> ProviderId {
        ProviderId::parse(text).expect("not empty")
    }

    #[test]
    fn ids_are_written_exactly_as_go_writes_them() {
        assert_eq!(of("eu-nl-1", SERVER), Ok(id(&format!("openstack:///eu-nl-1/{SERVER}"))));
        assert!(of("eu-nl-1", "").is_err_and(|error| error.kind == ErrorKind::Bug));
    }

    #[test]
    fn every_spelling_names_the_same_server() {
        let written = of("eu-nl-1", SERVER).expect("a UUID");
        let cases = [
            (format!("openstack:///eu-nl-1/{SERVER}"), Some("eu-nl-1")),
            (format!("openstack://eu-nl-1/{SERVER}"), Some("eu-nl-1")),
            (format!("openstack:///{SERVER}"), None),
            (format!("openstack:///NL/AMS/{SERVER}"), Some("NL/AMS")),
        ];
        for (text, region) in cases {
            assert_eq!(parse(&text).ours(), Some(&id(&text)));
            assert_eq!(server(&id(&text)), Ok(SERVER), "{text}");
            assert_eq!(place(&id(&text)).map(|place| place.to_string()).as_deref(), region, "{text}");
            assert!(is_same(&written, &id(&text)) && is_same(&id(&text), &written));
        }
        assert!(!is_same(&written, &of("eu-nl-1", &SERVER.replace("0001", "0002")).expect("a UUID")));
        assert!(!is_same(&id("hcloud://1"), &id("hcloud://2")));
    }

    #[test]
    fn other_texts_are_malformed_or_not_ours() {
        let texts = ["openstack://", "openstack:///", "openstack:///eu-nl-1/", "openstack:///eu-nl-1/1"];
        let texts = texts.map(str::to_owned).into_iter();
        for text in texts.chain([format!("openstack:////{SERVER}"), format!("openstack://{SERVER}")]) {
            assert!(matches!(parse(&text), RecordedId::Malformed { .. }), "{text}");
            assert!(server(&id(&text)).is_err_and(|error| error.kind == ErrorKind::InvalidSpec), "{text}");
        }
        for text in ["hcloud://1", "aws:///eu-west-1/i-1", "machine-w-1", SERVER] {
            assert!(matches!(parse(text), RecordedId::NotOurs { .. }), "{text}");
        }
        assert_eq!(parse(""), RecordedId::Unset);
    }
}
