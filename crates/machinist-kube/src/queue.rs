//! Which object to look at next: a queue of keys, each due at some time.
//!
//! It hands out the key that has been due longest, ties by the order of keys, so a run under a paused clock always takes
//! the same course. A key is in the hands of one worker at most; what happens meanwhile is remembered for later. A wake
//! carries no reason: whoever gets the key looks at everything again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::backoff::{Backoff, Jitter};

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

    /// The object is gone for good: nothing is scheduled for its key any more.
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
                    () = tokio::time::sleep_until(at) => {}
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

    fn remove(&mut self, key: &K) {
        self.unschedule(key);
        self.failures.remove(key);
        self.handed_at.remove(key);
        if let Some(again) = self.active.get_mut(key) {
            *again = None;
        }
    }
}

impl<K: Ord + Clone> fmt::Debug for KeyQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyQueue").field(&self.metrics()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{advance, timeout};

    fn queue() -> KeyQueue<&'static str> {
        KeyQueue::new(|_| Duration::ZERO, 1)
    }

    /// Seconds until a key comes out, and the key.
    async fn next(queue: &KeyQueue<&'static str>) -> (u64, &'static str) {
        let start = Instant::now();
        let key = queue.next().await;
        (start.elapsed().as_secs(), key)
    }

    async fn nothing_due(queue: &KeyQueue<&'static str>) -> bool {
        timeout(Duration::from_millis(1), queue.next()).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_comes_first_and_ties_go_by_key() {
        let queue = queue();
        let now = Instant::now();
        queue.wake_at("late", now + Duration::from_secs(5));
        for key in ["c", "a", "b"] {
            queue.wake_at(key, now);
        }
        for expected in [(0, "a"), (0, "b"), (0, "c"), (5, "late")] {
            assert_eq!(next(&queue).await, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_never_handed_out_twice_at_once() {
        let queue = queue();
        queue.wake("a");
        assert_eq!(next(&queue).await, (0, "a"));
        queue.wake("a");
        assert!(nothing_due(&queue).await);
        queue.done(&"a");
        assert_eq!(next(&queue).await, (0, "a"));
        queue.done(&"a");
        assert!(nothing_due(&queue).await && queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_wake_wins_and_a_later_one_changes_nothing() {
        let queue = queue();
        let now = Instant::now();
        queue.wake_at("a", now + Duration::from_secs(60));
        queue.wake_at("a", now + Duration::from_secs(600));
        queue.wake_at("a", now + Duration::from_secs(6));
        assert_eq!(next(&queue).await, (6, "a"));
        queue.done(&"a");
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_worker_is_roused_by_a_new_key() {
        let queue = queue();
        queue.wake_at("late", Instant::now() + Duration::from_secs(60));
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { next(&queue).await }
        });
        tokio::task::yield_now().await;
        advance(Duration::from_secs(2)).await;
        queue.wake("now");
        assert_eq!(waiting.await.expect("no panic"), (2, "now"));
    }

    #[tokio::test(start_paused = true)]
    async fn two_workers_share_a_burst() {
        let queue = queue();
        let worker = || {
            let queue = queue.clone();
            tokio::spawn(async move { queue.next().await })
        };
        let (one, two) = (worker(), worker());
        tokio::task::yield_now().await;
        queue.wake("a");
        queue.wake("b");
        let mut keys = [one.await.expect("no panic"), two.await.expect("no panic")];
        keys.sort_unstable();
        assert_eq!(keys, ["a", "b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn wakes_within_the_minimum_interval_become_one() {
        let queue: KeyQueue<&str> = KeyQueue::new(|_| Duration::from_secs(10), 1);
        queue.wake("a");
        assert_eq!(next(&queue).await, (0, "a"));
        queue.wake("a");
        queue.done(&"a");
        queue.wake("a");
        assert_eq!(next(&queue).await, (10, "a"));
        queue.done(&"a");
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn retries_double_until_a_success() {
        let queue = queue();
        let delays: Vec<u64> = (0..12).map(|_| queue.retry("a").as_secs()).collect();
        let grow = delays.windows(2).all(|pair| pair[0] <= pair[1]);
        assert!(grow && delays[0] == 1 && delays[11] == 300, "{delays:?}");
        queue.forget(&"a");
        assert_eq!(queue.retry("a").as_secs(), 1);
        assert_eq!(queue.metrics().retries, 13);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wake_does_not_wait_for_a_retry() {
        let queue = queue();
        for _ in 0..8 {
            queue.retry("a");
        }
        queue.wake("a");
        assert_eq!(next(&queue).await, (0, "a"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_removed_key_is_not_handed_out_again() {
        let queue = queue();
        queue.wake("a");
        queue.next().await;
        queue.wake("a");
        queue.wake("b");
        queue.remove(&"a");
        queue.remove(&"b");
        queue.done(&"a");
        assert!(queue.is_empty());
    }
}
