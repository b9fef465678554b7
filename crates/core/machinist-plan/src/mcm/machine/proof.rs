//! Handles Machines for which it is unknown whether today's credential opens the account of the
//! instance.

use jiff::Timestamp;
use machinist_api::constants::labels;
use machinist_instance::{Foreign, Marks};

use super::action::Action;
use super::action::DELETE_FAILED;
use super::delete;
use super::snapshot::Snapshot;
use crate::mcm::why::{McmReason, Plan, Reason, Step, Why};
use machinist_core::instance::AbsenceEvidence;
use machinist_core::ownership::{Standing, second_look_at};
use machinist_core::{Absence, Call};

/// Lists the account once if the list may show whether the instance was created in it. Later, when
/// instances are deleted, this evidence may be lost.
pub(super) fn gather(s: &Snapshot, mut plan: Plan<Action>) -> Plan<Action> {
    if s.machine.provider_id.is_none() || s.answers.in_flight.is_some() {
        return plan;
    }
    match s.ownership.is_worth_a_list_from(&s.answers) {
        Some(from) if s.now < from => plan.no_later_than(from),
        Some(_) => {
            plan.actions.push(Action::List);
            plan
        }
        None => plan,
    }
}

/// Prevents a second instance in another account. A process that has watched the Machine since its
/// creation knows every call. For other processes, the Machine may already have an instance that
/// this account does not show.
///
/// If there is nothing to compare with, creation continues.
pub(super) fn before_ensure(s: &Snapshot) -> Option<Plan<Action>> {
    let list_again_at = match standing(s) {
        Standing::Proven | Standing::Incomparable => return None,
        Standing::Ask => return Some(Plan::act(Action::List, comparing())),
        Standing::Asked(until) => return Some(Plan::until(until, comparing())),
        Standing::Doubtful(at) => at,
    };
    let restore = format!("restore the credential in {}, or delete the Machine", secrets(s));
    Some(Plan::until(list_again_at, Why::new(other_account(s), Step::Fix(restore))))
}

/// Keeps a Machine whose instance may be in another account. `looked` is the start of the lookup
/// that showed no instance.
///
/// If there is nothing to compare with, two absences ten minutes apart count, as for a deletion.
pub(super) fn before_giving_up(
    s: &Snapshot,
    looked: Timestamp,
    find: impl FnOnce() -> Plan<Action>,
) -> Option<Plan<Action>> {
    if standing(s) != Standing::Incomparable {
        return before_ensure(s);
    }
    let of_today = |row: &&Absence| s.ownership.account.as_ref() == Some(&row.account) && row.id.is_none();
    let first = s.answers.absence.as_ref().filter(of_today).map_or(looked, |row| row.first.min(looked));
    let look_at = second_look_at(first);
    if look_at <= looked {
        return None;
    }
    if look_at <= s.now {
        return Some(find());
    }
    let reason = McmReason::SecondLook { instance: s.instance().to_string() };
    let why = Why::new(reason, Step::Expect("the controller looks up the instance again"));
    let then = Step::Expect("the Machine is marked Failed if the instance is still absent");
    Some(Plan::until(look_at, why.deadline(look_at, then)))
}

fn standing(s: &Snapshot) -> Standing {
    s.ownership.of_unrecorded(s.machine.created, &s.answers, &s.process, s.now)
}

/// Waits for a list of the account that another Machine has requested.
pub(super) fn await_list(until: Timestamp, deleting_since: Timestamp) -> Plan<Action> {
    Plan::until(until, comparing().since(deleting_since))
}

/// Returns the reason for a requested list.
pub(super) fn comparing() -> Why {
    Why::new(
        Reason::Calling(Call::LIST),
        Step::Expect("the list shows whether this is the account of the instance"),
    )
}

/// Waits for a user, because no instance created with this Secret is still visible.
pub(super) fn other_account_plan(
    s: &Snapshot,
    look_at: Timestamp,
    deleting_since: Timestamp,
) -> Plan<Action> {
    let fix = format!("restore the credential in {} that created the instance, {}", secrets(s), or_leave());
    wait(s, other_account(s), fix, deleting_since).no_later_than(look_at)
}

