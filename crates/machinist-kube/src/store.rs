//! What was last seen of one kind in one cluster: an ordered map of facts, with indexes.
//!
//! Objects are parsed once, on entry, and dropped; the store keeps an `Arc` of what they became. It is plain and
//! synchronous: deltas go in, changes come out, in the order of the keys. Deletions are found by difference whenever the
//! kind is listed anew, so none is ever missed. The whole store may be lost at any moment; a relist rebuilds it.
//!
//! # Guarantees
//! * One UID never goes back to an older resourceVersion, unless a relist says so (etcd was restored).
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
        /// The UID of the object that was there.
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
    hidden: BTreeMap<String, Hidden<F>>,
    observed_rv: u64,
    synced: bool,
}

struct Index<F> {
    values_of: IndexFn<F>,
    keys: BTreeMap<String, BTreeSet<ObjectKey>>,
}

/// An object that is known to be gone, or seems to be, before the watch has reported its deletion: older events of the
/// watch must not revive it.
enum Hidden<F> {
    /// A partial list did not contain it. Once the watch has passed that list without reporting a deletion, the object
    /// merely left the index, and is shown again as the watch last reported it.
    UntilPassed { key: ObjectKey, entry: Entry<F>, until: u64 },
    /// A read by name found nothing, and no UID ever comes back.
    ForGood,
}

impl<F> Store<F> {
    /// An empty store with these indexes.
    pub fn new(indexes: &[(&'static str, IndexFn<F>)]) -> Self {
        let index = |&(name, values_of)| (name, Index { values_of, keys: BTreeMap::new() });
        Self {
            entries: BTreeMap::new(),
            indexes: indexes.iter().map(index).collect(),
            unreadable: BTreeSet::new(),
            hidden: BTreeMap::new(),
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
                self.upsert(key, entry, &mut changes);
                self.advance(seen, &mut changes);
            }
            Delta::Delete { key, uid, resource_version } => {
                self.delete(&key, &uid, resource_version, &mut changes);
                self.advance(resource_version, &mut changes);
            }
            Delta::Unreadable { key, resource_version } => {
                self.unreadable.insert(key);
                self.advance(resource_version, &mut changes);
            }
            Delta::Bookmark(resource_version) => self.advance(resource_version, &mut changes),
            Delta::Relist(list) => self.relist(list, &mut changes),
            Delta::RelistPart(list) => self.relist_part(list, &mut changes),
            Delta::Fetched(key, entry) => self.upsert(key, entry, &mut changes),
            Delta::Absent { key, uid } => self.absent(&key, uid, &mut changes),
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

    fn upsert(&mut self, key: ObjectKey, entry: Entry<F>, changes: &mut Vec<Change<F>>) {
        match self.hidden.get_mut(&entry.uid) {
            Some(Hidden::ForGood) => return,
            Some(Hidden::UntilPassed { entry: last, until, .. }) if entry.resource_version <= *until => {
                *last = entry;
                return;
            }
            Some(Hidden::UntilPassed { .. }) => {
                self.hidden.remove(&entry.uid);
            }
            None => {}
        }
        // Also across UIDs: resourceVersions of one kind are comparable, and an old event says nothing new.
        let is_old =
            self.entries.get(&key).is_some_and(|known| entry.resource_version <= known.resource_version);
        if !is_old {
            self.put(key, entry, changes);
        }
    }

    fn delete(&mut self, key: &ObjectKey, uid: &str, rv: u64, changes: &mut Vec<Change<F>>) {
        self.hidden.remove(uid);
        match self.entries.get(key) {
            Some(known) if known.uid == uid => self.take(key, rv, changes),
            Some(_) => {}
            None => {
                self.unreadable.remove(key);
            }
        }
    }

    fn absent(&mut self, key: &ObjectKey, uid: String, changes: &mut Vec<Change<F>>) {
        let Some(known) = self.entries.get(key).filter(|known| known.uid == uid) else { return };
        let resource_version = known.resource_version;
        self.take(key, resource_version, changes);
        self.hidden.insert(uid, Hidden::ForGood);
    }

    fn relist(&mut self, list: Relist<F>, changes: &mut Vec<Change<F>>) {
        let Relist { items, unreadable, resource_version } = list;
        self.hidden.clear();
        self.unreadable = unreadable.into_iter().collect();
        let listed: BTreeSet<&ObjectKey> = items.iter().map(|(key, _)| key).collect();
        let gone = |key: &&ObjectKey| !listed.contains(*key) && !self.unreadable.contains(*key);
        let gone: Vec<ObjectKey> = self.entries.keys().filter(gone).cloned().collect();
        for key in gone {
            self.take(&key, resource_version, changes);
        }
        for (key, entry) in items {
            let same =
                |known: &Entry<F>| known.uid == entry.uid && known.resource_version == entry.resource_version;
            if !self.entries.get(&key).is_some_and(same) {
                self.put(key, entry, changes);
            }
        }
        changes.sort_by(|a, b| a.key.cmp(&b.key));
        self.observed_rv = resource_version;
        self.synced = true;
    }

    fn relist_part(&mut self, list: RelistPart<F>, changes: &mut Vec<Change<F>>) {
        let RelistPart { index, value, items, resource_version } = list;
        let listed: BTreeSet<&ObjectKey> = items.iter().map(|(key, _)| key).collect();
        let missing: Vec<(ObjectKey, Entry<F>)> = self
            .by_index(index, &value)
            .filter(|(key, entry)| !listed.contains(key) && entry.resource_version <= resource_version)
            .map(|(key, entry)| (key.clone(), entry.clone()))
            .collect();
        // The watch may be past this list already; then it knows better about what is missing.
        if self.observed_rv < resource_version {
            for (key, entry) in missing {
                self.take(&key, resource_version, changes);
                let uid = entry.uid.clone();
                self.hidden.insert(uid, Hidden::UntilPassed { key, entry, until: resource_version });
            }
        }
        for (key, entry) in items {
            self.upsert(key, entry, changes);
        }
        changes.sort_by(|a, b| a.key.cmp(&b.key));
    }

    /// The watch has passed `rv`: hidden objects whose deletion it did not report are shown again.
    fn advance(&mut self, rv: u64, changes: &mut Vec<Change<F>>) {
        self.observed_rv = self.observed_rv.max(rv);
        if self.hidden.is_empty() {
            return;
        }
        let observed = self.observed_rv;
        let is_passed =
            |hidden: &Hidden<F>| matches!(hidden, Hidden::UntilPassed { until, .. } if *until <= observed);
        let passed: Vec<String> =
            self.hidden.iter().filter(|(_, hidden)| is_passed(hidden)).map(|(uid, _)| uid.clone()).collect();
        for uid in passed {
            if let Some(Hidden::UntilPassed { key, entry, .. }) = self.hidden.remove(&uid) {
                self.upsert(key, entry, changes);
            }
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
mod tests;
