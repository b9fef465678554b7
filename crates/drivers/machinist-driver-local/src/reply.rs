//! Converts pods, and decides to whom an object belongs. Pure functions.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use kube::api::ObjectMeta;
use machinist_instance::{
    Address, AddressKind, Error, ErrorKind, Instance, InstanceKey, Marks, NativeId, NodeName, Power,
};

use crate::label::{self, CLUSTER, KEY};
use crate::{id, name};

/// Longest part of a message of a kubelet or scheduler that an error repeats.
const MAX_SHOWN: usize = 300;

/// Converts a pod that exists.
///
/// # Errors
/// `Bug` if the pod is not called like the pod of a Machine.
pub(crate) fn instance(pod: &Pod) -> Result<Instance, Error> {
    let name = pod_name(pod);
    let id = id::of(name)?;
    let labels = pod.metadata.labels.iter().flatten();
    let annotations = pod.metadata.annotations.iter().flatten();
    // A label wins over an annotation of its name: labels are the marks.
    let tags = annotations.chain(labels).map(|(name, value)| (name.clone(), value.clone()));
    let mut tags: BTreeMap<String, String> = tags.collect();
    tags.remove(KEY);
    let cluster = tags.remove(CLUSTER);
    Ok(Instance {
        id,
        native_id: NativeId::new(pod.metadata.uid.clone().unwrap_or_default()),
        key: key(&pod.metadata).map(InstanceKey::new),
        cluster,
        name: NodeName::new(name).expect("an id is not empty"),
        power: power(pod),
        addresses: addresses(pod),
        instance_type: None,
        zone: None,
        region: None,
        tags,
        node_labels: BTreeMap::new(),
        created: created(pod),
    })
}

pub(crate) fn pod_name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// Whether a pod is called like the pod of a Machine.
pub(crate) fn is_machine(pod: &Pod) -> bool {
    name::machine_of(pod_name(pod)).is_some()
}

/// The key that an object carries.
pub(crate) fn key(metadata: &ObjectMeta) -> Option<&str> {
    metadata.labels.as_ref()?.get(KEY).map(String::as_str).filter(|key| !key.is_empty())
}

pub(crate) fn is_of_key(metadata: &ObjectMeta, asked: &InstanceKey) -> bool {
    key(metadata) == Some(asked.as_str())
}

/// The marks of Gardener's provider on a pod.
pub(crate) fn marks(pod: &Pod) -> Marks {
    pod.metadata.labels.as_ref().map_or(Marks::Missing, |labels| label::marks(labels, pod_name(pod)))
}

pub(crate) fn created(pod: &Pod) -> Timestamp {
    pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

pub(crate) fn is_deleting(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// The power of a pod by its phase. A pod that has ended never starts again.
pub(crate) fn power(pod: &Pod) -> Power {
    if is_deleting(pod) {
        return Power::Deleting;
    }
    match status(pod).and_then(|status| status.phase.as_deref()) {
        None | Some("" | "Pending") => Power::Pending,
        Some("Running") => Power::Running,
        Some("Failed" | "Succeeded") => Power::Failed,
        // The kubelet of its host does not report, or a phase of a newer API.
        Some(_) => Power::Changing,
    }
}

/// The addresses, as Go's provider reports them.
fn addresses(pod: &Pod) -> Vec<Address> {
    let ips = status(pod).and_then(|status| status.pod_ips.as_ref()).into_iter().flatten();
    ips.map(|ip| Address { kind: AddressKind::InternalIP, address: ip.ip.clone() }).collect()
}

/// Why a pod does not run: the first reason of its containers, of the scheduler, or of the pod.
pub(crate) fn hindrance(pod: &Pod) -> String {
    let Some(status) = status(pod) else { return "it is not scheduled yet".to_owned() };
    let of_container = |container: &ContainerStatus| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        joined(waiting.reason.as_deref(), waiting.message.as_deref())
    };
    let of_containers = status.container_statuses.iter().flatten().find_map(of_container);
    let unmet = || {
        let mut conditions = status.conditions.iter().flatten();
        let unmet =
            conditions.find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
        unmet.and_then(|unmet| joined(unmet.reason.as_deref(), unmet.message.as_deref()))
    };
    let of_pod = || joined(status.reason.as_deref(), status.message.as_deref());
    // A pod that has ended keeps the conditions of its beginning.
    let why = match power(pod) {
        Power::Failed => of_pod().or(of_containers),
        _ => of_containers.or_else(unmet).or_else(of_pod),
    };
    let phase = status.phase.as_deref().filter(|phase| !phase.is_empty()).unwrap_or("Pending");
    why.unwrap_or_else(|| format!("its phase is {phase}")).chars().take(MAX_SHOWN).collect()
}

fn joined(reason: Option<&str>, message: Option<&str>) -> Option<String> {
    let parts = [reason, message].into_iter().flatten().filter(|part| !part.is_empty());
    let parts: Vec<&str> = parts.collect();
    (!parts.is_empty()).then(|| parts.join(": "))
}

fn status(pod: &Pod) -> Option<&PodStatus> {
    pod.status.as_ref()
}

/// The owner of a Service or a Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartOf {
    /// The pod owns it, or the Machine does, as in older versions of Go's provider.
    ThisPod,
    /// The part has the key, and an earlier pod owns it. The garbage collector deletes the part
    /// soon.
    EarlierPod,
    /// Another owner's.
    Another,
}

