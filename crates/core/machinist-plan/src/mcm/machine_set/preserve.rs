//! Automatic preservation: which failed Machines are kept for debugging without a user's request.
//!
//! `autoPreserveFailedMachineMax` limits how many Machines have the annotation value
//! `auto-preserved`. The limit counts the Machines of all sets of a deployment, so the deployment
//! decides for them ([`crate::mcm::machine_deployment`]). A set without a deployment decides
//! itself.
//!
//! The annotation is written by a pass that may come after the pass of the set. So a set does not
//! delete a failed Machine that is about to be preserved.

use std::cmp::Reverse;
use std::sync::Arc;

use machinist_api::Phase;
use machinist_api::constants::annotations;

use super::Action;
use super::snapshot::{AutoPreserve, Snapshot};
use crate::mcm::facts::MachineFacts;
use crate::mcm::live::{is_chosen, is_live};

/// The changes that bring the number of preserved Machines to the limit.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    /// Failed Machines that get the annotation, the newest first.
    pub(crate) preserve: Vec<Arc<MachineFacts>>,
    /// Machines that lose the annotation, the oldest first.
    pub(crate) release: Vec<Arc<MachineFacts>>,
}

/// Chooses among the Machines that share a limit.
pub(crate) fn choose<'m>(
    most: Option<i32>,
    machines: impl Iterator<Item = &'m Arc<MachineFacts>> + Clone,
) -> Choice {
    let most = usize::try_from(most.unwrap_or(0)).unwrap_or(0);
    let age = |machine: &Arc<MachineFacts>| (machine.created, machine.name.clone());
    let live = machines.filter(|machine| is_live(machine));
    let count = live.clone().filter(|machine| machine.is_auto_preserved()).count();
    if most < count {
        let own = |machine: &&Arc<MachineFacts>| {
            machine.annotation(annotations::PRESERVE) == Some(annotations::PRESERVE_AUTO)
        };
        let mut release: Vec<_> = live.filter(own).cloned().collect();
        release.sort_by_cached_key(age);
        release.truncate(count - most);
        return Choice { release, ..Choice::default() };
    }
    if most == count {
        return Choice::default();
    }
    let mut preserve: Vec<_> = live.filter(|machine| may_be_preserved(machine)).cloned().collect();
    preserve.sort_by_cached_key(|machine| Reverse(age(machine)));
    preserve.truncate(most - count);
    Choice { preserve, ..Choice::default() }
}

/// Whether a failed Machine has no request about its preservation and was not preserved before. A
/// Machine that the autoscaler chose for deletion is not kept.
fn may_be_preserved(machine: &MachineFacts) -> bool {
    let status = &machine.status;
    let has_failed = status.phase == Phase::Failed && status.preserve_until.is_none();
    has_failed && machine.preserve_value().0.is_empty() && !is_chosen(machine)
}

/// Whether a Machine gets the annotation soon. Until then, its set must not delete it.
pub(super) fn is_about_to_be(s: &Snapshot, machine: &MachineFacts) -> bool {
    match &s.auto_preserve {
        AutoPreserve::Deployment { about_to } => about_to.contains(&machine.uid),
        AutoPreserve::Own => {
            let chosen = || choose(s.set.spec.auto_preserve_failed_machine_max, s.machines.iter()).preserve;
            may_be_preserved(machine) && chosen().iter().any(|other| other.uid == machine.uid)
        }
    }
}

/// Returns the annotations that a set without a deployment writes. Without fresh Machines, none
/// loses its annotation: one of the counted Machines may be gone.
pub(super) fn actions(s: &Snapshot) -> Vec<Action> {
    if s.auto_preserve != AutoPreserve::Own {
        return Vec::new();
    }
    let Choice { preserve, release } = choose(s.set.spec.auto_preserve_failed_machine_max, s.machines.iter());
    let release = release.into_iter().map(Action::EndPreservation);
    preserve.into_iter().map(Action::Preserve).chain(release).collect()
}
