//! What was last seen of one kind in one cluster: an ordered map of facts, with indexes.
//!
//! Objects are parsed once, on entry, and dropped; the store keeps an `Arc` of what they became. It is plain and
//! synchronous: deltas go in, changes come out, in the order of the keys. Deletions are found by difference whenever the
//! kind is listed anew, so none is ever missed. The whole store may be lost at any moment; a relist rebuilds it.
//!
//! # Two sources
//! The watch tells everything in order, and lags. A quorum read tells about one object, or a part of the kind, and may be ahead of
//! the watch. What such a read said is shown until the watch has got as far; then the watch is believed again. So a read that
//! arrives late, and a list that was sent before a read, change nothing about what is known better.
//!
//! A relist is the watch, too: it says how everything was at its resourceVersion. If that is lower than what the watch has
//! observed, etcd was restored from a backup: everything known is void, and the list alone counts. Otherwise the list may only be older
//! than some reads: they stay.
//!
//! # Guarantees
//! * No object goes back: neither to an older resourceVersion nor, once it is known to be gone, to being there. A restore of etcd is
//!   the only exception.
//! * After a restore that no list betrays, because the watch lagged so far behind that its resourceVersions did not go back,
//!   what reads had said before is forgotten when the watch has passed it, or with the second list.
//! * Another object of the same name is two changes: the old one is gone, the new one is there.
//! * An object that exists but cannot be read is not "gone": its last readable facts stay, and [`Store::is_unreadable`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// The name of an object within its kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The namespace; empty for kinds without one.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ObjectKey {
    /// The key of an object in a namespace.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of an object of a kind without namespaces.
    pub fn cluster_scoped(name: impl Into<String>) -> Self {
        Self::new("", name)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

/// One object as the store keeps it.
#[derive(Debug, PartialEq)]
pub struct Entry<F> {
    /// The UID.
    pub uid: String,
    /// The resourceVersion that these facts are of. Comparable within one kind of one cluster only.
    pub resource_version: u64,
    /// Whether a deletionTimestamp is set.
    pub deleting: bool,
    /// What was parsed from the object.
    pub facts: Arc<F>,
}

impl<F> Clone for Entry<F> {
    fn clone(&self) -> Self {
        Self {
            uid: self.uid.clone(),
            resource_version: self.resource_version,
            deleting: self.deleting,
            facts: self.facts.clone(),
        }
    }
}

/// What a watch, or a list beside it, says.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta<F> {
    /// The watch: an object was added or modified.
    Upsert(ObjectKey, Entry<F>),
    /// The watch: an object is gone.
    Delete {
        /// Its key.
        key: ObjectKey,
        /// Its UID.
        uid: String,
        /// The resourceVersion of the deletion.
        resource_version: u64,
    },
    /// The watch: an object was added or modified, but cannot be read.
    Unreadable {
        /// Its key.
        key: ObjectKey,
        /// Its resourceVersion.
        resource_version: u64,
    },
    /// The watch: nothing happened up to this resourceVersion.
    Bookmark(u64),
    /// The kind was listed as a whole; what is not in the list is gone.
    Relist(Relist<F>),
    /// A part of the kind was listed, from the quorum, while the watch lags.
    RelistPart(RelistPart<F>),
    /// One object was read, from the quorum, while the watch lags. Unlike an upsert, it says nothing about what the watch
    /// has seen, so it never closes a charge for another object.
    Fetched(ObjectKey, Entry<F>),
    /// One object was looked for, from the quorum, and there is none of that name.
    Absent {
        /// The key.
        key: ObjectKey,
        /// The UID of the object that the store had *before* the read was sent. What the store has when the answer comes may be
        /// another object, made in between.
        uid: String,
    },
}

/// A complete list of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Relist<F> {
    /// Every readable object.
    pub items: Vec<(ObjectKey, Entry<F>)>,
    /// Objects that exist but cannot be read.
    pub unreadable: Vec<ObjectKey>,
    /// The resourceVersion of the list.
    pub resource_version: u64,
}

/// A quorum list of what an index holds under one value.
#[derive(Clone, Debug, PartialEq)]
pub struct RelistPart<F> {
    /// The index whose content was listed; the selector of the list must select the same objects.
    pub index: &'static str,
    /// The value in the index.
    pub value: String,
    /// The objects in the list.
    pub items: Vec<(ObjectKey, Entry<F>)>,
    /// The resourceVersion of the list.
    pub resource_version: u64,
}

/// What became of one object.
#[derive(Debug, PartialEq)]
pub struct Change<F> {
    /// Its key.
    pub key: ObjectKey,
    /// Its UID.
    pub uid: String,
    /// The resourceVersion of what was seen.
    pub resource_version: u64,
    /// Whether it is being deleted, or gone.
    pub deleting: bool,
    /// What was known before; `None`: nothing.
    pub old: Option<Arc<F>>,
    /// What is known now; `None`: it is gone.
    pub new: Option<Arc<F>>,
}

