//! The dry run of Services: asks the cloud what `ensure` would change, and changes nothing. The
//! rules are in `machinist_plan::ccm::service`.

use std::sync::Arc;

use machinist_core::Answered;
use machinist_instance::{BalancerSpec, Error, ErrorKind};
use machinist_plan::ccm::facts::ServiceFacts;
use machinist_plan::ccm::service::{COMPARE_BALANCER, Inputs, ServiceAnswers, Snapshot, wants_balancer};
use machinist_runtime::Stop;

use super::start;
use crate::ccm::contract::Runtime;

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
    let remember = move |answers: &mut ServiceAnswers, answered: Answered<Vec<String>>| {
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
