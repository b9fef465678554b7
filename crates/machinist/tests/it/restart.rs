//! Tests of `machinist up --data-dir` that stop or kill the process at different moments and
//! restart it.

use std::path::Path;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::process::{Ended, Process, Up, call, client, free_port, machinist};

const MACHINES: u64 = 50;

/// Numbers of lines about machines and Nodes after which the first and the second run are killed. A
/// scale-up from 3 to 50 has about 235 lines.
const MOMENTS: [(usize, usize); 5] = [(0, 0), (3, 60), (40, 10), (90, 90), (180, 5)];

fn up(folder: &Path, more: &str) -> std::process::Command {
    let mut command = machinist("up -o json --data-dir");
    command.arg(folder).args(more.split_whitespace());
    command
}

/// Kills the process after this many lines about machines and Nodes.
fn kill_after(mut process: Process, lines: usize) {
    for _ in 0..lines {
        process.line_with("\"state\":");
    }
    // Dropping a process kills it with SIGKILL.
    drop(process);
}

fn deployments(client: kube::Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("machine.sapcloud.io", "v1alpha1", "MachineDeployment");
    Api::default_namespaced_with(client, &ApiResource::from_gvk(&kind))
}

async fn scale(folder: &Path, replicas: u64) {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    let deployments = deployments(client(&folder.join("kubeconfig")).await);
    deployments.patch("workers", &PatchParams::default(), &patch).await.expect("scaled");
}

#[tokio::test]
async fn a_killed_scale_up_completes_without_duplicates() {
    for (first, second) in MOMENTS {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let ended = Ended::of(&mut up(folder.path(), "--until ready"));
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);

        let mut process = Process::start(&mut up(folder.path(), ""));
        process.line_with("Continues with the state in the data directory");
        for _ in 0..6 {
            // The three existing machines and Nodes.
            process.line_with("\"state\":");
        }
        scale(folder.path(), MACHINES).await;
        kill_after(process, first);
        let mut process = Process::start(&mut up(folder.path(), ""));
        process.line_with("started");
        kill_after(process, second);

        let ended = Ended::of(&mut up(folder.path(), "--until ready --timeout 3m"));
        assert_eq!(
            ended.code,
            Some(0),
            "killed after {first} and {second}: {}{}",
            ended.stdout,
            ended.stderr
        );
        let result = ended.result();
        for field in ["machines", "running", "nodesReady", "instancesAlive", "instancesEver"] {
            assert_eq!(result[field], MACHINES, "killed after {first} and {second}: {field} of {result}");
        }
        let ledger = std::fs::read_to_string(folder.path().join("ledger.jsonl")).expect("a ledger");
        let kinds = |what: &str| ledger.lines().filter(|line| line.contains(what)).count();
        assert_eq!(kinds("\"gone\""), 0, "an instance was deleted");
    }
}

#[tokio::test]
async fn after_a_kill_kubeconfig_and_nodes_still_work() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut process = Process::start(&mut up(folder.path(), ""));
    for _ in 0..3 {
        process.line_with("\"state\":\"Running\"");
    }
    let copy = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::copy(folder.path().join("kubeconfig"), copy.path()).expect("copied");
    let list = async || {
        let client = client(copy.path()).await;
        let nodes: Api<Node> = Api::all(client.clone());
        let requests: Api<CertificateSigningRequest> = Api::all(client);
        let all = ListParams::default();
        let nodes = nodes.list(&all).await.expect("listed").items.into_iter();
        let requests = requests.list(&all).await.expect("listed").items.into_iter();
        let nodes: Vec<_> = nodes.map(|node| (node.name_any(), node.uid())).collect();
        (nodes, requests.map(|request| request.name_any()).collect::<Vec<_>>())
    };
    let before = list().await;
    assert_eq!((before.0.len(), before.1.len()), (3, 3));
    drop(process);
    #[expect(clippy::disallowed_methods, reason = "the tested process uses the real clock")]
    let killed_at = jiff::Timestamp::now();

    let mut process = Process::start(&mut up(folder.path(), ""));
    process.line_with("started");
    // Only the Node itself may renew its Lease, and its bootstrap token no longer exists.
    let leases: Api<Lease> = Api::namespaced(client(copy.path()).await, "kube-node-lease");
    for (node, _) in &before.0 {
        let renewed = await_condition(leases.clone(), node, |lease: Option<&Lease>| {
            let renewed_at = lease.and_then(|lease| lease.spec.as_ref()?.renew_time.as_ref());
            renewed_at.is_some_and(|at| killed_at < at.0)
        });
        renewed.await.expect("watched");
    }
    assert_eq!(list().await, before, "the Nodes changed or requested new certificates");
    process.terminate().cleanly();
}

