//! Go's duration text (`20m0s`), the format of every timeout in the machine API.
//!
//! [`GoDuration`] is the value: signed nanoseconds, as in Go. It parses every unit that Go knows
//! and prints Go's canonical form, so that a written value is byte-equal to Go's.
//!
//! [`DurationText`] is the field on the wire. The CRDs put no pattern on these strings, so an
//! object with an invalid duration can be stored. An invalid duration must not make a whole list
//! unreadable. The text is kept and written back unchanged, and [`crate::validation`] reports it.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const NANOS_PER_MICRO: u64 = 1_000;
const NANOS_PER_MILLI: u64 = 1_000_000;
const NANOS_PER_SECOND: u64 = 1_000_000_000;
const SECONDS_PER_MINUTE: u64 = 60;
const SECONDS_PER_HOUR: u64 = 3_600;

/// A time span as in Go: signed 64-bit nanoseconds, so at most about 292 years in either direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration {
    nanos: i64,
}

impl GoDuration {
    /// Zero; prints as `0s`.
    pub const ZERO: Self = Self { nanos: 0 };

    /// A duration of whole seconds; saturates at Go's bounds.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self { nanos: seconds.saturating_mul(NANOS_PER_SECOND as i64) }
    }

    /// Converts from the type of timers; saturates at Go's bounds.
    pub fn from_std(duration: std::time::Duration) -> Self {
        Self { nanos: i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX) }
    }

    /// Converts to the type of timers; `None` if negative.
    pub fn to_std(self) -> Option<std::time::Duration> {
        u64::try_from(self.nanos).ok().map(std::time::Duration::from_nanos)
    }
}

/// The reason why a text is not a Go duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseDurationError {
    text: String,
    problem: &'static str,
}

impl fmt::Display for ParseDurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a duration such as \"20m\" or \"1h30m\": {}", self.text, self.problem)
    }
}

impl std::error::Error for ParseDurationError {}

impl FromStr for GoDuration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = |problem| ParseDurationError { text: text.to_owned(), problem };
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(unsigned) => (true, unsigned),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        // As in Go, only zero needs no unit.
        if unsigned == "0" {
            return Ok(Self::ZERO);
        }
        if unsigned.is_empty() {
            return Err(fail("it is empty"));
        }
        let mut total: u64 = 0;
        let mut rest = unsigned;
        while !rest.is_empty() {
            let (nanos, after) = parse_component(rest).map_err(fail)?;
            total = total.checked_add(nanos).ok_or_else(|| fail("it is too long"))?;
            rest = after;
        }
        let nanos = match (negative, i64::try_from(total)) {
            (false, Ok(nanos)) => nanos,
            (true, Ok(nanos)) => -nanos,
            // The smallest value has no positive counterpart.
            (true, Err(_)) if total == i64::MIN.unsigned_abs() => i64::MIN,
            (_, Err(_)) => return Err(fail("it is too long")),
        };
        Ok(Self { nanos })
    }
}

/// Parses one `number unit` pair, and returns its nanoseconds and the remaining text.
fn parse_component(text: &str) -> Result<(u64, &str), &'static str> {
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(number_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return Err("a number is missing");
    }
    if fraction.contains('.') {
        return Err("a number has two decimal points");
    }
    let unit_end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
    let (unit, after) = rest.split_at(unit_end);
    let unit_nanos = match unit {
        "ns" => 1,
        // The micro sign and the Greek letter mu look alike; Go accepts both.
        "us" | "\u{b5}s" | "\u{3bc}s" => NANOS_PER_MICRO,
        "ms" => NANOS_PER_MILLI,
        "s" => NANOS_PER_SECOND,
        "m" => SECONDS_PER_MINUTE * NANOS_PER_SECOND,
        "h" => SECONDS_PER_HOUR * NANOS_PER_SECOND,
        "" => return Err("a unit is missing (ns, us, ms, s, m or h)"),
        _ => return Err("a unit is unknown (ns, us, ms, s, m or h)"),
    };
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| "it is too long")? };
    let nanos = whole.checked_mul(unit_nanos).ok_or("it is too long")?;
    let nanos = nanos.checked_add(fraction_of(fraction, unit_nanos)).ok_or("it is too long")?;
    Ok((nanos, after))
}

/// Returns `0.fraction` of a unit, cut off at whole nanoseconds. The calculation uses integers:
/// with floats some values would be one nanosecond off.
fn fraction_of(fraction: &str, unit_nanos: u64) -> u64 {
    /// An hour has 3.6e12 nanoseconds, so further digits cannot change the result.
    const SIGNIFICANT_DIGITS: usize = 15;
    let mut numerator: u128 = 0;
    let mut denominator: u128 = 1;
    for digit in fraction.bytes().take(SIGNIFICANT_DIGITS) {
        numerator = numerator * 10 + u128::from(digit - b'0');
        denominator *= 10;
    }
    u64::try_from(numerator * u128::from(unit_nanos) / denominator).unwrap_or(u64::MAX)
}

