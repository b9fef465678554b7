//! Tests of `machinist up --cloud local`: machines that are pods of the embedded API server.

use std::collections::BTreeSet;
use std::path::Path;

use k8s_openapi::api::core::v1::{Node, Pod, Secret, Service};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::process::{Ended, Process, client, machinist};

fn up(folder: &Path, more: &str) -> std::process::Command {
    let mut command = machinist("up --cloud local -o json --data-dir");
    command.arg(folder).args(more.split_whitespace());
    command
}

/// The names of all objects of a kind that belong to machines.
async fn names<K>(client: &kube::Client, selector: &str) -> BTreeSet<String>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::default_namespaced(client.clone());
    let listed = api.list(&ListParams::default().labels(selector)).await.expect("a list");
    listed.items.iter().map(kube::ResourceExt::name_any).collect()
}

const OURS: &str = "machine-provider=local,machinist.dev/cluster=up";

#[test]
fn pods_become_nodes_and_are_deleted() {
    let ended = Ended::of(&mut machinist("up --cloud local --until gone -o json"));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let result = ended.result();
    for (field, expected) in [("machines", 0), ("running", 0), ("instancesAlive", 0), ("instancesEver", 3)] {
        assert_eq!(result[field], expected, "{field} of {result}");
    }
    assert_eq!(ended.stderr, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_machine_is_a_pod_with_its_node() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut process = Process::start(&mut up(folder.path(), ""));
    for _ in 0..4 {
        // Three machines and their host.
        while !process.line_with("\"event\":\"node\"").contains("\"Ready\"") {}
    }
    let kubernetes = client(&folder.path().join("kubeconfig")).await;
    let pods = names::<Pod>(&kubernetes, OURS).await;
    assert_eq!(pods.len(), 3);
    assert_eq!(names::<Service>(&kubernetes, OURS).await, pods);
    let secrets = pods.iter().map(|pod| format!("{pod}-userdata")).collect();
    assert_eq!(names::<Secret>(&kubernetes, OURS).await, secrets);
    let nodes: Api<Node> = Api::all(kubernetes.clone());
    for pod in &pods {
        let node = nodes.get(pod).await.expect("a Node of that name");
        assert_eq!(node.spec.and_then(|spec| spec.provider_id).as_ref(), Some(pod));
    }
    let running: Api<Pod> = Api::default_namespaced(kubernetes);
    for pod in running.list(&ListParams::default().labels(OURS)).await.expect("a list") {
        assert_eq!(pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()), Some("host"));
        let status = pod.status.expect("a status");
        assert_eq!(status.phase.as_deref(), Some("Running"));
        assert!(status.pod_ip.is_some_and(|ip| ip.starts_with("10.")));
    }
    process.terminate().cleanly();
}

async fn scale(folder: &Path, replicas: u64) {
    let kind = GroupVersionKind::gvk("machine.sapcloud.io", "v1alpha1", "MachineDeployment");
    let client = client(&folder.join("kubeconfig")).await;
    let deployments: Api<DynamicObject> = Api::default_namespaced_with(client, &ApiResource::from_gvk(&kind));
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    deployments.patch("workers", &PatchParams::default(), &patch).await.expect("scaled");
}

/// Numbers of lines about machines and Nodes after which a run is killed.
const MOMENTS: [usize; 3] = [2, 9, 21];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_creation_makes_no_second_pod() {
    for lines in MOMENTS {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let ended = Ended::of(&mut up(folder.path(), "--until ready"));
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
        let mut process = Process::start(&mut up(folder.path(), ""));
        process.line_with("Continues with the state in the data directory");
        scale(folder.path(), 10).await;
        for _ in 0..lines {
            process.line_with("\"state\":");
        }
        // Dropping a process kills it with SIGKILL.
        drop(process);

        let ended = Ended::of(&mut up(folder.path(), "--until ready"));
        assert_eq!(ended.code, Some(0), "killed after {lines}: {}{}", ended.stdout, ended.stderr);
        let mut process = Process::start(&mut up(folder.path(), ""));
        process.line_with("Continues with the state in the data directory");
        let kubernetes = client(&folder.path().join("kubeconfig")).await;
        let kind = GroupVersionKind::gvk("machine.sapcloud.io", "v1alpha1", "Machine");
        let machines: Api<DynamicObject> =
            Api::default_namespaced_with(kubernetes.clone(), &ApiResource::from_gvk(&kind));
        let machines = machines.list(&ListParams::default()).await.expect("a list").items;
        let machines: BTreeSet<_> =
            machines.iter().map(|one| format!("machine-{}", one.name_any())).collect();
        assert_eq!(machines.len(), 10);
        let pods = names::<Pod>(&kubernetes, "machine-provider=local").await;
        assert_eq!(pods, machines, "killed after {lines} lines");
        process.terminate().cleanly();

        // The API server of the killed run has ended with it, so nothing is waited for.
        let ended = Ended::of(&mut up(folder.path(), "--until gone"));
        assert_eq!(ended.code, Some(0), "killed after {lines}: {}{}", ended.stdout, ended.stderr);
        assert_eq!(ended.result()["instancesAlive"], 0);
    }
}
