//! What a command tells while it works: plain lines for people, or one JSON object per line for programs.
//!
//! Each command adds what only it tells.

use std::io;
use std::time::Duration;

use serde::Serialize;

use crate::output::Output;

/// Tells what happens.
#[derive(Clone)]
pub(crate) struct Progress {
    pub(crate) output: Output,
    pub(crate) form: Form,
    started: tokio::time::Instant,
}

/// How it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Everything in lines for people.
    Lines,
    /// A table for people, and lines above it.
    Table,
    /// One JSON object per line.
    Json,
}

/// One thing that happened, as a program reads it. Two fields never change their meaning: `seconds` since the start, and `event`.
#[derive(Serialize)]
struct Line<T: Serialize> {
    seconds: f64,
    event: &'static str,
    #[serde(flatten)]
    fields: T,
}

impl Progress {
    /// Starts to tell; seconds count from now.
    pub(crate) fn new(output: Output, form: Form) -> Self {
        Self { output, form, started: tokio::time::Instant::now() }
    }

    /// How long it has been.
    pub(crate) fn seconds(&self) -> f64 {
        milliseconds(self.started.elapsed())
    }

    /// An object of a file was applied.
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

    /// Something is said in one sentence.
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

    /// A JSON object.
    pub(crate) fn event(&self, event: &'static str, fields: &impl Serialize) -> io::Result<()> {
        self.output.json(&Line { seconds: self.seconds(), event, fields })
    }

    /// A line for people.
    pub(crate) fn line(&self, text: &str) -> io::Result<()> {
        self.output.line(&format!("{:>6.2}s  {text}", self.seconds()))
    }
}

/// Seconds with three decimals: more is noise, and long numbers are hard to compare.
fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}
