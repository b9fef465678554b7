//! Tests of the bootstrap token of a Machine that has failed.

use super::*;

fn deletions(world: World) -> usize {
    let plan = world.plan();
    plan.actions.iter().filter(|action| matches!(action, Action::DeleteToken(_))).count()
}

/// Go MCM leaves the token until it expires.
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
