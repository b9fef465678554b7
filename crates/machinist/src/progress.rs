//! Progress of a command: plain lines for people, or one JSON object per line for programs.
//!
//! Each command adds its own events.

use std::io;
use std::time::Duration;

use serde::Serialize;

use crate::output::Output;

/// Reports progress.
#[derive(Clone)]
pub(crate) struct Progress {
    pub(crate) output: Output,
    pub(crate) form: Form,
    started: tokio::time::Instant,
}

/// Form of the progress output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Lines for people.
    Lines,
    /// A live table for people, and lines above it.
    Table,
    /// One JSON object per line.
    Json,
}

/// One event for programs. Two fields never change their meaning: `seconds` since the start, and
/// `event`.
#[derive(Serialize)]
struct Line<T: Serialize> {
    seconds: f64,
    event: &'static str,
    #[serde(flatten)]
    fields: T,
}

impl Progress {
    /// Starts the report. Seconds count from now.
    pub(crate) fn new(output: Output, form: Form) -> Self {
        Self { output, form, started: tokio::time::Instant::now() }
    }

    /// Returns the seconds since the start.
    pub(crate) fn seconds(&self) -> f64 {
        milliseconds(self.started.elapsed())
    }

    /// Reports that an object of a file was applied.
    pub(crate) fn applied(&self, object: &str, how: &'static str) -> io::Result<()> {
        #[derive(Serialize)]
        struct Applied<'a> {
            object: &'a str,
            how: &'static str,
        }
        match self.form {
            Form::Json => self.event("applied", &Applied { object, how }),
            Form::Lines | Form::Table => self.line(&format!("{object} {how}")),
        }
    }

    /// Reports one sentence.
    pub(crate) fn note(&self, message: &str) -> io::Result<()> {
        #[derive(Serialize)]
        struct Note<'a> {
            message: &'a str,
        }
        match self.form {
            Form::Json => self.event("note", &Note { message }),
            Form::Lines | Form::Table => self.line(message),
        }
    }

    /// Writes an event as a JSON object.
    pub(crate) fn event(&self, event: &'static str, fields: &impl Serialize) -> io::Result<()> {
        self.output.json(&Line { seconds: self.seconds(), event, fields })
    }

    /// Writes a line for people.
    pub(crate) fn line(&self, text: &str) -> io::Result<()> {
        self.output.line(&format!("{:>6.2}s  {text}", self.seconds()))
    }
}

/// Rounds to three decimals. More digits are noise, and long numbers are hard to compare.
fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}
