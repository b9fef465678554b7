//! The record of calls: who asked what, when, and what came of it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use jiff::Timestamp;
use machinist_instance::InstanceRef;
use serde::{Deserialize, Serialize};

use crate::{Code, Fault};

/// How many calls are remembered one by one: a benchmark of thousands of machines fits, a cloud that runs for
/// weeks does not grow. The counts never forget.
const REMEMBERED_CALLS: usize = 200_000;

/// What the cloud can be asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Operation {
    /// Make an instance, once per key.
    Ensure,
    /// Describe one.
    Find,
    /// Describe all.
    List,
    /// Make one go away.
    Delete,
    /// Give one another key.
    Rekey,
    /// Change tags.
    Tag,
    /// Power on.
    Start,
    /// Power off.
    Stop,
    /// Read the console.
    Console,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ensure => "ensure",
            Self::Find => "find",
            Self::List => "list",
            Self::Delete => "delete",
            Self::Rekey => "rekey",
            Self::Tag => "tag",
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Console => "console",
        })
    }
}

/// One call, as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its number, from 0, since the cloud was opened.
    pub number: u64,
    /// What is asked.
    pub operation: Operation,
    /// About which instance; empty for a list.
    pub which: InstanceRef,
    /// When it arrived.
    pub arrived: Timestamp,
}

/// One call, after it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallRecord {
    /// Its number, from 0, since the cloud was opened.
    pub number: u64,
    /// What was asked.
    pub operation: Operation,
    /// About which instance.
    pub which: InstanceRef,
    /// When it arrived.
    pub arrived: Timestamp,
    /// When it took effect, or was refused.
    pub decided: Timestamp,
    /// What the cloud did.
    pub outcome: Outcome,
    /// The fault it met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

/// What the cloud did, whether or not its answer arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Made an instance.
    Made,
    /// Took over an instance that had no key.
    Adopted,
    /// Found the instance that was meant.
    Found,
    /// Found none.
    Absent,
    /// Listed.
    Listed,
    /// Began to delete it.
    DeletionBegun,
    /// It was being deleted already.
    AlreadyDeleting,
    /// Did it.
    Done,
    /// Broke off before it was looked at.
    Lost,
    /// Refused; nothing changed.
    Refused(Code),
}

/// Counts for ever, details for a while.
#[derive(Debug, Default)]
pub(crate) struct CallLog {
    counts: BTreeMap<Operation, u64>,
    records: VecDeque<CallRecord>,
    next: u64,
}

impl CallLog {
    /// A call arrives.
    pub(crate) fn begin(&mut self, operation: Operation) -> u64 {
        *self.counts.entry(operation).or_default() += 1;
        let number = self.next;
        self.next += 1;
        number
    }

    /// A call was decided.
    pub(crate) fn end(&mut self, record: CallRecord) {
        if self.records.len() == REMEMBERED_CALLS {
            self.records.pop_front();
        }
        self.records.push_back(record);
    }

    pub(crate) fn counts(&self) -> BTreeMap<Operation, u64> {
        self.counts.clone()
    }

    pub(crate) fn records(&self) -> Vec<CallRecord> {
        self.records.iter().cloned().collect()
    }
}
