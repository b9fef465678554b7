//! Follows the instance of a Node that is not ready: the shutdown taint, and the lookups that prove
//! that an instance does not exist.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use machinist_core::{Call, Step, plus, since};
use machinist_instance::{Error, Power, ProviderId, RecordedId};

use super::action::Action;
use super::newest_sighting::NewestSighting;
use super::snapshot::Snapshot;
use super::{emit, other_id};
use crate::ccm::account::{Failure, calling, failure_wait};
use crate::ccm::node_removal::{Case, Verdict};
use crate::ccm::why::{CcmReason, Plan, Reason, Why};
use crate::ccm::{names, taints};
use crate::event::EventText;

/// The longest wait before the next lookup of an instance that exists.
const EXISTS_AT_MOST: Duration = Duration::from_secs(60);
/// Wait before the next lookup of an instance that is known not to exist. If its Node is kept, for
/// example by the brake, the lookup notices an instance that appears again.
const MISSING_AGAIN: Duration = Duration::from_secs(600);
/// First and longest wait after a failed lookup.
const FAILED_AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

/// The result for a Node, whose taints are patched together with its labels.
pub(super) struct Lifecycle {
    pub(super) taints: Option<Vec<Taint>>,
    pub(super) plan: Plan<Action>,
}

pub(super) fn plan(s: &Snapshot) -> Lifecycle {
    if s.node.is_ready() {
        return Lifecycle { taints: taints::running(s.node.taints()), plan: Plan::idle(why_of_ready(s)) };
    }
    let RecordedId::Ours(id) = &s.recorded else {
        return Lifecycle { taints: None, plan: other_id(s) };
    };
    if let Some((call, started)) = s.answers.in_flight {
        return Lifecycle { taints: None, plan: Plan::idle(calling(call).since(started)) };
    }
    match s.sight() {
        NewestSighting::Present { instance, ended } => present(s, id, instance.power, ended),
        NewestSighting::Foreign { ended } => present(s, id, Power::Changing, ended),
        NewestSighting::Absent { ended } => Lifecycle { taints: None, plan: absent(s, id, ended) },
        NewestSighting::NotListed { .. } => Lifecycle { taints: None, plan: find(s, id) },
        NewestSighting::Failed { error, ended } => {
            Lifecycle { taints: None, plan: after_failure(s, id, error, ended) }
        }
        NewestSighting::Unknown => Lifecycle { taints: None, plan: ask(s, id) },
    }
}

/// A Node may report to be ready for a while after its instance was deleted.
fn why_of_ready(s: &Snapshot) -> Why {
    match (&s.recorded, s.sight()) {
        (RecordedId::Ours(id), NewestSighting::NotListed { ended } | NewestSighting::Absent { ended }) => {
            let reason = CcmReason::ReadyWithoutInstance { instance: id.to_string() };
            Why::new(reason, Step::Expect("the Node stops reporting, or the cloud shows the instance"))
                .since(ended)
        }
        (
            RecordedId::Ours(_)
            | RecordedId::NotOurs { .. }
            | RecordedId::Malformed { .. }
            | RecordedId::Unset,
            _,
        ) => Why::up_to_date(),
    }
}

/// Plans a lookup by id, or a list if many Nodes are not ready.
fn ask(s: &Snapshot, id: &ProviderId) -> Plan<Action> {
    let is_list_cheaper = s.account.list_cost < s.crowd.not_ready && s.account.list_failed.is_none();
    if !is_list_cheaper {
        return find(s, id);
    }
    if let Some(since) = s.account.list_since {
        return Plan::idle(calling(Call::LIST).since(since));
    }
    let plan = s.account.cannot_call(s.now);
    plan.unwrap_or_else(|| Plan::act(Action::List, calling(Call::LIST)))
}

/// Plans a lookup by id, whose answer is evidence.
fn find(s: &Snapshot, id: &ProviderId) -> Plan<Action> {
    if let Some(plan) = s.account.cannot_call(s.now) {
        return plan;
    }
    let which = machinist_instance::InstanceRef { id: Some(id.clone()), ..Default::default() };
    Plan::act(Action::Find(which), calling(Call::FIND))
}

