//! Tests of preserved Machines: when a preservation starts and ends, and what it does to the Node.

use machinist_api::constants::{annotations, taints};

use super::*;

const EXPIRY: &str = "/status/currentStatus/preserveExpiryTime";
const MARKED: [&str; 2] = [annotations::SCALE_DOWN_DISABLED, annotations::SCALE_DOWN_DISABLED_BY_MCM];

impl World {
    /// A Machine in that phase with a Node, about which nothing is preserved.
    fn in_phase(phase: &str) -> Self {
        let ready = if phase == "Running" { "True" } else { "False" };
        let world = world().running().phase(phase, "HealthCheck", "Failed", "health timeout");
        let mut world = world.node_field("/status/conditions/0/status", ready.into());
        world.machine["status"]["conditions"] = json!([{"type": "Ready", "status": ready}]);
        world
    }

    /// The annotation of the Machine.
    fn asks(mut self, value: &str) -> Self {
        self.machine["metadata"]["annotations"][annotations::PRESERVE] = value.into();
        self
    }

    /// The value of the Node, and that value on the Machine.
    fn node_asks(mut self, value: &str) -> Self {
        self.machine["metadata"]["annotations"][annotations::LAST_APPLIED_NODE_PRESERVE_VALUE] = value.into();
        self.node_annotation(annotations::PRESERVE, value)
    }

    fn node_annotation(mut self, key: &str, value: &str) -> Self {
        let node = self.node.as_mut().expect("the test has a Node");
        node["metadata"]["annotations"][key] = value.into();
        self
    }

    /// The Machine is preserved until this second.
    fn until(mut self, seconds: i64) -> Self {
        testing::set(&mut self.machine, EXPIRY, json!(at(seconds).to_string()));
        self
    }

    /// The Node has the annotations for the autoscaler.
    fn protected(self) -> Self {
        MARKED.into_iter().fold(self, |world, key| world.node_annotation(key, "true"))
    }

    /// The Node has had the taint for this many seconds.
    fn tainted(self, seconds_ago: i64) -> Self {
        let taint = json!({"key": taints::PRESERVED, "effect": "NoSchedule",
                           "timeAdded": at(-seconds_ago).to_string()});
        self.node_field("/spec/taints", json!([taint])).with(|s| s.node_seen.tainted = Some(at(-seconds_ago)))
    }

    fn condition(mut self, status: &str, reason: &str, message: &str) -> Self {
        let node = self.node.as_mut().expect("the test has a Node");
        let conditions = node["status"]["conditions"].as_array_mut().expect("a list");
        conditions.push(json!({"type": "Preserved", "status": status, "reason": reason, "message": message,
                               "lastTransitionTime": at(-20).to_string(), "lastHeartbeatTime": at(-20).to_string()}));
        self.machine["status"]["conditions"]
            .as_array_mut()
            .expect("a list")
            .push(json!({"type": "Preserved", "status": status}));
        self
    }

    fn drained(self) -> Self {
        self.condition("True", "Preserved by user.", "Preserved node drained successfully. More.")
    }

    /// A failed Machine that a user preserves. Its Node is about to be drained.
    fn kept() -> Self {
        Self::in_phase("Failed").asks("now").until(1000).protected().tainted(60)
    }

    /// The planned calls, without Events.
    fn calls(self) -> Vec<String> {
        let all = self.plan().actions;
        let calls = all.iter().filter(|action| !matches!(action, Action::Tell { .. }));
        calls.map(ToString::to_string).collect()
    }
}

const STARTS: &str = "status: preserved until the timeout";
const ENDS: &str = "status: no longer preserved";
const FORGETS: &str = "machine: remove the preserve annotations";

// === when a preservation starts ===

