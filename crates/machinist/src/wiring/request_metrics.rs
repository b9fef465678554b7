//! Metrics of the requests to API servers and of the Lease.

use std::sync::Arc;

use machinist_kube::lease::Leadership;
use machinist_kube::request::RequestObserver;
use machinist_serve::{Metrics, REQUEST_SECONDS, with_labels};

/// Returns a function that counts the requests to an API server.
pub(super) fn observer(metrics: &Metrics, host: &str) -> RequestObserver {
    let (metrics, host) = (metrics.clone(), host.to_owned());
    Arc::new(move |report| {
        let code = report.status.map_or_else(|| "<error>".to_owned(), |status| status.to_string());
        let labels = [("code", code.as_str()), ("host", &host), ("method", report.method.as_str())];
        metrics.count("rest_client_requests_total", &labels);
        // A watch ends when the server ends it, so only its first byte was measured.
        let labels = [("host", host.as_str()), ("verb", report.operation)];
        let name = "rest_client_request_duration_seconds";
        metrics.observe(name, &labels, REQUEST_SECONDS, report.took);
    })
}

/// Adds the gauge that shows whether this process leads.
pub(super) fn add_leadership(metrics: &Metrics, lease: &str, leadership: &Leadership) {
    let (name, leadership) =
        (with_labels("leader_election_master_status", &[("name", lease)]), leadership.clone());
    metrics.add_source(move || vec![(name.clone(), if leadership.is_held() { 1.0 } else { 0.0 })]);
}
