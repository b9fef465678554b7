//! Events as values, and the memory of the Events that were emitted.
//!
//! A planner returns the same plan until something changes. An Event changes nothing, so the
//! planner must know which Events were emitted: [`EmittedEvents`] is that fact. The memory may be
//! lost; then an Event is emitted once more.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::plus;

use crate::generated::hash_of_bytes;

/// The same Event is emitted again after this time, if its cause lasts.
const TELL_AGAIN_AFTER: Duration = Duration::from_secs(300);

/// Type of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// An Event of type Normal.
    Normal,
    /// An Event of type Warning, which a user should check.
    Warning,
}

/// An Event about one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventText {
    /// Type of the Event.
    pub severity: Severity,
    /// CamelCase reason.
    pub reason: &'static str,
    /// Message for users.
    pub message: String,
}

impl EventText {
    /// An Event of type Normal.
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Normal, reason, message: message.into() }
    }

    /// An Event of type Warning.
    pub fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, reason, message: message.into() }
    }
}

impl fmt::Display for EventText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Normal => "event",
            Severity::Warning => "warning",
        };
        write!(f, "{severity} {}: {}", self.reason, self.message)
    }
}

/// The Events that this process emitted about one object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct EmittedEvents(BTreeMap<(&'static str, u64), Timestamp>);

/// Maximum number of remembered Events of one object. The oldest is forgotten first, and may be
/// emitted once more.
const MAX_EVENTS: usize = 64;

impl EmittedEvents {
    /// Records that an Event was emitted.
    pub fn note(&mut self, event: &EventText, now: Timestamp) {
        self.0.insert(key(event), now);
        if self.0.len() > MAX_EVENTS
            && let Some(oldest) = self.0.iter().min_by_key(|(_, at)| **at).map(|(key, _)| *key)
        {
            self.0.remove(&oldest);
        }
    }

    /// Whether no Event was emitted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the Event unless the same one was emitted in the last five minutes.
    pub(crate) fn if_due(&self, event: EventText, now: Timestamp) -> Option<EventText> {
        let is_due = self.0.get(&key(&event)).is_none_or(|at| plus(*at, TELL_AGAIN_AFTER) <= now);
        is_due.then_some(event)
    }

    /// Returns the Event unless the same one was ever emitted.
    pub(crate) fn if_new(&self, event: EventText) -> Option<EventText> {
        (!self.0.contains_key(&key(&event))).then_some(event)
    }

    /// Whether an Event of the first reason was emitted, and none of the other reasons since.
    pub(crate) fn is_open(&self, begin: &str, ends: &[&str]) -> bool {
        let last = |wanted: &str| {
            self.0.iter().filter(|((reason, _), _)| *reason == wanted).map(|(_, at)| *at).max()
        };
        let begin = last(begin);
        begin.is_some() && ends.iter().all(|end| last(end) < begin)
    }
}

fn key(event: &EventText) -> (&'static str, u64) {
    (event.reason, hash_of_bytes(event.message.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    #[test]
    fn an_event_is_repeated_only_after_five_minutes() {
        let (event, other) = (EventText::warning("A", "text"), EventText::warning("A", "other"));
        let mut emitted = EmittedEvents::default();
        assert_eq!(emitted.if_due(event.clone(), at(0)), Some(event.clone()));
        emitted.note(&event, at(0));
        assert_eq!(emitted.if_due(event.clone(), at(299)), None);
        assert_eq!(emitted.if_due(event.clone(), at(300)), Some(event.clone()));
        assert_eq!(emitted.if_due(other.clone(), at(1)), Some(other.clone()), "another cause");
        emitted.note(&other, at(1));
        assert_eq!(emitted.if_due(event.clone(), at(2)), None, "each cause has its own time");
        assert_eq!(emitted.if_new(event), None);
    }

    #[test]
    fn an_announced_change_is_open_until_its_end_is_emitted() {
        let mut emitted = EmittedEvents::default();
        assert!(!emitted.is_open("Begin", &["End"]));
        emitted.note(&EventText::normal("Begin", "b"), at(1));
        assert!(emitted.is_open("Begin", &["End"]));
        emitted.note(&EventText::normal("End", "e"), at(2));
        assert!(!emitted.is_open("Begin", &["End"]));
        emitted.note(&EventText::normal("Begin", "b"), at(3));
        assert!(emitted.is_open("Begin", &["End"]));
    }
}
