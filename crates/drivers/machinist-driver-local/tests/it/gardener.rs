//! Pods that Go's provider created, in both of its versions: without a key, with its marks.

use jiff::Timestamp;
use machinist_driver::Provider as _;
use machinist_instance::{ErrorKind, InstanceRef, InstanceSpec, Marks, Sighting};
use serde_json::{Value, json};

use crate::cluster::{
    Cluster, NAMESPACE, class, delete, ensure, epoch, find, found, id, instance_spec, key, recorded,
    unrecorded,
};
use crate::pipe::failure;

/// The labels of today's version.
pub(crate) fn today(machine: &str) -> Value {
    json!({"machine-provider": "local", "app": "machine", "machine": machine})
}

/// The labels of the version from before 2025.
fn older() -> Value {
    json!({
        "machine-provider": "local", "app": "machine",
        "networking.gardener.cloud/to-dns": "allowed",
        "networking.gardener.cloud/to-public-networks": "allowed",
    })
}

/// A pod as Go's provider leaves it.
pub(crate) fn pod_of_go(machine: &str, labels: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("machine-{machine}"), "namespace": NAMESPACE, "labels": labels,
        },
        "spec": {"containers": [{"name": "node", "image": "registry.example/machine:v1"}]},
    })
}

fn owner(kind: &str, name: &str, uid: &str) -> Value {
    let api_version = if kind == "Pod" { "v1" } else { "machine.sapcloud.io/v1alpha1" };
    json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true}])
}

fn secret_of_go(machine: &str, owners: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {
            "name": format!("machine-{machine}-userdata"), "namespace": NAMESPACE, "ownerReferences": owners,
        },
        "data": {"userdata": "IyEvYmluL3NoCg=="},
    })
}

fn service_of_go(machine: &str, owners: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": format!("machine-{machine}"), "namespace": NAMESPACE, "labels": today(machine),
            "ownerReferences": owners,
        },
        "spec": {"clusterIP": "None", "selector": today(machine), "ports": [{"name": "ssh", "port": 22}]},
    })
}

/// Pod, Service and Secret of today's version.
async fn make_today(cluster: &Cluster, machine: &str) {
    let pod = cluster.make(pod_of_go(machine, today(machine))).await;
    let uid = pod["metadata"]["uid"].as_str().expect("a UID");
    let owners = owner("Pod", &format!("machine-{machine}"), uid);
    cluster.make(service_of_go(machine, owners.clone())).await;
    cluster.make(secret_of_go(machine, owners)).await;
}

/// Pod and Secret of the older version, which the Machine owns.
async fn make_older(cluster: &Cluster, machine: &str) {
    let owners = owner("Machine", machine, &format!("uid-{machine}"));
    let mut pod = pod_of_go(machine, older());
    pod["metadata"]["ownerReferences"] = owners.clone();
    cluster.make(pod).await;
    cluster.make(secret_of_go(machine, owners)).await;
}

/// The two versions of Go's provider.
#[derive(Debug, Clone, Copy)]
enum Version {
    Today,
    Older,
}

async fn make(cluster: &Cluster, machine: &str, version: Version) {
    match version {
        Version::Today => make_today(cluster, machine).await,
        Version::Older => make_older(cluster, machine).await,
    }
}

fn adopting(machine: &str, since: Timestamp) -> InstanceSpec {
    InstanceSpec { adopt_made_since: Some(since), ..instance_spec(machine) }
}

fn of_go(machine: &str) -> InstanceRef {
    InstanceRef { may_lack_key: true, ..recorded(machine) }
}

#[tokio::test(start_paused = true)]
async fn pods_of_both_versions_are_known_by_their_marks() {
    let cluster = Cluster::new().await;
    let driver = cluster.driver();
    make_today(&cluster, "a").await;
    make_older(&cluster, "b").await;
    let mut pet = pod_of_go("c", json!({"app": "machine"}));
    pet["spec"]["containers"][0]["name"] = json!("pet");
    cluster.make(pet).await;
    for (machine, marks) in [("a", Marks::OfClass), ("b", Marks::OfClass), ("c", Marks::Missing)] {
        let instance = found(&*driver, &recorded(machine)).await;
        assert_eq!((instance.key.as_ref(), &instance.id), (None, &id(machine)));
        assert_eq!(cluster.provider.marks_of(&instance, &class()), marks, "{machine}");
        // Without the caller's knowledge, nothing is deleted.
        let refused = delete(&*driver, &recorded(machine), &key(&format!("uid-{machine}"))).await;
        assert_eq!(refused.map_err(|error| error.kind), Err(ErrorKind::Denied), "{machine}");
    }
}

