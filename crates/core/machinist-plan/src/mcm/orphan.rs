//! The orphans of one cloud account: instances of this installation that no Machine has.
//!
//! One key decides about all orphans of an account, so that one limit holds for all of them. The
//! rules about a single instance are in [`machinist_core::orphan`]. The rules here are about time
//! and number:
//!
//! ```text
//! every 15 minutes    list the instances of this installation, and of Go MCM
//! an orphan is seen   list again after ten minutes
//! seen twice          list Machines and Nodes with quorum, then delete
//! ```
//!
//! In 15 minutes, at most a twentieth of the account's instances is deleted, and at least one. So
//! an error in the evidence costs few instances, and a user has time to see the Events.
//!
//! An instance that is kept is reported once. Go MCM deletes every instance with the tags of the
//! class that has no Machine, at the first sight and at any age.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::orphan::{Installation, KeepReason, Orphan, OrphanStep, Owners};
use machinist_core::{Call, Permit, Process, SKEW_LIMIT, just_past, minus, plus, retry_after};
use machinist_instance::{Error, Instance, ProviderId};

use crate::mcm::facts::{MachineFacts, NodeFacts};
use crate::mcm::server_freeze::Frozen;
use crate::mcm::why::{McmReason, Plan, Reason, Step, Why};

/// The shortest time between two lists of an account.
const LIST_AT_MOST_EVERY: Duration = Duration::from_secs(60);
/// How long after a deletion the account is listed again, to see its effect.
const LIST_AFTER_DELETION: Duration = Duration::from_secs(120);
/// The longest wait after a read from an API server that failed.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// The time for which the number of deletions is limited.
pub const LIMIT_PERIOD: Duration = Duration::from_secs(15 * 60);
/// At most one of this many instances is deleted in that time.
const ONE_IN: usize = 20;

/// All facts for one decision about the orphans of an account.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The moment of the decision.
    pub now: Timestamp,
    /// How orphans are collected.
    pub settings: OrphanOptions,
    /// This installation; absent until the namespace was read.
    pub installation: Option<Installation>,
    /// The results of the search for orphans in the account.
    pub account: Arc<AccountOrphans>,
    /// The instances about which a call is in flight.
    pub being_deleted: BTreeSet<ProviderId>,
    /// Since when the list is in flight.
    pub listing_since: Option<Timestamp>,
    /// The freeze of this process, while an API server does not answer.
    pub frozen: Option<Frozen>,
    /// The deciding process.
    pub process: Process,
}

impl Hash for Snapshot {
    /// Hashes everything that determines a decision, except the moment and the settings.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            now: _,
            settings: _,
            installation,
            account,
            being_deleted,
            listing_since,
            frozen,
            process: _,
        } = self;
        (installation, account, being_deleted, listing_since, frozen.is_some()).hash(state);
    }
}

/// How orphans are collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrphanOptions {
    /// Time between two lists of an account: `--machine-safety-orphan-vms-period`.
    pub period: Duration,
    /// Younger instances are kept: `--machine-creation-timeout`.
    pub minimum_age: Duration,
    /// Whether orphans are deleted; otherwise they are only reported.
    pub deletes: bool,
}

impl Default for OrphanOptions {
    /// The defaults of Go MCM.
    fn default() -> Self {
        let minutes = |count: u64| Duration::from_secs(count * 60);
        Self { period: minutes(15), minimum_age: minutes(20), deletes: true }
    }
}

/// The results of the search for orphans in an account. A process remembers these results, and may
/// lose them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct AccountOrphans {
    /// The last list that was answered.
    pub listed: Option<AccountList>,
    /// The last list, if it failed, and the number of failures since the last answer.
    pub failed: Option<(Timestamp, Error, u32)>,
    /// When something happened that may have left an orphan.
    pub suspected: Option<Timestamp>,
    /// The last read of objects and Nodes, if it failed.
    pub read_failed: Option<Timestamp>,
    /// The instances that seem to have no Machine.
    pub instances: BTreeMap<ProviderId, Candidate>,
    /// When the deletions of the last period began.
    pub deletions: Vec<Timestamp>,
}

/// A list of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AccountList {
    /// When it began.
    pub started: Timestamp,
    /// Number of instances of this installation, each of which has a key.
    pub instances: usize,
}

