//! Tests of drains that end by force: which answers they need, and what users read about them.

use super::*;
use crate::mcm::reads::TargetSilence;
use machinist_core::{FreshRead, Silence};

impl World {
    /// The last attempt to remove pod `p`, by eviction.
    fn evicted(self, count: u32, first: i64, last: i64, outcome: EvictionAnswer) -> Self {
        self.attempt(Eviction { is_deletion: false, ..tried(count, first, last, outcome) })
    }

    /// The last attempt to remove pod `p`.
    fn attempt(self, eviction: Eviction) -> Self {
        self.with(|s| s.evictions = Arc::new(BTreeMap::from([("uid-p".to_owned(), eviction)])))
    }

    /// The API server of the target cluster has not answered for this many seconds.
    fn silent_for(self, seconds: i64) -> Self {
        let error = "refused".to_owned();
        self.with(|s| {
            s.reads.silence = Some(TargetSilence { since: at(-seconds), last: at(0), error, is_blind: false })
        })
    }
}

/// A Machine whose drain timed out this many seconds ago. Pod `p` is left.
pub(super) fn timed_out(seconds: i64) -> World {
    world().draining().deleting(7200 + seconds).pod("p").with(|s| s.process.started = at(-9000))
}

/// The pod `p` was evicted once, this many seconds ago.
pub(super) fn evicted_once(world: World, seconds: i64, answer: EvictionAnswer) -> World {
    world.evicted(u32::from(answer.is_about_the_pod()), seconds, seconds, answer)
}

/// Whether the plan ends the drain by force.
fn ends(world: World) -> bool {
    world.plan().to_string().contains("Delete Volume Attachments")
}

// === answers ===

#[test]
fn a_drain_ends_by_force_only_with_an_answer_about_each_pod() {
    use EvictionAnswer as O;
    let ends_after = |outcome: O| ends(timed_out(600).listed().attempt(tried(9, -500, -1, outcome)));
    assert!(ends_after(O::Deleted));
    assert!(ends_after(O::Refused("denied".into())));
    assert!(!ends_after(O::Unanswered("connection refused".into())));
    assert!(!ends_after(O::Failed("etcdserver: request timed out".into())));
    assert!(!ends_after(O::Throttled { retry_after: Duration::from_secs(1) }));
    assert!(!ends_after(O::Held("budget".into())), "an eviction is not a deletion");
    assert!(!ends_after(O::Accepted), "an eviction is not a deletion");
    assert!(!ends(timed_out(600).listed()), "an empty memory shows nothing");
    let one_of_two = timed_out(600).pod("q").listed().attempt(tried(9, -500, -1, O::Deleted));
    assert!(!ends(one_of_two), "the second pod has no answer");
    let evicted = timed_out(600).listed().evicted(9, -500, -1, O::Refused("denied".into()));
    assert!(!ends(evicted), "a rejected eviction is not an answer about a deletion");
}

#[test]
fn a_deletion_before_the_force_is_no_answer() {
    let deleted = |asked| timed_out(600).listed().attempt(tried(9, -900, asked, EvictionAnswer::Deleted));
    assert!(!ends(deleted(-601)));
    assert!(ends(deleted(-600)), "the request began with the force");
}

