//! Tests of the initialization of instances.

use super::*;

/// A Machine whose instance is recorded and needs an initialization.
fn recorded() -> World {
    world().recorded().with(|s| s.needs_initialization = true)
}

fn initialized(world: World, answer: Result<(), Error>) -> World {
    world.with(|s| {
        s.answers.failures = u32::from(answer.is_err());
        s.answers.inputs = Some(1);
        s.answers.initialized = Some(Box::new((instance().id, answered(at(-2), at(-1), answer))));
    })
}

fn status(plan: &Plan<Action>) -> Option<String> {
    plan.actions.iter().find_map(|action| match action {
        Action::SetStatus(write) => Some(write.to_string()),
        _ => None,
    })
}

const PENDING: &str = "Pending, Create Processing \"Creating machine on cloud provider\"";

/// The id must be on the Machine before: the call may end the process.
#[test]
fn an_instance_is_recorded_before_it_is_initialized() {
    let made = world().ensured(Ok(instance())).with(|s| s.needs_initialization = true);
    let plan = made.plan();
    assert!(matches!(plan.actions[..], [Action::Record { .. }]), "{plan:?}");
    let plan = recorded().plan();
    assert!(matches!(plan.actions[..], [Action::Initialize]), "a process that takes over: {plan:?}");
}

#[test]
fn t_05_an_initialized_instance_is_pending() {
    assert_eq!(status(&initialized(recorded(), Ok(())).plan()).as_deref(), Some(PENDING));
    let nothing_to_do = initialized(recorded(), Err(Error::unsupported("initialize")));
    assert_eq!(status(&nothing_to_do.plan()).as_deref(), Some(PENDING));
    assert_eq!(status(&world().recorded().plan()).as_deref(), Some(PENDING), "the provider needs no call");
}

#[test]
fn t_13_a_failed_initialization_is_reported_and_repeated() {
    let failed = || initialized(recorded(), Err(error(ErrorKind::Unavailable, "no")));
    let plan = failed().plan();
    let expected = "CrashLoopBackOff, Create Failed [Unavailable] \"Provider error: machine codes error: \
                    code = [Unavailable] message = [no]. Initialize VM Instance\"";
    assert_eq!(status(&plan).as_deref(), Some(expected));
    let plan = failed().with(|s| s.now = at(4)).plan();
    assert!(matches!(plan.actions[..], [Action::Initialize]), "5 s after the answer: {plan:?}");
}

#[test]
fn t_13_a_failed_initialization_ends_with_the_creation_timeout() {
    let failed = initialized(recorded().created(-3600), Err(error(ErrorKind::Unavailable, "no")));
    let plan = failed.with(|s| s.answers.wanted_since = Some(at(-3600))).plan();
    assert!(status(&plan).is_some_and(|status| status.starts_with("Failed, Create Failed ")), "{plan:?}");
}

/// The cloud still works, so the error code is `Uninitialized`.
#[test]
fn t_13_an_initialization_in_progress_is_reported() {
    let working = || initialized(recorded(), Err(Error::in_progress("the interface attaches")));
    let plan = working().plan();
    let expected = "CrashLoopBackOff, Create Failed [Uninitialized] \"Provider error: the interface attaches. \
                    Initialize VM Instance\"";
    assert_eq!(status(&plan).as_deref(), Some(expected));
    let expected = "instance sim:///i-1 exists and is not initialized yet: the interface attaches";
    assert_eq!(plan.why.reason.to_string(), expected);
    let reported = "Provider error: the interface attaches. Initialize VM Instance";
    let mut reported = working().phase("CrashLoopBackOff", "Create", "Failed", reported);
    reported.machine["status"]["lastOperation"]["errorCode"] = "Uninitialized".into();
    let plan = reported.plan();
    assert!(plan.actions.is_empty(), "it is reported once: {plan:?}");
    let plan = working().with(|s| s.now = at(4)).plan();
    assert!(matches!(plan.actions[..], [Action::Initialize]), "5 s after the answer: {plan:?}");
}

