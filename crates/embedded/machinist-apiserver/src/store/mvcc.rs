//! Versions, revisions, the event log and compaction.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::pin::pin;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use crate::log::event::Event;
use crate::log::origin::Origin;
use crate::storage::database::{Database, State};
use crate::storage::journal::{Journal, Sink, Unsaved};
use crate::store::commits::{Commit, CommitFeed};
use crate::store::node_index::{self, NodeIndex};
use crate::store::watch::{Feed, Interest};
use crate::values::key::Key;
use crate::values::object::{Object, set_meta};
use crate::values::status::ApiError;

/// Amount of history that watches can resume from and lists can page through.
#[derive(Debug, Clone, Copy)]
pub enum History {
    /// Drops events that are older than `age` or beyond the newest `events`.
    Bounded {
        /// Time that an event is kept.
        age: Duration,
        /// Limit on the number of kept events. It bounds memory during a burst.
        events: usize,
        /// Limit in bytes on the texts of the events' objects, except for the newest few events. It
        /// bounds memory when objects are large.
        bytes: usize,
    },
    /// Keeps everything until [`crate::Server::compact`] is called, for the simulator.
    Manual,
}

impl Default for History {
    /// Five minutes, the interval in which kube-apiserver compacts etcd, and no more events than a
    /// watcher can catch up with in seconds.
    fn default() -> Self {
        History::Bounded { age: Duration::from_secs(300), events: 20_000, bytes: 64 << 20 }
    }
}

/// Number of newest events with parsed objects, for writers and watchers that read their fields.
/// Objects of older events are parsed from their text on demand.
const WARM_EVENTS: usize = 500;

/// Limit in bytes on the texts of parsed objects. A parsed object takes ten times as much memory.
const WARM_BYTES: usize = 8 << 20;

/// A write with the precondition that the writer relies on.
#[derive(Debug)]
pub(crate) enum Change {
    /// The object must not exist.
    Create(Value),
    /// The version read must still be the current one.
    Update { read: Arc<Object>, value: Value },
    /// Like `Update`, and deletes the object.
    Delete { read: Arc<Object> },
}

/// The object changed between read and commit. The caller must read again.
#[derive(Debug)]
pub(crate) struct Raced;

/// The requested revision has been compacted.
#[derive(Debug)]
pub(crate) struct Compacted {
    pub(crate) oldest: u64,
}

/// A consistent range of a resource's objects.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) items: Vec<(Key, Arc<Object>)>,
    pub(crate) revision: u64,
}

/// The disk failed. Commits since the last successful write are never shown, and every later write
/// fails.
#[derive(Debug, Clone)]
pub(crate) struct NotSaved {
    pub(crate) why: Arc<str>,
}

impl NotSaved {
    /// Returns the error for the writer.
    pub(crate) fn refusal(&self) -> ApiError {
        ApiError::internal(format!(
            "the server cannot write to its data folder, and rejects all changes until it is restarted: {}",
            self.why
        ))
    }
}

/// The state. Without a journal, a commit is visible at once; with a journal, once it is on stable
/// storage.
#[derive(Debug)]
pub(crate) struct Store {
    shared: Arc<Shared>,
    /// Dropped with the store. Dropping waits until everything is written.
    journal: Option<Journal>,
    watch_buffer: usize,
}

/// The part of the store that the journal's thread also uses.
#[derive(Debug)]
pub(crate) struct Shared {
    inner: RwLock<Inner>,
    /// Wakes requests that wait for a revision, in the order of their arrival, so that a simulation
    /// is repeatable.
    committed: Notify,
    history: History,
    failed: OnceLock<NotSaved>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Revision of the newest commit. The next write builds on it.
    head: u64,
    /// Revision of the newest visible commit. Equals `head` unless the journal has not saved the
    /// newest commits yet.
    revision: u64,
    compacted: u64,
    collections: BTreeMap<Arc<str>, Collection>,
    log: VecDeque<Arc<Event>>,
    /// Number of oldest events in the log that are kept as text only.
    cold_events: usize,
    /// Total length of their objects' texts.
    cold_bytes: usize,
    /// Number of the following events that `warm_bytes` counts.
    warm_events: usize,
    warm_bytes: usize,
    next_watcher: u64,
    commit_feeds: CommitFeed,
}

