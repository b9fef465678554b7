//! Tests of the bootstrap token of a Machine that has failed.

use super::*;

fn deletions(world: World) -> usize {
    let plan = world.plan();
    plan.actions.iter().filter(|action| matches!(action, Action::DeleteToken(_))).count()
}

/// F-08: Go MCM leaves the token until it expires.
#[test]
fn f08_the_token_of_a_failed_machine_is_deleted() {
    let without_instance = world().token(3600).phase("Failed", "Create", "Failed", "x").created(-9000);
    assert_eq!(deletions(without_instance), 1);
    let not_joined = world().recorded().token(3600).phase("Failed", "Create", "Failed", "x").created(-9000);
    assert_eq!(deletions(not_joined), 1);
    let recovered = world().running().token(3600).phase("Failed", "HealthCheck", "Failed", "x");
    assert_eq!(deletions(recovered), 1, "the plan for a Node that joined deletes the token, too");
    assert_eq!(deletions(world().pending().token(3600)), 0, "the instance may still join");
}

/// A process that deletes the Machine must know where its instance may be.
#[test]
fn the_account_of_the_creation_outlives_the_token() {
    let with_account = |world: World| {
        world.with(|s| {
            if let Token::Ours(token) = &mut s.token {
                token.account = account("a");
            }
        })
    };
    let failed = |world: World| with_account(world.token(3600)).phase("Failed", "Create", "Failed", "x");
    let actions = |world: World| failed(world).created(-9000).plan().actions;
    let unrecorded = actions(world());
    assert!(
        matches!(unrecorded[..], [.., Action::RecordIntent { .. }, Action::DeleteToken(_)]),
        "{unrecorded:?}"
    );
    for known in [actions(world().recorded()), actions(world().intended())] {
        assert!(!known.iter().any(|action| matches!(action, Action::RecordIntent { .. })), "{known:?}");
    }
}
