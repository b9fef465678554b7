//! Tests of the deployment planner: each test builds a snapshot and checks the plan.

mod acceptance;
mod chosen;
mod freeze;
mod hash_sync;
mod in_place;
mod node_marks;
mod preserve;
mod raises;
mod recreate;
mod rollback;
mod sizes;
mod status;

use std::collections::BTreeSet;

use expect_test::{Expect, expect};
use jiff::Timestamp;
use machinist_api::GoDuration;
use machinist_core::{FreshRead, Freshness, Silence};
use serde_json::{Value, json};

use super::*;
use crate::mcm::facts::{MachineDeploymentFacts, MachineFacts};
use crate::mcm::late_adoption::LateAdoption;
use crate::testing::{self, NOW, at};

const UID: &str = "uid-w";

/// A deployment and the objects around it. A test changes them step by step into its situation.
#[derive(Clone)]
struct World {
    deployment: Value,
    sets: Vec<(Value, Vec<Value>)>,
    free: Vec<Value>,
    taken: BTreeSet<String>,
    looked_for: BTreeSet<String>,
    set_failure: Option<String>,
    protects_nodes: bool,
    status_written: Option<Timestamp>,
    open_raises: Vec<OpenRaise>,
    late_adoptions: Vec<LateAdoption>,
    predecessor_until: Option<Timestamp>,
}

/// A deployment with that many replicas, class `c`, maxSurge 1, maxUnavailable 0 and no sets.
fn world(replicas: u32) -> World {
    let deployment = json!({
        "metadata": {
            "name": "w", "namespace": "ns", "uid": UID, "generation": 5,
            "finalizers": ["machine.sapcloud.io/machine-controller-manager"],
            "annotations": {"deployment.kubernetes.io/revision": "1"},
        },
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"name": "w"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": template("c"),
        },
    });
    // Only the tests about statuses check status writes.
    let status_written = Some(at(100));
    World {
        deployment,
        sets: Vec::new(),
        free: Vec::new(),
        taken: BTreeSet::new(),
        looked_for: BTreeSet::new(),
        set_failure: None,
        // Only the tests about marks on Nodes check them.
        protects_nodes: false,
        status_written,
        open_raises: Vec::new(),
        late_adoptions: Vec::new(),
        predecessor_until: None,
    }
}

fn template(class: &str) -> Value {
    json!({
        "metadata": {"labels": {"name": "w"}},
        "spec": {"class": {"kind": "MachineClass", "name": class}, "nodeTemplate": {}},
    })
}

/// A set with the annotations of a deployment with `desired` replicas.
fn set(name: &str, class: &str, replicas: u32, desired: u32) -> Value {
    let mut template = template(class);
    template["metadata"]["labels"]["machine-template-hash"] = class.into();
    json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": format!("uid-{name}"), "generation": 1,
            "creationTimestamp": at(-1000).to_string(), "labels": {"name": "w"},
            "annotations": {
                "deployment.kubernetes.io/revision": "1",
                "deployment.kubernetes.io/desired-replicas": desired.to_string(),
                "deployment.kubernetes.io/max-replicas": (desired + 1).to_string(),
            },
        },
        "spec": {
            "replicas": replicas, "template": template,
            "selector": {"matchLabels": {"name": "w", "machine-template-hash": class}},
        },
    })
}

fn machine(name: &str, phase: &str) -> Value {
    let mut machine = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"), "labels": {"name": "w"}},
        "spec": {"class": {"kind": "MachineClass", "name": "c"}, "nodeTemplate": {}},
        "status": {"currentStatus": {"phase": phase}},
    });
    if phase == "Terminating" {
        machine["metadata"]["deletionTimestamp"] = at(-10).to_string().into();
    }
    machine
}

fn parse<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).expect("test objects are well-formed")
}

impl World {
    /// Adds a set of that class with Machines of these phases, sized for the deployment's replicas.
    fn set(self, name: &str, class: &str, replicas: u32, phases: &[&str]) -> Self {
        self.set_with(name, class, replicas, phases, |_| {})
    }