#[derive(Debug, Default)]
struct Collection {
    objects: BTreeMap<Key, Vec<StoredVersion>>,
    /// Filled for pods only.
    by_node: NodeIndex,
    log: VecDeque<Arc<Event>>,
    watchers: BTreeMap<u64, Watcher>,
}

#[derive(Debug)]
struct StoredVersion {
    revision: u64,
    object: Option<Arc<Object>>,
}

#[derive(Debug)]
struct Watcher {
    interest: Interest,
    events: mpsc::Sender<Arc<Event>>,
}

impl Store {
    /// Creates an empty store in memory.
    pub(crate) fn new(history: History, watch_buffer: usize) -> Self {
        Store { shared: Shared::new(Inner::default(), history), journal: None, watch_buffer }
    }

    /// Creates a store that continues a saved state and saves its commits.
    pub(crate) fn open(
        database: Database,
        saved: State,
        history: History,
        watch_buffer: usize,
    ) -> std::io::Result<Self> {
        let shared = Shared::new(Inner::of_saved(saved), history);
        let journal = Some(Journal::start(database, shared.clone())?);
        Ok(Store { shared, journal, watch_buffer })
    }

    /// Returns the revision of the newest visible commit.
    pub(crate) fn revision(&self) -> u64 {
        self.shared.read().revision
    }

    /// Returns the revision of the newest commit, saved or not.
    pub(crate) fn head(&self) -> u64 {
        self.shared.read().head
    }

    /// Returns the newest version for a write to build on. The version may be unsaved, and must not
    /// be shown before it is saved.
    pub(crate) fn get(&self, collection: &str, key: &Key) -> Option<Arc<Object>> {
        Some(
            self.shared
                .read()
                .collections
                .get(collection)?
                .objects
                .get(key)?
                .last()?
                .object
                .as_ref()?
                .opened(),
        )
    }

    /// Returns the newest visible version.
    pub(crate) fn get_shown(&self, collection: &str, key: &Key) -> Option<Arc<Object>> {
        let inner = self.shared.read();
        Some(version_at(inner.collections.get(collection)?.objects.get(key)?, inner.revision)?.opened())
    }

    /// Returns the object at `revision`.
    pub(crate) fn get_at(&self, collection: &str, key: &Key, revision: u64) -> Option<Arc<Object>> {
        let inner = self.shared.read();
        Some(
            version_at(inner.collections.get(collection)?.objects.get(key)?, revision.min(inner.revision))?
                .opened(),
        )
    }

    /// Lists the objects under `prefix` (empty, or a namespace with its slash) after `after`, at
    /// `revision` or at the head.
    pub(crate) fn slice(
        &self,
        collection: &str,
        prefix: &str,
        after: Option<&Key>,
        revision: Option<u64>,
    ) -> Result<Slice, Compacted> {
        let inner = self.shared.read();
        inner.slice(collection, prefix, after, revision.unwrap_or(inner.head))
    }

    /// Like [`Store::slice`], but stops at the newest visible revision.
    pub(crate) fn slice_shown(
        &self,
        collection: &str,
        prefix: &str,
        after: Option<&Key>,
        revision: Option<u64>,
    ) -> Result<Slice, Compacted> {
        let inner = self.shared.read();
        // Readers do not see unsaved commits, even if they ask for a newer revision.
        let at = revision.map_or(inner.revision, |asked| asked.min(inner.revision));
        inner.slice(collection, prefix, after, at)
    }

    /// Like [`Store::slice_shown`], but may leave out objects that the interest does not cover.
    pub(crate) fn slice_covered(
        &self,
        collection: &str,
        interest: &Interest,
        after: Option<&Key>,
        revision: Option<u64>,
    ) -> Result<Slice, Compacted> {
        let node = interest.node_name.as_deref().filter(|node| !node.is_empty());
        let Some(node) = node.filter(|_| collection == node_index::INDEXED) else {
            return self.slice_shown(collection, &interest.prefix, after, revision);
        };
        let inner = self.shared.read();
        let at = revision.map_or(inner.revision, |asked| asked.min(inner.revision));
        if at < inner.compacted {
            return Err(Compacted { oldest: inner.compacted });
        }
        let held = inner.collections.get(collection);
        let items = held.map(|held| held.slice_of_node(node, &interest.prefix, after, at));
        Ok(Slice { items: items.unwrap_or_default(), revision: at })
    }

