//! The last decision about each key. This memory may be lost at any moment, because it only saves
//! calls and informs users.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::Why;
use machinist_core::reverted::{Fix, is_reverted};
use machinist_serve::{Counter, Metrics};
use tokio::time::Instant;

use crate::fingerprint::fingerprint;
use crate::key::QueueKey;

const PANICKED: Counter = Counter::new(
    "machinist_passes_panicked_total",
    "Decisions or actions that ended with an internal error, by kind. Any increase is a bug.",
);
const NO_EFFECT: Counter = Counter::new(
    "machinist_passes_without_effect_total",
    "Passes that planned actions again because they had no effect, by kind.",
);
const STOPPED: Counter = Counter::new(
    "machinist_passes_stopped_total",
    "Passes that ended before all their actions were performed, by kind and reason.",
);
const KEYS_FOUND: Counter = Counter::new(
    "machinist_queue_keys_found_total",
    "Objects that the queue had lost. Any increase is a bug.",
);

/// The last decisions of a process, by key.
#[derive(Debug)]
pub struct Passes<K: QueueKey, R> {
    /// The last decision about each key, and its reason.
    pub whys: BTreeMap<K, WhyRecord<R>>,
    /// The last actions for each key, used to detect actions without effect.
    last: BTreeMap<K, LastPass>,
    /// The actions that were performed recently, by key, used to detect circles of actions.
    circles: BTreeMap<K, Circle>,
    /// The actions that were logged instead of performed, rendered.
    rehearsed: BTreeMap<K, BTreeSet<String>>,
    /// The number of failed passes, by cause and kind.
    counts: BTreeMap<(Count, &'static str), u64>,
    /// The passes that failed and were tried again, by queue.
    retries: BTreeMap<&'static str, u64>,
    /// The number of lost keys that the safety sweep has found.
    pub(crate) keys_found: u64,
    /// The keys that a pass took off the queue since the last safety sweep, because there was
    /// nothing to decide.
    pub(crate) dropped: BTreeSet<K>,
}

impl<K: QueueKey, R> Default for Passes<K, R> {
    fn default() -> Self {
        Self {
            whys: BTreeMap::new(),
            last: BTreeMap::new(),
            circles: BTreeMap::new(),
            rehearsed: BTreeMap::new(),
            counts: BTreeMap::new(),
            retries: BTreeMap::new(),
            keys_found: 0,
            dropped: BTreeSet::new(),
        }
    }
}

/// The last decision about a key, and its reason.
#[derive(Debug, Clone)]
pub struct WhyRecord<R> {
    /// The time of the decision.
    pub at: Timestamp,
    /// The reason for the object's state.
    pub why: Why<R>,
    /// The planned actions, rendered.
    pub actions: Vec<String>,
}

/// A failed pass that is counted for alerts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Count {
    /// The pass panicked.
    Panicked,
    /// The pass planned a repetition of actions that had no effect.
    NoEffect,
    /// The pass stopped because its facts were stale.
    Stale,
    /// The pass stopped because the API server rejected a write.
    Refused,
    /// The pass stopped because the API server did not answer.
    Unanswered,
    /// The pass stopped because a call may not start now.
    NotNow,
}

impl Count {
    /// Adds a number of such passes over keys of a kind.
    fn record(self, metrics: &Metrics, kind: &str, number: u64) {
        let stopped = |reason: &str| metrics.add(&STOPPED, &[("kind", kind), ("reason", reason)], number);
        match self {
            Self::Panicked => metrics.add(&PANICKED, &[("kind", kind)], number),
            Self::NoEffect => metrics.add(&NO_EFFECT, &[("kind", kind)], number),
            Self::Stale => stopped("stale"),
            Self::Refused => stopped("refused"),
            Self::Unanswered => stopped("unanswered"),
            Self::NotNow => stopped("not_now"),
        }
    }
}

/// The actions of the last pass over a key, and the facts of their decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LastPass {
    /// The fingerprint of the facts.
    pub version: u64,
    /// The actions, rendered.
    pub actions: Vec<String>,
    /// Whether the actions were tried once, are paused, or were tried again.
    pub attempt: Attempt,
    /// Until when the actions are not tried again even if the facts change: the API server rejected
    /// them or did not answer, and each failure may itself change the facts.
    pub held_until: Option<Instant>,
}

