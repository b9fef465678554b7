//! Versions, revisions, the event log and compaction.

use crate::store::event::Event;
use crate::store::key::Key;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::pin::pin;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use crate::storage::database::{Database, State};
use crate::storage::journal::{Journal, Sink, Unsaved};
use crate::store::commits::{Commit, CommitFeed, Origin};
use crate::store::watch::{Feed, Interest};
use crate::values::object::{Object, set_meta};
use crate::values::status::ApiError;

/// How much of the past is kept for watches to resume from and lists to page through.
#[derive(Debug, Clone, Copy)]
pub enum History {
    /// Forget what is older than `age` or beyond the newest `events`, as the server runs.
    Bounded {
        /// How long an event is kept.
        age: Duration,
        /// How many events are kept at most; what bounds memory under a burst.
        events: usize,
        /// How long the texts of their objects are at most, in bytes, but for those of the newest few: what bounds memory when
        /// objects are large.
        bytes: usize,
    },
    /// Keep everything until [`crate::Server::compact`] is called: the simulator decides.
    Manual,
}

impl Default for History {
    /// Five minutes, as etcd is compacted under kube-apiserver, and no more events than a watcher catches up with in seconds.
    fn default() -> Self {
        History::Bounded { age: Duration::from_secs(300), events: 20_000, bytes: 64 << 20 }
    }
}

/// How many of the newest events keep their objects as values, for writers and watchers that look into them; older ones are read
/// again from their text when somebody does.
const WARM_EVENTS: usize = 500;

/// How long the texts of their objects are at most, in bytes: as values they take ten times as much.
const WARM_BYTES: usize = 8 << 20;

/// A write, guarded by what the writer read.
#[derive(Debug)]
pub(crate) enum Change {
    /// Nothing may be there yet.
    Create(Value),
    /// The version read must still be the current one.
    Update { read: Arc<Object>, value: Value },
    /// As `Update`, and the object goes.
    Delete { read: Arc<Object> },
}

/// The state moved on between read and commit; read again.
#[derive(Debug)]
pub(crate) struct Raced;

/// The asked revision has been compacted away.
#[derive(Debug)]
pub(crate) struct Compacted {
    pub(crate) oldest: u64,
}

/// One consistent slice of a resource.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) items: Vec<(Key, Arc<Object>)>,
    pub(crate) revision: u64,
}

/// The disk failed. What was committed since its last success is not shown to anyone, and nothing is written any more.
#[derive(Debug, Clone)]
pub(crate) struct NotSaved {
    pub(crate) why: Arc<str>,
}

impl NotSaved {
    /// What the writer is told.
    pub(crate) fn refusal(&self) -> ApiError {
        ApiError::internal(format!(
            "the server cannot write to its data folder, and takes no more changes until it is started again: {}",
            self.why
        ))
    }
}

/// The state. Without a journal a commit is shown as it is made; with one, when it is on stable storage.
#[derive(Debug)]
pub(crate) struct Store {
    shared: Arc<Shared>,
    /// Dropped with the store, which waits until everything is written.
    journal: Option<Journal>,
    watch_buffer: usize,
}

/// What the journal's thread works on, too.
#[derive(Debug)]
pub(crate) struct Shared {
    inner: RwLock<Inner>,
    /// For requests that wait for a revision. Wakes them in the order in which they came, so that a simulation repeats.
    committed: Notify,
    history: History,
    failed: OnceLock<NotSaved>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The revision of the newest commit, on which the next write builds.
    head: u64,
    /// The revision of the newest commit that may be shown: `head`, unless there is a journal that has not saved it yet.
    revision: u64,
    compacted: u64,
    tables: BTreeMap<Arc<str>, Table>,
    log: VecDeque<Arc<Event>>,
    /// So many of the oldest events in the log are kept as texts.
    cold_events: usize,
    /// How long the texts of their objects are.
    cold_bytes: usize,
    /// So many of those after them are counted in `warm_bytes`.
    warm_events: usize,
    warm_bytes: usize,
    next_watcher: u64,
    commit_feeds: CommitFeed,
}

