//! The results of quorum reads that are ahead of the watch.
//!
//! The store shows such a result. This overlay keeps, by key, the state of the watch below the
//! result, and how far the watch must come until the store shows its state again.

use std::collections::BTreeMap;

use super::slots::Slots;
use super::{Entry, ObjectKey, Unreadable};

/// The keys for which the store shows the result of a read.
pub(super) struct ReadsAhead<F> {
    by_key: Slots<Ahead<F>>,
}

/// State of a key for which a quorum read is ahead of the watch.
struct Ahead<F> {
    watched: Watched<F>,
    /// The resourceVersion that the watch must reach.
    until: u64,
    /// UID of an object that the read no longer found. UIDs are never reused, so the watch must
    /// report its deletion too.
    gone: Option<String>,
    /// Whether one list has arrived since the read. That list may have been sent before the read.
    /// The next list was sent after the first had arrived, so the store trusts the next list.
    was_listed: bool,
}

/// The state of a key according to the watch.
pub(super) struct Watched<F> {
    pub(super) entry: Option<Entry<F>>,
    pub(super) unreadable: Option<Unreadable>,
}

impl<F> Ahead<F> {
    /// Whether the watch, which has observed all events up to `observed_rv`, has passed the read.
    fn is_passed(&self, observed_rv: u64) -> bool {
        let shows_the_gone = self.watched.entry.as_ref().is_some_and(|entry| self.is_gone(&entry.uid));
        self.until <= observed_rv && !shows_the_gone
    }

    fn is_gone(&self, uid: &str) -> bool {
        self.gone.as_deref() == Some(uid)
    }
}

impl<F> ReadsAhead<F> {
    /// Whether no key has a read that is ahead.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Whether a read of this key is ahead.
    pub(super) fn has(&self, key: &ObjectKey) -> bool {
        self.by_key.contains_key(key)
    }

    /// The state of the watch below a read of this key.
    pub(super) fn watched(&self, key: &ObjectKey) -> Option<&Watched<F>> {
        self.by_key.get(key).map(|ahead| &ahead.watched)
    }

    /// The state of the watch below a read of this key, which an event of the watch changes.
    pub(super) fn watched_mut(&mut self, key: &ObjectKey) -> Option<&mut Watched<F>> {
        self.by_key.get_mut(key).map(|ahead| &mut ahead.watched)
    }

    /// The resourceVersion up to which the read of this key is known to be newer than the watch.
    pub(super) fn until(&self, key: &ObjectKey) -> Option<u64> {
        self.by_key.get(key).map(|ahead| ahead.until)
    }

    /// Whether no read of this key is as new as that resourceVersion; also true without a read.
    pub(super) fn is_older(&self, key: &ObjectKey, resource_version: u64) -> bool {
        self.until(key).is_none_or(|until| until < resource_version)
    }

    /// Whether a read of this key no longer found the object with that UID.
    pub(super) fn is_gone(&self, key: &ObjectKey, uid: &str) -> bool {
        self.by_key.get(key).is_some_and(|ahead| ahead.is_gone(uid))
    }

    /// Adds a read that counts until the watch has reached that resourceVersion. `shown` returns
    /// what the store shows, which is the state of the watch if no other read is ahead.
    pub(super) fn add(
        &mut self,
        key: &ObjectKey,
        until: u64,
        gone: Option<String>,
        shown: impl FnOnce() -> Watched<F>,
    ) {
        let watched = self.by_key.remove(key).map_or_else(shown, |ahead| ahead.watched);
        self.by_key.insert(key.clone(), Ahead { watched, until, gone, was_listed: false });
    }

    /// All reads count at least until the watch has reached that resourceVersion: a list that is
    /// newer than they are confirms them.
    pub(super) fn confirm(&mut self, listed: u64) {
        self.by_key.for_each(|_, ahead| ahead.until = ahead.until.max(listed));
    }

    /// Takes the objects with a read that is ahead out of a list of the watch.
    pub(super) fn take_listed(
        &mut self,
        items: &mut Slots<Entry<F>>,
        unreadable: &mut BTreeMap<ObjectKey, Unreadable>,
    ) {
        self.by_key.for_each(|key, ahead| {
            let unreadable = unreadable.remove(key);
            let entry = items.remove(key);
            let last_readable = ahead.watched.entry.take().filter(|_| unreadable.is_some());
            ahead.watched = Watched { entry: entry.or(last_readable), unreadable };
            if ahead.was_listed {
                ahead.gone = None;
            }
            ahead.was_listed = true;
        });
    }

    /// Removes the reads that the watch has passed. Returns the state of the watch, in the order of
    /// the keys.
    pub(super) fn take_passed(&mut self, observed_rv: u64) -> Vec<(ObjectKey, Watched<F>)> {
        let passed = self.by_key.iter().filter(|(_, ahead)| ahead.is_passed(observed_rv));
        let passed: Vec<ObjectKey> = passed.map(|(key, _)| key.clone()).collect();
        let watched = passed.into_iter().filter_map(|key| {
            let ahead = self.by_key.remove(&key)?;
            Some((key, ahead.watched))
        });
        watched.collect()
    }

    /// Forgets all reads.
    pub(super) fn clear(&mut self) {
        self.by_key.clear();
    }
}

impl<F> Default for ReadsAhead<F> {
    fn default() -> Self {
        Self { by_key: Slots::default() }
    }
}
