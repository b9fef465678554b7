//! The record of a load balancer and its account on the Service.
//!
//! Before the first Node has joined, nothing proves that the credential opens the right account. If
//! it is corrected later, the load balancer is created a second time, and only this record knows
//! the first one. The program has no credential for that account, so a user must delete it there.
//!
//! The account is recorded before the first call that may create a load balancer, because the
//! process may end or get another credential before the answer. The id is added after the answer.
//! No account is recorded before it has answered a list: in the account of a mistyped token nothing
//! is created.

use machinist_core::Step;
use machinist_instance::{AccountId, Balancer};

use super::action::Action;
use super::events::emit;
use super::snapshot::Snapshot;
use crate::ccm::account::{RecordedBalancer, calling};
use crate::ccm::facts::BalancerRecord;
use crate::ccm::listed_balancers::LIST_BALANCERS;
use crate::ccm::names;
use crate::ccm::why::{Plan, Reason, Why};
use crate::event::EventText;

/// Returns the record of today's account for a Service that has none, to be written before the
/// first call that may create its load balancer.
pub(super) fn intent(s: &Snapshot) -> Option<String> {
    let is_recorded = s.service.recorded_balancer().is_some();
    // A dry run writes no record, and decides as if the Service had it.
    if is_recorded || s.rehearsal.is_some() { None } else { text(s, None) }
}

/// Returns the plan that writes the record before the first call in an account.
pub(super) fn before_the_first_call(s: &Snapshot) -> Option<Plan<Action>> {
    let why = Why::new(
        Reason::Writing("recording the account in which a load balancer may exist"),
        Step::Expect("the cloud creates the load balancer"),
    );
    Some(Plan::act(Action::Record(intent(s)?), why))
}

/// Returns the action that records a load balancer, or that reports one of another account.
pub(super) fn needed(s: &Snapshot, balancer: &Balancer) -> Option<Action> {
    let account = s.account.id.as_ref().map(AccountId::as_str)?;
    if let Some(recorded) = s.service.recorded_balancer() {
        match (recorded.account == account, recorded.id == Some(&*balancer.id)) {
            (true, true) => return None,
            (false, false) => {
                let now = format!(", and now the Service has load balancer {}", balancer.id);
                return emit(s, left_over(&recorded, &now));
            }
            // A renewed credential of the same account, or a load balancer that was created again.
            (true, false) | (false, true) => {}
        }
    }
    record(s, &balancer.id)
}

fn record(s: &Snapshot, id: &str) -> Option<Action> {
    text(s, Some(id)).map(Action::Record)
}

/// Returns the record of a load balancer in today's account.
fn text(s: &Snapshot, id: Option<&str>) -> Option<String> {
    let account = s.account.id.as_ref().map(AccountId::as_str)?;
    Some(BalancerRecord { id, account }.render(&s.service.uid))
}

/// Returns the load balancer that the Service records with another account than today's.
fn of_another_account(s: &Snapshot) -> Option<BalancerRecord<'_>> {
    let account = s.account.id.as_ref().map(AccountId::as_str)?;
    s.service.recorded_balancer().filter(|recorded| recorded.account != account)
}

/// Returns a plan that comes before the deletion: if today's account shows the load balancer that
/// was recorded with another account, the credential was renewed, and the plan renews the record.
/// Otherwise no user could find out after the deletion which load balancer was deleted.
pub(super) fn renewed(s: &Snapshot) -> Option<Plan<Action>> {
    let recorded = of_another_account(s)?;
    let Some(listed) = &s.listed else { return Some(Plan::idle(calling(LIST_BALANCERS))) };
    let shown = listed.balancer.as_ref().filter(|balancer| recorded.id == Some(&*balancer.id))?;
    let why = Why::new(
        Reason::Writing("recording the load balancer with today's account"),
        Step::Expect("the cloud deletes the load balancer"),
    );
    Some(Plan::act(record(s, &shown.id)?, why))
}

/// Waits if the load balancer was not found, and the Service records it with another account: its
/// absence in this one proves nothing.
pub(super) fn elsewhere(s: &Snapshot) -> Option<Plan<Action>> {
    let recorded = of_another_account(s)?;
    let balancer = RecordedBalancer::of(&s.service, &recorded);
    let mut plan = Plan::idle(balancer.unseen());
    let now = ", and the project of today's credential does not show it";
    plan.actions.extend(emit(s, left_over(&recorded, now)));
    Some(plan)
}

/// Reports a load balancer of another account when this program is done with the Service.
pub(super) fn left_behind(s: &Snapshot) -> Option<Action> {
    let recorded = of_another_account(s)?;
    emit(s, left_over(&recorded, ", and this program is done with the Service now"))
}

fn left_over(recorded: &BalancerRecord<'_>, now: &str) -> EventText {
    let first = match recorded.id {
        Some(id) => format!("Load balancer {id} was created for this Service with another credential"),
        None => "A load balancer may have been created for this Service with another credential".to_owned(),
    };
    let message = format!(
        "{first}{now}. If the first one exists in another project, delete it there. Then remove the annotation {}.",
        names::BALANCER_RECORD
    );
    EventText::warning(names::BALANCER_LEFT_OVER, message)
}
