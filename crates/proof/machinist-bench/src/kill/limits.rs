//! The limits of a rollout, checked at every change of a Machine that the API server reports.
//!
//! The limits hold strictly, also while controllers are killed, because a rollout lowers the number
//! of available machines only by a deletion that it decides. A manager that starts again decides by
//! the Machines that exist then. A killed machine controller lets no machine become unavailable:
//! its Node goes on.
//!
//! Available here means: phase Running, and not being deleted. A Machine whose Node missed its
//! Leases on a busy computer becomes Unknown without a decision of the rollout. Such Machines are
//! counted separately, and excused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use kube::Client;
use machinist_api::{Machine, Phase};
use tokio::task::JoinSet;

use crate::cluster_state::{report_changes, with_seen};
use crate::objects;

/// Label of the template that numbers the rollouts.
pub(super) const TEMPLATE_LABEL: &str = "rollout";

/// Watches Machines until it is dropped.
pub(super) struct Limits {
    seen: Arc<Mutex<Seen>>,
    _watch: JoinSet<()>,
}

/// The Machines that exist, and the extreme values so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    machines: BTreeMap<String, Facts>,
    /// Whether the extreme values are recorded: once the first machines run.
    records: bool,
    /// The largest number of Machines that were not being deleted.
    pub(super) most: usize,
    /// The smallest number of available machines.
    pub(super) fewest_available: usize,
    /// Number of changes to phase Unknown of Machines that were not being deleted.
    pub(super) became_unknown: u32,
    /// The value of [`TEMPLATE_LABEL`] whose Machines must stay, if there is one.
    last: Option<String>,
    /// Machines of the last template that were deleted.
    pub(super) last_deleted: u32,
}

#[derive(Debug, Clone, PartialEq)]
struct Facts {
    template: String,
    phase: Phase,
    is_deleting: bool,
}

impl Limits {
    pub(super) fn follow(control: Client) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let changed = Arc::clone(&seen);
        let mut watch = JoinSet::new();
        watch.spawn(report_changes(objects::machines(&control), Facts::of, move |change| {
            with_seen(&changed, |seen| seen.change(change.uid, change.new.as_deref().cloned()));
        }));
        Self { seen, _watch: watch }
    }

    /// Records the extreme values from now on.
    pub(super) fn begin(&self) {
        self.with(|seen| {
            seen.records = true;
            seen.fewest_available = usize::MAX;
            seen.record();
        });
    }

    /// From now on the Machines of this template must stay; without one, none of them must.
    pub(super) fn keep(&self, template: Option<&str>) {
        self.with(|seen| seen.last = template.map(str::to_owned));
    }

    /// Whether all Machines are of this template, and run.
    pub(super) fn all_are(&self, template: &str, count: u32) -> bool {
        self.with(|seen| {
            let is_done = |facts: &Facts| {
                facts.template == template && facts.phase == Phase::Running && !facts.is_deleting
            };
            seen.machines.len() == count as usize && seen.machines.values().all(is_done)
        })
    }

    pub(super) fn now(&self) -> Seen {
        self.with(|seen| seen.clone())
    }

    fn with<T>(&self, change: impl FnOnce(&mut Seen) -> T) -> T {
        with_seen(&self.seen, change)
    }
}

impl Seen {
    fn change(&mut self, uid: String, new: Option<Facts>) {
        let old = self.machines.remove(&uid);
        let was_deleting = old.as_ref().is_some_and(|old| old.is_deleting);
        let was_unknown = old.as_ref().is_some_and(|old| old.phase == Phase::Unknown);
        let is_deleting = new.as_ref().is_none_or(|new| new.is_deleting);
        let is_unknown = new.as_ref().is_some_and(|new| new.phase == Phase::Unknown);
        let is_of_last =
            new.as_ref().or(old.as_ref()).is_some_and(|facts| Some(&facts.template) == self.last.as_ref());
        self.last_deleted += u32::from(is_of_last && is_deleting && !was_deleting);
        self.became_unknown += u32::from(is_unknown && !was_unknown && !is_deleting);
        if let Some(new) = new {
            self.machines.insert(uid, new);
        }
        self.record();
    }

    fn record(&mut self) {
        if !self.records {
            return;
        }
        let stay = || self.machines.values().filter(|facts| !facts.is_deleting);
        self.most = self.most.max(stay().count());
        let is_excused = |facts: &&Facts| matches!(facts.phase, Phase::Running | Phase::Unknown);
        self.fewest_available = self.fewest_available.min(stay().filter(is_excused).count());
    }
}

impl Facts {
    fn of(machine: Machine) -> Self {
        let labels = machine.metadata.labels.as_ref();
        Self {
            template: labels.and_then(|labels| labels.get(TEMPLATE_LABEL)).cloned().unwrap_or_default(),
            phase: machine.phase(),
            is_deleting: machine.is_deleting(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(template: &str, phase: Phase) -> Option<Facts> {
        Some(Facts { template: template.to_owned(), phase, is_deleting: false })
    }

    fn deleting(template: &str) -> Option<Facts> {
        Some(Facts { template: template.to_owned(), phase: Phase::Running, is_deleting: true })
    }

    #[test]
    fn the_extremes_leave_out_machines_that_are_deleted() {
        let mut seen = Seen { records: true, fewest_available: usize::MAX, ..Seen::default() };
        seen.change("a".to_owned(), facts("1", Phase::Running));
        seen.change("b".to_owned(), facts("2", Phase::Pending));
        assert_eq!((seen.most, seen.fewest_available), (2, 1));
        seen.change("a".to_owned(), deleting("1"));
        seen.change("a".to_owned(), None);
        assert_eq!((seen.most, seen.fewest_available), (2, 0));
    }

    #[test]
    fn a_deleted_machine_of_the_last_template_is_counted_once() {
        let mut seen = Seen { last: Some("2".to_owned()), ..Seen::default() };
        seen.change("a".to_owned(), facts("1", Phase::Running));
        seen.change("b".to_owned(), facts("2", Phase::Running));
        for uid in ["a", "b"] {
            seen.change(uid.to_owned(), deleting(if uid == "a" { "1" } else { "2" }));
            seen.change(uid.to_owned(), None);
        }
        assert_eq!(seen.last_deleted, 1);
    }
}
