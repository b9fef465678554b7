//! Creation, parts, deletion and states of an instance.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use machinist_instance::{
    Error, ErrorKind, InstanceRef, InstanceSpec, NativeId, NodeName, Power, Scope, Sighting, UserData,
};
use serde_json::{Value, json};

use crate::cluster::{
    Cluster, class, delete, ensure, find, found, id, instance_spec, key, recorded, unrecorded,
};
use crate::pipe::{Fault, failure};

fn object(cluster: &Cluster, resource: &str, name: &str) -> Value {
    let objects = cluster.server.snapshot(resource);
    objects.iter().find(|object| object.name() == name).expect(name).whole()
}

#[tokio::test(start_paused = true)]
async fn an_instance_is_a_pod_a_service_and_a_secret() {
    let cluster = Cluster::new().await;
    let driver = cluster.driver();
    let made = ensure(&*driver, &instance_spec("a")).await.expect("created");
    let requests = cluster.pipe.requests();
    assert_eq!(requests, ["POST pods", "GET secrets", "POST services", "POST secrets"]);
    let (pod, service) = (object(&cluster, "pods", "machine-a"), object(&cluster, "services", "machine-a"));
    let secret = object(&cluster, "secrets", "machine-a-userdata");
    let uid = pod["metadata"]["uid"].as_str().expect("a UID");
    assert_eq!((made.id.as_str(), made.native_id), ("machine-a", NativeId::new(uid)));
    assert_eq!(made.name, NodeName::new("machine-a").expect("not empty"), "the Node is called like the pod");
    for part in [&service, &secret] {
        assert_eq!(part["metadata"]["ownerReferences"][0]["uid"], uid);
        assert_eq!(part["metadata"]["labels"]["machinist.dev/key"], "uid-a");
    }
    assert_eq!(service["spec"]["clusterIP"], "None");
    cluster.until_running("machine-a").await;
    let shown = found(&*driver, &unrecorded("a")).await;
    assert_eq!((shown.power, shown.addresses[0].address.as_str()), (Power::Running, "10.1.0.5"));
}

/// A process was killed between the requests of a creation.
#[tokio::test(start_paused = true)]
async fn a_creation_is_continued_after_each_request() {
    for lost in ["POST services", "POST secrets"] {
        let cluster = Cluster::new().await;
        cluster.set_kubelet(|kubelet| kubelet.is_idle = true);
        let driver = cluster.driver();
        cluster.pipe.once(lost, Fault::Unreachable);
        let error = ensure(&*driver, &instance_spec("a")).await.expect_err("broken");
        assert_eq!((error.kind, error.state.as_deref()), (ErrorKind::Unavailable, Some("pod machine-a")));
        let parts = Sighting::Parts(vec!["pod machine-a".to_owned()]);
        assert_eq!(find(&*driver, &unrecorded("a")).await, parts, "{lost}");
        let uid = object(&cluster, "pods", "machine-a")["metadata"]["uid"].clone();
        // The next process has a new token.
        let spec = InstanceSpec { user_data: UserData::new(*b"second"), ..instance_spec("a") };
        ensure(&*driver, &spec).await.expect("continued");
        assert_eq!(object(&cluster, "pods", "machine-a")["metadata"]["uid"], uid, "{lost}");
        assert_eq!(object(&cluster, "secrets", "machine-a-userdata")["data"]["userdata"], "c2Vjb25k");
        assert!(matches!(find(&*driver, &unrecorded("a")).await, Sighting::Present(_)));
        assert_eq!(cluster.objects().map(|names| names.len()), [1, 1, 1]);
    }
}

/// The garbage collector has not deleted the Secret of an earlier pod yet.
#[tokio::test(start_paused = true)]
async fn parts_of_an_earlier_pod_are_replaced() {
    let cluster = Cluster::new().await;
    let driver = cluster.driver();
    ensure(&*driver, &instance_spec("a")).await.expect("created");
    let before = object(&cluster, "secrets", "machine-a-userdata")["metadata"]["uid"].clone();
    cluster.pods().delete("machine-a", &Default::default()).await.expect("deleted by a user");
    cluster.until_absent("machine-a").await;
    assert!(matches!(find(&*driver, &unrecorded("a")).await, Sighting::Parts(parts) if parts.len() == 2));
    ensure(&*driver, &instance_spec("a")).await.expect("created again");
    let pod = object(&cluster, "pods", "machine-a");
    for (resource, name) in [("services", "machine-a"), ("secrets", "machine-a-userdata")] {
        let part = object(&cluster, resource, name);
        assert_eq!(part["metadata"]["ownerReferences"][0]["uid"], pod["metadata"]["uid"], "{name}");
    }
    assert_ne!(object(&cluster, "secrets", "machine-a-userdata")["metadata"]["uid"], before);
}

#[tokio::test(start_paused = true)]
async fn the_parts_stay_until_the_pod_has_ended() {
    let cluster = Cluster::new().await;
    let driver = cluster.driver();
    ensure(&*driver, &instance_spec("a")).await.expect("created");
    cluster.until_running("machine-a").await;
    cluster.set_kubelet(|kubelet| kubelet.end = Duration::from_secs(20));
    delete(&*driver, &recorded("a"), &key("uid-a")).await.expect("requested");
    assert_eq!(found(&*driver, &recorded("a")).await.power, Power::Deleting);
    delete(&*driver, &recorded("a"), &key("uid-a")).await.expect("requested again");
    assert_eq!(cluster.objects().map(|names| names.len()), [1, 1, 1]);
    cluster.until_absent("machine-a").await;
    let Sighting::Parts(parts) = find(&*driver, &recorded("a")).await else { panic!("no parts") };
    assert_eq!(parts, ["Service machine-a", "Secret machine-a-userdata"]);
    delete(&*driver, &recorded("a"), &key("uid-a")).await.expect("deleted");
    assert_eq!(find(&*driver, &recorded("a")).await, Sighting::Absent);
    assert_eq!(cluster.objects().map(|names| names.len()), [0, 0, 0]);
}

