//! The record of requests, and counters by path template.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Enough for the requests of an hour at full rate from several projects. Counters have no limit.
const MAX_RECORDS: usize = 20_000;

/// One request and its reply. It names the project, not the token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestRecord {
    /// Sequence number of the request, from 1.
    pub number: u64,
    /// When the request arrived.
    pub at: Timestamp,
    /// The method.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// The path with `{id}` for each number, for example `/v1/servers/{id}`.
    pub template: String,
    /// The project of the token; absent if the token is not valid.
    pub project: Option<String>,
    /// The HTTP status of the reply; absent if there was no reply.
    pub status: Option<u16>,
    /// The error code of the reply.
    pub code: Option<String>,
    /// The client's name and version.
    pub user_agent: String,
    /// The `X-Correlation-Id` of the reply.
    pub correlation_id: String,
}

#[derive(Debug, Default)]
pub(crate) struct Log {
    records: VecDeque<RequestRecord>,
    counters: BTreeMap<String, u64>,
    last: u64,
}

impl Log {
    /// Counts a request, and returns its number.
    pub(crate) fn begin(&mut self, method: &str, template: &str) -> u64 {
        *self.counters.entry(format!("{method} {template}")).or_default() += 1;
        self.last += 1;
        self.last
    }

    pub(crate) fn end(&mut self, record: RequestRecord) {
        if self.records.len() == MAX_RECORDS {
            self.records.pop_front();
        }
        self.records.push_back(record);
    }

    pub(crate) fn records(&self) -> Vec<RequestRecord> {
        self.records.iter().cloned().collect()
    }

    pub(crate) fn counters(&self) -> BTreeMap<String, u64> {
        self.counters.clone()
    }

    /// Forgets records and counters. Numbers continue.
    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.counters.clear();
    }
}
