//! Tests of `machinist up --cloud hcloud`: the machine controller and the cloud controller manager
//! with a stand-in for Hetzner Cloud.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::Value;

use crate::process::{Ended, Process, call, client, machinist};

#[test]
fn servers_become_nodes_and_are_deleted() {
    let ended = Ended::of(&mut machinist("up --cloud hcloud --until gone -o json"));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let result = ended.result();
    for (field, expected) in
        [("machines", 0), ("running", 0), ("nodesReady", 0), ("instancesAlive", 0), ("instancesEver", 3)]
    {
        assert_eq!(result[field], expected, "{field} of {result}");
    }
    // Addresses, then the rest. Another write of a Node that comes between repeats one of them.
    let writes = result["writesPerMachine"]["cloudControllerManager"].as_f64();
    assert!(writes.is_some_and(|writes| (2.0..3.0).contains(&writes)), "{result}");
    assert_eq!(ended.stderr, "");
}

#[test]
fn the_output_shows_how_to_talk_to_the_stand_in() {
    let ended = Ended::of(&mut machinist("up --cloud hcloud --until ready"));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    for part in [
        "/v1 (stands in for Hetzner Cloud; http://127.0.0.1:",
        "HCLOUD_TOKEN=stand-in hcloud server list",
        "Ready: 3 of 3 machines Running, 3 Nodes ready, 3 instances alive of 3 ever created",
        "cloud controller manager 2",
    ] {
        assert!(ended.stdout.contains(part), "expected {part:?} in\n{}", ended.stdout);
    }
}

/// A running `machinist up --cloud hcloud` with a data directory.
struct Up {
    process: Process,
    kubeconfig: std::path::PathBuf,
    cloud: String,
}

impl Up {
    fn start(folder: &std::path::Path, flags: &str) -> Self {
        let mut command = machinist(&format!("up --cloud hcloud -o json {flags} --data-dir"));
        let mut process = Process::start(command.arg(folder));
        let started: Value = serde_json::from_str(&process.line_with("started")).expect("one JSON object");
        let text = |field: &str| started[field].as_str().expect(field).to_owned();
        let cloud = text("cloud").trim_end_matches("/v1").to_owned();
        Self { process, kubeconfig: text("kubeconfig").into(), cloud }
    }

    fn servers(&self) -> Vec<Value> {
        let servers = call(&self.cloud, "GET", "/_control/servers", "");
        servers.as_array().expect("a list").clone()
    }

    /// Waits until this number of Nodes became ready.
    fn nodes_ready(&mut self, count: usize) {
        for _ in 0..count {
            while !self.process.line_with("\"event\":\"node\"").contains("\"Ready\"") {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_have_the_facts_of_their_servers() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut up = Up::start(folder.path(), "");
    up.nodes_ready(3);
    let kubernetes = client(&up.kubeconfig).await;
    let nodes: Api<Node> = Api::all(kubernetes.clone());
    let servers = up.servers();
    assert_eq!(servers.len(), 3);
    for server in &servers {
        let node = nodes.get(server["name"].as_str().expect("a name")).await.expect("a Node of that name");
        let spec = node.spec.expect("a spec");
        assert_eq!(spec.provider_id, Some(format!("hcloud://{}", server["id"])));
        let labels = node.metadata.labels.expect("labels");
        for (label, value) in [
            ("node.kubernetes.io/instance-type", "cx22"),
            ("topology.kubernetes.io/region", "fsn1"),
            ("instance.hetzner.cloud/provided-by", "cloud"),
        ] {
            assert_eq!(labels.get(label).map(String::as_str), Some(value), "{label}");
        }
        let addresses = node.status.and_then(|status| status.addresses).expect("addresses");
        let external =
            addresses.iter().find(|address| address.type_ == "ExternalIP").expect("an external address");
        assert_eq!(Some(&*external.address), server["ipv4"]["ip"].as_str(), "the server's own address");
    }
    // The roles of the cloud controller manager are the same as in its deployment, and no more.
    let reviews: Api<SubjectAccessReview> = Api::all(kubernetes);
    for (verb, resource, is_allowed) in [
        ("patch", "nodes", true),
        ("delete", "nodes", true),
        ("create", "nodes", false),
        ("get", "secrets", false),
    ] {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some("system:serviceaccount:kube-system:machinist-cloud-controller-manager".to_owned()),
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(verb.to_owned()),
                    resource: Some(resource.to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let answer = reviews.create(&PostParams::default(), &review).await.expect("an answer");
        assert_eq!(answer.status.expect("a status").allowed, is_allowed, "{verb} {resource}");
    }
    up.process.terminate().cleanly();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_cluster_continues_with_its_servers() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut up = Up::start(folder.path(), "--cloud-network cluster");
    up.nodes_ready(3);
    let before = up.servers();
    up.process.terminate().cleanly();

    let path = folder.path().display();
    let refused = Ended::of(&mut machinist(&format!("up --until ready --data-dir {path}")));
    assert_eq!(refused.code, Some(1));
    let advice = format!("machinist up --cloud hcloud --data-dir {path}");
    assert!(refused.stderr.contains(&advice), "{}", refused.stderr);

    let up = Up::start(folder.path(), "--cloud-network cluster");
    assert_eq!(up.servers().len(), before.len(), "no server is created or replaced");
    let nodes: Api<Node> = Api::all(client(&up.kubeconfig).await);
    let nodes = nodes.list(&ListParams::default()).await.expect("a list").items;
    assert_eq!(nodes.len(), 3);
    up.process.terminate().cleanly();

    let ended =
        Ended::of(&mut machinist(&format!("up --cloud hcloud --until gone -o json --data-dir {path}")));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let result = ended.result();
    assert_eq!((&result["instancesAlive"], &result["instancesEver"]), (&0.into(), &3.into()));
}

#[test]
fn a_network_needs_the_cloud_hcloud() {
    let ended = Ended::of(&mut machinist("up --cloud-network a"));
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("--cloud-network: expected only with --cloud hcloud"), "{}", ended.stderr);
}
