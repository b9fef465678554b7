//! [`Ledger`]: tells tests which instances exist and which ever existed.

use jiff::Timestamp;
use machinist_instance::{InstanceKey, NodeName};
use serde::{Deserialize, Serialize};

use crate::LedgerEntry;

/// The ledger at one moment. It has no lag and no faults: every instance appears at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    /// The time at which the ledger was read.
    pub at: Timestamp,
    /// Every instance ever made, oldest first.
    pub entries: Vec<LedgerEntry>,
}

impl Ledger {
    /// Every instance ever made, oldest first.
    pub fn ever(&self) -> &[LedgerEntry] {
        &self.entries
    }

    /// The instances that exist, including those being deleted.
    pub fn alive(&self) -> impl Iterator<Item = &LedgerEntry> {
        self.entries.iter().filter(|entry| entry.is_alive_at(self.at))
    }

    /// All instances ever made for a key. More than one is always an error.
    pub fn of_key<'a>(&'a self, key: &'a InstanceKey) -> impl Iterator<Item = &'a LedgerEntry> {
        self.entries.iter().filter(move |entry| entry.key.as_ref() == Some(key))
    }

    /// All instances that ever had a name, oldest first.
    pub fn of_name<'a>(&'a self, name: &'a NodeName) -> impl Iterator<Item = &'a LedgerEntry> {
        self.entries.iter().filter(move |entry| entry.name == *name)
    }
}
