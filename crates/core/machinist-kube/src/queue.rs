//! The queue of keys to reconcile, each with a due time.
//!
//! The queue hands out the key that has been due longest. Keys with the same due time come in the
//! order of the keys, so a run under a paused clock is repeatable. A wake has no reason: the worker
//! that gets the key observes everything again.
//!
//! # Guarantees
//! * At most one worker has a key at a time.
//! * No wake is lost. If a key is woken while a worker has it, the key is due again when that
//!   worker is done. This holds even if the worker removes the key because the object was deleted:
//!   another object may have that name by now.
//! * A key that is removed and not woken meanwhile uses no memory.
//!
//! These guarantees hold with any number of threads: `tests/interleave` runs this file in all
//! orders in which threads can take turns, up to a limit of interruptions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::backoff::{Backoff, Jitter};
use crate::sync::{Instant, Mutex, MutexGuard, Notify, sleep_until};

const RETRY: Backoff = Backoff { first: Duration::from_secs(1), cap: Duration::from_secs(300), spread: 0.2 };

/// A queue of keys with due times. A clone is another handle to the same queue.
///
/// ```
/// use std::time::Duration;
/// use machinist_kube::KeyQueue;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let queue: KeyQueue<&str> = KeyQueue::new(|_| Duration::ZERO, 0);
/// queue.wake("a");
/// queue.wake("a"); // a key is in the queue once
/// let key = queue.next().await;
/// assert_eq!((key, queue.len()), ("a", 1));
///
/// // A wake while a worker has the key is not lost.
/// queue.wake("a");
/// queue.done(&key);
/// assert_eq!(queue.next().await, "a");
///
/// // Failures are retried after growing delays.
/// let first = queue.retry("a");
/// let second = queue.retry("a");
/// assert!(first < second);
/// queue.done(&"a");
/// # }
/// ```
pub struct KeyQueue<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    state: Mutex<State<K>>,
    /// Notified when the earliest due time may have changed.
    changed: Notify,
    min_interval: fn(&K) -> Duration,
}

struct State<K> {
    due: BTreeSet<(Instant, K)>,
    due_at: BTreeMap<K, Instant>,
    /// Keys that a worker has, and the time at which they are due again, if they were woken.
    active: BTreeMap<K, Option<Instant>>,
    /// Time at which a key was last handed out, kept until its minimum interval has passed.
    handed_at: BTreeMap<K, Instant>,
    failures: BTreeMap<K, u32>,
    jitter: Jitter,
    handed_out: u64,
    retries: u64,
}

/// State and counters of a queue, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueMetrics {
    /// Number of keys that are due now or later.
    pub scheduled: usize,
    /// Number of keys that are due now.
    pub due: usize,
    /// Number of keys that a worker has.
    pub active: usize,
    /// Number of keys whose last reconcile failed.
    pub failing: usize,
    /// Number of keys for which the queue keeps the time of the last hand-out: those within their
    /// minimum interval, and some older ones.
    pub resting: usize,
    /// Time for which the first key has been due.
    pub lag: Duration,
    /// Number of hand-outs since the start.
    pub handed_out: u64,
    /// Number of retries after a failure since the start.
    pub retries: u64,
}