    /// Reports whether the resource has no objects.
    pub(crate) fn is_empty(&self, collection: &str) -> bool {
        let inner = self.shared.read();
        inner.collections.get(collection).is_none_or(|t| {
            t.objects.values().all(|versions| versions.last().is_none_or(|v| v.object.is_none()))
        })
    }

    /// Changes the state. All changes are made here: the new version gets its `resourceVersion`,
    /// and watchers and the commit log see it in commit order.
    pub(crate) fn commit(
        &self,
        collection: &Arc<str>,
        key: &Key,
        change: Change,
        origin: &Origin,
    ) -> Result<Arc<Object>, Raced> {
        // Cloned before the lock is taken. The copy of a deleted object differs only by its
        // revision.
        let (read, mut value, deleted) = match change {
            Change::Create(value) => (None, value, false),
            Change::Update { read, value } => (Some(read), value, false),
            Change::Delete { read } => {
                let last = read.value().clone();
                (Some(read), last, true)
            }
        };
        let mut inner = self.shared.write();
        let current = inner
            .collections
            .get(collection)
            .and_then(|t| t.objects.get(key))
            .and_then(|versions| versions.last())
            .and_then(|v| v.object.as_ref());
        let unchanged = match (&read, current) {
            (None, None) => true,
            (Some(read), Some(current)) => read.revision() == current.revision(),
            (None, Some(_)) | (Some(_), None) => false,
        };
        if !unchanged {
            return Err(Raced);
        }
        let revision = inner.head + 1;
        set_meta(&mut value, "resourceVersion", Some(json!(revision.to_string())));
        let object = match &read {
            Some(read) => Object::following(read, value, revision),
            None => Object::new(value, revision),
        };
        let event =
            Arc::new(Event::new(revision, collection.clone(), key.clone(), read, object.clone(), deleted));
        inner.apply(&event);
        match &self.journal {
            None => {
                inner.show(&event, origin);
                inner.forget_as(self.shared.history);
                drop(inner);
                self.shared.committed.notify_waiters();
            }
            // Under the lock, so that the journal receives the commits in order.
            Some(journal) => journal.append(event, origin.clone()),
        }
        Ok(object)
    }

    /// Waits until commits up to `revision` are on stable storage and visible. Returns at once
    /// without a journal.
    pub(crate) async fn saved(&self, revision: u64) -> Result<(), NotSaved> {
        if revision <= self.revision() {
            return Ok(());
        }
        self.once(|| if revision <= self.revision() { Some(Ok(())) } else { self.writable().err().map(Err) })
            .await
    }

    /// Blocks until all commits are saved. Used during the start, before there are any clients.
    pub(crate) fn finish(&self) -> Result<(), NotSaved> {
        if let Some(journal) = &self.journal {
            journal.finish();
        }
        self.writable()
    }

    /// Waits until the disk fails.
    pub(crate) async fn failed(&self) -> NotSaved {
        self.once(|| self.writable().err()).await
    }

    /// Returns an error if writes can no longer be saved.
    pub(crate) fn writable(&self) -> Result<(), NotSaved> {
        match self.shared.failed.get() {
            None => Ok(()),
            Some(failed) => Err(failed.clone()),
        }
    }

    /// Drops every version that is not current at `revision` (default: now).
    pub(crate) fn compact(&self, revision: Option<u64>) {
        let mut inner = self.shared.write();
        let revision = revision.unwrap_or(inner.revision).min(inner.revision);
        inner.compact(revision);
    }

    /// Returns the oldest revision that can still be read or resumed from.
    pub(crate) fn compacted(&self) -> u64 {
        self.shared.read().compacted
    }

