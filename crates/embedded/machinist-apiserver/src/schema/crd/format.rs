//! Formats that have a Rust type of their own. `text_format` checks the others.

use chrono::TimeDelta;

use crate::values::quantity::is_quantity;

/// Formats of strings that are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// RFC 3339, any precision on input.
    DateTime,
    /// RFC 3339 with exactly six fractional digits.
    MicroTime,
    Date,
    /// Go's format, such as `1h30m`.
    Duration,
    Bytes,
    Quantity,
    /// A 32-bit integer.
    Int32,
}

impl Format {
    /// Returns the format with this name in an `openAPIV3Schema`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "date-time" => Some(Format::DateTime),
            "date" => Some(Format::Date),
            "byte" => Some(Format::Bytes),
            "duration" => Some(Format::Duration),
            "int32" => Some(Format::Int32),
            _ => None,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Format::DateTime | Format::MicroTime => "date-time",
            Format::Date => "date",
            Format::Duration => "duration",
            Format::Bytes => "byte",
            Format::Quantity => "quantity",
            Format::Int32 => "int32",
        }
    }

    pub(crate) fn admits(self, text: &str) -> bool {
        match self {
            Format::DateTime => text.parse::<jiff::Timestamp>().is_ok(),
            Format::MicroTime => is_micro_time(text),
            Format::Date => text.parse::<jiff::civil::Date>().is_ok() && text.len() == 10,
            Format::Duration => duration(text).is_some(),
            Format::Bytes => {
                use base64::Engine as _;
                base64::engine::general_purpose::STANDARD.decode(text).is_ok()
            }
            Format::Quantity => is_quantity(text),
            Format::Int32 => true,
        }
    }
}

/// `2006-01-02T15:04:05.000000Z`: exactly six digits.
fn is_micro_time(text: &str) -> bool {
    let digits = text.split_once('.').map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).count());
    digits == Some(6) && text.parse::<jiff::Timestamp>().is_ok()
}

/// Parses a duration in Go's format: `1h30m`, `-1.5s`, `0`.
pub(super) fn duration(text: &str) -> Option<TimeDelta> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(TimeDelta::zero());
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanoseconds: f64 = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit = match &rest[..end] {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return None,
        };
        nanoseconds += number * unit;
        rest = &rest[end..];
    }
    const LONGEST: f64 = 9.223_372_036_854_775e18;
    if LONGEST < nanoseconds {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "at most the longest that 64 bits hold")]
    let nanoseconds = nanoseconds.round() as i64;
    Some(TimeDelta::nanoseconds(if negative { -nanoseconds } else { nanoseconds }))
}

#[test]
fn durations_parse_as_in_go() {
    assert_eq!(duration("1h30m"), Some(TimeDelta::minutes(90)));
    assert_eq!(duration("-1.5s"), Some(TimeDelta::milliseconds(-1500)));
    assert_eq!(duration("0"), Some(TimeDelta::zero()));
    for wrong in ["", "-", "1", "h", "1x", "1h-2m", "99999999999999999h", "soon", "1..5s"] {
        assert_eq!(duration(wrong), None, "{wrong:?}");
    }
}

#[test]
fn micro_time_needs_six_digits() {
    assert!(is_micro_time("2024-01-01T00:00:00.000000Z"));
    assert!(!is_micro_time("2024-01-01T00:00:00Z"));
    assert!(!is_micro_time("2024-01-01T00:00:00.000Z"));
}
