//! A planner that undoes its own action.

use machinist_controllers::ccm::Planners;
use machinist_plan::ccm::node::{Action, NodePatch, Snapshot};
use machinist_plan::ccm::{Plan, Why};

use super::*;

const FLIPPED: &str = "example.com/flipped";

/// A defect: each value of the label asks for the other one.
fn flips(s: &Snapshot) -> Plan<Action> {
    let value = if s.node.label(FLIPPED) == Some("a") { "b" } else { "a" };
    let patch = NodePatch {
        node: s.node.clone(),
        provider_id: None,
        labels: BTreeMap::from([(FLIPPED.to_owned(), value.to_owned())]),
        account: None,
        taints: None,
    };
    Plan::act(Action::Patch(Box::new(patch)), Why::up_to_date())
}

async fn is_flipped(world: &World, name: &str) -> bool {
    let node = world.node(name).await.expect("the Node exists");
    node.metadata.labels.is_some_and(|labels| labels.contains_key(FLIPPED))
}

/// An object in a circle of actions costs few writes, says why, and stops no other object.
#[tokio::test(start_paused = true)]
async fn a_circle_of_actions_pauses_one_object_only() {
    let world = World::new();
    let mut log = world.server.audit();
    let process =
        world.start_with(|options| options.planners = Planners { node: flips, ..Planners::default() });
    world.join("a").await;
    world.until("the label was written", async |w| is_flipped(w, "a").await).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let writes = node_writes(&mut log, Verb::Patch);
    assert!((8..60).contains(&writes), "{writes} writes in ten minutes");
    let shown = why(&process.inspector(), &Key::Node("a".to_owned()));
    assert!(shown.contains("no effect"), "{shown}");
    world.join("b").await;
    world.until("another Node is looked at", async |w| is_flipped(w, "b").await).await;
}