/// The attempts of actions that possibly have no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The actions were tried once.
    First,
    /// The actions had no effect. They are not tried again before this time.
    Pausing(Instant),
    /// The actions were tried again after a pause. If they have no effect again, the next pause is
    /// longer.
    Again,
}

/// The actions that were performed recently for a key. Each of them may differ from the one before
/// and change the facts, and yet lead nowhere: an object that is created, deleted and created
/// again.
#[derive(Debug, Default)]
struct Circle {
    /// The time until which the repetitions of an action count. Most objects do not change for
    /// hours, so only the hash of the rendered action is remembered.
    performed: Vec<(u64, Instant)>,
    /// The actions of the last pass that repeated too often, and the end of their pause.
    pausing: Option<(Vec<u64>, Instant)>,
    /// The number of consecutive pauses.
    pauses: u32,
}

/// One repetition of an action counts for this long. So an action may always be performed once in
/// this time.
const REPETITION_COUNTS_FOR: Duration = Duration::from_secs(1);
/// An action may be performed this often in a row, for example because other clients undo it.
const MAX_REPETITIONS: u32 = 8;
/// The first pause of a circle. Each further pause doubles.
const FIRST_CIRCLE_PAUSE: Duration = Duration::from_secs(2);
/// The longest pause of a circle.
const MAX_CIRCLE_PAUSE: Duration = Duration::from_secs(300);
/// If a circle does not begin again within this time after its pause, the pauses start again.
const CIRCLE_ENDS_AFTER: Duration = Duration::from_secs(60);
/// The number of actions of a key beyond which those whose repetitions no longer count are dropped.
const PRUNE_ABOVE: usize = 64;

impl Circle {
    /// Counts performed actions. Returns the pause if one of them repeats too often.
    fn count(&mut self, actions: &[String], now: Instant) -> Option<Duration> {
        if is_reverted(Fix::CirclesPause) {
            return None;
        }
        if PRUNE_ABOVE < self.performed.len() {
            self.performed.retain(|(_, until)| now < *until);
        }
        let mut is_circle = false;
        for action in actions {
            let until = self.counts_until(fingerprint(action), now);
            *until = (*until).max(now) + REPETITION_COUNTS_FOR;
            is_circle |= now + REPETITION_COUNTS_FOR * MAX_REPETITIONS < *until;
        }
        if !is_circle {
            return None;
        }
        let goes_on = self.pausing.as_ref().is_some_and(|(_, ended)| now < *ended + CIRCLE_ENDS_AFTER);
        self.pauses = if goes_on { self.pauses.saturating_add(1) } else { 1 };
        let pause = FIRST_CIRCLE_PAUSE * 2u32.pow((self.pauses - 1).min(10));
        let pause = pause.min(MAX_CIRCLE_PAUSE);
        // The next repetition after the pause must begin the next pause at once.
        self.performed.retain(|(_, until)| now < *until);
        let counted = self.performed.iter().map(|(action, _)| *action).collect();
        self.performed.iter_mut().for_each(|(_, until)| *until = (*until).max(now) + pause);
        self.pausing = Some((counted, now + pause));
        Some(pause)
    }

    /// The time until which the repetitions of an action count, `now` for a new one.
    fn counts_until(&mut self, action: u64, now: Instant) -> &mut Instant {
        let known = self.performed.iter().position(|(performed, _)| *performed == action);
        let place = known.unwrap_or_else(|| {
            self.performed.push((action, now));
            self.performed.len() - 1
        });
        &mut self.performed[place].1
    }

    /// Whether earlier actions no longer count.
    fn is_over(&self, now: Instant) -> bool {
        let is_pausing = self.pausing.as_ref().is_some_and(|(_, until)| now < *until + CIRCLE_ENDS_AFTER);
        !is_pausing && self.performed.iter().all(|(_, until)| *until <= now)
    }

