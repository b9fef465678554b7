//! The dry run: compares the wanted load balancer with the existing one, and changes nothing.

use machinist_core::Step;

use super::action::Action;
use super::options::Options;
use super::served::wants_balancer;
use super::snapshot::{Rehearsal, Snapshot};
use crate::ccm::facts::ServiceFacts;
use crate::ccm::why::{Plan, Reason, Why};

const DRY_RUN: &str = "this is a dry run, so the planned changes are only logged";

/// Whether the process would first write the finalizer of a Service.
pub fn lacks_finalizer(service: &ServiceFacts, options: &Options) -> bool {
    !service.has_finalizer && service.deleting_since.is_none() && wants_balancer(service, options)
}

/// Replaces `ensure` by the comparison with the cloud, and by its result once the cloud has
/// answered.
pub(super) fn plan(s: &Snapshot, rehearsal: Rehearsal, mut plan: Plan<Action>) -> Plan<Action> {
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
    if s.account.is_proven() && rehearsal.lacks_finalizer {
        plan.actions.insert(0, Action::AddFinalizer(None));
    }
    plan
}
