//! The connection from a process to the cloud, and the faults of the cloud itself.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use machinist_cloud_sim::{
    Caller, Cloud, CloudRefusal, Code, Fault as CloudFault, IncomingCall, NoAnswer, Operation, Reply,
    Request, Schedule,
};
use machinist_driver_sim::Transport;

use super::call::{Unreachable, unreachable};
use super::crash::{CallKind, Life};
use super::plan::Fault;
use crate::invariants::initialization;
use crate::lab::Lab;

/// The connection of one life of a process to the cloud.
pub struct CloudWire {
    life: Arc<Life>,
    lab: Arc<Lab>,
    cloud: Cloud,
}

impl CloudWire {
    /// Connects a life to the cloud.
    pub fn new(life: Arc<Life>, lab: Arc<Lab>, cloud: Cloud) -> Self {
        Self { life, lab, cloud }
    }
}

#[async_trait]
impl Transport for CloudWire {
    fn endpoint(&self) -> &str {
        self.cloud.endpoint()
    }

    async fn call(
        &self,
        caller: Caller<'_>,
        request: Request,
    ) -> Result<Result<Reply, CloudRefusal>, NoAnswer> {
        let (process, operation, which) = (self.life.process, request.operation(), request.which());
        let name = which.name.as_ref().map_or_else(|| which.to_string(), |name| name.as_str().to_owned());
        if !self.lab.fuse.holds(format_args!("{process} cloud {operation} {name}")) {
            return std::future::pending().await;
        }
        let point = self.lab.points.before(CallKind::DriverCall);
        self.lab.may_die(&self.life).await;
        self.lab.history.called(process, operation, &name);
        let initialized = which.id.filter(|_| operation == Operation::Initialize);
        if let Some(id) = &initialized {
            let found = self.lab.history.look(|state| initialization::judge(state, id.as_str()));
            found.into_inner().into_iter().for_each(|(id, what)| self.lab.history.violate(id, what));
        }
        // Except for a refused connection, the caller cannot know whether the cloud saw the call.
        match unreachable(&self.lab).await {
            None => {}
            Some(Unreachable::Refused) => return Err(NoAnswer::NotSent("connection refused".to_owned())),
            Some(Unreachable::Unavailable) => {
                return Err(NoAnswer::Lost("503 Service Unavailable".to_owned()));
            }
            Some(Unreachable::Lost) => return Err(NoAnswer::Lost("connection reset by peer".to_owned())),
        }
        let answer = self.cloud.call(caller, request).await;
        self.lab.points.after(point);
        self.lab.may_die(&self.life).await;
        if let (Some(id), Ok(Ok(_))) = (&initialized, &answer) {
            self.lab.history.initialized(id.as_str());
        }
        answer
    }
}

/// Draws the faults of the cloud's calls from the plan.
pub struct CloudFaults {
    lab: Arc<Lab>,
    visible_within: Duration,
    call_bound: Duration,
}

impl CloudFaults {
    /// Creates faults within the current promises of the cloud.
    pub fn new(lab: Arc<Lab>, cloud: &Cloud) -> Self {
        let settings = cloud.settings();
        Self { lab, visible_within: settings.visible_within, call_bound: settings.call_bound }
    }
}

impl Schedule for CloudFaults {
    fn decide(&self, call: &IncomingCall) -> Option<CloudFault> {
        let plan = &self.lab.plan;
        let place = call.operation.to_string();
        if plan.strikes(Fault::D1, &place) {
            return Some(CloudFault::Refuse { code: Code::ServiceUnavailable, retry_after_seconds: None });
        }
        if call.operation == Operation::Ensure && plan.strikes(Fault::D4, &place) {
            let span = plan.span(Fault::D4, &place, Duration::from_millis(10)..self.visible_within);
            // A hidden instance combined with a lost answer is how instances leak; here only the
            // instance is hidden.
            return Some(CloudFault::HideNew { span });
        }
        if plan.strikes(Fault::D2, &place) {
            return Some(CloudFault::EffectThenError);
        }
        if plan.strikes(Fault::D3, &place) {
            let by = plan.span(Fault::D3, &place, Duration::ZERO..self.call_bound * 2);
            // Either the effect comes late, within the promise, or it comes at once and no answer
            // follows.
            return Some(if by < self.call_bound {
                CloudFault::LateEffect { by }
            } else {
                CloudFault::EffectThenSilence
            });
        }
        None
    }
}
