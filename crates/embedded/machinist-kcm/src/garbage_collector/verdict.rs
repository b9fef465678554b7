//! Decides what happens to one object, given the states of its owners.
//!
//! | owners | verdict |
//! |---|---|
//! | none, or all present | keep |
//! | some present, others absent or waiting for their dependents | keep, and remove the references to the others |
//! | none present, one waiting, and the object has dependents itself | delete in the foreground |
//! | none present | delete, as its own finalizers say |

use std::collections::BTreeSet;

use kube::api::PropagationPolicy;

use super::graph::{FOREGROUND, ItemFacts, ORPHAN};

/// State of one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerState {
    Present,
    /// The owner exists, is being deleted, and waits for the deletion of its dependents.
    Waiting,
    /// The owner does not exist; the quorum confirmed it.
    Absent,
    /// The owner cannot be read: its kind is not served, or its scope does not allow the reference.
    Unknown,
}

/// The dependents of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dependents {
    None,
    Some,
    /// A dependent waits for its own dependents, and the object may be one of them: a cycle.
    Waiting,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    Keep,
    /// Removes the references to these owners.
    Release {
        owners: BTreeSet<String>,
    },
    Delete(PropagationPolicy),
    /// Unblocks the waiting owners, then deletes the object in the foreground. Otherwise both would
    /// wait for each other.
    UnblockAndDelete,
}

/// Decides. The states have the order of the owners.
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
    fn an_object_without_owners_or_with_present_owners_stays() {
        assert_eq!(of(&[], Dependents::None), Verdict::Keep);
        assert_eq!(of(&[Present, Present], Dependents::Some), Verdict::Keep);
    }

    #[test]
    fn an_owned_object_loses_only_its_absent_owners() {
        let owners = ["u0", "u2"].map(str::to_owned).into();
        assert_eq!(of(&[Absent, Present, Waiting], Dependents::Some), Verdict::Release { owners });
    }

    #[test]
    fn an_object_without_present_owners_is_deleted() {
        assert_eq!(of(&[Absent, Absent], Dependents::Some), Verdict::Delete(PropagationPolicy::Background));
        assert_eq!(of(&[Waiting], Dependents::None), Verdict::Delete(PropagationPolicy::Background));
        assert_eq!(of(&[Waiting, Absent], Dependents::Some), Verdict::Delete(PropagationPolicy::Foreground));
    }

    #[test]
    fn a_cycle_of_waiting_objects_is_broken() {
        assert_eq!(of(&[Waiting], Dependents::Waiting), Verdict::UnblockAndDelete);
    }

    #[test]
    fn an_unreadable_owner_never_counts_as_absent() {
        assert_eq!(of(&[Absent, Unknown], Dependents::None), Verdict::Keep);
    }

    #[test]
    fn the_finalizers_decide_the_propagation_policy() {
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