/// An instance that seems to have no Machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// The instance, as the last list showed it.
    pub instance: Instance,
    /// When the first list began that showed it without a Machine.
    pub first_seen: Timestamp,
    /// When the last list began that showed it without a Machine.
    pub last_seen: Timestamp,
    /// The last lists of Machines and Nodes.
    pub owners: Option<Owners>,
    /// Whether this process saw that its Machine was deleted.
    pub saw_deletion: bool,
    /// Whether a Machine has its key, but records another instance that the list also showed.
    pub is_second: bool,
    /// When this process last asked to delete it, and the error.
    pub deleted: Option<(Timestamp, Option<Error>)>,
    /// The reason that an Event has reported.
    pub reported: Option<KeepReason>,
}

impl Candidate {
    /// Whether a Machine may have the instance. `same_instance` compares the recorded id of the
    /// Machine with the id of the instance; absent if the provider cannot read the recorded id.
    pub fn may_be_of(&self, machine: &MachineFacts, same_instance: Option<bool>) -> bool {
        let has_key = self.instance.key.as_ref().is_some_and(|key| key.as_str() == machine.uid);
        match (machine.spec.provider_id(), same_instance) {
            // No Machine adopts an instance of its name that has another key.
            (None, _) => has_key,
            (Some(_), Some(true)) => true,
            (Some(_), Some(false)) => has_key && !(self.is_second && machine.deleting_since.is_none()),
            // The record may mean any instance.
            (Some(_), None) => has_key || machine.may_name(&self.instance.name),
        }
    }

    /// Whether a Node may be the Node of the instance. `same_instance` compares the provider id of
    /// the Node with the id of the instance; absent if the Node has none that can be read.
    pub fn may_have_node(&self, node: &NodeFacts, same_instance: Option<bool>) -> bool {
        let is_of_key = |uid: &str| self.instance.key.as_ref().is_some_and(|key| key.as_str() == uid);
        let is_named = node.name == self.instance.name.as_str();
        // A kubelet may use the Node of an earlier instance, which keeps the earlier id.
        same_instance == Some(true)
            || is_named
            || node.mark().is_some_and(|mark| is_of_key(&mark.machine_uid))
    }
}

/// One call about the orphans of an account.
#[derive(Debug)]
pub enum Action {
    /// Reads the UID of the namespace.
    ReadNamespace,
    /// Lists the instances of this installation.
    List,
    /// Lists Machines and Nodes with quorum.
    ReadOwners,
    /// Deletes an instance.
    Delete(Permit),
    /// Emits an Event about an instance that is kept.
    Report {
        /// The instance.
        id: ProviderId,
        /// The reason.
        kept: KeepReason,
        /// The text of the Event.
        message: String,
    },
}

/// Decides the next actions for the orphans of an account.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    let reading = |action, what| {
        Plan::act(action, Why::new(Reason::Looking(what), Step::Expect("orphaned instances are looked for")))
    };
    if let Some(frozen) = &s.frozen {
        return frozen.wait(s.now);
    }
    let Some(installation) = &s.installation else {
        if let Some(failed) = s.account.read_failed.filter(|at| s.now < plus(*at, READ_AGAIN_AFTER)) {
            return Plan::until(plus(failed, READ_AGAIN_AFTER), unread());
        }
        return reading(Action::ReadNamespace, "the namespace");
    };
    if let Some(since) = s.listing_since {
        return Plan::idle(Why::new(Reason::Calling(Call::LIST), Step::Nothing).since(since));
    }
    let Some(listed) = s.account.listed else {
        return match &s.account.failed {
            Some((at, error, failures)) if s.now < list_again(*at, error, *failures) => {
                let again = list_again(*at, error, *failures);
                Plan::until(again, Why::call_failed(Call::LIST, error, *failures, again))
            }
            _ => list(),
        };
    };
    let steps: Vec<_> = s.account.instances.values().map(|one| (one, step(s, installation, one))).collect();
    let mut next_list = next_list(s, listed, &steps);
    if let Some((at, error, failures)) = &s.account.failed {
        next_list = next_list.max(list_again(*at, error, *failures));
    }
    if next_list <= s.now {
        return list();
    }
    let mut plan = collect(s, listed, steps);
    plan.wait = plan.wait.earliest(machinist_core::Wait::Until(next_list));
    plan
}

fn list() -> Plan<Action> {
    Plan::act(Action::List, Why::new(Reason::Calling(Call::LIST), Step::Nothing))
}

