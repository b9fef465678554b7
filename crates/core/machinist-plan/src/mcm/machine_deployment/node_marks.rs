//! Marks on the sets for the Nodes of their Machines during a rollout.
//!
//! The manager does not watch Nodes. It marks the sets, and the machine controller writes a taint
//! and annotations to the Nodes ([`crate::mcm::facts::NodeMarks`]). A mark costs no write of its
//! own while a rollout resizes the set.
//!
//! | Mark | On which set | Until |
//! |---|---|---|
//! | outdated | sets of old templates with Machines | the set becomes the set of the template again |
//! | no scale-up | the same, in an update in place | the same, or the strategy changes |
//! | protected from the autoscaler | all sets with Machines | the rollout is complete |
//!
//! Sets without Machines keep their marks: no Node has them, and removing them would cost a write.
//! In a pause no mark changes.

use std::collections::BTreeMap;

use machinist_api::constants::{annotations, labels};

use super::snapshot::{Owned, Snapshot};
use crate::mcm::facts::PROTECTED_FROM_AUTOSCALER;
use crate::mcm::rollout;

/// The changes of labels and annotations: values to set, and keys to remove (`None`).
#[derive(Debug, Default)]
pub(super) struct Marks {
    pub labels: BTreeMap<String, Option<String>>,
    pub annotations: BTreeMap<String, Option<String>>,
}

/// Returns the changes of the marks of one set, which gets that many replicas. `is_complete` says
/// whether the rollout is complete.
pub(super) fn changes(
    s: &Snapshot,
    owned: &Owned,
    new: Option<usize>,
    replicas: u32,
    is_complete: impl FnOnce() -> bool,
) -> Marks {
    let is_new = new.is_some_and(|new| s.sets[new].set.uid == owned.set.uid);
    let mut marks = Marks::default();
    if s.deployment.spec.is_paused() {
        return marks;
    }
    let is_outdated = !is_new && new.is_some();
    let stays_small = is_outdated && s.deployment.is_in_place();
    if owned.set.is_scale_up_disabled() != stays_small && (is_new || has_machines(owned)) {
        marks.labels.insert(labels::SCALE_UP_DISABLED.to_owned(), stays_small.then(|| "true".to_owned()));
    }
    let mut mark = |key: &str, wanted: Option<&str>| {
        if owned.set.annotation(key).is_some() != wanted.is_some() {
            marks.annotations.insert(key.to_owned(), wanted.map(str::to_owned));
        }
    };
    if is_new {
        mark(annotations::PREFER_NO_SCHEDULE, None);
    } else if is_outdated && has_machines(owned) && !s.deployment.recreates() {
        mark(annotations::PREFER_NO_SCHEDULE, Some(labels::TRUE));
    }
    let is_protected = owned.set.annotation(PROTECTED_FROM_AUTOSCALER).is_some();
    if !s.protects_nodes {
        mark(PROTECTED_FROM_AUTOSCALER, None);
    } else if has_machines(owned) || 0 < replicas {
        let begins =
            !is_new || s.sets.iter().any(|other| other.set.uid != owned.set.uid && has_machines(other));
        let goes_on = || is_protected && !is_complete();
        mark(PROTECTED_FROM_AUTOSCALER, (begins || goes_on()).then_some("true"));
    }
    marks
}

fn has_machines(owned: &Owned) -> bool {
    0 < rollout::specified(owned) || !rollout::has_no_machines(owned)
}