#[tokio::test]
async fn a_manifest_is_applied_again_and_a_quick_start_is_not() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ended = Ended::of(&mut up(folder.path(), "--until ready"));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let mut process = Process::start(&mut up(folder.path(), ""));
    process.line_with("the quick start is not applied again");
    scale(folder.path(), 1).await;
    process.terminate().cleanly();
    let ended = Ended::of(&mut up(folder.path(), "--until ready"));
    assert_eq!(ended.result()["machines"], 1, "{}", ended.stdout);

    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/quickstart.yaml");
    let ended = Ended::of(&mut up(folder.path(), &format!("--until ready --manifest {manifest}")));
    assert!(
        ended.stdout.contains("\"object\":\"MachineDeployment workers\",\"how\":\"updated\""),
        "{}",
        ended.stdout
    );
    assert_eq!(ended.result()["machines"], 3, "{}", ended.stdout);

    // With a new template, the cluster is ready only after all machines are replaced.
    let text = std::fs::read_to_string(manifest).expect("the quick start");
    let (before, after) = text.split_once("  template:\n    metadata:\n").expect("a template");
    let annotation = "      annotations: {again: \"yes\"}\n";
    let changed = format!("{before}  template:\n    metadata:\n{annotation}{after}");
    let other = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(other.path(), changed).expect("written");
    let again = format!("--until ready --manifest {}", other.path().display());
    let ended = Ended::of(&mut up(folder.path(), &again));
    let (result, ever) = (ended.result(), 3 + 3 + 2);
    assert_eq!((&result["running"], &result["instancesAlive"]), (&3.into(), &3.into()), "{}", ended.stdout);
    assert_eq!(result["instancesEver"], ever, "{}", ended.stdout);
}

#[tokio::test]
async fn ready_waits_for_objects_that_are_being_deleted() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut process = Process::start(&mut up(folder.path(), "--until gone"));
    // At this time, the deployment is being deleted too.
    process.line_with("\"state\":\"Terminating\"");
    // Dropping a process kills it with SIGKILL.
    drop(process);
    let ended = Ended::of(&mut up(folder.path(), "--until ready"));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let result = ended.result();
    assert_eq!((&result["machines"], &result["instancesAlive"]), (&0.into(), &0.into()), "{}", ended.stdout);
}

#[tokio::test]
async fn a_killed_deletion_completes_and_can_be_repeated() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut process = Process::start(&mut up(folder.path(), "--until gone"));
    // At this time, the deployment is being deleted too.
    process.line_with("\"state\":\"Terminating\"");
    // Dropping a process kills it with SIGKILL.
    drop(process);
    for _ in 0..2 {
        let ended = Ended::of(&mut up(folder.path(), "--until gone --timeout 60s"));
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
        let result = ended.result();
        assert_eq!((&result["result"], &result["instancesAlive"]), (&"gone".into(), &0.into()), "{result}");
        assert!(!ended.stdout.contains("Everything runs"), "no machine runs: {}", ended.stdout);
    }
}

#[tokio::test]
async fn until_gone_ignores_unknown_instances_and_nodes() {
    let mut up = Up::start(None);
    for _ in 0..3 {
        up.process.line_with("\"state\":\"Running\"");
    }
    let stranger = json!({"name": "stranger", "created": "2026-01-01T00:00:00Z", "instanceType": "small"});
    up.cloud("POST", "/admin/load", &stranger.to_string());
    let Up { process, folder, .. } = up;
    process.terminate().cleanly();

    let quick_start = include_str!("../../quickstart.yaml");
    let node = "---\napiVersion: v1\nkind: Node\nmetadata: {name: by-hand}\n";
    let manifest = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(manifest.path(), format!("{quick_start}{node}")).expect("written");
    let mut again = machinist("up --until gone --timeout 60s -o json --data-dir");
    let ended = Ended::of(again.arg(folder.path()).arg("--manifest").arg(manifest.path()));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let result = ended.result();
    assert_eq!((&result["machines"], &result["instancesAlive"]), (&0.into(), &1.into()), "{result}");
}

#[tokio::test]
async fn an_object_in_deletion_is_recreated_by_a_manifest() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut process = Process::start(&mut up(folder.path(), "--until gone"));
    // At this time, the deployment is being deleted too.
    process.line_with("\"state\":\"Terminating\"");
    // Dropping a process kills it with SIGKILL.
    drop(process);
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/quickstart.yaml");
    let again = format!("--until ready --timeout 60s --manifest {manifest}");
    let ended = Ended::of(&mut up(folder.path(), &again));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    for part in [
        "MachineDeployment workers is being deleted; it will be recreated afterwards",
        "\"object\":\"MachineDeployment workers\",\"how\":\"created\"",
    ] {
        assert!(ended.stdout.contains(part), "expected {part:?} in {}", ended.stdout);
    }
    let result = ended.result();
    assert_eq!((&result["running"], &result["instancesEver"]), (&3.into(), &6.into()), "{result}");
}

#[test]
fn the_cloud_keeps_a_given_address_after_a_restart() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let address = format!("127.0.0.1:{}", free_port());
    let more = format!("--cloud-listen {address}");
    let cloud = |process: &mut Process| {
        let started: serde_json::Value =
            serde_json::from_str(&process.line_with("started")).expect("one JSON object");
        started["cloud"].as_str().expect("its URL").to_owned()
    };
    let mut process = Process::start(&mut up(folder.path(), &more));
    let before = cloud(&mut process);
    assert_eq!(before, format!("http://{address}"));
    for _ in 0..3 {
        process.line_with("\"state\":\"Running\"");
    }
    let ledger = call(&before, "GET", "/admin/ledger", "");
    process.terminate().cleanly();

    let mut process = Process::start(&mut up(folder.path(), &more));
    assert_eq!(cloud(&mut process), before);
    assert_eq!(call(&before, "GET", "/admin/ledger", "")["entries"], ledger["entries"]);
    // A second process cannot use the same address.
    let ended = Ended::of(&mut machinist(&format!("up --until ready {more}")));
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    let expected = format!("error: --cloud-listen: cannot listen on {address}: ");
    assert!(ended.stderr.starts_with(&expected), "{}", ended.stderr);
    process.terminate().cleanly();
}
