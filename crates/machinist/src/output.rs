//! What users read: results on stdout, complaints on stderr.
//!
//! `println!` panics when the reader has gone; here that is an error like any other, and `main` ends quietly on it.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

/// Where results go. A clone writes to the same place; each call writes whole lines.
#[derive(Clone)]
pub(crate) struct Output(Arc<Mutex<dyn Write + Send>>);

impl Output {
    /// The standard output.
    pub(crate) fn stdout() -> Self {
        Self(Arc::new(Mutex::new(io::stdout())))
    }

    /// Text as it is.
    pub(crate) fn text(&self, text: &str) -> io::Result<()> {
        let mut to = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        to.write_all(text.as_bytes())?;
        to.flush()
    }

    /// One line.
    pub(crate) fn line(&self, line: &str) -> io::Result<()> {
        self.text(&format!("{line}\n"))
    }

    /// One value on one line.
    pub(crate) fn json(&self, value: &impl Serialize) -> io::Result<()> {
        self.line(&serde_json::to_string(value)?)
    }
}

/// One line for people on stderr.
pub(crate) fn complain(line: &str) {
    // A closed stderr is no reason to fail.
    let _ = writeln!(io::stderr(), "{line}");
}

/// An error and its causes on one line. Libraries differ in whether a message repeats its cause; here each is told once.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string().replace('\n', " ");
        if line.is_empty() {
            line = text;
        } else if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
    }
    line
}

/// Whether an error only says that nobody reads our output any more.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io_error = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    io_error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_was_told_is_not_told_again() {
        let refused = io::Error::new(io::ErrorKind::ConnectionRefused, "refused");
        let error = anyhow::Error::new(refused).context("client: refused").context("cluster a: no answer");
        assert_eq!(one_line(&error), "cluster a: no answer: client: refused");
    }
}

#[cfg(test)]
pub(crate) mod memory {
    use super::*;

    /// What was written to an [`Output`].
    #[derive(Clone)]
    pub(crate) struct Written(Arc<Mutex<Vec<u8>>>);

    impl Written {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.lock().expect("no writer panicked").clone()).expect("text")
        }
    }

    impl Output {
        /// An output that tests can read.
        pub(crate) fn memory() -> (Self, Written) {
            let buffer = Arc::new(Mutex::new(Vec::new()));
            (Self(buffer.clone()), Written(buffer))
        }
    }
}
