//! The dry run of Services: asks the cloud what `ensure` would change, and changes nothing.

use std::sync::Arc;

use machinist_core::{Answered, Step};
use machinist_instance::{BalancerSpec, Error, ErrorKind};
use machinist_kube::ObjectKey;
use machinist_plan::ccm::account::Proof;
use machinist_plan::ccm::service::{
    Action, BalancerAnswers, COMPARE_BALANCER, Inputs, Snapshot, wants_balancer,
};
use machinist_plan::ccm::{Plan, Reason, Why};
use machinist_plan::facts::ServiceFacts;
use machinist_runtime::Stop;

use super::super::contract::Runtime;
use super::start;

/// Whether the process would first write the finalizer of a Service.
pub(super) fn lacks_finalizer(runtime: &Runtime, service: &ServiceFacts) -> bool {
    !service.has_finalizer
        && service.deleting_since.is_none()
        && wants_balancer(service, &runtime.tools.options.services)
}

/// Replaces `ensure` by the comparison with the cloud, and by its result once the cloud has
/// answered.
pub(super) fn plan(runtime: &Runtime, s: &Snapshot, mut plan: Plan<Action>) -> Plan<Action> {
    for action in &mut plan.actions {
        let Action::Ensure { spec, inputs } = action else { continue };
        match s.answers.foreseen.as_ref().filter(|(compared, _)| compared == inputs) {
            Some((_, changes)) => {
                *action = Action::Foreseen(changes.clone());
                plan.why = Why::new(Reason::Awaiting(DRY_RUN), Step::Nothing);
            }
            None => *action = Action::Compare { spec: spec.clone(), inputs: *inputs },
        }
    }
    let key = ObjectKey::new(&s.service.namespace, &s.service.name);
    let stored = runtime.lock().seen.services.get(&key).map(|stored| stored.facts.clone());
    let is_proven = s.account.proof == Proof::Given;
    if is_proven && stored.is_some_and(|stored| lacks_finalizer(runtime, &stored)) {
        plan.actions.insert(0, Action::AddFinalizer);
    }
    plan
}

const DRY_RUN: &str = "this is a dry run, so the planned changes are only logged";

/// Starts the comparison.
pub(super) fn compare(
    runtime: &Arc<Runtime>,
    s: &Snapshot,
    spec: BalancerSpec,
    inputs: Inputs,
) -> Result<(), Stop> {
    let options = runtime.tools.options.services.clone();
    let is_wanted =
        move |service: &ServiceFacts| service.deleting_since.is_none() && wants_balancer(service, &options);
    let key = spec.key.clone();
    let remember = move |answers: &mut BalancerAnswers, answered: Answered<Vec<String>>| {
        let Answered { started, ended, account, answer } = answered;
        let changes = match answer {
            Ok(changes) if changes.is_empty() => "no change".to_owned(),
            Ok(changes) => changes.join(", "),
            Err(error) if error.kind == ErrorKind::Unsupported => "changes not known in advance".to_owned(),
            Err(error) => {
                return answers.take_ensure(inputs, Answered { started, ended, account, answer: Err(error) });
            }
        };
        (answers.ensure, answers.failures) = (None, 0);
        answers.foreseen = Some((inputs, format!("ensure balancer {key}: {changes}")));
    };
    start(runtime, s, COMPARE_BALANCER, is_wanted, remember, |driver| async move {
        match driver.balancers() {
            Some(balancers) => balancers.foresee(&spec).await,
            None => Err(Error::unsupported("load balancers")),
        }
    })
}