#[derive(Debug, Default)]
struct Table {
    objects: BTreeMap<Key, Vec<Version>>,
    log: VecDeque<Arc<Event>>,
    watchers: BTreeMap<u64, Watcher>,
}

#[derive(Debug)]
struct Version {
    revision: u64,
    object: Option<Arc<Object>>,
}

#[derive(Debug)]
struct Watcher {
    interest: Interest,
    events: mpsc::Sender<Arc<Event>>,
}

impl Store {
    /// An empty store in memory.
    pub(crate) fn new(history: History, watch_buffer: usize) -> Self {
        Store { shared: Shared::new(Inner::default(), history), journal: None, watch_buffer }
    }

    /// A store that goes on from what was saved, and saves what is committed.
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

    /// The revision of the newest commit that may be shown.
    pub(crate) fn revision(&self) -> u64 {
        self.shared.read().revision
    }

    /// The revision of the newest commit, saved or not.
    pub(crate) fn head(&self) -> u64 {
        self.shared.read().head
    }

    /// The newest version, for a write to build on: it may not be saved yet, and then must not be shown before it is.
    pub(crate) fn get(&self, table: &str, key: &Key) -> Option<Arc<Object>> {
        Some(self.shared.read().tables.get(table)?.objects.get(key)?.last()?.object.as_ref()?.opened())
    }

    /// The newest version that may be shown.
    pub(crate) fn get_shown(&self, table: &str, key: &Key) -> Option<Arc<Object>> {
        let inner = self.shared.read();
        Some(version_at(inner.tables.get(table)?.objects.get(key)?, inner.revision)?.opened())
    }

    /// The object as it was at `revision`.
    pub(crate) fn get_at(&self, table: &str, key: &Key, revision: u64) -> Option<Arc<Object>> {
        let inner = self.shared.read();
        Some(version_at(inner.tables.get(table)?.objects.get(key)?, revision.min(inner.revision))?.opened())
    }

    /// Everything under `prefix` (a namespace with its slash, or nothing) after `after`, at `revision` or as it is for a write to
    /// build on.
    pub(crate) fn slice(
        &self,
        table: &str,
        prefix: &str,
        after: Option<&Key>,
        revision: Option<u64>,
    ) -> Result<Slice, Compacted> {
        let inner = self.shared.read();
        inner.slice(table, prefix, after, revision.unwrap_or(inner.head))
    }

    /// As [`Store::slice`], but without a revision as it may be shown.
    pub(crate) fn slice_shown(
        &self,
        table: &str,
        prefix: &str,
        after: Option<&Key>,
        revision: Option<u64>,
    ) -> Result<Slice, Compacted> {
        let inner = self.shared.read();
        // What is committed and not saved is not there yet for a reader, whatever revision it asks for.
        let at = revision.map_or(inner.revision, |asked| asked.min(inner.revision));
        inner.slice(table, prefix, after, at)
    }

    /// Whether the resource holds no object at all.
    pub(crate) fn is_empty(&self, table: &str) -> bool {
        let inner = self.shared.read();
        inner.tables.get(table).is_none_or(|t| {
            t.objects.values().all(|versions| versions.last().is_none_or(|v| v.object.is_none()))
        })
    }

    /// The one place where state changes. The new version gets its `resourceVersion` here, watchers and the commit log see
    /// it in commit order.
    pub(crate) fn commit(
        &self,
        table: &Arc<str>,
        key: &Key,
        change: Change,
        origin: &Origin,
    ) -> Result<Arc<Object>, Raced> {
        // Cloned before the lock is taken: the copy of a deleted object differs by its revision only.
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
            .tables
            .get(table)
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
        let event = Arc::new(Event::new(revision, table.clone(), key.clone(), read, object.clone(), deleted));
        inner.apply(&event);
        match &self.journal {
            None => {
                inner.show(&event, origin);
                inner.forget_as(self.shared.history);
                drop(inner);
                self.shared.committed.notify_waiters();
            }
            // Under the lock, so that the journal has them in order.
            Some(journal) => journal.append(event, origin.clone()),
        }
        Ok(object)
    }