/// An orphan has no name. The parts of its key may belong to a living Machine.
#[tokio::test(start_paused = true)]
async fn the_deletion_of_an_orphan_leaves_parts_to_their_owner() {
    let cluster = Cluster::new().await;
    let driver = cluster.driver();
    ensure(&*driver, &instance_spec("a")).await.expect("created");
    let orphan = InstanceRef { name: None, ..recorded("a") };
    for _ in 0..2 {
        delete(&*driver, &orphan, &key("uid-a")).await.expect("deleted");
        cluster.until_absent("machine-a").await;
    }
    assert_eq!(cluster.objects().map(|names| names.len()), [0, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_deleted_frees_its_name_first() {
    let cluster = Cluster::new().await;
    let driver = cluster.driver();
    let first = ensure(&*driver, &instance_spec("a")).await.expect("created");
    cluster.until_running("machine-a").await;
    cluster.set_kubelet(|kubelet| kubelet.end = Duration::from_secs(20));
    cluster.pods().delete("machine-a", &Default::default()).await.expect("deleted by a user");
    let busy = ensure(&*driver, &instance_spec("a")).await.expect_err("busy");
    assert!(busy.is_in_progress(), "{busy}");
    cluster.until_absent("machine-a").await;
    let second = ensure(&*driver, &instance_spec("a")).await.expect("created");
    assert_ne!(first.native_id, second.native_id);
}

/// A Machine that has the label `node` is known by the name of its Node.
#[tokio::test(start_paused = true)]
async fn the_name_of_a_node_is_not_the_name_of_a_machine() {
    let cluster = Cluster::new().await;
    let driver = cluster.driver();
    let made = ensure(&*driver, &instance_spec("a")).await.expect("created");
    // Another Machine is called like the Node of the first one.
    assert_eq!(made.name.as_str(), "machine-a");
    assert_eq!(find(&*driver, &unrecorded("machine-a")).await, Sighting::Absent);
    let other = ensure(&*driver, &instance_spec("machine-a")).await.expect("created");
    assert_eq!(other.id, id("machine-a"));
    assert_eq!(found(&*driver, &unrecorded("machine-a")).await.id, other.id);
    assert_eq!(found(&*driver, &unrecorded("a")).await.id, made.id);
}

/// An API server checks quotas before it looks for the name.
#[tokio::test(start_paused = true)]
async fn a_full_quota_does_not_hide_an_existing_pod() {
    let cluster = Cluster::new().await;
    let driver = cluster.driver();
    let made = ensure(&*driver, &instance_spec("a")).await.expect("created");
    let message = "pods \"machine-a\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1";
    cluster.pipe.refuse("POST pods", failure(403, "Forbidden", message));
    assert_eq!(ensure(&*driver, &instance_spec("a")).await.expect("the same").native_id, made.native_id);
    let refused = ensure(&*driver, &instance_spec("b")).await.expect_err("full");
    assert_eq!(refused.kind, ErrorKind::Exhausted);
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_watched_until_it_runs_or_has_failed() {
    let cluster = Cluster::new().await;
    cluster.set_kubelet(|kubelet| kubelet.is_idle = true);
    let driver = cluster.driver();
    ensure(&*driver, &instance_spec("a")).await.expect("created");
    let initialized = async |status: Value| -> Result<(), Error> {
        let patch = Patch::Merge(json!({"status": status}));
        cluster.pods().patch_status("machine-a", &PatchParams::default(), &patch).await.expect("patched");
        let calls = driver.initialization().expect("a driver with initialization");
        calls.initialize(&id("a"), &key("uid-a"), &class()).await
    };
    let unscheduled = json!({"conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available",
    }]});
    let error = initialized(unscheduled).await.expect_err("no host");
    assert!(error.is_in_progress(), "{error}");
    let expected = "pod machine-a does not run: Unschedulable: 0/1 nodes are available";
    assert_eq!(error.message, expected);
    assert_eq!(initialized(json!({"phase": "Running"})).await, Ok(()));
    let failed = json!({"phase": "Failed", "reason": "Evicted", "message": "the node was low on memory"});
    let error = initialized(failed).await.expect_err("failed");
    assert!(error.is_instance_failed(), "{error}");
    assert_eq!(error.message, "pod machine-a has failed: Evicted: the node was low on memory");
    assert_eq!(found(&*driver, &recorded("a")).await.power, Power::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_list_has_only_machines() {
    let cluster = Cluster::new().await;
    let driver = cluster.driver();
    ensure(&*driver, &instance_spec("a")).await.expect("created");
    let pod = |name: &str, labels: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "pods", "labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        })
    };
    cluster.make(pod("web", json!({"machine-provider": "local"}))).await;
    cluster.make(pod("machine-web", json!({"app": "web"}))).await;
    for scope in [Scope::Visible, Scope::Ours("default".to_owned())] {
        let listed = driver.instances().list(&scope).await.expect("listed");
        let ids: Vec<_> = listed.iter().map(|instance| instance.id.as_str()).collect();
        assert_eq!(ids, ["machine-a"], "{scope:?}");
    }
    assert_eq!(driver.instances().list(&Scope::Ours("a b".to_owned())).await, Ok(Vec::new()));
}