/// Adds the values under which an object is found in an index.
pub type IndexFn<F> = fn(&F, &mut Vec<String>);

/// The last seen state of one kind in one cluster.
pub struct Store<F> {
    entries: BTreeMap<ObjectKey, Entry<F>>,
    indexes: BTreeMap<&'static str, Index<F>>,
    unreadable: BTreeSet<ObjectKey>,
    ahead: BTreeMap<ObjectKey, Ahead<F>>,
    observed_rv: u64,
    synced: bool,
}

struct Index<F> {
    values_of: IndexFn<F>,
    keys: BTreeMap<String, BTreeSet<ObjectKey>>,
}

/// A key of which a quorum read said something that the watch has not got to yet. What the read said is in the entries; here is
/// what will be shown when the watch has passed it.
struct Ahead<F> {
    watched: Watched<F>,
    /// The resourceVersion that the watch must have passed.
    until: u64,
    /// The UID that the read did not find any more. UIDs never come back, so the watch must have seen it go, too.
    gone: Option<String>,
    /// Whether a list has shown it all the same. That list may have been sent before the read. The next one was sent after the
    /// first had come, and is believed.
    was_listed: bool,
}

/// What the watch says of a key.
struct Watched<F> {
    entry: Option<Entry<F>>,
    is_unreadable: bool,
}

impl<F> Ahead<F> {
    /// Whether the watch, which has observed everything up to `observed_rv`, has got as far as the read.
    fn is_passed(&self, observed_rv: u64) -> bool {
        let shows_the_gone = self.watched.entry.as_ref().is_some_and(|entry| self.is_gone(&entry.uid));
        self.until <= observed_rv && !shows_the_gone
    }

    fn is_gone(&self, uid: &str) -> bool {
        self.gone.as_deref() == Some(uid)
    }
}

