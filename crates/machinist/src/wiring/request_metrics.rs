//! Metrics of the requests to API servers and of the Lease.

use std::sync::Arc;

use machinist_controllers::Pulse;
use machinist_kube::lease::Leadership;
use machinist_kube::request::RequestObserver;
use machinist_serve::{Counter, Gauge, Histogram, Metrics, REQUEST_SECONDS};

const REQUESTS: Counter =
    Counter::new("rest_client_requests_total", "Requests to the API server, by code, method and host.");
const REQUEST_DURATION: Histogram = Histogram::new(
    "rest_client_request_duration_seconds",
    "Duration of requests to the API server in seconds. The duration of a watch ends with its first byte.",
    REQUEST_SECONDS,
);
const LEADS: Gauge = Gauge::new(
    "leader_election_master_status",
    "1 while the process holds the Lease of that name, 0 while it waits.",
);

const REQUEST_LATENCY: Histogram = Histogram::new(
    "rest_client_request_latency_seconds",
    "Duration of requests to the API server in seconds, by verb and URL. Names in the URL are left out.",
    DOUBLED_SECONDS,
);
/// Bounds of Go's request latencies, in seconds: each is twice the one before.
const DOUBLED_SECONDS: &[f64] = &[0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512];

/// Shows the names of the metrics, even before a request was sent.
pub(super) fn announce(metrics: &Metrics) {
    metrics.announce(&REQUESTS);
    metrics.announce(&REQUEST_DURATION);
    metrics.announce(&REQUEST_LATENCY);
}

/// Returns a function that counts the requests to an API server, and shows that the process gets
/// ahead.
pub(super) fn observer(metrics: &Metrics, pulse: &Pulse, host: &str) -> RequestObserver {
    let (metrics, pulse, host) = (metrics.clone(), pulse.clone(), host.to_owned());
    Arc::new(move |report| {
        pulse.beat();
        let code = report.status.map_or_else(|| "<error>".to_owned(), |status| status.to_string());
        let labels = [("code", code.as_str()), ("host", &host), ("method", report.method.as_str())];
        metrics.count(&REQUESTS, &labels);
        // A watch ends when the server ends it, so only its first byte was measured.
        let labels = [("host", host.as_str()), ("verb", report.operation)];
        metrics.observe(&REQUEST_DURATION, &labels, report.took);
        let url = format!("https://{host}{}", template(report.path));
        let labels = [("verb", report.method.as_str()), ("url", &url)];
        metrics.observe(&REQUEST_LATENCY, &labels, report.took);
    })
}

/// Returns a path without the names of objects, as Go's clients show it: there are few such paths.
fn template(path: &str) -> String {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let group = match parts.first() {
        Some(&"api") => 2,
        Some(&"apis") => 3,
        _ => return path.to_owned(),
    };
    let mut shown: Vec<&str> = parts.iter().take(group).copied().collect();
    let mut rest = parts.get(group..).unwrap_or_default();
    if let ["namespaces", _, below @ ..] = rest
        && !below.is_empty()
    {
        shown.extend(["namespaces", "{namespace}"]);
        rest = below;
    }
    for (place, part) in rest.iter().enumerate() {
        shown.push(if place == 1 { "{name}" } else { part });
    }
    format!("/{}", shown.join("/"))
}

/// Adds the gauge that shows whether this process leads.
pub(super) fn add_leadership(metrics: &Metrics, lease: &str, leadership: &Leadership) {
    let (lease, leadership) = (lease.to_owned(), leadership.clone());
    metrics.add_source(move |metrics| {
        metrics.set_number(&LEADS, &[("name", &lease)], usize::from(leadership.is_held()));
    });
}

#[test]
fn a_template_has_no_names() {
    for (path, expected) in [
        ("/api/v1/nodes", "/api/v1/nodes"),
        ("/api/v1/nodes/n-1/status", "/api/v1/nodes/{name}/status"),
        ("/api/v1/namespaces/team", "/api/v1/namespaces/{name}"),
        ("/api/v1/namespaces/team/pods/web/eviction", "/api/v1/namespaces/{namespace}/pods/{name}/eviction"),
        (
            "/apis/machine.sapcloud.io/v1alpha1/namespaces/team/machines/m-1",
            "/apis/machine.sapcloud.io/v1alpha1/namespaces/{namespace}/machines/{name}",
        ),
        ("/version", "/version"),
    ] {
        assert_eq!(template(path), expected);
    }
}
