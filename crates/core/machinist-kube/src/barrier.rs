//! The own-writes barrier: no decision uses a view that lacks the writes of this process.
//!
//! A watch lags behind the writes that it reports. If a controller creates an object and looks
//! again before the watch shows the object, the controller would create it twice. So each write
//! opens a charge before it is sent. The charge belongs to the queue key that writes and to every
//! key that counts the written object. While a charge is open, its keys are not reconciled. Keys
//! that only read the object are not charged, because a burst of writes would starve them.
//!
//! ```text
//! open --> sent --+--> committed --> the store has seen the resourceVersion --> closed
//!                 +--> deleted ----> the store has seen the UID deleting or deleted --> closed
//!                 +--> gone -------> the store has seen the UID deleted --> closed
//!                 +--> not committed --> closed
//!                 +--> unknown: stays open until the write was repeated and settled
//! ```
//!
//! resourceVersions are compared only within one kind of one cluster, and planners never see them.
//! A watch may hang. [`Barrier::overdue`] returns the writes that the watch has not shown within
//! [`OVERDUE_AFTER`]. After a quorum list was applied to the store, [`Barrier::verified`] closes
//! their charges.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::cluster::Cluster;
use crate::store::{Change, ObjectKey};
use crate::sync::Instant;

/// If the watch has not shown a write within this time, one quorum list looks for the write.
pub const OVERDUE_AFTER: Duration = Duration::from_secs(10);

/// A write that is about to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    /// The API server of the object.
    pub cluster: Cluster,
    /// The kind of the object, by the name of its store (`machines`).
    pub resource: &'static str,
    /// Key of the written object.
    pub key: ObjectKey,
    /// The kind of write.
    pub kind: WriteKind,
    /// The UID in the precondition of a DELETE, so that the DELETE can be repeated for the same
    /// object.
    pub uid: Option<String>,
    /// The resourceVersion in the precondition of a DELETE, if it has one.
    pub unchanged_since: Option<String>,
}

/// The kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// POST.
    Create,
    /// PUT or PATCH.
    Update,
    /// PUT or PATCH of which a late effect does harm, for example because other objects are deleted
    /// as a result. If the answer is lost, a read proves nothing until the write can no longer take
    /// effect.
    TakeAway,
    /// DELETE.
    Delete,
    /// DELETE of an object that a controller chose among several, for a limit that may change. If
    /// the answer is lost, the DELETE is not repeated, because the controller may choose another
    /// object by then. A read proves nothing until the write can no longer take effect.
    DeleteChosen,
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The write is committed at this resourceVersion. A deletion that only set a deletionTimestamp
    /// counts as committed too, and so does a write whose effect a quorum read has found.
    Committed {
        /// The UID of the object.
        uid: String,
        /// The resourceVersion in the answer.
        resource_version: u64,
    },
    /// The object is deleted or being deleted, and the answer contained no resourceVersion.
    Deleted {
        /// The UID of the object.
        uid: String,
    },
    /// The write removed the last finalizer of an object that was being deleted, so the object is
    /// deleted. The answer shows the object before the write, so its resourceVersion is not usable.
    Gone {
        /// The UID of the object.
        uid: String,
    },
    /// The write had no effect.
    NotCommitted,
    /// The write may have had an effect. The charge stays open: repeat the write, and settle the
    /// same charge again.
    Unknown,
}

/// Identifies one open charge. A charge can be settled again after [`Settled::Unknown`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Charge(u64);

/// Reason why a queue key must wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedSince {
    /// Time at which the oldest open charge was opened.
    pub since: Instant,
    /// Number of open charges of the key.
    pub charges: usize,
    /// Charges with an unknown outcome, oldest first. Only a repetition of the write closes them.
    pub unknown: Vec<Charge>,
}

/// A write that the watch has not shown in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// The open charge of the write.
    pub charge: Charge,
    /// The write.
    pub expect: Expect,
}

/// Counters of a barrier, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BarrierMetrics {
    /// Number of open charges.
    pub open: usize,
    /// Number of open charges with an unknown outcome.
    pub unknown: usize,
    /// Number of charges that were opened since the start.
    pub opened: u64,
    /// Number of charges that became overdue.
    pub overdue: u64,
    /// How often the barrier dropped all answered charges of a kind, because its resourceVersions
    /// went back.
    pub restores: u64,
}

