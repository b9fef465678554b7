//! Lifts the freeze of a deployment.
//!
//! A deployment is frozen while one of its sets is frozen. When no set is frozen, the
//! freeze of the deployment is lifted. The set's own rule lifts the freeze of a set. The annotation
//! `unfreeze` is first copied to the frozen sets and then removed from the deployment. If the
//! process dies in between, the next pass copies it again.

use std::collections::BTreeMap;

use machinist_api::constants::annotations;

use super::{Action, Owned, SetPatch, Snapshot};
use crate::mcm::why::{Plan, Reason, Step, Why};

/// Lifts the freeze if the conditions for it are met.
pub(super) fn thaw(s: &Snapshot) -> Option<Plan<Action>> {
    let freeze = s.deployment.freeze();
    let frozen = || s.sets.iter().filter(|owned| is_frozen(owned));
    let why = Why::new(Reason::Writing("lifting the freeze"), Step::Nothing);
    if let Some(value) = s.deployment.annotation(annotations::UNFREEZE) {
        let unasked = frozen().filter(|owned| !owned.set.freeze().is_lift_asked);
        let pass_on = |owned: &Owned| {
            let annotations = BTreeMap::from([(annotations::UNFREEZE.to_owned(), Some(value.to_owned()))]);
            Action::PatchSet(SetPatch {
                set: owned.set.clone(),
                replicas: None,
                annotations,
                labels: BTreeMap::new(),
                template: None,
            })
        };
        let actions: Vec<_> = unasked.map(pass_on).collect();
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

/// Whether a set is frozen. A set that is being deleted does not count, because it creates no
/// Machines.
fn is_frozen(owned: &Owned) -> bool {
    owned.set.deleting_since.is_none() && owned.set.freeze().is_frozen()
}