    /// Opens a watch: the events after `from`, then new events.
    pub(crate) fn watch(
        &self,
        collection: &Arc<str>,
        interest: Interest,
        from: u64,
    ) -> Result<Feed, Compacted> {
        let mut inner = self.shared.write();
        if from < inner.compacted {
            return Err(Compacted { oldest: inner.compacted });
        }
        let id = inner.next_watcher;
        inner.next_watcher += 1;
        let (sender, receiver) = mpsc::channel(self.watch_buffer);
        let held = inner.collections.entry(collection.clone()).or_default();
        let first = held.log.partition_point(|e| e.revision <= from);
        let past: Vec<Arc<Event>> =
            held.log.range(first..).filter(|event| interest.covers_key(&event.key)).cloned().collect();
        held.watchers.insert(id, Watcher { interest: interest.clone(), events: sender });
        // New events are queued from here on. Parsing old events takes long, and no other request
        // should wait for it.
        drop(inner);
        let backlog = past.into_iter().filter(|event| interest.covers(event)).collect();
        Ok(Feed::new(id, backlog, receiver))
    }

    /// Ends a watch.
    pub(crate) fn unwatch(&self, collection: &str, id: u64) {
        if let Some(collection) = self.shared.write().collections.get_mut(collection) {
            collection.watchers.remove(&id);
        }
    }

    /// Counts the open watches; a leak check for tests.
    pub(crate) fn watchers(&self) -> usize {
        self.shared.read().collections.values().map(|t| t.watchers.len()).sum()
    }

    /// Returns the newest revision if `feed` has no undelivered events. A bookmark may contain this
    /// revision.
    pub(crate) fn revision_if_drained(&self, feed: &Feed) -> Option<u64> {
        // Events are sent under the write lock, so an empty feed under the read lock is complete up
        // to this revision.
        let inner = self.shared.read();
        feed.is_drained().then_some(inner.revision)
    }

    /// Waits until the newest revision is at least `revision`.
    pub(crate) async fn reaches(&self, revision: u64) {
        self.once(|| (revision <= self.revision()).then_some(())).await;
    }

    /// Waits until `look` returns a value. It is called now, after each commit, and after a disk
    /// failure.
    async fn once<T>(&self, look: impl Fn() -> Option<T>) -> T {
        loop {
            // Registered before the check, so that no commit in between is missed.
            let mut committed = pin!(self.shared.committed.notified());
            committed.as_mut().enable();
            if let Some(found) = look() {
                return found;
            }
            committed.await;
        }
    }

    pub(crate) fn subscribe(&self, sender: mpsc::UnboundedSender<Arc<Commit>>) {
        self.shared.write().commit_feeds.add(sender);
    }

    /// Like [`Store::subscribe`], but first sends each existing object as a creation.
    pub(crate) fn subscribe_from_start(&self, sender: mpsc::UnboundedSender<Arc<Commit>>) {
        let mut inner = self.shared.write();
        for (resource, collection) in &inner.collections {
            for (key, object) in collection.slice("", None, inner.revision) {
                let origin = Origin::default();
                // The receiver is alive: the caller still holds it.
                let _sent = sender.send(Arc::new(Commit {
                    revision: object.revision(),
                    resource: resource.clone(),
                    key,
                    old: None,
                    new: Some(object.opened()),
                    user: origin.user,
                    user_agent: origin.user_agent,
                }));
            }
        }
        inner.commit_feeds.add(sender);
    }
}

impl Sink for Shared {
    /// Makes a saved batch of commits visible.
    fn show(&self, batch: Vec<Unsaved>) {
        let mut inner = self.write();
        for Unsaved { event, origin } in &batch {
            inner.show(event, origin);
        }
        inner.forget_as(self.history);
        drop(inner);
        self.committed.notify_waiters();
    }

    /// Stops all writing. Unsaved commits stay unsaved.
    fn fail(&self, why: String) {
        // Only the first failure is kept.
        let _told = self.failed.set(NotSaved { why: why.into() });
        self.committed.notify_waiters();
    }
}