/// The open charges of one process.
///
/// ```
/// use machinist_kube::barrier::{Expect, Settled, WriteKind};
/// use machinist_kube::{Barrier, Change, Cluster, ObjectKey};
///
/// let mut barrier: Barrier<&str> = Barrier::new();
/// let create = Expect {
///     cluster: Cluster::Control,
///     resource: "machines",
///     key: ObjectKey::new("default", "workers-1"),
///     kind: WriteKind::Create,
///     uid: None,
///     unchanged_since: None,
/// };
/// // Before the POST is sent: the set must not count its machines until it sees this one.
/// let charge = barrier.open(&["set workers"], create);
/// assert!(barrier.blocked(&"set workers").is_some());
/// assert!(barrier.blocked(&"set other").is_none());
///
/// // The answer alone is not enough: the store has not seen the write yet.
/// let committed = Settled::Committed { uid: "uid-1".to_owned(), resource_version: 42 };
/// assert!(barrier.record_outcome(charge, committed).is_empty());
///
/// let no_changes: [Change<()>; 0] = [];
/// let woken = barrier.observe(Cluster::Control, "machines", 42, &no_changes);
/// assert_eq!(woken, ["set workers"]);
/// assert!(barrier.blocked(&"set workers").is_none());
/// ```
#[derive(Debug)]
pub struct Barrier<Q: Ord> {
    charges: BTreeMap<Charge, Open<Q>>,
    by_queue_key: BTreeMap<Q, BTreeSet<Charge>>,
    observed: BTreeMap<Place, u64>,
    next: u64,
    metrics: BarrierMetrics,
}

type Place = (Cluster, &'static str);

/// A write without an answer.
#[derive(Debug, Clone)]
pub struct Unanswered {
    /// The charge of the write.
    pub charge: Charge,
    /// The write: its object, kind and precondition.
    pub expect: Expect,
    /// The latest time at which the write was sent for the first time.
    pub sent: Instant,
    /// The latest time at which the write was sent, repetitions included.
    pub last_sent: Instant,
}

#[derive(Debug)]
struct Open<Q> {
    queue_keys: Vec<Q>,
    expect: Expect,
    since: Instant,
    /// When this process stopped to wait for the answer. A write may wait for its turn in this
    /// process for long, so it was sent at any time between `since` and this moment.
    given_up: Option<Instant>,
    /// When the write was last repeated.
    repeated: Option<Instant>,
    state: State,
    /// UIDs seen deleting or deleted under this key since the charge was opened. The watch may be
    /// faster than the answer.
    departed: BTreeMap<String, Departure>,
    reported_overdue: bool,
}

impl<Q> Open<Q> {
    fn is_at(&self, (cluster, resource): &Place) -> bool {
        self.expect.cluster == *cluster && self.expect.resource == *resource
    }

    fn unanswered(&self, charge: Charge) -> Unanswered {
        let sent = self.given_up.unwrap_or(self.since);
        let last_sent = self.repeated.map_or(sent, |repeated| repeated.max(sent));
        Unanswered { charge, expect: self.expect.clone(), sent, last_sent }
    }

    /// Whether the result of the write is certain.
    fn is_answered(&self) -> bool {
        match self.state {
            State::Sent | State::Unknown => false,
            State::Committed { .. } | State::Deleted { .. } | State::Gone { .. } => true,
        }
    }

    fn has_seen_gone(&self, uid: &str) -> bool {
        self.departed.get(uid) == Some(&Departure::Gone)
    }
}

/// How far the deletion of an object has progressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Departure {
    /// The object has a deletionTimestamp. Later writes of its status and finalizers must still be
    /// seen one by one.
    Deleting,
    /// The object is deleted.
    Gone,
}

impl Departure {
    fn of(is_gone: bool) -> Self {
        if is_gone { Self::Gone } else { Self::Deleting }
    }
}

#[derive(Debug, PartialEq)]
enum State {
    Sent,
    Unknown,
    Committed { resource_version: u64, settled_at: Instant },
    Deleted { uid: String, settled_at: Instant },
    Gone { uid: String, settled_at: Instant },
}

impl<Q: Ord + Clone> Default for Barrier<Q> {
    fn default() -> Self {
        Self::new()
    }
}

impl<Q: Ord + Clone> Barrier<Q> {
    /// A barrier without charges.
    pub fn new() -> Self {
        Self {
            charges: BTreeMap::new(),
            by_queue_key: BTreeMap::new(),
            observed: BTreeMap::new(),
            next: 0,
            metrics: BarrierMetrics::default(),
        }
    }

