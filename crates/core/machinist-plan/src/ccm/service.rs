//! Service: creates, updates and deletes its load balancer.
//!
//! ```text
//! wanted:      finalizer -> ensure -> status
//! not wanted:  delete -> finalizer and status in one patch
//! ```
//!
//! The finalizer is the intent: without it no load balancer is created, and with it the Service
//! stays until its load balancer does not exist any more. A call of the driver returns `Working`
//! while the cloud acts, and is repeated later.
//!
//! A Service without the finalizer needs no cleanup, so this planner makes no call for it.

mod answers;
mod status;
mod wanted;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::{Answered, Call, Step, plus};
use machinist_instance::{
    Balancer, BalancerDeletion, BalancerKey, BalancerRef, BalancerSpec, Ensured, Error, Ingress, Progress,
};

use self::wanted::Wanted;
use super::account::{self, Account, Failure};
use super::backends::Backends;
use super::{CcmReason, Plan, Reason, Why, names};
use crate::event::{EventText, Told};
use crate::facts::ServiceFacts;

pub use self::answers::{BalancerAnswers, Inputs, ListedBalancer};
pub use self::status::entry as ingress_entry;

/// Creates or updates a load balancer.
pub const ENSURE_BALANCER: Call = Call::change("ensure the load balancer");
/// Deletes a load balancer.
pub const DELETE_BALANCER: Call = Call::change("delete the load balancer");
/// Lists the load balancers of the account.
pub const LIST_BALANCERS: Call = Call::look("list the load balancers");

/// All facts for one decision about one Service.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The moment of the decision.
    pub now: Timestamp,
    /// The flags of the service controller.
    pub options: Arc<Options>,
    /// The Service to decide about.
    pub service: Arc<ServiceFacts>,
    /// The Nodes that may be behind the load balancer.
    pub backends: Arc<Backends>,
    /// The keys of the other Services that exist.
    pub keys_in_use: Arc<Vec<BalancerKey>>,
    /// The state of today's account.
    pub account: Account,
    /// The driver's answers for this Service, by its UID.
    pub answers: BalancerAnswers,
    /// The result of the last list of load balancers for this Service.
    pub listed: Option<ListedBalancer>,
    /// Events that were emitted about the Service.
    pub told: Arc<Told>,
}

impl Hash for Snapshot {
    /// The keys of other Services are excluded: they change often, and rarely matter.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { now: _, options: _, service, backends, keys_in_use: _, account, answers, listed, told } =
            self;
        (service, backends, account, answers, listed, told).hash(state);
    }
}

/// The flags of the service controller.
#[derive(Debug, Clone)]
pub struct Options {
    /// The value of `spec.loadBalancerClass` that this program serves, beside an absent one; for
    /// example `machinist.dev/hcloud`.
    pub class: String,
    /// The prefix of the annotations with options, with its slash; for example
    /// `load-balancer.hetzner.cloud/`.
    pub prefix: String,
}

/// One call for one Service.
#[derive(Debug)]
pub enum Action {
    /// Adds the finalizer: the intent.
    AddFinalizer,
    /// Asks the driver to create or update the load balancer.
    Ensure {
        /// The wanted load balancer.
        spec: Box<BalancerSpec>,
        /// Fingerprint of the spec, to store with the answer.
        inputs: Inputs,
    },
    /// Asks the driver to delete the load balancer.
    Delete(BalancerRef),
    /// Replaces `status.loadBalancer.ingress`, guarded by the UID and the list as it was read.
    SetStatus(Vec<Ingress>),
    /// Removes the finalizer and clears `status.loadBalancer.ingress`, in one patch.
    Release,
    /// Emits an Event on the Service.
    Tell(EventText),
}

/// Time between two questions whether the cloud has carried out a change: at first, and at most.
const WORKING_AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// First and longest wait after a failed call.
const FAILED_AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// Decides the next actions for one Service.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    if needs_cleanup(&s.service) {
        return delete(s);
    }
    match (&s.service.class, wants_balancer(&s.service, &s.options)) {
        (_, true) if s.service.deleting_since.is_none() => ensure(s),
        (Some(class), false) if s.service.is_load_balancer => Plan::idle(Why::new(
            CcmReason::OtherBalancerClass { class: class.clone() },
            Step::Expect("the other program creates the load balancer"),
        )),
        (_, _) => Plan::idle(Why::settled()),
    }
}

