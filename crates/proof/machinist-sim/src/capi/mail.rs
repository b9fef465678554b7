//! The connection of one life of the provider to the mail service, per HTTP request: crash points,
//! faults and history.
//!
//! Each request runs on its own task, so it takes effect even when its sender is dead or has timed
//! out.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use machinist_driver::may_change;
use machinist_mailgun::{NoAnswer, Transport};
use machinist_standin_mailgun::Standin;
use tokio::sync::oneshot;

use super::outside::By;
use crate::faults::call::{Caller, Unreachable};
use crate::faults::crash::Life;
use crate::faults::plan::Fault;
use crate::lab::Lab;

/// Longer than the longest duration of a call.
const NEVER: Duration = Duration::from_secs(40);
/// The longest time that a request is late. With its time of travel it takes effect within the
/// longest duration of a call.
const LATEST: Duration = Duration::from_secs(19);

/// The connection of one life of the provider to the mail service.
pub struct MailWire {
    caller: Caller,
    standin: Standin,
}

/// The fault of one request.
#[derive(Debug, Clone, Copy)]
enum RequestFault {
    /// Without effect: no connection was made.
    NotSent,
    /// Without effect, with this answer.
    Answer(StatusCode),
    /// Without effect, and the connection breaks.
    Broken,
    /// With effect, and the answer is 503.
    FailsAfterwards,
    /// With effect, and the connection breaks.
    AnswerLost,
    /// With effect, and no answer comes.
    Silent,
    /// With a late effect.
    Late(Duration),
}

impl MailWire {
    /// Connects a life to the mail service.
    pub fn new(life: Arc<Life>, lab: Arc<Lab>, standin: Standin) -> Self {
        Self { caller: Caller::new(life, lab), standin }
    }

    /// Performs a request after its time of travel, on a separate task.
    async fn deliver(&self, request: Request<Bytes>, after: Duration) -> Result<Response<Bytes>, NoAnswer> {
        let (history, standin) = (self.caller.lab().history.clone(), self.standin.clone());
        let (answer, answered) = oneshot::channel();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            let (parts, body) = standin.answer(&request).into_parts();
            let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            history.outside(By::Provider, |outside, _| outside.take_mails(standin.mails()));
            // The sender may have died or timed out.
            let _ = answer.send(Response::from_parts(parts, body));
        });
        answered.await.map_err(|_| NoAnswer::Lost)
    }

    fn trouble(&self, place: &str, is_write: bool) -> Option<RequestFault> {
        let plan = &self.caller.lab().plan;
        let pick = |fault, end| plan.span(fault, place, Duration::ZERO..Duration::from_secs(end)).as_secs();
        if plan.strikes(Fault::D1, place) {
            return Some(match pick(Fault::D1, 5) {
                0 => RequestFault::NotSent,
                1 => RequestFault::Answer(StatusCode::TOO_MANY_REQUESTS),
                2 => RequestFault::Answer(StatusCode::SERVICE_UNAVAILABLE),
                3 => RequestFault::Answer(StatusCode::INTERNAL_SERVER_ERROR),
                _ => RequestFault::Broken,
            });
        }
        if plan.strikes(Fault::D2, place) && is_write {
            return Some(RequestFault::FailsAfterwards);
        }
        if plan.strikes(Fault::D3, place) {
            return Some(match pick(Fault::D3, 3) {
                0 => RequestFault::AnswerLost,
                1 => RequestFault::Silent,
                _ => RequestFault::Late(plan.span(Fault::D3, place, Duration::ZERO..LATEST)),
            });
        }
        None
    }
}

#[async_trait]
impl Transport for MailWire {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, NoAnswer> {
        let label = format!("{} {}", request.method(), request.uri().path());
        let begun = self.caller.begin(&label).await;
        if let Some(unreachable) = self.caller.unreachable().await {
            return match unreachable {
                Unreachable::Refused => Err(NoAnswer::NotSent),
                Unreachable::Unavailable => Ok(bare(StatusCode::SERVICE_UNAVAILABLE)),
                Unreachable::Lost => Err(NoAnswer::Lost),
            };
        }
        let is_write = request.method() != Method::GET;
        if is_write && may_change().is_err() {
            return Err(NoAnswer::NotSent);
        }
        let lab = self.caller.lab();
        let trouble = self.trouble(&label, is_write);
        if let Some(trouble) = trouble {
            lab.history.note(format!("fault {trouble:?} for {label}"));
        }
        let latency = lab.plan.latency(self.caller.process());
        let answer = match trouble {
            Some(RequestFault::NotSent) => {
                tokio::time::sleep(latency).await;
                Err(NoAnswer::NotSent)
            }
            Some(RequestFault::Answer(status)) => {
                tokio::time::sleep(latency).await;
                Ok(bare(status))
            }
            Some(RequestFault::Broken) => {
                tokio::time::sleep(latency).await;
                Err(NoAnswer::Lost)
            }
            Some(RequestFault::FailsAfterwards) => {
                let _ = self.deliver(request, latency).await;
                Ok(bare(StatusCode::SERVICE_UNAVAILABLE))
            }
            Some(RequestFault::AnswerLost) => {
                let _ = self.deliver(request, latency).await;
                Err(NoAnswer::Lost)
            }
            Some(RequestFault::Silent) => {
                let _ = self.deliver(request, latency).await;
                tokio::time::sleep(NEVER).await;
                Err(NoAnswer::Lost)
            }
            Some(RequestFault::Late(by)) => self.deliver(request, latency + by).await,
            None => self.deliver(request, latency).await,
        };
        self.caller.end(begun).await;
        answer
    }
}

/// An answer without a body.
fn bare(status: StatusCode) -> Response<Bytes> {
    let mut answer = Response::new(Bytes::new());
    *answer.status_mut() = status;
    if status == StatusCode::TOO_MANY_REQUESTS {
        answer.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("5"));
    }
    answer
}
