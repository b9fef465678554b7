//! Metrics of the calls to Hetzner Cloud, with the names of hcloud-cloud-controller-manager.

use machinist_driver_hcloud::{Rates, Traffic};
use machinist_serve::{Counter, Gauge, Histogram, Metrics, REQUEST_SECONDS};

const REQUESTS: Counter = Counter::new(
    "hcloud_api_requests_total",
    "Requests to the API of Hetzner Cloud, by code, method and path. Ids in the path are -.",
);
const REQUEST_DURATION: Histogram = Histogram::new(
    "hcloud_api_request_duration_seconds",
    "Duration of requests to the API of Hetzner Cloud in seconds.",
    REQUEST_SECONDS,
);
const IN_FLIGHT: Gauge = Gauge::new(
    "hcloud_api_in_flight_requests",
    "Requests to the API of Hetzner Cloud without an answer yet.",
);
const BUDGET: Gauge =
    Gauge::new("machinist_ccm_api_budget_remaining", "Calls that the last answer of the cloud left.");

/// Adds the calls of a provider to the metrics of the process.
pub(super) fn measure(metrics: &Metrics, calls: &Traffic, rates: Rates) {
    let measured = metrics.clone();
    calls.observe(move |call, took| {
        let code = call.code_text();
        let method = call.method.as_str().to_lowercase();
        let labels = [("api_endpoint", call.endpoint.as_ref()), ("code", code.as_str()), ("method", &method)];
        measured.count(&REQUESTS, &labels);
        let labels = [("method", method.as_str())];
        measured.observe(&REQUEST_DURATION, &labels, took);
    });
    let calls = calls.clone();
    metrics.add_source(move |metrics| {
        metrics.set_number(&IN_FLIGHT, &[], calls.in_flight());
        if let Some(budget) = rates.last_budget() {
            metrics.set(&BUDGET, &[], f64::from(budget.remaining));
        }
    });
}