    /// Charges a write to queue keys. Call this before you send the write.
    pub fn open(&mut self, queue_keys: &[Q], expect: Expect) -> Charge {
        let charge = Charge(self.next);
        self.next += 1;
        self.metrics.opened += 1;
        for key in queue_keys {
            self.by_queue_key.entry(key.clone()).or_default().insert(charge);
        }
        let open = Open {
            queue_keys: queue_keys.to_vec(),
            expect,
            since: Instant::now(),
            given_up: None,
            repeated: None,
            state: State::Sent,
            departed: BTreeMap::new(),
            reported_overdue: false,
        };
        self.charges.insert(charge, open);
        charge
    }

    /// Records the result of a write. Returns the queue keys that are no longer blocked; the caller
    /// wakes them.
    ///
    /// The first certain answer stands. After [`Settled::Unknown`], two workers may settle one
    /// charge, and the older of two reads may be settled last. The older read must not free a key
    /// if the newer read has found the write.
    pub fn record_outcome(&mut self, charge: Charge, settled: Settled) -> Vec<Q> {
        let Some(open) = self.charges.get_mut(&charge) else { return Vec::new() };
        if open.is_answered() {
            return Vec::new();
        }
        let settled_at = Instant::now();
        let seen = match settled {
            Settled::NotCommitted => true,
            Settled::Unknown => {
                open.given_up = Some(settled_at);
                open.state = State::Unknown;
                false
            }
            Settled::Committed { uid, resource_version } => {
                let place = (open.expect.cluster.clone(), open.expect.resource);
                let observed = self.observed.get(&place).copied().unwrap_or_default();
                let seen = resource_version <= observed || open.has_seen_gone(&uid);
                open.state = State::Committed { resource_version, settled_at };
                seen
            }
            Settled::Deleted { uid } => {
                let seen = open.departed.contains_key(&uid);
                open.state = State::Deleted { uid, settled_at };
                seen
            }
            Settled::Gone { uid } => {
                let seen = open.has_seen_gone(&uid);
                open.state = State::Gone { uid, settled_at };
                seen
            }
        };
        if seen { self.close(&[charge]) } else { Vec::new() }
    }

    /// Records the changes of a store, and the resourceVersion up to which the store has seen all
    /// events. Call this after each `Store::apply`. Returns the queue keys that are no longer
    /// blocked; the caller wakes them.
    pub fn observe<F>(
        &mut self,
        cluster: Cluster,
        resource: &'static str,
        observed_rv: u64,
        changes: &[Change<F>],
    ) -> Vec<Q> {
        let place = (cluster, resource);
        let before = self.observed.insert(place.clone(), observed_rv).unwrap_or_default();
        if observed_rv < before {
            return self.forget_place(&place);
        }
        let leaving = changes.iter().filter(|change| change.deleting);
        let departed: Vec<(&ObjectKey, &str, Departure)> = leaving
            .map(|change| (&change.key, change.uid.as_str(), Departure::of(change.new.is_none())))
            .collect();
        let mut seen = Vec::new();
        for (charge, open) in self.charges.iter_mut().filter(|(_, open)| open.is_at(&place)) {
            let own = departed.iter().filter(|(key, _, _)| **key == open.expect.key);
            open.departed.extend(own.map(|(_, uid, departure)| ((*uid).to_owned(), *departure)));
            let is_seen = match &open.state {
                State::Sent | State::Unknown => false,
                State::Committed { resource_version, .. } => *resource_version <= observed_rv,
                State::Deleted { uid, .. } => open.departed.contains_key(uid),
                State::Gone { uid, .. } => open.has_seen_gone(uid),
            };
            if is_seen {
                seen.push(*charge);
            }
        }
        self.close(&seen)
    }

    /// The reason why this key must wait; `None` if the key has no open charges.
    pub fn blocked(&self, queue_key: &Q) -> Option<BlockedSince> {
        let charges = self.by_queue_key.get(queue_key)?;
        let open = |charge: &Charge| self.charges.get(charge);
        let unknown = |charge: &&Charge| open(charge).is_some_and(|open| open.state == State::Unknown);
        Some(BlockedSince {
            since: charges.iter().filter_map(open).map(|open| open.since).min()?,
            charges: charges.len(),
            unknown: charges.iter().filter(unknown).copied().collect(),
        })
    }