/// The value of the Node comes before the value of the Machine.
#[test]
fn t_102_t_103_t_105_t_107_t_108_values_start_preservation() {
    // The value of the Machine, the value of the Node, the phase, and whether it starts.
    for (machine, node, phase, starts) in [
        ("now", "", "Running", true),
        ("now", "", "Unknown", true),
        ("now", "", "Failed", true),
        ("", "now", "Running", true),
        ("when-failed", "", "Running", false),
        ("when-failed", "", "Unknown", false),
        ("when-failed", "", "Failed", true),
        ("", "when-failed", "Failed", true),
        ("auto-preserved", "", "Failed", true),
        ("false", "", "Failed", false),
        ("now", "false", "Failed", false),
        ("false", "now", "Failed", true),
        ("now", "when-failed", "Running", false),
        ("Now", "", "Failed", false),
        ("true", "", "Failed", false),
        ("", "", "Failed", false),
    ] {
        let case = format!("machine {machine:?}, node {node:?}, {phase}");
        let world = World::in_phase(phase);
        let world = if node.is_empty() { world } else { world.node_asks(node) };
        let world = if machine.is_empty() { world } else { world.asks(machine) };
        assert_eq!(world.calls().contains(&STARTS.to_owned()), starts, "{case}");
    }
}

/// An unknown value does not hide the value that was copied before.
#[test]
fn t_107_an_unknown_value_of_the_node_changes_nothing() {
    let asked = World::in_phase("Failed").node_asks("now").node_annotation(annotations::PRESERVE, "NOW");
    assert_eq!(asked.calls(), [""; 0]);
    let kept = World::in_phase("Failed").asks("false").until(100).node_annotation(annotations::PRESERVE, "x");
    assert_eq!(kept.calls(), [""; 0]);
}

