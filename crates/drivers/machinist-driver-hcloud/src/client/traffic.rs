//! Counters of the calls, for metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use machinist_instance::AccountId;

use super::rate::RateState;

/// The labels of one counter of calls.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallLabels {
    /// The HTTP method.
    pub method: String,
    /// The path with `-` instead of an id, for example `/servers/-`.
    pub endpoint: &'static str,
    /// The HTTP status. `None` if no answer arrived.
    pub code: Option<u16>,
}

/// The calls of all accounts of a provider, and the last known rate limit of each. Clones share the
/// counters.
#[derive(Debug, Clone, Default)]
pub struct Traffic(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    calls: BTreeMap<CallLabels, u64>,
    rates: BTreeMap<AccountId, RateState>,
}

impl Traffic {
    /// Number of calls by method, path and status since the start.
    pub fn calls(&self) -> BTreeMap<CallLabels, u64> {
        self.lock().calls.clone()
    }

    /// The rate limit of an account from its last answer; `None` before the first answer.
    pub fn rate(&self, account: &AccountId) -> Option<RateState> {
        self.lock().rates.get(account).copied()
    }

    pub(crate) fn count(&self, labels: CallLabels) {
        *self.lock().calls.entry(labels).or_default() += 1;
    }

    pub(crate) fn note_rate(&self, account: &AccountId, rate: RateState) {
        self.lock().rates.insert(account.clone(), rate);
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
