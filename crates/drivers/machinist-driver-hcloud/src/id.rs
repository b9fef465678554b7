//! Provider ids of Hetzner Cloud: `hcloud://NUMBER`. Pure functions.
//!
//! Dedicated servers of Hetzner Robot have ids of two other forms, `hrobot://NUMBER` and the older
//! `hcloud://bm-NUMBER`. This driver does not support Robot, so it classifies both as ids of
//! another cloud, and no controller acts on them.

use std::net::IpAddr;

use machinist_instance::{Error, ErrorKind, ProviderId, RecordedId};

const PREFIX: &str = "hcloud://";
/// Begins the id of a Robot server.
const ROBOT_PREFIX: &str = "hrobot://";
/// Begins the older form of a Robot id, after the prefix.
const ROBOT_MARK: &str = "bm-";
const EXPECTED: &str = "hcloud://NUMBER";

/// Parses a recorded id. Only the form that the cloud controller manager writes is accepted: a
/// decimal number from 1 to 2^63-1 without sign, space or leading zero.
pub(crate) fn parse(text: &str) -> RecordedId {
    if text.is_empty() {
        return RecordedId::Unset;
    }
    let expected = || EXPECTED.to_owned();
    match text.strip_prefix(PREFIX) {
        None => RecordedId::NotOurs { expected: expected() },
        Some(rest) if rest.starts_with(ROBOT_MARK) => RecordedId::NotOurs { expected: expected() },
        Some(rest) => match number(rest) {
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
    let rest = id.as_str().strip_prefix(PREFIX).and_then(number);
    rest.ok_or_else(|| {
        Error::new(ErrorKind::InvalidSpec, format!("provider id {:?}: expected {EXPECTED}", id.as_str()))
    })
}

/// Whether the id belongs to a dedicated server of Hetzner Robot.
pub(crate) fn is_robot(id: &ProviderId) -> bool {
    let is_legacy = id.as_str().strip_prefix(PREFIX).is_some_and(|rest| rest.starts_with(ROBOT_MARK));
    is_legacy || id.scheme() == "hrobot"
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
    fn ids_without_a_plain_number_are_malformed() {
        let rests = ["", "my-cloud", "+1", "-1", "0", "007", " 1", "1 ", "0x1f", "1.0", "1/", "1/2"];
        let texts = rests.map(|rest| format!("hcloud://{rest}"));
        for text in texts.into_iter().chain(["hcloud://9223372036854775808".to_owned()]) {
            let malformed = RecordedId::Malformed { expected: "hcloud://NUMBER".to_owned() };
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
