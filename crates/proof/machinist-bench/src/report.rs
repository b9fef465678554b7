//! The common parts of the reports: the format, JSON, goals, the table and percentiles.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

/// Output format of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
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

/// One goal, and whether it is met.
pub(crate) struct Goal {
    pub(crate) what: String,
    pub(crate) is_met: bool,
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.is_met { "ok    " } else { "MISSED" }, self.what)
    }
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
    fn percentiles_are_measured_times() {
        let times: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        let milliseconds = |times, percent| percentile(times, percent).as_millis();
        assert_eq!([50, 99, 100].map(|percent| milliseconds(&times, percent)), [100, 198, 200]);
        assert_eq!(milliseconds(&times[..1], 99), 200);
        assert_eq!(milliseconds(&[], 50), 0);
    }
}
