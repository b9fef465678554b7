//! The Node that a machine registers, and the status patches that follow. Pure functions.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ObjectMeta;
use machinist_cloud_sim::LedgerEntry;
use machinist_instance::{AddressKind, NodeName};
use serde_json::{Value, json};

use crate::{CloudProvider, Kubelet};

/// The taint of a Node that a cloud controller manager has not initialised.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// The annotation with the value of `--node-ip`, which a cloud controller manager compares with the
/// addresses of the instance.
const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// Capacity of every simulated machine, regardless of its type: nothing really runs on it.
const CAPACITY: [(&str, &str); 4] =
    [("cpu", "2"), ("memory", "8Gi"), ("ephemeral-storage", "100Gi"), ("pods", "110")];

/// Conditions for resource pressure, with the reason and message of a healthy machine.
const PRESSURES: [(&str, &str, &str); 3] = [
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
];

/// Whether a machine is ready for pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// The machine has just started.
    Starting,
    /// The machine is ready.
    Ready,
}

/// The Node at its first registration.
pub(crate) fn registration(
    entry: &LedgerEntry,
    name: &NodeName,
    kubelet: &Kubelet,
    now: Timestamp,
    readiness: Readiness,
) -> Node {
    let is_external = kubelet.cloud_provider == CloudProvider::External;
    let mut labels = vec![
        ("kubernetes.io/hostname", name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
    ];
    if !is_external {
        labels.extend([
            ("node.kubernetes.io/instance-type", &*entry.instance_type),
            ("topology.kubernetes.io/region", &entry.region),
            ("topology.kubernetes.io/zone", &entry.zone),
        ]);
    }
    let capacity: BTreeMap<String, Quantity> =
        CAPACITY.iter().map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned()))).collect();
    Node {
        metadata: ObjectMeta {
            name: Some(name.to_string()),
            labels: Some(owned(labels)),
            annotations: kubelet.node_ip.as_deref().filter(|_| is_external).map(provided_node_ip),
            ..ObjectMeta::default()
        },
        spec: Some(match kubelet.cloud_provider {
            CloudProvider::Machine => {
                NodeSpec { provider_id: Some(entry.id.to_string()), ..NodeSpec::default() }
            }
            CloudProvider::External => {
                NodeSpec { taints: Some(vec![uninitialized()]), ..NodeSpec::default() }
            }
        }),
        status: Some(NodeStatus {
            addresses: Some(addresses(entry, name, kubelet)),
            allocatable: Some(capacity.clone()),
            capacity: Some(capacity),
            conditions: Some(conditions(now, readiness)),
            node_info: Some(NodeSystemInfo {
                architecture: "amd64".to_owned(),
                operating_system: "linux".to_owned(),
                os_image: entry.image.clone().unwrap_or_else(|| "Machinist simulated machine".to_owned()),
                kubelet_version: concat!("v0.0.0-machinist-", env!("CARGO_PKG_VERSION")).to_owned(),
                container_runtime_version: "none://0".to_owned(),
                // Different for every instance, as on real machines.
                machine_id: entry.id.identity().to_owned(),
                system_uuid: entry.id.to_string(),
                boot_id: format!("{}-{}", entry.serial, entry.running_at.as_second()),
                ..NodeSystemInfo::default()
            }),
            ..NodeStatus::default()
        }),
    }
}

/// The addresses that a machine announces. With a cloud controller manager, a kubelet announces its
/// hostname, and the addresses of `--node-ip` before it.
fn addresses(entry: &LedgerEntry, name: &NodeName, kubelet: &Kubelet) -> Vec<NodeAddress> {
    let address = |kind: AddressKind, address: &str| NodeAddress {
        type_: format!("{kind:?}"),
        address: address.to_owned(),
    };
    match kubelet.cloud_provider {
        CloudProvider::Machine => {
            entry.addresses().into_iter().map(|entry| address(entry.kind, &entry.address)).collect()
        }
        CloudProvider::External => {
            let node_ips = kubelet.node_ips().map(|ip| address(AddressKind::InternalIP, ip));
            node_ips.chain([address(AddressKind::Hostname, name.as_str())]).collect()
        }
    }
}

fn uninitialized() -> Taint {
    Taint {
        key: UNINITIALIZED.to_owned(),
        value: Some("true".to_owned()),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    }
}

fn provided_node_ip(node_ip: &str) -> BTreeMap<String, String> {
    owned([(PROVIDED_NODE_IP, node_ip)])
}

fn owned<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The conditions of a machine that has just reached that readiness.
fn conditions(now: Timestamp, readiness: Readiness) -> Vec<NodeCondition> {
    let condition = |type_: &str, status: &str, reason: &str, message: &str| NodeCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    };
    let (status, reason, message) = match readiness {
        Readiness::Starting => ("False", "KubeletNotReady", "kubelet is starting"),
        Readiness::Ready => ("True", "KubeletReady", "kubelet is posting ready status"),
    };
    PRESSURES
        .iter()
        .map(|(type_, reason, message)| condition(type_, "False", reason, message))
        .chain([condition("Ready", status, reason, message)])
        .collect()
}

/// The status patch, strategic by condition type, that sets Ready.
pub(crate) fn ready_patch(now: Timestamp) -> Value {
    json!({"status": {"conditions": conditions(now, Readiness::Ready)}})
}

/// The status patch, strategic by condition type, that renews the heartbeat times. Transition times
/// stay.
pub(crate) fn heartbeat_patch(now: Timestamp) -> Value {
    let beats: Vec<Value> = PRESSURES
        .iter()
        .map(|(type_, ..)| (*type_, "False"))
        .chain([("Ready", "True")])
        .map(|(type_, status)| json!({"type": type_, "status": status, "lastHeartbeatTime": Time(now)}))
        .collect();
    json!({"status": {"conditions": beats}})
}
