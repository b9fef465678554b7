//! Routes of the network for the pods of Nodes.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::DeleteParams;

use crate::nodes::id_of;
use crate::world::{NETWORK, World};

/// A route without server and Node is removed after two minutes, since a kubelet may register its
/// Node again.
const ABANDONED_WITHIN: Duration = Duration::from_secs(180);

/// Two Nodes join, and one of them leaves.
pub(crate) async fn pods_have_routes_while_their_nodes_exist(world: &mut World) -> Result<()> {
    for (name, network) in [("routed", "10.244.7.0/24"), ("stays", "10.244.8.0/24")] {
        world.server(name)?;
        world.join(name, Some(network)).await?;
    }
    world.until("the routes exist", async |w| Ok(routes(w) == ["10.244.7.0/24", "10.244.8.0/24"])).await?;
    world
        .until("the condition NetworkUnavailable is False", async |w| {
            Ok(network_unavailable(&w.node("routed").await?) == Some("False".to_owned()))
        })
        .await?;
    let id = id_of(&world.node("routed").await?)?;
    let private =
        world.standin.server(id).and_then(|server| Some(server.private_net.first()?.ip.to_string()));
    let state = world.standin.dump();
    let mut all = state.networks[&NETWORK].routes.iter();
    let gateway = all.find(|route| route.destination == "10.244.7.0/24").map(|route| route.gateway.clone());
    ensure!(gateway == private, "{gateway:?}");
    // Without the Node, the route stays as long as the server: the kubelet may register again.
    world.standin.delete_server(id).map_err(anyhow::Error::msg)?;
    world.nodes().delete("routed", &DeleteParams::default()).await?;
    world
        .until_within(ABANDONED_WITHIN, "the route is removed", async |w| Ok(routes(w) == ["10.244.8.0/24"]))
        .await
}

fn routes(world: &World) -> Vec<String> {
    let state = world.standin.dump();
    let mut all: Vec<_> =
        state.networks[&NETWORK].routes.iter().map(|route| route.destination.clone()).collect();
    all.sort();
    all
}

fn network_unavailable(node: &Node) -> Option<String> {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let found = conditions.into_iter().find(|condition| condition.type_ == "NetworkUnavailable");
    found.map(|condition| condition.status.clone())
}
