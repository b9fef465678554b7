//! Tests of `status.lastKnownState`, the text that a driver stores on a Machine.

use super::*;

/// A Machine with this text, if it is not empty.
fn with_text(text: &str) -> World {
    let mut world = world();
    if !text.is_empty() {
        world.machine["status"] = json!({"lastKnownState": text});
    }
    world
}

/// Returns what a plan writes: the new text, or an empty one if the text is removed.
fn written(plan: &Plan<Action>) -> Option<String> {
    let mut writes = plan.actions.iter().filter_map(|action| match action {
        Action::SetStatus(write) => write.last_known_state.clone(),
        _ => None,
    });
    writes.next().map(|write| match write {
        StateWrite::Set(text) => text,
        StateWrite::Clear => String::new(),
    })
}

#[test]
fn a_text_in_the_error_of_a_creation_is_stored() {
    for kind in [ErrorKind::Exhausted, ErrorKind::Denied] {
        let failed = |text| with_text(text).ensured(Err(error(kind, "no").with_state("port 7")));
        assert_eq!(written(&failed("").plan()).as_deref(), Some("port 7"), "{kind}");
        assert_eq!(written(&failed("port 6").plan()).as_deref(), Some("port 7"), "{kind}");
        assert_eq!(written(&failed("port 7").plan()), None, "{kind}");
    }
}

#[test]
fn a_creation_that_may_succeed_later_keeps_the_text() {
    let after = |kind| written(&with_text("port 7").ensured(Err(error(kind, "no"))).plan());
    for kind in [ErrorKind::Exhausted, ErrorKind::Ambiguous, ErrorKind::Unavailable] {
        assert_eq!(after(kind), None, "{kind}");
    }
    for kind in [ErrorKind::InvalidSpec, ErrorKind::Denied, ErrorKind::Bug] {
        assert_eq!(after(kind).as_deref(), Some(""), "{kind}");
    }
}

/// The message of the cloud may stay the same while its text changes.
#[test]
fn a_new_text_is_written_without_a_new_message() {
    let failure = || Err(error(ErrorKind::Exhausted, "no").with_state("port 8"));
    let first = with_text("port 7").ensured(failure());
    let plan = first.plan();
    let Some(Action::SetStatus(write)) = plan.actions.first() else { panic!("a status: {plan:?}") };
    let operation = write.operation.clone().expect("an operation");
    let mut again = with_text("port 7").phase("CrashLoopBackOff", "Create", "Failed", &operation.description);
    again.machine["status"]["lastOperation"]["errorCode"] = "ResourceExhausted".into();
    again.machine["status"]["lastKnownState"] = "port 7".into();
    let plan = again.ensured(failure()).plan();
    assert_eq!(written(&plan).as_deref(), Some("port 8"));
    assert_eq!(plan.actions.len(), 1, "no Event: {plan:?}");
}

#[test]
fn a_failed_deletion_stores_or_removes_the_text() {
    let failed = |failure: Error| {
        let mut world =
            world().recorded().phase("Terminating", "Delete", "Processing", "Initiate VM deletion");
        world.machine["status"]["lastKnownState"] = "port 7".into();
        let answer = deleted(answered(at(-2), at(-1), Err(failure)));
        world.deleting(10).created(-600).with(|s| s.answers.delete = answer)
    };
    let unavailable = || error(ErrorKind::Unavailable, "no");
    assert_eq!(written(&failed(unavailable().with_state("port 8")).plan()).as_deref(), Some("port 8"));
    assert_eq!(written(&failed(unavailable()).plan()).as_deref(), Some(""));
}

/// The driver gets its text with every call about the instance.
#[test]
fn the_text_is_passed_to_the_driver() {
    let mut world = world().recorded().phase("Terminating", "Delete", "Processing", "Initiate VM deletion");
    world.machine["status"]["lastKnownState"] = "port 7".into();
    let plan = world.deleting(10).created(-600).plan();
    let [Action::Delete(permit)] = &plan.actions[..] else { panic!("a deletion: {plan:?}") };
    assert_eq!(permit.which().last_known_state.as_deref(), Some("port 7"));
}
