//! Machines that the cluster-autoscaler chose for deletion.
//!
//! The autoscaler names the Machines in an annotation, in the same write that lowers the replicas.
//! This module marks each Machine with a priority and a time, so that its set deletes it first. A
//! set shrinks only after the watch has shown the marks; otherwise it would delete other Machines.
//!
//! If no Machine of the deployment has the name, the API server is asked before any set shrinks,
//! because a watch may be behind the autoscaler. An unknown name stays in the annotation for a
//! while, so that `machinist why` can report it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_api::Phase;
use machinist_api::constants::{annotations, reasons};

use super::action::Action;
use super::snapshot::Snapshot;
use crate::mcm::facts::MachineFacts;
use crate::mcm::live::{is_chosen, is_live, marked_at};
use crate::mcm::refusal::Refusal;
use crate::mcm::why::{McmReason, Plan, Reason, Step, Why};
use machinist_core::{is_past, just_past, plus};

/// How long an unknown name stays in the annotation: long enough for a user to run `machinist why`.
const UNKNOWN_KEPT: Duration = Duration::from_secs(300);
/// Maximum number of names that one pass looks up.
const LOOKED_UP_AT_ONCE: usize = 16;
/// The longest valid object name.
const MAX_NAME_LEN: usize = 253;

/// The actions that follow from the names.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    /// Actions whose effect must be seen before any set shrinks.
    first: Vec<Action>,
    /// Other actions.
    others: Vec<Action>,
    /// The first unknown name, and when it is removed from the annotation.
    unknown: Option<(String, Timestamp)>,
}

/// Parses the annotation, and compares it with the Machines.
pub(super) fn chosen(s: &Snapshot) -> Chosen {
    let mut chosen = Chosen::default();
    let Some(text) = s.deployment.annotation(annotations::TRIGGER_DELETION) else { return chosen };
    let mut kept = Vec::new();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        match Entry::parse(s, entry) {
            None => chosen.others.push(Action::Warn(unreadable(entry))),
            Some(entry) if chosen.takes_in(s, &entry) => kept.push(format!("{}~{}", entry.name, entry.time)),
            Some(_) => {}
        }
    }
    let kept = kept.join(",");
    if kept != text {
        chosen.others.push(Action::SetChosen(Some(kept).filter(|kept| !kept.is_empty())));
    }
    chosen
}

impl Chosen {
    /// Adds the actions for an entry. Returns whether the entry stays in the annotation.
    fn takes_in(&mut self, s: &Snapshot, entry: &Entry<'_>) -> bool {
        let machines = || s.sets.iter().flat_map(|owned| &owned.machines);
        let Some(machine) = machines().find(|machine| machine.name == entry.name) else {
            return self.takes_in_unknown(s, entry);
        };
        if !is_live(machine) || machine.status.phase == Phase::Failed {
            return false;
        }
        if !is_chosen(machine) {
            self.first.push(mark(machine, entry));
        }
        true
    }

    fn takes_in_unknown(&mut self, s: &Snapshot, entry: &Entry<'_>) -> bool {
        if !s.looked_for.contains(entry.name) {
            self.first.push(Action::LookFor(entry.name.to_owned()));
            return true;
        }
        let until = plus(entry.since, UNKNOWN_KEPT);
        if is_past(s.now, until) {
            return false;
        }
        let unknown = (entry.name.to_owned(), just_past(until));
        let earlier = self.unknown.take().filter(|(_, before)| *before <= unknown.1);
        self.unknown = Some(earlier.unwrap_or(unknown));
        true
    }

    /// Returns the plan that must come before any set is resized, if needed.
    pub(super) fn first(&mut self) -> Option<Plan<Action>> {
        let is_look = |action: &Action| matches!(action, Action::LookFor(_));
        let mut reads = 0;
        self.first.retain(|action| {
            reads += usize::from(is_look(action));
            !is_look(action) || reads <= LOOKED_UP_AT_ONCE
        });
        if self.first.is_empty() {
            return None;
        }
        let reason = if self.first.iter().all(is_look) {
            Reason::Looking("the machines chosen by the cluster-autoscaler")
        } else {
            Reason::Writing("marking the machines chosen by the cluster-autoscaler")
        };
        let why = Why::new(reason, Step::Expect("the sets shrink"));
        let actions = std::mem::take(&mut self.first).into_iter().chain(std::mem::take(&mut self.others));
        Some(Plan::act_all(actions.collect(), why))
    }

    /// Adds the other actions to the plan for the sets.
    pub(super) fn with(self, plan: Plan<Action>) -> Plan<Action> {
        let Plan { actions, why, wait } = plan;
        let actions = self.others.into_iter().chain(actions).collect();
        let Some((machine, until)) = self.unknown else { return Plan { actions, why, wait } };
        let why = match why.reason {
            Reason::Settled => {
                let fix = format!("correct the annotation {}", annotations::TRIGGER_DELETION);
                Why::new(McmReason::ChosenUnknown { machine }, Step::Fix(fix))
                    .deadline(until, Step::Expect("the name is removed from the annotation"))
            }
            _ => why,
        };
        Plan { actions, why, wait }.no_later_than(until)
    }
}

/// One entry of the annotation: a Machine's name, and when the autoscaler chose it.
struct Entry<'t> {
    name: &'t str,
    time: String,
    since: Timestamp,
}

impl<'t> Entry<'t> {
    /// Parses `NAME~TIME` or `NAME`. Without a time, the autoscaler's last change of the replicas
    /// counts.
    fn parse(s: &Snapshot, text: &'t str) -> Option<Self> {
        let (name, time) = match text.split_once('~') {
            Some((name, time)) => (name, time.to_owned()),
            None => (text, last_change(s)),
        };
        let may_be_in_a_name =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        let is_name = !name.is_empty() && name.len() <= MAX_NAME_LEN && name.bytes().all(may_be_in_a_name);
        let since = time.parse().ok()?;
        is_name.then_some(Self { name, time, since })
    }
}

fn last_change(s: &Snapshot) -> String {
    let change = s.deployment.annotation(annotations::LAST_REPLICA_CHANGE_BY_SCALER_TIME);
    let change = change.filter(|text| text.parse::<Timestamp>().is_ok()).map(str::to_owned);
    let now = Timestamp::from_second(s.now.as_second()).unwrap_or(s.now);
    change.unwrap_or_else(|| now.to_string())
}

/// Returns the action that marks a Machine. An existing time is kept.
fn mark(machine: &Arc<MachineFacts>, entry: &Entry<'_>) -> Action {
    let marked =
        machine.annotation(annotations::MARKED_FOR_DELETION_TIME).filter(|_| marked_at(machine).is_some());
    Action::MarkMachine { machine: machine.clone(), since: marked.unwrap_or(&entry.time).to_owned() }
}

fn unreadable(entry: &str) -> Refusal {
    let field = format!("metadata.annotations: {}", annotations::TRIGGER_DELETION);
    let message = format!("{field}: expected NAME~TIME with an RFC 3339 time, got {entry:?}");
    Refusal { reason: reasons::INVALID_TRIGGER_DELETION, field, message }
}
