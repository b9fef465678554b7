//! Checks text formats in schemas, excluding formats that have a Rust type of their own. A text
//! with an unknown format is not checked.

use std::net::IpAddr;

use crate::schema::crd::format::Format;
use crate::values::meta::{NameRule, is_subdomain, name_problems};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextFormat {
    /// The same values as `date-time`, but rules see a text.
    DateTime,
    Uri,
    Email,
    Hostname,
    Ipv4,
    Ipv6,
    Cidr,
    Mac,
    /// A UUID. With a digit, only a UUID of that version.
    Uuid(Option<u8>),
    HexColor,
    ShortName,
    LongName,
}

impl TextFormat {
    /// Returns the format with this name, ignoring hyphens.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        if name == "datetime" {
            return Some(TextFormat::DateTime);
        }
        Some(match name.replace('-', "").as_str() {
            "uri" => TextFormat::Uri,
            "email" => TextFormat::Email,
            "hostname" => TextFormat::Hostname,
            "ipv4" => TextFormat::Ipv4,
            "ipv6" => TextFormat::Ipv6,
            "cidr" => TextFormat::Cidr,
            "mac" => TextFormat::Mac,
            "uuid" => TextFormat::Uuid(None),
            "uuid3" => TextFormat::Uuid(Some(b'3')),
            "uuid4" => TextFormat::Uuid(Some(b'4')),
            "uuid5" => TextFormat::Uuid(Some(b'5')),
            "hexcolor" => TextFormat::HexColor,
            "k8sshortname" => TextFormat::ShortName,
            "k8slongname" => TextFormat::LongName,
            _ => return None,
        })
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            TextFormat::DateTime => "datetime",
            TextFormat::Uri => "uri",
            TextFormat::Email => "email",
            TextFormat::Hostname => "hostname",
            TextFormat::Ipv4 => "ipv4",
            TextFormat::Ipv6 => "ipv6",
            TextFormat::Cidr => "cidr",
            TextFormat::Mac => "mac",
            TextFormat::Uuid(None) => "uuid",
            TextFormat::Uuid(Some(b'3')) => "uuid3",
            TextFormat::Uuid(Some(b'4')) => "uuid4",
            TextFormat::Uuid(Some(_)) => "uuid5",
            TextFormat::HexColor => "hexcolor",
            TextFormat::ShortName => "k8s-short-name",
            TextFormat::LongName => "k8s-long-name",
        }
    }

    pub(crate) fn admits(self, text: &str) -> bool {
        match self {
            TextFormat::DateTime => Format::DateTime.admits(text),
            TextFormat::Uri => is_uri(text),
            TextFormat::Email => is_email(text),
            TextFormat::Hostname => is_hostname(text),
            // An IPv4-mapped address has both formats.
            TextFormat::Ipv4 => text.parse::<IpAddr>().is_ok() && text.contains('.'),
            TextFormat::Ipv6 => text.parse::<IpAddr>().is_ok() && text.contains(':'),
            TextFormat::Cidr => is_cidr(text),
            TextFormat::Mac => is_mac(text),
            TextFormat::Uuid(version) => is_uuid(text, version),
            TextFormat::HexColor => {
                let digits = text.strip_prefix('#').unwrap_or(text);
                matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
            }
            TextFormat::ShortName => name_problems(text, NameRule::Label).is_empty(),
            TextFormat::LongName => is_subdomain(text) && text.len() <= 253,
        }
    }
}

/// Whether a text is a valid request target: a path, or a URI with a scheme.
fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b.is_ascii_control()) {
        return false;
    }
    let rest = match text.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => {
            if !rest.starts_with('/') {
                return true;
            }
            rest
        }
        _ => text,
    };
    if text == "*" {
        return true;
    }
    let Some(after) = rest.strip_prefix('/') else { return false };
    let (host, path) = match after.strip_prefix('/') {
        Some(authority) if rest.len() != text.len() => {
            let end = authority.find(['/', '?']).unwrap_or(authority.len());
            authority.split_at(end)
        }
        _ => ("", rest),
    };
    let path = path.split('?').next().unwrap_or_default();
    is_authority(host) && is_escaped(path)
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

fn is_authority(text: &str) -> bool {
    let host = text.rsplit_once('@').map_or(text, |(_, host)| host);
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, port)) => (address, port.strip_prefix(':').map_or(port, |port| port)),
            None => return false,
        },
        None => host.rsplit_once(':').unwrap_or((host, "")),
    };
    let is_of_host =
        |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:\"<>%".contains(c);
    name.chars().all(is_of_host) && port.bytes().all(|b| b.is_ascii_digit())
}

/// Whether every percent sign starts an escaped byte.
fn is_escaped(text: &str) -> bool {
    let mut parts = text.split('%');
    parts.next();
    parts.all(|part| part.len() >= 2 && part.bytes().take(2).all(|b| b.is_ascii_hexdigit()))
}

/// Accepts `user@example.org` and `Some User <user@example.org>`.
fn is_email(text: &str) -> bool {
    let is_atom = |c: char| c.is_ascii_alphanumeric() || !c.is_ascii() || "!#$%&'*+-/=?^_`{|}~".contains(c);
    let are_atoms = |text: &str| text.split('.').all(|atom| !atom.is_empty() && atom.chars().all(is_atom));
    let is_quoted = |text: &str| {
        let inside = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        inside.is_some_and(|inside| !inside.contains(['"', '\\', '\n', '\r']))
    };
    let text = text.trim();
    let (name, address) = match text.strip_suffix('>').and_then(|rest| rest.rsplit_once('<')) {
        Some((name, address)) => (name.trim(), address),
        None => ("", text),
    };
    let is_named =
        is_quoted(name) || name.split_whitespace().all(|word| word.chars().all(|c| c == '.' || is_atom(c)));
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let is_literal = domain
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .is_some_and(|address| !address.is_empty());
    is_named && (are_atoms(local) || is_quoted(local)) && (are_atoms(domain) || is_literal)
}