/// Machines whose initialization takes longer than the creation timeout.
fn late() -> [World; 2] {
    let errors = [error(ErrorKind::Unavailable, "no"), Error::in_progress("the interface attaches")];
    errors.map(|error| {
        initialized(recorded().created(-3600), Err(error)).with(|s| s.answers.wanted_since = Some(at(-3600)))
    })
}

#[test]
fn t_56_no_initialization_times_out_while_frozen() {
    for world in late() {
        let plan = world.with(|s| s.frozen = Some(frozen())).plan();
        assert!(plan.actions.is_empty(), "{plan:?}");
        assert_eq!(plan.wait, Wait::Until(at(10)));
    }
}

/// A deadline that may not be enforced must not wake the Machine again and again.
#[test]
fn an_unenforced_deadline_does_not_wake_a_machine() {
    for world in late() {
        let plan = world.with(|s| s.process.skew = Duration::from_secs(3600)).plan();
        assert!(status(&plan).is_some_and(|status| status.starts_with("CrashLoopBackOff")), "{plan:?}");
        assert_eq!(plan.wait, Wait::Until(at(4)), "the call is repeated");
    }
}

#[test]
fn a_machine_with_a_status_is_not_initialized_again() {
    let plan = world().pending().with(|s| s.needs_initialization = true).plan();
    assert!(!plan.actions.iter().any(|action| matches!(action, Action::Initialize)), "{plan:?}");
}

/// An instance that the cloud has given up is not asked about again, and the next one is created as
/// late as after a refused creation.
#[test]
fn a_failed_instance_is_reported_and_then_replaced() {
    let given_up = Error::instance_failed(ErrorKind::Exhausted, "no host is free");
    let failed = || initialized(recorded(), Err(given_up.clone()));
    let plan = failed().plan();
    let expected = "CrashLoopBackOff, Create Failed [ResourceExhausted] \"Provider error: machine codes error: \
                    code = [ResourceExhausted] message = [no host is free]. Initialize VM Instance\"";
    assert_eq!(status(&plan).as_deref(), Some(expected), "the autoscaler reads the code");
    let text = "the cloud has given up instance sim:///i-1: no host is free";
    assert_eq!(plan.why.reason.to_string(), text);
    let replaced = failed().with(|s| s.now = plus(at(-1), s.defaults.exhausted_retry)).plan();
    assert!(status(&replaced).is_some_and(|status| status.starts_with("Failed, ")), "{replaced:?}");
    let early = failed().with(|s| s.now = plus(at(-2), s.defaults.exhausted_retry)).plan();
    assert!(!early.actions.iter().any(|action| matches!(action, Action::Initialize)), "{early:?}");
    let frozen = failed().with(|s| {
        s.now = plus(at(-1), s.defaults.exhausted_retry);
        s.frozen = Some(frozen());
    });
    assert!(frozen.plan().actions.is_empty());
}

/// A restored Machine has a new UID, and its instance the key of the old one.
#[test]
fn a_restored_machine_does_not_fail_for_its_key() {
    let refused = || initialized(recorded().created(-3600), Err(error(ErrorKind::Denied, "another key")));
    let late = |s: &mut Snapshot| s.answers.wanted_since = Some(at(-3600));
    let plan = refused().with(late).with(|s| s.process.started = at(-60)).plan();
    assert!(status(&plan).is_some_and(|status| status.starts_with("CrashLoopBackOff")), "{plan:?}");
    let created_here = refused().with(late).with(|s| s.process.started = at(-7200)).plan();
    assert!(status(&created_here).is_some_and(|status| status.starts_with("Failed")), "{created_here:?}");
}

#[test]
fn the_instance_of_a_restored_machine_is_not_initialized() {
    let mut restored = world().running().with(|s| s.needs_initialization = true);
    restored.machine["status"] = json!({});
    let plan = restored.node_field("/metadata/creationTimestamp", at(-9000).to_string().into()).plan();
    assert!(!plan.actions.iter().any(|action| matches!(action, Action::Initialize)), "{plan:?}");
}
