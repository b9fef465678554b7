//! The last decision about each key. This memory may be lost at any moment, because it only saves
//! calls and informs users.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use machinist_core::Why;
use tokio::time::Instant;

use crate::contract::QueueKey;

/// The last decisions of a process, by key.
#[derive(Debug)]
pub struct Passes<K: QueueKey, R> {
    /// The last decision about each key, and its reason.
    pub whys: BTreeMap<K, WhyRecord<R>>,
    /// The last actions for each key, used to detect actions without effect.
    last: BTreeMap<K, LastPass>,
    /// The actions that were logged instead of performed, rendered.
    rehearsed: BTreeMap<K, BTreeSet<String>>,
    /// The number of failed passes, by cause and kind.
    counts: BTreeMap<(Count, &'static str), u64>,
    /// The number of lost keys that the safety sweep has found.
    pub(crate) keys_found: u64,
}

impl<K: QueueKey, R> Default for Passes<K, R> {
    fn default() -> Self {
        Self {
            whys: BTreeMap::new(),
            last: BTreeMap::new(),
            rehearsed: BTreeMap::new(),
            counts: BTreeMap::new(),
            keys_found: 0,
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
    /// The name of the metric, with labels.
    pub(crate) fn metric(self, kind: &str) -> String {
        let stopped =
            |reason| format!("machinist_passes_stopped_total{{kind=\"{kind}\",reason=\"{reason}\"}}");
        match self {
            Self::Panicked => format!("machinist_passes_panicked_total{{kind=\"{kind}\"}}"),
            Self::NoEffect => format!("machinist_passes_without_effect_total{{kind=\"{kind}\"}}"),
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
const MOST_REHEARSED: usize = 256;

impl<K: QueueKey, R> Passes<K, R> {
    /// Records the planned actions of a pass, and returns how the pass must handle them.
    pub(crate) fn repetition(&mut self, key: &K, version: u64, actions: &[String]) -> Repetition {
        if actions.is_empty() {
            self.last.remove(key);
            return Repetition::New;
        }
        let same = |last: &&mut LastPass| last.version == version && last.actions == actions;
        let Some(last) = self.last.get_mut(key).filter(same) else {
            let pass = LastPass { version, actions: actions.to_vec(), attempt: Attempt::First };
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

    /// Pauses the last actions for a key until this time.
    pub(crate) fn pause(&mut self, key: &K, until: Instant) {
        if let Some(last) = self.last.get_mut(key) {
            last.attempt = Attempt::Pausing(until);
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
        if MOST_REHEARSED <= known.len() {
            known.clear();
        }
        actions.filter(|action| known.insert(action.clone())).collect()
    }

    /// Counts a failed pass.
    pub(crate) fn count(&mut self, count: Count, kind: &'static str) {
        *self.counts.entry((count, kind)).or_default() += 1;
    }

    /// Forgets the last decision about a key.
    pub(crate) fn forget_key(&mut self, key: &K) {
        self.whys.remove(key);
        self.last.remove(key);
        self.rehearsed.remove(key);
    }

    /// The counts, with the names of their metrics.
    pub(crate) fn counted(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        self.counts.iter().map(|((count, kind), total)| (count.metric(kind), *total))
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
    struct Named(&'static str);

    impl QueueKey for Named {
        fn kind(&self) -> &'static str {
            "named"
        }
    }

    impl fmt::Display for Named {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    #[test]
    fn a_rehearsed_action_is_new_once() {
        let mut passes = Passes::<Named, ()>::default();
        let mut new = |key, actions: &[&str]| {
            passes.newly_rehearsed(&Named(key), actions.iter().map(|&action| action.to_owned()))
        };
        assert_eq!(new("a", &["patch", "delete"]), ["patch", "delete"]);
        assert_eq!(new("a", &["patch", "other"]), ["other"]);
        assert_eq!(new("a", &[]), Vec::<String>::new());
        assert_eq!(new("a", &["patch"]), Vec::<String>::new(), "also after a pass without actions");
        assert_eq!(new("b", &["patch"]), ["patch"]);
        passes.forget_key(&Named("a"));
        assert_eq!(passes.newly_rehearsed(&Named("a"), ["patch".to_owned()].into_iter()), ["patch"]);
    }
}
