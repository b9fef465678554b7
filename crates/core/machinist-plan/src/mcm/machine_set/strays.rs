//! Strays: Machines that leave their set soon after the set created them, because another program
//! changes their labels or their owners.
//!
//! The set releases a stray and creates the next Machine. An admission webhook that changes each
//! new Machine would make that go on without end, and each stray keeps its instance. So a set with
//! several strays creates one Machine at a time, and waits longer before each one. The wait ends
//! when a Machine has stayed.
//!
//! A stray is not deleted: another set or a user may want it.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use machinist_core::{Attempts, plus};

use super::snapshot::{ChildFailure, Snapshot};
use crate::mcm::facts::{MachineFacts, MachineSetFacts};
use crate::mcm::live::is_live;

/// A Machine that leaves its set at a lower age is a stray. A Machine of that age has stayed.
const YOUNG: Duration = Duration::from_secs(600);
/// A user may take a few young Machines out of a set, and gets other ones at once.
const ALLOWED: u32 = 3;
/// Wait after the last allowed stray, doubled after each further one.
const WAIT: Duration = Duration::from_secs(60);
/// Longest wait. Each stray has an instance, which costs money.
const MAX_WAIT: Duration = Duration::from_secs(3600);
/// Strays are forgotten after this time.
const FORGOTTEN: Duration = Duration::from_secs(2 * 3600);

/// Returns the strays of a set if they limit its creations.
pub(super) fn limit(s: &Snapshot) -> Option<&ChildFailure> {
    counted(s, s.strays.as_ref()?).filter(|strays| ALLOWED <= strays.attempts.count)
}

/// Returns when the set may create the next Machine, if its strays make it wait. While a later
/// Machine is young, it may become a stray too.
pub(super) fn next_creation(s: &Snapshot) -> Option<Timestamp> {
    let Attempts { count, last } = limit(s)?.attempts;
    let wait = (WAIT * 2u32.pow((count - ALLOWED).min(8))).min(MAX_WAIT);
    let later = s.machines.iter().filter(|machine| is_live(machine) && last < machine.created);
    let proven = later.map(|machine| plus(machine.created, YOUNG)).max();
    Some(plus(last, wait)).max(proven).filter(|again| s.now < *again)
}

/// Returns the memory of a set's strays after another one. Strays that were created before the last
/// loss do not double the wait: a user may take many Machines out of the set.
pub fn with_stray(
    s: &Snapshot,
    strays: Option<&ChildFailure>,
    created: Timestamp,
    message: String,
) -> ChildFailure {
    let count = strays.and_then(|strays| counted(s, strays)).map_or(1, |before| {
        let Attempts { count, last } = &before.attempts;
        // A release without an answer is repeated.
        let is_known = before.message == message;
        let is_news = !is_known && (*count < ALLOWED || *last < created);
        if is_news { count.saturating_add(1) } else { *count }
    });
    ChildFailure { message, attempts: Attempts { count, last: s.now } }
}

/// Returns the strays unless they are forgotten: they were long ago, or a later Machine has stayed.
fn counted<'f>(s: &Snapshot, strays: &'f ChildFailure) -> Option<&'f ChildFailure> {
    let last = strays.attempts.last;
    let has_stayed = |machine: &MachineFacts| last < machine.created && !is_young(s, machine);
    // A clock that was set back says nothing about the time since then.
    let is_over = s.now < last
        || plus(last, FORGOTTEN) <= s.now
        || s.machines.iter().any(|machine| is_live(machine) && has_stayed(machine));
    (!is_over).then_some(strays)
}

fn is_young(s: &Snapshot, machine: &MachineFacts) -> bool {
    s.now < plus(machine.created, YOUNG)
}

/// Returns the message about a Machine that the set releases, if it is a stray.
pub fn released_early(s: &Snapshot, machine: &MachineFacts) -> Option<String> {
    is_young(s, machine).then(|| unselected(&machine.name, &s.set))
}

/// Returns what is wrong with a new Machine, whose labels and owners the API server returned: the
/// set does not count it.
pub fn misfit(
    set: &MachineSetFacts,
    name: &str,
    labels: &BTreeMap<String, String>,
    owners: &[OwnerReference],
) -> Option<Misfit> {
    let is_selected = set.selector.as_ref().is_some_and(|selector| selector.selects(labels));
    let message = match taken(set, name, owners) {
        Some(message) => message,
        None if !is_selected => unselected(name, set),
        // The set adopts a Machine without a controller.
        None => return None,
    };
    let is_controlled = owners.iter().any(|owner| owner.uid == set.uid && owner.controller == Some(true));
    Some(Misfit { message, is_controlled })
}

/// Returns the message about a Machine with a name of the set that another object controls.
pub fn taken(set: &MachineSetFacts, name: &str, owners: &[OwnerReference]) -> Option<String> {
    let is_other = |owner: &OwnerReference| owner.uid != set.uid && owner.controller == Some(true);
    owners.iter().any(is_other).then(|| {
        format!(
            "the new Machine {name} has another controller than MachineSet {}: another program, for \
             example an admission webhook, changes metadata.ownerReferences",
            set.name
        )
    })
}

/// A new Machine that its set does not count.
#[derive(Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The problem, for a user.
    pub message: String,
    /// Whether the set controls the Machine, and so is going to release it.
    pub is_controlled: bool,
}

fn unselected(name: &str, set: &MachineSetFacts) -> String {
    format!(
        "MachineSet {} does not select the labels of its new Machine {name}: another program, for \
         example an admission webhook, changes metadata.labels",
        set.name
    )
}
