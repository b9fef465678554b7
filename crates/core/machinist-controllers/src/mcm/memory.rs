//! What a process remembers beside its stores. All of it may be lost at any moment: it only saves calls, or tells people.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use machinist_core::Answers;
use machinist_plan::drain::Eviction;
use machinist_plan::{Looks, NodeSeen};

use super::evidence::Evidence;

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
    /// Numbers of a set's open range that are known to be in use, by set UID.
    pub settled_numbers: BTreeMap<String, BTreeSet<u64>>,
    /// When the status of an object was last written, by UID.
    pub status_written: BTreeMap<String, Timestamp>,
    /// Names of Machines that were looked up at the API server itself for a deployment, by its UID.
    pub looked_for: BTreeMap<String, BTreeSet<String>>,
    /// The last failure to create or delete a child, by owner UID.
    pub child_failures: BTreeMap<String, ChildFailure>,
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

    /// How many Machines, and how many sets and deployments, something is remembered of.
    pub(crate) fn remembered(&self) -> (usize, usize) {
        let machines = self.answers.keys().chain(self.evictions.keys()).chain(self.looks.keys());
        let machines: BTreeSet<&String> = machines.collect();
        let owners = self.settled_numbers.keys().chain(self.status_written.keys());
        let owners = owners.chain(self.child_failures.keys()).chain(self.looked_for.keys());
        let owners: BTreeSet<&String> = owners.collect();
        (machines.len(), owners.len())
    }
}
