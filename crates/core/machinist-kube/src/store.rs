//! The last seen state of one kind in one cluster: an ordered map of facts, with indexes.
//!
//! The watch parses each object once and drops it; the store keeps an `Arc` of the parsed facts.
//! The store is synchronous: [`Store::apply`] takes a delta and returns changes in the order of the
//! keys. A relist is compared with the store, so no deletion is missed. The whole store may be lost
//! at any moment; a relist rebuilds it.
//!
//! # Two sources
//! The watch reports all events in order, and lags. A quorum read reports one object or a part of
//! the kind, and may be ahead of the watch. The store shows the result of a quorum read until the
//! watch has caught up, and then shows the state of the watch again. So neither a late answer to a
//! read nor a list that was sent before a read replaces newer state.
//!
//! A relist belongs to the watch: it reports the whole kind at its resourceVersion. If the watch
//! has observed a higher resourceVersion, etcd was restored from a backup. The store then drops its
//! content and keeps only the list. Otherwise the list can be older than some reads, and the
//! results of these reads stay.
//!
//! A list of the whole kind that the watch did not make is a read. The watch delivers events while
//! the list is under way, so a resourceVersion below the resourceVersion of the watch does not
//! prove a restore. The store drops the list, and asks the watch to list the kind again. The store
//! does the same with a list that has an object in an older version than the store. If the list is
//! newer, the store shows it until the watch has caught up. A relist that was sent later and has a
//! lower resourceVersion shows a restore, too.
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
//!   stay, and [`Store::is_unreadable`] is true for its key. Its metadata are known from
//!   [`Store::unreadable`]. If the store has no readable facts of it, a change without old and new
//!   facts reports that it appeared or was deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use self::ahead::{ReadsAhead, Watched};
use self::slots::Slots;

/// The content of a store is fresh for this long after the watch delivered something. API servers
/// send a bookmark about every minute.
pub const FRESH_FOR: Duration = Duration::from_secs(120);

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

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

impl<F> AsRef<F> for Entry<F> {
    fn as_ref(&self) -> &F {
        &self.facts
    }
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

/// An object that cannot be parsed, by its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// UID of the object.
    pub uid: String,
    /// UID of its controlling owner, if it has one.
    pub controller: Option<String>,
    /// Whether a deletionTimestamp is set.
    pub deleting: bool,
}