    /// Waits until what was committed up to `revision` is on stable storage and shown; at once without a journal.
    pub(crate) async fn saved(&self, revision: u64) -> Result<(), NotSaved> {
        if revision <= self.revision() {
            return Ok(());
        }
        self.once(|| if revision <= self.revision() { Some(Ok(())) } else { self.writable().err().map(Err) })
            .await
    }

    /// Blocks until what was committed is saved; for a start, before anyone can ask.
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

    /// Whether writes have a chance to be saved.
    pub(crate) fn writable(&self) -> Result<(), NotSaved> {
        match self.shared.failed.get() {
            None => Ok(()),
            Some(failed) => Err(failed.clone()),
        }
    }

    /// Forgets every version that is not current at `revision` (or now).
    pub(crate) fn compact(&self, revision: Option<u64>) {
        let mut inner = self.shared.write();
        let revision = revision.unwrap_or(inner.revision).min(inner.revision);
        inner.compact(revision);
    }

    /// The oldest revision that can still be read or resumed from.
    pub(crate) fn compacted(&self) -> u64 {
        self.shared.read().compacted
    }

    /// What happened after `from`, then what happens from now on.
    pub(crate) fn watch(&self, table: &Arc<str>, interest: Interest, from: u64) -> Result<Feed, Compacted> {
        let mut inner = self.shared.write();
        if from < inner.compacted {
            return Err(Compacted { oldest: inner.compacted });
        }
        let id = inner.next_watcher;
        inner.next_watcher += 1;
        let (sender, receiver) = mpsc::channel(self.watch_buffer);
        let held = inner.tables.entry(table.clone()).or_default();
        let first = held.log.partition_point(|e| e.revision <= from);
        let past: Vec<Arc<Event>> =
            held.log.range(first..).filter(|event| interest.covers_key(&event.key)).cloned().collect();
        held.watchers.insert(id, Watcher { interest: interest.clone(), events: sender });
        // What happens from now on is sent. To look into what is kept as text takes long, and nobody has to wait for it.
        drop(inner);
        let backlog = past.into_iter().filter(|event| interest.covers(event)).collect();
        Ok(Feed::new(id, backlog, receiver))
    }

    /// Ends a watch.
    pub(crate) fn unwatch(&self, table: &str, id: u64) {
        if let Some(table) = self.shared.write().tables.get_mut(table) {
            table.watchers.remove(&id);
        }
    }

    /// How many watches are open; a leak check for tests.
    pub(crate) fn watchers(&self) -> usize {
        self.shared.read().tables.values().map(|t| t.watchers.len()).sum()
    }

    /// The newest revision provided that `feed` has nothing left to deliver; what a bookmark may promise.
    pub(crate) fn revision_if_drained(&self, feed: &Feed) -> Option<u64> {
        // Events are sent under the write lock, so the emptiness seen under the read lock belongs to this revision.
        let inner = self.shared.read();
        feed.is_drained().then_some(inner.revision)
    }

    /// Waits until the newest revision is at least this one.
    pub(crate) async fn reaches(&self, revision: u64) {
        self.once(|| (revision <= self.revision()).then_some(())).await;
    }