/// Prints Go's canonical form: `1h0m0s`, `20m0s`, `1.5s`, `300ms`, `0s`.
impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.nanos.unsigned_abs();
        if nanos == 0 {
            return f.write_str("0s");
        }
        if self.nanos < 0 {
            f.write_str("-")?;
        }
        if nanos < NANOS_PER_MICRO {
            return write!(f, "{nanos}ns");
        }
        if nanos < NANOS_PER_MILLI {
            return write!(f, "{}\u{b5}s", Decimal { nanos, unit_nanos: NANOS_PER_MICRO });
        }
        if nanos < NANOS_PER_SECOND {
            return write!(f, "{}ms", Decimal { nanos, unit_nanos: NANOS_PER_MILLI });
        }
        let whole_seconds = nanos / NANOS_PER_SECOND;
        let hours = whole_seconds / SECONDS_PER_HOUR;
        let minutes = whole_seconds / SECONDS_PER_MINUTE % 60;
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        let seconds_nanos = nanos % (SECONDS_PER_MINUTE * NANOS_PER_SECOND);
        write!(f, "{}s", Decimal { nanos: seconds_nanos, unit_nanos: NANOS_PER_SECOND })
    }
}

/// Nanoseconds as a decimal number of a unit, without trailing zeros.
struct Decimal {
    nanos: u64,
    unit_nanos: u64,
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.nanos / self.unit_nanos, self.nanos % self.unit_nanos);
        if fraction == 0 {
            return write!(f, "{whole}");
        }
        let digits = self.unit_nanos.ilog10() as usize;
        let fraction = format!("{fraction:0digits$}");
        write!(f, "{whole}.{}", fraction.trim_end_matches('0'))
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A duration field: a valid value, or a text that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub enum DurationText {
    /// A valid duration.
    Valid(GoDuration),
    /// An invalid text, kept unchanged.
    Invalid(String),
}

impl DurationText {
    /// Returns the value, if the text is valid.
    pub fn duration(&self) -> Option<GoDuration> {
        match self {
            Self::Valid(duration) => Some(*duration),
            Self::Invalid(_) => None,
        }
    }
}

impl From<GoDuration> for DurationText {
    fn from(duration: GoDuration) -> Self {
        Self::Valid(duration)
    }
}

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Valid(duration) => duration.fmt(f),
            Self::Invalid(text) => f.write_str(text),
        }
    }
}

impl Serialize for DurationText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DurationText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(text.parse().map_or_else(|_| Self::Invalid(text), Self::Valid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        match text.parse::<GoDuration>() {
            Ok(duration) => duration.to_string(),
            Err(error) => format!("error: {error}"),
        }
    }

    #[test]
    fn every_unit_is_parsed_and_printed_as_in_go() {
        for (text, expected) in [
            ("20m", "20m0s"),
            ("2h", "2h0m0s"),
            ("90s", "1m30s"),
            ("1.5h", "1h30m0s"),
            ("1h30m", "1h30m0s"),
            ("72h", "72h0m0s"),
            ("0", "0s"),
            ("-0", "0s"),
            ("0s", "0s"),
            ("+5s", "5s"),
            ("-1m30s", "-1m30s"),
            ("300ms", "300ms"),
            ("1.5s", "1.5s"),
            ("1500us", "1.5ms"),
            ("1500\u{b5}s", "1.5ms"),
            ("1500\u{3bc}s", "1.5ms"),
            ("17ns", "17ns"),
            ("1001ns", "1.001\u{b5}s"),
            (".5s", "500ms"),
            ("5.s", "5s"),
            ("1h1ns", "1h0m0.000000001s"),
            ("59.999999999s", "59.999999999s"),
            ("0.1h", "6m0s"),
            ("9223372036854775807ns", "2562047h47m16.854775807s"),
            ("-9223372036854775808ns", "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(canonical(text), expected, "for {text:?}");
        }
    }

    #[test]
    fn printed_text_parses_back_to_the_same_value() {
        for nanos in [1, 999, 1_000, 123_456, 1_000_000, 987_654_321, 3_599_999_999_999, -42_000_000_007] {
            let duration = GoDuration { nanos };
            assert_eq!(duration.to_string().parse(), Ok(duration));
        }
    }

    #[test]
    fn an_invalid_duration_is_rejected_with_the_reason() {
        for (text, reason) in [
            ("", "it is empty"),
            ("-", "it is empty"),
            ("20", "a unit is missing"),
            ("m", "a number is missing"),
            (".s", "a number is missing"),
            ("1.2.3s", "two decimal points"),
            ("1d", "a unit is unknown"),
            ("1 m", "a unit is unknown"),
            ("20 minutes", "a unit is unknown"),
            ("--1s", "a number is missing"),
            ("9223372036854775808ns", "it is too long"),
            ("99999999999999999999h", "it is too long"),
        ] {
            let answer = canonical(text);
            assert!(answer.starts_with("error: ") && answer.contains(reason), "for {text:?}: {answer}");
        }
    }

    #[test]
    fn an_invalid_field_is_kept_unchanged() {
        let field: DurationText = serde_json::from_str("\"soon\"").expect("any string is accepted");
        assert_eq!(field.duration(), None);
        assert_eq!(serde_json::to_string(&field).expect("a string"), "\"soon\"");
    }
}
