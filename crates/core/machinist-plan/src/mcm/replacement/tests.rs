//! Tests of the replacement planner: each test builds a deployment's Machines and checks the plan.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::mcm::reads::NodeRead;
use crate::testing::{self, at};
use machinist_core::{FreshRead, Silence};

/// A Machine that has been in its phase for this many seconds.
fn machine(name: &str, phase: &str, seconds: i64) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": format!("uid-{name}"),
            "creationTimestamp": at(-seconds).to_string(),
        },
        "spec": {"class": {"kind": "MachineClass", "name": "c"}, "nodeTemplate": {}},
        "status": {"currentStatus": {"phase": phase, "lastUpdateTime": at(-seconds).to_string()}},
    })
}

fn with(mut machine: Value, pointer: &str, value: impl Into<Value>) -> Value {
    testing::set(&mut machine, pointer, value);
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
    let machines: Vec<_> = machines.iter().map(facts).collect();
    Snapshot {
        now: at(0),
        skew: Duration::ZERO,
        gaps: Unseen::default(),
        nodes_freshness: Freshness::Fresh,
        frozen: None,
        nodes: machines.iter().map(|machine| sick_node(machine, at(0))).collect(),
        machines,
        unheard: BTreeSet::new(),
        sets: Vec::new(),
        unknown_owner: None,
        boots: BTreeMap::new(),
        never_joined: BTreeMap::new(),
        unseen: None,
        defaults: Arc::default(),
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
fn queued_creations_delay_a_replacement_for_one_timeout() {
    let queued = |seconds| [machine("a", "Unknown", 9000), machine("b", "", seconds)];
    check(
        &queued(1200),
        expect![[r#"
            why   replacement waits: Machine b of the same deployment is being replaced; since 2027-01-15T05:40:00Z; next: the other Machine is replaced
            wait  until 2027-01-15T08:00:01Z
        "#]],
    );
    let after = plan(&snapshot(&queued(1201)));
    assert_eq!(after.actions.iter().map(ToString::to_string).collect::<Vec<_>>(), ["machine a: Failed"]);
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
fn t_32_the_machine_that_is_overdue_for_longest_fails_first() {
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
fn t_26_a_machines_own_timeout_counts() {
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

/// A Machine of that set.
fn of_set(machine: Value, set: &str) -> Value {
    let owner = json!([{"kind": "MachineSet", "name": set, "uid": format!("uid-{set}"), "controller": true}]);
    with(machine, "/metadata/ownerReferences", owner)
}

/// A Machine whose instance could not be created.
fn refused(name: &str, phase: &str) -> Value {
    let operation = json!({
        "type": "Create", "state": "Failed", "errorCode": "ResourceExhausted", "description": "no stock",
    });
    with(machine(name, phase, 5), "/status/lastOperation", operation)
}

#[test]
fn no_machine_fails_while_its_set_cannot_create_another() {
    let overdue = || of_set(machine("b", "Unknown", 700), "w");
    for phase in ["CrashLoopBackOff", "Pending"] {
        let plan = plan(&snapshot(&[of_set(refused("a", phase), "w"), overdue()]));
        assert!(plan.actions.is_empty(), "{phase}: {plan}");
    }
    check(
        &[of_set(refused("a", "CrashLoopBackOff"), "w"), overdue()],
        expect![[r#"
            why   replacement waits: instances cannot be created, as Machine a of the same set shows: no stock; since 2027-01-15T07:58:20Z; next: instances can be created again
            wait  for a change
        "#]],
    );
    let instance = |machine| with(machine, "/spec/providerID", "sim:///i-a");
    let preserved =
        with(refused("a", "Failed"), "/status/currentStatus/preserveExpiryTime", at(100).to_string());
    for (other, why) in [
        (of_set(refused("a", "CrashLoopBackOff"), "new"), "another set creates its own Machines"),
        (of_set(instance(refused("a", "CrashLoopBackOff")), "w"), "the instance exists"),
        (of_set(machine("a", "CrashLoopBackOff", 5), "w"), "it has only waited so far"),
        (of_set(preserved, "w"), "it may be preserved for days"),
    ] {
        assert_eq!(plan(&snapshot(&[other, overdue()])).actions.len(), 1, "{why}");
    }
}

#[test]
fn a_zone_outage_without_stock_costs_one_machine() {
    let mut machines: Vec<_> =
        (0..6).map(|n| of_set(machine(&format!("m{n}"), "Unknown", 700), "w")).collect();
    let mut marked = 0;
    for _ in 0..20 {
        let Some(action) = plan(&of_sets(&[set("w", 6)], &machines)).actions.pop() else { break };
        let Action::MarkFailed { machine: failed, .. } = action else { panic!("{action}") };
        marked += 1;
        machines.retain(|machine| machine["metadata"]["name"] != *failed.name);
        // The set creates the replacement, whose instance has no stock.
        machines.push(of_set(refused(&format!("new{marked}"), "CrashLoopBackOff"), "w"));
    }
    assert_eq!(marked, 1);
}

/// A Machine with an instance that has waited for its Node for this many seconds.
fn joining(name: &str, seconds: i64) -> Value {
    let machine = with(machine(name, "Pending", seconds), "/spec/providerID", "sim:///i");
    with(
        with(machine, "/metadata/creationTimestamp", at(-seconds - 100).to_string()),
        "/status/lastOperation",
        json!({"type": "Create", "state": "Processing"}),
    )
}

const CREATION_TIMEOUT: i64 = 1200;

#[test]
fn a_node_that_does_not_join_fails_its_machine() {
    check(
        &[joining("a", CREATION_TIMEOUT)],
        expect![[r#"
            why   up to date
            wait  until 2027-01-15T08:00:01Z
        "#]],
    );
    let late = snapshot(&[joining("a", CREATION_TIMEOUT + 1)]);
    expect![[r#"
        do    machine a: Failed
        why   marking a Machine as Failed whose Node did not join; next: the MachineSet deletes and replaces the Machine
        wait  for a change
    "#]]
    .assert_eq(&plan(&late).to_string());
    let Action::MarkFailed { write, .. } = &plan(&late).actions[0] else { panic!("a mark") };
    expect![[
        r#"Failed, Create Failed "Machine a failed to join the cluster in time. Last state: Node a is unhealthy: Ready is Unknown""#
    ]]
    .assert_eq(&write.to_string());
    let no_instance = with(joining("a", CREATION_TIMEOUT + 1), "/spec/providerID", "");
    assert!(plan(&snapshot(&[no_instance])).actions.is_empty(), "its creation is another decision");
}

#[test]
fn a_tenth_of_the_replicas_may_fail_to_join_at_once() {
    let all: Vec<_> = (0..50).map(|n| joining(&format!("m{n:02}"), CREATION_TIMEOUT + 100)).collect();
    for (replicas, expected) in [(1, 1), (19, 1), (20, 2), (50, 5)] {
        let plan = plan(&of_sets(&[set("w", replicas)], &all));
        assert_eq!(plan.actions.len(), expected, "{replicas} replicas");
    }
    let marked = |other: Value| {
        let mut machines = all.clone();
        machines[0] = other;
        plan(&of_sets(&[set("w", 50)], &machines)).actions.len()
    };
    let in_replacement = [
        machine("x", "Failed", 5),
        leaving(machine("x", "Running", 5)),
        machine("x", "", 1),
        joining("x", 5),
    ];
    for other in in_replacement {
        assert_eq!(marked(other.clone()), 4, "{other}");
    }
    assert_eq!(marked(machine("x", "Running", 5)), 5);
    let busy: Vec<_> = (0..5).map(|n| machine(&format!("f{n}"), "Failed", 5)).chain(all).collect();
    expect![[r#"
        why   replacement waits: Machine f0 of the same deployment is being replaced; since 2027-01-15T07:58:20Z; next: the other Machine is replaced
        wait  for a change
    "#]].assert_eq(&plan(&of_sets(&[set("w", 50)], &busy)).to_string());
}

#[test]
fn no_deadline_ends_while_the_nodes_are_not_fresh() {
    let silence = |read| {
        let server = "the API server of the target cluster".to_owned();
        Freshness::Stale(Silence { server, since: at(-1000), read })
    };
    for machines in [[machine("a", "Unknown", 700)], [joining("a", CREATION_TIMEOUT + 1)]] {
        let stale = |read| Snapshot { nodes_freshness: silence(read), ..snapshot(&machines) };
        expect![[r#"
            do    nodes: list them at the API server
            why   the API server of the target cluster is silent; a deadline has passed and waits for its answer; since 2027-01-15T07:43:20Z; next: the controller reads the current state from the API server
            wait  for a change
        "#]].assert_eq(&plan(&stale(FreshRead::Possible)).to_string());
        expect![[r#"
            why   the API server of the target cluster is silent; a deadline has passed and waits for its answer; since 2027-01-15T07:43:20Z; next: the controller tries to read from the API server again
            wait  until 2027-01-15T08:00:20Z
        "#]].assert_eq(&plan(&stale(FreshRead::Failed(at(20)))).to_string());
        assert!(plan(&stale(FreshRead::InFlight(at(20)))).actions.is_empty());
    }
    let early = Snapshot {
        nodes_freshness: silence(FreshRead::Possible),
        ..snapshot(&[machine("a", "Unknown", 500), joining("b", 500)])
    };
    assert!(plan(&early).actions.is_empty(), "nothing is due, so nothing is read");
}

/// A freeze stops the failing of Machines, also while the Nodes are fresh. Its end resets no time:
/// the deadline that has passed is enforced.
#[test]
fn t_55_t_56_no_machine_fails_while_the_controller_is_frozen() {
    let silence = Silence {
        server: "the API server of the control cluster".to_owned(),
        since: at(-300),
        read: FreshRead::Possible,
    };
    for machines in [[machine("a", "Unknown", 700)], [joining("a", CREATION_TIMEOUT + 1)]] {
        let frozen = Snapshot { frozen: Some(Frozen { silence: silence.clone() }), ..snapshot(&machines) };
        expect![[r#"
            why   the API server of the control cluster is silent; a deadline has passed and waits for its answer; since 2027-01-15T07:55:00Z; next: the controller reads the current state from the API server
            wait  until 2027-01-15T08:00:10Z
        "#]].assert_eq(&plan(&frozen).to_string());
        assert!(!plan(&snapshot(&machines)).actions.is_empty(), "the controller is no longer frozen");
    }
}

#[test]
fn deadlines_leave_out_unseen_time() {
    let mut gaps = Unseen::default();
    gaps.add(at(-400), at(-300));
    for machines in [[machine("a", "Unknown", 700)], [joining("a", CREATION_TIMEOUT + 100)]] {
        let waits = Snapshot { gaps: gaps.clone(), ..snapshot(&machines) };
        assert!(plan(&waits).actions.is_empty());
        let later = Snapshot { now: at(1), ..waits };
        assert_eq!(plan(&later).actions.len(), 1);
    }
}

#[test]
fn a_missing_node_is_looked_for_before_its_machine_fails() {
    let missing = |reads: Reads, machine: Value| {
        let mut snapshot = snapshot(&[machine]);
        for of in snapshot.nodes.values_mut() {
            (of.node, of.reads) = (Known::Absent, reads.clone());
        }
        plan(&snapshot).to_string()
    };
    let look = |seconds, uid: Option<&str>| Reads {
        nodes: vec![NodeRead { name: "a".into(), started: at(seconds), uid: uid.map(str::to_owned) }],
        ..Reads::default()
    };
    for machine in [machine("a", "Unknown", 700), joining("a", CREATION_TIMEOUT + 1)] {
        for reads in [Reads::default(), look(-11, None)] {
            let plan = missing(reads, machine.clone());
            assert!(plan.starts_with("do    node a: look for it at the API server\n"), "{plan}");
        }
        let plan = missing(look(-5, None), machine.clone());
        assert!(plan.starts_with("do    machine a: Failed\n"), "{plan}");
        let plan = missing(look(-5, Some("uid-n")), machine);
        assert!(plan.starts_with("why   reading the Node from the API server"), "{plan}");
    }
}

/// A watch may deliver and still lag.
#[test]
fn an_unhealthy_node_is_read_before_its_machine_fails() {
    for machine in [machine("a", "Unknown", 700), joining("a", CREATION_TIMEOUT + 1)] {
        let mut snapshot = snapshot(&[machine]);
        assert!(plan(&snapshot).to_string().starts_with("do    machine a: Failed\n"));
        for of in snapshot.nodes.values_mut() {
            of.reads = Reads::default();
        }
        let plan = plan(&snapshot).to_string();
        assert!(plan.starts_with("do    node a: look for it at the API server\n"), "{plan}");
    }
}

#[test]
fn a_machine_whose_node_is_well_again_does_not_fail() {
    for machine in [machine("a", "Unknown", 700), joining("a", CREATION_TIMEOUT + 1)] {
        let mut snapshot = snapshot(&[machine]);
        for of in snapshot.nodes.values_mut() {
            let Known::Present(node) = &of.node else { panic!("a Node") };
            let mut node = NodeFacts::clone(node);
            node.conditions[0].status = "True".into();
            of.node = Known::Present(Arc::new(node));
        }
        assert!(plan(&snapshot).actions.is_empty(), "{}", plan(&snapshot));
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

/// The sets, the phases of the Machines other than the unhealthy one, and whether the unhealthy
/// Machine is marked Failed.
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
fn t_34_an_unseen_failed_mark_delays_the_next_one() {
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

/// A Pending Machine of the set `s` whose instance exists for that long and can never join.
fn hopeless(name: &str, seconds: i64) -> Value {
    let owner = json!([{"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "s",
                        "uid": "uid-s", "controller": true}]);
    let machine = with(machine(name, "Pending", seconds), "/metadata/ownerReferences", owner);
    with(machine, "/spec/providerID", format!("docker:////{name}"))
}

/// The last observation of each Machine.
fn boots(s: &mut Snapshot, seconds_ago: i64, is_final: bool) {
    let trouble = BootTrouble {
        cause: "the container restarts again and again".to_owned(),
        output: vec!["exec format error".to_owned()],
        see: "docker logs a".to_owned(),
        is_final,
    };
    let boot = |machine: &Arc<MachineFacts>| {
        let (ended, answer) = (at(-seconds_ago), Ok(Boot::Trouble(trouble.clone())));
        (machine.uid.clone(), Answered { started: ended, ended, account: None, answer })
    };
    s.boots = s.machines.iter().map(boot).collect();
}

#[test]
fn an_instance_that_can_never_join_waits_for_a_back_off() {
    let failed = |seconds: i64, row: u32, change: fn(&mut Snapshot)| {
        let mut s = of_sets(&[set("s", 3)], &[hopeless("a", seconds)]);
        boots(&mut s, 1, true);
        s.never_joined = [("uid-s".to_owned(), row)].into();
        change(&mut s);
        let plan = plan(&s);
        let mark = |action: &Action| match action {
            Action::MarkFailed { write, .. } => {
                write.operation.as_ref().map(|operation| operation.description.clone())
            }
            Action::ReadNodes | Action::LookForNode { .. } => None,
        };
        plan.actions.iter().find_map(mark)
    };
    let nothing: fn(&mut Snapshot) = |_| {};
    let text = "Machine a is replaced. The instance can never join: the container restarts again and again. The end \
                of the output: exec format error. See all of it: docker logs a";
    assert_eq!(failed(11, 0, nothing).as_deref(), Some(text));
    assert_eq!(failed(10, 0, nothing), None, "the container stays until then");
    assert!(
        failed(40, 2, nothing).is_none() && failed(41, 2, nothing).is_some(),
        "each wait is twice as long"
    );
    assert!(
        failed(1200, 31, nothing).is_none() && failed(1201, 31, nothing).is_some(),
        "the creation timeout"
    );
    assert_eq!(failed(60, 0, |s| boots(s, 1, false)), None, "an exit code alone waits");
    assert_eq!(failed(600, 0, |s| boots(s, 130, true)), None, "the engine is silent since");
    assert_eq!(failed(60, 0, |s| s.skew = SKEW_LIMIT * 2), None);
}

#[test]
fn few_instances_that_can_never_join_are_replaced_at_a_time() {
    let machines: Vec<Value> = (0..20).map(|number| hopeless(&format!("m{number}"), 60)).collect();
    let mut s = of_sets(&[set("s", 20)], &machines);
    boots(&mut s, 1, true);
    assert_eq!(plan(&s).actions.len(), 2, "a tenth of the replicas");
}

/// The watch lags, so another Node of the instance may be Ready by now.
#[test]
fn each_node_of_the_instance_is_looked_up_first() {
    let s = || snapshot(&[machine("a", "Running", 9000), machine("b", "Unknown", 601)]);
    let other = |read: Option<i64>| {
        let mut s = s();
        let of = s.nodes.get_mut("uid-b").expect("its Node");
        let node = json!({"metadata": {"name": "renamed", "uid": "uid-2"}});
        of.others = vec![Arc::new(NodeFacts::parse(&serde_json::from_value(node).expect("a Node")))];
        let look =
            |second| NodeRead { name: "renamed".into(), started: at(second), uid: Some("uid-2".into()) };
        of.reads.nodes.extend(read.map(look));
        plan(&s).to_string()
    };
    let look = "do    node renamed: look for it at the API server";
    assert!(other(None).starts_with(look), "{}", other(None));
    assert!(other(Some(-11)).starts_with(look), "that look is too old");
    assert!(other(Some(-1)).starts_with("do    machine b: Failed"), "{}", other(Some(-1)));
}

/// The Node of a Machine whose update failed is usually healthy.
#[test]
fn t_30_a_failed_update_in_place_ends_with_the_health_timeout() {
    let failed = |seconds: i64, result: Option<&str>| {
        let mut s = snapshot(&[machine("a", "InPlaceUpdateFailed", seconds)]);
        let of = s.nodes.get_mut("uid-a").expect("its Node");
        let node = healthy_node("a", result);
        of.reads.nodes = vec![NodeRead { name: "a".into(), started: at(-1), uid: Some(node.uid.clone()) }];
        of.node = machinist_core::Known::Present(node);
        s
    };
    assert!(plan(&failed(600, Some("failed"))).actions.is_empty());
    assert_eq!(plan(&failed(602, Some("failed"))).actions.len(), 1);
    assert_eq!(plan(&failed(602, None)).actions.len(), 1);
    assert!(plan(&failed(602, Some("successful"))).actions.is_empty(), "a user has repaired it");
    let mut stays = failed(9000, Some("failed"));
    let kept = with(machine("a", "InPlaceUpdateFailed", 9000), "/spec/disableHealthTimeout", true);
    let kept: machinist_api::Machine = serde_json::from_value(kept).expect("a Machine");
    stays.machines = vec![Arc::new(MachineFacts::parse(&kept))];
    assert!(plan(&stays).actions.is_empty());
}

fn healthy_node(name: &str, result: Option<&str>) -> Arc<NodeFacts> {
    let node = json!({
        "metadata": {
            "name": name, "uid": "uid-n",
            "labels": {"node.machine.sapcloud.io/update-result": result,
                       "node.gardener.cloud/machine-name": name},
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    let mut node: k8s_openapi::api::core::v1::Node =
        serde_json::from_value(without_nulls(node)).expect("a Node");
    node.metadata.creation_timestamp = None;
    Arc::new(NodeFacts::parse(&node))
}

fn without_nulls(mut node: Value) -> Value {
    let labels = node["metadata"]["labels"].as_object_mut().expect("labels");
    labels.retain(|_, value| !value.is_null());
    node
}

/// With another limit, as many Machines may be missing as the limit says.
#[test]
fn t_32_the_limit_of_replacements_is_an_option() {
    let unhealthy = |name| machine(name, "Unknown", 700);
    let marked = |limit: u32, machines: &[Value]| {
        let replacements_at_once = std::num::NonZeroU32::new(limit).expect("not zero");
        let defaults = Arc::new(Defaults { replacements_at_once, ..Defaults::default() });
        let owned: Vec<_> = machines.iter().map(|machine| of_set(machine.clone(), "s")).collect();
        let snapshot = Snapshot { defaults, ..of_sets(&[set("s", 4)], &owned) };
        plan(&snapshot).actions.len()
    };
    let running = machine("r", "Running", 9000);
    let none = [unhealthy("a"), unhealthy("b"), unhealthy("c"), running.clone()];
    let one = [machine("a", "Failed", 10), unhealthy("b"), unhealthy("c"), running.clone()];
    let two = [machine("a", "Failed", 10), machine("b", "Failed", 10), unhealthy("c"), running.clone()];
    assert_eq!([&none, &one, &two].map(|machines| marked(1, machines)), [1, 0, 0]);
    assert_eq!([&none, &one, &two].map(|machines| marked(2, machines)), [1, 1, 0]);
    // One Machine is deleted and not replaced yet, and one has failed.
    let missing = [machine("a", "Failed", 10), unhealthy("b"), running];
    assert_eq!(marked(2, &missing), 0);
}

// === acceptance cases ===

/// Whether the Machine `z` is marked as Failed.
fn fails(snapshot: &Snapshot) -> bool {
    let plan = plan(snapshot);
    plan.actions.iter().any(|action| action.to_string() == "machine z: Failed")
}

/// A snapshot whose Nodes were last seen long ago.
fn stale(machines: &[Value]) -> Snapshot {
    let server = "the API server of the target cluster".to_owned();
    let silence = Silence { server, since: at(-1000), read: FreshRead::Failed(at(20)) };
    Snapshot { nodes_freshness: Freshness::Stale(silence), ..snapshot(machines) }
}

/// A snapshot of one Machine whose Node is missing. `looked` is when a GET has shown that.
fn missing(machine: Value, looked: Option<i64>) -> Snapshot {
    let mut snapshot = snapshot(&[machine]);
    for of in snapshot.nodes.values_mut() {
        let look = |second| NodeRead { name: "z".into(), started: at(second), uid: None };
        (of.node, of.reads.nodes) = (Known::Absent, looked.map(look).into_iter().collect());
    }
    snapshot
}

/// Added conditions: the time counts from the status that recorded the instance, so a recent one
/// keeps the Machine; and the Nodes are fresh, and a GET of at most ten seconds ago shows that the
/// Node has not joined.
#[test]
fn t_20_a_machine_that_is_pending_for_25_minutes_fails() {
    let late = || joining("z", 1500);
    assert!(fails(&snapshot(&[late()])));
    let recent = with(late(), "/status/currentStatus/lastUpdateTime", at(-60).to_string());
    assert!(!fails(&snapshot(&[recent])), "its instance was recorded a minute ago");
    assert!(!fails(&stale(&[late()])), "the Nodes are not fresh");
    assert!(fails(&missing(late(), Some(-10))));
    assert!(!fails(&missing(late(), Some(-11))) && !fails(&missing(late(), None)), "no GET has shown it");
    assert!(!fails(&Snapshot { skew: SKEW_LIMIT * 2, ..snapshot(&[late()]) }), "the clocks differ");
}

/// Added conditions as in T-20; unseen time is left out.
#[test]
fn t_25_an_unknown_machine_fails_after_its_health_timeout() {
    let unknown = |seconds| machine("z", "Unknown", seconds);
    assert_eq!([600, 601].map(|seconds| fails(&snapshot(&[unknown(seconds)]))), [false, true]);
    assert!(fails(&missing(unknown(601), Some(-1))), "without a Node");
    assert!(!fails(&missing(unknown(601), None)), "the API server has not been asked");
    assert!(!fails(&stale(&[unknown(9000)])), "the Nodes are not fresh");
    let mut gaps = Unseen::default();
    gaps.add(at(-500), at(-400));
    let unseen = |seconds| Snapshot { gaps: gaps.clone(), ..snapshot(&[unknown(seconds)]) };
    assert_eq!([700, 701].map(|seconds| fails(&unseen(seconds))), [false, true]);
}

/// The Machines of another deployment have a plan of their own.
#[test]
fn t_31_without_another_replacement_a_machine_fails() {
    let overdue = || machine("z", "Unknown", 700);
    assert!(fails(&snapshot(&[overdue()])));
    assert!(fails(&snapshot(&[machine("a", "Running", 9000), overdue()])));
}

/// Added condition: a Machine whose creation failed counts only in the same set, and only if it has
/// no instance. Another set creates its own Machines. A Machine without a phase, or which joins,
/// counts for one creation timeout.
#[test]
fn t_33_other_replacements_of_the_deployment_delay_it() {
    let overdue = || of_set(machine("z", "Unknown", 700), "w");
    let waits = |other: Value| !fails(&snapshot(&[other, overdue()]));
    for set in ["w", "another"] {
        for phase in ["Failed", "Terminating", "", "Pending"] {
            assert!(waits(of_set(machine("a", phase, 5), set)), "{phase:?} in {set}");
        }
        let plan = plan(&snapshot(&[of_set(machine("a", "Failed", 5), set), overdue()]));
        let text = plan.why.to_string();
        assert!(text.contains("Machine a of the same deployment is being replaced"), "{text}");
    }
    for phase in ["", "Pending"] {
        let late = of_set(machine("a", phase, CREATION_TIMEOUT + 1), "w");
        assert!(!waits(late), "{phase:?} for longer than the creation timeout");
    }
    assert!(waits(of_set(refused("a", "CrashLoopBackOff"), "w")));
    assert!(!waits(of_set(refused("a", "CrashLoopBackOff"), "another")));
    let with_instance = with(refused("a", "CrashLoopBackOff"), "/spec/providerID", "sim:///i-a");
    assert!(!waits(of_set(with_instance, "w")));
}