/// Whether this program provides the load balancer of a Service.
pub fn wants_balancer(service: &ServiceFacts, options: &Options) -> bool {
    service.is_load_balancer && service.class.as_ref().is_none_or(|class| *class == options.class)
}

/// Whether a Service may have a load balancer that must be deleted.
pub fn needs_cleanup(service: &ServiceFacts) -> bool {
    service.has_finalizer && (service.deleting_since.is_some() || !service.is_load_balancer)
}

fn ensure(s: &Snapshot) -> Plan<Action> {
    if !s.service.has_finalizer {
        let why = Why::new(
            Reason::Writing("adding the finalizer, which records that a load balancer may exist"),
            Step::Expect("the cloud creates the load balancer"),
        );
        return Plan::act(Action::AddFinalizer, why);
    }
    let wanted = match wanted::of(s) {
        Ok(wanted) => wanted,
        Err(message) => {
            let reason = CcmReason::NodeSelectorInvalid { message };
            let event = failed_event(&reason.to_string());
            let why = Why::new(reason, Step::Fix("correct the annotation of the Service".to_owned()));
            let mut plan = Plan::idle(why);
            plan.actions.extend(tell(s, event));
            return plan;
        }
    };
    let mut plan = ensured(s, &wanted);
    let skipped = wanted.skipped.iter().map(|text| EventText::warning(names::PORT_SKIPPED, text.clone()));
    let none = wanted.spec.targets.is_empty().then(|| {
        let message = "There are no available Nodes for the load balancer";
        EventText::warning(names::UNAVAILABLE_BALANCER, message)
    });
    let events: Vec<Action> = skipped.chain(none).filter_map(|event| tell(s, event)).collect();
    plan.actions.splice(0..0, events);
    plan
}

fn ensured(s: &Snapshot, wanted: &Wanted) -> Plan<Action> {
    if let Some((call, since)) = s.answers.in_flight {
        return Plan::idle(account::calling(call).since(since));
    }
    let Some((inputs, last)) = &s.answers.ensure else { return call_ensure(s, wanted) };
    let is_same = *inputs == wanted.inputs && last.account == s.account.id;
    match &last.answer {
        Ok(Progress::Done(ensured)) if is_same && !has_drifted(s, &ensured.balancer, last.started) => {
            done(s, wanted, ensured)
        }
        Ok(Progress::Done(_)) => call_ensure(s, wanted),
        Ok(Progress::Working(change)) => match working(s, change, last.ended) {
            Some(plan) => plan,
            None => call_ensure(s, wanted),
        },
        // A change of the Service or its Nodes may remove the cause.
        Err(_) if !is_same => call_ensure(s, wanted),
        Err(error) => {
            let only_nodes_differ = s.answers.done.is_some_and(|done| done.shape == wanted.inputs.shape);
            let event = match only_nodes_differ {
                true => EventText::warning(
                    names::UPDATE_BALANCER_FAILED,
                    format!("Error updating load balancer with new Nodes: {}", error.message),
                ),
                false => failed_event(&error.message),
            };
            failed(s, ENSURE_BALANCER, error, last.ended, event).unwrap_or_else(|| call_ensure(s, wanted))
        }
    }
}

fn call_ensure(s: &Snapshot, wanted: &Wanted) -> Plan<Action> {
    if let Some(plan) = s.account.cannot_call(s.now) {
        return plan;
    }
    // After a restart or with a renewed credential the call only reads, so it is not announced.
    let has_new_inputs = s.answers.done.is_some_and(|done| done != wanted.inputs);
    let is_drift = match &s.answers.ensure {
        Some((_, Answered { started, answer: Ok(Progress::Done(ensured)), .. })) => {
            has_drifted(s, &ensured.balancer, *started)
        }
        Some(_) | None => false,
    };
    let is_change = s.service.ingress().is_empty() || has_new_inputs || is_drift;
    let event = EventText::normal(names::ENSURING_BALANCER, "Ensuring load balancer");
    let is_announced = s.told.is_open(names::ENSURING_BALANCER, &ENDS_OF_ENSURE);
    let mut actions: Vec<Action> =
        (is_change && !is_announced).then_some(Action::Tell(event)).into_iter().collect();
    actions.push(Action::Ensure { spec: Box::new(wanted.spec.clone()), inputs: wanted.inputs });
    Plan::act_all(actions, account::calling(ENSURE_BALANCER))
}

