//! Provider ids of Hetzner Cloud: `hcloud://NUMBER`. Pure functions.
//!
//! Machines of 23technologies' provider have ids of the form `hcloud:///ZONE/NUMBER`. That provider
//! cannot read the other form: it ends, or deletes the server of a living Machine. So its Machines
//! keep its spelling. Nodes always have the short form.
//!
//! Dedicated servers of Hetzner Robot have ids of two other forms, `hrobot://NUMBER` and the older
//! `hcloud://bm-NUMBER`. This driver does not support Robot, so it classifies both as ids of
//! another cloud, and no controller acts on them.

use std::net::IpAddr;

use machinist_instance::{Error, ErrorKind, ProviderId, RecordedId};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

const PREFIX: &str = "hcloud://";
/// Begins the id of a Robot server.
const ROBOT_PREFIX: &str = "hrobot://";
/// Begins the older form of a Robot id, after the prefix.
const ROBOT_MARK: &str = "bm-";
const EXPECTED: &str = "hcloud://NUMBER or hcloud:///ZONE/NUMBER";
/// The characters of a zone that stay as they are, as in Go's `url.PathEscape`.
const ZONE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b':')
    .remove(b'=')
    .remove(b'@');

/// Parses a recorded id. The number is decimal, from 1 to 2^63-1, without sign, space or leading
/// zero.
pub(crate) fn parse(text: &str) -> RecordedId {
    if text.is_empty() {
        return RecordedId::Unset;
    }
    let expected = || EXPECTED.to_owned();
    match text.strip_prefix(PREFIX) {
        None => RecordedId::NotOurs { expected: expected() },
        Some(rest) if rest.starts_with(ROBOT_MARK) => RecordedId::NotOurs { expected: expected() },
        Some(rest) => match number(without_zone(rest)) {
            Some(_) => RecordedId::any(text),
            None => RecordedId::Malformed { expected: expected() },
        },
    }
}

/// The cloud's number of the server.
///
/// # Errors
/// `InvalidSpec` if the id is not an id of this provider.
pub(crate) fn server(id: &ProviderId) -> Result<i64, Error> {
    let rest = id.as_str().strip_prefix(PREFIX).and_then(|rest| number(without_zone(rest)));
    rest.ok_or_else(|| {
        Error::new(ErrorKind::InvalidSpec, format!("provider id {:?}: expected {EXPECTED}", id.as_str()))
    })
}

/// Whether the id belongs to a dedicated server of Hetzner Robot.
pub(crate) fn is_robot(id: &ProviderId) -> bool {
    let is_legacy = id.as_str().strip_prefix(PREFIX).is_some_and(|rest| rest.starts_with(ROBOT_MARK));
    is_legacy || id.scheme() == "hrobot"
}

/// Whether two ids name the same server.
pub(crate) fn is_same(a: &ProviderId, b: &ProviderId) -> bool {
    a == b || server(a).is_ok_and(|number| server(b) == Ok(number))
}

/// The id in the spelling of 23technologies' provider.
pub(crate) fn of_zone(zone: &str, server: i64) -> ProviderId {
    let zone = utf8_percent_encode(zone, ZONE);
    ProviderId::parse(&format!("{PREFIX}/{zone}/{server}")).expect("the prefix is not empty")
}

/// The part after `ZONE/`, if the id has a zone.
fn without_zone(rest: &str) -> &str {
    let zoned = rest.strip_prefix('/').and_then(|rest| rest.split_once('/'));
    zoned.filter(|(zone, _)| !zone.is_empty()).map_or(rest, |(_, number)| number)
}

pub(crate) fn of(server: i64) -> ProviderId {
    ProviderId::parse(&format!("{PREFIX}{server}")).expect("the prefix is not empty")
}

/// The id of a dedicated server behind a vSwitch. The cloud knows only its address.
pub(crate) fn of_vswitch(address: IpAddr) -> ProviderId {
    ProviderId::parse(&format!("{ROBOT_PREFIX}{address}")).expect("the prefix is not empty")
}

fn number(text: &str) -> Option<i64> {
    let is_canonical = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_canonical)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> ProviderId {
        ProviderId::parse(text).expect("not empty")
    }

    #[test]
    fn a_number_after_the_prefix_is_ours() {
        for (text, number) in [("hcloud://1234", 1234), ("hcloud://2251799813685247", 2_251_799_813_685_247)]
        {
            assert_eq!(parse(text).ours(), Some(&id(text)));
            assert_eq!(server(&id(text)), Ok(number));
            assert_eq!(of(number), id(text));
        }
        assert_eq!(parse("hcloud://9223372036854775807").ours(), Some(&id("hcloud://9223372036854775807")));
    }

    #[test]
    fn both_spellings_name_the_same_server() {
        let (short, zoned) = (id("hcloud://1234"), id("hcloud:///hel1-dc2/1234"));
        assert_eq!(parse(zoned.as_str()).ours(), Some(&zoned));
        assert_eq!((server(&zoned), of_zone("hel1-dc2", 1234)), (Ok(1234), zoned.clone()));
        assert!(is_same(&short, &zoned) && is_same(&zoned, &id("hcloud:///fsn1-dc14/1234")));
        assert!(!is_same(&short, &id("hcloud:///hel1-dc2/1235")));
        assert!(!is_same(&id("hrobot://1234"), &short));
        assert_eq!(of_zone("a/b", 1).as_str(), "hcloud:///a%2Fb/1");
    }

    #[test]
    fn ids_without_a_plain_number_are_malformed() {
        let rests = [
            "/hel1/",
            "//1",
            "/hel1/a/1",
            "/1",
            "",
            "my-cloud",
            "+1",
            "-1",
            "0",
            "007",
            " 1",
            "1 ",
            "0x1f",
            "1.0",
            "1/",
            "1/2",
        ];
        let texts = rests.map(|rest| format!("hcloud://{rest}"));
        for text in texts.into_iter().chain(["hcloud://9223372036854775808".to_owned()]) {
            let malformed = RecordedId::Malformed { expected: EXPECTED.to_owned() };
            assert_eq!(parse(&text), malformed, "{text}");
            assert!(server(&id(&text)).is_err_and(|error| error.kind == ErrorKind::InvalidSpec));
        }
    }

    /// This driver does not support Robot.
    #[test]
    fn ids_of_other_clouds_and_of_robot_are_not_ours() {
        let robot = ["hrobot://4321", "hrobot://", "hrobot://my-robot", "hcloud://bm-4321", "hcloud://bm-"];
        let others =
            ["foobar/321", "aws:///eu-west-1a/i-1", "k3s://node-1", "kind://docker/a/b", "HCLOUD://1"];
        for text in robot.into_iter().chain(others) {
            assert!(matches!(parse(text), RecordedId::NotOurs { .. }), "{text}");
            assert!(server(&id(text)).is_err(), "{text}");
        }
        assert!(robot.iter().all(|text| is_robot(&id(text))));
        assert!(!others.iter().any(|text| is_robot(&id(text))));
        assert_eq!(parse(""), RecordedId::Unset);
    }
}