impl Shared {
    fn new(inner: Inner, history: History) -> Arc<Self> {
        let committed = Notify::new();
        Arc::new(Shared { inner: RwLock::new(inner), committed, history, failed: OnceLock::new() })
    }

    // A poisoned lock means a panic between two plain assignments. The data is still the last
    // committed state.
    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Creates the state from saved objects, without history.
    fn of_saved(saved: State) -> Self {
        let revision = saved.revision;
        let mut inner = Inner { head: revision, revision, compacted: revision, ..Inner::default() };
        for (collection, key, object) in saved.objects {
            let is_indexed = *collection == *node_index::INDEXED;
            let held = inner.collections.entry(collection).or_default();
            if is_indexed {
                held.by_node.add(&key, &object.glance());
            }
            let versions = vec![StoredVersion { revision: object.revision(), object: Some(object) }];
            held.objects.insert(key, versions);
        }
        inner
    }

    /// Applies a commit, so that the next write builds on it.
    fn apply(&mut self, event: &Arc<Event>) {
        self.head = event.revision;
        let collection = self.collections.entry(event.collection.clone()).or_default();
        if *event.collection == *node_index::INDEXED {
            collection.by_node.add(&event.key, &event.object().glance());
        }
        collection.objects.entry(event.key.clone()).or_default().push(StoredVersion {
            revision: event.revision,
            object: (!event.deleted).then(|| event.object()),
        });
    }

    /// Makes a commit visible to readers and watchers.
    fn show(&mut self, event: &Arc<Event>, origin: &Origin) {
        self.revision = event.revision;
        let collection = self.collections.entry(event.collection.clone()).or_default();
        collection.log.push_back(event.clone());
        self.log.push_back(event.clone());
        // A full buffer means that a watcher does not read. The store drops the watcher; its stream
        // ends, and the client resumes or relists.
        collection
            .watchers
            .retain(|_, w| !w.interest.covers(event) || w.events.try_send(event.clone()).is_ok());
        self.commit_feeds.publish(|| Commit::of(event, origin));
    }

    fn slice(
        &self,
        collection: &str,
        prefix: &str,
        after: Option<&Key>,
        at: u64,
    ) -> Result<Slice, Compacted> {
        if at < self.compacted {
            return Err(Compacted { oldest: self.compacted });
        }
        let items = self.collections.get(collection).map(|t| t.slice(prefix, after, at)).unwrap_or_default();
        Ok(Slice { items, revision: at })
    }

    /// Applies the limits of `history`: drops old versions, and reduces others to their text.
    fn forget_as(&mut self, history: History) {
        let History::Bounded { age, events, bytes } = history else { return };
        for event in self.log.range(self.cold_events + self.warm_events..) {
            // The text is needed anyway when the event becomes cold.
            self.warm_bytes += event.object().text().len();
            self.warm_events += 1;
        }
        while WARM_EVENTS < self.warm_events || WARM_BYTES < self.warm_bytes {
            let event = self.log[self.cold_events].clone();
            let length = self.cool(&event);
            (self.warm_events, self.warm_bytes) = (self.warm_events - 1, self.warm_bytes - length);
            (self.cold_events, self.cold_bytes) = (self.cold_events + 1, self.cold_bytes + length);
        }
        self.forget_older(age, events, bytes);
    }

    /// Reduces the objects of an event to their text, including the current version. Returns the
    /// length of the new object's text.
    fn cool(&mut self, event: &Event) -> usize {
        let versions = self
            .collections
            .get_mut(&event.collection)
            .and_then(|collection| collection.objects.get_mut(&event.key));
        let versions = versions.map(Vec::as_mut_slice).unwrap_or_default();
        let at = |versions: &[StoredVersion], revision| {
            versions.binary_search_by_key(&revision, |version| version.revision).ok()
        };
        let before = event.old().and_then(|old| versions[at(versions, old.revision())?].object.clone());
        let cold = event.cool(before);
        let length = cold.text().len();
        if let Some(here) = at(versions, event.revision)
            && let Some(object) = &mut versions[here].object
        {
            *object = cold;
        }
        length
    }

