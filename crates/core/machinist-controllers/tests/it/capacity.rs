//! Tests of the virtual capacity of Nodes.

use super::*;

const RESOURCE: &str = "example.com/slots";

async fn set_capacity(world: &World, capacity: Value) {
    let classes: Api<MachineClass> = Api::namespaced(world.user.clone(), NAMESPACE);
    let template = json!({
        "capacity": {"cpu": "1", "gpu": "0", "memory": "1Gi"}, "instanceType": "small", "region": "r", "zone": "z",
        "virtualCapacity": capacity,
    });
    let patch = Patch::Merge(json!({"nodeTemplate": template}));
    classes.patch("c", &PatchParams::default(), &patch).await.expect("the class is accepted");
}

/// Returns the capacity of the only Node, and the annotation about it.
async fn shown(world: &World) -> (Option<String>, Option<String>) {
    let nodes: Api<Node> = Api::all(world.user.clone());
    let node = nodes.list(&ListParams::default()).await.expect("a list").items.remove(0);
    let annotations = node.metadata.annotations.unwrap_or_default();
    let capacity = node.status.and_then(|status| status.capacity).unwrap_or_default();
    let key = "node.machine.sapcloud.io/last-applied-virtual-capacity";
    (capacity.get(RESOURCE).map(|quantity| quantity.0.clone()), annotations.get(key).cloned())
}

#[tokio::test(start_paused = true)]
async fn t_53_the_capacity_of_a_node_follows_its_class() {
    let world = World::new().await;
    let _processes = world.start();
    world.apply(1).await;
    world.until_running(1).await;
    for value in ["5", "7"] {
        set_capacity(&world, json!({RESOURCE: value})).await;
        let expected = (Some(value.to_owned()), Some(json!({RESOURCE: value}).to_string()));
        world.until("the Node has the capacity", async |w| shown(w).await == expected).await;
    }
    set_capacity(&world, Value::Null).await;
    world.until("the Node has it no more", async |w| shown(w).await == (None, None)).await;
}
