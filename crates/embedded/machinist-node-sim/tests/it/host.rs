//! A host runs pods that are machines.

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use kube::api::PostParams;
use machinist_node_sim::Host;
use serde_json::json;

use crate::world::{SOON, TOKEN, World, is_ready};

const NAME: &str = "machine-w-1";

async fn make_pod(world: &World) {
    let pod = json!({
        "metadata": {"name": NAME, "labels": {"machine-provider": "local"}},
        "spec": {
            "containers": [{"name": "node", "image": "i"}],
            "volumes": [{"name": "userdata", "secret": {"secretName": "machine-w-1-userdata"}}],
        },
    });
    let pod = serde_json::from_value(pod).expect("a pod");
    world.pods().create(&PostParams::default(), &pod).await.expect("created");
}

async fn make_secret(world: &World) {
    let data = format!("#cloud-config\nwrite_files:\n- path: /var/lib/bootstrap-token\n  content: {TOKEN}\n");
    let secret = json!({"metadata": {"name": "machine-w-1-userdata"}, "stringData": {"userdata": data}});
    let secrets: Api<Secret> = Api::namespaced(world.client(), "default");
    let secret = serde_json::from_value(secret).expect("a Secret");
    secrets.create(&PostParams::default(), &secret).await.expect("created");
}

async fn phase(world: &World) -> Option<String> {
    let pod: Option<Pod> = world.pods().get_opt(NAME).await.expect("an answer");
    pod.and_then(|pod| pod.status).and_then(|status| status.phase)
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_its_secret_becomes_a_node() {
    let world = World::new().await;
    let host = Host::start(&world.cloud, world.client(), "default");
    tokio::time::sleep(SOON).await;
    assert!(is_ready(&world.nodes().get("host").await.expect("the host is a Node")));
    make_pod(&world).await;
    tokio::time::sleep(SOON).await;
    assert_eq!(phase(&world).await.as_deref(), Some("Pending"), "its Secret is missing");
    make_secret(&world).await;
    tokio::time::sleep(SOON).await;
    let pod = world.pods().get(NAME).await.expect("the pod");
    let status = pod.status.expect("a status");
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(pod.spec.and_then(|spec| spec.node_name).as_deref(), Some("host"));
    let node = world.nodes().get(NAME).await.expect("the machine is a Node");
    assert!(is_ready(&node));
    assert_eq!(node.spec.and_then(|spec| spec.provider_id).as_deref(), Some(NAME));
    let addresses = node.status.and_then(|status| status.addresses).expect("addresses");
    assert_eq!(Some(&addresses[0].address), status.pod_ip.as_ref());

    // A host that starts again changes nothing.
    drop(host);
    let _host = Host::start(&world.cloud, world.client(), "default");
    tokio::time::sleep(SOON).await;
    assert_eq!((world.cloud.alive(), world.cloud.ledger().ever().len()), (1, 1));

    world.pods().delete(NAME, &Default::default()).await.expect("requested");
    tokio::time::sleep(SOON).await;
    assert_eq!(phase(&world).await, None);
    assert_eq!(world.cloud.alive(), 0);
}

/// The pod was deleted while no host ran.
#[tokio::test(start_paused = true)]
async fn a_machine_without_its_pod_loses_its_power() {
    let world = World::new().await;
    let host = Host::start(&world.cloud, world.client(), "default");
    make_pod(&world).await;
    make_secret(&world).await;
    tokio::time::sleep(SOON).await;
    assert_eq!(world.cloud.alive(), 1);
    drop(host);
    let now = kube::api::DeleteParams::default().grace_period(0);
    world.pods().delete(NAME, &now).await.expect("deleted");
    let _host = Host::start(&world.cloud, world.client(), "default");
    tokio::time::sleep(SOON).await;
    assert_eq!(world.cloud.alive(), 0);
}