    fn forget_older(&mut self, age: Duration, events: usize, bytes: usize) {
        let mut to = None;
        let surplus = self.log.len().saturating_sub(events);
        let mut left = self.cold_bytes;
        for (index, event) in self.log.iter().enumerate() {
            if surplus <= index && left <= bytes && event.at.elapsed() <= age {
                break;
            }
            if index < self.cold_events {
                left -= event.object().text().len();
            }
            to = Some(event.revision);
        }
        if let Some(revision) = to {
            self.compact(revision);
        }
    }

    fn compact(&mut self, revision: u64) {
        if revision <= self.compacted {
            return;
        }
        self.compacted = revision;
        while self.log.front().is_some_and(|e| e.revision <= revision) {
            let Some(event) = self.log.pop_front() else { break };
            match (self.cold_events, self.warm_events) {
                (0, 0) => {
                    self.cool(&event);
                }
                (0, _) => {
                    self.warm_events -= 1;
                    self.warm_bytes -= self.cool(&event);
                }
                _ => {
                    self.cold_events -= 1;
                    self.cold_bytes -= event.object().text().len();
                }
            }
            let Some(collection) = self.collections.get_mut(&event.collection) else { continue };
            collection.log.pop_front();
            collection.forget(&event.key, revision);
        }
    }
}

impl Collection {
    fn slice(&self, prefix: &str, after: Option<&Key>, at: u64) -> Vec<(Key, Arc<Object>)> {
        let start = match after {
            Some(key) if key.as_str() >= prefix => Bound::Excluded(key.clone()),
            _ => Bound::Included(Key::from_text(prefix)),
        };
        self.objects
            .range((start, Bound::Unbounded))
            .take_while(|(key, _)| key.as_str().starts_with(prefix))
            .filter_map(|(key, versions)| Some((key.clone(), version_at(versions, at)?)))
            .collect()
    }

    /// The part of [`Collection::slice`] that is in the index of a Node.
    fn slice_of_node(
        &self,
        node: &str,
        prefix: &str,
        after: Option<&Key>,
        at: u64,
    ) -> Vec<(Key, Arc<Object>)> {
        let keys = self.by_node.of_node(node).filter(|key| key.as_str().starts_with(prefix));
        let keys = keys.filter(|key| after.is_none_or(|after| after < *key));
        keys.filter_map(|key| Some((key.clone(), version_at(self.objects.get(key)?, at)?))).collect()
    }

    /// Drops the versions of one key that can no longer be read.
    fn forget(&mut self, key: &Key, compacted: u64) {
        let Some(versions) = self.objects.get_mut(key) else { return };
        let superseded = versions.partition_point(|v| v.revision <= compacted).saturating_sub(1);
        versions.drain(..superseded);
        let gone =
            matches!(versions.as_slice(), [only] if only.object.is_none() && only.revision <= compacted);
        if gone {
            self.objects.remove(key);
            self.by_node.remove(key);
        }
    }
}

