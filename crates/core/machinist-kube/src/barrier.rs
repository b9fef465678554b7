//! The own-writes barrier: nobody decides on a view that lacks what this process itself has written.
//!
//! A watch lags behind the writes it reports. A controller that creates one object too few, and looks again before the
//! watch has shown it what it created, creates it twice. So each write is charged, from before it is sent, to the queue
//! key that makes it and to every key that counts what it changes; while a charge is open, those keys are not looked at.
//! Keys that merely see the object are not charged, or a burst of writes would starve them.
//!
//! ```text
//! open --> sent --+--> committed --> the store has seen the resourceVersion --> closed
//!                 +--> deleted ----> the store has seen the UID gone or deleting --> closed
//!                 +--> gone -------> the store has seen the UID gone --> closed
//!                 +--> not committed --> closed
//!                 +--> unknown: stays open until the write was repeated and settled
//! ```
//!
//! resourceVersions are compared within one kind of one cluster only, and planners never see one. A watch may hang: what
//! is not seen within [`OVERDUE_AFTER`] is listed by [`Barrier::overdue`], and a quorum list that was fed to the store
//! closes it with [`Barrier::verified`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::cluster::Cluster;
use crate::store::{Change, ObjectKey};
use crate::sync::Instant;

/// After this long without the watch showing a write, one quorum list looks for it.
pub const OVERDUE_AFTER: Duration = Duration::from_secs(10);

/// A write that is about to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    /// The API server.
    pub cluster: Cluster,
    /// The kind, by the name under which its store is known (`machines`).
    pub resource: &'static str,
    /// The object.
    pub key: ObjectKey,
    /// What is done to it.
    pub kind: WriteKind,
    /// The UID that a DELETE names, so that it can be repeated for the same object.
    pub uid: Option<String>,
}

/// What a write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// POST.
    Create,
    /// PUT or PATCH.
    Update,
    /// The same, of something that others are deleted for. If its answer is lost, a read tells nothing before it can have no more effect.
    TakeAway,
    /// DELETE.
    Delete,
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is committed, at this resourceVersion. A deletion that left the object there with a deletionTimestamp is one
    /// too, and so is a write whose effect was found by a quorum read.
    Committed {
        /// The UID of the object.
        uid: String,
        /// The resourceVersion in the answer.
        resource_version: u64,
    },
    /// The object is gone, or about to be; the answer named no resourceVersion.
    Deleted {
        /// The UID of the object.
        uid: String,
    },
    /// The write removed the object: it took the last finalizer off what was being deleted. The answer shows the object as it
    /// was before, so its resourceVersion says nothing.
    Gone {
        /// The UID of the object.
        uid: String,
    },
    /// It had no effect.
    NotCommitted,
    /// It may have had an effect. The charge stays open; repeat the write, and settle the same charge again.
    Unknown,
}

/// Names one open charge. It can be settled again after [`Settled::Unknown`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Charge(u64);

/// Why a queue key must wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedSince {
    /// When the oldest open charge was opened.
    pub since: Instant,
    /// How many charges are open.
    pub charges: usize,
    /// Charges whose write must be repeated, oldest first; nothing else will close them.
    pub unknown: Vec<Charge>,
}

/// A write that the watch has not shown in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// Its charge.
    pub charge: Charge,
    /// What was written.
    pub expect: Expect,
}

/// Counters for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BarrierMetrics {
    /// Charges open now.
    pub open: usize,
    /// Of these, how many have an unknown outcome.
    pub unknown: usize,
    /// How many charges were ever opened.
    pub opened: u64,
    /// How often a charge became overdue.
    pub overdue: u64,
    /// How often all charges of a kind were dropped because its resourceVersions went back.
    pub restores: u64,
}

