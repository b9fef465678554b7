//! Every instance ever made, with indexes. Only [`LedgerCommit`]s change it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use machinist_instance::{InstanceKey, InstanceRef, NodeName, ProviderId};

use crate::{LedgerCommit, LedgerEntry, Operation};

/// The instances that a lookup sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sight {
    /// All instances in the ledger. Creation uses this view, which makes it idempotent.
    Exact,
    /// Instances that reads show: a new instance appears after a delay.
    Lagging,
}

/// The instances that a call can see. The cloud's operator sees all of them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reach<'a> {
    /// Only instances of this project.
    pub(crate) project: Option<&'a str>,
    /// Only instances of this region.
    pub(crate) region: Option<&'a str>,
    /// Only instances of this zone.
    pub(crate) zone: Option<&'a str>,
}

impl Reach<'_> {
    /// Whether a call can see the instance.
    pub(crate) fn has(self, entry: &LedgerEntry) -> bool {
        self.project.is_none_or(|project| entry.project == project)
            && self.region.is_none_or(|region| entry.region == region)
            && self.zone.is_none_or(|zone| entry.zone == zone)
    }
}

#[derive(Debug, Default)]
pub(crate) struct State {
    entries: BTreeMap<u64, LedgerEntry>,
    by_id: BTreeMap<ProviderId, u64>,
    by_key: BTreeMap<InstanceKey, BTreeSet<u64>>,
    by_name: BTreeMap<NodeName, BTreeSet<u64>>,
    existing: BTreeSet<u64>,
    ending: BTreeSet<u64>,
}

impl State {
    pub(crate) fn next_serial(&self) -> u64 {
        self.entries.last_key_value().map_or(1, |(last, _)| last + 1)
    }

    pub(crate) fn ever(&self) -> impl Iterator<Item = &LedgerEntry> {
        self.entries.values()
    }

    /// Instances not recorded as deleted; a deletion may have ended since.
    pub(crate) fn existing(&self) -> impl Iterator<Item = &LedgerEntry> {
        self.existing.iter().filter_map(|serial| self.entries.get(serial))
    }

    /// Commits for deletions that have ended but are not committed yet.
    pub(crate) fn ended_by(&self, now: Timestamp) -> Vec<LedgerCommit> {
        self.ending
            .iter()
            .filter_map(|serial| self.entries.get(serial))
            .filter_map(|entry| {
                let deletion = entry.deletion.filter(|deletion| deletion.gone_at <= now)?;
                Some(LedgerCommit::Gone { id: entry.id.clone(), at: deletion.gone_at })
            })
            .collect()
    }

    pub(crate) fn by_id(&self, id: &ProviderId) -> Option<&LedgerEntry> {
        self.entries.get(self.by_id.get(id)?)
    }

    /// The instance ever made for a key within reach, deleted or not. It may carry another key by
    /// now.
    pub(crate) fn by_key(&self, key: &InstanceKey, reach: Reach<'_>) -> Option<&LedgerEntry> {
        let serials = self.by_key.get(key)?;
        serials.iter().filter_map(|serial| self.entries.get(serial)).find(|entry| reach.has(entry))
    }

    /// The existing instance of a name within reach; the oldest if others made several.
    pub(crate) fn by_name(&self, name: &NodeName, reach: Reach<'_>, now: Timestamp) -> Option<&LedgerEntry> {
        self.by_name
            .get(name)?
            .iter()
            .filter_map(|serial| self.entries.get(serial))
            .find(|entry| reach.has(entry) && entry.is_alive_at(now))
    }

    /// The existing instance that a reference names: by id; without an id by key; if no instance
    /// has the key, by name.
    pub(crate) fn locate(
        &self,
        which: &InstanceRef,
        reach: Reach<'_>,
        now: Timestamp,
        sight: Sight,
    ) -> Option<&LedgerEntry> {
        let shown = |entry: &&LedgerEntry| {
            entry.is_alive_at(now) && (sight == Sight::Exact || entry.visible_at <= now)
        };
        if let Some(id) = &which.id {
            return self.by_id(id).filter(|entry| reach.has(entry)).filter(shown);
        }
        let carries_it = |entry: &&LedgerEntry| entry.key == which.key;
        let of_key = which.key.as_ref().and_then(|key| self.by_key(key, reach));
        let of_key = of_key.filter(carries_it).filter(shown);
        let of_name = || which.name.as_ref().and_then(|name| self.by_name(name, reach, now)).filter(shown);
        of_key.or_else(of_name)
    }

    pub(crate) fn count_call(
        &mut self,
        which: &InstanceRef,
        reach: Reach<'_>,
        operation: Operation,
        now: Timestamp,
    ) {
        let serial = self.locate(which, reach, now, Sight::Exact).map(|entry| entry.serial);
        if let Some(entry) = serial.and_then(|serial| self.entries.get_mut(&serial)) {
            *entry.calls.entry(operation).or_default() += 1;
        }
    }

    pub(crate) fn apply(&mut self, commit: &LedgerCommit) {
        match commit {
            LedgerCommit::Made { entry } => self.insert((**entry).clone()),
            LedgerCommit::Adopted { id, key, cluster, .. } => {
                if let Some(entry) = self.entry_mut(id) {
                    entry.key = Some(key.clone());
                    entry.cluster = Some(cluster.clone());
                    let serial = entry.serial;
                    self.by_key.entry(key.clone()).or_default().insert(serial);
                }
            }
            LedgerCommit::Rekeyed { id, key, .. } => {
                if let Some(entry) = self.entry_mut(id) {
                    entry.key = Some(key.clone());
                    let serial = entry.serial;
                    // The old key stays spent: a second instance must not be made for it.
                    self.by_key.entry(key.clone()).or_default().insert(serial);
                }
            }
            LedgerCommit::Stopped { id, .. } => {
                if let Some(entry) = self.entry_mut(id) {
                    entry.stopped = true;
                }
            }
            LedgerCommit::Started { id, running_at, .. } => {
                if let Some(entry) = self.entry_mut(id) {
                    entry.stopped = false;
                    entry.boots_at = entry.boots_at.map(|_| *running_at);
                    entry.running_at = *running_at;
                }
            }
            LedgerCommit::DeletionBegun { id, deletion } => {
                if let Some(entry) = self.entry_mut(id) {
                    entry.deletion = Some(*deletion);
                    let serial = entry.serial;
                    self.ending.insert(serial);
                }
            }
            LedgerCommit::Gone { id, at } => {
                if let Some(entry) = self.entry_mut(id) {
                    entry.deleted = Some(*at);
                    let serial = entry.serial;
                    self.existing.remove(&serial);
                    self.ending.remove(&serial);
                }
            }
        }
    }

    fn insert(&mut self, entry: LedgerEntry) {
        let serial = entry.serial;
        self.by_id.insert(entry.id.clone(), serial);
        if let Some(key) = &entry.key {
            self.by_key.entry(key.clone()).or_default().insert(serial);
        }
        self.by_name.entry(entry.name.clone()).or_default().insert(serial);
        self.existing.insert(serial);
        self.entries.insert(serial, entry);
    }

    fn entry_mut(&mut self, id: &ProviderId) -> Option<&mut LedgerEntry> {
        self.entries.get_mut(self.by_id.get(id)?)
    }
}
