//! Returns to the template of a former revision, as `spec.rollbackTo` asks.
//!
//! One patch copies the template and the annotations of the revision's set to the deployment, and
//! removes `spec.rollbackTo`. The rollout that follows is an ordinary one. If there is no such
//! revision, or its template is the present one, only `spec.rollbackTo` is removed, and an Event
//! says why. A paused deployment is rolled back when it goes on.

use std::collections::{BTreeMap, BTreeSet};

use machinist_api::constants::{annotations, labels, reasons};

use super::action::{Action, Rollback};
use super::revision::revision_of;
use super::sizing::new_set_index;
use super::snapshot::{Owned, Snapshot};
use super::template::{is_same_template, shared_annotations};
use crate::mcm::refusal::Refusal;
use crate::mcm::why::{Plan, Reason, Step, Why};

pub(super) fn plan(s: &Snapshot) -> Option<Plan<Action>> {
    let rollback_to = s.deployment.spec.rollback_to.as_ref().filter(|_| !s.deployment.spec.is_paused())?;
    Some(match find(s, rollback_to.revision.unwrap_or(0)) {
        Ok(owned) => {
            let next = Step::Expect("the rollout of that revision begins");
            let why = Why::new(Reason::Writing("rolling back to a former revision"), next);
            Plan::act(Action::RollBack(Box::new(rollback(s, owned))), why)
        }
        Err(refusal) => {
            let why = Why::new(Reason::Writing("removing spec.rollbackTo"), Step::Nothing);
            Plan::act(Action::EndRollback(refusal), why)
        }
    })
}

/// Returns the set of a revision whose template differs from the present one. 0 is the newest
/// revision with another template: a set of the present template may not exist yet, or not have its
/// new number.
fn find(s: &Snapshot, revision: i64) -> Result<&Owned, Refusal> {
    let staying = || s.sets.iter().filter(|owned| owned.set.deleting_since.is_none());
    let refuse =
        |reason, message| Err(Refusal { reason, field: "spec.rollbackTo.revision".to_owned(), message });
    let wanted = if revision == 0 { newest_other(s) } else { Some(revision) };
    let Some(wanted) = wanted else {
        let message = "There is no earlier revision to roll back to.".to_owned();
        return refuse(reasons::DEPLOYMENT_ROLLBACK_REVISION_NOT_FOUND, message);
    };
    let Some(owned) = staying().find(|owned| revision_of(&owned.set) == wanted) else {
        let known: BTreeSet<i64> = staying().map(|owned| revision_of(&owned.set)).collect();
        let known: Vec<_> = known.iter().filter(|known| 0 < **known).map(i64::to_string).collect();
        let message =
            format!("There is no revision {wanted} to roll back to. Known revisions: {}.", known.join(", "));
        return refuse(reasons::DEPLOYMENT_ROLLBACK_REVISION_NOT_FOUND, message);
    };
    if is_same_template(&s.deployment.spec.template, &owned.set.spec.template) {
        let message = format!("Revision {wanted} has the present template, so nothing is rolled back.");
        return refuse(reasons::DEPLOYMENT_ROLLBACK_TEMPLATE_UNCHANGED, message);
    }
    Ok(owned)
}

fn newest_other(s: &Snapshot) -> Option<i64> {
    let new = new_set_index(&s.deployment, &s.sets);
    let others = s.sets.iter().enumerate().filter(|(index, _)| Some(*index) != new);
    let staying = others.filter(|(_, owned)| owned.set.deleting_since.is_none());
    staying.map(|(_, owned)| revision_of(&owned.set)).max().filter(|revision| 0 < *revision)
}

fn rollback(s: &Snapshot, owned: &Owned) -> Rollback {
    let set = &owned.set;
    let mut template = set.spec.template.clone();
    template.metadata.labels.remove(labels::MACHINE_TEMPLATE_HASH);
    // The time of the autoscaler's last change belongs to the present, with the marks of Machines.
    let copied = |all: Option<&BTreeMap<String, String>>| {
        let mut shared = shared_annotations(all);
        shared.remove(annotations::LAST_REPLICA_CHANGE_BY_SCALER_TIME);
        shared
    };
    let ours = copied(s.deployment.annotations.as_ref());
    let theirs = copied(set.annotations.as_ref());
    let removed = ours.keys().filter(|key| !theirs.contains_key(*key)).map(|key| (key.clone(), None));
    let changed = theirs.iter().filter(|(key, value)| ours.get(*key) != Some(value));
    let changed = changed.map(|(key, value)| (key.clone(), Some(value.clone())));
    Rollback { revision: revision_of(set), template, annotations: removed.chain(changed).collect() }
}