    /// The open charges of a key: their writes, and the times at which they were opened.
    pub fn open_writes(&self, queue_key: &Q) -> impl Iterator<Item = (&Expect, Instant)> {
        let charges = self.by_queue_key.get(queue_key).into_iter().flatten();
        charges.filter_map(|charge| self.expected(*charge))
    }

    /// The write of an open charge, and the time at which the charge was opened.
    fn expected(&self, charge: Charge) -> Option<(&Expect, Instant)> {
        self.charges.get(&charge).map(|open| (&open.expect, open.since))
    }

    /// The write of an open charge without an answer.
    pub fn unanswered(&self, charge: Charge) -> Option<Unanswered> {
        self.charges.get(&charge).map(|open| open.unanswered(charge))
    }

    /// All destructive writes with an unknown outcome ([`WriteKind::Delete`],
    /// [`WriteKind::DeleteChosen`] and [`WriteKind::TakeAway`]).
    pub fn unknown_losses(&self) -> Vec<Unanswered> {
        let unknown = self.charges.iter().filter(|(_, open)| open.state == State::Unknown);
        let losses = unknown.filter(|(_, open)| match open.expect.kind {
            WriteKind::Delete | WriteKind::DeleteChosen | WriteKind::TakeAway => true,
            WriteKind::Create | WriteKind::Update => false,
        });
        losses.map(|(charge, open)| open.unanswered(*charge)).collect()
    }

    /// Notes that the write of a charge is sent once more.
    pub fn repeated(&mut self, charge: Charge) {
        if let Some(open) = self.charges.get_mut(&charge) {
            open.repeated = Some(Instant::now());
        }
    }

    /// Writes that were answered [`OVERDUE_AFTER`] ago or earlier and that the watch has not shown.
    /// For each of them, the caller sends one quorum list after this call, applies the list to the
    /// store, and calls [`Barrier::verified`].
    pub fn overdue(&mut self) -> Vec<Overdue> {
        let now = Instant::now();
        let mut overdue = Vec::new();
        for (charge, open) in &mut self.charges {
            let settled_at = match open.state {
                State::Sent | State::Unknown => continue,
                State::Committed { settled_at, .. }
                | State::Deleted { settled_at, .. }
                | State::Gone { settled_at, .. } => settled_at,
            };
            if now < settled_at + OVERDUE_AFTER {
                continue;
            }
            if !std::mem::replace(&mut open.reported_overdue, true) {
                self.metrics.overdue += 1;
            }
            overdue.push(Overdue { charge: *charge, expect: open.expect.clone() });
        }
        overdue
    }

    /// Closes an answered charge, because the store contains a quorum list that was sent after the
    /// answer to the write. Returns the queue keys that are no longer blocked; the caller wakes
    /// them.
    pub fn verified(&mut self, charge: Charge) -> Vec<Q> {
        let is_answered = self.charges.get(&charge).is_some_and(Open::is_answered);
        if is_answered { self.close(&[charge]) } else { Vec::new() }
    }

    /// The current counters.
    pub fn metrics(&self) -> BarrierMetrics {
        let unknown = self.charges.values().filter(|open| open.state == State::Unknown).count();
        BarrierMetrics { open: self.charges.len(), unknown, ..self.metrics }
    }

    /// Closes the answered charges of a kind whose resourceVersions went back. Committed writes may
    /// be undone, and their resourceVersions are no longer comparable. Writes without an answer
    /// keep their charges, because they may still take effect.
    fn forget_place(&mut self, place: &Place) -> Vec<Q> {
        self.metrics.restores += 1;
        let of_place = self.charges.iter().filter(|(_, open)| open.is_at(place) && open.is_answered());
        let charges: Vec<Charge> = of_place.map(|(charge, _)| *charge).collect();
        self.close(&charges)
    }

    fn close(&mut self, charges: &[Charge]) -> Vec<Q> {
        let mut free = BTreeSet::new();
        for charge in charges {
            let Some(open) = self.charges.remove(charge) else { continue };
            for key in open.queue_keys {
                let left = self.by_queue_key.get_mut(&key).is_some_and(|of_key| {
                    of_key.remove(charge);
                    !of_key.is_empty()
                });
                if !left && self.by_queue_key.remove(&key).is_some() {
                    free.insert(key);
                }
            }
        }
        free.into_iter().collect()
    }
}
