//! The bootstrap token of a Machine that has failed: its instance must not join any longer, because
//! the set replaces it. A Node that has joined before has its own credential.

use machinist_api::Phase;

use super::action::Action;
use super::snapshot::Snapshot;
use crate::mcm::facts::Token;
use crate::mcm::why::Plan;

/// Deletes the token of a Machine that has failed. The deletion of the Machine comes too late: a
/// preserved Machine stays for days.
pub(super) fn attend(s: &Snapshot, mut plan: Plan<Action>) -> Plan<Action> {
    let is_planned = plan.actions.iter().any(|action| matches!(action, Action::DeleteToken(_)));
    if let Token::Ours(token) = &s.token
        && s.machine.status.phase == Phase::Failed
        && !is_planned
    {
        plan.actions.push(Action::DeleteToken(token.clone()));
    }
    plan
}