/// The Events that end an announced change.
const ENDS_OF_ENSURE: [&str; 2] = [names::ENSURED_BALANCER, names::UPDATED_BALANCER];

/// The load balancer is as wanted: writes the status and reports it.
fn done(s: &Snapshot, wanted: &Wanted, ensured: &Ensured) -> Plan<Action> {
    let mut actions: Vec<Action> =
        status::needed(&s.service, &ensured.balancer.ingress).map(Action::SetStatus).into_iter().collect();
    for note in &ensured.notes {
        actions.extend(tell(s, EventText::warning(note.reason, note.message.clone())));
    }
    if s.told.is_open(names::ENSURING_BALANCER, &ENDS_OF_ENSURE) {
        let event = match s.answers.replaced {
            // Until the Service shows an address, its load balancer is new to its users.
            Some(before) if before.shape == wanted.inputs.shape && !s.service.ingress().is_empty() => {
                EventText::normal(names::UPDATED_BALANCER, "Updated load balancer with new Nodes")
            }
            Some(_) | None => EventText::normal(names::ENSURED_BALANCER, "Ensured load balancer"),
        };
        actions.push(Action::Tell(event));
    }
    let is_writing = actions.iter().any(|action| matches!(action, Action::SetStatus(_)));
    let why = if is_writing {
        Why::new(Reason::Writing("updating the addresses in the status"), Step::Nothing)
    } else if wanted.spec.targets.is_empty() {
        Why::new(CcmReason::NoBackends, Step::Expect("a Node registers"))
    } else {
        Why::settled()
    };
    Plan::act_all(actions, why)
}

/// Whether another program changed the load balancer since the last `ensure`.
fn has_drifted(s: &Snapshot, ensured: &Balancer, ensured_at: Timestamp) -> bool {
    let Some(listed) = s.listed.as_ref().filter(|listed| ensured_at < listed.started) else { return false };
    let Some(balancer) = &listed.balancer else { return true };
    // A protection matters only for the deletion.
    let Balancer { id, key, name, ingress, ports, targets, is_protected: _ } = balancer;
    (id, key, name) != (&ensured.id, &ensured.key, &ensured.name)
        || ingress != &ensured.ingress
        || sorted(ports) != sorted(&ensured.ports)
        || sorted(targets) != sorted(&ensured.targets)
}

fn sorted<T: Ord>(all: &[T]) -> Vec<&T> {
    let mut all: Vec<&T> = all.iter().collect();
    all.sort();
    all
}

fn delete(s: &Snapshot) -> Plan<Action> {
    if let Some((call, since)) = s.answers.in_flight {
        return Plan::idle(account::calling(call).since(since));
    }
    let Some(last) = s.answers.delete.as_ref().filter(|last| last.account == s.account.id) else {
        return call_delete(s);
    };
    match &last.answer {
        Ok(Progress::Done(ended)) => release(s, *ended),
        Ok(Progress::Working(change)) => working(s, change, last.ended).unwrap_or_else(|| call_delete(s)),
        Err(error) => {
            let message = format!("Error deleting load balancer: {}", error.message);
            let event = EventText::warning(names::DELETE_BALANCER_FAILED, message);
            failed(s, DELETE_BALANCER, error, last.ended, event).unwrap_or_else(|| call_delete(s))
        }
    }
}

