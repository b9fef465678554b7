//! Which object to look at next: a queue of keys, each due at some time.
//!
//! It hands out the key that has been due longest, ties by the order of keys, so a run under a paused clock always takes
//! the same course. A wake carries no reason: the worker that gets the key looks at everything again.
//!
//! # Guarantees
//! * A key is in the hands of one worker at most.
//! * No wake is lost. A wake while the key is in the hands of a worker makes it due again once that worker is through, even if the
//!   worker found the object gone and removes the key: there may be another object of that name by now.
//! * A key that is removed and not woken meanwhile leaves nothing behind.
//!
//! These hold with any number of threads: `tests/interleave` runs this file through the orders in which threads can take turns.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::backoff::{Backoff, Jitter};
use crate::sync::{Instant, Mutex, MutexGuard, Notify, sleep_until};

const RETRY: Backoff = Backoff { first: Duration::from_secs(1), cap: Duration::from_secs(300), spread: 0.2 };

/// A queue of keys with due times. A clone is another handle to the same queue.
pub struct KeyQueue<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    state: Mutex<State<K>>,
    /// Told when the earliest due time may have changed.
    changed: Notify,
    min_interval: fn(&K) -> Duration,
}

struct State<K> {
    due: BTreeSet<(Instant, K)>,
    due_at: BTreeMap<K, Instant>,
    /// Keys in the hands of a worker, and when they are due again, if they are.
    active: BTreeMap<K, Option<Instant>>,
    /// When a key was last handed out, kept while its minimum interval runs.
    handed_at: BTreeMap<K, Instant>,
    failures: BTreeMap<K, u32>,
    jitter: Jitter,
    handed_out: u64,
    retries: u64,
}

/// What a queue is doing, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueMetrics {
    /// Keys that are scheduled, now or later.
    pub scheduled: usize,
    /// Keys that are due.
    pub due: usize,
    /// Keys in the hands of a worker.
    pub active: usize,
    /// Keys whose last pass failed.
    pub failing: usize,
    /// Keys that were handed out less than their minimum interval ago, or a little longer.
    pub resting: usize,
    /// For how long the first key has been due.
    pub lag: Duration,
    /// How often a key was handed out.
    pub handed_out: u64,
    /// How often a key was scheduled because of a failure.
    pub retries: u64,
}

impl<K> Clone for KeyQueue<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: Ord + Clone> KeyQueue<K> {
    /// A queue that hands out one key no more often than `min_interval` of it; `seed` is of the jitter of retries.
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

    /// Makes the key due at a time; if it is due earlier already, that stays.
    pub fn wake_at(&self, key: K, at: Instant) {
        self.lock().wake_at(key, at, self.shared.min_interval);
        self.shared.changed.notify_one();
    }

    /// Makes the key due after a delay that doubles with every call, from 1 s to 5 min, until [`KeyQueue::forget`].
    /// Returns the delay. A wake may still come earlier.
    pub fn retry(&self, key: K) -> Duration {
        let delay = self.lock().count_failure(&key);
        self.wake_at(key, Instant::now() + delay);
        delay
    }

    /// The pass over this key went well: the next failure is its first.
    pub fn forget(&self, key: &K) {
        self.lock().failures.remove(key);
    }

    /// The worker that has the key found no object: nothing of its past is kept, neither failures nor the minimum interval. A wake
    /// since the key was handed out stays, because it may be of another object of that name.
    pub fn remove(&self, key: &K) {
        self.lock().remove(key);
    }

    /// The next key, once one is due. Whoever gets it calls [`KeyQueue::done`].
    pub async fn next(&self) -> K {
        loop {
            let changed = self.shared.changed.notified();
            let earliest = match self.try_next() {
                Ok(key) => return key,
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

    /// The worker is through with the key; it may be handed out again.
    pub fn done(&self, key: &K) {
        let mut state = self.lock();
        let again = state.active.remove(key).flatten();
        if let Some(at) = again {
            state.wake_at(key.clone(), at, self.shared.min_interval);
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// How many keys are scheduled or in the hands of a worker.
    pub fn len(&self) -> usize {
        let state = self.lock();
        state.due.len() + state.active.len()
    }

    /// Whether nothing is scheduled and nobody works.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When the key is due; `None` when it is not scheduled.
    pub fn due_at(&self, key: &K) -> Option<Instant> {
        let state = self.lock();
        state.due_at.get(key).copied().or_else(|| state.active.get(key).copied().flatten())
    }

    /// Whether the key is scheduled or in the hands of a worker. If not, only a wake brings it back.
    pub fn holds(&self, key: &K) -> bool {
        let state = self.lock();
        state.due_at.contains_key(key) || state.active.contains_key(key)
    }

    /// What the queue is doing.
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

    /// The first due key, or when the earliest will be due.
    fn try_next(&self) -> Result<K, Option<Instant>> {
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
            // Two wakes just before two workers begin to wait leave one notice only: pass it on.
            self.shared.changed.notify_one();
        }
        Ok(key)
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
        // The keys whose interval is over need no memory; looking through all of them now and then is enough.
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

    /// What was scheduled before the key was handed out went when it was; what was scheduled since must stay.
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
