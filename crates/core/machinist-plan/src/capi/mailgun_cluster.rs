//! MailgunCluster: a cluster that a person provides on request.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use jiff::Timestamp;
use machinist_api::capi::constants::conditions::FULFILLED;
use machinist_api::capi::{Initialization, MailStatus};
use machinist_core::{Known, Step};

use super::conditions::{self, ConditionReport};
use super::gates;
use super::mail::{self, Decision, Letter};
use crate::capi::facts::{ClusterFacts, MailRequestFacts, MailgunClusterFacts};
use crate::capi::why::{CapiReason, Plan, Why};

/// All facts for one decision about one MailgunCluster.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The MailgunCluster to decide about.
    pub request: Arc<MailgunClusterFacts>,
    /// The Cluster that owns it; `Unasked` if there is no owner reference.
    pub cluster: Known<Arc<ClusterFacts>>,
    /// The facts about its mail.
    pub mail: mail::Snapshot,
}

impl Hash for Snapshot {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { request, cluster, mail } = self;
        (request, cluster, mail).hash(state);
    }
}

/// One call for one request.
#[derive(Debug)]
pub enum Action {
    /// A call about the mail.
    Mail(mail::Action),
    /// Replaces the changed fields of the status, guarded by the version of the object.
    SetStatus(Box<MailStatus>),
}

/// Decides the next actions for one MailgunCluster.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    let request = &s.request.mail;
    let object = &request.object;
    if object.deleting_since.is_some() {
        return Plan::idle(Why::up_to_date());
    }
    if gates::is_paused(object, s.cluster.present().map(Arc::as_ref)) {
        let is_paused = s.cluster.present().is_some_and(|cluster| cluster.is_paused);
        return paused("MailgunCluster", request, is_paused, s.mail.now);
    }
    let cluster = match &s.cluster {
        Known::Present(cluster) => cluster,
        Known::Unasked => {
            let reason = CapiReason::OwnerUnset { kind: "Cluster" };
            return Plan::idle(Why::new(reason, Step::Expect("the Cluster adopts it")));
        }
        Known::Absent => {
            let owner = format!("Cluster {}", object.owner("Cluster").unwrap_or_default());
            return Plan::idle(Why::new(
                CapiReason::OwnerMissing { owner },
                Step::Expect("the Cluster appears"),
            ));
        }
    };
    let letter = Letter {
        kind: "mailguncluster",
        purpose: "create",
        subject: format!("[{}] New Cluster {} requested", request.priority, cluster.object.name),
        text: format!("Hello! One cluster please.\n\n{}\n", request.request),
        request,
    };
    let is_filled_in = s.request.has_endpoint || s.request.assumes_fulfilment;
    conclude(&s.mail, "MailgunCluster", request, mail::decide(&s.mail, &letter), is_filled_in, ENDPOINT)
}

const ENDPOINT: &str = "host and port of spec.controlPlaneEndpoint";

/// Writes only the condition of the pause.
pub(super) fn paused(
    kind: &str,
    request: &MailRequestFacts,
    cluster_is_paused: bool,
    now: Timestamp,
) -> Plan<Action> {
    let report = conditions::paused(kind, cluster_is_paused, request.object.is_paused());
    let why = Why::new(
        CapiReason::Paused { causes: report.message.clone() },
        Step::Expect("the controller continues when the pause ends"),
    );
    with_reports(Plan::idle(why), request, &[report], now, |_| {})
}

/// Combines the decision about the mail with the state of the fulfilment.
pub(super) fn conclude(
    s: &mail::Snapshot,
    kind: &str,
    request: &MailRequestFacts,
    decision: Decision,
    is_filled_in: bool,
    field: &'static str,
) -> Plan<Action> {
    let Decision { is_sent, action, why, until, report, state } = decision;
    let is_fulfilled = is_sent && is_filled_in;
    let fulfilled = if is_fulfilled {
        ConditionReport::yes(FULFILLED, "Fulfilled")
    } else if is_sent {
        ConditionReport::no(FULFILLED, "WaitingForFulfilment", format!("A person has to fill in {field}"))
    } else {
        ConditionReport::no(FULFILLED, "WaitingForFulfilment", "The request has not been sent")
    };
    let why = match (is_sent, is_fulfilled) {
        (true, false) => {
            Why::new(CapiReason::AwaitingFulfilment { field }, Step::Fix(format!("fill in {field}")))
        }
        (true, true) | (false, _) => why,
    };
    let mut plan = Plan::idle(why);
    if let Some(until) = until {
        plan = plan.no_later_than(until);
    }
    plan.actions.extend(action.map(Action::Mail));
    let parts = [report, fulfilled];
    let ready = conditions::ready(&parts);
    let [report, fulfilled] = parts;
    let reports = [report, fulfilled, ready, conditions::paused(kind, false, false)];
    with_reports(plan, request, &reports, s.now, |status| {
        status.message_id.clone_from(&request.message_id);
        status.send_state = Some(state.to_owned());
        status.sent_at = request.sent_at().map(str::to_owned);
        let error = mail::intent_of(request).and_then(Result::ok).and_then(|intent| intent.message);
        status.last_error = error.filter(|_| !is_sent);
        if is_fulfilled {
            status.ready = Some(true);
            status.initialization = Some(Initialization { provisioned: Some(true) });
        }
    })
}

/// Puts the write of the status before the actions of a plan, if the status differs.
fn with_reports(
    mut plan: Plan<Action>,
    request: &MailRequestFacts,
    reports: &[ConditionReport],
    now: Timestamp,
    change: impl FnOnce(&mut MailStatus),
) -> Plan<Action> {
    let old = request.status.clone().unwrap_or_default();
    let mut new = old.clone();
    change(&mut new);
    new.conditions = conditions::merge(&old.conditions, reports, request.object.generation, now);
    new.deprecated = conditions::merge_v1(old.deprecated.as_ref(), reports, now);
    let write = (new != old).then(|| Action::SetStatus(Box::new(new)));
    plan.actions.splice(0..0, write);
    plan
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mail(action) => action.fmt(f),
            Self::SetStatus(status) => {
                write!(f, "status: {}", status.send_state.as_deref().unwrap_or_default())
            }
        }
    }
}
