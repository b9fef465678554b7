//! Requests by verb and resource.

use std::collections::BTreeMap;
use std::fmt;

/// Number of requests by verb and resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counts(BTreeMap<(String, String), u64>);

impl Counts {
    /// Counts one request. The subresource is empty for the main resource.
    pub(crate) fn add(&mut self, verb: &str, resource: &str, subresource: &str) {
        let resource = super::with_subresource(resource, subresource);
        *self.0.entry((verb.to_owned(), resource)).or_default() += 1;
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
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (number, ((verb, resource), count)) in self.0.iter().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            write!(f, "{separator}{verb} {resource} {count}")?;
        }
        Ok(())
    }
}