/// The open charges of one process.
#[derive(Debug)]
pub struct Barrier<Q: Ord> {
    charges: BTreeMap<Charge, Open<Q>>,
    by_queue_key: BTreeMap<Q, BTreeSet<Charge>>,
    observed: BTreeMap<Place, u64>,
    next: u64,
    metrics: BarrierMetrics,
}

type Place = (Cluster, &'static str);

#[derive(Debug)]
struct Open<Q> {
    queue_keys: Vec<Q>,
    expect: Expect,
    since: Instant,
    state: State,
    /// UIDs seen deleting or gone under this key since the charge was opened: the watch may be faster than the answer.
    departed: BTreeMap<String, Departure>,
    reported_overdue: bool,
}

impl<Q> Open<Q> {
    fn is_at(&self, (cluster, resource): &Place) -> bool {
        self.expect.cluster == *cluster && self.expect.resource == *resource
    }

    /// Whether it is certain what became of the write.
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

/// How far an object is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Departure {
    /// It has a deletionTimestamp. Its status and finalizers are still written, and such writes are seen one by one.
    Deleting,
    /// It is not there any more.
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

    /// Charges a write to queue keys. Call this before sending it.
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
            state: State::Sent,
            departed: BTreeMap::new(),
            reported_overdue: false,
        };
        self.charges.insert(charge, open);
        charge
    }

    /// Notes what became of a write. Returns the queue keys that nothing blocks any more: wake them.
    ///
    /// The first certain answer stands. Two workers may settle one charge after [`Settled::Unknown`], and the one that looked earlier
    /// may come later: what it says must not free a key whose write the other one has found.
    pub fn settle(&mut self, charge: Charge, settled: Settled) -> Vec<Q> {
        let Some(open) = self.charges.get_mut(&charge) else { return Vec::new() };
        if open.is_answered() {
            return Vec::new();
        }
        let settled_at = Instant::now();
        let seen = match settled {
            Settled::NotCommitted => true,
            Settled::Unknown => {
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

    /// Notes what a store has seen: its changes, and up to which resourceVersion it has seen everything. Call it after
    /// each `Store::apply`. Returns the queue keys that nothing blocks any more: wake them.
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

    /// Whether this key must wait, and since when.
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

    /// What was to be written under this charge, while it is open, and when it was sent.
    pub fn expected(&self, charge: Charge) -> Option<(&Expect, Instant)> {
        self.charges.get(&charge).map(|open| (&open.expect, open.since))
    }

    /// The writes without an answer that take something away, whoever waits for them; each with when it was sent.
    pub fn unknown_losses(&self) -> Vec<(Charge, Expect, Instant)> {
        let unknown = self.charges.iter().filter(|(_, open)| open.state == State::Unknown);
        let losses = unknown.filter(|(_, open)| match open.expect.kind {
            WriteKind::Delete | WriteKind::TakeAway => true,
            WriteKind::Create | WriteKind::Update => false,
        });
        losses.map(|(charge, open)| (*charge, open.expect.clone(), open.since)).collect()
    }

    /// Writes that were answered more than [`OVERDUE_AFTER`] ago and that the watch has not shown. For each: one quorum
    /// list, sent after this call, into the store; then [`Barrier::verified`].
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

    /// A quorum list that was sent after the write was answered is in the store: the charge is closed. Returns the queue
    /// keys that nothing blocks any more: wake them.
    pub fn verified(&mut self, charge: Charge) -> Vec<Q> {
        let is_answered = self.charges.get(&charge).is_some_and(Open::is_answered);
        if is_answered { self.close(&[charge]) } else { Vec::new() }
    }

    /// Counters.
    pub fn metrics(&self) -> BarrierMetrics {
        let unknown = self.charges.values().filter(|open| open.state == State::Unknown).count();
        BarrierMetrics { open: self.charges.len(), unknown, ..self.metrics }
    }

    /// resourceVersions went back, so what was committed may be undone, and nothing can be compared any more. Writes
    /// without an answer keep their charge: they still may come to effect.
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
