//! Tests that objects are deleted after their owners.

use kube::api::{ApiResource, DeleteParams, GroupVersionKind};
use machinist_kcm::GcResource;
use serde_json::{Value, json};

use crate::world::{SCALED, World, config_map, controlled_by, define_scaled, node, owner, pod, workload};

/// Creates `a`, which owns `b`, which owns `c`.
async fn chain(world: &World) {
    let a = world.create(config_map("a", &[])).await;
    let mut of_a = owner("v1", "ConfigMap", "a", &a);
    of_a["blockOwnerDeletion"] = json!(true);
    let b = world.create(config_map("b", &[of_a])).await;
    let mut of_b = owner("v1", "ConfigMap", "b", &b);
    of_b["blockOwnerDeletion"] = json!(true);
    world.create(config_map("c", &[of_b])).await;
}

fn gone(world: &World, names: &[&str]) -> bool {
    names.iter().all(|name| !world.exists("configmaps", name))
}

#[tokio::test(start_paused = true)]
async fn dependents_follow_their_owner_in_the_background() {
    let mut world = World::start().await;
    chain(&world).await;
    world.create(config_map("bystander", &[])).await;
    world.pass(60).await;
    assert_eq!(world.requests(), Vec::<String>::new(), "no writes while all owners exist");

    world.delete("ConfigMap", "default", "a", &DeleteParams::background()).await;
    world.until("b and c are deleted", 5, |world| gone(world, &["a", "b", "c"])).await;
    world.pass(60).await;
    assert_eq!(world.requests(), ["delete configmaps b 200", "delete configmaps c 200"]);
    assert!(world.exists("configmaps", "bystander"));
}

/// Builds a Pod without a Node: its deletion waits for no kubelet.
fn waiting_pod(name: &str, api_version: &str, kind: &str, owner: &str, uid: &str) -> Value {
    let mut pod = controlled_by(pod(name, ""), api_version, kind, owner, uid);
    pod["spec"].as_object_mut().expect("a spec").remove("nodeName");
    pod
}

/// Creates the Deployment `d`, its sets `r1` and `r2`, and two pods of each.
async fn deployment(world: &World) {
    let deployment = world.create(workload("Deployment", "d", Some(2))).await;
    for set in ["r1", "r2"] {
        let object = workload("ReplicaSet", set, Some(2));
        let uid = world.create(controlled_by(object, "apps/v1", "Deployment", "d", &deployment)).await;
        for name in [format!("{set}-a"), format!("{set}-b")] {
            world.create(waiting_pod(&name, "apps/v1", "ReplicaSet", set, &uid)).await;
        }
    }
    world.pass(5).await;
}

fn count(world: &World, resource: &str) -> usize {
    world.server.snapshot(resource).len()
}

#[tokio::test(start_paused = true)]
async fn background_deletion_of_a_deployment_deletes_sets_and_pods() {
    let mut world = World::start().await;
    deployment(&world).await;
    assert_eq!(world.requests(), Vec::<String>::new());
    // Without a propagation policy, as kubectl sends it.
    world.delete("apps/v1/Deployment", "default", "d", &DeleteParams::default()).await;
    assert!(!world.exists("deployments", "d"), "the deployment is deleted immediately");
    world.until("all are deleted", 5, |world| count(world, "replicasets") + count(world, "pods") == 0).await;
}

