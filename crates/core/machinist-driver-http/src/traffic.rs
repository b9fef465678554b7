//! Counters of the requests, for metrics.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use http::Method;

/// The labels of one counter of requests.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallLabels {
    /// The HTTP method.
    pub method: Method,
    /// The path with `-` instead of an id, for example `/servers/-`, or the name of the action.
    pub endpoint: Cow<'static, str>,
    /// The HTTP status. `None` if no answer arrived.
    pub code: Option<u16>,
}

impl fmt::Display for CallLabels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.endpoint)?;
        match self.code {
            Some(code) => write!(f, ": {code}"),
            None => f.write_str(": no answer"),
        }
    }
}

/// The requests of all accounts of a provider. Clones share the counters.
#[derive(Clone, Default)]
pub struct Traffic(Arc<Shared>);

#[derive(Default)]
struct Shared {
    calls: Mutex<BTreeMap<String, u64>>,
    in_flight: AtomicUsize,
    observer: OnceLock<Observer>,
}

/// Receives each finished request and its duration.
type Observer = Box<dyn Fn(&CallLabels, Duration) + Send + Sync>;

impl Traffic {
    /// Number of finished requests since the start, by method, path and status, for example
    /// `GET /servers/-: 200`.
    pub fn calls(&self) -> BTreeMap<String, u64> {
        self.lock().clone()
    }

    /// Number of requests without an answer yet.
    pub fn in_flight(&self) -> usize {
        self.0.in_flight.load(Ordering::Relaxed)
    }

    /// Sets the function that receives each finished request and its duration. Only the first one
    /// is kept.
    pub fn observe(&self, observer: impl Fn(&CallLabels, Duration) + Send + Sync + 'static) {
        // A second observer would be a mistake of the program, and harmless.
        let _ = self.0.observer.set(Box::new(observer));
    }

    /// Counts a request as in flight from now until the result is dropped.
    pub(crate) fn begin(&self) -> InFlight {
        self.0.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(self.clone())
    }

    pub(crate) fn count(&self, labels: &CallLabels, took: Duration) {
        if let Some(observer) = self.0.observer.get() {
            observer(labels, took);
        }
        *self.lock().entry(labels.to_string()).or_default() += 1;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.0.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Traffic").field(&*self.lock()).finish()
    }
}

/// A request in flight. A caller that stops waiting drops it, too.
pub(crate) struct InFlight(Traffic);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