impl<F> Store<F> {
    /// An empty store with these indexes.
    pub fn new(indexes: &[(&'static str, IndexFn<F>)]) -> Self {
        let index = |&(name, values_of)| (name, Index { values_of, keys: BTreeMap::new() });
        Self {
            entries: BTreeMap::new(),
            indexes: indexes.iter().map(index).collect(),
            unreadable: BTreeSet::new(),
            ahead: BTreeMap::new(),
            observed_rv: 0,
            synced: false,
        }
    }

    /// Takes in what was seen, and says what changed.
    pub fn apply(&mut self, delta: Delta<F>) -> Vec<Change<F>> {
        let mut changes = Vec::new();
        match delta {
            Delta::Upsert(key, entry) => {
                let seen = entry.resource_version;
                self.watch_upsert(key, entry, &mut changes);
                self.advance(seen, &mut changes);
            }
            Delta::Delete { key, uid, resource_version } => {
                self.watch_delete(&key, &uid, resource_version, &mut changes);
                self.advance(resource_version, &mut changes);
            }
            Delta::Unreadable { key, resource_version } => {
                self.watch_unreadable(key);
                self.advance(resource_version, &mut changes);
            }
            Delta::Bookmark(resource_version) => self.advance(resource_version, &mut changes),
            Delta::Relist(list) => self.relist(list, &mut changes),
            Delta::RelistPart(list) => self.read_part(list, &mut changes),
            Delta::Fetched(key, entry) => {
                let as_of = entry.resource_version;
                self.read(key, entry, as_of, &mut changes);
            }
            Delta::Absent { key, uid } => self.read_absent(&key, uid, &mut changes),
        }
        changes
    }

    /// The object of this key.
    pub fn get(&self, key: &ObjectKey) -> Option<&Entry<F>> {
        self.entries.get(key)
    }

    /// The objects that the index holds under `value`, in the order of their keys.
    ///
    /// # Panics
    /// When the store was not built with an index of that name.
    pub fn by_index(&self, index: &str, value: &str) -> impl Iterator<Item = (&ObjectKey, &Entry<F>)> {
        let index = self.indexes.get(index).expect("a store is asked only for the indexes it was built with");
        let keys = index.keys.get(value).into_iter().flatten();
        keys.filter_map(|key| self.entries.get_key_value(key))
    }

    /// Every object, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &Entry<F>)> {
        self.entries.iter()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether the kind was listed at least once: before that, absence means nothing.
    pub fn synced(&self) -> bool {
        self.synced
    }

    /// The resourceVersion up to which the store has seen everything. It goes back only after a restore of etcd.
    pub fn observed_rv(&self) -> u64 {
        self.observed_rv
    }

    /// Whether the object exists in a form that cannot be read; what `get` answers is then older, or nothing.
    pub fn is_unreadable(&self, key: &ObjectKey) -> bool {
        self.unreadable.contains(key)
    }

    /// The keys of all objects that cannot be read.
    pub fn unreadable(&self) -> impl Iterator<Item = &ObjectKey> {
        self.unreadable.iter()
    }

    fn watch_upsert(&mut self, key: ObjectKey, entry: Entry<F>, changes: &mut Vec<Change<F>>) {
        let known = match self.ahead.get(&key) {
            Some(ahead) => ahead.watched.entry.as_ref(),
            None => self.entries.get(&key),
        };
        // Also across UIDs: resourceVersions of one kind are comparable, and an old event says nothing new.
        if known.is_some_and(|known| entry.resource_version <= known.resource_version) {
            return;
        }
        match self.ahead.get_mut(&key) {
            Some(ahead) => ahead.watched = Watched { entry: Some(entry), is_unreadable: false },
            None => self.put(key, entry, changes),
        }
    }

    fn watch_delete(&mut self, key: &ObjectKey, uid: &str, rv: u64, changes: &mut Vec<Change<F>>) {
        if let Some(Ahead { watched, .. }) = self.ahead.get_mut(key) {
            if watched.entry.as_ref().is_none_or(|known| known.uid == uid) {
                *watched = Watched { entry: None, is_unreadable: false };
            }
            return;
        }
        match self.entries.get(key) {
            Some(known) if known.uid == uid => self.take(key, rv, changes),
            Some(_) => {}
            None => {
                self.unreadable.remove(key);
            }
        }
    }

    fn watch_unreadable(&mut self, key: ObjectKey) {
        match self.ahead.get_mut(&key) {
            Some(ahead) => ahead.watched.is_unreadable = true,
            None => {
                self.unreadable.insert(key);
            }
        }
    }

    /// Takes in that the object was like this at `as_of`, or later.
    fn read(&mut self, key: ObjectKey, entry: Entry<F>, as_of: u64, changes: &mut Vec<Change<F>>) {
        let is_older_read = self.ahead.get(&key).is_some_and(|ahead| {
            let is_later = ahead.until < as_of;
            !is_later || ahead.is_gone(&entry.uid)
        });
        let is_shown =
            self.entries.get(&key).is_some_and(|known| entry.resource_version <= known.resource_version);
        let is_behind_the_watch = as_of <= self.observed_rv;
        if is_behind_the_watch || is_older_read || is_shown {
            return;
        }
        self.go_ahead(&key, as_of, None);
        self.put(key, entry, changes);
    }

    fn read_absent(&mut self, key: &ObjectKey, uid: String, changes: &mut Vec<Change<F>>) {
        let Some(known) = self.entries.get(key).filter(|known| known.uid == uid) else { return };
        let resource_version = known.resource_version;
        self.go_ahead(key, resource_version, Some(uid));
        self.take(key, resource_version, changes);
    }

    fn read_part(&mut self, list: RelistPart<F>, changes: &mut Vec<Change<F>>) {
        let RelistPart { index, value, items, resource_version } = list;
        // The watch may be past this list already; then it knows better, also about what is missing.
        if resource_version <= self.observed_rv {
            return;
        }
        let listed: BTreeSet<&ObjectKey> = items.iter().map(|(key, _)| key).collect();
        let knows_less = |key: &ObjectKey, entry: &Entry<F>| {
            let as_of = self.ahead.get(key).map_or(entry.resource_version, |ahead| ahead.until);
            as_of <= resource_version
        };
        let missing: Vec<ObjectKey> = self
            .by_index(index, &value)
            .filter(|(key, entry)| !listed.contains(key) && knows_less(key, entry))
            .map(|(key, _)| key.clone())
            .collect();
        for key in missing {
            // Should it merely have left the index, it is shown again once the watch has passed this list.
            self.go_ahead(&key, resource_version, None);
            self.take(&key, resource_version, changes);
        }
        for (key, entry) in items {
            self.read(key, entry, resource_version, changes);
        }
        changes.sort_by(|a, b| a.key.cmp(&b.key));
    }

    /// From now on, something else is shown of this key than the watch says.
    fn go_ahead(&mut self, key: &ObjectKey, until: u64, gone: Option<String>) {
        let watched = match self.ahead.remove(key) {
            Some(ahead) => ahead.watched,
            None => {
                Watched { entry: self.entries.get(key).cloned(), is_unreadable: self.unreadable.remove(key) }
            }
        };
        self.ahead.insert(key.clone(), Ahead { watched, until, gone, was_listed: false });
    }

    fn relist(&mut self, list: Relist<F>, changes: &mut Vec<Change<F>>) {
        let Relist { items, unreadable, resource_version } = list;
        let is_restored = self.synced && resource_version < self.observed_rv;
        if is_restored {
            self.ahead.clear();
        }
        let mut items: BTreeMap<ObjectKey, Entry<F>> = items.into_iter().collect();
        let mut unreadable: BTreeSet<ObjectKey> = unreadable.into_iter().collect();
        for (key, ahead) in &mut self.ahead {
            let is_unreadable = unreadable.remove(key);
            let entry = items.remove(key);
            let last_readable = ahead.watched.entry.take().filter(|_| is_unreadable);
            ahead.watched = Watched { entry: entry.or(last_readable), is_unreadable };
            if ahead.was_listed {
                ahead.gone = None;
            }
            ahead.was_listed = true;
        }
        let is_gone = |key: &&ObjectKey| {
            !items.contains_key(*key) && !unreadable.contains(*key) && !self.ahead.contains_key(*key)
        };
        let gone: Vec<ObjectKey> = self.entries.keys().filter(is_gone).cloned().collect();
        self.unreadable = unreadable;
        for key in gone {
            self.take(&key, resource_version, changes);
        }
        for (key, entry) in items {
            let same =
                |known: &Entry<F>| known.uid == entry.uid && known.resource_version == entry.resource_version;
            // After a restore, one resourceVersion may have been given twice.
            if is_restored || !self.entries.get(&key).is_some_and(same) {
                self.put(key, entry, changes);
            }
        }
        self.observed_rv = resource_version;
        self.synced = true;
        self.believe_the_watch(changes);
        changes.sort_by(|a, b| a.key.cmp(&b.key));
    }

    fn advance(&mut self, rv: u64, changes: &mut Vec<Change<F>>) {
        self.observed_rv = self.observed_rv.max(rv);
        self.believe_the_watch(changes);
    }

    /// Where the watch has passed what a read had said, it is believed again.
    fn believe_the_watch(&mut self, changes: &mut Vec<Change<F>>) {
        let observed = self.observed_rv;
        let passed = self.ahead.extract_if(.., |_, ahead| ahead.is_passed(observed));
        for (key, Ahead { watched, .. }) in passed.collect::<Vec<_>>() {
            self.show(key, watched, observed, changes);
        }
    }

    fn show(&mut self, key: ObjectKey, watched: Watched<F>, rv: u64, changes: &mut Vec<Change<F>>) {
        let Watched { entry, is_unreadable } = watched;
        let known = self.entries.get(&key);
        match (known, entry) {
            // The last readable facts stay, and a read may have had newer ones than the watch.
            (Some(_), _) if is_unreadable => {}
            (Some(known), Some(entry))
                if known.uid == entry.uid && known.resource_version == entry.resource_version => {}
            (_, Some(entry)) => self.put(key.clone(), entry, changes),
            (Some(_), None) => self.take(&key, rv, changes),
            (None, None) => {}
        }
        if is_unreadable {
            self.unreadable.insert(key);
        } else {
            self.unreadable.remove(&key);
        }
    }

    fn put(&mut self, key: ObjectKey, entry: Entry<F>, changes: &mut Vec<Change<F>>) {
        let is_another = self.entries.get(&key).is_some_and(|known| known.uid != entry.uid);
        if is_another {
            self.take(&key, entry.resource_version, changes);
        }
        self.unreadable.remove(&key);
        let old = self.entries.insert(key.clone(), entry.clone());
        if let Some(old) = &old {
            self.unindex(&key, &old.facts);
        }
        self.index(&key, &entry.facts);
        changes.push(Change {
            key,
            uid: entry.uid,
            resource_version: entry.resource_version,
            deleting: entry.deleting,
            old: old.map(|old| old.facts),
            new: Some(entry.facts),
        });
    }

    fn take(&mut self, key: &ObjectKey, resource_version: u64, changes: &mut Vec<Change<F>>) {
        self.unreadable.remove(key);
        let Some(entry) = self.entries.remove(key) else { return };
        self.unindex(key, &entry.facts);
        changes.push(Change {
            key: key.clone(),
            uid: entry.uid,
            resource_version,
            deleting: true,
            old: Some(entry.facts),
            new: None,
        });
    }

    fn index(&mut self, key: &ObjectKey, facts: &F) {
        let mut values = Vec::new();
        for index in self.indexes.values_mut() {
            (index.values_of)(facts, &mut values);
            for value in values.drain(..) {
                index.keys.entry(value).or_default().insert(key.clone());
            }
        }
    }

    fn unindex(&mut self, key: &ObjectKey, facts: &F) {
        let mut values = Vec::new();
        for index in self.indexes.values_mut() {
            (index.values_of)(facts, &mut values);
            for value in values.drain(..) {
                if let Some(keys) = index.keys.get_mut(&value) {
                    keys.remove(key);
                    if keys.is_empty() {
                        index.keys.remove(&value);
                    }
                }
            }
        }
    }
}

impl<F> fmt::Debug for Store<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("len", &self.entries.len())
            .field("observed_rv", &self.observed_rv)
            .field("synced", &self.synced)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
