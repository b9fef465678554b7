//! HTTP server of a process that does not work yet: it connects, or waits for its Lease.
//!
//! A process that waits while another one leads is ready: it can take over at any moment. Otherwise
//! a rollout of several replicas would wait for a second leader.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use machinist_kube::lease::Leadership;
use machinist_serve::{Metrics, answer_all, answer_behind, answer_with_metrics};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{Port, request_metrics};

/// The state of a process that connects.
pub(crate) const API_SERVER: &str = "the API server has not answered yet";

/// The condition for which the process waits, and the facts that it already knows about itself.
#[derive(Clone)]
pub(super) struct Phase(Arc<State>);

struct State {
    component: &'static str,
    namespace: String,
    metrics: Metrics,
    /// The condition for which the process waits before it takes part in the election.
    awaits: &'static str,
    /// The effective configuration; null for none.
    config: Value,
    /// Absent until the process takes part in the election.
    leadership: OnceLock<Leadership>,
}

impl Phase {
    /// The phase of a process that waits for something before it takes part in the election.
    pub(super) fn new(
        component: &'static str,
        namespace: &str,
        metrics: &Metrics,
        awaits: &'static str,
    ) -> Self {
        let (namespace, metrics) = (namespace.to_owned(), metrics.clone());
        let (config, leadership) = (Value::Null, OnceLock::new());
        Self(Arc::new(State { component, namespace, metrics, awaits, config, leadership }))
    }

    /// Shows this configuration.
    pub(super) fn with_config(mut self, config: Value) -> Self {
        if let Some(state) = Arc::get_mut(&mut self.0) {
            state.config = config;
        }
        self
    }

    /// Records that the process takes part in the election for a Lease.
    pub(super) fn joins(&self, lease: &str, leadership: &Leadership) {
        // A process joins one election.
        if self.0.leadership.set(leadership.clone()).is_ok() {
            request_metrics::add_leadership(&self.0.metrics, lease, leadership);
        }
    }

    /// Serves requests until the future is dropped.
    pub(super) async fn answer(&self, port: &Port) -> Infallible {
        let Some(listener) = &port.listener else { return std::future::pending().await };
        let phase = self.clone();
        answer_behind(listener, port.door.clone(), port.profiler, move |path| phase.respond(path)).await
    }

    /// Serves only `/metrics`, until the future is dropped.
    pub(super) async fn answer_metrics(&self, listener: Option<&TcpListener>) -> Infallible {
        let Some(listener) = listener else { return std::future::pending().await };
        let phase = self.clone();
        let answer = move |path: &str| match path {
            "/metrics" => phase.respond(path),
            _ => not_found(),
        };
        answer_all(listener, answer).await
    }

    fn respond(&self, path: &str) -> Response<Full<Bytes>> {
        match path {
            "/healthz" | "/livez" => text(StatusCode::OK, "OK"),
            "/readyz" if self.is_standby() => text(StatusCode::OK, &format!("OK: {}", self.waits_for())),
            "/readyz" | "/why" => text(StatusCode::SERVICE_UNAVAILABLE, self.waits_for()),
            "/metrics" => answer_with_metrics(self.0.metrics.text()),
            "/configz" if !self.0.config.is_null() => json_text(&self.0.config),
            "/serves" => {
                let served = json!({"component": self.0.component, "namespace": self.0.namespace});
                json_text(&served)
            }
            path if path.starts_with("/why/") => text(StatusCode::SERVICE_UNAVAILABLE, self.waits_for()),
            _ => not_found(),
        }
    }

    fn is_standby(&self) -> bool {
        self.0.leadership.get().is_some_and(Leadership::is_standby)
    }

    fn waits_for(&self) -> &'static str {
        match self.0.leadership.get() {
            None => self.0.awaits,
            Some(leadership) if leadership.is_standby() => {
                "another process leads, and this one waits for its lease"
            }
            Some(_) => "this process is waiting for its lease",
        }
    }
}

fn json_text(value: &Value) -> Response<Full<Bytes>> {
    let mut response = text(StatusCode::OK, &value.to_string());
    let kind = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

fn not_found() -> Response<Full<Bytes>> {
    text(StatusCode::NOT_FOUND, "404 page not found")
}

fn text(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text.to_owned())));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connecting_process_is_alive_and_not_ready() {
        let phase = Phase::new("manager", "team", &Metrics::default(), API_SERVER);
        let status = |path: &str| phase.respond(path).status();
        assert_eq!(status("/healthz"), StatusCode::OK);
        assert_eq!(status("/livez"), StatusCode::OK);
        assert_eq!(status("/readyz"), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(status("/why/node/a"), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(status("/serves"), StatusCode::OK);
        assert_eq!(status("/metrics"), StatusCode::OK);
        assert_eq!(status("/other"), StatusCode::NOT_FOUND);
    }
}
