//! Requests by verb and resource.

use std::collections::BTreeMap;
use std::fmt;

use machinist_apiserver::AuditRecord;

use crate::report::listed;

/// Number of requests by verb and resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counts(BTreeMap<(String, String), u64>);

impl Counts {
    /// Counts one request.
    pub(crate) fn add(&mut self, request: &AuditRecord) {
        let resource = super::with_subresource(&request.resource, &request.subresource);
        *self.0.entry((request.verb.to_string(), resource)).or_default() += 1;
    }

    /// Number of all requests.
    pub(crate) fn all(&self) -> u64 {
        self.0.values().sum()
    }

    /// Number of requests about Events, which are for people and can be dropped.
    pub(crate) fn events(&self) -> u64 {
        let events = self.0.iter().filter(|((_, resource), _)| resource == "events");
        events.map(|(_, count)| count).sum()
    }

    /// Number of requests about other objects.
    pub(crate) fn objects(&self) -> u64 {
        self.all() - self.events()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.0.iter().map(|((verb, resource), count)| format!("{verb} {resource} {count}"));
        f.write_str(&listed(counts))
    }
}
