//! [`Standin`]: the handle of a stand-in, and the path of one request through it.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use machinist_cloud_sim::{Clock, Cloud};
use tokio::sync::Notify;

use crate::books::Books;
use crate::journal::Journal;
use crate::store::{State, Store};
use crate::{OpenError, Settings, machines};

/// A handle of a stand-in. Clones share the same stand-in.
#[derive(Clone)]
pub struct Standin(Arc<Inner>);

struct Inner {
    time: Time,
    cloud: Cloud,
    books: Mutex<Books>,
    observers: Mutex<Vec<Observer>>,
    /// Wakes the task that settles actions at their time.
    due: Arc<Notify>,
}

/// A function that sees all objects after each change.
type Observer = Box<dyn Fn(&State) + Send>;

/// The given clock, and the time that the operator added to it.
#[derive(Clone)]
struct Time {
    clock: Clock,
    added: Arc<Mutex<SignedDuration>>,
}

impl Time {
    fn new(clock: Clock) -> Self {
        Self { clock, added: Arc::default() }
    }

    fn now(&self) -> Timestamp {
        let added = *self.added.lock().unwrap_or_else(PoisonError::into_inner);
        self.clock.now().checked_add(added).unwrap_or(Timestamp::MAX)
    }

    fn advance(&self, by: Duration) {
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        *added = added.saturating_add(SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX));
    }
}

impl Standin {
    /// Creates a stand-in in memory, which ends with its last handle.
    ///
    /// Inside a tokio runtime, a task ends actions at their time. Outside, the next request ends
    /// them.
    pub fn in_memory(settings: Settings, clock: Clock) -> Self {
        let time = Time::new(clock);
        let cloud = Cloud::in_memory(machinist_cloud_sim::Settings::default(), cloud_clock(&time));
        Self::build(Store::default(), settings, time, cloud)
    }

    /// Opens a stand-in that keeps its objects, and the disks of its machines, in a folder.
    ///
    /// # Errors
    /// When the folder cannot be used, or another process uses it.
    pub fn open(folder: &Path, settings: Settings, clock: Clock) -> Result<Self, OpenError> {
        let time = Time::new(clock);
        let cloud = Cloud::open(
            &folder.join("machines"),
            machinist_cloud_sim::Settings::default(),
            cloud_clock(&time),
        )?;
        let (journal, state) = Journal::open(folder)?;
        Ok(Self::build(Store::new(state, Some(journal)), settings, time, cloud))
    }

    fn build(store: Store, settings: Settings, time: Time, cloud: Cloud) -> Self {
        let books = Mutex::new(Books::new(settings, store));
        let due = Arc::new(Notify::new());
        let standin =
            Self(Arc::new(Inner { time, cloud, books, observers: Mutex::default(), due: due.clone() }));
        standin.turn(|_, _| ());
        machines::bring_all(&standin.0.cloud, &mut standin.lock().store, standin.now());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(end_actions_in_time(Arc::downgrade(&standin.0), due));
        }
        standin
    }

    /// The time of the stand-in.
    pub fn now(&self) -> Timestamp {
        self.0.time.now()
    }

    /// The simulated cloud that boots the servers: pass it to the fleet of `machinist-node-sim`.
    pub fn machines(&self) -> &Cloud {
        &self.0.cloud
    }

    /// Adds to the time of the stand-in. Actions whose time has come have ended when this function
    /// returns.
    pub fn advance(&self, by: Duration) {
        self.0.time.advance(by);
        self.turn(|_, _| ());
    }

    /// Runs a change under the lock: settles before it, writes the journal and brings the machines
    /// after it.
    pub(crate) fn turn<T>(&self, change: impl FnOnce(&mut Books, Timestamp) -> T) -> T {
        self.try_turn(change).0
    }

    /// As [`Self::turn`], with the error of the journal. The change is in memory also after an
    /// error, and the next change writes both.
    pub(crate) fn try_turn<T>(
        &self,
        change: impl FnOnce(&mut Books, Timestamp) -> T,
    ) -> (T, std::io::Result<()>) {
        let mut books = self.lock();
        let now = self.now();
        let due_before = books.next_due();
        books.end_due(now);
        let result = change(&mut books, now);
        let servers: BTreeSet<i64> = books.store.changed_servers().collect();
        let has_changed = books.store.has_changed();
        let written = books.store.commit();
        for server in servers.iter().filter_map(|id| books.store.state().servers.get(id)) {
            machines::bring(&self.0.cloud, server, now);
        }
        if has_changed {
            self.show(books.store.state());
        }
        if books.next_due() != due_before {
            self.0.due.notify_one();
        }
        (result, written)
    }

    /// Calls the observer with all objects after each change, before the change is answered. The
    /// observer runs under the lock, so it must not call the stand-in.
    pub fn observe(&self, observer: impl Fn(&State) + Send + 'static) {
        self.0.observers.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(observer));
    }

    fn show(&self, state: &State) {
        let observers = self.0.observers.lock().unwrap_or_else(PoisonError::into_inner);
        observers.iter().for_each(|observer| observer(state));
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Books> {
        self.0.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces all objects.
    pub(crate) fn replace_state(&self, state: State) -> std::io::Result<()> {
        let mut books = self.lock();
        books.store.replace(state)?;
        books.recount();
        machines::bring_all(&self.0.cloud, &mut books.store, self.now());
        self.show(books.store.state());
        self.0.due.notify_one();
        Ok(())
    }
}

fn cloud_clock(time: &Time) -> Clock {
    let time = time.clone();
    Clock::from_fn(move || time.now())
}

/// Ends actions at their time, until the stand-in ends.
async fn end_actions_in_time(inner: Weak<Inner>, due: Arc<Notify>) {
    loop {
        let next = {
            let Some(inner) = inner.upgrade() else { return };
            let standin = Standin(inner);
            standin.turn(|_, _| ());
            let next = standin.lock().next_due();
            next.map(|at| Duration::try_from(at.duration_since(standin.now())).unwrap_or(Duration::ZERO))
        };
        match next {
            // A clock that does not follow tokio's time may show the same time after the sleep.
            Some(left) => tokio::select! {
                () = due.notified() => {}
                () = tokio::time::sleep(left.max(SHORTEST_SLEEP)) => {}
            },
            None => due.notified().await,
        }
    }
}

/// Prevents a busy loop when an action is due within the resolution of the timer.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

impl Drop for Inner {
    fn drop(&mut self) {
        self.due.notify_one();
    }
}

impl fmt::Debug for Standin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standin").finish_non_exhaustive()
    }
}
