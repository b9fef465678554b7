//! The record of a call that may create the instance of a Machine: account, place and key scope.
//!
//! The bootstrap token records it without a write of its own. The Machine records it if there is no
//! token, if it has changed since the token was made, or if the token is about to expire.

use std::time::Duration;

use machinist_core::{Answers, minus};
use machinist_instance::{ErrorKind, KeyScope, Place};

use super::action::Action;
use super::snapshot::Snapshot;
use crate::mcm::facts::CreationIntent;
use crate::mcm::why::Plan;

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
    s.knows_no_creation() || s.machine.intent() == *next
}

/// Copies the record of earlier calls from the bootstrap token to the Machine before the token
/// expires. The cluster deletes expired tokens, while a credential or a server may be repaired only
/// later. The copy is written even if the Machine has calls to make: it may make them again and
/// again, for example with a credential that opens no account.
pub(super) fn keep(s: &Snapshot, mut plan: Plan<Action>) -> Plan<Action> {
    let Some(token) = s.token.ours().filter(|_| s.machine.provider_id.is_none()) else { return plan };
    let Some(expires) = token.expires else { return plan };
    let is_only_record = !token.intent.is_empty() && s.machine.intent().is_empty();
    if !is_only_record || s.knows_no_creation() {
        return plan;
    }
    let at = minus(expires, SPARE);
    if s.now < at {
        return plan.no_later_than(at);
    }
    let ends_the_need = |action: &Action| {
        matches!(
            action,
            Action::Record { .. }
                | Action::RecordIntent(_)
                | Action::DeleteToken(_)
                | Action::AddFinalizer { .. }
                | Action::RemoveFinalizer
        )
    };
    if !plan.actions.iter().any(ends_the_need) {
        plan.actions.insert(0, Action::RecordIntent(token.intent.clone()));
    }
    plan
}

/// Removes the record of a call that was refused because of its credential, if no call had an
/// effect. Otherwise the next process would wait for the account of that credential, although it
/// has no instance.
pub(super) fn forget_refused(s: &Snapshot, mut plan: Plan<Action>) -> Plan<Action> {
    let failure = Answers::failure(s.answers.ensure.as_ref());
    let is_denied = failure.is_some_and(|(error, _)| error.kind == ErrorKind::Denied);
    if !is_denied || !s.knows_no_creation() {
        return plan;
    }
    if let Some(token) = s.token.ours().filter(|token| !token.intent.is_empty()) {
        plan.actions.push(Action::DeleteToken(Box::new(token.clone())));
    } else if !s.machine.intent().is_empty() {
        plan.actions.push(Action::RecordIntent(CreationIntent::default()));
    }
    plan
}