#[tokio::test(start_paused = true)]
async fn foreground_deletion_deletes_the_deployment_last() {
    let mut world = World::start().await;
    deployment(&world).await;
    world.patch("Pod", "default", "r2-b", json!({ "metadata": { "finalizers": ["t.dev/held"] } })).await;
    world.pass(5).await;
    world.delete("apps/v1/Deployment", "default", "d", &DeleteParams::foreground()).await;
    world.until("the other set is deleted", 5, |world| !world.exists("replicasets", "r1")).await;
    world.pass(60).await;
    assert_eq!(count(&world, "pods"), 1);
    assert!(world.exists("replicasets", "r2") && world.exists("deployments", "d"));
    world.patch("Pod", "default", "r2-b", json!({ "metadata": { "finalizers": null } })).await;
    world.until("all are deleted", 5, |world| !world.exists("deployments", "d")).await;
    assert_eq!(count(&world, "replicasets") + count(&world, "pods"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_deleted_without_a_policy_leaves_its_pods() {
    let mut world = World::start().await;
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "j", "namespace": "default" },
        "spec": { "template": { "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "c", "image": "web:1" }],
        } } },
    });
    let uid = world.create(job.clone()).await;
    world.create(waiting_pod("p", "batch/v1", "Job", "j", &uid)).await;
    world.pass(5).await;
    world.delete("batch/v1/Job", "default", "j", &DeleteParams::default()).await;
    world.until("the job is deleted", 5, |world| !world.exists("jobs", "j")).await;
    world.pass(600).await;
    let left = world.get("pods", "p").expect("the pod stays");
    assert_eq!(left["metadata"].get("ownerReferences"), None);
    assert_eq!(world.requests(), ["patch pods p 200", "patch jobs j 200"]);

    let uid = world.create(job).await;
    world.create(waiting_pod("q", "batch/v1", "Job", "j", &uid)).await;
    world.delete("batch/v1/Job", "default", "j", &DeleteParams::background()).await;
    world.until("background deletion deletes the pods, too", 5, |world| !world.exists("pods", "q")).await;
}

