//! Acceptance cases about one Machine that no other test shows. The name of a test begins with the
//! id of its case; `docs/src/develop/acceptance-cases.md` lists the cases.

use machinist_core::{FreshRead, Silence, Wait};

use super::force::{evicted_once, given_up, timed_out};
use super::*;
use crate::mcm::reads::TargetSilence;

// === the health of a Node ===

/// Whether a running Machine becomes Unknown if its Node has these conditions.
fn is_unhealthy(conditions: &[(&str, &str)]) -> bool {
    let conditions = conditions.iter().map(|(kind, status)| json!({"type": kind, "status": status}));
    let conditions: Vec<_> = conditions.collect();
    let plan = world().running().node_field("/status/conditions", conditions.into()).plan().to_string();
    plan.contains("status: Unknown, HealthCheck Processing")
}

/// Whether a Node is unhealthy that is Ready and has this condition.
fn spoils(kind: &str, status: &str) -> bool {
    is_unhealthy(&[("Ready", "True"), (kind, status)])
}

#[test]
fn t_01_a_healthy_node_is_ready() {
    assert_eq!(
        ["True", "False", "Unknown"].map(|status| is_unhealthy(&[("Ready", status)])),
        [false, true, true]
    );
    assert!(!is_unhealthy(&[("PIDPressure", "False")]), "a Node without that condition");
    assert!(is_unhealthy(&[]), "nothing is known about the Node");
}

/// These conditions are in the list of `--node-conditions`.
#[test]
fn t_02_disk_pressure_makes_a_node_unhealthy() {
    for kind in ["DiskPressure", "KernelDeadlock", "ReadonlyFilesystem"] {
        assert_eq!(
            ["True", "Unknown", "False"].map(|status| spoils(kind, status)),
            [true, true, false],
            "{kind}"
        );
    }
}

/// `--node-conditions` does not list this condition.
#[test]
fn t_03_memory_pressure_is_no_matter_of_health() {
    for status in ["True", "Unknown", "False"] {
        assert!(!spoils("MemoryPressure", status), "{status}");
    }
    let own = |listed: &str| {
        let mut world = world().running();
        world.machine["spec"]["nodeConditions"] = listed.into();
        let conditions =
            json!([{"type": "Ready", "status": "True"}, {"type": "MemoryPressure", "status": "True"}]);
        world.node_field("/status/conditions", conditions).plan().to_string().contains("status: Unknown")
    };
    assert!(own("DiskPressure,MemoryPressure") && !own("DiskPressure"), "the list of the Machine counts");
}

#[test]
fn t_04_a_node_without_its_network_is_unhealthy() {
    assert_eq!(
        ["True", "Unknown", "False"].map(|status| spoils("NetworkUnavailable", status)),
        [true, true, false]
    );
}

