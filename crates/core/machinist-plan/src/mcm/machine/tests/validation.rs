//! Tests of invalid Machines and classes: the user sees what is wrong, in status, Event and `why`.

use super::*;

/// The texts that a user sees: the status, the message of the Event, and the reason.
struct Shown {
    status: String,
    event: String,
    why: String,
}

fn shown(world: World) -> Shown {
    let plan = world.plan();
    let mut actions = plan.actions.iter();
    let status = actions.find_map(|action| match action {
        Action::SetStatus(write) => Some(write.to_string()),
        _ => None,
    });
    let event = actions.find_map(|action| match action {
        Action::Tell { reason, message, .. } => Some(format!("{reason}: {message}")),
        _ => None,
    });
    Shown { status: status.unwrap_or_default(), event: event.unwrap_or_default(), why: plan.why.to_string() }
}

fn check_shown(world: World, code: &str, message: &str) {
    let Shown { status, event, why } = shown(world);
    let expected = format!("CrashLoopBackOff, Create Failed [{code}] \"Creation is blocked: {message}");
    assert!(status.starts_with(&expected), "{status}");
    assert_eq!(event, format!("FailedCreate: Creation is blocked: {message}"));
    assert!(why.starts_with(message), "{why}");
}

/// Go MCM only logs the error.
#[test]
fn f76_an_invalid_machine_shows_the_field() {
    for (part, other) in [("kind", "name"), ("name", "kind")] {
        let mut invalid = world();
        invalid.machine["spec"]["class"] = json!({other: "MachineClass"});
        let message =
            format!("invalid spec: spec.class.{part} is empty: expected the {part} of a MachineClass");
        check_shown(invalid, "InvalidArgument", &message);
    }
}

/// A class, or a Secret of the class, does not exist. Go MCM calls the driver without the data of a
/// missing Secret; here the Machine says which Secret is missing.
#[test]
fn t_18_a_missing_class_or_secret_is_shown() {
    check_shown(world().with(|s| s.class = Known::Absent), "NotFound", "MachineClass c not found");
    let without_secret = world().with(|s| s.secrets[0].facts = Known::Absent);
    check_shown(without_secret, "NotFound", "Secret ns/s not found (used by MachineClass c)");
}

/// Without the finalizer of the class, the Machine waits for the class controller.
#[test]
fn t_18_a_valid_class_with_its_finalizer_is_used() {
    let plan = world().token(3600).plan();
    assert!(matches!(plan.actions[..], [Action::Ensure { .. }]), "{plan:?}");
    let unheld = world().with(|s| {
        let Known::Present(class) = &s.class else { return };
        s.class = Known::Present(Arc::new(ClassFacts { has_finalizer: false, ..(**class).clone() }));
    });
    let plan = unheld.plan();
    assert!(plan.actions.is_empty(), "{plan:?}");
    assert!(plan.why.to_string().contains("waiting for the finalizer of MachineClass c"), "{}", plan.why);
}

fn with_template(template: Value) -> World {
    let class = json!({
        "metadata": {"name": "c", "namespace": "ns", "uid": "uid-c",
                     "finalizers": ["machine.sapcloud.io/machine-controller-manager"]},
        "providerSpec": {}, "nodeTemplate": template,
    });
    world().with(|s| s.class = Known::Present(Arc::new(ClassFacts::parse(&parse::<MachineClass>(&class)))))
}

#[test]
fn t_19_an_invalid_node_template_shows_the_field() {
    let template = |capacity: Value, region: &str| json!({"capacity": capacity, "instanceType": "small", "region": region, "zone": "z"});
    let full = json!({"cpu": "1", "gpu": "0", "memory": "1Gi"});
    let cases = [
        (template(json!({"cpu": "1", "memory": "1Gi"}), "r"), "nodeTemplate.capacity.gpu"),
        (template(full, ""), "nodeTemplate.region"),
    ];
    for (template, field) in cases {
        check_shown_in(with_template(template), field);
    }
}

fn check_shown_in(world: World, field: &str) {
    let Shown { status, event, why } = shown(world);
    assert!(status.starts_with("CrashLoopBackOff, Create Failed [InvalidArgument]"), "{status}");
    for text in [&status, &event, &why] {
        assert!(text.contains("MachineClass c is invalid: ") && text.contains(field), "{text}");
    }
}

/// In Go MCM, an invalid class blocks the deletion of its Machines forever.
#[test]
fn f42_an_invalid_class_blocks_no_deletion() {
    let invalid = with_template(json!({"capacity": {}, "instanceType": "", "region": "", "zone": ""}));
    let terminating = invalid.recorded().phase("Terminating", "Delete", "Processing", "Initiate VM deletion");
    let plan = terminating.deleting(10).created(-600).plan();
    assert!(matches!(plan.actions[..], [Action::Delete(_)]), "{plan:?}");
}
