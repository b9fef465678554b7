//! Tests of a deployment's status.

use std::time::Duration;

use expect_test::expect;
use machinist_api::MachineDeploymentCondition;
use serde_json::{Value, json};

use super::{NOW, RUNNING, World, at, machine, world};
use crate::mcm::machine_deployment::{Action, plan};
use crate::mcm::status::{self, Stage};

/// Returns the condition Progressing after the plan.
fn progressing(world: &World) -> MachineDeploymentCondition {
    let world = World { status_written: None, ..world.clone() };
    let written = plan(&world.snapshot()).actions.into_iter().find_map(|action| match action {
        Action::SetStatus(status) => Some(*status),
        _ => None,
    });
    let status = written.or_else(|| world.snapshot().deployment.status.clone()).expect("a status");
    let found = status.conditions.into_iter().find(|condition| condition.type_ == "Progressing");
    found.expect("the condition exists after the first pass")
}

#[test]
fn the_status_sums_up_its_machines() {
    let mut world = world(3).set("o", "b", 1, &[RUNNING, "Terminating"]).set(
        "n",
        "c",
        3,
        &[RUNNING, "Available", "Pending"],
    );
    world.status_written = None;
    let status = plan(&world.snapshot()).actions.into_iter().find_map(|action| match action {
        Action::SetStatus(status) => Some(*status),
        _ => None,
    });
    expect![[r#"
        {
          "observedGeneration": 5,
          "replicas": 5,
          "updatedReplicas": 3,
          "readyReplicas": 2,
          "availableReplicas": 3,
          "unavailableReplicas": 1,
          "conditions": [
            {
              "type": "Progressing",
              "status": "True",
              "lastUpdateTime": "2027-01-15T08:00:00Z",
              "lastTransitionTime": "2027-01-15T08:00:00Z",
              "reason": "FoundNewMachineSet",
              "message": "Found new machine set \"n\""
            },
            {
              "type": "Available",
              "status": "True",
              "lastUpdateTime": "2027-01-15T08:00:00Z",
              "lastTransitionTime": "2027-01-15T08:00:00Z",
              "reason": "MinimumReplicasAvailable",
              "message": "Deployment has minimum availability."
            }
          ]
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&status).expect("writable"));
    world.deployment["status"] = serde_json::to_value(&status).expect("writable");
    assert!(!world.actions().iter().any(|action| action.starts_with("status")), "{:?}", world.actions());
}

#[test]
fn a_status_is_written_at_most_once_a_second() {
    let mut world = world(1).set("w-1", "c", 1, &[RUNNING]);
    world.status_written = Some(at(0) - Duration::from_millis(300));
    world.check(expect![[r#"
        why   up to date
        wait  until 2027-01-15T08:00:00.7Z
    "#]]);
}

/// A rollout that last progressed this many seconds ago.
fn stalled(seconds_ago: i64, reason: &str, status: &str) -> World {
    let time = at(-seconds_ago).to_string();
    world(3)
        .field("/spec/progressDeadlineSeconds", 600.into())
        .field(
            "/status",
            json!({
                "observedGeneration": 5, "replicas": 4, "updatedReplicas": 1, "readyReplicas": 3,
                "availableReplicas": 3, "unavailableReplicas": 1,
                "conditions": [{"type": "Progressing", "status": status, "reason": reason, "message": "m",
                                "lastUpdateTime": time, "lastTransitionTime": at(-5000).to_string()}],
            }),
        )
        .set("o", "b", 3, &[RUNNING; 3])
        .set("n", "c", 1, &["Pending"])
}

fn summary(condition: &MachineDeploymentCondition) -> String {
    let time = |time: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| {
        time.as_ref().map_or(0, |time| time.0.as_second() - NOW)
    };
    let MachineDeploymentCondition { status, reason, last_update_time, last_transition_time, .. } = condition;
    let (updated, changed) = (time(last_update_time), time(last_transition_time));
    format!("{status} {} updated {updated} changed {changed}", reason.as_deref().unwrap_or_default())
}

#[test]
fn a_stalled_rollout_fails_until_it_progresses() {
    let still = stalled(600, "NewMachineSetCreated", "True");
    assert_eq!(summary(&progressing(&still)), "True NewMachineSetCreated updated -600 changed -5000");
    assert_eq!(
        plan(&still.snapshot()).wait,
        machinist_core::Wait::Until(at(1)),
        "the next pass is after the deadline"
    );
    let late = stalled(601, "NewMachineSetCreated", "True");
    assert_eq!(summary(&progressing(&late)), "False ProgressDeadlineExceeded updated 0 changed 0");
    let failed = stalled(1, "ProgressDeadlineExceeded", "False");
    assert_eq!(summary(&progressing(&failed)), "False ProgressDeadlineExceeded updated -1 changed -5000");
    let mut moves = stalled(601, "ProgressDeadlineExceeded", "False");
    moves.sets[1].1[0] = machine("n-0", RUNNING);
    assert_eq!(summary(&progressing(&moves)), "True MachineSetUpdated updated 0 changed 0");
}

#[test]
fn progress_is_reported_with_its_time() {
    let mut moves = stalled(100, "MachineSetUpdated", "True");
    moves.sets[1].1[0] = machine("n-0", RUNNING);
    assert_eq!(summary(&progressing(&moves)), "True MachineSetUpdated updated 0 changed -5000");
}

#[test]
fn a_complete_rollout_stays_complete_until_the_next_one() {
    let done = |generation: i64, phases: &[&str]| {
        let mut world =
            stalled(5000, "NewMachineSetAvailable", "True").field("/metadata/generation", generation.into());
        world.sets = world_of_one_set(phases).sets;
        world
    };
    let complete = done(5, &[RUNNING; 3]);
    assert_eq!(summary(&progressing(&complete)), "True NewMachineSetAvailable updated -5000 changed -5000");
    let hurt = done(5, &[RUNNING, RUNNING, "Unknown"]);
    assert_eq!(summary(&progressing(&hurt)), "True NewMachineSetAvailable updated -5000 changed -5000");
    let scaled = done(6, &[RUNNING, RUNNING, "Unknown"]);
    assert_eq!(
        summary(&progressing(&scaled)),
        "True NewMachineSetAvailable updated -5000 changed -5000",
        "as in Go MCM, other replicas are not a rollout"
    );
    let rolled_back = done(6, &[RUNNING, RUNNING, "Unknown"]).set("o", "b", 1, &[RUNNING]);
    assert_eq!(summary(&progressing(&rolled_back)), "True MachineSetUpdated updated 0 changed -5000");
}

#[test]
fn a_pause_ends_with_a_reason_of_its_own() {
    let resumed = stalled(100, "DeploymentPaused", "Unknown").field("/metadata/generation", 6.into());
    assert_eq!(summary(&progressing(&resumed)), "Unknown DeploymentResumed updated 0 changed -5000");
    let waits = stalled(100, "DeploymentResumed", "Unknown");
    assert_eq!(summary(&progressing(&waits)), "Unknown DeploymentResumed updated -100 changed -5000");
    let late = stalled(601, "DeploymentResumed", "Unknown");
    assert_eq!(summary(&progressing(&late)), "False ProgressDeadlineExceeded updated 0 changed 0");
}

#[test]
fn a_pause_does_not_hide_a_missed_deadline() {
    let paused = stalled(1, "ProgressDeadlineExceeded", "False").field("/spec/paused", true.into());
    assert_eq!(summary(&progressing(&paused)), "False ProgressDeadlineExceeded updated -1 changed -5000");
}

fn world_of_one_set(phases: &[&str]) -> World {
    world(3).set("n", "c", 3, phases)
}

#[test]
fn a_pause_is_a_condition_and_so_is_a_new_set() {
    let paused = world_of_one_set(&[RUNNING; 3]).field("/spec/paused", true.into());
    assert_eq!(summary(&progressing(&paused)), "Unknown DeploymentPaused updated 0 changed 0");
    let created = world(3).set("o", "b", 3, &[RUNNING; 3]);
    assert_eq!(summary(&progressing(&created)), "True NewMachineSetCreated updated 0 changed 0");
    let found = stalled(100, "", "").field("/status/conditions", json!([]));
    assert_eq!(summary(&progressing(&found)), "True FoundNewMachineSet updated 0 changed 0");
}

#[test]
fn a_creation_failure_of_a_set_is_copied_to_the_deployment() {
    let refused = |set: &mut Value| {
        set["status"] = json!({"machineSetCondition": [{
            "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota exceeded",
            "lastTransitionTime": at(-30).to_string(),
        }]});
    };
    let world = world(3).set_with("n", "c", 3, &[], refused);
    let status = status::of_deployment(&world.snapshot(), &Stage::Rolling(world.snapshot().sets.first()));
    let failure = status.conditions.iter().find(|condition| condition.type_ == "ReplicaFailure");
    assert_eq!(failure.and_then(|failure| failure.message.as_deref()), Some("quota exceeded"));
}
