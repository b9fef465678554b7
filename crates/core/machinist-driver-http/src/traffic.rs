//! Counts the requests, for metrics.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{Method, StatusCode};
use tokio::time::Instant;

/// The labels of one finished request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallLabels {
    /// The HTTP method.
    pub method: Method,
    /// The path with `-` instead of an id, for example `/servers/-`, or the name of the action.
    pub endpoint: Cow<'static, str>,
    /// The HTTP status. `None` if no answer arrived, or if the caller stopped waiting.
    pub code: Option<u16>,
}

impl CallLabels {
    /// The status as text; `error` without an answer.
    pub fn code_text(&self) -> String {
        self.code.map_or_else(|| "error".to_owned(), |code| code.to_string())
    }
}

/// The requests of all accounts of a provider. Clones share the counters.
#[derive(Clone, Default)]
pub struct Traffic(Arc<Shared>);

#[derive(Default)]
struct Shared {
    in_flight: AtomicUsize,
    observer: OnceLock<Observer>,
}

/// Receives each finished request and its duration.
type Observer = Box<dyn Fn(&CallLabels, Duration) + Send + Sync>;

impl Traffic {
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
    pub(crate) fn begin(&self, method: Method, endpoint: Cow<'static, str>) -> InFlight {
        self.0.in_flight.fetch_add(1, Ordering::Relaxed);
        let labels = CallLabels { method, endpoint, code: None };
        InFlight { traffic: self.clone(), labels, began: Instant::now() }
    }
}

impl fmt::Debug for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traffic").field("in_flight", &self.in_flight()).finish()
    }
}

/// A request in flight. It is finished when this is dropped, also because its caller stopped
/// waiting.
pub(crate) struct InFlight {
    traffic: Traffic,
    labels: CallLabels,
    began: Instant,
}

impl InFlight {
    /// Notes the answer, which ends the request.
    pub(crate) fn answered(mut self, status: StatusCode) {
        self.labels.code = Some(status.as_u16());
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let shared = &self.traffic.0;
        shared.in_flight.fetch_sub(1, Ordering::Relaxed);
        if let Some(observer) = shared.observer.get() {
            observer(&self.labels, self.began.elapsed());
        }
    }
}
