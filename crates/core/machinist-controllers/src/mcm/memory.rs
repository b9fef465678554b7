//! Memory of a process besides its stores. All of it may be lost at any time: it only saves calls
//! and repeated messages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use machinist_core::Answers;
use machinist_instance::{AccountId, Place};
use machinist_plan::mcm::drain::{Eviction, VolumeWait};
use machinist_plan::mcm::facts::MachineFacts;
use machinist_plan::mcm::late_adoption::LateAdoption;
use machinist_plan::mcm::lost_owner::OwnerRead;
use machinist_plan::mcm::machine_set::ChildFailure;
use machinist_plan::mcm::orphan::AccountOrphans;
use machinist_plan::mcm::orphaned_node::MachineRead;
use machinist_plan::mcm::orphaned_token::OwnerLook;
use machinist_plan::mcm::{NodeSeen, Reads};
use tokio::time::Instant;

use machinist_runtime::LAST_WRITES;

/// The proofs of all accounts, by what opens the account of a Machine.
pub(crate) type Proofs = crate::account_proof::AccountProofs<Opener>;

/// The Secret that opens an account, if a class refers to one, and the place of the cloud. The
/// instances of one Secret in two places say nothing about each other.
pub(crate) type Opener = (Option<(String, String)>, Place);

/// Maximum number of remembered Machines that ended without this process.
const MAX_LOST_MACHINES: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Results of driver calls, by Machine UID.
    pub answers: BTreeMap<String, Box<Answers>>,
    /// UIDs of Machines whose finalizer this process removes.
    pub released: BTreeSet<String>,
    /// Results of direct reads from the API server, by Machine UID.
    pub reads: BTreeMap<String, Reads>,
    /// Times since when Nodes have their observed state, by Node UID; only for Nodes with something
    /// to remember.
    pub nodes: BTreeMap<String, NodeSeen>,
    /// The last look for the MachineSet of a Machine whose set is unknown, by Machine UID.
    pub owner_looks: BTreeMap<String, OwnerRead>,
    /// The last list of Machines for a Node that no Machine seems to have, by Node UID.
    pub machine_looks: BTreeMap<String, MachineRead>,
    /// The UID of the namespace that this process serves, once it was read; empty inside if it may
    /// not be read.
    pub namespace_uid: Option<Option<String>>,
    /// The results of the search for orphans, by account.
    pub orphans: BTreeMap<AccountId, Arc<AccountOrphans>>,
    /// UIDs of Machines whose end this process saw, although it did not remove their finalizer.
    pub lost_machines: BTreeSet<String>,
    /// When the list of Machines that is in flight for all Nodes ends, at the latest.
    pub listing_until: Option<Timestamp>,
    /// The last read of the Machine of a token that seems to be gone, by UID of the token.
    pub token_looks: BTreeMap<String, OwnerLook>,
    /// Proofs from the accounts.
    pub proofs: Proofs,
    /// Eviction attempts, by Machine UID, then by pod UID.
    pub evictions: BTreeMap<String, Arc<BTreeMap<String, Eviction>>>,
    /// Waits for the volumes of pods that leave, by Machine UID, then by pod UID.
    pub volume_waits: BTreeMap<String, Arc<BTreeMap<String, VolumeWait>>>,
    /// Numbers of a set's reserved range that are known to be in use, by set UID.
    pub finished_numbers: BTreeMap<String, BTreeSet<u64>>,
    /// Since when MachineSets have too many Machines, by set UID.
    pub overshooting_since: BTreeMap<String, Timestamp>,
    /// Time of the last status write, by object UID.
    pub status_written: BTreeMap<String, Timestamp>,
    /// Names of Machines that were read from the API server for a MachineDeployment, by its UID.
    pub looked_for: BTreeMap<String, BTreeSet<String>>,
    /// Writes that raise the size of a MachineSet and had no answer, by the UID of the
    /// MachineDeployment and the name of the set.
    pub open_raises: BTreeMap<String, BTreeMap<String, Raise>>,
    /// Adoptions that may take effect, or took effect, after the deletion of the owner began, by
    /// the UID of the owner.
    pub late_adoptions: BTreeMap<String, Vec<Adoption>>,
    /// Machines that were marked in a row because they could never join, by UID of their set.
    pub never_joined: BTreeMap<String, NeverJoined>,
    /// The last failure to create a Machine, by UID of its set.
    pub child_failures: BTreeMap<String, ChildFailure>,
    /// The Machines that left their set soon after their creation, by UID of the set.
    pub strays: BTreeMap<String, ChildFailure>,
    /// The last rejection of a new MachineSet, by the UID of its MachineDeployment.
    pub set_failures: BTreeMap<String, String>,
    /// The last failure of a set to delete a Machine, by Machine UID.
    pub kept: BTreeMap<String, ChildFailure>,
}

/// An adoption that may take effect after the deletion of the owner began.
#[derive(Debug, Clone)]
pub(crate) struct Adoption {
    /// The facts for the planner of the owner.
    pub late: LateAdoption,
    /// When the patch can no longer take effect.
    pub lands_until: Instant,
    /// Whether a read has shown that the owner stayed after the patch took effect.
    pub is_in_time: bool,
}

/// Machines of a set that were marked in a row because they could never join.
#[derive(Debug, Clone)]
pub(crate) struct NeverJoined {
    /// Number of Machines.
    pub count: u32,
    /// When the last one was marked.
    pub last: Timestamp,
}

/// A write that raises the size of a MachineSet.
#[derive(Debug, Clone)]
pub(crate) struct Raise {
    /// For a patch, the UID of the set and the generation that the patch tests.
    pub patched: Option<(String, Option<i64>)>,
    /// When the write was sent, at the latest.
    pub sent: Instant,
}

