//! The connection of one life of the process to the stand-in, per HTTP request: crash points,
//! faults and history.
//!
//! Each request runs on its own task, so it takes effect even when its sender is dead or has timed
//! out.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use machinist_driver_hcloud::{NoAnswer, Transport};
use machinist_standin_hcloud::{Fault as CloudFault, FaultRule, Standin, http as standin_http};
use tokio::sync::oneshot;

use super::project::Lookup;
use crate::faults::LongKind;
use crate::faults::call::{Caller, Unreachable};
use crate::faults::crash::Life;
use crate::faults::plan::Fault;
use crate::lab::Lab;

/// Longer than the timeout of a request.
const NEVER: Duration = Duration::from_secs(20);
/// The longest time that a request is late. Its sender may have timed out a moment before.
const LATEST: Duration = Duration::from_secs(14);
/// The age of late lists.
const AGES: std::ops::Range<Duration> = Duration::from_secs(1)..Duration::from_secs(90);

/// The connection of one life of the process to the stand-in.
pub struct HcloudWire {
    caller: Caller,
    standin: Standin,
    project: &'static str,
}

impl HcloudWire {
    /// Connects a life to a project of the stand-in.
    pub fn new(life: Arc<Life>, lab: Arc<Lab>, standin: Standin, project: &'static str) -> Self {
        Self { caller: Caller::new(life, lab), standin, project }
    }

    /// Performs a request after its time of travel, on a separate task.
    async fn deliver(&self, request: Request<Bytes>, label: Label) -> Result<Response<Bytes>, NoAnswer> {
        let (lab, standin, life) = (self.caller.lab().clone(), self.standin.clone(), self.caller.life());
        let latency = lab.plan.latency(self.caller.process());
        let fault = Faults { lab: &lab, standin: &self.standin }.draw(&label, self.project);
        let asked = lab.clock.time();
        let (answer, answered) = oneshot::channel();
        tokio::spawn(async move {
            tokio::time::sleep(latency).await;
            if let Some(fault) = fault {
                lab.history.note(format!("fault {fault:?} for {label}"));
                standin.add_fault(FaultRule::once(label.method.as_str(), &label.template, fault));
            }
            let result = perform(&standin, request).await;
            if let (Some(server), Ok(response)) = (label.lookup_of(), &result)
                && let Some(is_shown) = evidence(response)
            {
                let answered = lab.clock.time();
                lab.history.looked_up(Lookup { life, server, asked, answered, is_shown });
            }
            // The sender may have died or timed out.
            let _ = answer.send(result);
        });
        answered.await.unwrap_or_else(|_| Err(NoAnswer::Lost("the stand-in has stopped".to_owned())))
    }
}

#[async_trait]
impl Transport for HcloudWire {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, NoAnswer> {
        let label = Label::of(&request);
        let begun = self.caller.begin(&label.to_string()).await;
        if let Some(unreachable) = self.caller.unreachable().await {
            return away(unreachable);
        }
        let answer = self.deliver(request, label).await;
        self.caller.end(begun).await;
        answer
    }
}

/// The end of a request while the cloud is away.
fn away(unreachable: Unreachable) -> Result<Response<Bytes>, NoAnswer> {
    match unreachable {
        Unreachable::Refused => Err(NoAnswer::NotSent("connection refused".to_owned())),
        Unreachable::Unavailable => {
            let mut response = Response::new(Bytes::new());
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            Ok(response)
        }
        Unreachable::Lost => Err(NoAnswer::Lost("connection reset by peer".to_owned())),
    }
}

/// Performs a request in the stand-in, and reads the whole answer.
pub(super) async fn perform(standin: &Standin, request: Request<Bytes>) -> Result<Response<Bytes>, NoAnswer> {
    let broken = |_| NoAnswer::Lost("the connection broke".to_owned());
    let response = standin_http::answer(standin, request.map(Full::new)).await.map_err(broken)?;
    let (parts, body) = response.into_parts();
    let body = body.collect().await.map_err(broken)?.to_bytes();
    Ok(Response::from_parts(parts, body))
}

/// Whether an answer to a lookup shows the server, or proves its absence. `None` for an error.
fn evidence(response: &Response<Bytes>) -> Option<bool> {
    match response.status() {
        StatusCode::OK => Some(true),
        StatusCode::NOT_FOUND => {
            let body: serde_json::Value = serde_json::from_slice(response.body()).ok()?;
            (body["error"]["code"] == "not_found").then_some(false)
        }
        _ => None,
    }
}

