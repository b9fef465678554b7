//! One change of one object, as watchers, the journal and the commit log see it.

use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;
use tokio::time::Instant;

use crate::values::key::Key;
use crate::values::object::Object;

/// A change of one object at one revision.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) revision: u64,
    pub(crate) collection: Arc<str>,
    pub(crate) key: Key,
    shown: RwLock<Shown>,
    pub(crate) deleted: bool,
    pub(crate) at: Instant,
}

/// The objects of an event.
#[derive(Debug)]
struct Shown {
    old: Option<Arc<Object>>,
    object: Arc<Object>,
    /// Watch lines, for recent events only: most watchers read an event at once.
    lines: Option<[OnceLock<Bytes>; 3]>,
}

impl Event {
    /// A new version, or the deletion of `old`.
    pub(crate) fn new(
        revision: u64,
        collection: Arc<str>,
        key: Key,
        old: Option<Arc<Object>>,
        object: Arc<Object>,
        deleted: bool,
    ) -> Self {
        let shown = Shown { old, object, lines: Some([const { OnceLock::new() }; 3]) };
        Event { revision, collection, key, shown: RwLock::new(shown), deleted, at: Instant::now() }
    }

    /// Returns the previous version, if any.
    pub(crate) fn old(&self) -> Option<Arc<Object>> {
        self.shown().old.clone()
    }

    /// Returns the new version. For a deletion, this is the last version with the deletion's
    /// revision.
    pub(crate) fn object(&self) -> Arc<Object> {
        self.shown().object.clone()
    }

    /// Keeps only the text of the new version, and the given replacement for the previous one.
    /// Returns the replacement for the new version.
    pub(crate) fn cool(&self, old: Option<Arc<Object>>) -> Arc<Object> {
        let mut shown = self.shown.write().unwrap_or_else(PoisonError::into_inner);
        shown.old = old.or_else(|| shown.old.as_ref().map(|old| old.cooled()));
        shown.object = shown.object.cooled();
        shown.lines = None;
        shown.object.clone()
    }

    /// Returns the watch line of this event. It is created once for all watchers that want this
    /// type and the plain object.
    pub(crate) fn line(&self, kind: EventKind) -> Bytes {
        let shown = self.shown();
        let made = || watch_line(kind.as_str(), &shown.object.text());
        match &shown.lines {
            Some(lines) => lines[kind as usize].get_or_init(made).clone(),
            None => made(),
        }
    }

    fn shown(&self) -> RwLockReadGuard<'_, Shown> {
        self.shown.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Type of a watch event that carries an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    Added = 0,
    Modified = 1,
    Deleted = 2,
}

impl EventKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            EventKind::Added => "ADDED",
            EventKind::Modified => "MODIFIED",
            EventKind::Deleted => "DELETED",
        }
    }
}

/// `{"type":"…","object":…}` and a newline.
pub(crate) fn watch_line(kind: &str, object: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(object.len() + 40);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(kind.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.into()
}
