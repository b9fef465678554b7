//! Ages in the format of Kubernetes: the longer, the coarser.

use jiff::Timestamp;
use serde_json::Value;

/// Text for an unknown time.
pub(super) const UNKNOWN: &str = "<unknown>";

/// Formats the time from `at`, an RFC 3339 text, to `now`.
pub(super) fn since(at: Option<&Value>, now: Timestamp) -> String {
    let at: Option<Timestamp> = at.and_then(Value::as_str).and_then(|text| text.parse().ok());
    at.map_or_else(|| UNKNOWN.to_owned(), |at| human(now.as_second().saturating_sub(at.as_second())))
}

/// Formats as `90s`, `5m30s`, `3h`, `2d4h`, `1y20d`: with two units if the first is small,
/// otherwise with one.
pub(super) fn human(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let pair = |first: i64, unit: &str, rest: i64, below: &str| match rest {
        0 => format!("{first}{unit}"),
        rest => format!("{first}{unit}{rest}{below}"),
    };
    match seconds {
        // Clocks may differ by a moment. A larger difference is invalid.
        i64::MIN..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => pair(s / MINUTE, "m", s % MINUTE, "s"),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => pair(s / HOUR, "h", s % HOUR / MINUTE, "m"),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => pair(s / DAY, "d", s % DAY / HOUR, "h"),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => pair(s / YEAR, "y", s % YEAR / DAY, "d"),
        s => format!("{}y", s / YEAR),
    }
}

#[test]
fn durations_get_coarser() {
    let minute = 60;
    let (hour, day, year) = (60 * minute, 24 * 60 * minute, 365 * 24 * 60 * minute);
    for (seconds, text) in [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (9 * minute + 59, "9m59s"),
        (10 * minute + 59, "10m"),
        (179 * minute, "179m"),
        (3 * hour, "3h"),
        (7 * hour + 59 * minute, "7h59m"),
        (47 * hour, "47h"),
        (2 * day, "2d"),
        (2 * day + hour, "2d1h"),
        (8 * day + hour, "8d"),
        (729 * day, "729d"),
        (2 * year + day, "2y1d"),
        (9 * year + day, "9y"),
    ] {
        assert_eq!(human(seconds), text);
    }
}
