//! Tests of joining: the machines that join, and their credentials.

use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use machinist_apiserver::Verb;
use serde_json::json;

use crate::world::{SOON, TOKEN, World, is_ready};

#[tokio::test(start_paused = true)]
async fn a_machine_joins_with_its_token_and_works_as_its_node() {
    let mut world = World::new().await;
    let made = world.make("w-1", TOKEN).await;
    tokio::time::sleep(SOON).await;

    let node = world.nodes().get("w-1").await.expect("joined");
    assert!(is_ready(&node), "{}", world.console(&made.id));
    let spec = node.spec.expect("a spec");
    assert_eq!(spec.provider_id.as_deref(), Some("sim:///i-1"));
    let labels = node.metadata.labels.expect("labels");
    assert_eq!(labels["kubernetes.io/hostname"], "w-1");
    assert_eq!(labels["node.kubernetes.io/instance-type"], "m5.large");
    let addresses = node.status.and_then(|status| status.addresses).expect("addresses");
    assert!(addresses.iter().any(|address| address.type_ == "InternalIP" && address.address == "10.0.0.1"));

    let requests = world.machine_requests();
    let of = |resource: &str, verb: Verb| {
        requests.iter().filter(|r| r.resource == resource && r.verb == verb).collect::<Vec<_>>()
    };
    let filed = of("certificatesigningrequests", Verb::Create);
    assert!(filed.iter().all(|request| request.user == "system:bootstrap:626a68") && filed.len() == 1);
    let registered = of("nodes", Verb::Create);
    assert!(registered.iter().all(|request| request.user == "system:node:w-1") && registered.len() == 1);
    let by_node = requests.iter().filter(|request| request.user == "system:node:w-1").count();
    let by_token = requests.iter().filter(|request| request.user == "system:bootstrap:626a68").count();
    assert_eq!(by_node + by_token, requests.len(), "machines use no other credential");
}

