//! Objects of other owners: never taken over, changed or deleted.

use kube::api::{Patch, PatchParams};
use machinist_instance::{ErrorKind, InstanceRef, Sighting};
use serde_json::{Value, json};

use crate::cluster::{
    Cluster, NAMESPACE, delete, ensure, find, id, instance_spec, key, recorded, unrecorded,
};
use crate::pipe::Fault;

fn object(kind: &str, name: &str, rest: Value) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": "web"}},
    });
    for (field, value) in rest.as_object().expect("an object") {
        object[field] = value.clone();
    }
    object
}

fn pod(name: &str) -> Value {
    object("Pod", name, json!({"spec": {"containers": [{"name": "c", "image": "i"}]}}))
}

/// No write of the driver has reached the server, except refused ones.
fn writes(cluster: &Cluster) -> Vec<String> {
    let is_write = |request: &String| !request.starts_with("GET") && request != "POST pods";
    cluster.pipe.requests().into_iter().filter(is_write).collect()
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_another_owner_is_never_taken_over() {
    let cluster = Cluster::new().await;
    cluster.set_kubelet(|kubelet| kubelet.is_idle = true);
    let driver = cluster.driver();
    let before = cluster.make(pod("machine-a")).await;
    let mut of_another_key = pod("machine-b");
    of_another_key["metadata"]["labels"]["machinist.dev/key"] = json!("uid-x");
    cluster.make(of_another_key).await;
    for (machine, got) in [("a", "no key"), ("b", "uid-x")] {
        let refused = ensure(&*driver, &instance_spec(machine)).await.expect_err(machine);
        assert_eq!(refused.kind, ErrorKind::Denied);
        let expected = format!("pod machine-{machine}: expected the key uid-{machine}, got {got}");
        assert_eq!(refused.message, expected);
        assert_eq!(refused.state, None, "nothing was made");
        for which in [recorded(machine), unrecorded(machine)] {
            let refused = delete(&*driver, &which, &key(&format!("uid-{machine}"))).await;
            assert_eq!(refused.map_err(|error| error.kind), Err(ErrorKind::Denied), "{which:?}");
        }
    }
    assert_eq!(writes(&cluster), Vec::<String>::new());
    let after = cluster.server.snapshot("pods");
    let after = after.iter().find(|pod| pod.name() == "machine-a").expect("it stays").whole();
    assert_eq!(after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
}

#[tokio::test(start_paused = true)]
async fn a_service_or_secret_of_another_owner_stays() {
    let of_others = [
        object("Service", "machine-a", json!({"spec": {"ports": [{"port": 80}], "clusterIP": "None"}})),
        object("Secret", "machine-a-userdata", json!({"data": {"userdata": "Y2FuYXJ5"}})),
    ];
    for other in of_others {
        let cluster = Cluster::new().await;
        cluster.set_kubelet(|kubelet| kubelet.is_idle = true);
        let driver = cluster.driver();
        let kind = other["kind"].as_str().expect("a kind").to_owned();
        let before = cluster.make(other).await;
        let refused = ensure(&*driver, &instance_spec("a")).await.expect_err("taken");
        assert_eq!(refused.kind, ErrorKind::Denied);
        assert!(refused.message.starts_with(&format!("{kind} machine-a")), "{refused}");
        assert!(!refused.message.contains("canary"), "{refused}");
        assert_eq!(refused.state.as_deref(), Some("pod machine-a"));
        delete(&*driver, &unrecorded("a"), &key("uid-a")).await.expect("deleted");
        while matches!(find(&*driver, &unrecorded("a")).await, Sighting::Parts(_)) {
            delete(&*driver, &unrecorded("a"), &key("uid-a")).await.expect("deleted");
        }
        let resource = if kind == "Service" { "services" } else { "secrets" };
        let after = cluster.server.snapshot(resource);
        let after = after.iter().filter(|object| object.namespace() == NAMESPACE);
        let uids: Vec<Value> = after.map(|object| object.whole()["metadata"]["uid"].clone()).collect();
        assert_eq!(uids, [before["metadata"]["uid"].clone()]);
    }
}

/// Between the comparison and the deletion, another program takes the pod.
#[tokio::test(start_paused = true)]
async fn a_pod_that_changed_owner_meanwhile_stays() {
    let cluster = Cluster::new().await;
    let driver = cluster.driver();
    ensure(&*driver, &instance_spec("a")).await.expect("created");
    cluster.until_running("machine-a").await;
    // The request arrives late, and the pod has another owner by then.
    cluster.pipe.once("DELETE pods", Fault::LateEffect(std::time::Duration::from_secs(5)));
    let lost = delete(&*driver, &recorded("a"), &key("uid-a")).await.expect_err("lost");
    assert_eq!(lost.kind, ErrorKind::Ambiguous);
    let patch = Patch::Merge(json!({"metadata": {"labels": {"machinist.dev/key": "uid-x"}}}));
    cluster.pods().patch("machine-a", &PatchParams::default(), &patch).await.expect("patched");
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    match find(&*driver, &recorded("a")).await {
        Sighting::Foreign(foreign) => assert_eq!(foreign.key, Some(key("uid-x"))),
        other => panic!("{other:?}"),
    }
}

/// Another pod has the name by now, and the Secret of ours is left.
#[tokio::test(start_paused = true)]
async fn parts_beside_a_pod_of_another_owner_are_deleted() {
    let cluster = Cluster::new().await;
    let driver = cluster.driver();
    ensure(&*driver, &instance_spec("a")).await.expect("created");
    cluster.pods().delete("machine-a", &Default::default()).await.expect("deleted by a user");
    cluster.until_absent("machine-a").await;
    cluster.make(pod("machine-a")).await;
    assert!(matches!(find(&*driver, &unrecorded("a")).await, Sighting::Parts(parts) if parts.len() == 2));
    delete(&*driver, &unrecorded("a"), &key("uid-a")).await.expect("deleted");
    assert_eq!(cluster.objects().map(|names| names.len()), [1, 0, 0]);
    assert!(matches!(find(&*driver, &unrecorded("a")).await, Sighting::Present(pod) if pod.key.is_none()));
}

#[tokio::test(start_paused = true)]
async fn a_new_key_is_written_to_all_objects() {
    let cluster = Cluster::new().await;
    let driver = cluster.driver();
    ensure(&*driver, &instance_spec("a")).await.expect("created");
    cluster.pipe.once("PATCH secrets", Fault::Unreachable);
    let (from, to) = (key("uid-a"), key("uid-restored"));
    driver.instances().rekey(&id("a"), &from, &to).await.expect_err("broken");
    driver.instances().rekey(&id("a"), &from, &to).await.expect("repeated");
    for resource in ["pods", "services", "secrets"] {
        let objects = cluster.server.snapshot(resource);
        let object = objects.iter().find(|object| object.namespace() == NAMESPACE).expect(resource).whole();
        assert_eq!(object["metadata"]["labels"]["machinist.dev/key"], "uid-restored", "{resource}");
    }
    let which = InstanceRef { key: Some(to.clone()), ..recorded("a") };
    delete(&*driver, &which, &to).await.expect("deleted");
}