/// The garbage collector deletes the rest: the pod owns it, or the Machine does.
#[tokio::test(start_paused = true)]
async fn pods_of_both_versions_are_deleted_by_their_id() {
    for version in [Version::Today, Version::Older] {
        let cluster = Cluster::new().await;
        let driver = cluster.driver();
        make(&cluster, "a", version).await;
        delete(&*driver, &of_go("a"), &key("uid-a")).await.expect("deleted");
        cluster.until_absent("machine-a").await;
        assert_eq!(find(&*driver, &of_go("a")).await, Sighting::Absent);
    }
}

/// Go was killed after the creation, and before it recorded the instance.
#[tokio::test(start_paused = true)]
async fn a_pod_of_a_killed_process_is_adopted() {
    for version in [Version::Today, Version::Older] {
        let cluster = Cluster::new().await;
        let driver = cluster.driver();
        make(&cluster, "a", version).await;
        let adopted = ensure(&*driver, &adopting("a", epoch())).await.expect("adopted");
        assert_eq!((&adopted.id, &adopted.key), (&id("a"), &Some(key("uid-a"))));
        assert_eq!(adopted.cluster.as_deref(), Some("default"));
        assert_eq!(adopted.tags["machine-provider"], "local", "it keeps its marks");
        assert_eq!(adopted.tags["machinist.dev/namespace-uid"], "n-1");
        assert_eq!(cluster.pipe.count("POST secrets"), 0, "Go's Secret is used");
        assert_eq!(ensure(&*driver, &instance_spec("a")).await.expect("the same").id, adopted.id);
        delete(&*driver, &recorded("a"), &key("uid-a")).await.expect("deleted");
        cluster.until_absent("machine-a").await;
    }
}

/// Go was killed between the pod and the Secret.
#[tokio::test(start_paused = true)]
async fn an_adopted_pod_without_its_secret_gets_one() {
    let cluster = Cluster::new().await;
    cluster.set_kubelet(|kubelet| kubelet.is_idle = true);
    let driver = cluster.driver();
    cluster.make(pod_of_go("a", today("a"))).await;
    ensure(&*driver, &adopting("a", epoch())).await.expect("adopted");
    assert_eq!(cluster.objects().map(|names| names.len()), [1, 1, 1]);
    assert!(matches!(find(&*driver, &unrecorded("a")).await, Sighting::Present(_)));
}

#[tokio::test(start_paused = true)]
async fn only_young_pods_with_the_marks_are_adopted() {
    let cluster = Cluster::new().await;
    let driver = cluster.driver();
    cluster.make(pod_of_go("old", today("old"))).await;
    cluster.make(pod_of_go("pet", json!({"app": "web"}))).await;
    cluster.make(pod_of_go("other", today("another-machine"))).await;
    let later = epoch().saturating_add(std::time::Duration::from_secs(1)).expect("a time");
    for (machine, since) in [("old", later), ("pet", epoch()), ("other", epoch())] {
        let refused = ensure(&*driver, &adopting(machine, since)).await.expect_err(machine);
        assert_eq!(refused.kind, ErrorKind::Denied);
        let expected = format!("pod machine-{machine}: expected the key uid-{machine}, got no key");
        assert_eq!(refused.message, expected);
        assert_eq!(found(&*driver, &recorded(machine)).await.key, None, "unchanged");
    }
    assert_eq!((cluster.pipe.count("PATCH pods"), cluster.pipe.count("DELETE pods")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn without_permission_to_patch_a_pod_is_adopted_unmarked() {
    let cluster = Cluster::new().await;
    let driver = cluster.driver();
    make_today(&cluster, "a").await;
    cluster.pipe.refuse("PATCH pods", failure(403, "Forbidden", "pods \"machine-a\" is forbidden"));
    for _ in 0..2 {
        let adopted = ensure(&*driver, &adopting("a", epoch())).await.expect("adopted");
        assert_eq!((&adopted.id, adopted.key), (&id("a"), None));
    }
    assert_eq!(cluster.names("pods"), ["machine-a"]);
}

#[tokio::test(start_paused = true)]
async fn only_a_pod_with_the_marks_is_initialized() {
    let cluster = Cluster::new().await;
    let driver = cluster.driver();
    make_today(&cluster, "a").await;
    cluster.make(pod_of_go("pet", json!({"app": "web"}))).await;
    cluster.until_running("machine-a").await;
    cluster.until_running("machine-pet").await;
    let calls = driver.initialization().expect("a driver with initialization");
    assert_eq!(calls.initialize(&id("a"), &key("uid-a"), &class()).await, Ok(()));
    let refused = calls.initialize(&id("pet"), &key("uid-pet"), &class()).await;
    assert_eq!(refused.map_err(|error| error.kind), Err(ErrorKind::Denied));
}