impl<K> Clone for KeyQueue<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: Ord + Clone> KeyQueue<K> {
    /// Creates a queue that hands out a key at most once per `min_interval` of the key. `seed` is
    /// the seed of the jitter of retries.
    pub fn new(min_interval: fn(&K) -> Duration, seed: u64) -> Self {
        let state = State {
            due: BTreeSet::new(),
            due_at: BTreeMap::new(),
            active: BTreeMap::new(),
            handed_at: BTreeMap::new(),
            failures: BTreeMap::new(),
            jitter: Jitter::new(seed),
            handed_out: 0,
            retries: 0,
        };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), changed: Notify::new(), min_interval }) }
    }

    /// Makes the key due now (or as soon as its minimum interval has passed).
    pub fn wake(&self, key: K) {
        self.wake_at(key, Instant::now());
    }

    /// Makes the key due at a time. If the key is already due earlier, nothing changes.
    pub fn wake_at(&self, key: K, at: Instant) {
        self.lock().wake_at(key, at, self.shared.min_interval);
        self.shared.changed.notify_one();
    }

    /// Makes the key due after a delay and returns the delay. The delay doubles with every call,
    /// from 1 s to 5 min, until [`KeyQueue::forget`]. A wake can make the key due earlier.
    pub fn retry(&self, key: K) -> Duration {
        let delay = self.lock().count_failure(&key);
        self.wake_at(key, Instant::now() + delay);
        delay
    }

    /// Resets the delay of [`KeyQueue::retry`] after a successful reconcile of the key.
    pub fn forget(&self, key: &K) {
        self.lock().failures.remove(key);
    }

    /// Drops the failures and the minimum interval of a key whose object is deleted. Called by the
    /// worker that has the key. A wake since the hand-out stays, because it may belong to another
    /// object of that name.
    pub fn remove(&self, key: &K) {
        self.lock().remove(key);
    }

    /// Waits until a key is due and returns it. The caller calls [`KeyQueue::done`] afterwards.
    pub async fn next(&self) -> K {
        self.next_due().await.0
    }

    /// Waits like [`KeyQueue::next`]. Also returns since when the key has been due.
    pub async fn next_due(&self) -> (K, Instant) {
        loop {
            let changed = self.shared.changed.notified();
            let earliest = match self.try_next() {
                Ok(due) => return due,
                Err(earliest) => earliest,
            };
            match earliest {
                Some(at) => tokio::select! {
                    biased;
                    () = changed => {}
                    () = sleep_until(at) => {}
                },
                None => changed.await,
            }
        }
    }

    /// Ends the work on a key, so that the key can be handed out again.
    pub fn done(&self, key: &K) {
        let mut state = self.lock();
        let again = state.active.remove(key).flatten();
        if let Some(at) = again {
            state.wake_at(key.clone(), at, self.shared.min_interval);
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Number of keys that are scheduled or that a worker has.
    pub fn len(&self) -> usize {
        let state = self.lock();
        state.due.len() + state.active.len()
    }

    /// Whether no key is scheduled and no worker has a key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Time at which the key is due; `None` if the key is not scheduled.
    pub fn due_at(&self, key: &K) -> Option<Instant> {
        let state = self.lock();
        state.due_at.get(key).copied().or_else(|| state.active.get(key).copied().flatten())
    }

    /// Whether the key is scheduled or a worker has it. Otherwise, only a wake schedules the key.
    pub fn holds(&self, key: &K) -> bool {
        let state = self.lock();
        state.due_at.contains_key(key) || state.active.contains_key(key)
    }

    /// The current state and counters.
    pub fn metrics(&self) -> QueueMetrics {
        let now = Instant::now();
        let state = self.lock();
        let first = state.due.first().map(|(at, _)| *at);
        QueueMetrics {
            scheduled: state.due.len(),
            due: state.due.iter().take_while(|(at, _)| *at <= now).count(),
            active: state.active.len(),
            failing: state.failures.len(),
            resting: state.handed_at.len(),
            lag: first.map_or(Duration::ZERO, |at| now.saturating_duration_since(at)),
            handed_out: state.handed_out,
            retries: state.retries,
        }
    }

    /// Visits the keys that are due now, the longest due one first.
    pub fn visit_due(&self, mut visit: impl FnMut(&K)) {
        let now = Instant::now();
        self.lock().due.iter().take_while(|(at, _)| *at <= now).for_each(|(_, key)| visit(key));
    }

    /// Returns the first due key and its time, or the time at which the earliest key will be due.
    fn try_next(&self) -> Result<(K, Instant), Option<Instant>> {
        let now = Instant::now();
        let mut state = self.lock();
        let (at, key) = state.due.first().cloned().ok_or(None)?;
        if now < at {
            return Err(Some(at));
        }
        state.unschedule(&key);
        state.active.insert(key.clone(), None);
        state.hand_out(&key, now, self.shared.min_interval);
        let others_wait = !state.due.is_empty();
        drop(state);
        if others_wait {
            // Two wakes just before two workers begin to wait leave only one notice, so this worker
            // passes the notice on.
            self.shared.changed.notify_one();
        }
        Ok((key, at))
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Clone> State<K> {
    fn wake_at(&mut self, key: K, at: Instant, min_interval: fn(&K) -> Duration) {
        if let Some(again) = self.active.get_mut(&key) {
            *again = Some(again.map_or(at, |earlier| earlier.min(at)));
            return;
        }
        let at = match self.handed_at.get(&key) {
            Some(handed) => at.max(*handed + min_interval(&key)),
            None => at,
        };
        if self.due_at.get(&key).is_some_and(|earlier| *earlier <= at) {
            return;
        }
        self.unschedule(&key);
        self.due_at.insert(key.clone(), at);
        self.due.insert((at, key));
    }

    fn unschedule(&mut self, key: &K) {
        if let Some(at) = self.due_at.remove(key) {
            self.due.remove(&(at, key.clone()));
        }
    }

    fn hand_out(&mut self, key: &K, now: Instant, min_interval: fn(&K) -> Duration) {
        self.handed_out += 1;
        if Duration::ZERO < min_interval(key) {
            self.handed_at.insert(key.clone(), now);
        }
        // Keys whose interval has passed need no memory. An occasional pass over all keys is enough
        // to drop them.
        const SWEEP_EVERY: u64 = 1024;
        if self.handed_out.is_multiple_of(SWEEP_EVERY) {
            self.handed_at.retain(|key, handed| now < *handed + min_interval(key));
        }
    }

    fn count_failure(&mut self, key: &K) -> Duration {
        let failures = self.failures.entry(key.clone()).or_default();
        let earlier = *failures;
        *failures = failures.saturating_add(1);
        self.retries += 1;
        RETRY.delay(earlier, &mut self.jitter)
    }

    /// Keeps the schedule: the hand-out has removed earlier wakes, and later wakes must stay.
    fn remove(&mut self, key: &K) {
        self.failures.remove(key);
        self.handed_at.remove(key);
    }
}

impl<K: Ord + Clone> fmt::Debug for KeyQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyQueue").field(&self.metrics()).finish()
    }
}
