//! Tests of the replacement planner: each test builds a deployment's Machines and checks the plan.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;

const NOW: i64 = 1_800_000_000;

fn at(seconds_from_now: i64) -> Timestamp {
    Timestamp::from_second(NOW + seconds_from_now).expect("a moment of this century")
}

/// A Machine that has been in its phase for this many seconds.
fn machine(name: &str, phase: &str, seconds: i64) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
        "spec": {"class": {"kind": "MachineClass", "name": "c"}, "nodeTemplate": {}},
        "status": {"currentStatus": {"phase": phase, "lastUpdateTime": at(-seconds).to_string()}},
    })
}

fn with(mut machine: Value, pointer: &str, value: impl Into<Value>) -> Value {
    let (parent, field) = pointer.rsplit_once('/').expect("a JSON pointer");
    machine.pointer_mut(parent).expect("the parent exists")[field.replace("~1", "/")] = value.into();
    machine
}

fn leaving(machine: Value) -> Value {
    with(machine, "/metadata/deletionTimestamp", at(-5).to_string())
}

/// A snapshot of these Machines, with a default health timeout of ten minutes.
fn snapshot(machines: &[Value]) -> Snapshot {
    let facts = |machine: &Value| {
        let machine = serde_json::from_value(machine.clone()).expect("test objects are well-formed");
        Arc::new(MachineFacts::parse(&machine))
    };
    Snapshot {
        now: at(0),
        skew: Duration::ZERO,
        machines: machines.iter().map(facts).collect(),
        unheard: BTreeSet::new(),
        sets: Vec::new(),
        unknown_owner: None,
        unseen: None,
        health_timeout: Duration::from_secs(600),
    }
}

/// A set with that many replicas.
fn set(name: &str, replicas: u32) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"), "labels": {}, "annotations": {}},
        "spec": {"replicas": replicas, "template": {"spec": {"class": {}, "nodeTemplate": {}}}},
    })
}

/// Adds the annotation with the deployment's replicas.
fn of_deployment(set: Value, desired: u32) -> Value {
    with(set, "/metadata/annotations/deployment.kubernetes.io~1desired-replicas", desired.to_string())
}

fn frozen(set: Value) -> Value {
    with(set, "/metadata/labels/freeze", "True")
}

fn of_sets(sets: &[Value], machines: &[Value]) -> Snapshot {
    let facts = |set: &Value| {
        let set = serde_json::from_value(set.clone()).expect("test objects are well-formed");
        Arc::new(MachineSetFacts::parse(&set))
    };
    Snapshot { sets: sets.iter().map(facts).collect(), ..snapshot(machines) }
}

fn check(machines: &[Value], expected: Expect) {
    expected.assert_eq(&plan(&snapshot(machines)).to_string());
}

