//! Tests of the annotation `not-managed-by-mcm`, which the controller writes to Nodes without a
//! Machine and removes from the Node of a Machine.

use super::*;

const KEY: &str = "node.machine.sapcloud.io/not-managed-by-mcm";
const MARK: &str = "machinist.dev/machine";
const MINUTE: Duration = Duration::from_secs(60);

impl World {
    /// Creates a Node that runs on no instance.
    async fn make_node(&self, name: &str, annotations: Value) {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": name, "annotations": annotations,
                "finalizers": ["node.machine.sapcloud.io/machine-controller"],
            },
        });
        let nodes: Api<Node> = Api::all(self.user.clone());
        nodes.create(&PostParams::default(), &parse(node)).await.expect("the Node is accepted");
    }

    /// Returns whether a Node has the annotation, whether it has our finalizer, and its version.
    async fn node_marks(&self, name: &str) -> (bool, bool, Option<String>) {
        let node = Api::<Node>::all(self.user.clone()).get(name).await.expect("the Node exists");
        let has = node.metadata.annotations.is_some_and(|annotations| annotations.contains_key(KEY));
        let finalizers = node.metadata.finalizers.unwrap_or_default();
        (has, !finalizers.is_empty(), node.metadata.resource_version)
    }
}

fn start(world: &World) -> (Running, Running) {
    world.start_with(|options| {
        let orphan_period = Some(MINUTE * 15);
        options.defaults = Arc::new(machine::Defaults { orphan_period, ..Default::default() });
    })
}

/// Added conditions: the mark of a Node names no other installation, and a list shows no Machine of
/// the Node.
#[tokio::test(start_paused = true)]
async fn t_58_t_59_a_node_is_annotated_until_it_has_a_machine() {
    let world = World::new().await;
    let _processes = start(&world);
    world.apply(1).await;
    world.until_running(1).await;
    for number in 0..20 {
        world.make_node(&format!("left-{number}"), json!({MARK: "test/default/uid-gone"})).await;
    }
    world.make_node("other", json!({MARK: "prod/elsewhere/uid-m"})).await;
    tokio::time::sleep(MINUTE * 19).await;
    assert!(!world.node_marks("left-0").await.0, "the Node is younger than the creation timeout");
    let before = world.server.revision();
    tokio::time::sleep(MINUTE * 2).await;
    for number in 0..20 {
        let (is_annotated, has_finalizer, _) = world.node_marks(&format!("left-{number}")).await;
        assert!(is_annotated && !has_finalizer, "left-{number}");
    }
    let writes = world.server.revision() - before;
    assert!(writes <= 20 + 2 * 60, "one write per Node, besides the Leases: {writes}");
    let (is_annotated, has_finalizer, _) = world.node_marks("other").await;
    assert!(!is_annotated && has_finalizer, "the Node belongs to another installation");

    let name = world.machines().await.remove(0).metadata.name.expect("a name");
    assert!(!world.node_marks(&name).await.0);
    let annotate = Patch::Merge(json!({"metadata": {"annotations": {KEY: "1"}}}));
    let nodes: Api<Node> = Api::all(world.user.clone());
    nodes.patch(&name, &PatchParams::default(), &annotate).await.expect("annotated");
    tokio::time::sleep(MINUTE * 14).await;
    assert!(world.node_marks(&name).await.0, "a user may be about to delete the Node");
    tokio::time::sleep(MINUTE * 2).await;
    let (is_annotated, has_finalizer, version) = world.node_marks(&name).await;
    assert!(!is_annotated && has_finalizer);
    tokio::time::sleep(MINUTE * 60).await;
    assert_eq!(world.node_marks(&name).await.2, version, "nothing is written again");
}