    /// Returns the end of the pause, if one of the actions is part of a circle.
    fn pausing(&self, actions: &[String], now: Instant) -> Option<Instant> {
        let (circle, until) = self.pausing.as_ref()?;
        let is_part = |action: &String| circle.contains(&fingerprint(action));
        (now < *until && actions.iter().any(is_part)).then_some(*until)
    }
}

/// How a pass must handle its planned actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repetition {
    /// Perform the actions: the facts or the actions are new.
    New,
    /// Start a pause: the same actions had no effect before.
    WithoutEffect,
    /// Keep pausing until this time: an unrelated event woke the key.
    Pausing(Instant),
    /// Perform the actions again: the pause is over.
    AfterPause,
}

/// Maximum number of remembered rehearsed actions of one key. Beyond it, actions are logged again.
const MAX_REHEARSED: usize = 256;

impl<K: QueueKey, R> Passes<K, R> {
    /// The number of passes that failed and were tried again after a pause, by queue.
    pub(crate) fn retries(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.retries.iter().map(|(queue, number)| (*queue, *number))
    }

    /// Records the planned actions of a pass, and returns how the pass must handle them.
    pub(crate) fn repetition(&mut self, key: &K, version: u64, actions: &[String]) -> Repetition {
        if actions.is_empty() {
            self.last.remove(key);
            if self.circles.get(key).is_some_and(|circle| circle.is_over(Instant::now())) {
                self.circles.remove(key);
            }
            return Repetition::New;
        }
        if let Some(until) = self.circles.get(key).and_then(|circle| circle.pausing(actions, Instant::now()))
        {
            return Repetition::Pausing(until);
        }
        let held = self.last.get(key).filter(|last| last.actions == actions).and_then(|last| last.held_until);
        if let Some(until) = held.filter(|until| Instant::now() < *until) {
            return Repetition::Pausing(until);
        }
        let same = |last: &&mut LastPass| last.version == version && last.actions == actions;
        let Some(last) = self.last.get_mut(key).filter(same) else {
            let attempt = Attempt::First;
            let pass = LastPass { version, actions: actions.to_vec(), attempt, held_until: None };
            self.last.insert(key.clone(), pass);
            return Repetition::New;
        };
        match last.attempt {
            Attempt::First | Attempt::Again => Repetition::WithoutEffect,
            Attempt::Pausing(until) if Instant::now() < until => Repetition::Pausing(until),
            Attempt::Pausing(_) => {
                last.attempt = Attempt::Again;
                Repetition::AfterPause
            }
        }
    }

    /// Counts the performed actions of a pass. Returns the pause if they repeat too often, although
    /// the facts change in between.
    pub(crate) fn circle(&mut self, key: &K, actions: &[String]) -> Option<Duration> {
        if actions.is_empty() {
            return None;
        }
        self.circles.entry(key.clone()).or_default().count(actions, Instant::now())
    }

    /// Pauses the last actions for a key until this time.
    pub(crate) fn pause(&mut self, key: &K, until: Instant) {
        if let Some(last) = self.last.get_mut(key) {
            last.attempt = Attempt::Pausing(until);
        }
    }

    /// Pauses the last actions for a key until this time, even if the facts change meanwhile.
    pub(crate) fn hold(&mut self, key: &K, until: Instant) {
        self.pause(key, until);
        if let Some(last) = self.last.get_mut(key) {
            last.held_until = Some(until);
        }
    }

    /// Forgets the actions of the last pass, so that the next pass may repeat them.
    pub(crate) fn forget_last(&mut self, key: &K) {
        self.last.remove(key);
    }

    /// Records actions that are logged instead of performed, and returns those that are new for the
    /// key.
    pub(crate) fn newly_rehearsed(&mut self, key: &K, actions: impl Iterator<Item = String>) -> Vec<String> {
        let mut actions = actions.peekable();
        if actions.peek().is_none() {
            return Vec::new();
        }
        let known = self.rehearsed.entry(key.clone()).or_default();
        if MAX_REHEARSED <= known.len() {
            known.clear();
        }
        actions.filter(|action| known.insert(action.clone())).collect()
    }

    /// Counts a failed pass.
    pub(crate) fn count(&mut self, count: Count, kind: &'static str) {
        *self.counts.entry((count, kind)).or_default() += 1;
    }

