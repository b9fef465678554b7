//! Tests for Machines that the cluster-autoscaler chose and named in an annotation of the
//! deployment.

use expect_test::expect;
use serde_json::{Value, json};

use super::{RUNNING, World, at, world};

const TRIGGER: &str = "node.machine.sapcloud.io/trigger-deletion-by-mcm";
const CHANGED: &str = "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time";
const PRIORITY: &str = "machinepriority.machine.sapcloud.io";
const MARKED: &str = "machine.sapcloud.io/marked-for-deletion-time";

/// A deployment with two replicas and three Machines, which names the Machine to delete.
fn choosing(named: &str) -> World {
    let mut world = world(3).set("w-1", "c", 3, &[RUNNING; 3]);
    world.deployment["metadata"]["annotations"][TRIGGER] = named.into();
    world.deployment["spec"]["replicas"] = 2.into();
    world
}

fn at_text(seconds: i64) -> String {
    at(seconds).to_string()
}

impl World {
    fn on_machine(mut self, index: usize, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.sets[0].1[index]);
        self
    }

    fn marked(self, index: usize, seconds: i64) -> Self {
        let annotations = json!({PRIORITY: "1", MARKED: at_text(seconds)});
        self.on_machine(index, |machine| machine["metadata"]["annotations"] = annotations)
    }
}

#[test]
fn a_chosen_machine_is_marked_before_the_set_shrinks() {
    let named = format!("w-1-2~{}", at_text(-5));
    choosing(&named).check(expect![[r#"
        do    machine w-1-2: mark for deletion since 2027-01-15T07:59:55Z
        why   marking the machines chosen by the cluster-autoscaler; next: the sets shrink
        wait  for a change
    "#]]);
    let marked = choosing(&named).marked(2, -5);
    assert_eq!(marked.actions(), ["set w-1: 3 -> 2 replicas annotations desired-replicas max-replicas"]);
}

#[test]
fn t_96_several_chosen_machines_are_all_marked() {
    let named = format!("w-1-0~{0}, w-1-2~{0}", at_text(-5));
    assert_eq!(
        choosing(&named).actions(),
        [
            "machine w-1-0: mark for deletion since 2027-01-15T07:59:55Z",
            "machine w-1-2: mark for deletion since 2027-01-15T07:59:55Z",
            "deployment: machines to delete w-1-0~2027-01-15T07:59:55Z,w-1-2~2027-01-15T07:59:55Z",
        ]
    );
}

#[test]
fn an_existing_mark_keeps_its_time() {
    let named = format!("w-1-2~{}", at_text(-5));
    let half = choosing(&named).on_machine(2, |machine| {
        machine["metadata"]["annotations"] = json!({PRIORITY: "3", MARKED: at_text(-50)});
    });
    assert_eq!(half.actions(), ["machine w-1-2: mark for deletion since 2027-01-15T07:59:10Z"]);
}

#[test]
fn t_96_the_old_form_gets_the_time_of_the_last_change() {
    let mut old = choosing("w-1-2").marked(2, -5);
    old.deployment["metadata"]["annotations"][CHANGED] = at_text(-7).into();
    let actions = old.actions();
    assert!(
        actions.contains(&"deployment: machines to delete w-1-2~2027-01-15T07:59:53Z".to_owned()),
        "{actions:?}"
    );
    let mut without = choosing("w-1-2").marked(2, -5);
    without.deployment["metadata"]["annotations"][CHANGED] = "yesterday".into();
    let actions = without.actions();
    assert!(
        actions.contains(&"deployment: machines to delete w-1-2~2027-01-15T08:00:00Z".to_owned()),
        "{actions:?}"
    );
}

#[test]
fn t_96_a_deleted_chosen_machine_is_no_longer_named() {
    let named = format!("w-1-0~{0},w-1-1~{0},w-1-2~{0}", at_text(-5));
    let world = choosing(&named)
        .marked(2, -5)
        .on_machine(0, |m| m["metadata"]["deletionTimestamp"] = at_text(-1).into())
        .on_machine(1, |m| m["status"]["currentStatus"]["phase"] = "Failed".into());
    let actions = world.actions();
    let expected = format!("deployment: machines to delete w-1-2~{}", at_text(-5));
    assert!(actions.contains(&expected), "{actions:?}");
    let none = choosing(named.split(',').next().expect("the first"))
        .on_machine(0, |m| m["metadata"]["deletionTimestamp"] = at_text(-1).into());
    assert!(none.actions().contains(&"deployment: no machines to delete".to_owned()), "{:?}", none.actions());
}

#[test]
fn an_unreadable_entry_is_reported_and_removed() {
    for bad in ["w-1-2~soon", "w-1-2~a~b", "~2027-01-15T07:59:55Z"] {
        let actions = choosing(bad).actions();
        assert!(
            actions[0].starts_with("warning InvalidTriggerDeletion: metadata.annotations: ")
                && actions[0].contains(&format!("expected NAME~TIME with an RFC 3339 time, got {bad:?}")),
            "{actions:?}"
        );
        assert!(actions.contains(&"deployment: no machines to delete".to_owned()), "{actions:?}");
        assert_eq!(choosing(bad).sizes(), [2]);
    }
}

#[test]
fn a_paused_deployment_marks_chosen_machines() {
    let named = format!("w-1-2~{}", at_text(-5));
    let paused = choosing(&named).field("/spec/paused", true.into());
    assert_eq!(paused.actions(), ["machine w-1-2: mark for deletion since 2027-01-15T07:59:55Z"]);
    assert_eq!(paused.marked(2, -5).sizes(), [2]);
}

#[test]
fn an_unknown_name_is_looked_up_before_the_set_shrinks() {
    let named = format!("stranger~{}", at_text(-5));
    choosing(&named).check(expect![[r#"
        do    machine stranger: look for it
        why   reading the machines chosen by the cluster-autoscaler from the API server; next: the sets shrink
        wait  for a change
    "#]]);
}

#[test]
fn an_unknown_name_is_reported_until_it_is_removed() {
    let unknown = |seconds: i64| {
        let mut world = choosing(&format!("stranger~{}", at_text(seconds)));
        world.looked_for.insert("stranger".to_owned());
        world
    };
    assert_eq!(unknown(-300).sizes(), [2], "the replicas apply even if the name is unknown");
    let mut settled = unknown(-300);
    settled.deployment["spec"]["replicas"] = 3.into();
    settled.check(expect![[r#"
        why   Machine stranger not found in this deployment (named by the annotation node.machine.sapcloud.io/trigger-deletion-by-mcm); next: correct the annotation node.machine.sapcloud.io/trigger-deletion-by-mcm; deadline 2027-01-15T08:00:01Z: the name is removed from the annotation
        wait  until 2027-01-15T08:00:01Z
    "#]]);
    let actions = unknown(-301).actions();
    assert!(actions.contains(&"deployment: no machines to delete".to_owned()), "{actions:?}");
}
