//! Decides the next step for a pod. Pure functions.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinist_kube::ObjectKey;
use serde_json::{Value, json};

/// The fields of a pod that a machine uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodFacts {
    pub(crate) key: ObjectKey,
    /// The node that the pod is bound to; empty while unbound.
    pub(crate) node: String,
    /// The name and image of each container.
    pub(crate) containers: Vec<(String, String)>,
    pub(crate) life: Life,
}

/// The stage of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// Bound, and not yet reported as ready.
    New,
    /// Reported as ready.
    Ready,
    /// Reported as succeeded or failed.
    Over,
    /// Deletion has been requested.
    Deleting {
        /// The grace period.
        grace: Duration,
    },
}

impl PodFacts {
    pub(crate) fn read(pod: Pod) -> Self {
        let (spec, status) = (pod.spec.unwrap_or_default(), pod.status.unwrap_or_default());
        let is_ready = status
            .conditions
            .unwrap_or_default()
            .iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True");
        let life = match (&pod.metadata.deletion_timestamp, status.phase.as_deref()) {
            (Some(_), _) => {
                let seconds = pod.metadata.deletion_grace_period_seconds.unwrap_or_default();
                Life::Deleting { grace: Duration::from_secs(seconds.try_into().unwrap_or_default()) }
            }
            (None, Some("Succeeded" | "Failed")) => Life::Over,
            (None, Some("Running")) if is_ready => Life::Ready,
            (None, _) => Life::New,
        };
        Self {
            key: ObjectKey::new(
                pod.metadata.namespace.unwrap_or_default(),
                pod.metadata.name.unwrap_or_default(),
            ),
            node: spec.node_name.unwrap_or_default(),
            containers: spec
                .containers
                .into_iter()
                .map(|container| (container.name, container.image.unwrap_or_default()))
                .collect(),
            life,
        }
    }
}

/// One step for a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Report the pod as running and ready.
    Start,
    /// Let the pod end, then delete it with grace period 0.
    End {
        /// The grace period.
        grace: Duration,
    },
}

/// The next step, given the last one. Each step is done once; if the pod looks unchanged
/// afterwards, the watch is late.
pub(crate) fn next_step(pod: &PodFacts, last: Option<&Step>) -> Option<Step> {
    match (pod.life, last) {
        (Life::New, None) => Some(Step::Start),
        (Life::Deleting { grace }, None | Some(Step::Start)) => Some(Step::End { grace }),
        (Life::New, Some(_))
        | (Life::Deleting { .. }, Some(Step::End { .. }))
        | (Life::Ready | Life::Over, _) => None,
    }
}

/// The status of a pod whose containers all run. The patch contains the UID, so it cannot change
/// another pod of that name.
pub(crate) fn ready_patch(uid: &str, pod: &PodFacts, now: Timestamp) -> Value {
    let now = Time(now);
    let conditions: Vec<Value> = ["Initialized", "PodScheduled", "ContainersReady", "Ready"]
        .map(|type_| json!({"type": type_, "status": "True", "lastTransitionTime": now}))
        .into();
    let containers: Vec<Value> = pod
        .containers
        .iter()
        .map(|(name, image)| {
            json!({
                "name": name, "image": image, "imageID": "", "ready": true, "started": true, "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            })
        })
        .collect();
    json!({
        "metadata": {"uid": uid},
        "status": {
            "phase": "Running", "startTime": now, "conditions": conditions, "containerStatuses": containers,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(status: Value, deletion: Value) -> PodFacts {
        let mut pod = json!({
            "metadata": {"namespace": "default", "name": "p"},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
            "status": status,
        });
        if let (Some(metadata), Value::Object(deletion)) = (pod["metadata"].as_object_mut(), deletion) {
            metadata.extend(deletion);
        }
        PodFacts::read(serde_json::from_value(pod).expect("a pod"))
    }

    #[test]
    fn each_stage_of_a_pod_has_its_step_once() {
        let running = json!({"phase": "Running"});
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        let deleting = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30});
        let end = Step::End { grace: Duration::from_secs(30) };
        let cases = [
            (pod(json!({}), json!({})), None, Some(Step::Start)),
            (pod(json!({"phase": "Pending"}), json!({})), Some(Step::Start), None),
            (pod(running, json!({})), None, Some(Step::Start)),
            (pod(ready.clone(), json!({})), None, None),
            (pod(json!({"phase": "Succeeded"}), json!({})), None, None),
            (pod(ready.clone(), deleting.clone()), None, Some(end)),
            (pod(ready.clone(), deleting.clone()), Some(Step::Start), Some(end)),
            (pod(ready, deleting), Some(end), None),
        ];
        for (pod, last, expected) in cases {
            assert_eq!(next_step(&pod, last.as_ref()), expected, "{pod:?} after {last:?}");
        }
    }

    #[test]
    fn the_status_contains_the_uid_and_every_container() {
        let patch = ready_patch("uid-1", &pod(json!({}), json!({})), Timestamp::UNIX_EPOCH);
        assert_eq!(patch["metadata"], json!({"uid": "uid-1"}));
        assert_eq!(patch["status"]["containerStatuses"][0]["name"], "c");
        assert_eq!(patch["status"]["containerStatuses"][0]["ready"], true);
    }
}
