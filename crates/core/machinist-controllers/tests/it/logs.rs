//! Captures what a test logs.

use std::io;
use std::sync::{Mutex, PoisonError};

use tracing::Dispatch;
use tracing::subscriber::NoSubscriber;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::*;

/// The lines of the log since [`capture`].
#[derive(Clone, Default)]
pub(crate) struct Logged(Arc<Mutex<Vec<u8>>>);

impl Logged {
    /// Returns the lines that contain this text.
    pub(crate) fn lines_with(&self, text: &str) -> Vec<String> {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = String::from_utf8_lossy(&bytes);
        lines.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }
}

impl io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Captures the log of this test until the guard is dropped. A test runs on one thread.
pub(crate) fn capture() -> (Logged, impl Sized) {
    let logged = Logged::default();
    let writer = logged.clone();
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
    let guard = log.set_default();
    // With only one subscriber, the first test that reaches a log line decides whether that line is
    // ever logged, and other tests have no subscriber.
    (logged, (guard, Dispatch::new(NoSubscriber::default())))
}