#[test]
fn a_rejected_deletion_is_retried_before_it_counts() {
    let refused = |seconds| {
        timed_out(seconds).listed().attempt(tried(9, -900, -6, EvictionAnswer::Refused("denied".into())))
    };
    refused(60).check(expect![[r#"
        do    status: Delete Failed "Drain is blocked: waiting for 1 pod to leave the Node; the API server rejects the deletion of pod ns/p: denied. Initiate node drain"
        do    warning DrainBlocked: Drain is blocked: waiting for 1 pod to leave the Node; the API server rejects the deletion of pod ns/p: denied. Initiate node drain
        do    pod ns/p: delete without grace
        why   waiting for 1 pod to leave the Node; the API server rejects the deletion of pod ns/p: denied; since 2027-01-15T05:59:00Z; next: the pods leave the Node; deadline 2027-01-15T08:00:01Z: the instance is deleted
        wait  until 2027-01-15T08:00:05Z
    "#]]);
    // A minute for the calls, half a minute, and the grace period of the pod.
    assert!(!ends(refused(120)));
    assert!(ends(refused(121)));
}

#[test]
fn a_forced_drain_needs_a_list_that_began_after_the_force() {
    let deleted = || timed_out(600).attempt(tried(9, -900, -30, EvictionAnswer::Deleted));
    deleted().check(expect![[r#"
        do    node m: list its pods at the API server
        why   confirming with the API server that no pod is left on Node m; since 2027-01-15T05:50:00Z; next: the instance is deleted
        wait  for a change
    "#]]);
    assert!(ends(deleted().listed()));
    let emptied = |started| {
        let list = PodList { node_uid: "uid-n".into(), started: at(started), leaving: 0, running: 0 };
        world().draining().deleting(7261).with(|s| s.reads.pods = Some(list))
    };
    assert!(ends(emptied(-1)));
    assert!(!ends(emptied(-11)), "the list is old");
    let early = PodList { node_uid: "uid-n".into(), started: at(-5), leaving: 0, running: 0 };
    let just_forced = world().draining().deleting(7202).with(|s| s.reads.pods = Some(early));
    assert!(!ends(just_forced), "the list began before the force");
}

#[test]
fn a_silent_api_server_holds_the_machine_and_is_named() {
    let lost = |seconds: i64| {
        let last = EvictionAnswer::Unanswered("refused".into());
        timed_out(9000).attempt(tried(0, -6, -6, last)).silent_for(seconds)
    };
    lost(20).check(expect![[r#"
        do    pod ns/p: evict
        why   the API server of the target cluster has not answered since 2027-01-15T07:59:40Z (refused); waiting for 1 pod to leave the Node; since 2027-01-15T03:30:00Z; next: restore the API server of the target cluster, or set label force-deletion=true to give up the pods
        wait  until 2027-01-15T08:01:00Z
    "#]]);
    lost(40).check(expect![[r#"
        do    status: Delete Failed "Deletion waits: the API server of the target cluster has not answered since 2027-01-15T07:59:20Z (refused); waiting for 1 pod to leave the Node. Initiate node drain"
        do    warning DrainBlocked: Deletion waits: the API server of the target cluster has not answered since 2027-01-15T07:59:20Z (refused); waiting for 1 pod to leave the Node. Initiate node drain
        do    pod ns/p: evict
        why   the API server of the target cluster has not answered since 2027-01-15T07:59:20Z (refused); waiting for 1 pod to leave the Node; since 2027-01-15T03:30:00Z; next: restore the API server of the target cluster, or set label force-deletion=true to give up the pods
        wait  until 2027-01-15T08:01:00Z
    "#]]);
    let begun = "The Machine had failed. Initiate node drain";
    let failed = lost(40).phase("Terminating", "Delete", "Processing", begun).plan().to_string();
    let kept = "\"The Machine had failed. Deletion waits: ";
    assert!(failed.contains(kept), "the condition of the Node still needs it: {failed}");
    let unlisted = world().draining().deleting(9000).silent_for(20);
    unlisted.check(expect![[r#"
        do    node m: list its pods at the API server
        why   the API server of the target cluster has not answered since 2027-01-15T07:59:40Z (refused); confirming with the API server that no pod is left on Node m; since 2027-01-15T05:30:00Z; next: restore the API server of the target cluster, or set label force-deletion=true to give up the pods
        wait  for a change
    "#]]);
    let mut no_node = world().draining().deleting(9000).silent_for(20);
    no_node.node = None;
    no_node.check(expect![[r#"
        do    node m: look for it at the API server
        why   the API server of the target cluster has not answered since 2027-01-15T07:59:40Z (refused); checking with the API server whether Node m exists; since 2027-01-15T05:30:00Z; next: restore the API server of the target cluster, or set label force-deletion=true to give up the pods
        wait  for a change
    "#]]);
}

#[test]
fn a_silent_api_server_is_called_once_at_a_time() {
    let last = |seconds| tried(0, -60, seconds, EvictionAnswer::Unanswered("refused".into()));
    let calls = |seconds, forced: bool| {
        let world = if forced { timed_out(600) } else { timed_out(-60) };
        let world = world.pod("q").pod("r").attempt(last(seconds)).silent_for(20);
        let plan = world.plan();
        (plan.actions.iter().filter(|action| matches!(action, Action::Drain(_))).count(), plan.wait)
    };
    for forced in [false, true] {
        assert_eq!(calls(-4, forced), (0, machinist_core::Wait::Until(at(1))));
        assert_eq!(calls(-5, forced).0, 1);
    }
}

#[test]
fn lost_and_throttled_attempts_do_not_count() {
    let pod = drain::PodRef { namespace: "ns".into(), name: "p".into(), uid: "uid-p".into() };
    let call = drain::PodCall::Evict(pod);
    let after =
        |before: Option<&Eviction>, outcome, now| Eviction::after(before, &call, outcome, at(now), at(now));
    let lost = after(None, EvictionAnswer::Unanswered("refused".into()), -60);
    assert_eq!(lost.attempts, Attempts { count: 0, last: at(-60) });
    let throttled = EvictionAnswer::Throttled { retry_after: Duration::from_secs(1) };
    let held = after(Some(&after(Some(&lost), throttled, -50)), EvictionAnswer::Held("no".into()), -40);
    assert_eq!((held.attempts.count, held.first), (1, at(-40)), "the patience begins with an answer");
    let failing = EvictionAnswer::Failed("Internal error: failed calling webhook \"w\"".into());
    let failed = after(Some(&held), failing, -20);
    assert_eq!((failed.attempts.count, failed.first), (2, at(-40)));
    let named = EvictionAnswer::Failed("etcdserver: key webhooks/w not found".into());
    assert_eq!(after(Some(&failed), named, -15).attempts.count, 2, "no webhook has decided");
    let storage = after(Some(&failed), EvictionAnswer::Failed("etcdserver: request timed out".into()), -10);
    assert_eq!(storage.attempts.count, 2, "a server without its storage decides nothing");
}

// === politeness ===

/// The step of a drain for pod `p`.
fn removal(world: World) -> &'static str {
    match world.plan().actions.into_iter().find(|action| matches!(action, Action::Drain(_))) {
        Some(Action::Drain(drain::PodCall::Evict(_))) => "evict",
        Some(Action::Drain(drain::PodCall::Delete(_))) => "delete",
        _ => "nothing",
    }
}

/// The controller, its API server or a user's decision may have been away for the whole timeout.
#[test]
fn a_timed_out_drain_is_polite_first() {
    use EvictionAnswer as O;
    assert_eq!(removal(timed_out(600)), "evict", "nothing is known about the pod");
    let after = |count, outcome| removal(timed_out(600).evicted(count, -700, -20, outcome));
    for answer in [O::Held("no".into()), O::Refused("no".into()), O::Failed("no".into()), O::Accepted] {
        assert_eq!(after(1, answer), "delete");
    }
    assert_eq!(after(0, O::Unanswered("refused".into())), "evict", "no answer is not an answer");
    let held = tried(1, -700, -20, O::Held("no".into()));
    assert_eq!(removal(timed_out(600).pod("q").attempt(held)), "evict", "each pod is tried");
    let mut terminating = timed_out(600);
    terminating.pods[0]["metadata"]["deletionTimestamp"] = at(-5).to_string().into();
    assert_eq!(removal(terminating), "delete");
}

/// A pod that the store lacks was never evicted.
#[test]
fn a_drain_times_out_only_with_a_fresh_view_of_the_pods() {
    let silent =
        |read| Freshness::Stale(Silence { server: "the API server".to_owned(), since: at(-300), read });
    let held = || timed_out(600).evicted(9, -700, -20, EvictionAnswer::Held("no".into()));
    let unseen = || held().with(|s| s.pods_freshness = silent(FreshRead::Possible));
    let plan = unseen().plan();
    assert!(plan.actions.iter().any(|action| matches!(action, Action::ListPods(_))), "{plan}");
    assert_eq!(removal(unseen()), "evict");
    assert_eq!(removal(unseen().listed()), "delete");
    assert_eq!(removal(unseen().pod("new").listed()), "evict", "a pod that the list shows is tried first");
}

#[test]
fn a_hold_is_left_out_of_the_drain_timeout() {
    let held = || timed_out(600).evicted(9, -700, -20, EvictionAnswer::Held("no".into()));
    assert_eq!(removal(held()), "delete");
    // The status shows the hold until the drain goes on.
    let text = "Deletion is blocked: MachineClass c not found. Initiate node drain";
    let mut holding = held().phase("Terminating", "Delete", "Failed", text);
    holding.machine["status"]["lastOperation"]["lastUpdateTime"] = at(-1800).to_string().into();
    let plan = holding.plan().to_string();
    let record =
        "machine: record that the deletion waited, 2027-01-15T07:30:00.000Z/2027-01-15T08:00:00.000Z";
    assert!(plan.contains(record) && plan.contains("pod ns/p: evict"), "{plan}");
    let after = |minutes: i64| {
        let mut world = held();
        let mut periods = Unseen::default();
        periods.add(at(-3600), at(-3600 + 60 * minutes));
        world.machine["metadata"]["annotations"]["machinist.dev/deletion-held"] = periods.to_string().into();
        removal(world)
    };
    assert_eq!(after(9), "delete");
    assert_eq!(after(10), "evict");
}

#[test]
fn the_status_of_a_blocked_drain_proves_politeness() {
    let world = |text: &str| {
        let text = format!("{text}: waiting for 1 pod to leave the Node. Initiate node drain");
        timed_out(600).phase("Terminating", "Delete", "Failed", &text)
    };
    let said = |text: &str| removal(world(text).with(|s| s.process.started = at(-1)));
    assert_eq!(said("Drain is blocked"), "delete");
    assert_eq!(said("Deletion waits"), "evict", "the API server did not answer");
    assert_eq!(said("Deletion is blocked"), "evict", "a user had to act first");
    assert_eq!(removal(world("Drain is blocked")), "evict", "this process knows what it has tried");
}

/// The drain began again after its timeout, because the Node had recovered.
#[test]
fn an_accepted_eviction_after_the_timeout_has_its_grace() {
    let accepted = |seconds: i64| {
        let mut world = timed_out(600).evicted(1, seconds, seconds, EvictionAnswer::Accepted);
        world.pods[0]["metadata"]["deletionTimestamp"] = at(seconds + 30).to_string().into();
        world.pods[0]["spec"]["terminationGracePeriodSeconds"] = 30.into();
        removal(world)
    };
    assert_eq!(accepted(-1), "nothing");
    assert_eq!(accepted(-29), "nothing");
    assert_eq!(accepted(-30), "delete");
    let in_time = timed_out(600).evicted(9, -700, -1, EvictionAnswer::Accepted);
    assert_eq!(removal(in_time), "delete", "its drain timed out");
}

/// The pod tolerates the cordon, so each eviction leads to the next pod on the same Node.
#[test]
fn a_pod_that_came_after_the_cordon_stops_no_timeout() {
    let came = |seconds: i64, cordoned: bool| {
        let mut world = timed_out(600).evicted(1, -1, -1, EvictionAnswer::Accepted);
        world.pods[0]["metadata"]["creationTimestamp"] = at(seconds).to_string().into();
        if !cordoned {
            world = world.node_field("/spec/unschedulable", Value::Null);
        }
        removal(world)
    };
    assert_eq!(came(-7, true), "delete", "the Node was cordoned eight seconds ago");
    assert_eq!(came(-9, true), "nothing", "it has its grace period");
    assert_eq!(came(-299, false), "delete", "the cordon is rejected");
    assert_eq!(came(-301, false), "nothing");
}

/// A pass ends with the first rejected call, so a rejected cordon must not come before the pods.
#[test]
fn a_rejected_cordon_does_not_stop_a_polite_drain_for_ever() {
    let first = |world: World, rejected: i64| {
        let open = world.node_field("/spec/unschedulable", Value::Null);
        let open = open.with(|s| s.reads.rejected_write = Some(at(rejected)));
        matches!(open.plan().actions.first(), Some(Action::Drain(drain::PodCall::Evict(_))))
    };
    assert!(!first(timed_out(-60), -10), "the cordon comes first");
    assert!(!first(timed_out(60), -601), "that rejection is too old");
    assert!(first(timed_out(60), -10));
}

/// A deletion of an earlier force shows nothing about the Node of today.
#[test]
fn each_force_needs_a_look_at_the_dead_node() {
    let dead = json!([
        {"type": "Ready", "status": "Unknown", "lastTransitionTime": at(-400).to_string()},
        {"type": "Terminating", "status": "True"},
    ]);
    let after = |asked: i64| {
        let world = timed_out(-3600).node_field("/status/conditions", dead.clone());
        let plan = world.attempt(tried(1, asked, asked, EvictionAnswer::Unanswered("reset".into()))).plan();
        plan.actions.iter().any(|action| matches!(action, Action::LookForNode(_)))
    };
    assert!(after(-900));
    assert!(!after(-20));
}

#[test]
fn a_dead_node_and_the_label_need_no_politeness() {
    let dead = json!([
        {"type": "Ready", "status": "Unknown", "lastTransitionTime": at(-301).to_string()},
        {"type": "Terminating", "status": "True"},
    ]);
    let dead = timed_out(600).node_field("/status/conditions", dead).looked(-1, Some("uid-n"));
    assert_eq!(removal(dead), "delete");
    assert_eq!(removal(given_up()), "delete");
}

// === the label force-deletion ===

/// A Machine with the label, and a pod on its Node.
pub(super) fn given_up() -> World {
    world().draining().force_deletion().pod("p")
}

#[test]
fn the_label_does_not_wait_for_an_answer_about_a_pod() {
    use EvictionAnswer as O;
    let ends_after = |seconds: i64, outcome: O| {
        let undecided = Eviction { undecided_since: Some(at(-seconds)), ..tried(1, -5, -1, outcome) };
        ends(given_up().attempt(undecided))
    };
    for outcome in [O::Failed("no".into()), O::Throttled { retry_after: Duration::ZERO }] {
        assert!(!ends_after(19, outcome.clone()));
        assert!(ends_after(20, outcome));
    }
    assert!(ends_after(0, O::Refused("denied".into())));
    assert!(ends_after(0, O::Deleted));
    assert!(!ends(given_up()), "the server is asked first");
}

#[test]
fn the_label_skips_a_silent_target_cluster() {
    assert!(!given_up().silent_for(19).plan().to_string().contains("driver: delete"));
    given_up().silent_for(20).check(expect![[r#"
        do    driver: delete sim:///i-1 because the label force-deletion is set
        why   waiting for the cloud to delete the instance; since 2027-01-15T07:59:50Z; next: the Node and the finalizer are removed
        wait  for a change
    "#]]);
    let unlabelled_node = given_up().silent_for(20).node_field("/metadata/labels", json!({}));
    assert!(unlabelled_node.plan().to_string().contains("driver: delete"));
    let detaching = given_up().phase("Terminating", "Delete", "Processing", "Delete Volume Attachments");
    assert!(detaching.silent_for(20).plan().to_string().contains("driver: delete"));
}

#[test]
fn the_label_names_what_it_leaves_in_the_target_cluster() {
    let gone = |world: World| {
        let world = world.phase("Terminating", "Delete", "Processing", "Initiate VM deletion");
        world.with(|s| {
            s.answers.delete = deleted(answered(at(-2), at(-1), Ok(())));
            s.answers.find = seen(Sighting::Absent, true);
        })
    };
    gone(given_up()).silent_for(20).check(expect![[r#"
        do    warning TargetSilent: May be left in the target cluster: Node m. Its API server has not done what was asked since 2027-01-15T07:59:40Z (refused)
        do    machine: remove finalizer
        why   removing the finalizer; since 2027-01-15T07:59:50Z
        wait  for a change
    "#]]);
    assert!(gone(given_up()).silent_for(19).plan().to_string().contains("node m: delete"));
    let mut blind = gone(given_up()).silent_for(20).with(|s| {
        s.reads.silence.as_mut().expect("silent").is_blind = true;
    });
    blind.node = None;
    let plan = blind.plan().to_string();
    assert!(plan.contains("Node m, bootstrap token i8uopf") && plan.contains("remove finalizer"), "{plan}");
}

#[test]
fn a_machine_that_never_had_an_instance_needs_no_answer() {
    let absent = |by_id| {
        let mut world = world().created(-600).deleting(300).silent_for(20);
        world = world.phase("Terminating", "Delete", "Processing", "Initiate node drain");
        world.with(|s| s.answers.find = seen(Sighting::Absent, by_id))
    };
    let plan = absent(false).plan().to_string();
    assert!(plan.contains("remove finalizer") && plan.contains("TargetSilent"), "{plan}");
    let recorded = absent(true).recorded().plan().to_string();
    assert!(!recorded.contains("remove finalizer"), "{recorded}");
}

// === what users read ===

#[test]
fn a_rejected_eviction_is_reported() {
    let denied = "admission webhook \"w\" denied the request";
    let plan = |outcome| world().draining().pod("p").evicted(1, -2, -2, outcome).plan().to_string();
    let rejected = plan(EvictionAnswer::Refused(denied.into()));
    expect![[r#"
        do    status: Delete Failed "Drain is blocked: waiting for 1 pod to leave the Node; the API server rejects the eviction of pod ns/p: admission webhook \"w\" denied the request. Initiate node drain"
        do    warning DrainBlocked: Drain is blocked: waiting for 1 pod to leave the Node; the API server rejects the eviction of pod ns/p: admission webhook "w" denied the request. Initiate node drain
        why   waiting for 1 pod to leave the Node; the API server rejects the eviction of pod ns/p: admission webhook "w" denied the request; since 2027-01-15T07:59:50Z; next: the pods leave the Node; deadline 2027-01-15T09:59:51Z: the pods are deleted without grace
        wait  until 2027-01-15T08:00:18Z
    "#]]
    .assert_eq(&rejected);
    assert_eq!(plan(EvictionAnswer::Failed(denied.into())), rejected, "an error of a webhook");
}

#[test]
fn the_end_by_force_names_the_killed_pods() {
    let killed = tried(2, -500, -1, EvictionAnswer::Deleted);
    timed_out(600).listed().attempt(killed.clone()).check(expect![[r#"
        do    status: Delete Processing "Delete Volume Attachments"
        do    warning DrainForced: The drain ended by force: the drain timed out. Pods deleted without grace: ns/p
        why   ending the drain by force; since 2027-01-15T05:50:00Z; next: the VolumeAttachments are deleted
        wait  for a change
    "#]]);
    let many: BTreeMap<String, Eviction> = (10..22)
        .map(|number| (format!("uid-{number}"), Eviction { pod: format!("ns/p{number}"), ..killed.clone() }))
        .collect();
    let mut world = timed_out(600).listed().with(|s| s.evictions = Arc::new(many));
    world.pods.clear();
    let plan = world.plan().to_string();
    assert!(
        plan.contains("Pods deleted without grace: ns/p10, ") && plan.contains("ns/p19 and 2 more"),
        "{plan}"
    );
}

#[test]
fn a_polite_drain_names_the_pods_that_it_kills() {
    let held = tried(360, -7200, -20, EvictionAnswer::Held("no".into()));
    let plan = world().draining().deleting(7195).pod("p").attempt(held).plan().to_string();
    assert!(plan.contains("warning DrainForced: Deleting pods without grace"), "{plan}");
}

// === the marker ===

/// The Node may join and be filled with pods before the next attempt.
#[test]
fn a_failed_call_does_not_move_the_marker() {
    let failed = |description| {
        let mut world =
            world().recorded().deleting(10).phase("Terminating", "Delete", "Processing", description);
        world = world.with(|s| {
            s.reads.nodes = vec![NodeRead { name: "m".into(), started: at(-1), uid: None }];
            s.answers.delete = deleted(answered(at(-2), at(-1), Err(error(ErrorKind::Unavailable, "no"))));
            s.answers.failures = 1;
        });
        world.plan().to_string()
    };
    let unmarked = failed("Deleting machine from cloud provider");
    assert!(unmarked.contains("message = [no]. Initiate node drain"), "{unmarked}");
    assert!(!unmarked.contains("Initiate VM deletion"), "{unmarked}");
    let marked = failed("Drain successful. Initiate VM deletion");
    assert!(marked.contains("message = [no]. Initiate VM deletion"), "{marked}");
    let missing = world().recorded().deleting(10);
    let missing =
        missing.phase("Terminating", "Delete", "Processing", "Deleting machine from cloud provider");
    let missing = missing.with(|s| s.class = Known::Absent).plan().to_string();
    assert!(missing.contains("Initiate node drain"), "{missing}");
}
