//! Decides the next step for a pod that is a machine. Pure functions.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

/// The label with the key of the instance.
const KEY: &str = "machinist.dev/key";
/// The volume with the user data.
const VOLUME: &str = "userdata";

/// The fields of a pod that a host uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MachinePod {
    pub(super) name: String,
    /// The Node that the pod is bound to; empty while unbound.
    node: String,
    phase: String,
    is_deleting: bool,
    /// Name of the Secret with the user data.
    pub(super) secret: String,
    /// Name of the container.
    container: String,
    pub(super) image: Option<String>,
    pub(super) key: Option<String>,
}

impl MachinePod {
    pub(super) fn read(pod: Pod) -> Self {
        let (spec, status) = (pod.spec.unwrap_or_default(), pod.status.unwrap_or_default());
        let container = spec.containers.into_iter().next().unwrap_or_default();
        let volume = spec.volumes.into_iter().flatten().find(|volume| volume.name == VOLUME);
        let secret = volume.and_then(|volume| volume.secret).and_then(|secret| secret.secret_name);
        Self {
            name: pod.metadata.name.unwrap_or_default(),
            node: spec.node_name.unwrap_or_default(),
            phase: status.phase.unwrap_or_default(),
            is_deleting: pod.metadata.deletion_timestamp.is_some(),
            secret: secret.unwrap_or_default(),
            container: container.name,
            image: container.image,
            key: pod.metadata.labels.and_then(|mut labels| labels.remove(KEY)),
        }
    }
}

/// One step for a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Bind the pod to the host.
    Bind,
    /// Give power to the machine, and report the pod as running.
    Start,
    /// Give power to the machine of a running pod, after a restart of the host.
    PowerOn,
    /// Take the power of the machine, and delete the pod.
    End,
}

/// The next step for a pod, on the host of that name.
pub(super) fn next_step(pod: &MachinePod, host: &str, is_powered: bool) -> Option<Step> {
    let is_ours = pod.node == host;
    match (pod.is_deleting, pod.phase.as_str()) {
        (true, _) => is_ours.then_some(Step::End),
        (false, _) if pod.node.is_empty() => Some(Step::Bind),
        (false, "Succeeded" | "Failed") => None,
        (false, "Running") => (is_ours && !is_powered).then_some(Step::PowerOn),
        (false, _) => is_ours.then_some(Step::Start),
    }
}

/// The status of a running pod. The patch contains the UID, so it cannot change another pod of that
/// name.
pub(super) fn running_patch(uid: &str, pod: &MachinePod, address: &str, now: Timestamp) -> Value {
    let now = Time(now);
    let conditions: Vec<Value> = ["Initialized", "PodScheduled", "ContainersReady", "Ready"]
        .map(|type_| json!({"type": type_, "status": "True", "lastTransitionTime": now}))
        .into();
    json!({
        "metadata": {"uid": uid},
        "status": {
            "phase": "Running", "startTime": now, "conditions": conditions,
            "podIP": address, "podIPs": [{"ip": address}],
            "containerStatuses": [{
                "name": pod.container, "image": pod.image, "imageID": "", "ready": true, "started": true,
                "restartCount": 0, "state": {"running": {"startedAt": now}},
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(node: &str, phase: &str, is_deleting: bool) -> MachinePod {
        let mut pod = json!({
            "metadata": {"name": "machine-w-1", "labels": {"machinist.dev/key": "uid-1"}},
            "spec": {
                "nodeName": node, "containers": [{"name": "node", "image": "i"}],
                "volumes": [{"name": "userdata", "secret": {"secretName": "machine-w-1-userdata"}}],
            },
            "status": {"phase": phase},
        });
        if is_deleting {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        MachinePod::read(serde_json::from_value(pod).expect("a pod"))
    }

    #[test]
    fn each_stage_of_a_machine_has_its_step() {
        let cases = [
            (pod("", "Pending", false), false, Some(Step::Bind)),
            (pod("host", "Pending", false), false, Some(Step::Start)),
            (pod("host", "Pending", false), true, Some(Step::Start)),
            (pod("host", "Running", false), true, None),
            (pod("host", "Running", false), false, Some(Step::PowerOn)),
            (pod("host", "Failed", false), false, None),
            (pod("host", "Running", true), true, Some(Step::End)),
            (pod("other", "Pending", false), false, None),
            (pod("other", "Running", true), true, None),
        ];
        for (pod, is_powered, expected) in cases {
            assert_eq!(next_step(&pod, "host", is_powered), expected, "{pod:?}");
        }
    }

    #[test]
    fn a_pod_names_its_secret_and_its_key() {
        let pod = pod("host", "Pending", false);
        assert_eq!((pod.secret.as_str(), pod.key.as_deref()), ("machine-w-1-userdata", Some("uid-1")));
        let patch = running_patch("uid", &pod, "10.0.0.1", Timestamp::UNIX_EPOCH);
        assert_eq!(
            (&patch["metadata"]["uid"], &patch["status"]["podIP"]),
            (&json!("uid"), &json!("10.0.0.1"))
        );
    }
}