fn unread() -> Why {
    let next = Step::Expect("the lists of Machines, Nodes and the namespace are repeated");
    Why::new(Reason::Awaiting("an API server did not answer"), next)
}

fn list_again(at: Timestamp, error: &Error, failures: u32) -> Timestamp {
    plus(at, retry_after(error.kind, failures, LIST_AT_MOST_EVERY).max(LIST_AT_MOST_EVERY))
}

/// The next step for one instance; `None` while a deletion of it has no visible effect yet.
fn step(s: &Snapshot, installation: &Installation, one: &Candidate) -> Option<OrphanStep> {
    let is_asked = one.deleted.as_ref().is_some_and(|(at, _)| one.last_seen <= *at);
    if is_asked || s.being_deleted.contains(&one.instance.id) {
        return None;
    }
    let orphan = Orphan {
        instance: &one.instance,
        first_seen: one.first_seen,
        last_seen: one.last_seen,
        owners: one.owners.as_ref(),
        saw_deletion: one.saw_deletion,
        installation,
        minimum_age: s.settings.minimum_age,
        process: &s.process,
        now: s.now,
    };
    #[expect(clippy::disallowed_methods, reason = "the planner of orphans")]
    Some(orphan.next())
}

/// When the account is listed next.
fn next_list(s: &Snapshot, listed: AccountList, steps: &[(&Candidate, Option<OrphanStep>)]) -> Timestamp {
    let regular = plus(listed.started, s.settings.period);
    let suspected =
        s.account.suspected.filter(|at| listed.started <= *at).map(|at| plus(at, LIST_AT_MOST_EVERY));
    let for_one = steps.iter().filter_map(|(one, step)| match step {
        Some(OrphanStep::ListAgain(at)) => Some(*at),
        // A deletion that failed is repeated in the next period.
        None => one
            .deleted
            .as_ref()
            .filter(|(_, error)| error.is_none())
            .map(|(at, _)| plus(*at, LIST_AFTER_DELETION)),
        Some(_) => None,
    });
    let wanted = for_one.chain(suspected).chain([regular]).min().unwrap_or(regular);
    wanted.max(plus(listed.started, LIST_AT_MOST_EVERY))
}

/// Reads what is missing, deletes within the limit, and reports what is kept.
fn collect(s: &Snapshot, listed: AccountList, steps: Vec<(&Candidate, Option<OrphanStep>)>) -> Plan<Action> {
    let orphans = steps.len();
    let mut left = budget(s, listed);
    let (mut deletions, mut reports, mut first, mut needs_owners) = (Vec::new(), Vec::new(), None, false);
    let mut wait = Timestamp::MAX;
    let mut is_limited = false;
    for (one, step) in steps {
        let id = &one.instance.id;
        let step = step.map(|step| if s.settings.deletes { step } else { only_report(step) });
        match step {
            Some(OrphanStep::Keep(kept)) => {
                if is_worth_an_event(&kept) && one.reported.as_ref() != Some(&kept) {
                    let message = report(one, &kept);
                    reports.push(Action::Report { id: id.clone(), kept: kept.clone(), message });
                }
                first.get_or_insert((id, kept_text(&kept)));
            }
            Some(OrphanStep::Wait(until)) => {
                wait = wait.min(just_past(until));
                let ends = if one.instance.key.is_some() { "collected" } else { "reported" };
                first.get_or_insert((id, format!("it is {ends} after {until:.0} at the earliest")));
            }
            Some(OrphanStep::ListAgain(at)) => {
                first.get_or_insert((
                    id,
                    format!("a second list after {at:.0} must show it without a Machine"),
                ));
            }
            Some(OrphanStep::ReadOwners | OrphanStep::Collect(_)) if left == 0 => {
                is_limited = true;
                first.get_or_insert((id, "the limit of deletions in 15 minutes is reached".to_owned()));
            }
            Some(OrphanStep::ReadOwners) => {
                left -= 1;
                needs_owners = true;
            }
            Some(OrphanStep::Collect(permit)) => {
                left -= 1;
                deletions.push(Action::Delete(*permit));
            }
            None => {
                let error = one.deleted.as_ref().and_then(|(_, error)| error.as_ref());
                first.get_or_insert((
                    id,
                    error.map_or_else(|| "it is being deleted".to_owned(), Error::to_string),
                ));
            }
        }
    }
    if is_limited && let Some(oldest) = s.account.deletions.iter().min() {
        wait = wait.min(just_past(plus(*oldest, LIMIT_PERIOD)));
    }
    if needs_owners && deletions.is_empty() {
        if let Some(failed) = s.account.read_failed.filter(|at| s.now < plus(*at, READ_AGAIN_AFTER)) {
            return Plan { actions: reports, ..Plan::until(plus(failed, READ_AGAIN_AFTER), unread()) };
        }
        reports.push(Action::ReadOwners);
        let next = Step::Expect("an instance without Machine and Node is deleted");
        return Plan::act_all(reports, Why::new(Reason::Looking("Machines and Nodes"), next));
    }
    let why = match first {
        _ if !deletions.is_empty() => Why::new(Reason::Writing("deleting orphaned instances"), Step::Nothing),
        Some((id, held)) => {
            let next =
                Step::Fix("delete the instances in the cloud if they are not needed, or wait".to_owned());
            Why::new(McmReason::Orphans { count: orphans, first: id.to_string(), held }, next)
        }
        None => Why::up_to_date(),
    };
    deletions.extend(reports);
    Plan { actions: deletions, ..Plan::until(wait, why) }
}

