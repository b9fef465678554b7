//! The record of calls: the caller's request, its time, and its outcome.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use jiff::Timestamp;
use machinist_instance::InstanceRef;
use serde::{Deserialize, Serialize};

use crate::{Code, Fault};

/// How many calls are remembered one by one. A benchmark of thousands of machines fits, and the
/// memory of a cloud that runs for weeks stays bounded. The counts include every call.
const REMEMBERED_CALLS: usize = 200_000;

/// Operations that the cloud offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Operation {
    /// Create an instance, once per key.
    Ensure,
    /// Describe one instance.
    Find,
    /// Describe all instances.
    List,
    /// Delete an instance.
    Delete,
    /// Give an instance another key.
    Rekey,
    /// Complete an instance after its creation.
    Initialize,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ensure => "ensure",
            Self::Find => "find",
            Self::List => "list",
            Self::Delete => "delete",
            Self::Rekey => "rekey",
            Self::Initialize => "initialize",
        })
    }
}

/// One call on arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncomingCall {
    /// Number of the call, from 0, since the cloud was opened.
    pub number: u64,
    /// The requested operation.
    pub operation: Operation,
    /// The instance the call names; empty for a list.
    pub which: InstanceRef,
    /// When the call arrived.
    pub arrived: Timestamp,
}

/// One call, after it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallRecord {
    /// Number of the call, from 0, since the cloud was opened.
    pub number: u64,
    /// The requested operation.
    pub operation: Operation,
    /// The instance the call names; empty for a list.
    pub which: InstanceRef,
    /// When the call arrived.
    pub arrived: Timestamp,
    /// When the call took effect or was refused.
    pub decided: Timestamp,
    /// Outcome of the call.
    pub outcome: CallOutcome,
    /// The fault that the call met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

/// Outcome of a call in the cloud, even if the answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CallOutcome {
    /// Created an instance.
    Made,
    /// Adopted an instance that had no key.
    Adopted,
    /// Found the instance.
    Found,
    /// Found no instance.
    Absent,
    /// Listed the instances.
    Listed,
    /// Began to delete the instance.
    DeletionBegun,
    /// Found that the deletion had already begun.
    AlreadyDeleting,
    /// Did what was requested.
    Done,
    /// The connection broke before the cloud looked at the call.
    Lost,
    /// Refused the call; nothing changed.
    Refused(Code),
}

/// Counts all calls, and keeps the details of the latest.
#[derive(Debug, Default)]
pub(crate) struct CallLog {
    counts: BTreeMap<Operation, u64>,
    records: VecDeque<CallRecord>,
    next: u64,
}

impl CallLog {
    /// Counts a call on arrival and returns its number.
    pub(crate) fn begin(&mut self, operation: Operation) -> u64 {
        *self.counts.entry(operation).or_default() += 1;
        let number = self.next;
        self.next += 1;
        number
    }

    /// Remembers a decided call.
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