/// The condition is in the list of `--node-conditions`. The test of the condition Ready is
/// `t_23_a_node_that_is_not_ready_makes_it_unknown`.
#[test]
fn t_23_a_listed_condition_makes_a_machine_unknown() {
    let conditions = json!([{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "True"}]);
    world().running().node_field("/status/conditions", conditions).check(expect![[r#"
        do    status: Unknown, HealthCheck Processing "Machine m is unhealthy - changing MachineState to Unknown. DiskPressure is True", 2 conditions
        do    warning NodeUnhealthy: Machine m is unhealthy - changing MachineState to Unknown. DiskPressure is True
        why   Node m is unhealthy: DiskPressure is True; since 2027-01-15T07:59:30Z; next: the Node recovers; deadline 2027-01-15T08:09:31Z: the Machine is marked Failed, unless --replacements-at-once is reached
        wait  for a change
    "#]]);
}

// === creation ===

/// Machinist writes the record and the phase Pending in one pass.
#[test]
fn t_05_a_new_instance_is_recorded_with_label_and_priority() {
    let recorded = |annotations: Value| {
        let mut world = world().token(1300).ensured(Ok(instance()));
        world.machine["metadata"]["annotations"] = annotations;
        let Some(Action::Record { node, provider_id, priority, .. }) =
            world.plan().actions.into_iter().next()
        else {
            panic!("the first action records the instance")
        };
        (node.expect("the label").to_string(), provider_id.to_string(), priority.map(|priority| priority.0))
    };
    let of = |priority| ("m".to_owned(), "sim:///i-1".to_owned(), priority);
    assert_eq!(recorded(json!({})), of(Some(3)));
    assert_eq!(recorded(json!({"machinepriority.machine.sapcloud.io": "1"})), of(None));
}

/// In T-12, the creation failed before the instance was recorded.
#[test]
fn t_06_t_12_a_machine_with_an_instance_is_pending() {
    let failed = world().recorded().phase("CrashLoopBackOff", "Create", "Failed", "no stock");
    for world in [world().recorded(), failed] {
        let plan = world.plan();
        expect![[r#"
            do    status: Pending, Create Processing "Creating machine on cloud provider"
            why   updating the status: the instance exists; next: the Node joins
            wait  for a change
        "#]]
        .assert_eq(&plan.to_string());
        let [Action::SetStatus(write)] = plan.actions.as_slice() else { panic!("{plan}") };
        assert!(write.phase.as_ref().is_some_and(|phase| phase.timeout_active), "{write}");
    }
}

/// Machinist tries again after 30 s, and then after twice as long each time. Go waits for 3 minutes
/// each time.
#[test]
fn t_08_an_internal_error_of_the_cloud_is_reported() {
    let failed = || world().token(1300).ensured(Err(error(ErrorKind::Bug, "oops")));
    failed().check(expect![[r#"
        do    status: CrashLoopBackOff, Create Failed [Internal] "Cloud provider message - machine codes error: code = [Internal] message = [oops]"
        do    warning FailedCreate: Cloud provider message - machine codes error: code = [Internal] message = [oops]
        why   the cloud failed once to create the instance (driver bug): oops; since 2027-01-15T07:59:59Z; next: try again to create the instance at 2027-01-15T08:00:29Z; deadline 2027-01-15T08:19:56Z: the Machine is marked Failed
        wait  until 2027-01-15T08:00:29Z
    "#]]);
    assert_eq!(failed().with(|s| s.answers.failures = 2).plan().wait, Wait::Until(at(59)));
}

/// The flag is `--resource-exhausted-retry`.
#[test]
fn t_09_the_flag_sets_the_time_between_two_attempts() {
    let failed = |seconds| {
        let defaults = Defaults { exhausted_retry: Duration::from_secs(seconds), ..Defaults::default() };
        let failed = world().token(1300).ensured(Err(error(ErrorKind::Exhausted, "no stock")));
        failed.with(|s| s.defaults = Arc::new(defaults)).plan().wait
    };
    // The call ended one second ago.
    assert_eq!([failed(600), failed(540)], [599, 539].map(|seconds| Wait::Until(at(seconds))));
}

#[test]
fn t_21_a_machine_that_joins_is_looked_at_each_minute() {
    let mut world = world().created(-900).pending();
    world.machine["status"]["currentStatus"]["lastUpdateTime"] = at(-900).to_string().into();
    let plan = world.plan();
    assert_eq!((plan.actions.len(), plan.wait), (0, Wait::Until(at(60))), "{plan}");
}

/// T-28: critical components matter only until the Node has joined.
#[test]
fn t_22_t_28_a_machine_with_a_healthy_node_runs_again() {
    let unknown = || world().running().phase("Unknown", "HealthCheck", "Processing", "it is unhealthy");
    let expected = expect![[r#"
        do    status: Running, HealthCheck Successful "Machine m successfully re-joined the cluster", 1 conditions
        do    event MachineJoined: Machine m successfully re-joined the cluster
        why   up to date; since 2027-01-15T07:59:30Z
        wait  for a change
    "#]];
    expected.assert_eq(&unknown().plan().to_string());
    let taint = json!([{"key": "node.gardener.cloud/critical-components-not-ready", "effect": "NoSchedule"}]);
    expected.assert_eq(&unknown().node_field("/spec/taints", taint).plan().to_string());
}

// === deletion ===

#[test]
fn t_35_a_machine_without_our_finalizer_is_left_alone() {
    let mut world = world().running().deleting(1);
    world.machine["metadata"]["finalizers"] = json!(["example.com/other"]);
    world.check(expect![[r#"
        why   waiting for other clients to remove their finalizers; since 2027-01-15T07:59:59Z; next: each client removes its finalizer
        wait  for a change
    "#]]);
}

/// The first status has already the marker of the drain if the Machine has the label `node`,
/// because the first stage only looks for that Node.
#[test]
fn t_36_a_deletion_begins_with_the_first_marker() {
    let first = |world: World| statuses(&world.deleting(1).plan());
    let begun = |marker: &str| [format!("status: Terminating, Delete Processing \"{marker}\"")];
    assert_eq!(first(world().running()), begun("Initiate node drain"));
    let mut unlabelled = world().running();
    unlabelled.machine["metadata"]["labels"] = json!({});
    assert_eq!(first(unlabelled), begun("Set machine status to termination. Now, getting VM Status"));
}

/// In T-48, the description has no marker. The drain begins at once, so the second marker is not
/// written on the way: a marker may lag behind, and never run ahead.
#[test]
fn t_37_t_48_without_the_marker_of_a_drain_the_drain_begins() {
    for text in ["Set machine status to termination. Now, getting VM Status", "anything else"] {
        let draining = || world().draining().phase("Terminating", "Delete", "Processing", text);
        let actions = |world: World| world.plan().actions.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(actions(draining().pod("p")), ["pod ns/p: evict"], "{text}");
        assert_eq!(actions(draining()), ["node m: list its pods at the API server"], "{text}");
        let mut unlabelled = draining().pod("p");
        unlabelled.machine["metadata"]["labels"] = json!({});
        assert_eq!(actions(unlabelled), ["machine: label node m"], "the cloud's id finds the Node: {text}");
    }
}

/// Added condition: the API server has shown that no Node has the name of the Machine.
#[test]
fn t_39_without_a_node_the_drain_is_skipped() {
    let unnamed = || {
        let mut world = world().draining();
        world.node = None;
        world.machine["metadata"]["labels"] = json!({});
        world
    };
    let actions = |world: World| world.plan().actions.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(actions(unnamed()), ["node m: look for it at the API server"]);
    let looked = "driver: delete sim:///i-1 because no node m existed at 2027-01-15T07:59:59Z";
    assert_eq!(actions(unnamed().looked(-1, None)), [looked]);
    assert_eq!(actions(unnamed().looked(-1, Some("uid-n"))), [""; 0], "the watch will show that Node");
    assert_eq!(actions(unnamed().looked(-11, None)), ["node m: look for it at the API server"], "too old");
}

/// A drain of a Node with these conditions: type, status, and seconds ago.
fn draining_with(conditions: &[(&str, &str, i64)]) -> World {
    let condition = |(kind, status, ago): &(&str, &str, i64)| json!({"type": kind, "status": status, "lastTransitionTime": at(-ago).to_string()});
    let conditions: Vec<_> = conditions.iter().chain([&("Terminating", "True", 5)]).map(condition).collect();
    world().draining().node_field("/status/conditions", conditions.into()).pod("p")
}

/// The first step of a drain, of a Node that the API server has just shown.
fn first_step(world: World) -> String {
    world.plan().actions.first().map(ToString::to_string).unwrap_or_default()
}

const FORCED: &str = "pod ns/p: delete without grace";
const POLITE: &str = "pod ns/p: evict";

/// Conditions of a Node that counts as dead.
const DEAD: [&[(&str, &str, i64)]; 5] = [
    &[("Ready", "False", 301)],
    &[("Ready", "Unknown", 301)],
    &[("Ready", "True", 9000), ("ReadonlyFilesystem", "True", 301)],
    &[("Ready", "False", 301), ("ReadonlyFilesystem", "True", 301)],
    &[("Ready", "False", 10), ("ReadonlyFilesystem", "True", 301)],
];

/// Added conditions: the Nodes are fresh, a GET has just shown the Node, and the clocks agree. The
/// last stage follows after an answer about each pod, and a list.
#[test]
fn t_40_a_node_that_is_dead_for_five_minutes_is_forced() {
    let stale = || {
        let (server, read) = ("the API server".to_owned(), FreshRead::Possible);
        Freshness::Stale(Silence { server, since: at(-300), read })
    };
    for conditions in DEAD {
        let dead = || draining_with(conditions).looked(-1, Some("uid-n"));
        assert_eq!(first_step(dead()), FORCED, "{conditions:?}");
        let unread = draining_with(conditions);
        assert_eq!(first_step(unread), "node m: look for it at the API server", "{conditions:?}");
        let unseen = dead().with(|s| s.nodes_freshness = stale());
        assert_eq!(first_step(unseen), "nodes: list them at the API server", "{conditions:?}");
        let skewed = dead().with(|s| s.process.skew = Duration::from_secs(31));
        assert_eq!(first_step(skewed), POLITE, "{conditions:?}");
        let answered = |outcome| {
            let attempt = tried(1, -1, -1, outcome);
            let evictions = Arc::new(BTreeMap::from([("uid-p".to_owned(), attempt)]));
            dead().listed().with(|s| s.evictions = evictions).plan().to_string()
        };
        let marker = "Delete Processing \"Delete Volume Attachments\"";
        assert!(answered(EvictionAnswer::Deleted).contains(marker), "{conditions:?}");
        assert!(!answered(EvictionAnswer::Unanswered("reset".into())).contains(marker), "{conditions:?}");
    }
}

/// The opposite of T-40: the Node is not dead.
#[test]
fn t_41_a_node_that_may_recover_is_drained_politely() {
    for conditions in [
        &[("Ready", "Unknown", 299)][..],
        &[("Ready", "False", 299)],
        &[("Ready", "True", 9000), ("ReadonlyFilesystem", "True", 299)],
        &[("Ready", "True", 9000), ("ReadonlyFilesystem", "False", 9000)],
        &[("Ready", "True", 9000), ("DiskPressure", "True", 9000)],
        &[("Ready", "True", 9000), ("MemoryPressure", "True", 9000)],
        &[("Ready", "True", 9000), ("PIDPressure", "True", 9000)],
        &[("Ready", "True", 9000), ("NetworkUnavailable", "True", 9000)],
        &[("Ready", "True", 9000), ("KernelDeadlock", "True", 9000)],
    ] {
        assert_eq!(first_step(draining_with(conditions).looked(-1, Some("uid-n"))), POLITE, "{conditions:?}");
    }
}

/// Added condition: the API server has answered about each pod, or has not answered for 20 s.
#[test]
fn t_42_the_label_goes_on_although_the_node_write_fails() {
    let rejected = |seconds: i64| {
        let open = given_up().deleting(seconds).node_field("/spec/unschedulable", Value::Null);
        open.with(|s| s.reads.rejected_write = Some(at(-1)))
    };
    // The cordon is tried for a minute, and the pods do not wait for it after that.
    assert_eq!(first_step(rejected(59)), "node m: cordon");
    assert_eq!(first_step(rejected(65)), FORCED);
    let ends = |world: World| world.plan().to_string().contains("Processing \"Delete Volume Attachments\"");
    let after = |outcome| {
        let undecided = Eviction { undecided_since: Some(at(-5)), ..tried(1, -5, -1, outcome) };
        ends(rejected(65).with(|s| s.evictions = Arc::new(BTreeMap::from([("uid-p".to_owned(), undecided)]))))
    };
    assert!(after(EvictionAnswer::Deleted) && after(EvictionAnswer::Refused("no".into())));
    assert!(!after(EvictionAnswer::Failed("no".into())), "not for 20 s");
    assert!(!ends(rejected(65)), "the pod was not deleted yet");
}

/// Added condition: an API server that does not answer is named, and is not a drain that fails.
#[test]
fn t_43_a_blocked_drain_is_reported_and_goes_on() {
    let refused = EvictionAnswer::Refused("denied".into());
    let blocked = || evicted_once(world().draining().pod("p"), -20, refused.clone());
    blocked().check(expect![[r#"
        do    status: Delete Failed "Drain is blocked: waiting for 1 pod to leave the Node; the API server rejects the eviction of pod ns/p: denied. Initiate node drain"
        do    warning DrainBlocked: Drain is blocked: waiting for 1 pod to leave the Node; the API server rejects the eviction of pod ns/p: denied. Initiate node drain
        do    pod ns/p: evict
        why   waiting for 1 pod to leave the Node; the API server rejects the eviction of pod ns/p: denied; since 2027-01-15T07:59:50Z; next: the pods leave the Node; deadline 2027-01-15T09:59:51Z: the pods are deleted without grace
        wait  until 2027-01-15T09:59:51Z
    "#]]);
    assert_eq!(blocked().with(|s| s.now = at(-1)).plan().wait, Wait::Until(at(0)), "20 s after the answer");
    let lost = || {
        let lost = EvictionAnswer::Unanswered("reset".into());
        evicted_once(world().draining().pod("p"), -20, lost).with(|s| {
            let error = "reset".to_owned();
            s.reads.silence = Some(TargetSilence { since: at(-20), last: at(0), error, is_blind: false });
        })
    };
    let plan = lost().plan();
    assert_eq!(plan.why.reason.code(), "NodesUnanswered", "{plan}");
    assert!(!plan.to_string().contains("Drain is blocked"), "{plan}");
}

/// Added conditions: each pod was tried politely with an answer, the Nodes and the pods are fresh,
/// and after the force began each deletion has an answer and a list showed no other pod.
#[test]
fn t_44_a_drain_that_timed_out_ends_by_force() {
    let ends = |world: World| world.plan().to_string().contains("Processing \"Delete Volume Attachments\"");
    let held = || EvictionAnswer::Held("budget".into());
    let polite = |seconds: i64| evicted_once(timed_out(seconds), -20, held());
    let early = polite(-2).plan().to_string();
    assert!(early.contains(POLITE) && !early.contains(FORCED), "before the timeout: {early}");
    assert_eq!(first_step(polite(2)), FORCED);
    assert_eq!(first_step(timed_out(2)), POLITE, "its age alone forces nothing");
    let lost = EvictionAnswer::Unanswered("reset".into());
    assert_eq!(first_step(evicted_once(timed_out(2), -20, lost.clone())), POLITE, "no answer");
    let deleted = |outcome| {
        let attempt = tried(2, -500, -1, outcome);
        let evictions = Arc::new(BTreeMap::from([("uid-p".to_owned(), attempt)]));
        timed_out(600).with(|s| s.evictions = evictions)
    };
    assert!(ends(deleted(EvictionAnswer::Deleted).listed()));
    assert!(!ends(deleted(EvictionAnswer::Deleted)), "without a list");
    assert!(!ends(deleted(lost).listed()), "without an answer");
    let (server, read) = ("the API server".to_owned(), FreshRead::InFlight(at(9)));
    let stale = Freshness::Stale(Silence { server, since: at(-300), read });
    assert!(!ends(deleted(EvictionAnswer::Deleted).listed().with(|s| s.nodes_freshness = stale)));
}

/// The call is not believed: a look-up shows that the instance is gone. The fifth marker is not
/// written, because the next stages follow in the same pass.
#[test]
fn t_45_an_instance_that_was_deleted_is_looked_up() {
    let accepted = || drained().with(|s| s.answers.delete = deleted(answered(at(-2), at(-1), Ok(()))));
    let actions = |world: World| world.plan().actions.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(actions(accepted()), ["driver: find sim:///i-1"]);
    let shown = |sighting: Sighting| accepted().with(|s| s.answers.find = seen(sighting, true));
    assert_eq!(actions(shown(Sighting::Present(instance()))), [""; 0], "it still exists");
    let removed = ["node m: remove finalizer", "node m: delete", "machine: remove finalizer"];
    assert_eq!(actions(shown(Sighting::Absent)), removed);
}

#[test]
fn t_50_a_deletion_waits_for_the_creation_in_flight() {
    let leaving = || {
        let world =
            world().deleting(1).phase("Terminating", "Delete", "Processing", "Getting VM from provider");
        world.with(|s| s.answers.ever_ensured = true)
    };
    let in_flight = leaving().with(|s| s.answers.in_flight = Some((Call::ENSURE, at(-1))));
    in_flight.check(expect![[r#"
        why   waiting for the cloud to create the instance; since 2027-01-15T07:59:59Z; next: the cloud answers
        wait  until 2027-01-15T08:00:04Z
    "#]]);
    let made = leaving().ensured(Ok(instance())).plan().to_string();
    assert!(made.starts_with("do    machine: record node m and sim:///i-1\n"), "{made}");
    assert!(!made.contains("remove finalizer"), "{made}");
    let failed = leaving().ensured(Err(error(ErrorKind::Unavailable, "reset"))).plan().to_string();
    assert!(!failed.contains("remove finalizer"), "it may have created the instance: {failed}");
}

// === drain ===

/// A drain of a Node with ten pods.
fn ten_pods() -> World {
    (0..10).fold(world().draining(), |world, number| world.pod(&format!("p{number}")))
}

/// The drain ends when the last pod has left.
#[test]
fn t_61_pods_without_volumes_are_evicted_at_once() {
    let evicted = |world: World| {
        let plan = world.plan();
        plan.actions.iter().filter(|action| matches!(action, Action::Drain(drain::PodCall::Evict(_)))).count()
    };
    assert_eq!(evicted(ten_pods()), 10);
    let mut last = ten_pods();
    last.pods.clear();
    let plan = last.listed().plan().to_string();
    assert!(plan.starts_with("do    driver: delete sim:///i-1"), "{plan}");
}

/// Every server that Machinist supports has evictions. A server whose answer has no effect, or
/// which rejects each eviction, loses its pods without grace at the timeout.
#[test]
fn t_62_pods_that_cannot_be_evicted_are_deleted() {
    for answer in [EvictionAnswer::Accepted, EvictionAnswer::Refused("not supported".into())] {
        assert_eq!(first_step(evicted_once(timed_out(2), -7000, answer.clone())), FORCED, "{answer:?}");
        assert_ne!(first_step(evicted_once(timed_out(-60), -20, answer.clone())), FORCED, "{answer:?}");
    }
}

#[test]
fn t_65_a_forced_drain_deletes_all_pods_at_once() {
    let held = EvictionAnswer::Held("429: budget".into());
    let forced = || evicted_once(given_up().pod("q").pod("r"), -1, held.clone());
    let calls: Vec<_> = forced().plan().actions.iter().map(ToString::to_string).collect();
    assert_eq!(calls, ["p", "q", "r"].map(|pod| format!("pod ns/{pod}: delete without grace")));
    let answered = ["p", "q", "r"].map(|pod| {
        let deleted = Eviction { pod: format!("ns/{pod}"), ..tried(1, -1, -1, EvictionAnswer::Deleted) };
        (format!("uid-{pod}"), deleted)
    });
    let ended = forced().with(|s| s.evictions = Arc::new(answered.into())).plan().to_string();
    assert!(ended.contains("\"Delete Volume Attachments\""), "the pods are not waited for: {ended}");
}

#[test]
fn t_66_a_drain_ends_when_its_pods_have_left() {
    let mut leaving = world().draining().pod("p");
    leaving.pods[0]["spec"]["terminationGracePeriodSeconds"] = 120.into();
    leaving.pods[0]["metadata"]["deletionTimestamp"] = at(115).to_string().into();
    assert_eq!(leaving.clone().plan().why.reason.code(), "Draining");
    leaving.pods.clear();
    assert_eq!(first_step(leaving), "node m: list its pods at the API server");
}

/// Whether a budget with these numbers never allows an eviction. `disrupted` is whether a pod is
/// being evicted.
fn never_allows(expected: i32, healthy: i32, allowed: i32, disrupted: bool) -> bool {
    let disrupted = if disrupted { json!({"p": at(-1).to_string()}) } else { json!({}) };
    let budget = json!({
        "metadata": {"name": "pdb", "namespace": "ns", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "p"}}},
        "status": {"observedGeneration": 1, "expectedPods": expected, "currentHealthy": healthy,
                   "desiredHealthy": 2, "disruptionsAllowed": allowed, "disruptedPods": disrupted},
    });
    BudgetFacts::parse(&parse(&budget)).never_allows
}

#[test]
fn t_67_a_budget_that_is_used_up_is_not_misconfigured() {
    assert!(!never_allows(3, 3, 1, false), "one disruption is allowed");
    assert!(!never_allows(3, 3, 0, true), "a pod is being evicted");
    assert!(!never_allows(3, 2, 0, false), "a pod is unhealthy");
}

/// A misconfigured budget fails nothing: it is named, and other pods go on.
#[test]
fn t_68_a_budget_that_allows_nothing_is_misconfigured() {
    assert!(never_allows(3, 3, 0, false));
    assert!(!never_allows(3, 2, 0, false), "one pod is missing");
}
