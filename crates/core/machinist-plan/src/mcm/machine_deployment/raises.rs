//! Writes that raise the size of a set, one at a time if one had no answer.
//!
//! A POST or a patch without an answer may take effect up to a minute later, although the API
//! server has answered a read without it. If the deployment meanwhile let another set grow, both
//! sets together would have too many Machines. So no other set grows until the first write was
//! repeated with an answer, was made impossible by a newer version of its set, or is a minute old.
//!
//! Writes of a former leader that did not release its Lease are unknown. They can only matter if
//! the deployment changed since that leader wrote its status.

use super::action::Action;
use super::snapshot::{OpenRaise, Snapshot};
use crate::mcm::rollout;
use crate::mcm::why::{Plan, Reason, Step, Why};

/// Removes the actions that must not raise the size of a set yet.
pub(super) fn hold_back(s: &Snapshot, mut plan: Plan<Action>) -> Plan<Action> {
    let (mut cause, mut until) = (None, s.now);
    plan.actions.retain(|action| {
        let Some(set) = action.raises() else { return true };
        let open = s.open_raises.iter().filter(|open| open.set != set && may_take_effect(s, open));
        let mut held = false;
        for open in open {
            held = true;
            until = until.max(open.until);
            cause = Some(Reason::WriteUnsettled { write: written(s, open) });
        }
        if let Some(predecessor_until) = predecessor_until(s, action) {
            held = true;
            until = until.max(predecessor_until);
            cause.get_or_insert(Reason::PredecessorCalls);
        }
        !held
    });
    let Some(reason) = cause else { return plan };
    // The status says which generation was acted on. A successor of this process relies on it.
    plan.actions.retain(|action| !matches!(action, Action::SetStatus(_)));
    let then = Step::Expect("the MachineSets grow");
    plan.why = Why::new(reason, then.clone()).deadline(until, then);
    plan.no_later_than(until)
}

/// Whether a write without an answer may still raise the size of its set.
fn may_take_effect(s: &Snapshot, open: &OpenRaise) -> bool {
    if open.until <= s.now {
        return false;
    }
    match &open.patched {
        Some((uid, generation)) => {
            s.sets.iter().any(|owned| owned.set.uid == *uid && owned.set.generation == *generation)
        }
        None => !s.taken_names.contains(&open.set) && s.sets.iter().all(|owned| owned.set.name != open.set),
    }
}

/// Returns until when a write of a former leader may raise another set than this action does.
fn predecessor_until(s: &Snapshot, action: &Action) -> Option<jiff::Timestamp> {
    let until = s.predecessor_until.filter(|until| s.now < *until)?;
    let generation = s.deployment.generation.unwrap_or_default();
    let observed = s.deployment.status.as_ref().map_or(0, |status| status.observed_generation);
    // A leader that let sets grow for another template, or to another size, saw another generation.
    let has_changed = 1 < generation && observed < generation;
    // If a set has replicas, a new set is created empty, and only existing sets grow.
    let is_only_set = match (action, s.sets.as_slice()) {
        (Action::PatchSet(patch), [only]) => only.set.uid == patch.set.uid && 0 < rollout::specified(only),
        _ => false,
    };
    (has_changed && !is_only_set).then_some(until)
}

fn written(s: &Snapshot, open: &OpenRaise) -> String {
    let verb = if open.patched.is_some() { "PATCH" } else { "POST" };
    format!("{verb} of machinesets {}/{}", s.deployment.namespace, open.set)
}

impl Action {
    /// Returns the name of the set whose size this action raises.
    fn raises(&self) -> Option<&str> {
        match self {
            Self::CreateSet(set) if 0 < set.spec.replicas() => set.metadata.name.as_deref(),
            Self::PatchSet(patch) if patch.is_higher() => Some(&patch.set.name),
            _ => None,
        }
    }
}