/// Without a Node, only the Machine is changed.
#[test]
fn t_108_a_machine_without_a_node_is_preserved() {
    for asks in ["now", "when-failed"] {
        let mut without = World::in_phase("Failed").asks(asks);
        without.node = None;
        assert_eq!(without.calls(), [STARTS], "{asks}");
    }
    let mut kept = World::kept();
    kept.node = None;
    kept.check(expect![[r#"
        why   Machine m has failed and is preserved until 2027-01-15T08:16:40Z; since 2027-01-15T07:59:30Z; next: the Node recovers; deadline 2027-01-15T08:16:41Z: the MachineSet deletes and replaces the Machine
        wait  until 2027-01-15T08:16:41Z
    "#]]);
}

#[test]
fn a_preservation_lasts_as_long_as_the_machine_asks_for() {
    let until = |world: World| {
        world.plan().actions.iter().find_map(|action| match action {
            Action::SetPreserveExpiry(until) => *until,
            _ => None,
        })
    };
    let hours = |count: i64| Some(at(count * 3600));
    assert_eq!(until(World::in_phase("Failed").asks("now")), hours(96), "the default of the flag");
    let mut own = World::in_phase("Failed").asks("now");
    own.machine["spec"]["machinePreserveTimeout"] = "2h".into();
    assert_eq!(until(own), hours(2));
    World::in_phase("Running").asks("now").check(expect![[r#"
        do    status: preserved until the timeout
        do    event MachinePreserved: Machine m is preserved until 2027-01-19T08:00:00Z
        why   recording until when the Machine is preserved
        wait  for a change
    "#]]);
}

/// A Machine that runs keeps its pods.
#[test]
fn t_102_a_preserved_machine_that_runs_is_only_marked() {
    let running = || World::in_phase("Running").node_asks("now").until(1000);
    running().check(expect![[r#"
        do    node m: sync annotations scale-down-disabled scale-down-disabled-by-mcm
        do    node m: Preserved=True, Preserved by user. Machine preserved until 2027-01-15T08:16:40Z.
        why   up to date; since 2027-01-15T07:59:30Z; deadline 2027-01-15T08:16:41Z: the preservation ends
        wait  until 2027-01-15T08:16:41Z
    "#]]);
    let marked = running().protected().condition("True", "Preserved by user.", "by Go MCM");
    assert_eq!(marked.calls(), [""; 0]);
}

/// A later end of the preservation does not remove the protection of a user. In Go MCM, the end of
/// a rollout removes it.
#[test]
fn a_users_protection_from_the_autoscaler_is_not_marked() {
    let world = World::in_phase("Running").asks("now").until(1000);
    let own = world.node_annotation(annotations::SCALE_DOWN_DISABLED, "true").condition(
        "True",
        "Preserved by user.",
        "",
    );
    assert_eq!(own.calls(), [""; 0]);
    let ended =
        World::in_phase("Running").until(1000).node_annotation(annotations::SCALE_DOWN_DISABLED, "true");
    assert_eq!(ended.calls(), [ENDS]);
}

// === the Node of a failed Machine ===

#[test]
fn t_103_t_105_a_failed_machines_node_is_drained() {
    let failed = || World::in_phase("Failed").asks("when-failed").until(1000);
    failed().pod("p").check(expect![[r#"
        do    node m: sync annotations scale-down-disabled scale-down-disabled-by-mcm, 1 taints
        why   Machine m has failed and is preserved until 2027-01-15T08:16:40Z; since 2027-01-15T07:59:30Z; next: the Node recovers; deadline 2027-01-15T08:16:41Z: the MachineSet deletes and replaces the Machine
        wait  until 2027-01-15T08:16:41Z
    "#]]);
    World::kept().pod("p").check(expect![[r#"
        do    pod ns/p: evict
        why   Machine m has failed and is preserved until 2027-01-15T08:16:40Z; waiting for 1 pod to leave the Node; since 2027-01-15T07:59:00Z; next: the pods leave the Node; deadline 2027-01-15T08:04:58Z: the pods are deleted without grace
        wait  until 2027-01-15T08:04:58Z
    "#]]);
    World::kept().check(expect![[r#"
        do    node m: list its pods at the API server
        why   confirming with the API server that no pod is left on Node m; since 2027-01-15T07:59:00Z; next: the Node counts as drained
        wait  until 2027-01-15T08:16:41Z
    "#]]);
    World::kept().listed().check(expect![[r#"
        do    node m: Preserved=True, Preserved by user. Preserved node drained successfully. Machine preserved until 2027-01-15T08:16:40Z.
        why   Machine m has failed and is preserved until 2027-01-15T08:16:40Z; since 2027-01-15T07:59:30Z; next: the Node recovers; deadline 2027-01-15T08:16:41Z: the MachineSet deletes and replaces the Machine
        wait  until 2027-01-15T08:16:41Z
    "#]]);
    assert_eq!(World::kept().drained().pod("p").calls(), [""; 0], "it is drained once");
}

#[test]
fn t_105_the_condition_names_who_asked() {
    let kept = World::in_phase("Failed").asks("auto-preserved").until(1000).protected().tainted(60).listed();
    let calls = kept.calls();
    assert!(calls[0].contains("Preserved=True, Preserved by MCM. Preserved node drained"), "{calls:?}");
}

#[test]
fn a_list_from_before_the_taint_shows_nothing() {
    let seen = World::kept().listed().with(|s| s.node_seen.tainted = Some(at(0)));
    assert_eq!(seen.calls(), ["node m: list its pods at the API server"]);
    let left = World::kept().with(|s| {
        s.reads.pods = Some(PodList { node_uid: "uid-n".into(), started: at(-1), leaving: 1, running: 1 });
    });
    assert_eq!(left.calls(), [""; 0], "the store will show the pod");
}

/// A pod that tolerates the taint would be followed by others forever.
#[test]
fn a_pod_that_came_after_the_taint_is_not_waited_for() {
    let with_pod = |created: i64| {
        let mut world = World::kept().tainted(600).pod("p");
        world.pods[0]["metadata"]["creationTimestamp"] = at(created).to_string().into();
        world.with(|s| {
            s.reads.pods =
                Some(PodList { node_uid: "uid-n".into(), started: at(-1), leaving: 1, running: 1 });
        })
    };
    assert_eq!(with_pod(-700).calls(), ["pod ns/p: evict"]);
    assert!(with_pod(-500).calls()[0].contains("drained successfully"));
}

/// The age of a drain forces nothing: each pod was tried before, with an answer.
#[test]
fn a_drain_is_forced_only_after_a_polite_attempt() {
    let ready = || {
        let mut world = World::kept().tainted(7300).pod("p").with(|s| s.process.started = at(-9000));
        // The Node is not dead, but the Machine has failed for another reason.
        world.machine["status"]["conditions"] = json!([{"type": "DiskPressure", "status": "True"}]);
        world.node_field("/status/conditions", json!([{"type": "DiskPressure", "status": "True"}]))
    };
    let with = |world: World, eviction: Option<Eviction>| {
        let all = eviction.map(|eviction| ("uid-p".to_owned(), eviction));
        world.with(|s| s.evictions = Arc::new(all.into_iter().collect()))
    };
    let evicted = |outcome| Eviction { is_deletion: false, ..tried(1, -60, -25, outcome) };
    let held = || evicted(EvictionAnswer::Held("budget".into()));
    let lost =
        || Eviction { is_deletion: false, ..tried(0, -60, -25, EvictionAnswer::Unanswered("x".into())) };
    assert_eq!(with(ready(), None).calls(), ["pod ns/p: evict"], "no attempt");
    assert_eq!(with(ready(), Some(lost())).calls(), ["pod ns/p: evict"], "no answer");
    assert_eq!(with(ready(), Some(held())).calls(), ["pod ns/p: delete without grace"]);
    let young = with(ready().tainted(7100), Some(held())).calls();
    assert_eq!(young[0], "pod ns/p: evict", "before the drain timeout: {young:?}");
    let skewed = with(ready(), Some(held())).with(|s| s.process.skew = Duration::from_secs(31));
    assert_eq!(skewed.calls()[0], "pod ns/p: evict");
}

/// The kubelet of a dead Node would end no pod.
#[test]
fn a_dead_node_is_drained_by_force_after_a_fresh_read() {
    let dead = || {
        World::kept()
            .pod("p")
            .node_field("/status/conditions/0/lastTransitionTime", at(-400).to_string().into())
    };
    assert_eq!(dead().calls(), ["node m: look for it at the API server"]);
    assert_eq!(dead().looked(-1, Some("uid-n")).calls(), ["pod ns/p: delete without grace"]);
    let deleted = tried(1, -5, -5, EvictionAnswer::Deleted);
    let ended =
        dead().listed().with(|s| s.evictions = Arc::new(BTreeMap::from([("uid-p".to_owned(), deleted)])));
    let plan = ended.plan().to_string();
    assert!(plan.contains("drained successfully"), "{plan}");
    assert!(plan.contains("warning DrainForced: The drain ended by force: the Node is dead"), "{plan}");
}

#[test]
fn the_label_force_drain_ends_the_patience() {
    let mut world = World::kept().pod("p");
    world.machine["metadata"]["labels"]["force-drain"] = "True".into();
    assert_eq!(world.calls(), ["pod ns/p: delete without grace"]);
    let mut other = World::kept().pod("p");
    other.machine["metadata"]["labels"]["force-drain"] = "true".into();
    assert_eq!(other.calls(), ["pod ns/p: evict"], "only the spelling of Go MCM counts");
}

#[test]
fn a_blocked_drain_is_reported() {
    let held =
        Eviction { is_deletion: false, ..tried(1, -10, -10, EvictionAnswer::Refused("denied".into())) };
    let blocked = || {
        World::kept()
            .pod("p")
            .with(|s| s.evictions = Arc::new(BTreeMap::from([("uid-p".to_owned(), held.clone())])))
    };
    let calls = blocked().calls();
    assert!(
        calls[0]
            .contains("Preserved=False, Preserved by user. Preserved node could not be drained. Machine m"),
        "{calls:?}"
    );
    assert!(calls[0].contains("rejects the eviction of pod ns/p: denied"), "{calls:?}");
    let said =
        blocked().condition("False", "Preserved by user.", "Preserved node could not be drained. Before.");
    assert_eq!(said.calls(), [""; 0], "at most every 30 seconds");
}

#[test]
fn a_machine_that_recovers_is_drained_again_when_it_fails() {
    let recovered = World::in_phase("Running").asks("now").until(1000).protected().tainted(600).drained();
    let calls = recovered.node_field("/spec/unschedulable", json!(true)).calls();
    assert_eq!(calls[0], "node m: sync 0 taints", "the cordon of a user stays");
    assert!(calls[1].contains("Preserved=True, Preserved by user. Machine preserved until"), "{calls:?}");
}

// === when a preservation ends ===

#[test]
fn t_104_t_109_the_value_false_ends_a_preservation() {
    let kept = || World::in_phase("Failed").until(1000).protected().tainted(60).drained();
    kept().node_asks("false").check(expect![[r#"
        do    node m: Preserved=False, Preservation stopped. The Machine is no longer preserved.
        do    node m: sync annotations -scale-down-disabled -scale-down-disabled-by-mcm, 0 taints
        do    status: no longer preserved
        do    event PreservationEnded: Machine m is no longer preserved
        why   ending the preservation
        wait  for a change
    "#]]);
    assert_eq!(kept().calls().last().map(String::as_str), Some(ENDS), "the annotation was removed");
    assert_eq!(kept().asks("false").calls().last().map(String::as_str), Some(ENDS));
    let removed = kept().asks("now").node_asks("now").node_annotation(annotations::PRESERVE, "");
    assert_eq!(removed.calls(), [r#"machine: record preserve "" of its node"#], "this removes both values");
}

#[test]
fn t_105_an_automatic_preservation_ends_with_recovery() {
    let kept =
        World::in_phase("Running").asks("auto-preserved").until(1000).protected().tainted(60).drained();
    kept.check(expect![[r#"
        do    node m: Preserved=False, Preservation stopped. The Machine is no longer preserved.
        do    node m: sync annotations -scale-down-disabled -scale-down-disabled-by-mcm, 0 taints
        do    machine: remove the preserve annotations
        do    status: no longer preserved
        do    event PreservationEnded: Machine m is no longer preserved
        why   ending the preservation
        wait  for a change
    "#]]);
    assert_eq!(World::in_phase("Running").asks("auto-preserved").calls(), [FORGETS], "it recovered at once");
    let user = World::in_phase("Running").asks("when-failed").until(1000).calls();
    assert_eq!(user, [ENDS], "the wish of a user stays for the next failure");
}

/// The expiry of a failed Machine stays. So its set deletes it, and nothing preserves it again.
#[test]
fn t_106_an_expired_preservation_ends_and_is_not_repeated() {
    let expired = |phase: &str| World::in_phase(phase).asks("now").until(-1).protected();
    assert_eq!(
        expired("Running").calls(),
        ["node m: sync annotations -scale-down-disabled -scale-down-disabled-by-mcm", FORGETS, ENDS]
    );
    expired("Failed").tainted(60).drained().check(expect![[r#"
        do    node m: Preserved=False, Preservation stopped. The Machine is no longer preserved.
        do    event PreservationEnded: Machine m is no longer preserved
        do    node m: sync annotations -scale-down-disabled -scale-down-disabled-by-mcm, 0 taints
        do    machine: remove the preserve annotations
        why   waiting for the MachineSet to replace this machine: health timeout; since 2027-01-15T07:59:30Z; next: the MachineSet deletes the Machine
        wait  for a change
    "#]]);
    let by_node = World::in_phase("Failed").node_asks("when-failed").until(-1);
    assert_eq!(by_node.calls(), ["node m: sync annotations -preserve", FORGETS]);
    assert_eq!(World::in_phase("Failed").until(-1).calls(), [""; 0], "nothing is left to do");
    assert_eq!(World::in_phase("Running").until(-1).calls(), [ENDS], "a Machine that recovered is free");
    let skewed = expired("Failed").tainted(60).drained().with(|s| s.process.skew = Duration::from_secs(31));
    assert_eq!(skewed.calls(), [""; 0], "during clock skew nothing expires");
}

/// The preservation ends at its expiry, and not at a later look.
#[test]
fn t_106_the_next_look_is_at_the_expiry() {
    use machinist_core::Wait;
    for (seconds, look_at) in [(1000, 1001), (0, 1)] {
        for phase in ["Running", "Failed"] {
            let kept = World::in_phase(phase).asks("now").until(seconds).protected().tainted(60).drained();
            assert_eq!(kept.plan().wait, Wait::Until(at(look_at)), "{phase}");
        }
    }
}

/// The taint of another client stays.
#[test]
fn t_110_a_node_without_a_preservation_is_not_touched() {
    for phase in ["Running", "Failed"] {
        assert_eq!(World::in_phase(phase).tainted(60).calls(), [""; 0]);
        let mut without = World::in_phase(phase).tainted(60);
        without.node = None;
        assert!(!without.plan().to_string().contains("preserve"));
    }
}

/// A crash after any call of the end leaves a state from which another process goes on.
#[test]
fn an_interrupted_end_goes_on() {
    let left = World::in_phase("Running").asks("auto-preserved").until(1000);
    assert_eq!(left.calls(), [FORGETS, ENDS], "the Node is free already");
    assert_eq!(World::in_phase("Running").until(1000).calls(), [ENDS], "the annotation is removed already");
}

#[test]
fn an_excluded_node_is_left_alone() {
    let kept = World::kept().pod("p").node_annotation(annotations::NOT_MANAGED_BY_MCM, "1");
    assert_eq!(kept.calls(), [""; 0]);
}
