//! Reports what blocks a drain, without a write in each pass.

use std::time::Duration;

use jiff::Timestamp;
use machinist_core::since;

use super::action::{Action, DRAIN_BLOCKED};

/// Minimum interval between two writes about a blocked drain, or about the progress of a drain.
pub(super) const DRAIN_TEXT_EVERY: Duration = Duration::from_secs(30);

/// Returns the write that shows a hindrance, and an Event with the same text. `said` is when a
/// hindrance was last written; absent if the object shows none. `write` is absent if the object
/// already shows this one.
pub(super) fn report(
    now: Timestamp,
    said: Option<Timestamp>,
    write: Option<Action>,
    text: String,
) -> Vec<Action> {
    let is_recent = said.is_some_and(|said| since(now, said) < DRAIN_TEXT_EVERY);
    match write.filter(|_| !is_recent) {
        Some(write) => vec![write, Action::warn(DRAIN_BLOCKED, text)],
        None => Vec::new(),
    }
}