impl Unreadable {
    /// Reads the metadata of an object.
    pub fn of(metadata: &ObjectMeta) -> Self {
        let mut owners = metadata.owner_references.iter().flatten();
        let controller = owners.find(|owner| owner.controller == Some(true));
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            controller: controller.map(|owner| owner.uid.clone()),
            deleting: metadata.deletion_timestamp.is_some(),
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
        /// The parts of its metadata that were read.
        object: Unreadable,
    },
    /// The watch: there are no further events up to this resourceVersion.
    Bookmark(u64),
    /// The watch: a list of the whole kind. Objects that are missing in the list were deleted.
    Relist(Relist<F>),
    /// A quorum list of the whole kind that the watch did not make.
    ListedOnce(Relist<F>),
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

impl<F> Delta<F> {
    /// Whether the watch delivered this news, which shows that the store has the present state of
    /// the kind. A read of one object or of a part only shows that the API server answers.
    fn is_of_the_watch(&self) -> bool {
        match self {
            Self::Upsert(..)
            | Self::Delete { .. }
            | Self::Unreadable { .. }
            | Self::Bookmark(_)
            | Self::Relist(_) => true,
            Self::ListedOnce(_) | Self::RelistPart(_) | Self::Fetched(..) | Self::Absent { .. } => false,
        }
    }
}

/// A complete list of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Relist<F> {
    /// All objects that can be parsed.
    pub items: Vec<(ObjectKey, Entry<F>)>,
    /// The objects that exist but cannot be parsed.
    pub unreadable: Vec<(ObjectKey, Unreadable)>,
    /// The resourceVersion of the list.
    pub resource_version: u64,
    /// When the list was sent. It shows the state of the kind at this time or later: the answer may
    /// have waited in a buffer.
    pub sent: Instant,
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
/// use tokio::time::Instant;
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
/// let list = |items, resource_version| {
///     Delta::Relist(Relist { items, unreadable: Vec::new(), resource_version, sent: Instant::now() })
/// };
/// pods.apply(list(items, 7));
/// assert!(pods.synced());
/// assert_eq!(pods.by_index("by node", "a").count(), 1);
///
/// let changes = pods.apply(Delta::Upsert(key.clone(), on("b", 8)));
/// assert_eq!(changes[0].old.as_deref().map(String::as_str), Some("a"));
/// assert_eq!(pods.by_index("by node", "a").count(), 0);
///
/// // What is not in the next list is gone, although no event said so.
/// let changes = pods.apply(list(Vec::new(), 9));
/// assert_eq!((changes.len(), pods.get(&key)), (1, None));
/// assert_eq!(changes[0].new, None);
/// ```
pub struct Store<F> {
    entries: Slots<Entry<F>>,
    indexes: Vec<Index<F>>,
    unreadable: BTreeMap<ObjectKey, Unreadable>,
    /// The reads whose results the entries contain until the watch has passed them.
    ahead: ReadsAhead<F>,
    /// The resourceVersion that the watch has reached.
    observed_rv: u64,
    /// The resourceVersion of the newest whole list that the watch did not make and has not passed;
    /// otherwise 0.
    listed_rv: u64,
    /// When that list was applied.
    listed_at: Option<Instant>,
    synced: bool,
    heard: Option<Instant>,
    /// When the process was found to have been suspended, so that the monotonic clock may have
    /// stood still; absent if fresh news has arrived since.
    doubted: Option<Instant>,
    /// Tells the watch to list the kind again.
    relist: Arc<Notify>,
}

struct Index<F> {
    name: &'static str,
    values_of: IndexFn<F>,
    keys: BTreeMap<String, Keys>,
}

/// The objects under one value of an index. Most values, such as a UID, have one object, and a set
/// reserves memory for eleven.
enum Keys {
    One(ObjectKey),
    Several(BTreeSet<ObjectKey>),
}

impl Keys {
    fn add(&mut self, key: &ObjectKey) {
        match self {
            Self::One(one) if one == key => {}
            Self::One(one) => *self = Self::Several([one.clone(), key.clone()].into()),
            Self::Several(keys) => {
                keys.insert(key.clone());
            }
        }
    }

