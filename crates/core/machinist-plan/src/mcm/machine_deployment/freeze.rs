//! Lifting a freeze of a deployment.
//!
//! A deployment is frozen because one of its sets is. So it thaws when none of them is frozen any more; what lifts the freeze of a
//! set is the set's own rule. The annotation `unfreeze` is passed on to the frozen sets first, and leaves the deployment after each of
//! them has it: a manager that dies in between passes it on again.

use std::collections::BTreeMap;

use machinist_api::constants::annotations;

use super::{Action, Owned, SetPatch, Snapshot};
use crate::why::{Reason, Step};
use crate::{Plan, Why};

/// Lifts the freeze, when it is time.
pub(super) fn thaw(s: &Snapshot) -> Option<Plan<Action>> {
    let freeze = s.deployment.freeze();
    let frozen = || s.sets.iter().filter(|owned| is_frozen(owned));
    let why = Why::new(Reason::Writing("its freeze to be lifted"), Step::Nothing);
    if let Some(value) = s.deployment.annotation(annotations::UNFREEZE) {
        let untold = frozen().filter(|owned| !owned.set.freeze().is_lift_asked);
        let pass_on = |owned: &Owned| {
            let annotations = BTreeMap::from([(annotations::UNFREEZE.to_owned(), value.to_owned())]);
            Action::PatchSet(SetPatch { set: owned.set.clone(), replicas: None, annotations, template: None })
        };
        let actions: Vec<_> = untold.map(pass_on).collect();
        if !actions.is_empty() {
            return Some(Plan::act_all(actions, why));
        }
    } else if !freeze.is_frozen() || frozen().next().is_some() {
        return None;
    }
    let condition =
        freeze.condition.as_ref().map(|condition| Action::RemoveFrozen { index: condition.index });
    let has_marks = freeze.has_label || freeze.is_lift_asked;
    let actions = condition.into_iter().chain(has_marks.then_some(Action::RemoveFreeze));
    Some(Plan::act_all(actions.collect(), why))
}

/// Whether a set is frozen. One that is being deleted makes no Machines anyway.
fn is_frozen(owned: &Owned) -> bool {
    owned.set.deleting_since.is_none() && owned.set.freeze().is_frozen()
}