/// Decides whose the part of a pod is.
pub(crate) fn part_of(part: &ObjectMeta, pod: &Pod, asked: &InstanceKey) -> PartOf {
    let mut owners = part.owner_references.iter().flatten();
    let is_owner = |uid: &str| pod.metadata.uid.as_deref() == Some(uid) || uid == asked.as_str();
    if owners.any(|owner| is_owner(&owner.uid)) {
        PartOf::ThisPod
    } else if is_of_key(part, asked) {
        PartOf::EarlierPod
    } else {
        PartOf::Another
    }
}

/// The error for an object of another owner.
pub(crate) fn wrong_key(kind: &str, metadata: &ObjectMeta, expected: &InstanceKey) -> Error {
    let key = key(metadata).unwrap_or("no key");
    let name = metadata.name.as_deref().unwrap_or_default();
    Error::new(ErrorKind::Denied, format!("{kind} {name}: expected the key {expected}, got {key}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(changes: Value) -> Pod {
        let mut pod = json!({
            "metadata": {
                "name": "machine-w-1", "uid": "pod-uid", "creationTimestamp": "2026-11-24T12:13:38Z",
                "labels": {
                    "app": "machine", "machine": "w-1", "machine-provider": "local",
                    "machinist.dev/key": "uid-1", "machinist.dev/cluster": "default",
                },
                "annotations": {"machinist.dev/namespace-uid": "n1"},
            },
            "status": {"phase": "Running", "podIPs": [{"ip": "10.1.0.5"}, {"ip": "fd00::5"}]},
        });
        for (name, value) in changes.as_object().expect("an object") {
            pod[name] = value.clone();
        }
        serde_json::from_value(pod).expect("a pod")
    }

    #[test]
    fn a_pod_becomes_an_instance() {
        let instance = instance(&pod(json!({}))).expect("a machine");
        assert_eq!((instance.id.as_str(), instance.name.as_str()), ("machine-w-1", "machine-w-1"));
        assert_eq!(instance.native_id, NativeId::new("pod-uid"));
        assert_eq!(instance.key, Some(InstanceKey::new("uid-1")));
        assert_eq!(instance.cluster.as_deref(), Some("default"));
        assert_eq!(instance.tags["machinist.dev/namespace-uid"], "n1");
        assert_eq!(instance.tags["machine-provider"], "local");
        let addresses: Vec<_> = instance.addresses.iter().map(|one| one.address.as_str()).collect();
        assert_eq!(addresses, ["10.1.0.5", "fd00::5"]);
        assert_eq!(instance.created, "2026-11-24T12:13:38Z".parse().expect("a time"));
    }

    #[test]
    fn each_phase_has_a_power() {
        let cases = [
            (json!({}), Power::Pending),
            (json!({"phase": "Pending"}), Power::Pending),
            (json!({"phase": "Running"}), Power::Running),
            (json!({"phase": "Failed"}), Power::Failed),
            (json!({"phase": "Succeeded"}), Power::Failed),
            (json!({"phase": "Unknown"}), Power::Changing),
        ];
        for (status, expected) in cases {
            assert_eq!(power(&pod(json!({"status": status}))), expected, "{status}");
        }
        let mut deleting = pod(json!({}));
        deleting.metadata.deletion_timestamp = deleting.metadata.creation_timestamp.clone();
        assert_eq!(power(&deleting), Power::Deleting);
    }

    #[test]
    fn a_hindrance_names_the_first_known_reason() {
        let waiting = json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}});
        let container = json!({
            "name": "node", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": waiting,
        });
        let scheduled = json!({
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes",
        });
        let cases = [
            (json!({"containerStatuses": [container]}), "ImagePullBackOff: no such image"),
            (json!({"conditions": [scheduled]}), "Unschedulable: 0/1 nodes"),
            (json!({"phase": "Failed", "reason": "Evicted", "message": "memory"}), "Evicted: memory"),
            (json!({"phase": "Pending"}), "its phase is Pending"),
        ];
        for (status, expected) in cases {
            assert_eq!(hindrance(&pod(json!({"status": status}))), expected);
        }
    }

    #[test]
    fn a_part_belongs_to_its_owner_or_its_key() {
        let key = InstanceKey::new("uid-1");
        let part = |owner: &str, key: Option<&str>| ObjectMeta {
            owner_references: serde_json::from_value(
                json!([{"apiVersion": "v1", "kind": "Pod", "name": "machine-w-1", "uid": owner}]),
            )
            .expect("owners"),
            labels: key.map(|key| BTreeMap::from([(KEY.to_owned(), key.to_owned())])),
            ..ObjectMeta::default()
        };
        let of = |part: &ObjectMeta| part_of(part, &pod(json!({})), &key);
        assert_eq!(of(&part("pod-uid", None)), PartOf::ThisPod);
        assert_eq!(of(&part("uid-1", None)), PartOf::ThisPod, "the Machine owns it");
        assert_eq!(of(&part("earlier", Some("uid-1"))), PartOf::EarlierPod);
        assert_eq!(of(&part("other", None)), PartOf::Another);
        assert_eq!(of(&part("other", Some("uid-2"))), PartOf::Another);
    }
}