fn call_delete(s: &Snapshot) -> Plan<Action> {
    if let Some(plan) = s.account.cannot_call(s.now) {
        return plan;
    }
    let which = BalancerRef { id: None, key: s.service.key() };
    let event = EventText::normal(names::DELETING_BALANCER, "Deleting load balancer");
    let is_announced = s.told.is_open(names::DELETING_BALANCER, &[names::DELETED_BALANCER]);
    let mut actions: Vec<Action> = (!is_announced).then_some(Action::Tell(event)).into_iter().collect();
    actions.push(Action::Delete(which));
    Plan::act_all(actions, account::calling(DELETE_BALANCER))
}

/// The load balancer does not exist any more, or a user protected it.
fn release(s: &Snapshot, ended: BalancerDeletion) -> Plan<Action> {
    let mut actions = Vec::new();
    if ended == BalancerDeletion::Retained {
        let message = "The load balancer is protected against deletion in the cloud, so it was kept. Its \
                       label was removed; delete it there if it is not needed.";
        actions.extend(tell(s, EventText::warning(names::BALANCER_RETAINED, message)));
    }
    actions.push(Action::Release);
    actions.push(Action::Tell(EventText::normal(names::DELETED_BALANCER, "Deleted load balancer")));
    Plan::act_all(actions, Why::new(Reason::Writing("removing the finalizer"), Step::Nothing))
}

/// Waits while the cloud carries out a change. Absent when the next question is due.
fn working(s: &Snapshot, change: &str, ended: Timestamp) -> Option<Plan<Action>> {
    let since = s.answers.working_since.unwrap_or(ended);
    let wait = machinist_core::since(ended, since).clamp(WORKING_AGAIN.0, WORKING_AGAIN.1);
    let look_at = plus(ended, wait);
    if look_at <= s.now {
        return None;
    }
    let reason = CcmReason::BalancerWorking { change: change.to_owned() };
    let why = Why::new(reason, Step::Expect("the controller asks again")).since(since);
    Some(Plan::until(look_at, why))
}

/// Waits after a failed call, and reports it. Absent when the retry is due.
fn failed(
    s: &Snapshot,
    call: Call,
    error: &Error,
    ended: Timestamp,
    event: EventText,
) -> Option<Plan<Action>> {
    if s.account.has_recovered_since(ended) {
        return None;
    }
    let failure = Failure { error: error.clone(), ended, count: s.answers.failures };
    let retry_at = plus(ended, account::failure_wait(&failure, FAILED_AGAIN));
    if retry_at <= s.now {
        return None;
    }
    let mut plan = Plan::until(retry_at, account::failed(call, error, s.answers.failures, retry_at));
    plan.actions.extend(tell(s, event));
    Some(plan)
}

fn failed_event(message: &str) -> EventText {
    EventText::warning(names::SYNC_BALANCER_FAILED, format!("Error syncing load balancer: {message}"))
}

fn tell(s: &Snapshot, event: EventText) -> Option<Action> {
    s.told.if_due(event, s.now).map(Action::Tell)
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddFinalizer => f.write_str("service: add finalizer"),
            Self::Ensure { spec, .. } => {
                let ports: Vec<_> =
                    spec.listeners.iter().map(|it| format!("{}/{}", it.port, it.protocol)).collect();
                let nodes: Vec<_> = spec.targets.iter().map(|target| target.node.as_str()).collect();
                write!(f, "driver: ensure balancer {}, ports {}, ", spec.key, ports.join(" "))?;
                match nodes.len() {
                    0..=MOST_NAMED => write!(f, "nodes [{}]", nodes.join(" ")),
                    more => write!(f, "{more} nodes"),
                }
            }
            Self::Delete(which) => write!(f, "driver: delete balancer {}", which.key),
            Self::SetStatus(ingress) => {
                let all = ingress.iter().map(|ingress| match ingress {
                    Ingress::Ip { address, .. } => address.to_string(),
                    Ingress::Hostname(name) => name.clone(),
                });
                write!(f, "status: [{}]", all.collect::<Vec<_>>().join(" "))
            }
            Self::Release => f.write_str("service: remove finalizer, clear status"),
            Self::Tell(event) => event.fmt(f),
        }
    }
}

/// Up to this number of Nodes, the log names each.
const MOST_NAMED: usize = 20;

#[cfg(test)]
mod tests;