/// Checks a second time, because the instance is absent and nothing confirms the account.
pub(super) fn look_twice(s: &Snapshot, look_at: Timestamp, deleting_since: Timestamp) -> Plan<Action> {
    let reason = McmReason::SecondLook { instance: s.instance().to_string() };
    let why =
        Why::new(reason, Step::Expect("the controller looks up the instance again")).since(deleting_since);
    Plan::until(
        look_at,
        why.deadline(look_at, Step::Expect("the instance counts as deleted if it is still absent")),
    )
}

/// Waits for a user, because the recorded instance has the key of another object, or no key and
/// nothing shows that it belongs to the Machine.
pub(super) fn not_ours(
    s: &Snapshot,
    foreign: &Foreign,
    look_at: Timestamp,
    deleting_since: Timestamp,
) -> Plan<Action> {
    let instance = foreign.id.to_string();
    let reason = match &foreign.key {
        Some(key) => McmReason::InstanceNotOurs {
            instance,
            key: key.to_string(),
            cluster: foreign.cluster.clone(),
            holder: s.key_holder.clone(),
        },
        None => McmReason::InstanceWithoutKey { instance, doubt: doubt(s) },
    };
    let fix = format!("find out which cluster owns it, {}", or_leave());
    wait(s, reason, fix, deleting_since).no_later_than(look_at)
}

/// Returns why the recorded instance without a key does not count as the Machine's.
fn doubt(s: &Snapshot) -> String {
    let class = s.machine.spec.class.name();
    if let Some(unreadable) = &s.unkeyed.unreadable {
        return format!("Machine {unreadable}, which cannot be parsed, may record it");
    }
    match (&s.unkeyed.recorded_by, s.unkeyed.marks) {
        (Some(other), _) => format!("Machine {other} also records it"),
        (None, Marks::Missing | Marks::OfAnotherClass) if s.class.present().is_none() => {
            format!("MachineClass {class}, which says what marks it must carry, does not exist")
        }
        (None, Marks::Missing) => format!("does not carry the marks of MachineClass {class}"),
        (None, Marks::OfAnotherClass) => {
            format!("carries the marks of another cluster than MachineClass {class}")
        }
        (None, Marks::OfClass) => "is older than the Machine and has another name".to_owned(),
        (None, Marks::NotUsed) => "is older than the Machine or has another name".to_owned(),
    }
}

/// Returns the key of an instance of another owner as text.
pub(super) fn key_of(foreign: &Foreign) -> String {
    foreign.key.as_ref().map_or_else(|| "no key".to_owned(), |key| format!("key {key}"))
}

/// Returns the Event for an instance that counts as deleted on weak evidence, or for a remaining
/// instance with its name.
pub(super) fn remark(s: &Snapshot, evidence: &AbsenceEvidence) -> Option<Action> {
    let instance = s.instance();
    match evidence {
        AbsenceEvidence::Sure => None,
        AbsenceEvidence::LookedTwice => Some(Action::warn(
            DELETE_FAILED,
            format!(
                "Instance {instance} counts as deleted: it was absent twice, ten minutes apart. No other Machine confirms \
                 that {} still opens its account",
                secrets(s)
            ),
        )),
        AbsenceEvidence::NameTaken(foreign) => Some(Action::warn(
            DELETE_FAILED,
            format!(
                "Instance {} has the name of this Machine and {}, which no Machine holds. It is not deleted",
                foreign.id,
                key_of(foreign)
            ),
        )),
    }
}

/// Returns the Event message for a Machine that is deleted without its instance because of the
/// label `force-deletion`.
pub(super) fn left_behind(s: &Snapshot, because: &str) -> String {
    format!(
        "Instance {} may be left behind: {because}, and label {} is set",
        s.instance(),
        labels::FORCE_DELETION
    )
}

fn other_account(s: &Snapshot) -> McmReason {
    McmReason::OtherAccount { instance: s.instance().to_string(), opened_by: secrets(s) }
}

/// Returns the object that contains the credential, as text for users.
pub(super) fn secrets(s: &Snapshot) -> String {
    match s.secrets.last() {
        // Later Secrets take precedence, so the credential is in the last one.
        Some(need) => format!("Secret {}", need.name),
        None => format!("MachineClass {}", s.machine.spec.class.name()),
    }
}

fn or_leave() -> String {
    format!("or set label {}=true to leave the instance behind", labels::FORCE_DELETION)
}

fn wait(s: &Snapshot, reason: McmReason, fix: String, deleting_since: Timestamp) -> Plan<Action> {
    let why = Why::new(reason, Step::Fix(fix)).since(deleting_since);
    delete::await_person(s, why)
}
