//! Metrics of the calls to Hetzner Cloud, with the names of hcloud-cloud-controller-manager.

use machinist_driver_hcloud::Traffic;
use machinist_serve::{Metrics, REQUEST_SECONDS};

/// Adds the calls of a provider to the metrics of the process.
pub(super) fn measure(metrics: &Metrics, calls: &Traffic) {
    let measured = metrics.clone();
    calls.observe(move |call, took| {
        let code = call.code.map_or_else(|| "error".to_owned(), |code| code.to_string());
        let method = call.method.to_lowercase();
        let labels = [("api_endpoint", call.endpoint), ("code", code.as_str()), ("method", &method)];
        measured.count("hcloud_api_requests_total", &labels);
        let labels = [("method", method.as_str())];
        measured.observe("hcloud_api_request_duration_seconds", &labels, REQUEST_SECONDS, took);
    });
    let calls = calls.clone();
    metrics.add_source(move || {
        let in_flight = u32::try_from(calls.in_flight()).unwrap_or(u32::MAX);
        let mut samples = vec![("hcloud_api_in_flight_requests".to_owned(), f64::from(in_flight))];
        let remaining = calls.last_budget().map(|budget| f64::from(budget.remaining));
        samples.extend(remaining.map(|calls| ("machinist_ccm_api_budget_remaining".to_owned(), calls)));
        samples
    });
}
