//! Measures the start time: in memory, over HTTPS, and on a folder with N objects, after a clean
//! shutdown and after a SIGKILL. Run it with `cargo run --profile dist -p machinist-apiserver
//! --example start 10000`.
//!
//! The objects have the size of real ones. The times are only printed and never asserted, because
//! they depend on the disk.

#![expect(clippy::print_stdout, reason = "it prints its measurements")]
#![expect(clippy::disallowed_methods, reason = "it measures real time")]

use std::path::Path;
use std::time::Instant;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, ListParams};
use machinist_apiserver::{Config, Folder, Identity, Server};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: u32 = std::env::args().nth(1).map_or(Ok(10_000), |text| text.parse())?;
    let began = Instant::now();
    let server = Server::new(Config::default());
    let maps: Api<ConfigMap> =
        Api::default_namespaced(Client::new(server.service_as(Identity::admin()), "default"));
    maps.list(&ListParams::default()).await?;
    println!("in memory, up to the first answer: {:?}", began.elapsed());
    let files = tempfile::tempdir()?;
    let began = Instant::now();
    let serving = server.serve("127.0.0.1:0".parse()?, files.path()).await?;
    println!("HTTPS with a kubeconfig: {:?}", began.elapsed());
    serving.shutdown().await;
    let folder = tempfile::tempdir()?;
    let began = Instant::now();
    let server = open(folder.path())?;
    println!("new folder: {:?}", began.elapsed());
    let began = Instant::now();
    for number in 0..count {
        server.load(node(number))?;
    }
    server.saved().await?;
    println!("{count} objects written: {:?}", began.elapsed());
    drop(server);
    let file = folder.path().join("state.redb");
    println!("file: {} MB", std::fs::metadata(&file)?.len() / 1_000_000);
    let began = Instant::now();
    let server = open(folder.path())?;
    println!("start after a clean shutdown: {:?}", began.elapsed());
    server.load(node(count))?;
    server.saved().await?;
    // A kill leaves the file as it is while open, so a copy of the open file simulates the kill.
    let killed = tempfile::tempdir()?;
    std::fs::copy(&file, killed.path().join("state.redb"))?;
    for name in ["ca.crt", "ca.key", "tokens.key"] {
        std::fs::copy(folder.path().join(name), killed.path().join(name))?;
    }
    let began = Instant::now();
    let _again = open(killed.path())?;
    println!("start after a kill: {:?}", began.elapsed());
    Ok(())
}

fn open(path: &Path) -> Result<Server, Box<dyn std::error::Error>> {
    Ok(Server::open(Config::default(), Folder::open(path)?)?)
}

/// A Node with the content that kubelets and controllers leave, 2 kB.
fn node(number: u32) -> serde_json::Value {
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "False", "reason": format!("KubeletHas{kind}"), "message": "kubelet says so",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"
        })
    };
    let conditions = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].map(condition);
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": format!("node-{number}"), "uid": format!("5e0b9c2e-6f43-4c5b-9f0e-{number:012}"),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "topology.kubernetes.io/zone": "zone-1"},
            "annotations": {"node.machine.sapcloud.io/last-applied": "{}".repeat(50)},
        },
        "spec": {"providerID": format!("sim:///zone-1/i-{number}"), "podCIDR": "10.1.0.0/24"},
        "status": {
            "conditions": conditions,
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": format!("node-{number}")}],
            "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110", "ephemeral-storage": "100Gi"},
            "allocatable": {"cpu": "3900m", "memory": "15Gi", "pods": "110", "ephemeral-storage": "90Gi"},
            "nodeInfo": {
                "kernelVersion": "6.12.0", "osImage": "Linux", "containerRuntimeVersion": "containerd://2.0.0",
                "kubeletVersion": "v1.33.0", "operatingSystem": "linux", "architecture": "amd64",
                "machineID": "0", "systemUUID": "0", "bootID": "0", "kubeProxyVersion": ""
            }
        }
    })
}
