//! Memory of a process besides its stores. All of it may be lost at any time: it only saves calls
//! and repeated messages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use machinist_core::Answers;
use machinist_plan::drain::Eviction;
use machinist_plan::{Looks, NodeSeen};

use super::evidence::Evidence;

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Results of driver calls, by Machine UID.
    pub answers: BTreeMap<String, Answers>,
    /// Results of direct reads from the API server, by Machine UID.
    pub looks: BTreeMap<String, Looks>,
    /// Times since when Nodes have their observed state, by Node UID; only for Nodes with something
    /// to remember.
    pub nodes: BTreeMap<String, NodeSeen>,
    /// Evidence from the accounts.
    pub evidence: Evidence,
    /// Eviction attempts, by Machine UID, then by pod UID.
    pub evictions: BTreeMap<String, Arc<BTreeMap<String, Eviction>>>,
    /// Numbers of a set's reserved range that are known to be in use, by set UID.
    pub settled_numbers: BTreeMap<String, BTreeSet<u64>>,
    /// Time of the last status write, by object UID.
    pub status_written: BTreeMap<String, Timestamp>,
    /// Names of Machines that were read from the API server for a MachineDeployment, by its UID.
    pub looked_for: BTreeMap<String, BTreeSet<String>>,
    /// The last failure to create or delete a child, by owner UID.
    pub child_failures: BTreeMap<String, ChildFailure>,
}

/// A failure to create or delete a child.
#[derive(Debug, Clone)]
pub(crate) struct ChildFailure {
    /// Message of the API server.
    pub message: String,
    /// Number of consecutive failures.
    pub count: u32,
    /// Time of the last failure.
    pub last: Timestamp,
}

impl Memory {
    /// Forgets a deleted Machine.
    pub(crate) fn forget_machine(&mut self, uid: &str) {
        self.answers.remove(uid);
        self.looks.remove(uid);
        self.evictions.remove(uid);
    }

    /// Forgets a deleted owner of children.
    pub(crate) fn forget_owner(&mut self, uid: &str) {
        self.settled_numbers.remove(uid);
        self.status_written.remove(uid);
        self.child_failures.remove(uid);
        self.looked_for.remove(uid);
    }

    /// Forgets the facts that depend on the time at which they were learned. The facts that an
    /// instance was requested, and which instances an account has shown, stay valid. The time of a
    /// Node's state restarts at `now`.
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

    /// Returns the number of remembered Machines, and of remembered MachineSets and
    /// MachineDeployments.
    pub(crate) fn remembered(&self) -> (usize, usize) {
        let machines = self.answers.keys().chain(self.evictions.keys()).chain(self.looks.keys());
        let machines: BTreeSet<&String> = machines.collect();
        let owners = self.settled_numbers.keys().chain(self.status_written.keys());
        let owners = owners.chain(self.child_failures.keys()).chain(self.looked_for.keys());
        let owners: BTreeSet<&String> = owners.collect();
        (machines.len(), owners.len())
    }
}
