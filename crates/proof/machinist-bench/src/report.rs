//! The common parts of the reports: the format, JSON, goals, lists, the table and percentiles.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

/// Output format of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text for people.
    Text,
    /// JSON for programs.
    Json,
}

impl Format {
    /// Writes the figures as one JSON object, or the text.
    pub(crate) fn write(
        self,
        f: &mut fmt::Formatter<'_>,
        figures: &impl Serialize,
        text: impl FnOnce(&mut fmt::Formatter<'_>) -> fmt::Result,
    ) -> fmt::Result {
        match self {
            Format::Json => f.write_str(&serde_json::to_string(figures).expect("plain fields serialise")),
            Format::Text => text(f),
        }
    }
}

/// The goal of a figure: a number, and the side of it that meets the goal.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Bound {
    AtMost(f64),
    Below(f64),
    AtLeast(f64),
    Exactly(f64),
}

impl Bound {
    #[expect(clippy::float_cmp, reason = "exact goals are for counts")]
    pub(crate) fn is_met(self, measured: f64) -> bool {
        match self {
            Self::AtMost(goal) => measured <= goal,
            Self::Below(goal) => measured < goal,
            Self::AtLeast(goal) => goal <= measured,
            Self::Exactly(goal) => measured == goal,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(goal) => write!(f, "at most {goal}"),
            Self::Below(goal) => write!(f, "below {goal}"),
            Self::AtLeast(goal) => write!(f, "at least {goal}"),
            Self::Exactly(goal) => write!(f, "{goal}"),
        }
    }
}

/// The first word of a line about a goal.
pub(crate) fn mark(is_met: bool) -> &'static str {
    if is_met { "ok    " } else { "MISSED" }
}

/// The items in one line, or `none`.
pub(crate) fn listed(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}

/// Writes rows of a name, a measured value and its goal, which may be empty.
pub(crate) fn write_table<const N: usize>(
    f: &mut fmt::Formatter<'_>,
    rows: [(&str, String, String); N],
) -> fmt::Result {
    writeln!(f, "{:<40} {:>10}   goal", "", "measured")?;
    for (name, measured, goal) in rows {
        let row = format!("{name:<40} {measured:>10}   {goal}");
        writeln!(f, "{}", row.trim_end())?;
    }
    Ok(())
}

/// Returns the smallest time that is not exceeded by this share of the times.
pub(crate) fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(place).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_says_which_side_of_it_meets_the_goal() {
        let met = |goal: Bound| [0.9, 1.0, 1.1].map(|measured| goal.is_met(measured));
        assert_eq!(met(Bound::AtMost(1.0)), [true, true, false]);
        assert_eq!(met(Bound::Below(1.0)), [true, false, false]);
        assert_eq!(met(Bound::AtLeast(1.0)), [false, true, true]);
        assert_eq!(met(Bound::Exactly(1.0)), [false, true, false]);
    }

    #[test]
    fn percentiles_are_measured_times() {
        let times: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        let milliseconds = |times, percent| percentile(times, percent).as_millis();
        assert_eq!([50, 99, 100].map(|percent| milliseconds(&times, percent)), [100, 198, 200]);
        assert_eq!(milliseconds(&times[..1], 99), 200);
        assert_eq!(milliseconds(&[], 50), 0);
    }
}
