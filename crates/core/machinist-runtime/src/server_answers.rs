//! The record of the answers of API servers whose watches are silent.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The kinds whose API servers are checked, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerChecks {
    /// Plural names of the kinds.
    pub kinds: &'static [&'static str],
    /// How long requests may have no answer. A fifth of it is the pause after a request without an
    /// answer.
    pub timeout: Duration,
    /// The pause after a request with an answer.
    pub period: Duration,
}

/// The requests of a process, by kind. A kind that is fresh has none.
#[derive(Debug, Default)]
pub(crate) struct ServerAnswers(Mutex<BTreeMap<&'static str, Requests>>);

#[derive(Debug)]
pub(crate) struct Requests {
    /// When the first request without an answer began.
    pub(crate) unanswered_since: Option<Instant>,
    pub(crate) next: Instant,
}

impl ServerAnswers {
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Requests>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
