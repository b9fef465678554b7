//! The last seen state of one kind in one cluster: an ordered map of facts, with indexes.
//!
//! The watch parses each object once and drops it; the store keeps an `Arc` of the parsed facts.
//! The store is synchronous: [`Store::apply`] takes a delta and returns changes in the order of the
//! keys. A relist is compared with the store, so no deletion is missed. The whole store may be lost
//! at any moment; a relist rebuilds it.
//!
//! # Two sources
//! The watch reports all events in order, and lags. A quorum read reports one object or a part of
//! the kind, and may be ahead of the watch. The store shows the result of such a read until the
//! watch has caught up, and then shows the state of the watch again. So neither a late answer to a
//! read nor a list that was sent before a read replaces newer state.
//!
//! A relist belongs to the watch: it reports the whole kind at its resourceVersion. If that version
//! is lower than the one that the watch has observed, etcd was restored from a backup. The store
//! then drops its content and keeps only the list. Otherwise the list can be older than some reads,
//! and the results of these reads stay.
//!
//! # Guarantees
//! * No object goes back to an older resourceVersion, and no deleted object reappears. The only
//!   exception is a restore of etcd.
//! * If the watch lags far enough, resourceVersions do not go back in a restore, so no list reveals
//!   the restore. The store then drops the results of older reads when the watch has passed them,
//!   or with the second list.
//! * If another object takes the same name, the store reports two changes: the old object is
//!   deleted, the new one is added.
//! * An object that exists but cannot be parsed does not count as deleted: its last readable facts
//!   stay, and [`Store::is_unreadable`] is true for its key.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// The name of an object within its kind.
///
/// ```
/// use machinist_kube::ObjectKey;
///
/// assert_eq!(ObjectKey::new("default", "workers-1").to_string(), "default/workers-1");
/// assert_eq!(ObjectKey::cluster_scoped("node-1").to_string(), "node-1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Namespace of the object; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

impl ObjectKey {
    /// The key of an object in a namespace.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of an object of a cluster-scoped kind.
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
    /// UID of the object.
    pub uid: String,
    /// The resourceVersion of the parsed object. Comparable only within one kind of one cluster.
    pub resource_version: u64,
    /// Whether a deletionTimestamp is set.
    pub deleting: bool,
    /// The facts that were parsed from the object.
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

/// News for a store, from the watch or from a separate read.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta<F> {
    /// The watch: an object was added or modified.
    Upsert(ObjectKey, Entry<F>),
    /// The watch: an object was deleted.
    Delete {
        /// Key of the object.
        key: ObjectKey,
        /// UID of the object.
        uid: String,
        /// The resourceVersion of the deletion.
        resource_version: u64,
    },
    /// The watch: an object was added or modified, but cannot be parsed.
    Unreadable {
        /// Key of the object.
        key: ObjectKey,
        /// The resourceVersion of the object.
        resource_version: u64,
    },
    /// The watch: there are no further events up to this resourceVersion.
    Bookmark(u64),
    /// A list of the whole kind. Objects that are missing in the list were deleted.
    Relist(Relist<F>),
    /// A quorum list of a part of the kind, made while the watch lags.
    RelistPart(RelistPart<F>),
    /// A quorum read of one object, made while the watch lags. Unlike an upsert, this delta does
    /// not advance the watch, so it never closes a charge for another object.
    Fetched(ObjectKey, Entry<F>),
    /// A quorum read that found no object of that name.
    Absent {
        /// Key of the missing object.
        key: ObjectKey,
        /// UID of the object that the store had *before* the read was sent. When the answer
        /// arrives, the store may have another object, created in between.
        uid: String,
    },
}

/// A complete list of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Relist<F> {
    /// All objects that can be parsed.
    pub items: Vec<(ObjectKey, Entry<F>)>,
    /// Keys of the objects that exist but cannot be parsed.
    pub unreadable: Vec<ObjectKey>,
    /// The resourceVersion of the list.
    pub resource_version: u64,
}

/// A quorum list of the objects that an index holds under one value.
#[derive(Clone, Debug, PartialEq)]
pub struct RelistPart<F> {
    /// Name of the index. The selector of the list must select the same objects as the index.
    pub index: &'static str,
    /// Value under which the index holds the objects.
    pub value: String,
    /// The objects in the list.
    pub items: Vec<(ObjectKey, Entry<F>)>,
    /// The resourceVersion of the list.
    pub resource_version: u64,
}

/// A change of one object in a store.
#[derive(Debug, PartialEq)]
pub struct Change<F> {
    /// Key of the object.
    pub key: ObjectKey,
    /// UID of the object.
    pub uid: String,
    /// The resourceVersion at which the change was seen.
    pub resource_version: u64,
    /// Whether the object is being deleted or was deleted.
    pub deleting: bool,
    /// Facts before the change; `None` if the store had no such object.
    pub old: Option<Arc<F>>,
    /// Facts after the change; `None` if the object was deleted.
    pub new: Option<Arc<F>>,
}

