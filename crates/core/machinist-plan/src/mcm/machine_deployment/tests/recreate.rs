//! Tests of the strategy Recreate: no Machine of the new template exists while a Machine of an old
//! template exists.

use machinist_core::{FreshRead, Freshness, Silence};

use super::*;

fn recreate(replicas: u32) -> World {
    world(replicas).field("/spec/strategy", json!({"type": "Recreate"}))
}

fn without_surge(set: &mut Value) {
    let annotations = &mut set["metadata"]["annotations"];
    let desired = annotations["deployment.kubernetes.io/desired-replicas"].clone();
    annotations["deployment.kubernetes.io/max-replicas"] = desired;
}

#[test]
fn t_86_old_machines_are_deleted_before_a_new_set_exists() {
    recreate(3).set_with("o", "b", 3, &[RUNNING; 3], without_surge).check(expect![[r#"
        do    set o: 3 -> 0 replicas
        why   waiting for 3 machines to be deleted; the first is o-0; next: the Machines of the new template are created after the old ones are gone
        wait  until 2027-01-15T08:01:41Z
    "#]]);
    let leaving = recreate(3).set_with("o", "b", 0, &["Terminating"], without_surge);
    assert_eq!(leaving.actions(), [""; 0], "a Machine is left");
    let gone = recreate(3).set_with("o", "b", 0, &[], without_surge);
    let actions = gone.actions();
    assert!(actions[0].ends_with("create with 3 replicas"), "{actions:?}");
}

#[test]
fn a_set_that_exists_grows_after_the_others_are_gone() {
    let rolled_back = |old: &[&str], size| {
        recreate(3).set_with("o", "b", size, old, without_surge).set_with(
            "n",
            "c",
            1,
            &[RUNNING],
            without_surge,
        )
    };
    assert_eq!(rolled_back(&[RUNNING; 2], 2).sizes(), [0, 1]);
    assert_eq!(rolled_back(&["Terminating"], 0).sizes(), [0, 1]);
    assert_eq!(rolled_back(&[], 0).sizes(), [0, 3]);
}

#[test]
fn a_set_that_is_being_deleted_is_waited_for() {
    let deleted = |set: &mut Value| set["metadata"]["deletionTimestamp"] = at(-10).to_string().into();
    let world = |machines: &[&str]| recreate(3).set_with("o", "b", 3, machines, deleted);
    assert_eq!(world(&[RUNNING]).actions(), [""; 0]);
    assert!(world(&[]).actions()[0].ends_with("create with 3 replicas"));
}

#[test]
fn a_deployment_without_old_machines_is_only_scaled() {
    let scaled = recreate(5).set_with("n", "c", 3, &[RUNNING; 3], without_surge);
    assert_eq!(scaled.sizes(), [5]);
    let shrunk = recreate(2).set_with("n", "c", 3, &[RUNNING; 3], without_surge);
    assert_eq!(shrunk.sizes(), [2]);
    let settled = recreate(3).set_with("n", "c", 3, &[RUNNING; 3], without_surge);
    assert_eq!(settled.actions(), [""; 0]);
}

/// While the deployment is paused, no set grows while Machines of another template exist.
#[test]
fn a_pause_midway_creates_no_machine() {
    let paused = || recreate(3).field("/spec/paused", true.into());
    let leaving = ["Terminating"];
    let both = paused().set_with("o", "b", 0, &leaving, without_surge);
    assert_eq!(both.set_with("n", "c", 0, &[], without_surge).sizes(), [0, 0]);
    let another = paused().set_with("o", "b", 0, &leaving, without_surge);
    assert_eq!(another.set_with("z", "a", 0, &[], without_surge).sizes(), [3, 0], "only the former template");
    let gone = paused().set_with("o", "b", 0, &[], without_surge);
    assert_eq!(gone.set_with("n", "c", 0, &[], without_surge).sizes(), [0, 3]);
}

/// The strategy was changed while a rolling update had sized both sets.
#[test]
fn the_new_set_creates_nothing_beside_old_machines() {
    let midway = || recreate(3).set_with("o", "b", 3, &[RUNNING; 3], without_surge);
    let missing = midway().set_with("n", "c", 1, &[], without_surge);
    assert_eq!(missing.sizes(), [0, 0]);
    let s = missing.snapshot();
    let wanted = limits(s.now, &s.deployment, &s.sets, "uid-n").and_then(|limits| limits.size);
    assert_eq!(wanted, Some(0), "the set asks before it creates");
    assert_eq!(midway().set_with("n", "c", 2, &[RUNNING], without_surge).sizes(), [0, 1]);
}

#[test]
fn the_reason_names_what_a_user_must_do() {
    let mut unreadable = recreate(3).set_with("o", "b", 0, &[], without_surge).snapshot();
    unreadable.sets[0].unreadable = 2;
    let why = plan(&unreadable).why.to_string();
    assert!(why.contains("waiting for 2 machines to be deleted"), "{why}");
    assert!(why.contains("correct the Machines that cannot be parsed"), "{why}");
}

#[test]
fn the_condition_shows_that_old_machines_leave() {
    let progressing = |reason: &str, seconds_ago: i64| {
        let world = recreate(3)
            .field("/spec/progressDeadlineSeconds", 600.into())
            .field(
                "/status",
                json!({"observedGeneration": 5, "replicas": 3, "updatedReplicas": 0, "readyReplicas": 3, "availableReplicas": 3,
                       "conditions": [{"type": "Progressing", "status": "True", "reason": reason,
                                       "lastUpdateTime": at(-seconds_ago).to_string()}]}),
            )
            .set_with("o", "b", 0, &[RUNNING; 3], without_surge);
        let s = world.snapshot();
        let status = crate::mcm::status::of_deployment(&s, &Stage::Rolling(None));
        let found = status.conditions.into_iter().find(|condition| condition.type_ == "Progressing");
        let found = found.expect("the condition");
        format!("{} {}", found.status, found.reason.unwrap_or_default())
    };
    assert_eq!(progressing("MachineSetUpdated", 10), "True MachineSetUpdated");
    assert_eq!(progressing("MachineSetUpdated", 601), "False ProgressDeadlineExceeded");
    assert_eq!(progressing("DeploymentPaused", 10), "Unknown DeploymentResumed");
}

#[test]
fn a_paused_deployment_recreates_nothing() {
    let paused = recreate(3).field("/spec/paused", true.into());
    let paused = paused.set_with("o", "b", 3, &[RUNNING; 3], without_surge);
    assert_eq!(paused.actions(), [""; 0]);
    assert!(paused.reason().contains("paused"), "{}", paused.reason());
}

/// Only the Machines of the old template are available. The bound that protects available Machines
/// in a rolling update must not keep them.
#[test]
fn no_bound_keeps_old_machines() {
    let limits_of = |world: World, uid: &str| {
        let s = world.snapshot();
        limits(s.now, &s.deployment, &s.sets, uid).expect("the deployment sizes the set")
    };
    let old = || recreate(3).set_with("o", "b", 0, &[RUNNING; 3], without_surge);
    let wanted = limits_of(old(), "uid-o");
    assert_eq!((wanted.size, wanted.bounds.fewest), (Some(0), 0));
    // In a plain scale-down, available Machines stay as in a rolling update.
    let shrunk = limits_of(recreate(2).set_with("n", "c", 2, &[RUNNING; 3], without_surge), "uid-n");
    assert_eq!((shrunk.size, shrunk.bounds.fewest), (Some(2), 2));
    // The template was changed back before the Machines were deleted.
    let back = limits_of(recreate(3).set_with("n", "c", 0, &[RUNNING; 3], without_surge), "uid-n");
    assert_eq!(back.size, Some(3));
}

#[test]
fn old_machines_are_deleted_only_by_fresh_facts() {
    let silence = Silence { server: "the API server".to_owned(), since: at(-200), read: FreshRead::Possible };
    let world = recreate(3).set_with("o", "b", 3, &[RUNNING; 3], without_surge);
    let snapshot = Snapshot { machines_freshness: Freshness::Stale(silence), ..world.snapshot() };
    let actions: Vec<_> = plan(&snapshot).actions.iter().map(ToString::to_string).collect();
    assert_eq!(actions, ["machines: list them at the API server"]);
}
