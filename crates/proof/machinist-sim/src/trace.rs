//! The trace of a run: every request of the processes under test, every driver call and every
//! commit, in order.
//!
//! Two runs of one seed have the same trace, in every process. Only signatures (a CSR and its
//! certificate) differ from run to run. They decide nothing, so they are not part of the compared
//! trace.

use std::fmt::Write as _;

use crate::seed::fnv;

/// Number of last lines that a violation shows.
const TAIL: usize = 60;

/// One line of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Kind of the line.
    pub kind: LineKind,
    /// Milliseconds of simulated time since the run began.
    pub at_ms: u64,
    /// Text of the event, with a hash of the body if there is one.
    pub text: String,
    /// Text of the event in golden traces; empty for lines that they omit.
    pub story: String,
}

/// The kind of event in a line of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineKind {
    /// A request of a process to an API server.
    Request,
    /// A call of the cloud by a process.
    Call,
    /// A commit of an API server.
    Commit,
    /// A fault, a crash, or a step of the scenario.
    Note,
}

/// The lines of one run.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    lines: Vec<Line>,
    hash: u64,
}

impl Trace {
    pub(crate) fn add(&mut self, line: Line) {
        self.hash = fnv(format!("{:x} {} {}", self.hash, line.at_ms, line.text).as_bytes());
        self.lines.push(line);
    }

    /// Hash of the trace, to compare two runs.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Number of lines.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether the trace has no lines.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The whole trace as text.
    pub fn text(&self) -> String {
        render(&self.lines)
    }

    /// The last lines as text.
    pub fn tail(&self) -> String {
        // Heartbeats and reopened watches are omitted, because they explain nothing.
        let is_noise = |line: &&Line| line.text.contains(" leases ") || line.text.contains(" watch ");
        let mut tail: Vec<Line> =
            self.lines.iter().rev().filter(|line| !is_noise(line)).take(TAIL).cloned().collect();
        tail.reverse();
        render(&tail)
    }

    /// The trace for people: the writes of the processes and their driver calls, in order, without
    /// times and hashes.
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
    fn the_hash_depends_on_order_and_time() {
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