fn is_hostname(text: &str) -> bool {
    // Letters and symbols of any script.
    let is_plain = |c: char| {
        c.is_ascii_alphanumeric()
            || "$+<=>^`|~".contains(c)
            || (!c.is_ascii() && !c.is_whitespace() && !c.is_control())
    };
    if 255 < text.len() || text.split('.').any(|label| 63 < label.len()) {
        return false;
    }
    let Some((labels, last)) = text.rsplit_once('.') else {
        // A single label has a hyphen only in second place, or none.
        let mut letters = text.chars();
        let begins = letters.next().is_some_and(is_plain);
        let rest = letters.as_str();
        return begins && rest.strip_prefix('-').unwrap_or(rest).chars().all(is_plain);
    };
    let is_label = |label: &str| {
        label.starts_with(is_plain)
            && label.ends_with(is_plain)
            && label.chars().all(|c| c == '-' || is_plain(c))
    };
    labels.split('.').all(is_label) && 2 <= last.chars().count() && last.chars().all(char::is_alphabetic)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let longest = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    length.bytes().all(|b| b.is_ascii_digit()) && length.parse::<u32>().is_ok_and(|length| length <= longest)
}

/// Six, eight or twenty bytes: two digits each, separated by colons or hyphens, or four digits,
/// separated by dots.
fn is_mac(text: &str) -> bool {
    let are_digits = |parts: &[&str], each: usize| {
        parts.iter().all(|part| part.len() == each && part.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    [(':', 2), ('-', 2), ('.', 4)].into_iter().any(|(between, each)| {
        let parts: Vec<&str> = text.split(between).collect();
        matches!(parts.len() * each / 2, 6 | 8 | 20) && are_digits(&parts, each)
    })
}

/// 32 digits in groups, with or without hyphens between the groups.
fn is_uuid(text: &str, version: Option<u8>) -> bool {
    let mut digits = Vec::with_capacity(32);
    let mut rest = text.as_bytes();
    for (index, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index != 0 {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
        let Some((group, after)) = rest.split_at_checked(length) else { return false };
        digits.extend_from_slice(group);
        rest = after;
    }
    let is_variant = |digit: u8| matches!(digit.to_ascii_lowercase(), b'8' | b'9' | b'a' | b'b');
    rest.is_empty()
        && digits.iter().all(u8::is_ascii_hexdigit)
        && version.is_none_or(|version| digits[12] == version)
        && (!matches!(version, Some(b'4' | b'5')) || is_variant(digits[16]))
}

#[test]
fn each_format_accepts_only_valid_texts() {
    for (format, good, bad) in [
        (
            "uri",
            &["http://a.b/c?d=%zz", "/path", "mailto:x", "*", "https://[::1]:80/", "a://u@h"][..],
            &["", "a/b", "http://a b/", "/%zz", "http://h:x/", "http://[::1/", "\u{1}"][..],
        ),
        ("email", &["a@b", "A B <a.b@c.d>", "\"a b\"@c"], &["", "a", "a@", "@b", "a..b@c", "a b@c"]),
        (
            "hostname",
            &["a", "a-b", "example.com", "1.a-b.org", "köln.de"],
            &["", "ab-c", "a_b.com", "a.b", "-a.com", "example.com.", "a..com"],
        ),
        ("ipv4", &["1.2.3.4", "::ffff:1.2.3.4"], &["::1", "1.2.3", "01.2.3.4"]),
        ("ipv6", &["::1", "::ffff:1.2.3.4"], &["1.2.3.4", "fe80::1%eth0", "1:2"]),
        ("cidr", &["1.2.3.4/24", "::/0"], &["1.2.3.4", "1.2.3.4/33", "1.2.3.4/+1", "x/1", "::/"]),
        (
            "mac",
            &["00:00:5e:00:53:01", "02-00-5e-10-00-00-00-01", "0000.5e00.5301"],
            &["00:00", "0:0:5e:0:53:1", "00:00-5e:00:53:01"],
        ),
        (
            "uuid",
            &["7F2A5A5E-0b0a-1a1a-8a8a-0123456789ab", "7f2a5a5e0b0a1a1a8a8a0123456789ab"],
            &["7f2a", "7f2a5a5e--0b0a1a1a8a8a0123456789ab"],
        ),
        (
            "uuid4",
            &["7f2a5a5e-0b0a-4a1a-8a8a-0123456789ab"],
            &["7f2a5a5e-0b0a-1a1a-8a8a-0123456789ab", "7f2a5a5e-0b0a-4a1a-0a8a-0123456789ab"],
        ),
        ("hexcolor", &["#fff", "00ff00"], &["#ff", "red"]),
        ("k8s-short-name", &["a-b"], &["a.b", "A"]),
        ("k8s-long-name", &["a.b"], &["A", "a..b"]),
    ] {
        let format = TextFormat::parse(format).expect("the format is known");
        for text in good {
            assert!(format.admits(text), "{text:?} is of {}", format.as_str());
        }
        for text in bad {
            assert!(!format.admits(text), "{text:?} is not of {}", format.as_str());
        }
    }
}
