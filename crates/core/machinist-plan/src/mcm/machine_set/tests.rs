//! Tests of the set planner: each test builds a snapshot and checks the plan.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::time::Duration;

use expect_test::{Expect, expect};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use machinist_core::{Attempts, FreshRead, Freshness, Silence};
use serde_json::{Value, json};

use super::*;
use crate::mcm::facts::MachineDeploymentFacts;
use crate::mcm::late_adoption::LateAdoption;
use crate::mcm::machine_deployment::synced_changes;
use crate::mcm::machine_deployment::{Owned, limits};
use crate::testing::{self, at};

mod acceptance;
mod freeze;
mod preserve;
mod strays;

const UID: &str = "uid-s";

/// A set and the objects around it. A test changes them step by step into its situation.
struct World {
    set: Value,
    machines: Vec<Value>,
    unreadable: Vec<String>,
    free: Vec<Value>,
    settled: BTreeSet<u64>,
    failure: Option<ChildFailure>,
    strays: Option<ChildFailure>,
    rejected: BTreeMap<String, ChildFailure>,
    late_adoptions: Vec<LateAdoption>,
    status_written: Option<Timestamp>,
    deployment: Option<Value>,
    auto_preserve: AutoPreserve,
    margins: SafetyMargins,
    overshooting_since: Option<Timestamp>,
}

/// A set with that many replicas, no Machines, and a written status.
fn world(replicas: u32) -> World {
    let set = json!({
        "metadata": {
            "name": "s", "namespace": "ns", "uid": UID, "generation": 3,
            "finalizers": ["machine.sapcloud.io/machine-controller-manager"],
        },
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "s"}},
            "template": {
                "metadata": {"labels": {"app": "s"}},
                "spec": {"class": {"kind": "MachineClass", "name": "c"}, "nodeTemplate": {}},
            },
        },
    });
    World {
        set,
        machines: Vec::new(),
        unreadable: Vec::new(),
        free: Vec::new(),
        settled: BTreeSet::new(),
        failure: None,
        strays: None,
        rejected: BTreeMap::new(),
        late_adoptions: Vec::new(),
        // Only the tests about statuses check status writes.
        status_written: Some(at(100)),
        deployment: None,
        auto_preserve: AutoPreserve::Own,
        margins: SafetyMargins::default(),
        overshooting_since: None,
    }
}

fn machine(name: &str, phase: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": format!("uid-{name}"), "labels": {"app": "s"},
            "creationTimestamp": at(-100).to_string(), "annotations": {},
            "ownerReferences": [{
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "s", "uid": UID,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {"class": {"kind": "MachineClass", "name": "c"}, "nodeTemplate": {}},
        "status": {"currentStatus": {"phase": phase}},
    })
}

fn parse<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).expect("test objects are well-formed")
}

impl World {
    fn machine(self, name: &str, phase: &str) -> Self {
        self.machine_with(name, phase, |_| {})
    }

    fn machine_with(mut self, name: &str, phase: &str, change: impl FnOnce(&mut Value)) -> Self {
        let mut machine = machine(name, phase);
        change(&mut machine);
        self.machines.push(machine);
        self
    }

    fn leaving(self, name: &str, phase: &str) -> Self {
        self.machine_with(name, phase, |m| m["metadata"]["deletionTimestamp"] = at(-10).to_string().into())
    }

    /// Adds children with these numbers, all in one phase.
    fn children(mut self, numbers: impl IntoIterator<Item = u64>, phase: &str) -> Self {
        for number in numbers {
            self = self.machine(&child_name("s", UID, number), phase);
        }
        self
    }

    fn field(mut self, pointer: &str, value: Value) -> Self {
        testing::set(&mut self.set, pointer, value);
        self
    }

    fn reserved(self, text: &str) -> Self {
        self.field("/metadata/annotations", json!({"machinist.dev/reserved-numbers": text}))
    }

    fn refused(mut self, count: u32, seconds_ago: i64) -> Self {
        let attempts = Attempts { count, last: at(-seconds_ago) };
        self.failure = Some(ChildFailure { message: "quota exceeded".into(), attempts });
        self
    }

    /// The API server has rejected the deletion of this Machine.
    fn kept(mut self, name: &str, count: u32, seconds_ago: i64) -> Self {
        let attempts = Attempts { count, last: at(-seconds_ago) };
        let failure = ChildFailure { message: "denied by a webhook".into(), attempts };
        self.rejected.insert(format!("uid-{name}"), failure);
        self
    }

    fn snapshot(&self) -> Snapshot {
        let facts = |all: &[Value]| all.iter().map(|m| Arc::new(MachineFacts::parse(&parse(m)))).collect();
        Snapshot {
            now: at(0),
            skew: Duration::ZERO,
            set: Arc::new(MachineSetFacts::parse(&parse(&self.set))),
            machines_freshness: Freshness::Fresh,
            machines: facts(&self.machines),
            unreadable: self.unreadable.clone(),
            adoptable: facts(&self.free),
            deployment: self
                .deployment
                .as_ref()
                .map(|value| Arc::new(MachineDeploymentFacts::parse(&parse(value)))),
            limits: None,
            auto_preserve: self.auto_preserve.clone(),
            margins: self.margins,
            overshooting_since: self.overshooting_since,
            finished_numbers: self.settled.clone(),
            status_written: self.status_written,
            failure: self.failure.clone(),
            strays: self.strays.clone(),
            rejected: self.rejected.clone(),
            late_adoptions: self.late_adoptions.clone(),
        }
    }

    fn actions(&self) -> Vec<String> {
        plan(&self.snapshot()).actions.iter().map(ToString::to_string).collect()
    }

    fn check(self, expected: Expect) {
        expected.assert_eq(&plan(&self.snapshot()).to_string());
    }
}

// === the set itself ===

