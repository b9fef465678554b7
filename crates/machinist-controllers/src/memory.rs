//! What a process remembers beside its stores. All of it may be lost at any moment: it only saves calls, or tells people.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use machinist_plan::drain::Eviction;
use machinist_plan::{Answers, Looks, NodeSeen, Why};
use tokio::time::Instant;

use crate::Key;
use crate::evidence::Evidence;

/// The memory of one process.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// What the driver answered, by Machine UID.
    pub answers: BTreeMap<String, Answers>,
    /// What was read from the API server itself, by Machine UID.
    pub looks: BTreeMap<String, Looks>,
    /// Since when Nodes have been seen as they are, by their UID; only of those with something to remember.
    pub nodes: BTreeMap<String, NodeSeen>,
    /// What the accounts have shown.
    pub evidence: Evidence,
    /// Attempts at evicting pods, by Machine UID, then by pod UID.
    pub evictions: BTreeMap<String, Arc<BTreeMap<String, Eviction>>>,
    /// What was last decided, and why.
    pub whys: BTreeMap<Key, WhyRecord>,
    /// Numbers of a set's open range that are known to be in use, by set UID.
    pub settled_numbers: BTreeMap<String, BTreeSet<u64>>,
    /// When the status of an object was last written, by UID.
    pub status_written: BTreeMap<String, Timestamp>,
    /// Names of Machines that were looked up at the API server itself for a deployment, by its UID.
    pub looked_for: BTreeMap<String, BTreeSet<String>>,
    /// The last failure to create or delete a child, by owner UID.
    pub child_failures: BTreeMap<String, ChildFailure>,
    /// What was last done, to see when doing it again changes nothing.
    pub last_pass: BTreeMap<Key, LastPass>,
    /// How often passes over keys of a kind did not come to a good end.
    pub counts: BTreeMap<(Count, &'static str), u64>,
    /// How many keys the safety sweep has found that no queue held.
    pub keys_found: u64,
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

/// A failure to create or delete a child.
#[derive(Debug, Clone)]
pub(crate) struct ChildFailure {
    /// What the API server said.
    pub message: String,
    /// How often in a row.
    pub count: u32,
    /// When last.
    pub last: Timestamp,
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

/// What was last decided about a key, and why.
#[derive(Debug, Clone)]
pub struct WhyRecord {
    /// When.
    pub at: Timestamp,
    /// Why.
    pub why: Why,
    /// What was done.
    pub actions: Vec<String>,
}

impl Memory {
    /// Forgets a Machine that is gone.
    pub(crate) fn forget_machine(&mut self, uid: &str) {
        self.answers.remove(uid);
        self.looks.remove(uid);
        self.evictions.remove(uid);
    }

    /// Forgets an owner of children that is gone.
    pub(crate) fn forget_owner(&mut self, uid: &str) {
        self.settled_numbers.remove(uid);
        self.status_written.remove(uid);
        self.child_failures.remove(uid);
        self.looked_for.remove(uid);
    }

    /// Forgets the facts that depend on the time at which they were learned. That an instance was asked for, and what an account has
    /// shown, stays true. Since when a Node has been seen as it is begins with `now`.
    pub(crate) fn forget_moments(&mut self, now: Timestamp) {
        self.nodes.values_mut().for_each(|seen| seen.begin_again(now));
        self.looks.clear();
        for answers in self.answers.values_mut() {
            *answers = Answers {
                ever_ensured: answers.ever_ensured,
                made_in: std::mem::take(&mut answers.made_in),
                shown_in: answers.shown_in.take(),
                ..Answers::default()
            };
        }
        self.evidence.forget_moments();
        self.evictions.clear();
        self.status_written.clear();
        self.child_failures.clear();
    }

    /// Notes what a pass over a key is about to do, and says whether it should.
    pub(crate) fn repetition(&mut self, key: &Key, version: u64, actions: &[String]) -> Repetition {
        if actions.is_empty() {
            self.last_pass.remove(key);
            return Repetition::New;
        }
        let same = |last: &&mut LastPass| last.version == version && last.actions == actions;
        let Some(last) = self.last_pass.get_mut(key).filter(same) else {
            let pass = LastPass { version, actions: actions.to_vec(), attempt: Attempt::First };
            self.last_pass.insert(key.clone(), pass);
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
    pub(crate) fn pause(&mut self, key: &Key, until: Instant) {
        if let Some(last) = self.last_pass.get_mut(key) {
            last.attempt = Attempt::Pausing(until);
        }
    }

    /// How many Machines, and how many sets and deployments, something is remembered of.
    pub(crate) fn remembered(&self) -> (usize, usize) {
        let machines = self.answers.keys().chain(self.evictions.keys()).chain(self.looks.keys());
        let machines: BTreeSet<&String> = machines.collect();
        let owners = self.settled_numbers.keys().chain(self.status_written.keys());
        let owners = owners.chain(self.child_failures.keys()).chain(self.looked_for.keys());
        let owners: BTreeSet<&String> = owners.collect();
        (machines.len(), owners.len())
    }

    /// Counts an end of a pass.
    pub(crate) fn count(&mut self, count: Count, kind: &'static str) {
        *self.counts.entry((count, kind)).or_default() += 1;
    }

    /// Forgets what was decided about a key.
    pub(crate) fn forget_key(&mut self, key: &Key) {
        self.whys.remove(key);
        self.last_pass.remove(key);
    }
}
