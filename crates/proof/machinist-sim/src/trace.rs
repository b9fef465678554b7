//! The trace of a run: every request of the processes under test, every driver call, every commit, in order.
//!
//! Two runs of one seed have the same trace, in whatever process they run. What differs from run to run and decides nothing
//! is left out of what is compared: signatures (a CSR and its certificate) and nothing else.

use std::fmt::Write as _;

use crate::seed::fnv;

/// How many of the last lines a violation shows.
const TAIL: usize = 60;

/// One line of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What kind of line it is.
    pub kind: LineKind,
    /// Milliseconds of simulated time since the run began.
    pub at_ms: u64,
    /// What happened, with a hash of the body where there is one.
    pub text: String,
    /// What happened, as golden traces show it; empty for lines that they leave out.
    pub story: String,
}

/// What a line of a trace tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineKind {
    /// A process asked an API server.
    Request,
    /// A process asked the cloud.
    Call,
    /// An API server committed.
    Commit,
    /// Something was done to the run: a fault, a crash, a step of the scenario.
    Note,
}

/// The lines of one run.
#[derive(Debug, Default)]
pub struct Trace {
    lines: Vec<Line>,
    hash: u64,
}

impl Trace {
    pub(crate) fn add(&mut self, line: Line) {
        self.hash = fnv(format!("{:x} {} {}", self.hash, line.at_ms, line.text).as_bytes());
        self.lines.push(line);
    }

    /// What two runs are compared by.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// How many lines there are.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Everything, as text.
    pub fn text(&self) -> String {
        render(&self.lines)
    }

    /// The last lines, as text.
    pub fn tail(&self) -> String {
        // Heartbeats and watches that are opened again tell nothing.
        let is_noise = |line: &&Line| line.text.contains(" leases ") || line.text.contains(" watch ");
        let mut tail: Vec<Line> =
            self.lines.iter().rev().filter(|line| !is_noise(line)).take(TAIL).cloned().collect();
        tail.reverse();
        render(&tail)
    }

    /// What people read: the writes of the processes and their driver calls, in order, without times and hashes.
    pub fn story(&self) -> String {
        let mut text = String::new();
        for line in self.lines.iter().filter(|line| !line.story.is_empty()) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}", line.story);
        }
        text
    }
}

fn render(lines: &[Line]) -> String {
    let mut text = String::new();
    for line in lines {
        let (seconds, millis) = (line.at_ms / 1000, line.at_ms % 1000);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{seconds:>6}.{millis:03} {}", line.text);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at_ms: u64, text: &str) -> Line {
        Line { kind: LineKind::Note, at_ms, text: text.to_owned(), story: String::new() }
    }

    #[test]
    fn order_and_time_count() {
        let hash = |lines: &[(u64, &str)]| {
            let mut trace = Trace::default();
            lines.iter().for_each(|(at, text)| trace.add(line(*at, text)));
            trace.hash()
        };
        assert_eq!(hash(&[(1, "a"), (2, "b")]), hash(&[(1, "a"), (2, "b")]));
        assert_ne!(hash(&[(1, "a"), (2, "b")]), hash(&[(1, "b"), (2, "a")]));
        assert_ne!(hash(&[(1, "a")]), hash(&[(2, "a")]));
    }
}