/// The step for an instance if the controller deletes none.
fn only_report(step: OrphanStep) -> OrphanStep {
    match step {
        OrphanStep::ReadOwners | OrphanStep::Collect(_) => OrphanStep::Keep(KeepReason::ReportOnly),
        step @ (OrphanStep::Keep(_) | OrphanStep::Wait(_) | OrphanStep::ListAgain(_)) => step,
    }
}

/// How many more instances may be deleted now.
fn budget(s: &Snapshot, listed: AccountList) -> usize {
    let from = minus(s.now, LIMIT_PERIOD);
    let deleted = s.account.deletions.iter().filter(|at| from < **at).count();
    (listed.instances / ONE_IN).max(1).saturating_sub(deleted)
}

/// Whether a user should know. The instances of another installation are not news, and clocks and
/// the namespace have a reason of their own.
fn is_worth_an_event(kept: &KeepReason) -> bool {
    match kept {
        KeepReason::NoKey
        | KeepReason::NoNamespace
        | KeepReason::Node(_)
        | KeepReason::NotProven
        | KeepReason::NamespaceUnknown => true,
        KeepReason::ReportOnly => true,
        KeepReason::OtherNamespace | KeepReason::Object(_) | KeepReason::Clocks | KeepReason::Deleting => {
            false
        }
    }
}

fn report(one: &Candidate, kept: &KeepReason) -> String {
    let id = &one.instance.id;
    let fix = match kept {
        KeepReason::NoKey => {
            "Find out whether a Node or another cluster uses it, and else delete it in the cloud"
        }
        _ => "Delete it in the cloud if it is not needed",
    };
    format!("Instance {id} has no Machine, and is not deleted: {}. {fix}", kept_text(kept))
}

/// Why an instance is kept, for users.
fn kept_text(kept: &KeepReason) -> String {
    match kept {
        KeepReason::NoKey => {
            "no Machine's UID is recorded on it, so another program may have created it".to_owned()
        }
        KeepReason::NoNamespace => "its tags do not say for which namespace it was created".to_owned(),
        KeepReason::OtherNamespace => "it was created for another namespace or cluster".to_owned(),
        KeepReason::NamespaceUnknown => {
            "this controller may not read its own namespace, so it cannot compare the tag".to_owned()
        }
        KeepReason::Object(machine) => format!("Machine {machine} may have it"),
        KeepReason::Node(node) => format!("its Node {node} exists, so pods may run on it"),
        KeepReason::NotProven => {
            "the Nodes are not known, and this controller did not see the deletion of its Machine".to_owned()
        }
        KeepReason::Clocks => format!("clocks may differ by more than {} s", SKEW_LIMIT.as_secs()),
        KeepReason::Deleting => "the cloud is deleting it".to_owned(),
        KeepReason::ReportOnly => "this controller only reports orphans".to_owned(),
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadNamespace => f.write_str("namespace: read its UID"),
            Self::List => f.write_str("cloud: list instances"),
            Self::ReadOwners => f.write_str("machines, nodes: list with quorum"),
            Self::Delete(permit) => match &permit.which().id {
                Some(id) => write!(f, "cloud: delete {id}: {permit}"),
                None => write!(f, "cloud: delete: {permit}"),
            },
            Self::Report { message, .. } => write!(f, "warning OrphanedInstance: {message}"),
        }
    }
}

#[cfg(test)]
mod tests;
