//! Metrics of the requests to API servers and of the Lease.

use std::sync::Arc;

use machinist_kube::lease::Leadership;
use machinist_kube::request::RequestObserver;
use machinist_serve::{Counter, Gauge, Histogram, Metrics, REQUEST_SECONDS};

const REQUESTS: Counter =
    Counter::new("rest_client_requests_total", "Requests to the API server, by code, method and host.");
const REQUEST_DURATION: Histogram = Histogram::new(
    "rest_client_request_duration_seconds",
    "Duration of requests to the API server in seconds. That of a watch ends with its first byte.",
    REQUEST_SECONDS,
);
const LEADS: Gauge = Gauge::new(
    "leader_election_master_status",
    "1 while the process holds the Lease of that name, 0 while it waits.",
);

/// Returns a function that counts the requests to an API server.
pub(super) fn observer(metrics: &Metrics, host: &str) -> RequestObserver {
    let (metrics, host) = (metrics.clone(), host.to_owned());
    Arc::new(move |report| {
        let code = report.status.map_or_else(|| "<error>".to_owned(), |status| status.to_string());
        let labels = [("code", code.as_str()), ("host", &host), ("method", report.method.as_str())];
        metrics.count(&REQUESTS, &labels);
        // A watch ends when the server ends it, so only its first byte was measured.
        let labels = [("host", host.as_str()), ("verb", report.operation)];
        metrics.observe(&REQUEST_DURATION, &labels, report.took);
    })
}

/// Adds the gauge that shows whether this process leads.
pub(super) fn add_leadership(metrics: &Metrics, lease: &str, leadership: &Leadership) {
    let (lease, leadership) = (lease.to_owned(), leadership.clone());
    metrics.add_source(move |metrics| {
        metrics.set_number(&LEADS, &[("name", &lease)], usize::from(leadership.is_held()));
    });
}
