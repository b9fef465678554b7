//! What was decided last about each key. All of it may be lost at any moment: it only saves calls, or tells people.

use std::collections::BTreeMap;

use jiff::Timestamp;
use machinist_core::Why;
use tokio::time::Instant;

use crate::contract::QueueKey;

/// The last decisions of one process.
#[derive(Debug)]
pub struct Passes<K: QueueKey, R> {
    /// What was last decided, and why.
    pub whys: BTreeMap<K, WhyRecord<R>>,
    /// What was last done, to see when doing it again changes nothing.
    last: BTreeMap<K, LastPass>,
    /// How often passes over keys of a kind did not come to a good end.
    counts: BTreeMap<(Count, &'static str), u64>,
    /// How many keys the safety sweep has found that no queue held.
    pub(crate) keys_found: u64,
}

impl<K: QueueKey, R> Default for Passes<K, R> {
    fn default() -> Self {
        Self { whys: BTreeMap::new(), last: BTreeMap::new(), counts: BTreeMap::new(), keys_found: 0 }
    }
}

/// What was last decided about a key, and why.
#[derive(Debug, Clone)]
pub struct WhyRecord<R> {
    /// When.
    pub at: Timestamp,
    /// Why.
    pub why: Why<R>,
    /// What was done.
    pub actions: Vec<String>,
}

/// An end of a pass that is counted, for alarms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Count {
    /// It panicked.
    Panicked,
    /// It would have done again what changed nothing before.
    NoEffect,
    /// It stopped: the view was stale.
    Stale,
    /// It stopped: the API server refused.
    Refused,
    /// It stopped: the API server did not answer.
    Unanswered,
    /// It stopped: a call may not be started now.
    NotNow,
}

impl Count {
    /// The name under which it is counted, with its labels.
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

/// The actions of the last pass over a key, and what they were decided from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LastPass {
    /// Which versions of which objects.
    pub version: u64,
    /// The actions, rendered.
    pub actions: Vec<String>,
    /// How far the pauses between attempts have come.
    pub attempt: Attempt,
}

/// How an action is tried that may change nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// For the first time.
    First,
    /// Not before then: it has changed nothing.
    Pausing(Instant),
    /// After a pause. If that changes nothing either, the next pause is longer.
    Again,
}

/// What a pass should do with its actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repetition {
    /// Perform them: the facts or the actions are new.
    New,
    /// Pause: performing them has changed nothing.
    WithoutEffect,
    /// Go on pausing until then: something woke the key that has nothing to do with it.
    Pausing(Instant),
    /// Perform them: a pause is over.
    AfterPause,
}

impl<K: QueueKey, R> Passes<K, R> {
    /// Notes what a pass over a key is about to do, and says whether it should.
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

    /// Notes how long the actions of the last pass over a key are not tried again.
    pub(crate) fn pause(&mut self, key: &K, until: Instant) {
        if let Some(last) = self.last.get_mut(key) {
            last.attempt = Attempt::Pausing(until);
        }
    }

    /// Forgets the actions of the last pass: the next one may repeat them.
    pub(crate) fn forget_last(&mut self, key: &K) {
        self.last.remove(key);
    }

    /// Counts an end of a pass.
    pub(crate) fn count(&mut self, count: Count, kind: &'static str) {
        *self.counts.entry((count, kind)).or_default() += 1;
    }

    /// Forgets what was decided about a key.
    pub(crate) fn forget_key(&mut self, key: &K) {
        self.whys.remove(key);
        self.last.remove(key);
    }

    /// The counts, by the name of their metric.
    pub(crate) fn counted(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        self.counts.iter().map(|((count, kind), total)| (count.metric(kind), *total))
    }
}