#[test]
fn a_set_of_another_client_gets_its_finalizer_first() {
    world(3).field("/metadata/finalizers", json!([])).check(expect![[r#"
        do    set: add finalizer
        why   adding the finalizer
        wait  for a change
    "#]]);
}

#[test]
fn an_invalid_set_is_reported_and_not_reconciled() {
    let mut world = world(3).field("/spec/template/spec/class", json!({"kind": "MachineClass"}));
    world.status_written = None;
    world.check(expect![[r#"
        do    warning InvalidSpec: spec.template.spec.class.name: expected the name of a MachineClass, got nothing
        do    status: 0 replicas, 0 available, 0 ready
        why   invalid spec: spec.template.spec.class.name: expected the name of a MachineClass, got nothing; next: fix spec.template.spec.class.name
        wait  for a change
    "#]]);
}

#[test]
fn an_empty_selector_adopts_no_machine() {
    let mut world = world(0).field("/spec/selector", json!({}));
    world.free.push(machine("stranger", "Running"));
    world.check(expect![[r#"
        why   invalid spec: spec.selector is empty and would select every machine: expected at least one label; next: fix spec.selector
        wait  until 2027-01-15T08:01:41Z
    "#]]);
}

/// Otherwise the set would release each Machine that it creates, and create another one.
#[test]
fn no_machine_is_created_that_would_not_be_selected() {
    for (operator, values) in
        [("NotIn", json!(["s"])), ("Maybe", json!(["s"])), ("DoesNotExist", json!(null))]
    {
        let expression = json!({"key": "app", "operator": operator, "values": values});
        let selector = json!({"matchLabels": {"app": "s"}, "matchExpressions": [expression]});
        let plan = plan(&world(3).field("/spec/selector", selector).snapshot());
        let reason = plan.why.reason.to_string();
        assert!(reason.contains("spec.selector.matchExpressions[0]"), "{plan}");
        assert!(!plan.actions.iter().any(|action| matches!(action, Action::Create { .. })), "{plan}");
    }
}

// === claiming ===

#[test]
fn uncontrolled_machines_are_adopted_before_creation() {
    let mut world = world(3);
    world.free = vec![machine("mine", "Running"), machine("other", "Running"), machine("old", "Running")];
    world.free[1]["metadata"]["labels"] = json!({"app": "other"});
    world.free[2]["metadata"]["deletionTimestamp"] = at(-1).to_string().into();
    world.check(expect![[r#"
        do    machine mine: adopt
        why   claiming Machines
        wait  for a change
    "#]]);
}

#[test]
fn a_machine_that_is_no_longer_selected_is_released() {
    world(1)
        .machine("a", "Running")
        .machine_with("b", "Running", |m| m["metadata"]["labels"] = json!({"app": "quarantine"}))
        .check(expect![[r#"
            do    machine b: release
            why   claiming Machines
            wait  for a change
        "#]]);
}

// === creating Machines ===

#[test]
fn numbers_are_reserved_before_any_machine_is_created() {
    world(3).check(expect![[r#"
        do    set: reserve numbers 3:0-2
        why   0 of 3 machines available; next: the Machines become Running
        wait  until 2027-01-15T08:01:41Z
    "#]]);
}

#[test]
fn reserved_numbers_become_machines() {
    world(3).reserved("3:0-2").check(expect![[r#"
        do    machine s-hf7bf: create, number 0
        do    machine s-79n58: create, number 1
        do    machine s-v67v4: create, number 2
        why   0 of 3 machines available; next: the Machines become Running
        wait  until 2027-01-15T08:01:41Z
    "#]]);
}

#[test]
fn a_pending_name_is_retried_before_a_new_name() {
    // One of three POSTs was seen to succeed. A new process does not know the outcome of the other
    // two.
    let world = world(3).reserved("3:0-2").children([1], "");
    assert_eq!(world.actions(), create([0, 2]));
}

#[test]
fn at_most_as_many_names_are_tried_as_machines_are_missing() {
    let world = world(2).reserved("5:0-4").children([0], "Running");
    assert_eq!(world.actions(), create([1]));
}

#[test]
fn numbers_that_are_settled_make_room_for_new_ones() {
    let mut world = world(3).reserved("3:0-2").children([1, 2], "Running");
    world.settled = BTreeSet::from([0]);
    // The Machine with number 0 was deleted. Its name is written off first, so that no later
    // process treats it as unused.
    assert_eq!(world.actions(), ["set: reserve numbers 3"]);
    let next = world.reserved("3");
    assert_eq!(next.actions(), ["set: reserve numbers 4:3"]);
}

#[test]
fn the_number_of_a_deleted_machine_is_written_off_first() {
    let gone = child_name("s", UID, 1);
    let world = world(3).reserved("3:0-2").children([0, 2], "Running").leaving(&gone, "Running");
    assert_eq!(world.actions(), ["set: reserve numbers 3"]);
}

#[test]
fn t_71_a_large_set_is_created_in_batches() {
    assert_eq!(world(1000).actions(), ["set: reserve numbers 100:0-99"]);
    assert_eq!(world(1000).reserved("100:0-99").actions(), create(0..100));
}

#[test]
fn an_unreadable_annotation_costs_a_reservation() {
    assert_eq!(world(1).reserved("many").actions(), ["set: reserve numbers 1:0"]);
}

#[test]
fn failed_machines_count_until_they_are_deleted() {
    let world = world(2).machine("a", "Running").machine("b", "Failed");
    assert_eq!(world.actions(), ["machine b: delete"]);
}

#[test]
fn a_machine_that_is_being_deleted_is_replaced_at_once() {
    let world = world(2).machine("a", "Running").leaving("b", "Running").machine("c", "Terminating");
    assert_eq!(world.actions(), ["set: reserve numbers 1:0"]);
}

// === a set that is frozen ===

const UNFREEZE: &str = "safety.machine.sapcloud.io/unfreeze";

/// A set that Go's machine-controller-manager has frozen, with terminating surplus Machines.
fn frozen(replicas: u32, machines: usize) -> World {
    let condition = json!({
        "type": "Frozen", "status": "True", "reason": "OverShootingReplicaCount",
        "message": "The number of machines backing MachineSet: s is 6 >= 5", "lastTransitionTime": at(-300).to_string(),
    });
    let world = world(replicas)
        .field("/metadata/labels", json!({"freeze": "True"}))
        .field("/status", json!({"machineSetCondition": [condition]}));
    (0..machines).fold(world, |world, n| world.leaving(&format!("m{n}"), "Terminating"))
}

#[test]
fn a_frozen_set_creates_nothing_and_reports_the_limit() {
    // Without a deployment, a set is frozen at twice its replicas plus 2 Machines. One Machine
    // fewer lifts the freeze.
    frozen(2, 6).check(expect![[r#"
        why   frozen (OverShootingReplicaCount); the set has 6 machines, and the freeze is lifted at 5 or fewer; since 2027-01-15T07:55:00Z; next: wait until Machines are deleted, or set the annotation safety.machine.sapcloud.io/unfreeze on the MachineSet to lift the freeze now
        wait  until 2027-01-15T08:01:41Z
    "#]]);
    let by_hand = frozen(2, 6).field("/status", json!({}));
    let message = plan(&by_hand.snapshot()).why.to_string();
    assert!(message.starts_with("frozen by the label freeze, without a condition Frozen"), "{message}");
    let refused = frozen(2, 6).refused(1, 1);
    let message = plan(&refused.snapshot()).why.to_string();
    assert!(message.contains("; the API server rejected a change: quota exceeded"), "{message}");
}

#[test]
fn a_set_that_is_small_again_thaws() {
    assert_eq!(
        frozen(2, 5).actions(),
        ["set: remove condition Frozen", "set: remove freeze", "event UnfrozeMachineSet"]
    );
    let by_label = frozen(2, 5).field("/status", json!({}));
    assert_eq!(by_label.actions(), ["set: remove freeze", "event UnfrozeMachineSet"]);
    // A process died before it wrote the label. No Event told users that the set was frozen.
    let by_condition = frozen(2, 5).field("/metadata/labels", json!({}));
    assert_eq!(by_condition.actions(), ["set: remove condition Frozen"]);
}

/// Puts the set into a deployment with that strategy and that many replicas.
fn of_deployment(mut world: World, replicas: u32, strategy: Value) -> World {
    world.deployment = Some(json!({
        "metadata": {"name": "w", "namespace": "ns", "uid": "uid-w"},
        "spec": {"replicas": replicas, "strategy": strategy, "template": {"spec": {"class": {}, "nodeTemplate": {}}}},
    }));
    world.field("/metadata/ownerReferences", json!([{
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment", "name": "w", "uid": "uid-w", "controller": true,
    }]))
}

#[test]
fn the_deployment_determines_the_freeze_limit() {
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}});
    let in_place = json!({"type": "InPlaceUpdate", "inPlaceUpdate": {"maxSurge": 3, "maxUnavailable": 0}});
    for (strategy, lifted_at) in [(rolling.clone(), 8), (in_place, 9), (json!({"type": "Recreate"}), 6)] {
        let thaws = |machines| !of_deployment(frozen(1, machines), 5, strategy.clone()).actions().is_empty();
        assert_eq!((thaws(lifted_at), thaws(lifted_at + 1)), (true, false), "{strategy}");
    }
    let mut unknown = of_deployment(frozen(1, 1), 5, rolling);
    unknown.deployment = None;
    assert_eq!(unknown.actions(), [""; 0]);
    let message = plan(&unknown.snapshot()).why.to_string();
    assert!(message.contains("and its MachineDeployment is unknown so far"), "{message}");
}

#[test]
fn a_thawed_set_grows_again() {
    let thawed = frozen(2, 5).field("/metadata/labels", json!({})).field("/status", json!({}));
    assert_eq!(thawed.actions(), ["set: reserve numbers 2:0-1"]);
}

#[test]
fn the_annotation_unfreeze_lifts_a_freeze_at_once() {
    let asked = |world: World| world.field("/metadata/annotations", json!({UNFREEZE: ""}));
    assert_eq!(
        asked(frozen(2, 60)).actions(),
        ["set: remove condition Frozen", "set: remove freeze", "event UnfrozeMachineSet"]
    );
    assert_eq!(
        asked(world(0)).actions(),
        ["set: remove freeze"],
        "the set was not frozen, so there is no Event"
    );
}

#[test]
fn a_set_whose_machines_are_updated_in_place_does_not_grow() {
    let labels = json!({"node.machine.sapcloud.io/scale-up-disabled": "true"});
    let world = world(3).field("/metadata/labels", labels);
    assert_eq!(world.actions(), [""; 0]);
    world.machine("a", "Running").check(expect![[r#"
        why   the label node.machine.sapcloud.io/scale-up-disabled prevents scale-up: machines of the deployment are updated in place; next: remove the label so that the set can create machines
        wait  until 2027-01-15T08:01:41Z
    "#]]);
}

#[test]
fn after_a_rejection_creation_waits() {
    world(2).reserved("2:0-1").refused(3, 1).check(expect![[r#"
        why   the API server rejected a change: quota exceeded; since 2027-01-15T07:59:59Z; next: the controller tries again
        wait  until 2027-01-15T08:00:07Z
    "#]]);
    assert_eq!(world(2).reserved("2:0-1").refused(3, 8).actions(), create([0, 1]));
    assert_eq!(world(2).reserved("2:0-1").refused(40, 299).actions(), [""; 0]);
    assert_eq!(world(2).reserved("2:0-1").refused(40, 300).actions(), create([0, 1]));
}

#[test]
fn after_a_rejection_a_smaller_size_applies_at_once() {
    let world = world(1).machine("a", "Running").machine("b", "Pending").refused(9, 1);
    assert_eq!(world.actions(), ["machine b: delete"]);
}

#[test]
fn a_set_deletes_no_failed_machine_by_an_old_view() {
    let stale = |world: World, read| {
        let silence = Silence { server: "the API server".to_owned(), since: at(-200), read };
        plan(&Snapshot { machines_freshness: Freshness::Stale(silence), ..world.snapshot() })
    };
    let failing = || world(2).machine("a", "Running").machine("b", "Failed").reserved("3:0-2");
    expect![[r#"
        do    machines: list them at the API server
        why   the API server is silent; a deadline has passed and waits for its answer; since 2027-01-15T07:56:40Z; next: the controller reads the current state from the API server
        wait  until 2027-01-15T08:01:41Z
    "#]]
    .assert_eq(&stale(failing(), FreshRead::Possible).to_string());
    let waiting = stale(failing(), FreshRead::Failed(at(20)));
    assert!(waiting.actions.is_empty(), "{waiting}");
    assert_eq!(waiting.wait, machinist_core::Wait::Until(at(20)));
    let failed = stale(world(2).reserved("2:0-1").machine("a", "Failed"), FreshRead::Possible);
    let failed: Vec<_> = failed.actions.iter().map(ToString::to_string).collect();
    let read = "machines: list them at the API server".to_owned();
    assert_eq!(failed, [create([0]), vec![read]].concat(), "creations do not wait");
    let enough = stale(world(1).machine("a", "Running"), FreshRead::Possible);
    assert!(enough.actions.is_empty(), "nothing is read while nothing is due: {enough}");
    let surplus = world(1).machine("a", "Running").machine("b", "Pending");
    let surplus: Vec<_> =
        stale(surplus, FreshRead::Possible).actions.iter().map(ToString::to_string).collect();
    assert_eq!(surplus, ["machines: list them at the API server"]);
}

#[test]
fn a_set_deletes_nothing_that_its_deployment_wants_now() {
    let owner = json!([{
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment", "name": "d", "uid": "uid-d",
        "controller": true,
    }]);
    let late = |desired: u32| {
        // The patch to 2 took effect late: four Machines still run.
        let mut world = world(2)
            .field("/metadata/ownerReferences", owner.clone())
            .field("/metadata/annotations", json!({"deployment.kubernetes.io/desired-replicas": "2"}));
        for name in ["a", "b", "c", "d"] {
            world = world.machine(name, "Running");
        }
        planned_under(&world, desired)
    };
    let deleted = |plan: Plan<Action>| plan.actions.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(deleted(late(2)), ["machine d: delete", "machine c: delete"]);
    assert_eq!(deleted(late(3)), ["machine d: delete"]);
    expect![[r#"
        why   the size of this MachineSet is outdated: MachineDeployment d wants 4 machines here, and has not written that yet; next: the MachineDeployment writes the new size
        wait  until 2027-01-15T08:00:10Z
    "#]]
    .assert_eq(&late(4).to_string());
}

/// Plans for the only set of a deployment with that many replicas.
fn planned_under(world: &World, desired: u32) -> Plan<Action> {
    let s = world.snapshot();
    let deployment = json!({
        "metadata": {"name": "d", "namespace": "ns", "uid": "uid-d"},
        "spec": {
            "replicas": desired, "selector": {"matchLabels": {"app": "s"}},
            "strategy": {
                "type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            },
            "template": world.set["spec"]["template"].clone(),
        },
    });
    let deployment = MachineDeploymentFacts::parse(&parse(&deployment));
    let sets = [Owned { set: s.set.clone(), machines: s.machines.clone(), unreadable: 0 }];
    let limits = limits(s.now, &deployment, &sets, &s.set.uid);
    plan(&Snapshot { limits, ..s })
}

/// The patch that enlarged the set took effect after the deployment was scaled down.
#[test]
fn a_set_creates_nothing_that_its_deployment_gave_up() {
    let owner = json!([{"kind": "MachineDeployment", "name": "d", "uid": "uid-d", "controller": true}]);
    let late = |desired: u32| {
        let world = world(4)
            .field("/metadata/ownerReferences", owner.clone())
            .field("/metadata/annotations", json!({"deployment.kubernetes.io/desired-replicas": "4"}))
            .machine("a", "Running");
        planned_under(&world, desired).to_string()
    };
    assert!(late(4).contains("reserve numbers"), "{}", late(4));
    expect![[r#"
        why   the size of this MachineSet is outdated: MachineDeployment d wants 1 machine here, and has not written that yet; next: the MachineDeployment writes the new size
        wait  until 2027-01-15T08:00:10Z
    "#]].assert_eq(&late(1));
}

#[test]
fn a_rejected_deletion_waits_for_its_own_back_off() {
    let world = || world(1).machine("a", "Running").machine("b", "Pending");
    world().kept("b", 1, 0).check(expect![[r#"
        why   the API server rejected a change: denied by a webhook; since 2027-01-15T08:00:00Z; next: the controller tries again
        wait  until 2027-01-15T08:00:02Z
    "#]]);
    assert_eq!(world().kept("b", 1, 2).actions(), ["machine b: delete"]);
    assert_eq!(world().kept("b", 3, 7).actions(), [""; 0]);
    let other = || world().machine("c", "Failed").kept("b", 9, 1);
    assert_eq!(other().actions(), ["machine c: delete"], "other Machines do not wait");
    let deleting = || other().field("/metadata/deletionTimestamp", json!(at(-9).to_string()));
    assert_eq!(deleting().kept("a", 9, 1).actions(), ["machine c: delete if owned"]);
}

#[test]
fn another_rejection_with_the_same_message_is_no_news() {
    let hashed = |count| {
        let world = world(1).machine("b", "Pending").refused(count, 1).kept("b", count, 1);
        let mut hasher = fnv::FnvHasher::default();
        world.snapshot().hash(&mut hasher);
        hasher.finish()
    };
    assert_eq!(hashed(1), hashed(2));
}

#[test]
fn a_child_has_the_finalizer_and_the_template() {
    let world = world(1)
        .field("/metadata/annotations", json!({"node.machine.sapcloud.io/effective-creation-timeout": "5m"}))
        .field("/spec/template/metadata/labels", json!({"app": "s", "node": "n"}))
        .field("/spec/template/metadata/annotations", json!({"team": "a"}))
        .field("/spec/template/metadata/finalizers", json!(["example.com/other"]));
    let child = serde_json::to_string_pretty(&child(&world.snapshot().set, "s-1")).expect("writable");
    expect![[r#"
        {
          "apiVersion": "machine.sapcloud.io/v1alpha1",
          "kind": "Machine",
          "metadata": {
            "annotations": {
              "machinepriority.machine.sapcloud.io": "3",
              "node.machine.sapcloud.io/effective-creation-timeout": "5m",
              "team": "a"
            },
            "finalizers": [
              "example.com/other",
              "machine.sapcloud.io/machine-controller-manager"
            ],
            "labels": {
              "app": "s"
            },
            "name": "s-1",
            "namespace": "ns",
            "ownerReferences": [
              {
                "apiVersion": "machine.sapcloud.io/v1alpha1",
                "blockOwnerDeletion": true,
                "controller": true,
                "kind": "MachineSet",
                "name": "s",
                "uid": "uid-s"
              }
            ]
          },
          "spec": {
            "class": {
              "kind": "MachineClass",
              "name": "c"
            },
            "nodeTemplate": {
              "metadata": {},
              "spec": {}
            }
          }
        }"#]]
    .assert_eq(&child);
}

// === deleting Machines ===

#[test]
fn t_76_the_least_useful_machines_are_deleted_first() {
    let priority = |value: &'static str| {
        move |m: &mut Value| {
            m["metadata"]["annotations"]["machinepriority.machine.sapcloud.io"] = value.into()
        }
    };
    let marked = |seconds: i64| {
        move |m: &mut Value| {
            let annotations = &mut m["metadata"]["annotations"];
            annotations["machine.sapcloud.io/marked-for-deletion-time"] = at(seconds).to_string().into();
        }
    };
    let older = |m: &mut Value| m["metadata"]["creationTimestamp"] = at(-200).to_string().into();
    let world = world(0)
        .machine("running", "Running")
        .machine_with("older", "Running", older)
        .machine_with("kept", "Failed", priority("9"))
        .machine("pending", "Pending")
        .machine("new", "")
        .machine("unknown", "Unknown")
        .machine("crashing", "CrashLoopBackOff")
        .machine("failed", "Failed")
        .machine_with("marked", "Running", marked(-10))
        .machine_with("marked-before", "Running", marked(-20))
        .machine_with("chosen", "Running", priority("1"))
        .machine_with("mistyped", "Available", priority("first"));
    let order = world.actions().join("\n").replace("machine ", "").replace(": delete", "");
    expect![[r#"
        chosen
        marked-before
        marked
        new
        failed
        crashing
        unknown
        pending
        mistyped
        older
        running
        kept"#]]
    .assert_eq(&order);
}

#[test]
fn machines_that_are_being_deleted_do_not_count() {
    let world = world(1).machine("a", "Running").machine("b", "Running").leaving("c", "Running");
    assert_eq!(world.actions().len(), 1, "one of two is deleted, because the third is being deleted already");
}

#[test]
fn a_chosen_machine_is_deleted_after_the_replicas_change() {
    let chosen = |m: &mut Value| {
        m["metadata"]["annotations"] = json!({
            "machinepriority.machine.sapcloud.io": "1",
            "machine.sapcloud.io/marked-for-deletion-time": at(-10).to_string(),
        });
    };
    let changed = |seconds: i64| {
        let key = "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time";
        let world = world(2).field("/metadata/annotations", json!({key: at(seconds).to_string()}));
        world.machine("a", "Running").machine_with("b", "Running", chosen)
    };
    assert_eq!(
        changed(-11).actions(),
        [""; 0],
        "the mark is newer than the last change, so the set waits for the next change"
    );
    assert_eq!(changed(-10).actions(), ["machine b: delete"]);
}

#[test]
fn deletions_come_in_batches() {
    let many = world(0).children(0..150, "Running");
    assert_eq!(many.actions().len(), 100);
}

// === Machines with in-place updates ===

fn updated(m: &mut Value) {
    m["metadata"]["labels"]["node.machine.sapcloud.io/update-result"] = "successful".into();
}

#[test]
fn t_75_a_machine_updated_in_place_is_not_deleted_as_surplus() {
    let world = |replicas| {
        let world = world(replicas).machine("a", "Running").machine("b", "Running");
        world.machine_with("moved", "Pending", updated).machine_with("failed", "Failed", updated)
    };
    assert_eq!(world(2).actions(), [""; 0], "two of four count");
    assert_eq!(world(1).actions(), ["machine b: delete"], "a surplus without the label is deleted");
    assert_eq!(
        world(5).actions(),
        ["set: reserve numbers 1:0"],
        "a failed Machine with the label is not deleted either"
    );
    world(2).check(expect![[r#"
        why   Machine moved is being updated in place: it has the label node.machine.sapcloud.io/update-result=successful; next: the Machine moves to the MachineSet of the new template
        wait  until 2027-01-15T08:01:41Z
    "#]]);
}

/// The set of the Machine's new template may not exist before all old Machines are gone.
#[test]
fn recreate_deletes_a_machine_that_was_updated_in_place() {
    let world = |strategy: &str| {
        let old = world(0).machine_with("moved", "Running", updated);
        of_deployment(old, 3, json!({"type": strategy}))
    };
    assert_eq!(world("InPlaceUpdate").actions(), [""; 0]);
    assert_eq!(world("Recreate").actions(), ["machine moved: delete"]);
    let template = world("Recreate").snapshot().set.spec.template.clone();
    let mut same = world("Recreate");
    let deployment = same.deployment.as_mut().expect("a deployment");
    deployment["spec"]["template"] = serde_json::to_value(template).expect("a template");
    assert_eq!(same.actions(), [""; 0], "the Machine has moved already");
}

#[test]
fn the_autoscalers_choice_spares_a_machine_updated_in_place() {
    let chosen = |m: &mut Value| {
        updated(m);
        m["metadata"]["annotations"] = json!({
            "machinepriority.machine.sapcloud.io": "1",
            "machine.sapcloud.io/marked-for-deletion-time": at(-10).to_string(),
        });
    };
    let key = "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time";
    let world = world(2).field("/metadata/annotations", json!({key: at(0).to_string()}));
    assert_eq!(world.machine("a", "Running").machine_with("b", "Running", chosen).actions(), [""; 0]);
}

#[test]
fn a_machine_in_an_update_counts_and_is_not_available() {
    for phase in ["InPlaceUpdating", "InPlaceUpdateFailed"] {
        let world = world(2).machine("a", "Running").machine("b", phase);
        assert_eq!(world.actions(), [""; 0]);
        let message = plan(&world.snapshot()).why.to_string();
        assert!(
            message.starts_with(&format!("Machine b is being updated in place: it is {phase}")),
            "{message}"
        );
        let status = status::of_set(&world.snapshot());
        assert_eq!((status.replicas, status.available_replicas), (2, 1));
        assert_eq!(
            world.field("/spec/replicas", json!(1)).actions(),
            ["machine b: delete"],
            "scaling continues"
        );
    }
}

// === Machines that are preserved ===

fn preserved_until(seconds: i64) -> impl Fn(&mut Value) + Copy {
    move |m| m["status"]["currentStatus"]["preserveExpiryTime"] = at(seconds).to_string().into()
}

fn preserve(value: &'static str) -> impl Fn(&mut Value) + Copy {
    move |m| m["metadata"]["annotations"]["node.machine.sapcloud.io/preserve"] = value.into()
}

#[test]
fn t_80_a_preserved_failed_machine_is_kept() {
    world(2).machine("a", "Running").machine_with("b", "Failed", preserved_until(100)).check(expect![[r#"
        why   Machine b has failed and is preserved until 2027-01-15T08:01:40Z; next: the Node recovers; deadline 2027-01-15T08:01:41Z: the MachineSet deletes and replaces the Machine
        wait  until 2027-01-15T08:01:41Z
    "#]]);
    world(2)
        .machine("a", "Running")
        .machine_with("b", "Failed", preserve("when-failed"))
        .check(expect![[r#"
            why   Machine b has failed and is preserved by its annotation node.machine.sapcloud.io/preserve; next: remove the annotation node.machine.sapcloud.io/preserve to replace the Machine
            wait  until 2027-01-15T08:01:41Z
        "#]]);
    for (value, is_kept) in [
        ("now", true),
        ("when-failed", true),
        ("auto-preserved", true),
        ("false", false),
        ("", false),
        ("Now", false),
    ] {
        let most = i32::from(value == "auto-preserved");
        let world = |replicas| world(replicas).field("/spec/autoPreserveFailedMachineMax", json!(most));
        let kept = world(2).machine("a", "Running").machine_with("b", "Failed", preserve(value));
        assert_eq!(kept.actions().is_empty(), is_kept, "{value:?}");
        let missing = world(3).machine("a", "Running").machine_with("b", "Failed", preserve(value));
        assert_eq!(!missing.actions().contains(&"machine b: delete".to_owned()), is_kept, "{value:?}");
    }
}

#[test]
fn t_80_an_expired_machine_is_deleted_despite_its_annotation() {
    let over = |seconds| {
        world(1).machine_with("b", "Failed", move |m| {
            preserved_until(seconds)(m);
            preserve("now")(m);
        })
    };
    assert_eq!(over(0).actions(), [""; 0], "preserved until the second after the expiry");
    assert_eq!(over(-1).actions(), ["machine b: delete"]);
    let mut skewed = over(-1).snapshot();
    skewed.skew = Duration::from_secs(31);
    assert!(plan(&skewed).actions.is_empty(), "during clock skew nothing is deleted");
}

/// The automatically preserved Machines come before the other preserved Machines.
#[test]
fn t_76_preserved_machines_are_deleted_last() {
    let world = world(0)
        .field("/spec/autoPreserveFailedMachineMax", json!(1))
        .machine_with("later", "Failed", preserved_until(200))
        .machine_with("by-itself", "Failed", |m| {
            preserved_until(900)(m);
            preserve("auto-preserved")(m);
        })
        .machine_with("sooner", "Running", preserved_until(100))
        .machine_with("chosen", "Running", preserve("now"))
        .machine_with("not-failed", "Running", preserve("when-failed"))
        .machine_with("over", "Failed", preserved_until(-100))
        .machine("running", "Running");
    let order = world.actions().join(" ").replace("machine ", "").replace(": delete", "");
    expect!["over running not-failed by-itself sooner later chosen"].assert_eq(&order);
}

#[test]
fn t_81_preserved_machines_do_not_count_as_failed() {
    let world = world(3)
        .machine_with("a", "Failed", preserved_until(100))
        .machine_with("b", "Failed", preserved_until(-100))
        .machine_with("c", "Running", preserved_until(100));
    let status = status::of_set(&world.snapshot());
    let failed: Vec<_> =
        status.failed_machines.iter().filter_map(|machine| machine.name.as_deref()).collect();
    assert_eq!((status.preserved_failed_replicas, failed), (1, vec!["b"]));
}

/// Preservations of Go MCM also apply to this program.
#[test]
fn a_machine_preserved_by_go_survives_the_takeover() {
    let fixture: Value =
        serde_json::from_str(include_str!("../../../../../../fixtures/go-mcm/preserved.json"))
            .expect("a fixture");
    let items = fixture["items"].as_array().expect("a List");
    let of_kind = |kind: &str| items.iter().filter(|item| item["kind"] == kind).cloned().collect::<Vec<_>>();
    let taken_over = |replicas: u32, phase: &str| {
        let mut world = world(replicas);
        world.set = of_kind("MachineSet").remove(0);
        world.set["spec"]["replicas"] = replicas.into();
        world.machines = of_kind("Machine");
        let preserved = world
            .machines
            .iter_mut()
            .find(|machine| machine.pointer("/status/currentStatus/preserveExpiryTime").is_some());
        preserved.expect("one is")["status"]["currentStatus"]["phase"] = phase.into();
        let mut snapshot = world.snapshot();
        snapshot.now = "2026-11-22T00:00:00Z".parse().expect("a moment before the expiry");
        let left = plan(&snapshot).actions.into_iter().filter_map(|action| match action {
            Action::Delete(machine) => Some(machine.name.clone()),
            _ => None,
        });
        left.collect::<Vec<_>>()
    };
    for phase in ["Running", "Unknown", "Failed"] {
        assert_eq!(taken_over(3, phase), [""; 0], "{phase}");
        let others = ["w-7cb75-fcncw", "w-7cb75-vq4pk"];
        let gone = taken_over(1, phase);
        assert!(
            gone.len() == 2 && gone.iter().all(|name| others.contains(&name.as_str())),
            "{phase}: {gone:?}"
        );
    }
}

// === the template ===

#[test]
fn fields_without_a_rollout_reach_active_machines() {
    let world = world(3)
        .field("/spec/template/spec/nodeTemplate", json!({"metadata": {"labels": {"pool": "a"}}}))
        .machine("a", "Running")
        .machine("b", "Failed")
        .machine_with("c", "Running", |m| {
            m["spec"]["nodeTemplate"] = json!({"metadata": {"labels": {"pool": "a"}, "annotations": {}}});
        });
    assert_eq!(world.actions(), ["machine b: delete", "machine a: sync template"]);
}

#[test]
fn empty_fields_and_duration_spellings_are_equal() {
    let spec = json!({
        "class": {"kind": "MachineClass", "name": "c"}, "drainTimeout": "2h",
        "nodeTemplate": {"spec": {"taints": []}},
    });
    let world = world(1).field("/spec/template/spec", spec);
    let world = world.machine_with("a", "Running", |m| m["spec"]["drainTimeout"] = "120m0s".into());
    assert_eq!(world.actions(), [""; 0]);
}

#[test]
fn only_fields_that_differ_are_synced() {
    let theirs = json!({
        "class": {"kind": "MachineClass", "name": "c"}, "drainTimeout": "2h", "maxEvictRetries": 3,
        "healthTimeout": "10m", "nodeTemplate": {"metadata": {"labels": {"pool": "a"}}},
    });
    let ours = json!({
        "class": {"kind": "MachineClass", "name": "other"}, "drainTimeout": "120m", "healthTimeout": "5m",
        "nodeTemplate": {"metadata": {"labels": {"pool": "a"}}, "spec": {"taints": []}},
    });
    let changes = synced_changes(&parse(&ours), &parse(&theirs));
    assert_eq!(
        changes,
        [(&["healthTimeout"][..], Some(json!("5m0s"))), (&["maxEvictRetries"][..], None)],
        "the class is a rollout, and other fields are equal"
    );
}

// === Machines that cannot be parsed ===

impl World {
    /// Adds a child with this number that cannot be parsed.
    fn unreadable(mut self, number: u64) -> Self {
        self.unreadable.push(child_name("s", UID, number));
        self
    }
}

#[test]
fn a_machine_that_cannot_be_parsed_is_not_replaced() {
    let world = world(3).reserved("3:0-2").children(0..2, "Running").unreadable(2);
    let first = child_name("s", UID, 2);
    assert_eq!(world.actions(), [""; 0]);
    let why = plan(&world.snapshot()).why.to_string();
    assert!(why.contains("2 of 3") && why.contains(&first), "{why}");
    let more = world.field("/spec/replicas", 4.into());
    assert_eq!(more.actions(), ["set: reserve numbers 4:3"], "its number is in use");
    let fewer = more.field("/spec/replicas", 2.into());
    assert_eq!(fewer.actions(), [""; 0], "no running Machine is deleted in its place");
}

#[test]
fn a_deleted_set_waits_for_machines_that_cannot_be_parsed() {
    let world = world(1).field("/metadata/deletionTimestamp", at(-60).to_string().into()).unreadable(0);
    world.check(expect![[r#"
        why   waiting for 1 machine to be deleted; the first is s-hf7bf; since 2027-01-15T07:59:00Z; next: correct Machine s-hf7bf, which cannot be parsed: its instance is deleted only after that
        wait  until 2027-01-15T08:01:41Z
    "#]]);
}

// === deletion of the set ===

#[test]
fn a_deleted_set_deletes_its_machines() {
    let deleted = |world: World| world.field("/metadata/deletionTimestamp", at(-60).to_string().into());
    deleted(world(2)).machine("a", "Running").leaving("b", "Running").check(expect![[r#"
        do    machine a: delete if owned
        why   waiting for 2 machines to be deleted; the first is a; since 2027-01-15T07:59:00Z; next: the finalizer is removed after the Machines
        wait  until 2027-01-15T08:01:41Z
    "#]]);
    deleted(world(2)).check(expect![[r#"
        do    set: remove finalizer
        why   removing the finalizer
        wait  for a change
    "#]]);
    deleted(world(2)).field("/metadata/finalizers", json!(["example.com/other"])).check(expect![[r#"
        why   waiting for other clients to remove their finalizers; since 2027-01-15T07:59:00Z; next: each client removes its finalizer
        wait  for a change
    "#]]);
}

#[test]
fn a_deleted_set_keeps_no_machine_that_it_adopted_late() {
    let deleted = || world(2).field("/metadata/deletionTimestamp", at(-60).to_string().into());
    let uid = deleted().machine("a", "Running").snapshot().machines[0].uid.clone();
    let late = |mut world: World, until| {
        let adoption = LateAdoption { uid: uid.clone(), child: "machines ns/a".to_owned(), until: at(until) };
        world.late_adoptions.push(adoption);
        world
    };
    late(deleted(), 20).check(expect![[r#"
        why   the API server has not answered a PATCH of machines ns/a; its outcome is unknown; since 2027-01-15T07:59:00Z; next: the finalizer is removed when the write can no longer take effect
        wait  until 2027-01-15T08:00:20Z
    "#]]);
    let two = || deleted().machine("a", "Running").machine("b", "Running");
    late(two(), 20).check(expect![[r#"
        do    machine a: release
        do    warning ReleasedLateChild: Released Machine a, which was adopted when the deletion had begun: it and its instances stay. Delete it if it is not wanted
        do    machine b: delete if owned
        why   waiting for 2 machines to be deleted; the first is a; since 2027-01-15T07:59:00Z; next: the finalizer is removed after the Machines
        wait  until 2027-01-15T08:01:41Z
    "#]]);
    // The adoption took effect before the deletion began, or never did.
    assert_eq!(late(two(), -91).actions(), ["machine a: delete if owned", "machine b: delete if owned"]);
    assert_eq!(late(deleted(), 0).actions(), ["set: remove finalizer"]);
}

#[test]
fn a_set_that_is_orphaned_deletes_no_machine() {
    let finalizers = json!(["machine.sapcloud.io/machine-controller-manager", "orphan"]);
    let deleted = |world: World| world.field("/metadata/deletionTimestamp", at(-60).to_string().into());
    let world = deleted(world(2)).machine("a", "Running").field("/metadata/finalizers", finalizers);
    world.check(expect![[r#"
        why   waiting for the garbage collector to release the children; since 2027-01-15T07:59:00Z; next: the garbage collector removes its finalizer
        wait  until 2027-01-15T08:01:41Z
    "#]]);
}

// === status ===

#[test]
fn the_status_counts_machines_and_is_written_once() {
    let mut world = world(3)
        .machine("a", "Running")
        .machine_with("b", "Available", |m| m["metadata"]["labels"] = json!({"app": "s", "extra": "1"}))
        .leaving("c", "Running")
        .machine_with("d", "CrashLoopBackOff", |m| {
            m["spec"]["providerID"] = "sim:///i-4".into();
            m["status"]["lastOperation"] = json!({
                "description": "request 17 was refused", "errorCode": "ResourceExhausted",
                "lastUpdateTime": at(-5).to_string(), "state": "Failed", "type": "Create",
            });
        });
    world.status_written = None;
    let written = status::of_set(&world.snapshot());
    expect![[r#"
        {
          "replicas": 4,
          "fullyLabeledReplicas": 4,
          "readyReplicas": 1,
          "availableReplicas": 2,
          "observedGeneration": 3,
          "lastOperation": {
            "lastUpdateTime": "2027-01-15T08:00:00Z"
          },
          "failedMachines": [
            {
              "name": "d",
              "providerID": "sim:///i-4",
              "lastOperation": {
                "description": "request 17 was refused",
                "errorCode": "ResourceExhausted",
                "lastUpdateTime": "2027-01-15T07:59:55Z",
                "state": "Failed",
                "type": "Create"
              },
              "ownerRef": "s"
            }
          ]
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&written).expect("writable"));
    world.set["status"] = serde_json::to_value(&written).expect("writable");
    assert_eq!(world.actions(), [""; 0], "nothing but times would change");
    world.machines[3]["status"]["lastOperation"]["description"] = "request 18 was refused".into();
    assert_eq!(world.actions(), [""; 0], "a different message of the same failure causes no write");
    world.machines[3]["status"]["lastOperation"]["errorCode"] = "Unavailable".into();
    assert_eq!(world.actions(), ["status: 4 replicas, 2 available, 1 ready"]);
}

#[test]
fn a_status_is_written_at_most_once_a_second() {
    let mut world = world(1).machine("a", "Running");
    world.status_written = Some(at(0) - Duration::from_millis(400));
    world.check(expect![[r#"
        why   up to date
        wait  until 2027-01-15T08:00:00.6Z
    "#]]);
}

#[test]
fn a_rejection_is_a_condition_until_it_is_resolved() {
    let mut world = world(2).reserved("2:0-1").refused(1, 1);
    let refused = status::of_set(&world.snapshot());
    assert_eq!(refused.conditions.len(), 1);
    expect![[r#"MachineSetCondition { type_: "ReplicaFailure", status: True, last_transition_time: Some(Time(2027-01-15T08:00:00Z)), reason: Some("FailedCreate"), message: Some("quota exceeded") }"#]].assert_eq(&format!("{:?}", refused.conditions[0]));
    world.set["status"] = serde_json::to_value(&refused).expect("writable");
    world.failure = None;
    assert_eq!(status::of_set(&world.snapshot()).conditions, []);
}

#[test]
fn conditions_of_other_clients_stay() {
    let frozen = json!({"type": "Frozen", "status": "True", "reason": "OverShootingReplicaCount"});
    let world = world(0).field("/status", json!({"machineSetCondition": [frozen]}));
    assert_eq!(status::of_set(&world.snapshot()).conditions[0].type_, "Frozen");
}

fn create(numbers: impl IntoIterator<Item = u64>) -> Vec<String> {
    let name = |number| child_name("s", UID, number);
    numbers.into_iter().map(|number| format!("machine {}: create, number {number}", name(number))).collect()
}