#[test]
fn no_machine_fails_before_the_second_after_the_deadline() {
    check(
        &[machine("a", "Running", 9000), machine("b", "Unknown", 600)],
        expect![[r#"
        why   up to date
        wait  until 2027-01-15T08:00:01Z
    "#]],
    );
    check(
        &[machine("a", "Running", 9000), machine("b", "Unknown", 601)],
        expect![[r#"
        do    machine b: Failed
        why   marking an unhealthy Machine as Failed; next: the MachineSet deletes and replaces the Machine
        wait  for a change
    "#]],
    );
}

#[test]
fn no_machine_fails_before_it_carries_the_node_annotation() {
    let mut snapshot = snapshot(&[machine("a", "Unknown", 700)]);
    snapshot.unheard = snapshot.machines.iter().map(|machine| machine.uid.clone()).collect();
    assert_eq!(plan(&snapshot).actions.len(), 0);
    snapshot.unheard.clear();
    assert_eq!(plan(&snapshot).actions.len(), 1);
}

#[test]
fn the_machine_that_is_overdue_for_longest_fails_first() {
    check(
        &[machine("a", "Unknown", 700), machine("b", "Unknown", 800), machine("c", "Unknown", 100)],
        expect![[r#"
            do    machine b: Failed
            why   marking an unhealthy Machine as Failed; next: the MachineSet deletes and replaces the Machine
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
        why   up to date
        wait  until 2027-01-15T08:48:21Z
    "#]],
    );
    let hasty = with(machine("a", "Unknown", 61), "/spec/healthTimeout", "1m");
    assert_eq!(plan(&snapshot(&[hasty])).actions.len(), 1);
    let never = with(machine("a", "Unknown", 90_000), "/spec/disableHealthTimeout", true);
    check(
        &[never],
        expect![[r#"
        why   up to date
        wait  for a change
    "#]],
    );
}

#[test]
fn a_running_replacement_delays_the_next_one() {
    let overdue = machine("b", "Unknown", 700);
    check(
        &[machine("a", "Failed", 5), overdue.clone()],
        expect![[r#"
        why   replacement waits: Machine a of the same deployment is being replaced; since 2027-01-15T07:58:20Z; next: the other Machine is replaced
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
fn a_preserved_machine_delays_no_replacement() {
    let preserved = |seconds| {
        with(machine("a", "Failed", 5), "/status/currentStatus/preserveExpiryTime", at(seconds).to_string())
    };
    let given_up = |seconds| {
        let machines = [preserved(seconds), machine("b", "Unknown", 700)];
        plan(&of_sets(&[set("w", 2)], &machines)).actions.len()
    };
    assert_eq!((given_up(100), given_up(-100)), (1, 0));
}

#[test]
fn machines_that_cannot_be_created_do_not_stop_all_healing() {
    let refused = json!({"type": "Create", "state": "Failed", "errorCode": "ResourceExhausted"});
    for phase in ["CrashLoopBackOff", "Pending"] {
        let stuck = with(machine("a", phase, 5), "/status/lastOperation", refused.clone());
        assert_eq!(plan(&snapshot(&[stuck, machine("b", "Unknown", 700)])).actions.len(), 1, "{phase}");
    }
}

#[test]
fn no_machine_fails_while_a_frozen_set_leaves_a_gap() {
    let machines = [machine("b", "Unknown", 700), machine("c", "Unknown", 700)];
    expect![[r#"
        why   replacement waits: the deployment wants 3 machines and has 2; MachineSet w is frozen; since 2027-01-15T07:58:20Z; next: set the annotation safety.machine.sapcloud.io/unfreeze on MachineSet w
        wait  for a change
    "#]].assert_eq(&plan(&of_sets(&[frozen(set("w", 3))], &machines)).to_string());
    // The label is removed, and the set creates the missing Machine.
    let healed = [machine("a", "Running", 5), machines[0].clone(), machines[1].clone()];
    assert_eq!(plan(&of_sets(&[set("w", 3)], &healed)).actions.len(), 1);
    // A freeze alone does not block: one Machine is marked Failed and leaves the gap.
    assert_eq!(plan(&of_sets(&[frozen(set("w", 3))], &healed)).actions.len(), 1);
}

#[test]
fn no_machine_fails_while_a_replacement_cannot_be_posted() {
    let machines = [machine("b", "Unknown", 700), machine("c", "Running", 700)];
    expect![[r#"
        why   replacement waits: the deployment wants 3 machines and has 2; since 2027-01-15T07:58:20Z; next: the missing machines are created
        wait  for a change
    "#]].assert_eq(&plan(&of_sets(&[set("w", 3)], &machines)).to_string());
}

/// The sets, the phases of the Machines beside the unhealthy one, and whether the unhealthy Machine
/// is marked Failed.
type Gap<'a> = (&'a [Value], &'a [&'a str], bool);

#[test]
fn the_desired_number_excludes_the_surge() {
    let w = |replicas, desired| of_deployment(set("w", replicas), desired);
    let new = |replicas, desired| of_deployment(set("new", replicas), desired);
    let leaving_set =
        |replicas| with(set("old", replicas), "/metadata/deletionTimestamp", at(-5).to_string());
    let cases: &[Gap<'_>] = &[
        // All Machines exist.
        (&[w(3, 3)], &["Running", "Running"], true),
        (&[set("alone", 3)], &["Running", "Running"], true),
        (&[], &["Running"], true),
        // Unhealthy Machines and Machines without a possible instance count as live.
        (&[w(3, 3)], &["Unknown", "CrashLoopBackOff"], true),
        // A scale-up before its Machines are POSTed, and after, when their instances cannot be
        // created.
        (&[w(5, 5)], &["Running", "Running"], false),
        (&[w(5, 5)], &["Running", "Running", "CrashLoopBackOff", "CrashLoopBackOff"], true),
        // More than desired: an incomplete scale-down.
        (&[w(2, 2)], &["Running", "Running"], true),
        // A rollout with surge and a rejected new Machine, with all and with one missing old
        // Machine.
        (&[w(3, 3), new(1, 3)], &["Running", "Running"], true),
        (&[w(3, 3), new(1, 3)], &["Running"], false),
        // A rollout without surge: the old set is smaller by one, and the new set has not grown
        // yet.
        (&[w(2, 3), new(0, 3)], &["Running"], true),
        // The annotation of a set without replicas is outdated. If two annotations differ, the
        // larger value counts.
        (&[w(3, 3), new(0, 9)], &["Running", "Running"], true),
        (&[w(3, 3), new(1, 4)], &["Running", "Running"], false),
        // A set that is being deleted creates no Machines.
        (&[w(2, 4), leaving_set(2)], &["Running"], true),
    ];
    for (sets, others, is_given_up) in cases {
        let others = others.iter().enumerate().map(|(n, phase)| machine(&format!("m{n}"), phase, 5));
        let machines: Vec<_> = others.chain([machine("z", "Unknown", 700)]).collect();
        let plan = plan(&of_sets(sets, &machines));
        assert_eq!(!plan.actions.is_empty(), *is_given_up, "{sets:?}: {plan}");
    }
}

#[test]
fn machines_that_are_not_overdue_are_left_alone() {
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
fn machines_of_an_unknown_set_are_kept() {
    let overdue = [machine("a", "Unknown", 700)];
    let unknown = Snapshot { unknown_owner: Some("w-1".to_owned()), ..snapshot(&overdue) };
    expect![[r#"
        why   owner MachineSet w-1 not found; since 2027-01-15T07:58:20Z; next: the MachineSet appears, or the garbage collector deletes its machines
        wait  for a change
    "#]].assert_eq(&plan(&unknown).to_string());
}

#[test]
fn an_unseen_failed_mark_delays_the_next_one() {
    let overdue = [machine("a", "Unknown", 700), machine("b", "Unknown", 800)];
    let unseen = Snapshot { unseen: Some("a".to_owned()), ..snapshot(&overdue) };
    expect![[r#"
        why   replacement waits: Machine a of the same deployment is being replaced; since 2027-01-15T07:56:40Z; next: the other Machine is replaced
        wait  until 2027-01-15T08:00:10Z
    "#]].assert_eq(&plan(&unseen).to_string());
}

#[test]
fn during_clock_skew_no_machine_fails() {
    let overdue = [machine("a", "Unknown", 700)];
    let skewed = Snapshot { skew: Duration::from_secs(31), ..snapshot(&overdue) };
    expect![[r#"
        why   clock skew: this process may differ from the API server by 31 s; next: synchronize the clocks
        wait  until 2027-01-15T08:01:00Z
    "#]]
    .assert_eq(&plan(&skewed).to_string());
    let near = Snapshot { skew: SKEW_LIMIT, ..snapshot(&overdue) };
    assert_eq!(plan(&near).actions.len(), 1);
}

#[test]
fn the_description_of_a_failed_machine_names_the_time() {
    let plan = plan(&snapshot(&[machine("a", "Unknown", 700)]));
    let [Action::MarkFailed { write, .. }] = plan.actions.as_slice() else { panic!("{plan}") };
    expect!["Machine a health checks failing since 2027-01-15T07:48:20Z: its health timeout has passed"]
        .assert_eq(&write.operation.as_ref().expect("the write has an operation").description);
}
