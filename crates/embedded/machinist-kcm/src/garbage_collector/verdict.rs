//! What is to become of one object, given what became of its owners.
//!
//! | owners | verdict |
//! |---|---|
//! | none, or all of them there | keep |
//! | some there, others absent or waiting for their dependents | keep, without those others |
//! | none there, one waits, and the object has dependents itself | delete in the foreground |
//! | none there | delete, as its own finalizers say |

use std::collections::BTreeSet;

use kube::api::PropagationPolicy;

use super::graph::{FOREGROUND, ItemFacts, ORPHAN};

/// What became of one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerState {
    /// It is there.
    Present,
    /// It is there, being deleted, and waits for its dependents to go first.
    Waiting,
    /// It is not there; confirmed by the quorum.
    Absent,
    /// It cannot be looked for: its kind is not served, or it lies where an owner may not be.
    Unknown,
}

/// What the object has below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dependents {
    None,
    Some,
    /// One of them waits for its own dependents, so the object may be among those: a circle.
    Waiting,
}

/// What to do with the object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    Keep,
    /// Take these owners off it.
    Release {
        owners: BTreeSet<String>,
    },
    /// Delete it.
    Delete(PropagationPolicy),
    /// Let its waiting owners go first, then delete it in the foreground: both at once would wait for each other.
    UnblockAndDelete,
}

/// Decides. The states are those of the owners, in their order.
pub(crate) fn verdict(item: &ItemFacts, states: &[OwnerState], dependents: Dependents) -> Verdict {
    if item.is_deleting || states.is_empty() || states.contains(&OwnerState::Unknown) {
        return Verdict::Keep;
    }
    let is_present = states.contains(&OwnerState::Present);
    let is_waiting = states.contains(&OwnerState::Waiting);
    match (is_present, is_waiting, dependents) {
        (true, _, _) => {
            let others = item.owner_uids().zip(states).filter(|(_, state)| **state != OwnerState::Present);
            let owners: BTreeSet<String> = others.map(|(uid, _)| uid.to_owned()).collect();
            if owners.is_empty() { Verdict::Keep } else { Verdict::Release { owners } }
        }
        (false, true, Dependents::Some) => Verdict::Delete(PropagationPolicy::Foreground),
        (false, true, Dependents::Waiting) => Verdict::UnblockAndDelete,
        (false, true, Dependents::None) | (false, false, _) => Verdict::Delete(policy_of(item)),
    }
}

fn policy_of(item: &ItemFacts) -> PropagationPolicy {
    if item.has_finalizer(ORPHAN) {
        PropagationPolicy::Orphan
    } else if item.has_finalizer(FOREGROUND) {
        PropagationPolicy::Foreground
    } else {
        PropagationPolicy::Background
    }
}

#[cfg(test)]
mod tests {
    use super::OwnerState::{Absent, Present, Unknown, Waiting};
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    fn item(owners: usize) -> ItemFacts {
        let owner = |index| OwnerReference { uid: format!("u{index}"), ..OwnerReference::default() };
        ItemFacts { uid: "i".to_owned(), owners: (0..owners).map(owner).collect(), ..ItemFacts::default() }
    }

    fn of(states: &[OwnerState], dependents: Dependents) -> Verdict {
        verdict(&item(states.len()), states, dependents)
    }

    #[test]
    fn what_is_owned_by_nobody_or_by_somebody_stays() {
        assert_eq!(of(&[], Dependents::None), Verdict::Keep);
        assert_eq!(of(&[Present, Present], Dependents::Some), Verdict::Keep);
    }

    #[test]
    fn what_is_still_owned_loses_the_other_owners_only() {
        let owners = ["u0", "u2"].map(str::to_owned).into();
        assert_eq!(of(&[Absent, Present, Waiting], Dependents::Some), Verdict::Release { owners });
    }

    #[test]
    fn what_is_no_longer_owned_goes() {
        assert_eq!(of(&[Absent, Absent], Dependents::Some), Verdict::Delete(PropagationPolicy::Background));
        assert_eq!(of(&[Waiting], Dependents::None), Verdict::Delete(PropagationPolicy::Background));
        assert_eq!(of(&[Waiting, Absent], Dependents::Some), Verdict::Delete(PropagationPolicy::Foreground));
    }

    #[test]
    fn a_circle_of_waiting_is_broken() {
        assert_eq!(of(&[Waiting], Dependents::Waiting), Verdict::UnblockAndDelete);
    }

    #[test]
    fn what_cannot_be_looked_for_is_never_taken_as_absent() {
        assert_eq!(of(&[Absent, Unknown], Dependents::None), Verdict::Keep);
    }

    #[test]
    fn the_finalizers_say_how_it_goes() {
        let mut orphaning = item(1);
        orphaning.finalizers = Some(vec!["x".to_owned(), ORPHAN.to_owned()]);
        assert_eq!(
            verdict(&orphaning, &[Absent], Dependents::None),
            Verdict::Delete(PropagationPolicy::Orphan)
        );
        orphaning.finalizers = Some(vec![FOREGROUND.to_owned()]);
        assert_eq!(
            verdict(&orphaning, &[Absent], Dependents::None),
            Verdict::Delete(PropagationPolicy::Foreground)
        );
        orphaning.is_deleting = true;
        assert_eq!(verdict(&orphaning, &[Absent], Dependents::None), Verdict::Keep);
    }
}