/// Adds the values under which an index holds an object.
pub type IndexFn<F> = fn(&F, &mut Vec<String>);

/// The last seen state of one kind in one cluster.
///
/// ```
/// use std::sync::Arc;
/// use machinist_kube::store::{IndexFn, Relist};
/// use machinist_kube::{Delta, Entry, ObjectKey, Store};
///
/// // The facts are the name of the Node on which a pod runs.
/// let by_node: IndexFn<String> = |node, found| found.push(node.clone());
/// let mut pods = Store::new(&[("by node", by_node)]);
/// let key = ObjectKey::new("default", "web");
/// let on = |node: &str, resource_version| Entry {
///     uid: "uid-1".to_owned(),
///     resource_version,
///     deleting: false,
///     facts: Arc::new(node.to_owned()),
/// };
/// let items = vec![(key.clone(), on("a", 5))];
/// pods.apply(Delta::Relist(Relist { items, unreadable: Vec::new(), resource_version: 7 }));
/// assert!(pods.synced());
/// assert_eq!(pods.by_index("by node", "a").count(), 1);
///
/// let changes = pods.apply(Delta::Upsert(key.clone(), on("b", 8)));
/// assert_eq!(changes[0].old.as_deref().map(String::as_str), Some("a"));
/// assert_eq!(pods.by_index("by node", "a").count(), 0);
///
/// // What is not in the next list is gone, although no event said so.
/// let nothing = Relist { items: Vec::new(), unreadable: Vec::new(), resource_version: 9 };
/// let changes = pods.apply(Delta::Relist(nothing));
/// assert_eq!((changes.len(), pods.get(&key)), (1, None));
/// assert_eq!(changes[0].new, None);
/// ```
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

/// State of a key for which a quorum read is ahead of the watch. The entries contain the result of
/// the read. This struct contains the state of the watch, which the store shows when the watch has
/// passed the read.
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
struct Watched<F> {
    entry: Option<Entry<F>>,
    is_unreadable: bool,
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

impl<F> Store<F> {
    /// Creates an empty store with these indexes.
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

    /// Applies a delta and returns the resulting changes.
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

    /// The entry of this key.
    pub fn get(&self, key: &ObjectKey) -> Option<&Entry<F>> {
        self.entries.get(key)
    }

    /// The objects that the index holds under `value`, in the order of their keys.
    ///
    /// # Panics
    /// Panics if the store has no index of that name.
    pub fn by_index(&self, index: &str, value: &str) -> impl Iterator<Item = (&ObjectKey, &Entry<F>)> {
        let index = self.indexes.get(index).expect("the store was created with this index");
        let keys = index.keys.get(value).into_iter().flatten();
        keys.filter_map(|key| self.entries.get_key_value(key))
    }

    /// All objects, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &Entry<F>)> {
        self.entries.iter()
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the store has no objects.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether the kind was listed at least once. Before that, a missing object means nothing.
    pub fn synced(&self) -> bool {
        self.synced
    }

    /// The resourceVersion up to which the store has seen all events. The value decreases only
    /// after a restore of etcd.
    pub fn observed_rv(&self) -> u64 {
        self.observed_rv
    }

    /// Whether the object exists but cannot be parsed. `get` then returns an older version or
    /// `None`.
    pub fn is_unreadable(&self, key: &ObjectKey) -> bool {
        self.unreadable.contains(key)
    }

    /// The keys of all objects that cannot be parsed.
    pub fn unreadable(&self) -> impl Iterator<Item = &ObjectKey> {
        self.unreadable.iter()
    }

    fn watch_upsert(&mut self, key: ObjectKey, entry: Entry<F>, changes: &mut Vec<Change<F>>) {
        let known = match self.ahead.get(&key) {
            Some(ahead) => ahead.watched.entry.as_ref(),
            None => self.entries.get(&key),
        };
        // Also across UIDs: resourceVersions of one kind are comparable, and an old event contains
        // no news.
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

    /// Applies a read that returned this entry at the resourceVersion `as_of` or later.
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
        // If the watch has already passed this list, the watch is newer, also for missing objects.
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
            // If the object has only left the index, the store shows it again once the watch has
            // passed this list.
            self.go_ahead(&key, resource_version, None);
            self.take(&key, resource_version, changes);
        }
        for (key, entry) in items {
            self.read(key, entry, resource_version, changes);
        }
        changes.sort_by(|a, b| a.key.cmp(&b.key));
    }

    /// From now on, the store shows the result of a read for this key instead of the state of the
    /// watch.
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
            // After a restore, two versions of an object may have the same resourceVersion.
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

    /// Shows the state of the watch again for each key whose read the watch has passed.
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
            // The last readable facts stay. A read may have returned newer facts than the watch.
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