    fn set_with(
        mut self,
        name: &str,
        class: &str,
        replicas: u32,
        phases: &[&str],
        change: impl FnOnce(&mut Value),
    ) -> Self {
        let desired =
            self.deployment["spec"]["replicas"].as_u64().and_then(|count| u32::try_from(count).ok());
        let mut set = set(name, class, replicas, desired.expect("a small number"));
        let revision = if class == "c" { "1" } else { "0" };
        set["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = revision.into();
        let age = i64::try_from(self.sets.len()).expect("few sets");
        set["metadata"]["creationTimestamp"] = at(age - 1000).to_string().into();
        change(&mut set);
        let machines = phases.iter().enumerate().map(|(i, phase)| machine(&format!("{name}-{i}"), phase));
        self.sets.push((set, machines.collect()));
        self
    }

    fn field(mut self, pointer: &str, value: Value) -> Self {
        testing::set(&mut self.deployment, pointer, value);
        self
    }

    fn bounds(self, surge: Value, unavailable: Value) -> Self {
        self.field("/spec/strategy/rollingUpdate", json!({"maxSurge": surge, "maxUnavailable": unavailable}))
    }

    fn snapshot(&self) -> Snapshot {
        let set = |set: &Value| Arc::new(MachineSetFacts::parse(&parse(set)));
        let machine = |machine: &Value| Arc::new(MachineFacts::parse(&parse(machine)));
        Snapshot {
            now: at(0),
            deployment: Arc::new(MachineDeploymentFacts::parse(&parse(&self.deployment))),
            sets: self
                .sets
                .iter()
                .map(|(owned, machines)| Owned {
                    set: set(owned),
                    machines: machines.iter().map(machine).collect(),
                    unreadable: 0,
                })
                .collect(),
            unreadable_sets: Vec::new(),
            machines_freshness: Freshness::Fresh,
            adoptable: self.free.iter().map(set).collect(),
            taken_names: self.taken.clone(),
            looked_for: self.looked_for.clone(),
            set_failure: self.set_failure.clone(),
            protects_nodes: self.protects_nodes,
            status_written: self.status_written,
            open_raises: self.open_raises.clone(),
            late_adoptions: self.late_adoptions.clone(),
            predecessor_until: self.predecessor_until,
        }
    }

    fn actions(&self) -> Vec<String> {
        plan(&self.snapshot()).actions.iter().map(ToString::to_string).collect()
    }

    /// Returns the replicas of each set after the plan is performed.
    fn sizes(&self) -> Vec<u32> {
        let s = self.snapshot();
        let actions = plan(&s).actions;
        let resized = |name: &str| {
            actions.iter().find_map(|action| match action {
                Action::PatchSet(patch) if patch.set.name == name => patch.replicas,
                _ => None,
            })
        };
        s.sets.iter().map(|owned| resized(&owned.set.name).unwrap_or(owned.set.replicas())).collect()
    }

    fn reason(&self) -> String {
        plan(&self.snapshot()).why.reason.to_string()
    }

    fn check(self, expected: Expect) {
        expected.assert_eq(&plan(&self.snapshot()).to_string());
    }
}

const RUNNING: &str = "Running";

// === the deployment itself ===

#[test]
fn a_deployment_of_a_user_gets_its_finalizer_first() {
    world(3).field("/metadata/finalizers", json!([])).check(expect![[r#"
        do    deployment: add finalizer
        why   adding the finalizer
        wait  for a change
    "#]]);
}

#[test]
fn t_83_t_84_an_invalid_deployment_is_not_reconciled() {
    for (pointer, value, expected) in [
        ("/spec/selector", json!({}), "spec.selector is empty"),
        ("/spec/strategy", json!({"type": "RollingUpdate"}), "spec.strategy.rollingUpdate: expected"),
        ("/spec/strategy", json!({"type": "Dummy"}), "spec.strategy.type: expected"),
        ("/spec/replicas", json!(-1), "spec.replicas: expected 0 or more"),
    ] {
        let mut world = world(3).set("w-1", "c", 1, &[RUNNING]).field(pointer, value);
        world.status_written = None;
        let plan = plan(&world.snapshot());
        assert!(plan.why.reason.to_string().contains(expected), "{plan}");
        let [Action::Warn(event), Action::SetStatus(status)] = plan.actions.as_slice() else {
            panic!("{plan}")
        };
        assert!(event.message.contains(expected), "{plan}");
        let failure = status.conditions.iter().find(|condition| condition.type_ == "ReplicaFailure");
        let message = failure.and_then(|condition| condition.message.clone()).unwrap_or_default();
        assert!(message.contains(expected), "{message}");
        let of = |kind: &str| {
            let found = status.conditions.iter().find(|condition| condition.type_ == kind).expect(kind);
            format!("{} {}", found.status, found.reason.as_deref().unwrap_or_default())
        };
        let reason = if pointer == "/spec/selector" { "SelectingAll" } else { "InvalidSpec" };
        assert_eq!(of("Progressing"), format!("False {reason}"));
        assert_eq!(of("ReplicaFailure"), format!("True {reason}"));
        let enough = if pointer == "/spec/replicas" {
            "True MinimumReplicasAvailable"
        } else {
            "False MinimumReplicasUnavailable"
        };
        assert_eq!(of("Available"), enough, "one Machine is available, {pointer}");

        world.deployment["status"] = serde_json::to_value(status).expect("writable");
        assert_eq!(world.actions(), [""; 0], "the error is reported once");
    }
}

/// Otherwise the deployment would release each set that it creates, with its Machines.
#[test]
fn no_set_is_created_that_would_not_be_selected() {
    let other = json!({"key": "name", "operator": "NotIn", "values": ["w"]});
    let unknown = json!({"key": "name", "operator": "Maybe", "values": ["w"]});
    let hash = json!({"key": "machine-template-hash", "operator": "DoesNotExist"});
    let hashes = json!({"key": "machine-template-hash", "operator": "In", "values": ["1", "2"]});
    for (expression, expected) in [
        (other, "spec.selector.matchExpressions[0]: expected the template's label name to be none of w"),
        (unknown, "spec.selector.matchExpressions[0].operator: expected In, NotIn, Exists"),
        (hash, "spec.selector.matchExpressions[0]: expected another key than machine-template-hash"),
        (hashes, "spec.selector: expected to select the template's labels with machine-template-hash="),
    ] {
        let selector = json!({"matchLabels": {"name": "w"}, "matchExpressions": [expression]});
        let plan = plan(&world(3).field("/spec/selector", selector).snapshot());
        assert!(plan.why.reason.to_string().contains(expected), "{plan}");
        assert!(!plan.actions.iter().any(|action| matches!(action, Action::CreateSet(_))), "{plan}");
    }
    let exists = json!({"key": "machine-template-hash", "operator": "Exists"});
    let selector = json!({"matchLabels": {"name": "w"}, "matchExpressions": [exists]});
    let plan = plan(&world(3).field("/spec/selector", selector).snapshot());
    assert!(plan.actions.iter().any(|action| matches!(action, Action::CreateSet(_))), "{plan}");
}

#[test]
fn t_83_an_invalid_empty_deployment_is_not_available() {
    let mut world = world(0).field("/spec/selector", json!({}));
    world.status_written = None;
    world.clone().check(expect![[r#"
        do    warning SelectingAll: spec.selector is empty and would select every machine: expected at least one label
        do    status: 0 replicas, 0 updated, 0 available
        why   invalid spec: spec.selector is empty and would select every machine: expected at least one label; next: fix spec.selector
        wait  for a change
    "#]]);
    let plan = plan(&world.snapshot());
    let Some(Action::SetStatus(status)) = plan.actions.last() else { panic!("{plan}") };
    let available = status.conditions.iter().find(|condition| condition.type_ == "Available");
    let message = available.and_then(|condition| condition.message.as_deref()).unwrap_or_default();
    assert!(message.starts_with("Deployment is not reconciled: spec.selector is empty"), "{message}");
    world.deployment["status"] = serde_json::to_value(status).expect("writable");
    let actions = world.field("/spec/replicas", json!(-1)).actions();
    assert!(actions[0].starts_with("warning InvalidSpec: spec.replicas: expected 0 or more"), "{actions:?}");
}

#[test]
fn t_89_a_deleted_deployment_deletes_its_sets() {
    let deleted = |world: World| world.field("/metadata/deletionTimestamp", at(-60).to_string().into());
    deleted(world(1)).set("w-1", "c", 1, &[RUNNING]).check(expect![[r#"
        do    set w-1: delete if owned
        why   waiting for 1 machine to be deleted; the first is w-1-0; since 2027-01-15T07:59:00Z; next: the finalizer is removed after the Machines and MachineSets
        wait  until 2027-01-15T08:01:41Z
    "#]]);
    let leaving = |set: &mut Value| set["metadata"]["deletionTimestamp"] = at(-60).to_string().into();
    deleted(world(1)).set_with("w-1", "c", 1, &["Terminating"], leaving).check(expect![[r#"
        why   waiting for 1 machine to be deleted; the first is w-1-0; since 2027-01-15T07:59:00Z; next: the finalizer is removed after the Machines and MachineSets
        wait  until 2027-01-15T08:01:41Z
    "#]]);
    deleted(world(1)).check(expect![[r#"
        do    deployment: remove finalizer
        why   removing the finalizer
        wait  for a change
    "#]]);
}

#[test]
fn a_deleted_deployment_keeps_no_set_that_it_adopted_late() {
    let late = |until, set: bool| {
        let mut world = world(1).field("/metadata/deletionTimestamp", at(-60).to_string().into());
        let uid = world.clone().set("w-1", "c", 1, &[RUNNING]).snapshot().sets[0].set.uid.clone();
        let child = "machinesets ns/w-1".to_owned();
        world.late_adoptions.push(LateAdoption { uid, child, until: at(until) });
        if set { world.set("w-1", "c", 1, &[RUNNING]).actions() } else { world.actions() }
    };
    assert_eq!(late(20, false), Vec::<String>::new());
    let released = late(20, true);
    assert_eq!(released[0], "set w-1: release");
    assert!(released[1].starts_with("warning ReleasedLateChild: Released MachineSet w-1"), "{released:?}");
    assert_eq!(late(-91, true), ["set w-1: delete if owned"]);
    assert_eq!(late(0, false), ["deployment: remove finalizer"]);
}

/// The set may have all the Machines that the deployment wants.
#[test]
fn a_set_that_cannot_be_parsed_stops_the_deployment() {
    let deleted = world(2).field("/metadata/deletionTimestamp", at(-60).to_string().into());
    for world in [world(2), deleted] {
        let decided = plan(&Snapshot { unreadable_sets: vec!["w-1".to_owned()], ..world.snapshot() });
        assert!(decided.actions.is_empty(), "{}", decided.why);
        assert!(decided.why.to_string().contains("its MachineSet w-1 cannot be parsed"), "{}", decided.why);
    }
}

#[test]
fn a_deployment_that_is_orphaned_deletes_no_set() {
    let finalizers = json!(["machine.sapcloud.io/machine-controller-manager", "orphan"]);
    let world = world(1).field("/metadata/deletionTimestamp", at(-60).to_string().into());
    world.set("w-1", "c", 1, &[RUNNING]).field("/metadata/finalizers", finalizers).check(expect![[r#"
        why   waiting for the garbage collector to release the children; since 2027-01-15T07:59:00Z; next: the garbage collector removes its finalizer
        wait  until 2027-01-15T08:01:41Z
    "#]]);
}

// === the set of the template ===

#[test]
fn t_82_the_first_set_is_created_at_full_size() {
    world(3).check(expect![[r#"
        do    set w-ldrzh: create with 3 replicas
        why   creating the MachineSet; next: the set creates its Machines
        wait  until 2027-01-15T08:01:41Z
    "#]]);
}

#[test]
fn a_new_set_has_the_template_and_selects_its_machines() {
    let world = world(3).field(
        "/metadata/annotations",
        json!({"team": "a", "kubectl.kubernetes.io/last-applied-configuration": "{}",
               "node.machine.sapcloud.io/trigger-deletion-by-mcm": "m~t"}),
    );
    let created = plan(&world.snapshot()).actions.into_iter().find_map(|action| match action {
        Action::CreateSet(set) => Some(set),
        _ => None,
    });
    let set = created.expect("it creates a set");
    expect![[r#"
        {
          "apiVersion": "machine.sapcloud.io/v1alpha1",
          "kind": "MachineSet",
          "metadata": {
            "annotations": {
              "deployment.kubernetes.io/desired-replicas": "3",
              "deployment.kubernetes.io/max-replicas": "4",
              "deployment.kubernetes.io/revision": "1",
              "team": "a"
            },
            "finalizers": [
              "machine.sapcloud.io/machine-controller-manager"
            ],
            "labels": {
              "machine-template-hash": "333065582",
              "name": "w"
            },
            "name": "w-ldrzh",
            "namespace": "ns",
            "ownerReferences": [
              {
                "apiVersion": "machine.sapcloud.io/v1alpha1",
                "blockOwnerDeletion": true,
                "controller": true,
                "kind": "MachineDeployment",
                "name": "w",
                "uid": "uid-w"
              }
            ]
          },
          "spec": {
            "replicas": 3,
            "selector": {
              "matchLabels": {
                "machine-template-hash": "333065582",
                "name": "w"
              }
            },
            "machineClass": {},
            "template": {
              "metadata": {
                "labels": {
                  "machine-template-hash": "333065582",
                  "name": "w"
                }
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
            }
          }
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&set).expect("writable"));
    let facts = MachineSetFacts::parse(&set);
    assert_eq!(facts.invalid, None);
    let child = crate::mcm::machine_set::child(&facts, "x");
    let selector = facts.selector.as_ref().expect("a selector");
    assert!(selector.selects(child.metadata.labels.as_ref().expect("labels")));
}

#[test]
fn a_set_beside_others_starts_empty() {
    let world = world(3).set("w-1", "b", 3, &[RUNNING; 3]);
    assert_eq!(world.actions(), [format!("set {}: create with 0 replicas", name(&world, 0))]);
    let leftovers = world_of_leftovers();
    assert_eq!(leftovers.actions(), [format!("set {}: create with 0 replicas", name(&leftovers, 0))]);
}

fn world_of_leftovers() -> World {
    world(3).set("w-1", "b", 0, &["Terminating"; 3])
}

fn name(world: &World, attempt: u32) -> String {
    set_name(&world.snapshot().deployment, attempt)
}

#[test]
fn a_taken_name_is_skipped() {
    let mut world = world(3);
    world.taken.insert(name(&world, 0));
    assert_eq!(world.actions(), [format!("set {}: create with 0 replicas", name(&world, 1))]);
    let all: Vec<_> = (0..NAME_ATTEMPTS).map(|attempt| name(&world, attempt)).collect();
    world.taken.extend(all);
    world.check(expect![[r#"
        why   the API server rejected a change: no free name for a MachineSet of w: every name tried is taken; next: delete MachineSets of other owners
        wait  until 2027-01-15T08:01:41Z
    "#]]);
}

#[test]
fn a_taken_name_is_counted_as_a_collision() {
    let mut world = world(3);
    world.status_written = None;
    let collisions = |world: &World| {
        let plan = plan(&world.snapshot());
        let written = plan.actions.iter().find_map(|action| match action {
            Action::SetStatus(status) => Some(status.collision_count),
            _ => None,
        });
        written.unwrap_or_else(|| panic!("{plan}"))
    };
    assert_eq!(collisions(&world), None);
    world.taken.insert(name(&world, 0));
    assert_eq!(collisions(&world), Some(1));
}

/// Otherwise another program that changes each set would make the deployment create sets without
/// end.
#[test]
fn names_do_not_go_on_behind_earlier_collisions() {
    let mut world = world(3);
    world.deployment["status"] = json!({"collisionCount": NAME_ATTEMPTS});
    world.taken.extend((0..NAME_ATTEMPTS).map(|attempt| name(&world, attempt)).collect::<Vec<_>>());
    let plan = plan(&world.snapshot());
    assert!(plan.why.reason.to_string().contains("no free name for a MachineSet"), "{plan}");
    assert!(!plan.actions.iter().any(|action| matches!(action, Action::CreateSet(_))), "{plan}");
}

/// Otherwise, the condition would remain the condition of the last rollout, and the deadline would
/// never pass.
#[test]
fn a_rejected_set_is_a_condition_before_it_is_tried_again() {
    let mut world = world(3);
    world.status_written = None;
    world.set_failure = Some("quota exceeded".to_owned());
    let plan = plan(&world.snapshot());
    let [Action::Warn(_), Action::SetStatus(status), Action::CreateSet(_)] = plan.actions.as_slice() else {
        panic!("{plan}")
    };
    let progressing = status.conditions.iter().find(|c| c.type_ == "Progressing").expect("a condition");
    assert_eq!(progressing.status, machinist_api::ConditionStatus::False);
    assert_eq!(progressing.reason.as_deref(), Some("MachineSetCreateError"));
    assert_eq!(progressing.message.as_deref(), Some("quota exceeded"));
}

#[test]
fn uncontrolled_sets_are_adopted_before_a_set_is_created() {
    let mut world = world(3);
    world.free = vec![set("w-1", "c", 3, 3), set("w-2", "c", 3, 3), set("other", "c", 3, 3)];
    world.free[1]["metadata"]["deletionTimestamp"] = at(-1).to_string().into();
    world.free[2]["metadata"]["labels"] = json!({"name": "other"});
    assert_eq!(world.actions(), ["set w-1: adopt"]);
}

#[test]
fn a_set_that_no_longer_matches_is_released() {
    let mut world = world(3);
    world.sets = vec![(set("w-1", "c", 3, 3), vec![]), (set("w-2", "d", 1, 3), vec![])];
    world.sets[1].0["metadata"]["labels"]["name"] = "another".into();
    assert_eq!(world.actions(), ["set w-2: release"]);
    world.sets[1].0["metadata"]["deletionTimestamp"] = at(-1).to_string().into();
    assert!(!world.actions().contains(&"set w-2: release".to_owned()), "it is deleted with its Machines");
}

#[test]
fn templates_are_compared_by_meaning() {
    let parse =
        |value: Value| serde_json::from_value::<machinist_api::MachineTemplateSpec>(value).expect("readable");
    let ours = parse(template("c"));
    for same in [
        json!({"metadata": {"labels": {"name": "w", "machine-template-hash": "1"}, "creationTimestamp": null},
               "spec": {"class": {"kind": "AWSMachineClass", "name": "c", "apiGroup": ""}, "providerID": ""}}),
        json!({"metadata": {"labels": {"name": "w"}, "annotations": {}, "ownerReferences": []},
               "spec": {"class": {"name": "c"}, "drainTimeout": "5m",
                        "nodeTemplate": {"metadata": {"labels": {"a": "b"}}}}}),
    ] {
        assert!(is_same_template(&ours, &parse(same.clone())), "{same}");
    }
    for other in [
        template("d"),
        json!({"metadata": {"labels": {"name": "w", "tier": ""}}, "spec": {"class": {"name": "c"}}}),
        json!({"metadata": {}, "spec": {"class": {"name": "c"}}}),
        json!({"metadata": {"labels": {"name": "w"}, "annotations": {"a": "b"}}, "spec": {"class": {"name": "c"}}}),
        json!({"metadata": {"labels": {"name": "w"}}, "spec": {"class": {"name": "c", "apiGroup": "g"}}}),
    ] {
        assert!(!is_same_template(&ours, &parse(other.clone())), "{other}");
    }
}

#[test]
fn a_set_that_is_being_deleted_does_not_count() {
    let leaving = |set: &mut Value| set["metadata"]["deletionTimestamp"] = at(-1).to_string().into();
    let world = world(3).set_with("w-1", "c", 3, &[RUNNING; 3], leaving).set("w-0", "b", 3, &[RUNNING; 3]);
    // Its three Machines will be deleted, so the old set keeps all of its own, and a new set is
    // created.
    assert_eq!(world.actions().len(), 1);
    assert!(world.actions()[0].ends_with("create with 0 replicas"), "{:?}", world.actions());
    let successor = world.set("w-2", "c", 0, &[]);
    assert_eq!(successor.sizes(), [3, 3, 0], "no room until these Machines are deleted");
}

// === what reaches a set without a rollout ===

#[test]
fn a_settled_deployment_writes_nothing() {
    let world = world(3).set("w-1", "c", 3, &[RUNNING; 3]);
    assert_eq!(world.actions(), [""; 0]);
}

#[test]
fn the_new_set_follows_the_parts_that_need_no_rollout() {
    let world = world(3)
        .field("/spec/template/spec/nodeTemplate", json!({"metadata": {"labels": {"pool": "a"}}}))
        .field("/spec/template/spec/healthTimeout", "5m".into())
        .set("w-1", "c", 3, &[RUNNING; 3])
        .set("w-0", "b", 0, &[]);
    let plan = plan(&world.snapshot());
    let [Action::PatchSet(patch)] = plan.actions.as_slice() else { panic!("{plan}") };
    let spec = &patch.template.as_ref().expect("the template").spec;
    assert_eq!((patch.set.name.as_str(), patch.replicas), ("w-1", None));
    assert_eq!(spec.node_template.metadata.labels["pool"], "a");
    assert_eq!(spec.configuration.health_timeout(), Some(GoDuration::from_seconds(300)));
}

#[test]
fn ready_seconds_that_were_removed_are_reset() {
    let waits = |set: &mut Value| set["spec"]["minReadySeconds"] = 30.into();
    let world = world(1).set_with("w-1", "c", 1, &[RUNNING], waits);
    let plan = plan(&world.snapshot());
    let [Action::PatchSet(patch)] = plan.actions.as_slice() else { panic!("{plan}") };
    assert_eq!(patch.template.as_ref().map(|template| template.min_ready_seconds), Some(Some(0)));
}

#[test]
fn t_96_annotations_are_copied_but_not_its_own() {
    let world = |annotations: Value| {
        let world = world(1).field("/metadata/annotations", annotations);
        world.set("w-1", "c", 1, &[RUNNING]).set("w-0", "b", 0, &[])
    };
    let copied = world(json!({"deployment.kubernetes.io/revision": "1", "team": "a"}));
    assert_eq!(copied.actions(), ["set w-1: annotations team"]);
    let last_change = "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time";
    let all = world(json!({
        "team": "a", last_change: at(-5).to_string(), "safety.machine.sapcloud.io/unfreeze": "",
        "node.machine.sapcloud.io/trigger-deletion-by-mcm": "m", "kubectl.kubernetes.io/last-applied-configuration": "{}",
    }));
    let copied = copied_annotations(&all.snapshot().deployment);
    assert_eq!(copied.into_keys().collect::<Vec<_>>(), [last_change, "team"]);
}

#[test]
fn a_template_that_returns_is_a_new_revision() {
    let revision = |revision: &'static str, history: &'static str| {
        move |set: &mut Value| {
            let annotations = &mut set["metadata"]["annotations"];
            annotations["deployment.kubernetes.io/revision"] = revision.into();
            annotations["deployment.kubernetes.io/revision-history"] = history.into();
        }
    };
    let world = world(1)
        .set_with("w-1", "c", 0, &[], revision("1", "90,91,92,93,94,95,96,97,98,99"))
        .set_with("w-2", "b", 1, &[RUNNING], revision("2", ""));
    let plan = plan(&world.snapshot());
    let Some(Action::PatchSet(patch)) = plan.actions.first() else { panic!("{plan}") };
    assert_eq!(patch.annotations["deployment.kubernetes.io/revision"].as_deref(), Some("3"));
    assert_eq!(
        patch.annotations["deployment.kubernetes.io/revision-history"].as_deref(),
        Some("91,92,93,94,95,96,97,98,99,1")
    );
    assert!(world.actions().contains(&"deployment: annotate deployment.kubernetes.io/revision=3".to_owned()));
}

/// Gives a set the status of an empty set.
fn is_empty(set: &mut Value) {
    set["status"] = json!({"observedGeneration": 1});
}

#[test]
fn empty_sets_beyond_the_limit_are_deleted_oldest_first() {
    let leaving = |set: &mut Value| set["metadata"]["deletionTimestamp"] = at(-1).to_string().into();
    let world = |limit: Value| {
        world(1)
            .field("/spec/revisionHistoryLimit", limit)
            .set_with("w-1", "a", 0, &[], is_empty)
            .set_with("w-2", "a", 0, &[], leaving)
            .set_with("w-3", "a", 0, &[], is_empty)
            .set_with("w-4", "a", 0, &[], is_empty)
            .set("w-5", "c", 1, &[RUNNING])
    };
    assert_eq!(world(Value::Null).actions(), [""; 0], "without a limit all sets are kept");
    assert_eq!(world(json!(2)).actions(), ["set w-1: delete"]);
    assert_eq!(world(json!(0)).actions(), ["set w-1: delete", "set w-3: delete", "set w-4: delete"]);
    for (status, why) in [
        (json!({"observedGeneration": 1, "replicas": 1}), "its status counts a Machine"),
        (json!({"observedGeneration": 0}), "its status is about an older spec"),
        (Value::Null, "it has no status"),
    ] {
        let mut world = world(json!(2));
        world.sets[0].0["status"] = status;
        assert_eq!(world.actions(), [""; 0], "{why}");
    }
}

#[test]
fn old_sets_are_kept_until_the_rollout_is_complete() {
    let world = |phases: &[&str]| {
        let world = world(2).field("/spec/revisionHistoryLimit", json!(0));
        world.set_with("w-1", "a", 0, &[], is_empty).set("w-2", "c", 2, phases)
    };
    assert_eq!(world(&[RUNNING, "Pending"]).actions(), [""; 0]);
    assert_eq!(world(&[RUNNING; 2]).actions(), ["set w-1: delete"]);
    let paused = world(&[RUNNING, "Pending"]).field("/spec/paused", true.into());
    assert_eq!(paused.actions(), ["set w-1: delete"]);
    // Only the oldest sets beyond the limit are candidates. A candidate with Machines is kept, and
    // no younger set is deleted instead.
    let mut limited = paused.field("/spec/revisionHistoryLimit", json!(1));
    limited.sets.insert(0, (set("w-0", "b", 1, 2), vec![machine("w-0-0", RUNNING)]));
    limited.sets[0].0["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "0".into();
    assert_eq!(limited.actions(), [""; 0]);
}

// === a deployment that is frozen ===

const UNFREEZE: &str = "safety.machine.sapcloud.io/unfreeze";

fn freeze(object: &mut Value, conditions: &str) {
    object["metadata"]["labels"]["freeze"] = "True".into();
    object["status"][conditions] = json!([
        {"type": "Progressing", "status": "True"},
        {"type": "Frozen", "status": "True", "reason": "OverShootingReplicaCount"},
    ]);
}

fn freeze_set(set: &mut Value) {
    freeze(set, "machineSetCondition");
}

/// A deployment as Go's machine-controller-manager freezes it.
fn frozen() -> World {
    let mut world = world(3);
    freeze(&mut world.deployment, "conditions");
    world
}

#[test]
fn a_deployment_thaws_when_its_last_set_has_thawed() {
    let frozen_set = frozen().set("w-1", "c", 3, &[RUNNING; 3]).set_with("w-2", "b", 1, &[], freeze_set);
    assert!(
        !frozen_set.actions().iter().any(|action| action.contains("freeze")),
        "{:?}",
        frozen_set.actions()
    );
    let thawed = frozen().set("w-1", "c", 3, &[RUNNING; 3]);
    assert_eq!(thawed.actions(), ["deployment: remove condition Frozen", "deployment: remove freeze"]);
    let by_label =
        world(3).field("/metadata/labels", json!({"freeze": "True"})).set("w-1", "c", 3, &[RUNNING; 3]);
    assert_eq!(by_label.actions(), ["deployment: remove freeze"]);
}

#[test]
fn a_frozen_deployment_copies_unfreeze_to_its_sets_first() {
    let asked = |world: World| {
        let mut world = world;
        world.deployment["metadata"]["annotations"][UNFREEZE] = "now".into();
        world
    };
    let lifting = asked(frozen()).set("w-1", "c", 3, &[RUNNING; 3]).set_with("w-2", "b", 1, &[], freeze_set);
    assert_eq!(lifting.actions(), ["set w-2: annotations unfreeze"]);
    // The set has the annotation, or its freeze was lifted. Then the deployment no longer needs the
    // annotation.
    let has_it = |set: &mut Value| {
        freeze_set(set);
        set["metadata"]["annotations"][UNFREEZE] = "now".into();
    };
    let expected = ["deployment: remove condition Frozen", "deployment: remove freeze"];
    let passed_on = asked(frozen()).set("w-1", "c", 3, &[RUNNING; 3]).set_with("w-2", "b", 1, &[], has_it);
    assert_eq!(passed_on.actions(), expected);
    assert_eq!(asked(frozen()).set("w-1", "c", 3, &[RUNNING; 3]).actions(), expected);
    assert_eq!(asked(world(3)).set("w-1", "c", 3, &[RUNNING; 3]).actions(), ["deployment: remove freeze"]);
}

// === a deployment whose Machines are not fresh ===

#[test]
fn a_set_shrinks_only_by_fresh_machines() {
    let stale = |world: World, read| {
        let silence = Silence { server: "the API server".to_owned(), since: at(-200), read };
        plan(&Snapshot { machines_freshness: Freshness::Stale(silence), ..world.snapshot() })
    };
    let down = || {
        let old = |set: &mut Value| set["spec"]["replicas"] = 3.into();
        world(2).set_with("w-1", "c", 2, &[RUNNING; 3], old)
    };
    assert_eq!(down().sizes(), [2]);
    expect![[r#"
        do    machines: list them at the API server
        why   the API server is silent; a deadline has passed and waits for its answer; since 2027-01-15T07:56:40Z; next: the controller reads the current state from the API server
        wait  until 2027-01-15T08:01:41Z
    "#]]
    .assert_eq(&stale(down(), FreshRead::Possible).to_string());
    let waiting = stale(down(), FreshRead::Failed(at(20)));
    assert!(waiting.actions.is_empty(), "{waiting}");
    assert_eq!(waiting.wait, machinist_core::Wait::Until(at(20)));
    let up = stale(world(4).set("w-1", "c", 3, &[RUNNING; 3]), FreshRead::Possible);
    let up: Vec<_> = up.actions.iter().map(ToString::to_string).collect();
    assert!(up.iter().any(|action| action.contains("3 -> 4 replicas")), "growth does not wait: {up:?}");
}

#[test]
fn a_deployment_says_which_size_it_wants_now() {
    let size = |world: World, uid: &str| {
        let s = world.snapshot();
        limits(s.now, &s.deployment, &s.sets, uid).and_then(|limits| limits.size)
    };
    let late = || {
        world(4).set_with("w-1", "c", 2, &[RUNNING; 4], |set| {
            set["metadata"]["annotations"]["deployment.kubernetes.io/desired-replicas"] = "2".into();
        })
    };
    assert_eq!(size(late(), "uid-w-1"), Some(4), "the patch to 2 took effect after the scale-up");
    assert_eq!(size(late(), "uid-other"), None);
    assert_eq!(size(late().field("/metadata/deletionTimestamp", at(-9).to_string().into()), "uid-w-1"), None);
    let without_set = world(4).set("w-1", "b", 2, &[RUNNING; 4]);
    assert_eq!(size(without_set, "uid-w-1"), None, "the deployment creates its new set first");
}
