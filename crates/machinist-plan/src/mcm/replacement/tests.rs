//! Claims about replacements, each a deployment's Machines and what may be done about them.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;

const NOW: i64 = 1_800_000_000;

fn at(seconds_from_now: i64) -> Timestamp {
    Timestamp::from_second(NOW + seconds_from_now).expect("a moment of this century")
}

/// A Machine that has been in its phase for so many seconds.
fn machine(name: &str, phase: &str, seconds: i64) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
        "spec": {"class": {"kind": "MachineClass", "name": "c"}, "nodeTemplate": {}},
        "status": {"currentStatus": {"phase": phase, "lastUpdateTime": at(-seconds).to_string()}},
    })
}

fn with(mut machine: Value, pointer: &str, value: impl Into<Value>) -> Value {
    let (parent, field) = pointer.rsplit_once('/').expect("a JSON pointer");
    machine.pointer_mut(parent).expect("the parent exists")[field] = value.into();
    machine
}

fn leaving(machine: Value) -> Value {
    with(machine, "/metadata/deletionTimestamp", at(-5).to_string())
}

/// Machines whose health timeout is ten minutes unless they say otherwise.
fn snapshot(machines: &[Value]) -> Snapshot {
    let facts = |machine: &Value| {
        let machine = serde_json::from_value(machine.clone()).expect("test objects are well-formed");
        Arc::new(MachineFacts::parse(&machine))
    };
    Snapshot {
        now: at(0),
        skew: Duration::ZERO,
        machines: machines.iter().map(facts).collect(),
        health_timeout: Duration::from_secs(600),
    }
}

fn check(machines: &[Value], expected: Expect) {
    expected.assert_eq(&plan(&snapshot(machines)).to_string());
}

#[test]
fn nobody_is_given_up_before_the_second_after_the_deadline() {
    check(
        &[machine("a", "Running", 9000), machine("b", "Unknown", 600)],
        expect![[r#"
        why   waits for nothing: it is as it should be
        wait  until 2027-01-15T08:00:01Z
    "#]],
    );
    check(
        &[machine("a", "Running", 9000), machine("b", "Unknown", 601)],
        expect![[r#"
        do    machine b: Failed
        why   waits for an unhealthy Machine to be given up; next: its set deletes and replaces it
        wait  for a change
    "#]],
    );
}

#[test]
fn of_several_the_one_that_is_overdue_for_longest_goes() {
    check(
        &[machine("a", "Unknown", 700), machine("b", "Unknown", 800), machine("c", "Unknown", 100)],
        expect![[r#"
            do    machine b: Failed
            why   waits for an unhealthy Machine to be given up; next: its set deletes and replaces it
            wait  until 2027-01-15T08:08:21Z
        "#]],
    );
}

#[test]
fn a_machines_own_timeout_counts() {
    let patient = with(machine("a", "Unknown", 700), "/spec/healthTimeout", "1h");
    check(
        &[patient],
        expect![[r#"
        why   waits for nothing: it is as it should be
        wait  until 2027-01-15T08:48:21Z
    "#]],
    );
    let hasty = with(machine("a", "Unknown", 61), "/spec/healthTimeout", "1m");
    assert_eq!(plan(&snapshot(&[hasty])).actions.len(), 1);
    let never = with(machine("a", "Unknown", 90_000), "/spec/disableHealthTimeout", true);
    check(
        &[never],
        expect![[r#"
        why   waits for nothing: it is as it should be
        wait  for a change
    "#]],
    );
}

#[test]
fn a_machine_that_is_being_replaced_is_waited_for() {
    let overdue = machine("b", "Unknown", 700);
    check(
        &[machine("a", "Failed", 5), overdue.clone()],
        expect![[r#"
        why   waits for its turn: Machine a of the same deployment is being replaced; since 2027-01-15T07:58:20Z; next: that Machine is replaced
        wait  for a change
    "#]],
    );
    for other in [
        leaving(machine("a", "Running", 5)),
        machine("a", "Terminating", 5),
        machine("a", "", 5),
        machine("a", "Pending", 5),
        with(
            machine("a", "Pending", 5),
            "/status/lastOperation",
            json!({"type": "Create", "state": "Processing"}),
        ),
    ] {
        let plan = plan(&snapshot(&[other.clone(), overdue.clone()]));
        assert!(plan.actions.is_empty(), "{other}: {plan}");
    }
}

#[test]
fn machines_that_cannot_be_made_do_not_stop_all_healing() {
    let refused = json!({"type": "Create", "state": "Failed", "errorCode": "ResourceExhausted"});
    for phase in ["CrashLoopBackOff", "Pending"] {
        let stuck = with(machine("a", phase, 5), "/status/lastOperation", refused.clone());
        assert_eq!(plan(&snapshot(&[stuck, machine("b", "Unknown", 700)])).actions.len(), 1, "{phase}");
    }
}

#[test]
fn machines_that_are_unhealthy_for_less_time_or_gone_already_are_left_alone() {
    for other in [
        machine("a", "Running", 9000),
        machine("a", "Pending", 9000),
        machine("a", "CrashLoopBackOff", 9000),
        leaving(machine("a", "Unknown", 9000)),
        with(machine("a", "Unknown", 0), "/status/currentStatus/lastUpdateTime", Value::Null),
    ] {
        assert!(plan(&snapshot(std::slice::from_ref(&other))).actions.is_empty(), "{other}");
    }
}

#[test]
fn clocks_that_disagree_destroy_nothing() {
    let overdue = [machine("a", "Unknown", 700)];
    let skewed = Snapshot { skew: Duration::from_secs(31), ..snapshot(&overdue) };
    expect![[r#"
        why   waits for clocks to agree: this process is 31 s off the API server's time; next: synchronise the clocks
        wait  until 2027-01-15T08:01:00Z
    "#]].assert_eq(&plan(&skewed).to_string());
    let near = Snapshot { skew: SKEW_LIMIT, ..snapshot(&overdue) };
    assert_eq!(plan(&near).actions.len(), 1);
}

#[test]
fn what_is_said_about_a_machine_names_the_time() {
    let plan = plan(&snapshot(&[machine("a", "Unknown", 700)]));
    let [Action::MarkFailed { description, .. }] = plan.actions.as_slice() else { panic!("{plan}") };
    expect!["Machine a health checks failing since 2027-01-15T07:48:20Z: its health timeout has passed"]
        .assert_eq(description);
}