/// The instance exists: follows its power state, and looks again after a wait that doubles.
fn present(s: &Snapshot, id: &ProviderId, power: Power, ended: Timestamp) -> Lifecycle {
    let taints = match power {
        Power::Stopped => taints_of_stopped(s, ended),
        Power::Running => taints::running(s.node.taints()),
        Power::Pending | Power::Changing | Power::Failed | Power::Deleting => None,
    };
    let acts_at = plus(s.process.acting_since(), s.options.monitor_period);
    if taints.is_some() && s.now < acts_at {
        let why = Why::new(CcmReason::LeaderTooYoung, Step::Expect("the controller taints the Node"));
        return Lifecycle { taints: None, plan: Plan::until(acts_at, why) };
    }
    let unready_since = unready_since(s);
    let shortest = s.options.monitor_period;
    let wait = since(ended, unready_since).clamp(shortest, EXISTS_AT_MOST.max(shortest));
    let look_at = plus(ended, s.account.stretched(wait, s.now));
    let plan = if look_at <= s.now {
        s.account.saves(s.now).unwrap_or_else(|| ask(s, id))
    } else {
        let instance = id.to_string();
        let why = match power {
            Power::Stopped => {
                Why::new(CcmReason::InstanceStopped { instance }, Step::Expect("a user starts the instance"))
            }
            Power::Pending | Power::Running | Power::Changing | Power::Failed | Power::Deleting => Why::new(
                CcmReason::NodeNotReady { instance },
                Step::Expect("the kubelet reports to be ready"),
            ),
        };
        Plan::until(look_at, why.since(unready_since))
    };
    Lifecycle { taints, plan }
}

/// The taint `out-of-service` detaches volumes without asking the instance. So two answers, the
/// confirm period apart, must show that the instance is stopped.
fn taints_of_stopped(s: &Snapshot, ended: Timestamp) -> Option<Vec<Taint>> {
    let current = s.node.taints();
    let confirmed_at = s.stopped_since.map(|first| plus(first, s.options.confirm_period));
    let is_confirmed = confirmed_at.is_some_and(|confirmed_at| confirmed_at <= ended);
    if s.options.out_of_service && is_confirmed {
        taints::out_of_service(current)
    } else {
        taints::shut_down(current)
    }
}

/// The instance was absent in the last lookup: collects the proof. `node_removal` deletes the Node.
fn absent(s: &Snapshot, id: &ProviderId, ended: Timestamp) -> Plan<Action> {
    let case = Case {
        now: s.now,
        process: &s.process,
        options: &s.options,
        account: &s.account,
        node: &s.node,
        recorded: &s.recorded,
        answers: &s.answers,
        listed: s.listed.as_ref(),
        ownership: &s.ownership,
        owner: s.owner.as_ref(),
    };
    match case.judge() {
        Verdict::Present | Verdict::Unsure => find(s, id),
        Verdict::LookAgain { look_at, .. } if look_at <= s.now => find(s, id),
        Verdict::ListFirst => match s.account.list_since {
            Some(since) => Plan::idle(calling(Call::LIST).since(since)),
            None => {
                let plan = s.account.cannot_call(s.now);
                plan.unwrap_or_else(|| Plan::act(Action::List, calling(Call::LIST)))
            }
        },
        Verdict::LookAgain { look_at, why } => Plan::until(look_at, why),
        Verdict::Held { until, why } => {
            let is_unproven = matches!(why.reason, Reason::Contract(CcmReason::NodeAccountUnproven { .. }));
            let event = EventText::warning(names::ACCOUNT_UNPROVEN, why.reason.to_string());
            let mut again = look_again(s, id, ended, why);
            again.actions.splice(0..0, emit(s, event).filter(|_| is_unproven));
            match until {
                Some(until) => again.no_later_than(until),
                None => again,
            }
        }
        Verdict::Proven(_) => {
            let reason = CcmReason::NodeRemovable { instance: id.to_string() };
            look_again(s, id, ended, Why::new(reason, Step::Expect("the controller deletes the Node")))
        }
    }
}

/// Waits with that reason, and repeats the lookup from time to time.
fn look_again(s: &Snapshot, id: &ProviderId, ended: Timestamp, why: Why) -> Plan<Action> {
    let look_at = plus(ended, MISSING_AGAIN);
    if look_at <= s.now { find(s, id) } else { Plan::until(look_at, why) }
}

fn after_failure(s: &Snapshot, id: &ProviderId, error: &Error, ended: Timestamp) -> Plan<Action> {
    let failure = Failure { error: error.clone(), ended, count: s.answers.failures };
    let retry_at = plus(ended, failure_wait(&failure, FAILED_AGAIN));
    if retry_at <= s.now || s.account.has_recovered_since(error, ended) {
        return find(s, id);
    }
    Plan::until(retry_at, Why::call_failed(Call::FIND, error, s.answers.failures, retry_at))
}

/// Since when the Node has not been ready.
fn unready_since(s: &Snapshot) -> Timestamp {
    s.node.ready.as_ref().and_then(|ready| ready.since).unwrap_or(s.node.created)
}