fn version_at(versions: &[StoredVersion], revision: u64) -> Option<Arc<Object>> {
    versions.iter().rev().find(|v| v.revision <= revision)?.object.clone()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn collection() -> Arc<str> {
        "things".into()
    }

    fn put(store: &Store, name: &str) -> Arc<Object> {
        let key = Key::new("", name);
        let value = json!({"metadata": {"name": name}});
        let change = match store.get("things", &key) {
            None => Change::Create(value),
            Some(read) => Change::Update { read, value },
        };
        store.commit(&collection(), &key, change, &Origin::default()).expect("there is no other writer")
    }

    #[test]
    fn a_list_at_a_revision_works_until_compaction() {
        let store = Store::new(History::Manual, 8);
        put(&store, "a");
        put(&store, "b");
        put(&store, "a");
        let at = |r| store.slice("things", "", None, Some(r)).map(|s| s.items.len());
        assert_eq!(at(1).ok(), Some(1));
        assert_eq!(at(2).ok(), Some(2));
        store.compact(Some(2));
        assert!(at(1).is_err());
        assert_eq!(at(2).ok(), Some(2));
        assert_eq!(at(3).ok(), Some(2));
    }

    #[test]
    fn a_write_based_on_a_stale_read_is_rejected() {
        let store = Store::new(History::Manual, 8);
        let read = put(&store, "a");
        put(&store, "a");
        let late = Change::Update { read, value: json!({"metadata": {"name": "a"}}) };
        assert!(store.commit(&collection(), &Key::new("", "a"), late, &Origin::default()).is_err());
        assert_eq!(store.revision(), 2);
    }

    #[test]
    fn the_pods_of_a_node_are_found_at_every_kept_revision() {
        let store = Store::new(History::Manual, 8);
        let pods: Arc<str> = node_index::INDEXED.into();
        let commit = |name: &str, change| {
            let done = store.commit(&pods, &Key::new("ns", name), change, &Origin::default());
            done.expect("there is no other writer")
        };
        let pod = |name: &str, node: &str| json!({"metadata": {"name": name}, "spec": {"nodeName": node}});
        let unbound = commit("a", Change::Create(pod("a", "")));
        let bound = commit("a", Change::Update { read: unbound, value: pod("a", "n-1") });
        commit("b", Change::Create(pod("b", "n-2")));
        commit("a", Change::Delete { read: bound });
        commit("a", Change::Create(pod("a", "n-2")));
        let names = |prefix: &str, node: &str, after: Option<&Key>, at| {
            let interest =
                Interest { prefix: prefix.to_owned(), name: None, node_name: Some(node.to_owned()) };
            let slice = store.slice_covered("pods", &interest, after, at).expect("it is kept");
            // Objects that moved to the Node later may be among them.
            let items =
                slice.items.iter().filter(|(_, object)| node_index::node_name(object.value()) == node);
            items.map(|(key, _)| key.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names("", "n-1", None, Some(1)), [""; 0]);
        assert_eq!(names("", "n-1", None, Some(3)), ["ns/a"]);
        assert_eq!(names("", "n-1", None, None), [""; 0]);
        assert_eq!(names("", "n-2", None, None), ["ns/a", "ns/b"]);
        assert_eq!(names("ns/", "n-2", Some(&Key::new("ns", "a")), None), ["ns/b"]);
        assert_eq!(names("other/", "n-2", None, None), [""; 0]);
        assert_eq!(names("", "", None, Some(1)), ["ns/a"], "pods without a Node are not in the index");
        store.compact(None);
        assert_eq!(names("", "n-2", None, None), ["ns/a", "ns/b"]);
    }

    #[test]
    fn compaction_forgets_deleted_objects() {
        let store = Store::new(History::Manual, 8);
        let read = put(&store, "a");
        let gone =
            store.commit(&collection(), &Key::new("", "a"), Change::Delete { read }, &Origin::default());
        assert_eq!(gone.expect("there is no other writer").revision(), 2);
        store.compact(None);
        assert!(store.shared.read().collections["things"].objects.is_empty());
        assert!(store.shared.read().log.is_empty());
    }

    /// Checks the counters of cold events, and that cold events and objects unchanged since then
    /// are kept as text only. Returns the number of checked events.
    fn check_what_is_cold(store: &Store) -> usize {
        let inner = store.shared.read();
        let (cold, warm): (Vec<_>, Vec<_>) =
            inner.log.iter().enumerate().partition(|(index, _)| *index < inner.cold_events);
        assert!(warm.len() <= WARM_EVENTS);
        assert!(cold.iter().all(|(_, event)| event.object().is_cold()));
        assert!(cold.iter().filter_map(|(_, event)| event.old()).all(|old| old.is_cold()));
        let bytes: usize = cold.iter().map(|(_, event)| event.object().text().len()).sum();
        assert_eq!(bytes, inner.cold_bytes);
        let bytes: usize = warm.iter().map(|(_, event)| event.object().text().len()).sum();
        assert_eq!((warm.len(), bytes), (inner.warm_events, inner.warm_bytes));
        assert!(inner.warm_bytes <= WARM_BYTES);
        let since = warm.first().map_or(inner.revision + 1, |(_, event)| event.revision);
        let versions =
            inner.collections.values().flat_map(|collection| collection.objects.values().flatten());
        let older = versions.filter(|version| version.revision < since);
        assert!(older.filter_map(|version| version.object.as_ref()).all(|object| object.is_cold()));
        cold.len()
    }

    #[test]
    fn old_events_are_kept_as_text_even_after_reads() {
        let history = History::Bounded { age: Duration::from_secs(3600), events: 2_000, bytes: usize::MAX };
        let store = Store::new(history, 8);
        let name = |number: u64| format!("n-{}", number % 700);
        for number in 0..2_500 {
            put(&store, &name(number));
            // Another writer updates an old object, reads it, and sometimes deletes it.
            let key = Key::new("", &name(number * 31));
            let Some(read) = store.get("things", &key) else { continue };
            assert_eq!(read.name(), name(number * 31));
            let change = match number % 10 {
                0 => Change::Delete { read },
                _ => Change::Update { value: read.value().clone(), read },
            };
            store.commit(&collection(), &key, change, &Origin::default()).expect("there is no other writer");
            let shown = store.get_shown("things", &Key::new("", &name(number * 7)));
            assert!(shown.is_none_or(|shown| shown.name() == name(number * 7)));
            if number % 400 == 399 {
                store.compact(Some(store.revision() - 300 * (number % 3)));
            }
            check_what_is_cold(&store);
        }
        assert!(0 < check_what_is_cold(&store), "the check covered some events");
        store.compact(None);
        assert_eq!(check_what_is_cold(&store), 0);
        assert_eq!(store.shared.read().cold_bytes, 0);
    }

    #[test]
    fn large_objects_become_cold_early() {
        let history = History::Bounded { age: Duration::from_secs(3600), events: 2_000, bytes: usize::MAX };
        let store = Store::new(history, 8);
        let filler = "x".repeat(WARM_BYTES / 10);
        for number in 0..30 {
            let key = Key::new("", &format!("n-{}", number % 20));
            let value = json!({"metadata": {"name": key.name()}, "data": filler});
            let change = match store.get("things", &key) {
                None => Change::Create(value),
                Some(read) => Change::Update { read, value },
            };
            store.commit(&collection(), &key, change, &Origin::default()).expect("there is no other writer");
            check_what_is_cold(&store);
        }
        assert_eq!(check_what_is_cold(&store), 21);
        store.compact(Some(store.revision() - 2));
        check_what_is_cold(&store);
    }

    #[test]
    fn a_watch_has_no_gap_between_old_and_new_events() {
        let store = Store::new(History::Manual, 8);
        for name in ["a", "b", "a"] {
            put(&store, name);
        }
        let interest = Interest { name: Some("a".to_owned()), ..Interest::default() };
        let mut feed = store.watch(&collection(), interest, 1).expect("nothing is compacted");
        put(&store, "b");
        put(&store, "a");
        let mut told = Vec::new();
        while !feed.is_drained() {
            told.extend(feed.next().now_or_never().flatten().map(|event| event.revision));
        }
        assert_eq!(told, [3, 5]);
    }

    #[test]
    fn reads_do_not_keep_parsed_objects() {
        let history = History::Bounded { age: Duration::from_secs(3600), events: 2_000, bytes: usize::MAX };
        let store = Store::new(history, 8);
        for number in 0..WARM_EVENTS + 10 {
            put(&store, &format!("n-{number}"));
        }
        let (sender, mut receiver) = mpsc::unbounded_channel();
        store.subscribe_from_start(sender);
        while let Ok(commit) = receiver.try_recv() {
            assert!(commit.new.as_ref().is_some_and(|new| !new.name().is_empty()));
        }
        let first = store.get_at("things", &Key::new("", "n-0"), 1).expect("the object exists");
        assert_eq!(first.name(), "n-0");
        assert_eq!(check_what_is_cold(&store), 10);
    }

    #[test]
    fn a_watcher_that_does_not_read_is_dropped() {
        let store = Store::new(History::Manual, 2);
        let _feed = store.watch(&collection(), Interest::default(), 0).expect("nothing is compacted");
        for _ in 0..3 {
            put(&store, "a");
        }
        assert_eq!(store.watchers(), 0);
    }
}
