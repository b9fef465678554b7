//! The revisions of sets: the newest set has the highest one.

use std::collections::BTreeMap;

use machinist_api::constants::annotations;

use super::snapshot::Snapshot;
use crate::mcm::facts::MachineSetFacts;

/// Number of former revisions that a set remembers.
const REVISIONS_KEPT: usize = 10;

/// Returns the revision of the set of this template, which is higher than the revision of every
/// other set.
pub(super) fn next_revision(s: &Snapshot, new: Option<usize>) -> i64 {
    let others = s.sets.iter().enumerate().filter(|(index, _)| Some(*index) != new);
    let highest = others.map(|(_, owned)| revision_of(&owned.set)).max().unwrap_or(0);
    let own = new.map_or(0, |new| revision_of(&s.sets[new].set));
    own.max(highest.saturating_add(1))
}

/// Returns the annotations with the revision of the set of this template, and its former ones.
pub(super) fn revision_annotations(s: &Snapshot, set: &MachineSetFacts) -> BTreeMap<String, String> {
    let new = s.sets.iter().position(|owned| owned.set.uid == set.uid);
    let revision = next_revision(s, new);
    let current = revision_of(set);
    let mut all = BTreeMap::from([(annotations::REVISION.to_owned(), revision.to_string())]);
    if current != 0 && current != revision {
        // A set that becomes the newest again remembers its former revisions.
        let history = set.annotation(annotations::REVISION_HISTORY).unwrap_or_default();
        let mut history: Vec<_> =
            history.split(',').filter(|text| !text.is_empty()).map(str::to_owned).collect();
        history.push(current.to_string());
        let first = history.len().saturating_sub(REVISIONS_KEPT);
        all.insert(annotations::REVISION_HISTORY.to_owned(), history[first..].join(","));
    }
    all
}

/// Returns the revision of a set, or 0 for a set without one.
pub(super) fn revision_of(set: &MachineSetFacts) -> i64 {
    set.annotation(annotations::REVISION).and_then(|text| text.parse().ok()).unwrap_or(0)
}