    /// Removes a key. Returns whether none is left.
    fn remove(&mut self, key: &ObjectKey) -> bool {
        match self {
            Self::One(one) => one == key,
            Self::Several(keys) => {
                keys.remove(key);
                keys.is_empty()
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &ObjectKey> {
        let (one, several) = match self {
            Self::One(one) => (Some(one), None),
            Self::Several(keys) => (None, Some(keys)),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }
}

impl<F> Store<F> {
    /// Creates an empty store with these indexes.
    pub fn new(indexes: &[(&'static str, IndexFn<F>)]) -> Self {
        let index = |&(name, values_of)| Index { name, values_of, keys: BTreeMap::new() };
        Self {
            entries: Slots::default(),
            indexes: indexes.iter().map(index).collect(),
            unreadable: BTreeMap::new(),
            ahead: ReadsAhead::default(),
            observed_rv: 0,
            listed_rv: 0,
            listed_at: None,
            synced: false,
            heard: None,
            doubted: None,
            relist: Arc::default(),
        }
    }

    /// Applies a delta and returns the resulting changes.
    pub fn apply(&mut self, delta: Delta<F>) -> Vec<Change<F>> {
        let mut changes = Vec::new();
        if delta.is_of_the_watch() {
            self.heard = Some(Instant::now());
            self.doubted = None;
        }
        match delta {
            Delta::Upsert(key, entry) => {
                let seen = entry.resource_version;
                self.keep_the_list(&key, seen);
                self.watch_upsert(key, entry, &mut changes);
                self.advance(seen, &mut changes);
            }
            Delta::Delete { key, uid, resource_version } => {
                self.keep_the_list(&key, resource_version);
                self.watch_delete(&key, &uid, resource_version, &mut changes);
                self.advance(resource_version, &mut changes);
            }
            Delta::Unreadable { key, resource_version, object } => {
                self.keep_the_list(&key, resource_version);
                self.watch_unreadable(key, object, resource_version, &mut changes);
                self.advance(resource_version, &mut changes);
            }
            Delta::Bookmark(resource_version) => self.advance(resource_version, &mut changes),
            Delta::Relist(list) => self.relist(list, &mut changes),
            Delta::ListedOnce(list) => self.list_once(list, &mut changes),
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
        let of_that_name = self.indexes.iter().find(|known| known.name == index);
        let index = of_that_name.expect("the store was created with this index");
        let keys = index.keys.get(value).into_iter().flat_map(Keys::iter);
        keys.filter_map(|key| self.entries.get_key_value(key))
    }

    /// All objects, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &Entry<F>)> {
        self.entries.iter()
    }

    /// The keys of all objects, in order.
    pub fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.iter().map(|(key, _)| key)
    }

    /// The number of objects.
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

    /// When the watch last delivered an event or a bookmark, or a list of the whole kind was sent
    /// that the store shows.
    pub fn heard_at(&self) -> Option<Instant> {
        self.heard
    }

    /// Whether the content is fresh: the watch delivered something at most [`FRESH_FOR`] ago. A
    /// watch that is connected and silent is not fresh.
    pub fn is_fresh(&self) -> bool {
        self.doubted.is_none() && self.heard.is_some_and(|heard| heard.elapsed() <= FRESH_FOR)
    }

    /// From now on, the content is not fresh until the watch delivers something, or the kind is
    /// listed: the process was suspended.
    pub fn doubt(&mut self) {
        self.doubted = Some(Instant::now());
    }

    /// Tells the watch of this store to list the kind again, for
    /// [`WatchOptions::relist`](crate::WatchOptions::relist).
    pub fn relist_signal(&self) -> Arc<Notify> {
        self.relist.clone()
    }

    /// The resourceVersion up to which the watch has reported all events. The value decreases only
    /// after a restore of etcd.
    pub fn observed_rv(&self) -> u64 {
        self.observed_rv
    }

    /// Whether the object exists but cannot be parsed. `get` then returns an older version or
    /// `None`.
    pub fn is_unreadable(&self, key: &ObjectKey) -> bool {
        self.unreadable.contains_key(key)
    }

    /// All objects that cannot be parsed.
    pub fn unreadable(&self) -> impl Iterator<Item = (&ObjectKey, &Unreadable)> {
        self.unreadable.iter()
    }

    fn watch_upsert(&mut self, key: ObjectKey, entry: Entry<F>, changes: &mut Vec<Change<F>>) {
        let known = match self.ahead.watched(&key) {
            Some(watched) => watched.entry.as_ref(),
            None => self.entries.get(&key),
        };
        // The comparison also holds across UIDs: resourceVersions of one kind are comparable, and
        // an old event contains no news.
        if known.is_some_and(|known| entry.resource_version <= known.resource_version) {
            return;
        }
        match self.ahead.watched_mut(&key) {
            Some(watched) => *watched = Watched { entry: Some(entry), unreadable: None },
            None => self.put(key, entry, changes),
        }
    }

    fn watch_delete(&mut self, key: &ObjectKey, uid: &str, rv: u64, changes: &mut Vec<Change<F>>) {
        if let Some(watched) = self.ahead.watched_mut(key) {
            if watched.entry.as_ref().is_none_or(|known| known.uid == uid) {
                *watched = Watched { entry: None, unreadable: None };
            }
            return;
        }
        match self.entries.get(key) {
            Some(known) if known.uid == uid => self.take(key, rv, changes),
            Some(_) => {}
            None => self.forget_unreadable(key, rv, changes),
        }
    }

    fn watch_unreadable(
        &mut self,
        key: ObjectKey,
        object: Unreadable,
        rv: u64,
        changes: &mut Vec<Change<F>>,
    ) {
        match self.ahead.watched_mut(&key) {
            Some(watched) => watched.unreadable = Some(object),
            None => self.note_unreadable(key, object, rv, changes),
        }
    }

    /// Marks an object as unreadable.
    fn note_unreadable(&mut self, key: ObjectKey, object: Unreadable, rv: u64, changes: &mut Vec<Change<F>>) {
        if !self.entries.contains_key(&key) && self.unreadable.get(&key) != Some(&object) {
            changes.push(change_of_unreadable(key.clone(), &object, rv, object.deleting));
        }
        self.unreadable.insert(key, object);
    }

    /// Removes an object that was unreadable and is deleted.
    fn forget_unreadable(&mut self, key: &ObjectKey, rv: u64, changes: &mut Vec<Change<F>>) {
        let Some(object) = self.unreadable.remove(key) else { return };
        if !self.entries.contains_key(key) {
            changes.push(change_of_unreadable(key.clone(), &object, rv, true));
        }
    }

    /// Applies a read that returned this entry at the resourceVersion `as_of` or later.
    fn read(&mut self, key: ObjectKey, entry: Entry<F>, as_of: u64, changes: &mut Vec<Change<F>>) {
        let is_older_read = !self.ahead.is_older(&key, as_of) || self.ahead.is_gone(&key, &entry.uid);
        let is_shown =
            self.entries.get(&key).is_some_and(|known| entry.resource_version <= known.resource_version);
        let is_known = as_of <= self.known_rv();
        if is_known || is_older_read || is_shown {
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
        // If the watch or a whole list has already passed this list, they are newer, also for
        // missing objects.
        if resource_version <= self.known_rv() {
            return;
        }
        let listed: BTreeSet<&ObjectKey> = items.iter().map(|(key, _)| key).collect();
        let knows_less = |key: &ObjectKey, entry: &Entry<F>| {
            let as_of = self.ahead.until(key).unwrap_or(entry.resource_version);
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
        sort_by_key(changes);
    }

    /// Applies a list of the whole kind that the watch did not make.
    ///
    /// A list that the watch has overtaken is dropped, and does not make the store fresh: the watch
    /// may be silent since it overtook the list. After a restore of etcd, the watch stays silent or
    /// lacks changes, so it lists the kind again.
    fn list_once(&mut self, list: Relist<F>, changes: &mut Vec<Change<F>>) {
        if self.synced && self.goes_back(&list) {
            return self.relist.notify_one();
        }
        let Relist { items, unreadable, resource_version: listed, sent } = list;
        self.heard = self.heard.max(Some(sent));
        self.doubted = self.doubted.filter(|doubted| sent < *doubted);
        if self.synced && listed == self.known_rv() {
            return;
        }
        self.synced = true;
        self.listed_rv = listed;
        self.listed_at = Some(Instant::now());
        let exists: BTreeSet<&ObjectKey> =
            items.iter().map(|(key, _)| key).chain(unreadable.iter().map(|(key, _)| key)).collect();
        let knows_less =
            |key: &ObjectKey, uid: &str| self.ahead.is_older(key, listed) && !self.ahead.is_gone(key, uid);
        let known = self.entries.keys().chain(self.unreadable.keys());
        let is_missing = |key: &&ObjectKey| !exists.contains(*key) && knows_less(key, "");
        let missing: BTreeSet<ObjectKey> = known.filter(is_missing).cloned().collect();
        let is_newer = |(key, entry): &(ObjectKey, Entry<F>)| {
            let is_shown = |known: &Entry<F>| entry.resource_version <= known.resource_version;
            knows_less(key, &entry.uid) && !self.entries.get(key).is_some_and(is_shown)
        };
        let newer: Vec<_> = items.into_iter().filter(is_newer).collect();
        let is_news = |(key, object): &(ObjectKey, Unreadable)| {
            knows_less(key, &object.uid) && self.unreadable.get(key) != Some(object)
        };
        let unreadable: Vec<_> = unreadable.into_iter().filter(is_news).collect();
        for key in missing {
            self.hold(&key, listed);
            self.forget_unreadable(&key, listed, changes);
            self.take(&key, listed, changes);
        }
        for (key, entry) in newer {
            self.hold(&key, listed);
            self.put(key, entry, changes);
        }
        for (key, object) in unreadable {
            self.hold(&key, listed);
            self.note_unreadable(key, object, listed, changes);
        }
        // The list is also newer than the other reads, which it confirms.
        self.ahead.confirm(listed);
        sort_by_key(changes);
    }

    /// Whether a list is older than this store, or has an object in an older version.
    fn goes_back(&self, list: &Relist<F>) -> bool {
        let listed = list.resource_version;
        let is_older = |(key, entry): &(ObjectKey, Entry<F>)| {
            let known = self.entries.get(key).filter(|_| self.ahead.is_older(key, listed));
            known.is_some_and(|known| entry.resource_version < known.resource_version)
        };
        listed < self.known_rv() || list.items.iter().any(is_older)
    }

    /// The resourceVersion up to which the watch or a whole list has shown everything.
    fn known_rv(&self) -> u64 {
        self.observed_rv.max(self.listed_rv)
    }

    /// If a whole list was newer than this event of the watch, the store goes on showing the list.
    fn keep_the_list(&mut self, key: &ObjectKey, rv: u64) {
        if rv <= self.listed_rv && !self.ahead.has(key) {
            self.hold(key, self.listed_rv);
        }
    }

    /// From now on, the store shows what it shows now for this key, until the watch has reached
    /// that resourceVersion.
    fn hold(&mut self, key: &ObjectKey, until: u64) {
        let unreadable = self.unreadable.get(key).cloned();
        self.go_ahead(key, until, None);
        if let Some(object) = unreadable {
            self.unreadable.insert(key.clone(), object);
        }
    }

    /// From now on, the store shows the result of a read for this key instead of the state of the
    /// watch.
    fn go_ahead(&mut self, key: &ObjectKey, until: u64, gone: Option<String>) {
        let Self { entries, unreadable, .. } = self;
        let shown = || Watched { entry: entries.get(key).cloned(), unreadable: unreadable.remove(key) };
        self.ahead.add(key, until, gone, shown);
    }

    fn relist(&mut self, list: Relist<F>, changes: &mut Vec<Change<F>>) {
        let Relist { items, unreadable, resource_version, sent } = list;
        let after_the_other = self.listed_at.is_some_and(|listed| listed < sent);
        let known = if after_the_other { self.known_rv() } else { self.observed_rv };
        let is_restored = self.synced && resource_version < known;
        if is_restored {
            self.ahead.clear();
            (self.listed_rv, self.listed_at) = (0, None);
        }
        let mut items: Slots<Entry<F>> = items.into_iter().collect();
        let mut unreadable: BTreeMap<ObjectKey, Unreadable> = unreadable.into_iter().collect();
        if resource_version < self.listed_rv {
            let known = self.entries.keys().chain(self.unreadable.keys());
            let listed = items.keys().chain(unreadable.keys());
            let all: BTreeSet<ObjectKey> = known.chain(listed).cloned().collect();
            let version = |entry: &Entry<F>| (entry.uid.clone(), entry.resource_version);
            let is_same = |key: &ObjectKey| {
                items.get(key).map(version) == self.entries.get(key).map(version)
                    && unreadable.get(key) == self.unreadable.get(key)
            };
            let others: Vec<ObjectKey> = all.into_iter().filter(|key| !is_same(key)).collect();
            others.iter().for_each(|key| self.keep_the_list(key, resource_version));
        }
        self.ahead.take_listed(&mut items, &mut unreadable);
        let is_gone = |key: &&ObjectKey| {
            !items.contains_key(key) && !unreadable.contains_key(*key) && !self.ahead.has(key)
        };
        let gone: Vec<ObjectKey> = self.entries.keys().filter(is_gone).cloned().collect();
        for key in gone {
            self.take(&key, resource_version, changes);
        }
        let readable = |key: &&ObjectKey| !unreadable.contains_key(*key) && !self.ahead.has(key);
        let former: Vec<ObjectKey> = self.unreadable.keys().filter(readable).cloned().collect();
        for key in former {
            if items.contains_key(&key) {
                self.unreadable.remove(&key);
            } else {
                self.forget_unreadable(&key, resource_version, changes);
            }
        }
        for (key, object) in unreadable {
            self.note_unreadable(key, object, resource_version, changes);
        }
        for (key, entry) in items.drain() {
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
        sort_by_key(changes);
    }

    fn advance(&mut self, rv: u64, changes: &mut Vec<Change<F>>) {
        self.observed_rv = self.observed_rv.max(rv);
        self.believe_the_watch(changes);
    }

    /// Shows the state of the watch again for each key whose read the watch has passed.
    fn believe_the_watch(&mut self, changes: &mut Vec<Change<F>>) {
        let observed = self.observed_rv;
        if self.listed_rv <= observed {
            (self.listed_rv, self.listed_at) = (0, None);
        }
        for (key, watched) in self.ahead.take_passed(observed) {
            self.show(key, watched, observed, changes);
        }
    }

    fn show(&mut self, key: ObjectKey, watched: Watched<F>, rv: u64, changes: &mut Vec<Change<F>>) {
        let Watched { entry, unreadable } = watched;
        let known = self.entries.get(&key);
        match (known, entry) {
            // The last readable facts stay. A read may have returned newer facts than the watch.
            (Some(_), _) if unreadable.is_some() => {}
            (Some(known), Some(entry))
                if known.uid == entry.uid && known.resource_version == entry.resource_version => {}
            (_, Some(entry)) => self.put(key.clone(), entry, changes),
            (Some(_), None) => self.take(&key, rv, changes),
            (None, None) => {}
        }
        match unreadable {
            Some(object) => self.note_unreadable(key, object, rv, changes),
            None => self.forget_unreadable(&key, rv, changes),
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
        for index in &mut self.indexes {
            (index.values_of)(facts, &mut values);
            for value in values.drain(..) {
                let slot = index.keys.entry(value).and_modify(|keys| keys.add(key));
                slot.or_insert_with(|| Keys::One(key.clone()));
            }
        }
    }

    fn unindex(&mut self, key: &ObjectKey, facts: &F) {
        let mut values = Vec::new();
        for index in &mut self.indexes {
            (index.values_of)(facts, &mut values);
            for value in values.drain(..) {
                if index.keys.get_mut(&value).is_some_and(|keys| keys.remove(key)) {
                    index.keys.remove(&value);
                }
            }
        }
    }
}

/// Brings changes into the order of their keys. Two changes of one key keep their order.
fn sort_by_key<F>(changes: &mut Vec<Change<F>>) {
    let keys: Vec<&ObjectKey> = changes.iter().map(|change| &change.key).collect();
    let order = order_of(&keys);
    let mut unsorted: Vec<_> = changes.drain(..).map(Some).collect();
    changes.extend(order.into_iter().filter_map(|place| unsorted[place].take()));
}

/// The places of the keys in their order. The function is not generic, because the code of a sort
/// is large.
fn order_of(keys: &[&ObjectKey]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by_key(|place| keys[*place]);
    order
}

fn change_of_unreadable<F>(key: ObjectKey, object: &Unreadable, rv: u64, deleting: bool) -> Change<F> {
    Change { key, uid: object.uid.clone(), resource_version: rv, deleting, old: None, new: None }
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

mod ahead;
mod slots;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
