//! What a Machine does while it is not known whether today's credential opens the account of its instance.

use jiff::Timestamp;
use machinist_api::constants::labels;
use machinist_api::constants::markers::DeletionMarker;
use machinist_instance::Foreign;

use super::{Action, DELETE_FAILED, Snapshot, delete};
use crate::why::{McmReason, Reason, Step};
use crate::{Plan, Why};
use machinist_core::instance::Proof;
use machinist_core::ownership::Standing;
use machinist_core::{Call, just_past};

/// Lists the account once if that may tell whether it is the one that the instance was made in: later, when something is gone, this
/// may not be found out any more.
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

/// Keeps a Machine from getting a second instance in another account. A process that saw the Machine from its beginning knows of every
/// call; for others it may have an instance already, which this account does not show.
///
/// Where nothing can be compared, creation goes on.
pub(super) fn before_ensure(s: &Snapshot) -> Option<Plan<Action>> {
    let list_again_at = match standing(s) {
        Standing::Proven | Standing::Incomparable => return None,
        Standing::Ask => return Some(Plan::act(Action::List, comparing())),
        Standing::Asked(until) => return Some(Plan::until(until, comparing())),
        Standing::Doubtful(at) => at,
    };
    let restore = format!("restore the credential in {}, or delete the Machine", secrets(s));
    let deadline = just_past(s.creation_deadline());
    let why = Why::new(other_account(s), Step::Mend(restore))
        .deadline(deadline, Step::Expect("the Machine is marked Failed"));
    Some(Plan::until(list_again_at.min(deadline), why))
}

fn standing(s: &Snapshot) -> Standing {
    s.ownership.of_unrecorded(s.machine.created, &s.answers, &s.process, s.now)
}

/// Waits for a list of the account that another Machine has asked for.
pub(super) fn await_list(until: Timestamp, deleting_since: Timestamp) -> Plan<Action> {
    Plan::until(until, comparing().since(deleting_since))
}

/// The why of a list that is asked for.
pub(super) fn comparing() -> Why {
    Why::new(
        Reason::Calling(Call::LIST),
        Step::Expect("whether this is the account of the instance is judged by what it shows"),
    )
}

/// Nothing that was made with this Secret is shown any more.
pub(super) fn other_account_plan(
    s: &Snapshot,
    look_at: Timestamp,
    deleting_since: Timestamp,
) -> Plan<Action> {
    let fix = format!("restore the credential in {} that it was made with, {}", secrets(s), or_leave());
    wait(s, other_account(s), fix, deleting_since).no_later_than(look_at)
}

/// The instance is absent, and nothing tells whether it was ever in this account.
pub(super) fn look_twice(s: &Snapshot, look_at: Timestamp, deleting_since: Timestamp) -> Plan<Action> {
    let reason = McmReason::SecondLook { instance: s.instance().to_string() };
    let why = Why::new(reason, Step::Expect("a second look")).since(deleting_since);
    Plan::until(look_at, why.deadline(look_at, Step::Expect("the instance is taken for gone")))
}

/// The recorded instance carries the key of another object.
pub(super) fn not_ours(
    s: &Snapshot,
    foreign: &Foreign,
    look_at: Timestamp,
    deleting_since: Timestamp,
) -> Plan<Action> {
    let reason = McmReason::InstanceNotOurs {
        instance: foreign.id.to_string(),
        key: foreign.key.to_string(),
        cluster: foreign.cluster.clone(),
        holder: s.key_holder.clone(),
    };
    let fix = format!("find out which cluster owns it, {}", or_leave());
    wait(s, reason, fix, deleting_since).no_later_than(look_at)
}

/// What a person is told when an instance is taken for gone on weak grounds, or when one of its name is left.
pub(super) fn remark(s: &Snapshot, proof: &Proof) -> Option<Action> {
    let instance = s.instance();
    match proof {
        Proof::Sure => None,
        Proof::LookedTwice => Some(Action::warn(
            DELETE_FAILED,
            format!(
                "Instance {instance} is taken for gone: it was absent twice, ten minutes apart, and no other Machine tells \
                 whether {} still opens its account",
                secrets(s)
            ),
        )),
        Proof::NameTaken(foreign) => Some(Action::warn(
            DELETE_FAILED,
            format!(
                "Instance {} has the name of this Machine and key {}, which no Machine holds; it is left as it is",
                foreign.id, foreign.key
            ),
        )),
    }
}

/// What is said when the label force-deletion lets a Machine go all the same.
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

/// The Secrets that open the account, for people.
pub(super) fn secrets(s: &Snapshot) -> String {
    match s.secrets.last() {
        // Later ones lie over earlier ones: the credential is in the last.
        Some(need) => format!("Secret {}", need.name),
        None => format!("MachineClass {}", s.machine.spec.class.name()),
    }
}

fn or_leave() -> String {
    format!("or set label {}=true to leave the instance behind", labels::FORCE_DELETION)
}

fn wait(s: &Snapshot, reason: McmReason, fix: String, deleting_since: Timestamp) -> Plan<Action> {
    let why = Why::new(reason, Step::Mend(fix)).since(deleting_since);
    delete::await_person(s, DeletionMarker::DeleteInstance, why)
}