#[tokio::test(start_paused = true)]
async fn orphaning_deletion_works_for_every_kind() {
    let mut world = World::start().await;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "o", "namespace": "default" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "o" },
        "spec": { "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" }, "hostPath": { "path": "/data" } },
    });
    let attachment = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": "o" },
        "spec": { "attacher": "t.dev", "nodeName": "n", "source": { "persistentVolumeName": "v" } },
    });
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": "o" }, "value": 1,
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "o", "namespace": "default" },
        "spec": { "ports": [{ "port": 80 }] },
    });
    let sets = [workload("StatefulSet", "o", Some(1)), workload("DaemonSet", "o", None)];
    for object in sets.into_iter().chain([claim, volume, attachment, class, service]) {
        let text = |field: &str| object[field].as_str().expect("a type").to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let uid = world.create(object).await;
        let name = format!("of-{}", kind.to_lowercase());
        world.create(config_map(&name, &[owner(&api_version, &kind, "o", &uid)])).await;
        world.pass(1).await;
        world.delete(&format!("{api_version}/{kind}"), &namespace, "o", &DeleteParams::orphan()).await;
        let plural = format!("{}{}", kind.to_lowercase(), if kind.ends_with('s') { "es" } else { "s" });
        world.until("the owner is deleted", 5, |world| !world.exists(&plural, "o")).await;
        let left = world.get("configmaps", &name).expect("the dependent stays");
        assert_eq!(left["metadata"].get("ownerReferences"), None, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_foreground_deletion_ends_with_the_owner() {
    let mut world = World::start().await;
    chain(&world).await;
    world.patch("ConfigMap", "default", "c", json!({ "metadata": { "finalizers": ["t.dev/held"] } })).await;
    world.pass(5).await;
    world.delete("ConfigMap", "default", "a", &DeleteParams::foreground()).await;
    world.pass(120).await;
    for name in ["a", "b", "c"] {
        let object = world.get("configmaps", name).expect("all objects wait for the last dependent");
        assert!(object["metadata"]["deletionTimestamp"].is_string(), "{name}");
    }
    let before = world.requests();
    world.pass(600).await;
    assert_eq!(world.requests(), Vec::<String>::new(), "no writes while waiting, after {before:?}");

    world.patch("ConfigMap", "default", "c", json!({ "metadata": { "finalizers": null } })).await;
    world.until("all are deleted", 5, |world| gone(world, &["a", "b", "c"])).await;
    assert_eq!(
        world.requests(),
        ["patch configmaps b 200", "patch configmaps a 200"],
        "the finalizers are removed from the dependents upwards"
    );
}

#[tokio::test(start_paused = true)]
async fn a_nonblocking_dependent_does_not_delay_its_owner() {
    let mut world = World::start().await;
    let a = world.create(config_map("a", &[])).await;
    let mut held = config_map("b", &[owner("v1", "ConfigMap", "a", &a)]);
    held["metadata"]["finalizers"] = json!(["t.dev/held"]);
    world.create(held).await;
    world.delete("ConfigMap", "default", "a", &DeleteParams::foreground()).await;
    world.until("a is deleted", 5, |world| gone(world, &["a"])).await;
    world
        .until("b is being deleted", 5, |world| {
            world
                .get("configmaps", "b")
                .is_some_and(|object| object["metadata"]["deletionTimestamp"].is_string())
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_orphaning_deletion_removes_the_owner_references() {
    let mut world = World::start().await;
    chain(&world).await;
    world.pass(5).await;
    world.delete("ConfigMap", "default", "a", &DeleteParams::orphan()).await;
    world.until("a is deleted", 5, |world| gone(world, &["a"])).await;
    world.pass(60).await;
    let b = world.get("configmaps", "b").expect("b stays");
    assert_eq!(b["metadata"].get("ownerReferences"), None);
    assert!(world.exists("configmaps", "c"));
    assert_eq!(world.requests(), ["patch configmaps b 200", "patch configmaps a 200"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_with_another_owner_loses_only_the_absent_one() {
    let mut world = World::start().await;
    let a = world.create(config_map("a", &[])).await;
    let b = world.create(config_map("b", &[])).await;
    let owners = [owner("v1", "ConfigMap", "a", &a), owner("v1", "ConfigMap", "b", &b)];
    world.create(config_map("c", &owners)).await;
    world.delete("ConfigMap", "default", "a", &DeleteParams::background()).await;
    world
        .until("c has one owner", 5, |world| {
            let c = world.get("configmaps", "c").expect("c stays");
            c["metadata"]["ownerReferences"]
                .as_array()
                .is_some_and(|owners| owners.len() == 1 && owners[0]["name"] == "b")
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn owners_are_identified_by_uid_and_not_by_name() {
    let mut world = World::without_controllers();
    let gc_resource = define_scaled(&world).await;
    let set = json!({ "apiVersion": "t.dev/v1", "kind": "Set", "metadata": { "name": "s", "namespace": "default" } });
    let old = world.create(set.clone()).await;
    world.delete(SCALED, "default", "s", &DeleteParams::background()).await;
    let new = world.create(set).await;
    world.create(config_map("of-old", &[owner("t.dev/v1", "Set", "s", &old)])).await;
    world.create(config_map("of-new", &[owner("t.dev/v1", "Set", "s", &new)])).await;
    world.create(config_map("of-unserved", &[owner("u.dev/v1", "Other", "s", &old)])).await;
    world.start_controllers(|config| config.gc_resources.push(gc_resource));
    world.until("the dependent of the old object is deleted", 5, |world| gone(world, &["of-old"])).await;
    world.pass(600).await;
    assert!(world.exists("configmaps", "of-new"));
    assert!(
        world.exists("configmaps", "of-unserved"),
        "an owner that cannot be read does not count as absent"
    );
    assert_eq!(world.requests(), ["delete configmaps of-old 200"]);
}

#[tokio::test(start_paused = true)]
async fn an_owner_of_a_kind_that_is_not_watched_is_looked_up() {
    let mut world = World::without_controllers();
    define_scaled(&world).await;
    let set = json!({ "apiVersion": "t.dev/v1", "kind": "Set", "metadata": { "name": "s", "namespace": "default" } });
    let uid = world.create(set).await;
    world.create(config_map("of-present", &[owner("t.dev/v1", "Set", "s", &uid)])).await;
    world
        .create(config_map(
            "of-absent",
            &[owner("t.dev/v1", "Set", "gone", "11111111-0000-0000-0000-000000000000")],
        ))
        .await;
    world.start_controllers(|_| {});
    world.until("the dependent is deleted", 5, |world| gone(world, &["of-absent"])).await;
    world.pass(60).await;
    assert!(world.exists("configmaps", "of-present"));
    world.delete(SCALED, "default", "s", &DeleteParams::background()).await;
    world.until("the deletion is noticed", 60, |world| gone(world, &["of-present"])).await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_deleted_before_its_kind_is_listed_is_noticed() {
    // The server does not serve the kind yet, so its list waits for a retry.
    let set = GcResource::namespaced(ApiResource::from_gvk(&GroupVersionKind::gvk("t.dev", "v1", "Set")));
    let mut world = World::start_with(|config| config.gc_resources.push(set)).await;
    world.pass(60).await;
    define_scaled(&world).await;
    let uid = world.create(custom("s", &[])).await;
    world.create(config_map("of-s", &[owner("t.dev/v1", "Set", "s", &uid)])).await;
    world.pass(1).await;
    world.delete(SCALED, "default", "s", &DeleteParams::background()).await;
    world.until("the dependent is deleted", 120, |world| gone(world, &["of-s"])).await;
}

#[tokio::test(start_paused = true)]
async fn owner_references_do_not_cross_namespaces() {
    let mut world = World::start().await;
    let a = world.create(config_map("a", &[])).await;
    let mut elsewhere = config_map("elsewhere", &[owner("v1", "ConfigMap", "a", &a)]);
    elsewhere["metadata"]["namespace"] = json!("kube-public");
    world.create(elsewhere).await;
    let mut owned_node = node("n", "True");
    owned_node["metadata"]["ownerReferences"] =
        json!([owner("v1", "ConfigMap", "gone", "11111111-0000-0000-0000-000000000000")]);
    world.create(owned_node).await;
    world.until("the object in the other namespace is deleted", 5, |world| gone(world, &["elsewhere"])).await;
    world.pass(50).await;
    assert!(world.exists("nodes", "n"), "a namespaced object cannot own a Node, so the Node stays");
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_node_is_deleted_with_it() {
    let mut world = World::start().await;
    let uid = world.create(node("n", "True")).await;
    world
        .create(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "n", "namespace": "kube-node-lease", "ownerReferences": [owner("v1", "Node", "n", &uid)] },
        }))
        .await;
    world.pass(5).await;
    assert!(world.exists("leases", "n"));
    world.delete("Node", "", "n", &DeleteParams::background()).await;
    world.until("the lease is deleted", 5, |world| !world.exists("leases", "n")).await;
}

#[tokio::test(start_paused = true)]
async fn a_cycle_of_waiting_owners_is_broken() {
    let mut world = World::start().await;
    let a = world.create(config_map("a", &[])).await;
    let mut of_a = owner("v1", "ConfigMap", "a", &a);
    of_a["blockOwnerDeletion"] = json!(true);
    let b = world.create(config_map("b", &[of_a])).await;
    let mut of_b = owner("v1", "ConfigMap", "b", &b);
    of_b["blockOwnerDeletion"] = json!(true);
    world.patch("ConfigMap", "default", "a", json!({ "metadata": { "ownerReferences": [of_b] } })).await;
    world.pass(5).await;
    world.delete("ConfigMap", "default", "a", &DeleteParams::foreground()).await;
    world.until("both are deleted", 30, |world| gone(world, &["a", "b"])).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_adopted_meanwhile_is_not_deleted() {
    let mut world = World::start().await;
    let a = world.create(config_map("a", &[])).await;
    let b = world.create(config_map("b", &[])).await;
    world.create(config_map("c", &[owner("v1", "ConfigMap", "b", &b)])).await;
    world.pass(5).await;
    world.replica.freeze_at(world.server.revision());
    world.delete("ConfigMap", "default", "b", &DeleteParams::background()).await;
    let deleted = world.server.revision();
    let adopted = json!({ "metadata": { "ownerReferences": [owner("v1", "ConfigMap", "a", &a)] } });
    world.patch("ConfigMap", "default", "c", adopted).await;
    // The controllers see the deletion, but not the adoption.
    world.replica.freeze_at(deleted);
    world.pass(60).await;
    assert!(world.exists("configmaps", "c"));
    world.replica.thaw();
    world.pass(60).await;
    assert!(world.exists("configmaps", "c"));
    assert_eq!(world.requests(), Vec::<String>::new());
}

fn custom(name: &str, owners: &[Value]) -> Value {
    json!({
        "apiVersion": "t.dev/v1", "kind": "Set",
        "metadata": { "name": name, "namespace": "default", "ownerReferences": owners },
    })
}

#[tokio::test(start_paused = true)]
async fn kinds_defined_at_runtime_are_collected_on_request() {
    let mut world = World::start_with(|config| config.collect_defined_kinds = true).await;
    world.pass(60).await;
    define_scaled(&world).await;
    // Custom resources as owners, in the background and in the foreground,
    let one = world.create(custom("one", &[])).await;
    let two = world.create(custom("two", &[])).await;
    world.create(config_map("of-one", &[owner("t.dev/v1", "Set", "one", &one)])).await;
    let mut of_two = owner("t.dev/v1", "Set", "two", &two);
    of_two["blockOwnerDeletion"] = json!(true);
    world.create(config_map("of-two", &[of_two])).await;
    world.pass(60).await;
    assert_eq!(world.requests(), Vec::<String>::new(), "no writes while all owners exist");
    world.delete(SCALED, "default", "one", &DeleteParams::background()).await;
    world.until("the dependent is deleted", 5, |world| gone(world, &["of-one"])).await;
    world.delete(SCALED, "default", "two", &DeleteParams::foreground()).await;
    world
        .until("both are deleted", 5, |world| gone(world, &["of-two"]) && count(world, "sets.t.dev") == 0)
        .await;
    // and as dependents.
    let owner_uid = world.create(config_map("owner", &[])).await;
    world.create(custom("owned", &[owner("v1", "ConfigMap", "owner", &owner_uid)])).await;
    world.pass(5).await;
    world.delete("ConfigMap", "default", "owner", &DeleteParams::background()).await;
    world
        .until("the custom resource is deleted with its owner", 5, |world| count(world, "sets.t.dev") == 0)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_definition_deletes_dependents_of_its_objects() {
    let mut world = World::start_with(|config| config.collect_defined_kinds = true).await;
    for round in 0..2 {
        define_scaled(&world).await;
        let uid = world.create(custom("s", &[])).await;
        world.create(config_map("of-s", &[owner("t.dev/v1", "Set", "s", &uid)])).await;
        let parent = world.create(config_map("parent", &[])).await;
        let mut of_parent = owner("v1", "ConfigMap", "parent", &parent);
        of_parent["blockOwnerDeletion"] = json!(true);
        world.create(custom("child", &[of_parent])).await;
        world.pass(5).await;
        assert!(world.exists("configmaps", "of-s"), "round {round}");
        let kind = "apiextensions.k8s.io/v1/CustomResourceDefinition";
        world.delete(kind, "", "sets.t.dev", &DeleteParams::background()).await;
        world.until("the dependent is deleted", 60, |world| gone(world, &["of-s"])).await;
        world.delete("ConfigMap", "default", "parent", &DeleteParams::foreground()).await;
        world.until("the owner is deleted", 60, |world| gone(world, &["parent"])).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_changes_its_version_keeps_its_dependents() {
    let mut world = World::start_with(|config| config.collect_defined_kinds = true).await;
    define_scaled(&world).await;
    let uid = world.create(custom("s", &[])).await;
    world.create(config_map("of-s", &[owner("t.dev/v1", "Set", "s", &uid)])).await;
    world.pass(5).await;
    let definition = crate::world::scaled_definition();
    let first = &definition["spec"]["versions"][0];
    let version = |name: &str, served: bool, storage: bool| {
        let mut version = first.clone();
        version["name"] = json!(name);
        version["served"] = json!(served);
        version["storage"] = json!(storage);
        version
    };
    let kind = "apiextensions.k8s.io/v1/CustomResourceDefinition";
    let versions =
        json!({ "spec": { "versions": [version("v1", false, false), version("v2", true, true)] } });
    world.patch(kind, "", "sets.t.dev", versions).await;
    world.pass(600).await;
    assert!(world.exists("configmaps", "of-s"), "{:?}", world.requests());
    world.delete("t.dev/v2/Set", "default", "s", &DeleteParams::background()).await;
    world.until("the dependent is deleted", 60, |world| gone(world, &["of-s"])).await;
}
