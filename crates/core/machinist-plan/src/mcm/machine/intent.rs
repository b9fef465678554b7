//! The record of a call that may create the instance of a Machine: account, place and key scope.
//!
//! The bootstrap token records it without a write of its own. The Machine records it if there is no
//! token, if it has changed since the token was made, or if the token is about to expire.

use std::time::Duration;

use machinist_core::minus;
use machinist_instance::{KeyScope, Place};

use super::action::Action;
use super::snapshot::Snapshot;
use crate::mcm::facts::CreationIntent;
use crate::mcm::why::{Plan, Reason, Step, Why};

/// So long before a token expires, the Machine gets a copy of what only the token records.
const SPARE: Duration = Duration::from_secs(240);

/// Returns where the next call may create the instance. The record of the last call is equal to it,
/// or is replaced before the call. A token of Go MCM records nothing, and a token may be older than
/// an edit of the class or of a Secret.
pub(super) fn of_next_call(s: &Snapshot) -> CreationIntent {
    let key_scope = &s.key_scope.of_class;
    CreationIntent {
        account: s.ownership.account.clone(),
        place: s.place.place().filter(|place| **place != Place::WHOLE).cloned(),
        key_scope: Some(key_scope).filter(|scope| **scope != KeyScope::WHOLE).cloned(),
    }
}

/// Whether the record of earlier calls is not needed, or stays, when the token is deleted.
pub(super) fn is_kept_without_token(s: &Snapshot, next: &CreationIntent) -> bool {
    s.answers.knows_no_creation(&s.process, s.machine.created) || s.machine.intent() == *next
}

/// Copies the record of earlier calls from the bootstrap token to the Machine before the token
/// expires. The cluster deletes expired tokens, while a credential or a server may be repaired only
/// later.
pub(super) fn keep(s: &Snapshot, plan: Plan<Action>) -> Plan<Action> {
    let Some(token) = s.token.ours().filter(|_| s.machine.provider_id.is_none()) else { return plan };
    let Some(expires) = token.expires else { return plan };
    // The pass after these actions looks again.
    if !plan.actions.is_empty() {
        return plan;
    }
    let is_only_record = !token.intent.is_empty() && s.machine.intent().is_empty();
    if !is_only_record || s.answers.knows_no_creation(&s.process, s.machine.created) {
        return plan;
    }
    let at = minus(expires, SPARE);
    if s.now < at {
        return plan.no_later_than(at);
    }
    let next = Step::Expect("the record stays when the bootstrap token expires");
    let why = Why::new(Reason::Writing("recording where the instance was created"), next);
    Plan::act(Action::RecordIntent(token.intent.clone()), why)
}