    /// Counts a failed pass of a queue, which is tried again.
    pub(crate) fn count_retry(&mut self, count: Count, kind: &'static str, queue: &'static str) {
        self.count(count, kind);
        *self.retries.entry(queue).or_default() += u64::from(count != Count::NotNow);
    }

    /// Forgets the last decision about a key that a pass takes off the queue.
    pub(crate) fn drop_key(&mut self, key: &K) {
        self.forget_key(key);
        self.dropped.insert(key.clone());
    }

    /// Forgets the last decision about a key.
    fn forget_key(&mut self, key: &K) {
        self.whys.remove(key);
        self.last.remove(key);
        self.circles.remove(key);
        self.rehearsed.remove(key);
    }

    /// Records the counts of failed passes.
    pub(crate) fn record(&self, metrics: &Metrics) {
        metrics.add(&KEYS_FOUND, &[], self.keys_found);
        for ((count, kind), number) in &self.counts {
            count.record(metrics, kind, *number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_key::TestKey;

    #[tokio::test(start_paused = true)]
    async fn a_circle_of_different_actions_is_paused() {
        let mut passes = Passes::<TestKey<&str>, ()>::default();
        let circle = ["create".to_owned(), "delete".to_owned()];
        let mut performed = Vec::new();
        let begun = Instant::now();
        for version in 0..100_000 {
            let action = &circle[version % 2..][..1];
            if passes.repetition(&TestKey("a"), version as u64, action) == Repetition::New {
                performed.push(begun.elapsed().as_secs());
                passes.circle(&TestKey("a"), action);
            }
            tokio::time::advance(Duration::from_millis(20)).await;
        }
        let within = |seconds: u64| performed.iter().filter(|at| **at < seconds).count();
        assert!(within(60) <= 30, "{} in a minute", within(60));
        assert!(within(2000) - within(1000) <= 10, "the pauses grow");
    }

    /// A failure may change the facts, for example the time of the last one.
    #[tokio::test(start_paused = true)]
    async fn held_actions_wait_whatever_the_facts_are() {
        let mut passes = Passes::<TestKey<&str>, ()>::default();
        let (key, post, other) = (TestKey("a"), ["post".to_owned()], ["delete".to_owned()]);
        assert_eq!(passes.repetition(&key, 1, &post), Repetition::New);
        let until = Instant::now() + Duration::from_secs(5);
        passes.hold(&key, until);
        assert_eq!(passes.repetition(&key, 2, &post), Repetition::Pausing(until));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(passes.repetition(&key, 3, &post), Repetition::New);
        passes.hold(&key, Instant::now() + Duration::from_secs(5));
        assert_eq!(passes.repetition(&key, 3, &other), Repetition::New, "another action does not wait");
    }

    #[tokio::test(start_paused = true)]
    async fn an_action_that_is_due_each_second_is_no_circle() {
        let mut passes = Passes::<TestKey<&str>, ()>::default();
        for version in 0..1000 {
            let action = ["list".to_owned()];
            assert_eq!(passes.repetition(&TestKey("a"), version, &action), Repetition::New);
            assert_eq!(passes.circle(&TestKey("a"), &action), None);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    }

    #[test]
    fn a_rehearsed_action_is_new_once() {
        let mut passes = Passes::<TestKey<&str>, ()>::default();
        let mut new = |key, actions: &[&str]| {
            passes.newly_rehearsed(&TestKey(key), actions.iter().map(|&action| action.to_owned()))
        };
        assert_eq!(new("a", &["patch", "delete"]), ["patch", "delete"]);
        assert_eq!(new("a", &["patch", "other"]), ["other"]);
        assert_eq!(new("a", &[]), Vec::<String>::new());
        assert_eq!(new("a", &["patch"]), Vec::<String>::new(), "also after a pass without actions");
        assert_eq!(new("b", &["patch"]), ["patch"]);
        passes.forget_key(&TestKey("a"));
        assert_eq!(passes.newly_rehearsed(&TestKey("a"), ["patch".to_owned()].into_iter()), ["patch"]);
    }
}
