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
    machine.pointer_mut(parent).expect("the parent exists")[field.replace("~1", "/")] = value.into();
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
        unheard: BTreeSet::new(),
        sets: Vec::new(),
        unknown_owner: None,
        unseen: None,
        health_timeout: Duration::from_secs(600),
    }
}

/// A set that was told to have so many Machines.
fn set(name: &str, replicas: u32) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"), "labels": {}, "annotations": {}},
        "spec": {"replicas": replicas, "template": {"spec": {"class": {}, "nodeTemplate": {}}}},
    })
}

/// Told what the deployment wants, as its controller does.
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
fn a_machine_is_not_given_up_before_it_carries_what_its_node_says() {
    let mut snapshot = snapshot(&[machine("a", "Unknown", 700)]);
    snapshot.unheard = snapshot.machines.iter().map(|machine| machine.uid.clone()).collect();
    assert_eq!(plan(&snapshot).actions.len(), 0);
    snapshot.unheard.clear();
    assert_eq!(plan(&snapshot).actions.len(), 1);
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
fn a_preserved_machine_holds_nobody_up_until_its_time_is_up() {
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
fn machines_that_cannot_be_made_do_not_stop_all_healing() {
    let refused = json!({"type": "Create", "state": "Failed", "errorCode": "ResourceExhausted"});
    for phase in ["CrashLoopBackOff", "Pending"] {
        let stuck = with(machine("a", phase, 5), "/status/lastOperation", refused.clone());
        assert_eq!(plan(&snapshot(&[stuck, machine("b", "Unknown", 700)])).actions.len(), 1, "{phase}");
    }
}

#[test]
fn nobody_is_given_up_while_a_frozen_set_leaves_a_gap() {
    let machines = [machine("b", "Unknown", 700), machine("c", "Unknown", 700)];
    expect![[r#"
        why   waits for its turn: the deployment wants 3 machines and has 2; MachineSet w is frozen; since 2027-01-15T07:58:20Z; next: set the annotation safety.machine.sapcloud.io/unfreeze on MachineSet w
        wait  for a change
    "#]].assert_eq(&plan(&of_sets(&[frozen(set("w", 3))], &machines)).to_string());
    // Its label is removed, and it makes the one that is missing.
    let healed = [machine("a", "Running", 5), machines[0].clone(), machines[1].clone()];
    assert_eq!(plan(&of_sets(&[set("w", 3)], &healed)).actions.len(), 1);
    // Being frozen alone stops nobody: one is given up, and leaves the gap.
    assert_eq!(plan(&of_sets(&[frozen(set("w", 3))], &healed)).actions.len(), 1);
}

#[test]
fn nobody_is_given_up_while_a_replacement_cannot_be_posted() {
    let machines = [machine("b", "Unknown", 700), machine("c", "Running", 700)];
    expect![[r#"
        why   waits for its turn: the deployment wants 3 machines and has 2; since 2027-01-15T07:58:20Z; next: the missing machines are made
        wait  for a change
    "#]].assert_eq(&plan(&of_sets(&[set("w", 3)], &machines)).to_string());
}

/// What sets were told, what the deployment wants of them, phases of the Machines beside the unhealthy one, whether it is given up.
type Gap<'a> = (&'a [Value], &'a [&'a str], bool);

#[test]
fn what_is_wanted_is_what_sets_were_told_but_never_the_surge() {
    let w = |replicas, desired| of_deployment(set("w", replicas), desired);
    let new = |replicas, desired| of_deployment(set("new", replicas), desired);
    let leaving_set =
        |replicas| with(set("old", replicas), "/metadata/deletionTimestamp", at(-5).to_string());
    let cases: &[Gap<'_>] = &[
        // All are there.
        (&[w(3, 3)], &["Running", "Running"], true),
        (&[set("alone", 3)], &["Running", "Running"], true),
        (&[], &["Running"], true),
        // Unhealthy ones and those whose instance cannot be made hold their place.
        (&[w(3, 3)], &["Unknown", "CrashLoopBackOff"], true),
        // A scale-up whose Machines are not POSTed yet, and the same when they are and cannot be made.
        (&[w(5, 5)], &["Running", "Running"], false),
        (&[w(5, 5)], &["Running", "Running", "CrashLoopBackOff", "CrashLoopBackOff"], true),
        // More than wanted: a scale-down that is not through.
        (&[w(2, 2)], &["Running", "Running"], true),
        // A rollout that may surge, but whose new Machine is refused; and one after which a Machine is missing.
        (&[w(3, 3), new(1, 3)], &["Running", "Running"], true),
        (&[w(3, 3), new(1, 3)], &["Running"], false),
        // A rollout without surge: the old set is one smaller, the new one not grown yet.
        (&[w(2, 3), new(0, 3)], &["Running"], true),
        // Annotations of a set without replicas are old; of two that differ the larger counts.
        (&[w(3, 3), new(0, 9)], &["Running", "Running"], true),
        (&[w(3, 3), new(1, 4)], &["Running", "Running"], false),
        // A set on its way out makes nobody.
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
fn machines_of_an_unknown_set_are_kept() {
    let overdue = [machine("a", "Unknown", 700)];
    let unknown = Snapshot { unknown_owner: Some("w-1".to_owned()), ..snapshot(&overdue) };
    expect![[r#"
        why   waits for MachineSet w-1, which owns the machine and does not exist; since 2027-01-15T07:58:20Z; next: the MachineSet appears, or the garbage collector deletes its machines
        wait  for a change
    "#]].assert_eq(&plan(&unknown).to_string());
}

#[test]
fn a_mark_that_is_not_seen_yet_is_waited_for() {
    let overdue = [machine("a", "Unknown", 700), machine("b", "Unknown", 800)];
    let unseen = Snapshot { unseen: Some("a".to_owned()), ..snapshot(&overdue) };
    expect![[r#"
        why   waits for its turn: Machine a of the same deployment is being replaced; since 2027-01-15T07:56:40Z; next: that Machine is replaced
        wait  until 2027-01-15T08:00:10Z
    "#]].assert_eq(&plan(&unseen).to_string());
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
    let [Action::MarkFailed { write, .. }] = plan.actions.as_slice() else { panic!("{plan}") };
    expect!["Machine a health checks failing since 2027-01-15T07:48:20Z: its health timeout has passed"]
        .assert_eq(&write.operation.as_ref().expect("it says why").description);
}
