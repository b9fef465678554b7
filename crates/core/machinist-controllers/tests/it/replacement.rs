//! Tests that only one Machine at a time is replaced, also when Machines, sets and deployments
//! change their owners.

use std::time::Duration;

use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use machinist_api::{Machine, MachineSet, Phase};
use machinist_controllers::Clients;
use machinist_controllers::mcm::{Key, MachineController, MachineOptions, Running};
use machinist_driver_sim::SimProvider;
use machinist_kube::ObjectKey;
use serde_json::{Value, json};

use crate::{EPOCH, NAMESPACE, World, parse};

/// Time that Machines have been Unknown when a test begins. They are marked as Failed after ten
/// minutes.
const UNKNOWN_FOR: i64 = 300;
/// Time after which a decision about every Machine is overdue.
const OVERDUE: Duration = Duration::from_secs(900);

fn start(world: &World) -> Running {
    let clients =
        Clients { control: world.client("machine-controller"), target: world.client("machine-controller") };
    let options =
        MachineOptions::new(std::sync::Arc::new(SimProvider::in_process(world.cloud.clone())), "test");
    MachineController::start(clients, world.options("machine-controller"), options, None)
}

/// Creates a Machine that has joined and no longer has a Node.
async fn make_unknown(world: &World, name: &str, owner: Option<Value>) {
    let machines: Api<Machine> = Api::namespaced(world.user.clone(), NAMESPACE);
    let machine = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {
            "name": name, "labels": {"name": "w", "node": name},
            "finalizers": ["machine.sapcloud.io/machine-controller-manager"],
            "ownerReferences": owner.into_iter().collect::<Vec<_>>(),
        },
        "spec": {"class": {"kind": "MachineClass", "name": "c"}, "providerID": format!("sim:///{name}")},
    });
    machines.create(&PostParams::default(), &parse(machine)).await.expect("the Machine is accepted");
    let since = jiff::Timestamp::from_second(EPOCH - UNKNOWN_FOR).expect("a moment");
    let status = json!({"status": {
        "currentStatus": {"phase": "Unknown", "lastUpdateTime": since.to_string()},
        "conditions": [{"type": "Ready", "status": "Unknown"}],
    }});
    let params = PatchParams::default();
    machines.patch_status(name, &params, &Patch::Merge(status)).await.expect("its status is accepted");
}

async fn make_set(world: &World, name: &str, replicas: u32, selected: &str) -> Value {
    let sets: Api<MachineSet> = Api::namespaced(world.user.clone(), NAMESPACE);
    let set = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"name": selected}},
            "template": {"metadata": {"labels": {"name": selected}}, "spec": {"class": {"kind": "MachineClass", "name": "c"}}},
        },
    });
    let set = sets.create(&PostParams::default(), &parse(set)).await.expect("the set is accepted");
    owner("MachineSet", name, set.metadata.uid.as_deref().unwrap_or_default())
}

fn owner(kind: &str, name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind, "name": name, "uid": uid, "controller": true,
    })
}

async fn own<K>(api: &Api<K>, name: &str, owner: &Value)
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": [owner]}}));
    api.patch(name, &PatchParams::default(), &patch).await.expect("the owner is accepted");
}

async fn failed(world: &World) -> Vec<String> {
    let failed = world.machines().await.into_iter().filter(|machine| machine.phase() == Phase::Failed);
    failed.filter_map(|machine| machine.metadata.name).collect()
}

const NAMES: [&str; 3] = ["a", "b", "c"];

#[tokio::test(start_paused = true)]
async fn adopted_machines_fail_one_at_a_time() {
    let world = World::new().await;
    for name in NAMES {
        make_unknown(&world, name, None).await;
    }
    let _controller = start(&world);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let set = make_set(&world, "w-1", 3, "w").await;
    let machines: Api<Machine> = Api::namespaced(world.user.clone(), NAMESPACE);
    for name in NAMES {
        own(&machines, name, &set).await;
    }
    tokio::time::sleep(OVERDUE).await;
    assert_eq!(failed(&world).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn an_adopted_set_shares_the_limit_of_its_deployment() {
    let world = World::new().await;
    let sets: Api<MachineSet> = Api::namespaced(world.user.clone(), NAMESPACE);
    let mut owners = Vec::new();
    for (name, machine) in [("w-1", "a"), ("w-2", "b"), ("w-3", "c")] {
        let set = make_set(&world, name, 1, machine).await;
        make_unknown(&world, machine, Some(set.clone())).await;
        owners.push(name);
    }
    let _controller = start(&world);
    tokio::time::sleep(Duration::from_secs(10)).await;
    for name in owners {
        own(&sets, name, &owner("MachineDeployment", "w", "uid-of-the-deployment")).await;
    }
    tokio::time::sleep(OVERDUE).await;
    assert_eq!(failed(&world).await, ["a"]);
}

/// The Machines of another deployment do not count.
#[tokio::test(start_paused = true)]
async fn t_31_each_deployment_replaces_a_machine() {
    let world = World::new().await;
    let sets: Api<MachineSet> = Api::namespaced(world.user.clone(), NAMESPACE);
    for (deployment, machines) in [("w", ["a", "b"]), ("v", ["c", "d"])] {
        let set = make_set(&world, &format!("{deployment}-1"), 2, deployment).await;
        own(&sets, &format!("{deployment}-1"), &owner("MachineDeployment", deployment, deployment)).await;
        for machine in machines {
            make_unknown(&world, machine, Some(set.clone())).await;
        }
    }
    let _controller = start(&world);
    tokio::time::sleep(OVERDUE).await;
    assert_eq!(failed(&world).await, ["a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn machines_without_owner_count_with_the_selecting_set() {
    let world = World::new().await;
    make_set(&world, "w-1", 3, "w").await;
    for name in NAMES {
        make_unknown(&world, name, None).await;
    }
    let _controller = start(&world);
    tokio::time::sleep(OVERDUE).await;
    assert_eq!(failed(&world).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn machines_of_an_unknown_set_are_kept() {
    let world = World::new().await;
    for name in NAMES {
        make_unknown(&world, name, Some(owner("MachineSet", "w-1", "uid-of-a-set-to-come"))).await;
    }
    let controller = start(&world);
    tokio::time::sleep(OVERDUE).await;
    assert_eq!(failed(&world).await, [""; 0]);
    let waits = controller.inspector().waits();
    let message =
        waits.get(&Key::Machine(ObjectKey::new(NAMESPACE, "a"))).expect("the Machine waits").to_string();
    assert!(message.starts_with("owner MachineSet w-1 not found"), "{message}");
}