impl Raise {
    /// Until when the write may take effect.
    pub(crate) fn until(&self) -> Instant {
        self.sent + LAST_WRITES
    }

    /// Whether the write may still take effect.
    pub(crate) fn may_land(&self) -> bool {
        Instant::now() < self.until()
    }
}

impl Memory {
    /// Returns the number of unanswered writes that may still raise the size of a set.
    pub(crate) fn late_raises(&self) -> usize {
        let raises = self.open_raises.values().flat_map(BTreeMap::values);
        raises.filter(|raise| raise.may_land()).count()
    }

    /// Returns the number of adoptions that may still take effect.
    pub(crate) fn open_adoptions(&self) -> usize {
        let now = Instant::now();
        let late = self.late_adoptions.values().flatten().filter(|adoption| !adoption.is_in_time);
        late.filter(|adoption| now < adoption.lands_until).count()
    }

    /// Returns the adoptions of children by an owner that may be late.
    pub(crate) fn late_adoptions_of(&self, owner_uid: &str) -> Vec<LateAdoption> {
        let of_owner = self.late_adoptions.get(owner_uid).into_iter().flatten();
        of_owner.filter(|adoption| !adoption.is_in_time).map(|adoption| adoption.late.clone()).collect()
    }

    /// Returns the results of the search for orphans in an account; empty if there are none yet.
    pub(crate) fn orphans_of(&mut self, account: &AccountId) -> &mut AccountOrphans {
        Arc::make_mut(self.orphans.entry(account.clone()).or_default())
    }

    /// Remembers that a Machine ended without this process. Its instance may be left.
    /// `saw_deletion` is whether a user asked for its deletion.
    pub(crate) fn lose_machine(&mut self, machine: &MachineFacts, saw_deletion: bool, now: Timestamp) {
        if MAX_LOST_MACHINES <= self.lost_machines.len() {
            // Without the record, an orphan is kept if the Nodes are not known.
            self.lost_machines.clear();
        }
        if saw_deletion {
            self.lost_machines.insert(machine.uid.clone());
        }
        self.suspect_orphans(machine, now);
    }

    /// Remembers that the account of a Machine may have an orphan.
    pub(crate) fn suspect_orphans(&mut self, machine: &MachineFacts, now: Timestamp) {
        if let Some(orphans) = machine.account().and_then(|account| self.orphans.get_mut(&account)) {
            Arc::make_mut(orphans).suspected = Some(now);
        }
    }

    /// Forgets the drain of a Machine that has ended while the Machine stays.
    pub(crate) fn forget_drain(&mut self, machine_uid: &str) {
        self.evictions.remove(machine_uid);
        self.volume_waits.remove(machine_uid);
    }

    /// Forgets a deleted Machine.
    pub(crate) fn forget_machine(&mut self, uid: &str) {
        self.answers.remove(uid);
        self.released.remove(uid);
        self.owner_looks.remove(uid);
        self.reads.remove(uid);
        self.evictions.remove(uid);
        self.volume_waits.remove(uid);
        self.kept.remove(uid);
    }

    /// Forgets a deleted owner of children.
    pub(crate) fn forget_owner(&mut self, uid: &str) {
        self.finished_numbers.remove(uid);
        self.overshooting_since.remove(uid);
        self.status_written.remove(uid);
        self.child_failures.remove(uid);
        self.strays.remove(uid);
        self.set_failures.remove(uid);
        self.never_joined.remove(uid);
        self.looked_for.remove(uid);
        self.open_raises.remove(uid);
        self.late_adoptions.remove(uid);
    }

    /// Forgets the facts that depend on the time at which they were learned. The facts that an
    /// instance was requested, and which instances an account has shown, stay valid. The time of a
    /// Node's state restarts at `now`.
    pub(crate) fn forget_moments(&mut self, now: Timestamp) {
        self.nodes.values_mut().for_each(|seen| seen.begin_again(now));
        self.reads.clear();
        self.machine_looks.clear();
        self.orphans.clear();
        self.listing_until = None;
        self.token_looks.clear();
        for answers in self.answers.values_mut() {
            **answers = Answers {
                ever_ensured: answers.ever_ensured,
                waited: answers.waited,
                made_in: std::mem::take(&mut answers.made_in),
                called_in: answers.called_in.take(),
                called_within: answers.called_within.take(),
                shown_in: answers.shown_in.take(),
                ..Answers::default()
            };
        }
        self.proofs.forget_moments();
        self.evictions.clear();
        self.volume_waits.clear();
        self.overshooting_since.clear();
        self.status_written.clear();
        self.child_failures.clear();
        self.set_failures.clear();
        self.kept.clear();
    }

    /// Returns the number of remembered Machines, and of remembered MachineSets and
    /// MachineDeployments.
    pub(crate) fn remembered(&self) -> (usize, usize) {
        let machines =
            self.answers.keys().chain(self.evictions.keys()).chain(self.reads.keys()).chain(self.kept.keys());
        let machines: BTreeSet<&String> = machines.collect();
        let owners = self.finished_numbers.keys().chain(self.status_written.keys());
        let owners = owners
            .chain(self.child_failures.keys())
            .chain(self.strays.keys())
            .chain(self.set_failures.keys())
            .chain(self.looked_for.keys());
        let owners = owners.chain(self.open_raises.keys()).chain(self.late_adoptions.keys());
        let owners: BTreeSet<&String> = owners.collect();
        (machines.len(), owners.len())
    }
}
