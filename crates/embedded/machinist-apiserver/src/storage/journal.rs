//! Group commit: commits queue up while a batch is synced, and form the next batch.
//!
//! A single thread writes. A task would not do: a sync blocks, and commits must be written even
//! after the runtime has ended.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::log::event::Event;
use crate::log::origin::Origin;
use crate::storage::database::{Database, broken};

/// Receives what the journal reports: the store's shared state.
pub(crate) trait Sink: Send + Sync + 'static {
    /// A batch is on stable storage.
    fn show(&self, batch: Vec<Unsaved>);
    /// Nothing is written from now on.
    fn fail(&self, why: String);
}

/// A commit that is not on disk yet.
pub(crate) struct Unsaved {
    pub(crate) event: Arc<Event>,
    pub(crate) origin: Origin,
}

/// Limit on the commits in one batch, so that the first commit of a burst does not wait for all of
/// them.
const MAX_BATCH: usize = 512;

/// The queue and the thread that empties it. Dropping the journal writes the queued commits and
/// closes the file.
pub(crate) struct Journal {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    commits: Vec<Unsaved>,
    /// A batch is being written.
    is_writing: bool,
    /// The server is shutting down: no further commits follow.
    is_closing: bool,
    /// Writing has stopped.
    has_ended: bool,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Journal")
    }
}

impl Journal {
    /// Starts the writer thread. `shared` shows each batch once the batch is on stable storage.
    pub(crate) fn start(database: Database, shared: Arc<dyn Sink>) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let writer = Writer { queue: queue.clone(), database, shared };
        let thread =
            std::thread::Builder::new().name("machinist-journal".into()).spawn(move || writer.run())?;
        Ok(Journal { queue, thread: Some(thread) })
    }

    /// Queues a commit. Must be called in the order of revisions, hence under the store's lock.
    pub(crate) fn append(&self, event: Arc<Event>, origin: Origin) {
        let mut waiting = self.queue.lock();
        // After a failure, commits are neither written nor shown, so they are dropped.
        if !waiting.has_ended {
            waiting.commits.push(Unsaved { event, origin });
            drop(waiting);
            self.queue.changed.notify_all();
        }
    }

    /// Blocks until the queue is empty and written, or until writing has stopped.
    pub(crate) fn finish(&self) {
        let is_busy =
            |waiting: &mut Waiting| !waiting.has_ended && (waiting.is_writing || !waiting.commits.is_empty());
        let waited = self.queue.changed.wait_while(self.queue.lock(), is_busy);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.queue.lock().is_closing = true;
        self.queue.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread already reported its own panic.
            let _ended = thread.join();
        }
    }
}

impl Queue {
    // A poisoned lock means a panic between plain assignments.
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next batch, or `None` when no more will follow.
    fn next(&self) -> Option<Vec<Unsaved>> {
        let mut waiting = self.lock();
        waiting.is_writing = false;
        loop {
            if !waiting.commits.is_empty() {
                waiting.is_writing = true;
                let length = waiting.commits.len().min(MAX_BATCH);
                return Some(waiting.commits.drain(..length).collect());
            }
            if waiting.is_closing {
                return None;
            }
            // Wakes `finish`.
            self.changed.notify_all();
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn end(&self) {
        let mut waiting = self.lock();
        waiting.has_ended = true;
        waiting.commits = Vec::new();
        self.changed.notify_all();
    }
}

struct Writer {
    queue: Arc<Queue>,
    database: Database,
    shared: Arc<dyn Sink>,
}

impl Writer {
    fn run(self) {
        let _ending = Ending { queue: &self.queue, shared: &*self.shared };
        while let Some(batch) = self.queue.next() {
            let events = batch.iter().map(|unsaved| &*unsaved.event);
            let written = catch_unwind(AssertUnwindSafe(|| self.database.write(events)));
            match written.unwrap_or_else(|panic| Err(broken(&*panic))) {
                Ok(()) => self.shared.show(batch),
                Err(error) => {
                    // The caller that runs the server receives the error, and so does each writer.
                    tracing::info!(%error, "Cannot write to the data folder; refusing writes from now on");
                    self.shared.fail(error.to_string());
                    break;
                }
            }
        }
    }
}

/// Wakes all waiting callers when the thread ends. Otherwise they would wait forever after a panic.
struct Ending<'a> {
    queue: &'a Queue,
    shared: &'a dyn Sink,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(
                "The thread that writes to the data folder panicked; refusing writes from now on"
            );
            self.shared.fail("the thread that writes to the data folder panicked".to_owned());
        }
        self.queue.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Failures(Mutex<Vec<String>>);

    impl Sink for Failures {
        fn show(&self, _batch: Vec<Unsaved>) {}

        fn fail(&self, why: String) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(why);
        }
    }

    #[test]
    fn a_panic_of_the_thread_ends_every_wait() {
        let (queue, failures) = (Arc::new(Queue::default()), Arc::new(Failures::default()));
        let journal = {
            let (queue, failures) = (queue.clone(), failures.clone());
            queue.lock().is_writing = true;
            let thread = std::thread::spawn({
                let queue = queue.clone();
                move || {
                    let _ending = Ending { queue: &queue, shared: &*failures };
                    panic!("a bug in the code that shows a commit");
                }
            });
            Journal { queue, thread: Some(thread) }
        };
        journal.finish();
        assert!(queue.lock().has_ended);
        assert_eq!(failures.0.lock().expect("no panic holds it").len(), 1, "the store gets the once");
    }
}
