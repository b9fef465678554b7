//! Metrics of the requests that a machine controller sends to its clouds.

use machinist_driver_http::Traffic;
use machinist_serve::{Counter, Gauge, Histogram, Metrics, REQUEST_SECONDS};

const REQUESTS: Counter = Counter::new(
    "machinist_cloud_requests_total",
    "Requests to the API of a cloud, by provider, method, path or action, and code. Ids are -.",
);
const REQUEST_DURATION: Histogram = Histogram::new(
    "machinist_cloud_request_duration_seconds",
    "Duration of requests to the API of a cloud in seconds, by provider and method.",
    REQUEST_SECONDS,
);
const IN_FLIGHT: Gauge = Gauge::new(
    "machinist_cloud_requests_in_flight",
    "Requests to the API of a cloud without an answer yet, by provider.",
);

/// Adds the requests of a provider to the metrics of the process.
pub(crate) fn measure(metrics: &Metrics, provider: &'static str, traffic: &Traffic) {
    let measured = metrics.clone();
    traffic.observe(move |call, took| {
        let code = call.code_text();
        let method = call.method.as_str();
        let labels = [
            ("code", code.as_str()),
            ("endpoint", &call.endpoint),
            ("method", method),
            ("provider", provider),
        ];
        measured.count(&REQUESTS, &labels);
        measured.observe(&REQUEST_DURATION, &[("method", method), ("provider", provider)], took);
    });
    let traffic = traffic.clone();
    metrics.add_source(move |metrics| {
        metrics.set_number(&IN_FLIGHT, &[("provider", provider)], traffic.in_flight());
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use async_trait::async_trait;
    use bytes::Bytes;
    use http::{Request, Response};
    use jiff::Timestamp;
    use machinist_driver_http::{HttpCall, HttpCaller, Nature, NoAnswer, Transport};
    use tokio::time::timeout;

    use super::*;

    struct Broken;

    #[async_trait]
    impl Transport for Broken {
        async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, NoAnswer> {
            match request.uri().path() {
                "/servers/1" => Ok(Response::new(Bytes::new())),
                "/servers/3" => std::future::pending().await,
                _ => Err(NoAnswer::Lost("the connection broke".to_owned())),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_counted_with_and_without_an_answer() {
        let (metrics, traffic) = (Metrics::default(), Traffic::default());
        measure(&metrics, "mars", &traffic);
        let now = Arc::new(|| Timestamp::UNIX_EPOCH);
        let caller = HttpCaller::new(Arc::new(Broken), Duration::from_secs(1), traffic, now);
        for (path, is_answered) in [("/servers/1", true), ("/servers/2", false)] {
            let request = Request::get(path).body(Bytes::new()).expect("a request");
            let about =
                HttpCall { nature: Nature::Reads, action: "GET /servers/-", endpoint: "/servers/-".into() };
            assert_eq!(caller.send(request, about).await.is_ok(), is_answered, "{path}");
        }
        // A caller that stops waiting.
        let request = Request::get("/servers/3").body(Bytes::new()).expect("a request");
        let about =
            HttpCall { nature: Nature::Reads, action: "GET /servers/-", endpoint: "/servers/-".into() };
        assert!(timeout(Duration::from_millis(1), caller.send(request, about)).await.is_err());
        let text = metrics.text();
        for line in [
            r#"machinist_cloud_requests_total{code="200",endpoint="/servers/-",method="GET",provider="mars"} 1"#,
            r#"machinist_cloud_requests_total{code="error",endpoint="/servers/-",method="GET",provider="mars"} 2"#,
            r#"_count{method="GET",provider="mars"} 3"#,
            r#"machinist_cloud_requests_in_flight{provider="mars"} 0"#,
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
