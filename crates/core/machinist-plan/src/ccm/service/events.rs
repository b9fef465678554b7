//! The Events of a Service.

use super::action::Action;
use super::snapshot::Snapshot;
use crate::ccm::names;
use crate::event::EventText;

/// Returns the action that emits an Event, if it is due.
pub(super) fn emit(s: &Snapshot, event: EventText) -> Option<Action> {
    s.emitted.if_due(event, s.now).map(Action::Tell)
}

pub(super) fn failed_event(message: &str) -> EventText {
    EventText::warning(names::SYNC_BALANCER_FAILED, format!("Error syncing load balancer: {message}"))
}

pub(super) fn deletion_failed_event(message: &str) -> EventText {
    EventText::warning(names::DELETE_BALANCER_FAILED, format!("Error deleting load balancer: {message}"))
}

/// Joins the messages of one Event. Of many messages, it has the first ones and the number of the
/// others.
pub(super) fn joined(messages: &[String]) -> Option<String> {
    let first = messages.get(..MAX_MESSAGES).unwrap_or(messages);
    let more = match messages.len().saturating_sub(MAX_MESSAGES) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    (!messages.is_empty()).then(|| format!("{}{more}", first.join("; ")))
}

/// Number of messages in one Event, whose text the API server limits.
const MAX_MESSAGES: usize = 5;