/// Method and path of a request.
struct Label {
    method: Method,
    /// The path without its query.
    path: String,
    /// The path with `{id}` in place of numbers, as rules of the stand-in name it.
    template: String,
}

impl Label {
    fn of(request: &Request<Bytes>) -> Self {
        let path = request.uri().path().to_owned();
        let is_number = |segment: &str| segment.parse::<i64>().is_ok();
        let parts = path.split('/').map(|segment| if is_number(segment) { "{id}" } else { segment });
        let template = parts.collect::<Vec<_>>().join("/");
        Self { method: request.method().clone(), path, template }
    }

    /// The server that the request looks up by id.
    fn lookup_of(&self) -> Option<i64> {
        let is_lookup = self.method == Method::GET && self.template == "/v1/servers/{id}";
        self.path.rsplit('/').next().filter(|_| is_lookup)?.parse().ok()
    }

    fn is_server_list(&self) -> bool {
        self.method == Method::GET && self.template == "/v1/servers"
    }
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

/// Draws the faults of requests.
struct Faults<'w> {
    lab: &'w Lab,
    standin: &'w Standin,
}

impl Faults<'_> {
    /// Draws the fault of a request. An account without requests is set here, because it concerns
    /// all requests.
    fn draw(&self, label: &Label, project: &str) -> Option<CloudFault> {
        let plan = &self.lab.plan;
        let place = format!("{} {}", label.method, label.template);
        let is_write = label.method != Method::GET;
        if label.template.ends_with("/actions/add_target")
            && let Some((fault, _)) = plan.long(LongKind::RefusedTargets).next()
        {
            let codes = ["server_not_attached_to_network", "missing_ipv4", "resource_limit_exceeded"];
            let code = codes.get(usize::try_from(fault.pick % 3).unwrap_or(0)).copied().unwrap_or_default();
            return Some(CloudFault::Error { code: code.to_owned(), status: None });
        }
        if plan.strikes(Fault::D11, &place) {
            self.lab.history.note("fault D11: the account has no requests left");
            self.standin.set_rate(project, self.standin.settings().requests_per_hour.get(), 0);
        }
        if plan.strikes(Fault::D1, &place) {
            let locked = CloudFault::Error { code: "locked".to_owned(), status: None };
            return Some(match self.pick(Fault::D1, &place, 6) {
                0 => CloudFault::Bare { status: 503 },
                1 => CloudFault::Error { code: "service_error".to_owned(), status: None },
                2 => CloudFault::Reset,
                3 => CloudFault::Hang { span: NEVER },
                4 => CloudFault::Html404,
                _ if is_write => locked,
                _ => CloudFault::Bare { status: 502 },
            });
        }
        if plan.strikes(Fault::D2, &place) {
            return Some(CloudFault::EffectThenError { code: "server_error".to_owned() });
        }
        if plan.strikes(Fault::D3, &place) {
            return Some(match self.pick(Fault::D3, &place, 3) {
                0 => CloudFault::EffectThenReset,
                1 => CloudFault::EffectThenHang { span: NEVER },
                _ => CloudFault::Delay { by: plan.span(Fault::D3, &place, Duration::ZERO..LATEST) },
            });
        }
        if label.is_server_list() && plan.strikes(Fault::D10, &place) {
            let servers: Vec<i64> = self
                .standin
                .servers_ever()
                .iter()
                .filter(|server| server.is_alive())
                .map(|server| server.id)
                .collect();
            let omitted = usize::try_from(self.pick(Fault::D10, &place, 60)).unwrap_or(0);
            return Some(match (self.pick(Fault::D10, &place, 4), servers.len()) {
                (0, _) | (_, 0) => CloudFault::EmptyList,
                (1, _) => CloudFault::StaleList { age: plan.span(Fault::D10, &place, AGES) },
                (_, count) => CloudFault::Omit { id: servers[omitted % count] },
            });
        }
        None
    }

    /// Draws a number below `end`.
    fn pick(&self, fault: Fault, place: &str, end: u64) -> u64 {
        self.lab.plan.span(fault, place, Duration::ZERO..Duration::from_secs(end)).as_secs()
    }
}
