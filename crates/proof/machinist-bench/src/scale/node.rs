//! The Nodes and pods of the benchmark, as JSON.

use jiff::Timestamp;
use serde_json::{Value, json};

/// Images on a Node. A kubelet lists up to 50, and they are most of the size of a Node.
const IMAGES: u32 = 50;

/// The content of a Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// The content that the controllers need: the provider id and the condition Ready.
    Plain,
    /// The content that a kubelet writes: about 12 KB.
    Full,
}

/// The first Node of a kubelet: labels, capacity and conditions, not Ready, and without images.
pub(super) fn registration(name: &str, provider_id: &str, now: Timestamp) -> Value {
    json!({
        "metadata": {
            "name": name,
            "labels": {
                "beta.kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "small",
                "topology.kubernetes.io/region": "sim-1",
                "topology.kubernetes.io/zone": "sim-1a",
            },
            "annotations": { "volumes.kubernetes.io/controller-managed-attach-detach": "true" },
        },
        "spec": { "providerID": provider_id },
        "status": {
            "addresses": [
                { "type": "InternalIP", "address": "10.0.0.1" },
                { "type": "Hostname", "address": name },
            ],
            "capacity": resources(),
            "allocatable": resources(),
            "conditions": conditions(now, Health::Starting),
            "daemonEndpoints": { "kubeletEndpoint": { "Port": 10250 } },
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "5e2c1f5e-7d0f-4f0e-9a1c-1f0f8f0c7a11",
                "containerRuntimeVersion": "containerd://2.1.4",
                "kernelVersion": "6.12.0-amd64",
                "kubeProxyVersion": "",
                "kubeletVersion": "v1.36.3",
                "machineID": "0f8c7a115e2c1f5e7d0f4f0e9a1c1f0f",
                "operatingSystem": "linux",
                "osImage": "Garden Linux 1877.3",
                "systemUUID": "0f8c7a11-5e2c-1f5e-7d0f-4f0e9a1c1f0f",
            },
        },
    })
}

/// A Node that is Ready at once, and has nothing else.
pub(super) fn plain(name: &str, provider_id: &str, now: Timestamp) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": { "providerID": provider_id },
        "status": { "conditions": [condition("Ready", "True", "KubeletReady", now)] },
    })
}

/// The first status PATCH of a kubelet: the images of the Node.
pub(super) fn with_images(now: Timestamp) -> Value {
    json!({ "status": { "conditions": conditions(now, Health::Starting), "images": images() } })
}

/// The second status PATCH of a kubelet: the network works, and the Node is Ready.
pub(super) fn ready(now: Timestamp) -> Value {
    json!({ "status": { "conditions": conditions(now, Health::Ready) } })
}

/// A pod on a Node. Its grace period is 0, because no kubelet ends its containers.
pub(super) fn pod(name: &str, node: &str) -> Value {
    json!({
        "metadata": {
            "name": name,
            "labels": { "app": "web", "pod-template-hash": "7c5ddbdf54" },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7c5ddbdf54",
                "uid": "11111111-2222-3333-4444-555555555555", "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "web",
                "image": "registry.example.com/web/server:1.27.3",
                "ports": [{ "containerPort": 8080, "name": "http" }],
                "env": [
                    { "name": "LISTEN", "value": ":8080" },
                    { "name": "POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
                ],
                "resources": { "requests": { "cpu": "100m", "memory": "128Mi" }, "limits": { "memory": "256Mi" } },
                "readinessProbe": { "httpGet": { "path": "/healthz", "port": "http" }, "periodSeconds": 10 },
                "volumeMounts": [{ "name": "cache", "mountPath": "/var/cache/web" }],
            }],
            "volumes": [{ "name": "cache", "emptyDir": {} }],
        },
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Health {
    Starting,
    Ready,
}

fn conditions(now: Timestamp, health: Health) -> Value {
    let ready = match health {
        Health::Starting => condition("Ready", "False", "KubeletNotReady", now),
        Health::Ready => condition("Ready", "True", "KubeletReady", now),
    };
    json!([
        condition("MemoryPressure", "False", "KubeletHasSufficientMemory", now),
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure", now),
        condition("PIDPressure", "False", "KubeletHasSufficientPID", now),
        ready,
    ])
}

fn condition(kind: &str, status: &str, reason: &str, now: Timestamp) -> Value {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({
        "type": kind, "status": status, "reason": reason, "message": reason,
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    })
}

fn resources() -> Value {
    json!({ "cpu": "2", "memory": "8Gi", "pods": "110", "ephemeral-storage": "100Gi", "hugepages-2Mi": "0" })
}

/// Images have two names each: one with a digest, and one with a tag.
fn images() -> Vec<Value> {
    let image = |number: u32| {
        let digest = format!("{number:064x}");
        json!({
            "names": [
                format!("registry.example.com/team/component-{number}@sha256:{digest}"),
                format!("registry.example.com/team/component-{number}:v1.{number}.0"),
            ],
            "sizeBytes": 40_000_000 + number,
        })
    };
    (0..IMAGES).map(image).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_node_has_about_12_kilobytes() {
        let now = Timestamp::UNIX_EPOCH;
        let registered =
            registration("workers-7c5ddbdf54-abcde", "sim:///sim-1a/0000000001", now).to_string();
        let written = with_images(now).to_string();
        let bytes = registered.len() + written.len();
        // The server adds `managedFields`, which are another 2 KB.
        assert!((10_000..13_000).contains(&bytes), "{bytes} bytes");
    }
}
