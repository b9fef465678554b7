//! Tests with a newer version of the CRDs: fields that this program does not know survive.

use super::*;

/// A field of the newer version.
const FIELD: &str = "bootOrder";

/// Adds the field to the template of deployments and sets, and to Machines.
async fn upgrade_crds(world: &World) {
    let crds: Api<CustomResourceDefinition> = Api::all(world.user.clone());
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let template = format!("{spec}/template/properties/spec/properties");
    for (kind, properties) in
        [("machinedeployments", &template), ("machinesets", &template), ("machines", &spec.to_owned())]
    {
        let add = Patch::<Value>::Json(parse(json!([
            {"op": "add", "path": format!("{properties}/{FIELD}"), "value": {"type": "string"}},
        ])));
        let name = format!("{kind}.machine.sapcloud.io");
        crds.patch(&name, &PatchParams::default(), &add).await.expect("the CRD is accepted");
    }
}

/// Returns all objects of a kind, as the API server stores them.
fn objects(world: &World, plural: &str) -> Vec<Value> {
    let resource = world.server.resource("machine.sapcloud.io", plural).expect("the kind is served");
    world.server.snapshot(&resource).iter().map(|object| object.value().clone()).collect()
}

/// Returns the field of deployments, sets and Machines.
fn stored(world: &World) -> Vec<Value> {
    let mut all = Vec::new();
    for (plural, pointer) in [
        ("machinedeployments", "/spec/template/spec"),
        ("machinesets", "/spec/template/spec"),
        ("machines", "/spec"),
    ] {
        for object in objects(world, plural) {
            let field = object.pointer(&format!("{pointer}/{FIELD}"));
            all.push(field.cloned().unwrap_or_default());
        }
    }
    all
}

#[tokio::test(start_paused = true)]
async fn a_field_of_a_newer_crd_reaches_the_machines_and_stays() {
    let world = World::new().await;
    upgrade_crds(&world).await;
    let _processes = world.start();
    world.apply(0).await;
    let params = PatchParams::default();
    let patch = async |template: Value, replicas: u32| {
        let change = Patch::Merge(json!({"spec": {"replicas": replicas, "template": template}}));
        world.deployments().patch("w", &params, &change).await.expect("patched");
    };
    patch(json!({"spec": {FIELD: "disk"}}), 2).await;
    world.until_running(2).await;
    assert_eq!(stored(&world), ["disk"; 4], "a deployment, its set and two Machines");

    // The manager copies this change to the set and its Machines without a rollout.
    patch(json!({"spec": {"nodeTemplate": {"metadata": {"labels": {"pool": "x"}}}}}), 2).await;
    let is_copied = async |w: &World| {
        let pool = "/spec/nodeTemplate/metadata/labels/pool";
        objects(w, "machines").iter().all(|machine| machine.pointer(pool) == Some(&json!("x")))
    };
    world.until("the label is copied", is_copied).await;
    assert_eq!(stored(&world), ["disk"; 4], "another field was copied");

    // The Machines of another template get the value of that template.
    patch(json!({"metadata": {"annotations": {"a": "b"}}, "spec": {FIELD: "network"}}), 2).await;
    let is_replaced = async |w: &World| {
        w.join().await;
        let machines = objects(w, "machines");
        machines.len() == 2 && machines.iter().all(|machine| machine["spec"][FIELD] == "network")
    };
    world.until("the Machines are replaced", is_replaced).await;
}
