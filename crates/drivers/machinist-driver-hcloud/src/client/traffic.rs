//! Counters of the calls, for metrics.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use machinist_instance::{AccountId, CallBudget};

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
#[derive(Clone, Default)]
pub struct Traffic(Arc<Shared>);

#[derive(Default)]
struct Shared {
    counts: Mutex<Counts>,
    in_flight: AtomicUsize,
    observer: OnceLock<Observer>,
}

/// Receives each finished call and its duration.
type Observer = Box<dyn Fn(&CallLabels, Duration) + Send + Sync>;

#[derive(Debug, Default)]
struct Counts {
    calls: BTreeMap<CallLabels, u64>,
    rates: BTreeMap<AccountId, (RateState, CallBudget)>,
}

impl Traffic {
    /// Number of calls by method, path and status since the start.
    pub fn calls(&self) -> BTreeMap<CallLabels, u64> {
        self.lock().calls.clone()
    }

    /// The rate limit of an account from its last answer; `None` before the first answer.
    pub fn rate(&self, account: &AccountId) -> Option<RateState> {
        self.lock().rates.get(account).map(|(rate, _)| *rate)
    }

    /// The remaining calls of an account from its last answer; `None` before the first answer.
    pub fn budget(&self, account: &AccountId) -> Option<CallBudget> {
        self.lock().rates.get(account).map(|(_, budget)| *budget)
    }

    /// The remaining calls in the last answer of any account; `None` before the first answer.
    pub fn last_budget(&self) -> Option<CallBudget> {
        let counts = self.lock();
        counts.rates.values().map(|(_, budget)| *budget).max_by_key(|budget| budget.seen_at)
    }

    /// Number of calls without an answer yet.
    pub fn in_flight(&self) -> usize {
        self.0.in_flight.load(Ordering::Relaxed)
    }

    /// Sets the function that receives each finished call and its duration. Only the first one is
    /// kept.
    pub fn observe(&self, observer: impl Fn(&CallLabels, Duration) + Send + Sync + 'static) {
        // A second observer would be a mistake of the program, and harmless.
        let _ = self.0.observer.set(Box::new(observer));
    }

    /// Counts a call from now until the result is dropped.
    pub(crate) fn begin(&self) -> InFlight {
        self.0.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(self.clone())
    }

    pub(crate) fn count(&self, labels: CallLabels, took: Duration) {
        if let Some(observer) = self.0.observer.get() {
            observer(&labels, took);
        }
        *self.lock().calls.entry(labels).or_default() += 1;
    }

    pub(crate) fn note_rate(&self, account: &AccountId, rate: RateState, budget: CallBudget) {
        self.lock().rates.insert(account.clone(), (rate, budget));
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Traffic").field(&*self.lock()).finish()
    }
}

/// A call in flight. A caller that stops waiting drops it, too.
pub(crate) struct InFlight(Traffic);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
