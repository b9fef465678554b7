//! Booleans and durations as Go programs read them, because users wrote their annotations and
//! environment variables for one. Pure functions.

use std::time::Duration;

/// Parses the booleans that Go's `strconv.ParseBool` accepts.
pub(crate) fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Parses a duration: Go's syntax without a sign (`15s`, `1m30s`, `500ms`), or a plain number of
/// seconds.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|letter: char| letter.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let seconds: f64 = number.parse::<f64>().ok()? * unit_seconds(unit)?;
        total = total.checked_add(Duration::try_from_secs_f64(seconds).ok()?)?;
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

fn unit_seconds(unit: &str) -> Option<f64> {
    match unit {
        "h" => Some(3600.0),
        "m" => Some(60.0),
        "s" => Some(1.0),
        "ms" => Some(1e-3),
        "us" | "µs" => Some(1e-6),
        "ns" => Some(1e-9),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_are_those_of_go() {
        for text in ["1", "t", "T", "TRUE", "true", "True"] {
            assert_eq!(boolean(text), Some(true), "{text}");
        }
        for text in ["0", "f", "F", "FALSE", "false", "False"] {
            assert_eq!(boolean(text), Some(false), "{text}");
        }
        for text in ["", "yes", "on", "tRUE", " true"] {
            assert_eq!(boolean(text), None, "{text}");
        }
    }

    #[test]
    fn durations_have_units_or_are_seconds() {
        let cases = [
            ("15s", 15_000),
            ("1m30s", 90_000),
            ("1.5h", 5_400_000),
            ("500ms", 500),
            ("30", 30_000),
            ("0s", 0),
        ];
        for (text, millis) in cases {
            assert_eq!(duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "-1s", "1x", "1s5", "1.5.5s", "99999999999999999999h", "15 s"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