    /// Waits until a look finds something: one now, and one after each commit and when the disk fails.
    async fn once<T>(&self, look: impl Fn() -> Option<T>) -> T {
        loop {
            // Enlisted before the look, so that no commit in between is missed.
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

    /// As [`Store::subscribe`], and first each object there is, as if it had been made just now.
    pub(crate) fn subscribe_from_start(&self, sender: mpsc::UnboundedSender<Arc<Commit>>) {
        let mut inner = self.shared.write();
        for (resource, table) in &inner.tables {
            for (key, object) in table.slice("", None, inner.revision) {
                let origin = Origin::default();
                // The receiver is in the caller's hands.
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
    /// Shows a batch of commits that has been saved.
    fn show(&self, batch: Vec<Unsaved>) {
        let mut inner = self.write();
        for Unsaved { event, origin } in &batch {
            inner.show(event, origin);
        }
        inner.forget_as(self.history);
        drop(inner);
        self.committed.notify_waiters();
    }

    /// Ends all writing: what is not saved by now never will be.
    fn fail(&self, why: String) {
        // A second failure adds nothing to the first.
        let _told = self.failed.set(NotSaved { why: why.into() });
        self.committed.notify_waiters();
    }
}

impl Shared {
    fn new(inner: Inner, history: History) -> Arc<Self> {
        let committed = Notify::new();
        Arc::new(Shared { inner: RwLock::new(inner), committed, history, failed: OnceLock::new() })
    }

    // A poisoned lock means a panic between two plain assignments; the data is still the last committed state.
    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// What was saved, and no past.
    fn of_saved(saved: State) -> Self {
        let revision = saved.revision;
        let mut inner = Inner { head: revision, revision, compacted: revision, ..Inner::default() };
        for (table, key, object) in saved.objects {
            let versions = vec![Version { revision: object.revision(), object: Some(object) }];
            inner.tables.entry(table).or_default().objects.insert(key, versions);
        }
        inner
    }

    /// Makes a commit what the next write builds on.
    fn apply(&mut self, event: &Arc<Event>) {
        self.head = event.revision;
        let table = self.tables.entry(event.table.clone()).or_default();
        table
            .objects
            .entry(event.key.clone())
            .or_default()
            .push(Version { revision: event.revision, object: (!event.deleted).then(|| event.object()) });
    }

    /// Shows a commit to readers and watchers.
    fn show(&mut self, event: &Arc<Event>, origin: &Origin) {
        self.revision = event.revision;
        let table = self.tables.entry(event.table.clone()).or_default();
        table.log.push_back(event.clone());
        self.log.push_back(event.clone());
        // A full buffer means a watcher that does not read: it is dropped, its stream ends, and it resumes or relists.
        table.watchers.retain(|_, w| !w.interest.covers(event) || w.events.try_send(event.clone()).is_ok());
        self.commit_feeds.publish(|| Commit::of(event, origin));
    }

    fn slice(&self, table: &str, prefix: &str, after: Option<&Key>, at: u64) -> Result<Slice, Compacted> {
        if at < self.compacted {
            return Err(Compacted { oldest: self.compacted });
        }
        let items = self.tables.get(table).map(|t| t.slice(prefix, after, at)).unwrap_or_default();
        Ok(Slice { items, revision: at })
    }

    /// Lets go of what `history` does not ask for: of old versions altogether, of others as values.
    fn forget_as(&mut self, history: History) {
        let History::Bounded { age, events, bytes } = history else { return };
        for event in self.log.range(self.cold_events + self.warm_events..) {
            // It is made now or when the event cools.
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

    /// Keeps of what an event shows the texts alone, also where it is the current version. Returns how long the new one's is.
    fn cool(&mut self, event: &Event) -> usize {
        let versions = self.tables.get_mut(&event.table).and_then(|table| table.objects.get_mut(&event.key));
        let versions = versions.map(Vec::as_mut_slice).unwrap_or_default();
        let at = |versions: &[Version], revision| {
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
            let Some(table) = self.tables.get_mut(&event.table) else { continue };
            table.log.pop_front();
            table.forget(&event.key, revision);
        }
    }
}

impl Table {
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

    /// Drops the versions of one key that nobody can ask for any more.
    fn forget(&mut self, key: &Key, compacted: u64) {
        let Some(versions) = self.objects.get_mut(key) else { return };
        let superseded = versions.partition_point(|v| v.revision <= compacted).saturating_sub(1);
        versions.drain(..superseded);
        let gone =
            matches!(versions.as_slice(), [only] if only.object.is_none() && only.revision <= compacted);
        if gone {
            self.objects.remove(key);
        }
    }
}

fn version_at(versions: &[Version], revision: u64) -> Option<Arc<Object>> {
    versions.iter().rev().find(|v| v.revision <= revision)?.object.clone()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn table() -> Arc<str> {
        "things".into()
    }

    fn put(store: &Store, name: &str) -> Arc<Object> {
        let key = Key::new("", name);
        let value = json!({"metadata": {"name": name}});
        let change = match store.get("things", &key) {
            None => Change::Create(value),
            Some(read) => Change::Update { read, value },
        };
        store.commit(&table(), &key, change, &Origin::default()).expect("nobody else writes")
    }

    #[test]
    fn a_list_at_a_revision_shows_that_past_until_it_is_compacted() {
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
    fn a_write_on_a_superseded_read_is_refused() {
        let store = Store::new(History::Manual, 8);
        let read = put(&store, "a");
        put(&store, "a");
        let late = Change::Update { read, value: json!({"metadata": {"name": "a"}}) };
        assert!(store.commit(&table(), &Key::new("", "a"), late, &Origin::default()).is_err());
        assert_eq!(store.revision(), 2);
    }

    #[test]
    fn compaction_forgets_deleted_objects() {
        let store = Store::new(History::Manual, 8);
        let read = put(&store, "a");
        let gone = store.commit(&table(), &Key::new("", "a"), Change::Delete { read }, &Origin::default());
        assert_eq!(gone.expect("nobody else writes").revision(), 2);
        store.compact(None);
        assert!(store.shared.read().tables["things"].objects.is_empty());
        assert!(store.shared.read().log.is_empty());
    }

    /// What is counted of cold events, and that they and what is current since then are texts and nothing else.
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
        let versions = inner.tables.values().flat_map(|table| table.objects.values().flatten());
        let older = versions.filter(|version| version.revision < since);
        assert!(older.filter_map(|version| version.object.as_ref()).all(|object| object.is_cold()));
        cold.len()
    }

    #[test]
    fn the_past_is_kept_as_text_whoever_has_looked_into_it() {
        let history = History::Bounded { age: Duration::from_secs(3600), events: 2_000, bytes: usize::MAX };
        let store = Store::new(history, 8);
        let name = |number: u64| format!("n-{}", number % 700);
        for number in 0..2_500 {
            put(&store, &name(number));
            // Somebody else writes what was written long ago, reads it, and deletes it now and then.
            let key = Key::new("", &name(number * 31));
            let Some(read) = store.get("things", &key) else { continue };
            assert_eq!(read.name(), name(number * 31));
            let change = match number % 10 {
                0 => Change::Delete { read },
                _ => Change::Update { value: read.value().clone(), read },
            };
            store.commit(&table(), &key, change, &Origin::default()).expect("nobody else writes");
            let shown = store.get_shown("things", &Key::new("", &name(number * 7)));
            assert!(shown.is_none_or(|shown| shown.name() == name(number * 7)));
            if number % 400 == 399 {
                store.compact(Some(store.revision() - 300 * (number % 3)));
            }
            check_what_is_cold(&store);
        }
        assert!(0 < check_what_is_cold(&store), "there was something to look at");
        store.compact(None);
        assert_eq!(check_what_is_cold(&store), 0);
        assert_eq!(store.shared.read().cold_bytes, 0);
    }

    #[test]
    fn a_few_large_objects_are_the_past_as_well() {
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
            store.commit(&table(), &key, change, &Origin::default()).expect("nobody else writes");
            check_what_is_cold(&store);
        }
        assert_eq!(check_what_is_cold(&store), 21);
        store.compact(Some(store.revision() - 2));
        check_what_is_cold(&store);
    }

    #[test]
    fn what_a_watch_is_told_of_the_past_and_of_the_present_fit_together() {
        let store = Store::new(History::Manual, 8);
        for name in ["a", "b", "a"] {
            put(&store, name);
        }
        let interest = Interest { name: Some("a".to_owned()), ..Interest::default() };
        let mut feed = store.watch(&table(), interest, 1).expect("nothing is compacted");
        put(&store, "b");
        put(&store, "a");
        let mut told = Vec::new();
        while !feed.is_drained() {
            told.extend(feed.next().now_or_never().flatten().map(|event| event.revision));
        }
        assert_eq!(told, [3, 5]);
    }

    #[test]
    fn nobody_warms_what_he_only_sees() {
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
        let first = store.get_at("things", &Key::new("", "n-0"), 1).expect("it is there");
        assert_eq!(first.name(), "n-0");
        assert_eq!(check_what_is_cold(&store), 10);
    }

    #[test]
    fn a_watcher_that_does_not_read_is_dropped() {
        let store = Store::new(History::Manual, 2);
        let _feed = store.watch(&table(), Interest::default(), 0).expect("nothing is compacted");
        for _ in 0..3 {
            put(&store, "a");
        }
        assert_eq!(store.watchers(), 0);
    }
}