#[tokio::test(start_paused = true)]
async fn an_external_cloud_provider_initialises_the_node() {
    let world = World::new().await;
    let flags = "KUBELET_EXTRA_ARGS=--cloud-provider=external";
    for (name, flags) in [("w-1", flags.to_owned()), ("w-2", format!("{flags} --node-ip=10.1.0.2"))] {
        let user_data = format!(
            "#cloud-config\nwrite_files:\n- {{path: /var/lib/bootstrap-token, content: {TOKEN}}}\n\
             - {{path: /etc/default/kubelet, content: {flags}}}\n"
        );
        world.make_from(name, &user_data).await;
    }
    tokio::time::sleep(SOON).await;
    let registered = async |name: &str| {
        let node = world.nodes().get(name).await.expect("joined");
        assert!(is_ready(&node), "{node:#?}");
        let spec = node.spec.expect("a spec");
        let taints: Vec<_> = spec
            .taints
            .iter()
            .flatten()
            .map(|taint| (&*taint.key, taint.value.as_deref(), &*taint.effect))
            .collect();
        let expected = ("node.cloudprovider.kubernetes.io/uninitialized", Some("true"), "NoSchedule");
        assert_eq!((spec.provider_id.as_deref(), &*taints), (None, &[expected][..]));
        let labels = node.metadata.labels.expect("labels");
        assert!(!labels.contains_key("node.kubernetes.io/instance-type"), "{labels:?}");
        let addresses = node.status.and_then(|status| status.addresses).expect("addresses");
        let addresses: Vec<_> =
            addresses.into_iter().map(|address| (address.type_, address.address)).collect();
        let annotations = node.metadata.annotations.unwrap_or_default();
        (addresses, annotations.get("alpha.kubernetes.io/provided-node-ip").cloned())
    };
    let address = |kind: &str, address: &str| (kind.to_owned(), address.to_owned());
    assert_eq!(registered("w-1").await, (vec![address("Hostname", "w-1")], None));
    let with_node_ip = vec![address("InternalIP", "10.1.0.2"), address("Hostname", "w-2")];
    assert_eq!(registered("w-2").await, (with_node_ip, Some("10.1.0.2".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_renewed_every_10_s_and_the_status_every_5_min() {
    let mut world = World::new().await;
    world.make("w-1", TOKEN).await;
    tokio::time::sleep(SOON).await;
    world.machine_requests();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let requests = world.machine_requests();
    let count = |resource: &str| requests.iter().filter(|r| r.resource == resource && r.is_write()).count();
    assert_eq!((count("leases"), count("nodes")), (60, 2));
    assert!(requests.iter().all(|request| request.code < 300 || request.verb == Verb::Watch));
    let leases: Api<Lease> = Api::namespaced(world.client(), "kube-node-lease");
    let lease = leases.get("w-1").await.expect("the Lease exists");
    assert_eq!(lease.metadata.owner_references.expect("an owner")[0].kind, "Node");
    assert!(is_ready(&world.nodes().get("w-1").await.expect("the Node exists")));
}

#[tokio::test(start_paused = true)]
async fn a_machine_with_a_wrong_token_gets_401_and_never_joins() {
    let mut world = World::new().await;
    let wrong = world.make("wrong", "626a68.0000000000000000").await;
    world.add_token("aaaaaa.bbbbbbbbbbbbbbbb", "2025-12-31T23:59:59Z").await;
    let expired = world.make("expired", "aaaaaa.bbbbbbbbbbbbbbbb").await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let requests = world.machine_requests();
    assert!(requests.iter().all(|request| request.code == 401), "{requests:?}");
    // The machine retries at growing intervals, at most once a minute: visible to a person, and
    // little load.
    assert!((2 * 40..2 * 80).contains(&requests.len()), "{} requests in an hour", requests.len());
    for instance in [wrong, expired] {
        let console = world.console(&instance.id);
        assert!(console.contains("401 Unauthorized"), "{console}");
        assert!(!console.contains("bbbbbbbbbbbbbbbb") && !console.contains("0000000000000000"), "{console}");
    }
    assert!(world.nodes().list(&Default::default()).await.expect("listed").items.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_machine_joins_when_its_token_is_created_late() {
    let world = World::new().await;
    world.make("w-1", "cccccc.dddddddddddddddd").await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    world.add_token("cccccc.dddddddddddddddd", "2026-01-01T01:00:00Z").await;
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert!(is_ready(&world.nodes().get("w-1").await.expect("joined at last")));
}

#[tokio::test(start_paused = true)]
async fn a_machine_without_a_token_sends_no_request() {
    let mut world = World::new().await;
    let made = world.make_from("w-1", "#cloud-config\nwrite_files: []\n").await;
    tokio::time::sleep(SOON).await;
    let console = world.console(&made.id);
    assert!(
        console.contains("giving up: user data: write_files: expected /var/lib/bootstrap-token"),
        "{console}"
    );
    assert!(world.machine_requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_machine_gives_up_after_several_denied_requests() {
    let mut world = World::new().await;
    // Without controllers no request is signed; the test denies every request.
    drop(world.fleet.take());
    let made = world.make("w-1", TOKEN).await;
    let requests: Api<CertificateSigningRequest> = Api::all(world.client());
    let denier = tokio::spawn(deny_all(requests.clone()));
    world.stop_controllers();
    world.start_fleet();
    tokio::time::sleep(Duration::from_secs(300)).await;
    denier.abort();
    let console = world.console(&made.id);
    assert!(console.contains("was refused: Denied: not today"), "{console}");
    assert!(console.contains("giving up"), "{console}");
    assert_eq!(requests.list(&Default::default()).await.expect("listed").items.len(), 4, "{console}");
}

async fn deny_all(requests: Api<CertificateSigningRequest>) {
    loop {
        for request in requests.list(&Default::default()).await.expect("listed").items {
            let is_decided = request.status.and_then(|status| status.conditions).is_some();
            if !is_decided {
                let denied = json!({"status": {"conditions": [
                    {"type": "Denied", "status": "True", "reason": "ByHand", "message": "not today"},
                ]}});
                let name = request.metadata.name.expect("a name");
                let params = PatchParams::default();
                requests.patch_approval(&name, &params, &Patch::Merge(denied)).await.expect("denied");
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
