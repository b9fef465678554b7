//! Routes of the network for the pods of Nodes.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::DeleteParams;

use crate::nodes::id_of;
use crate::world::{NETWORK, World};

/// Scenario 14: a Node joins, and leaves.
pub(crate) async fn pods_have_routes_while_their_nodes_exist(world: &mut World) -> Result<()> {
    world.server("routed")?;
    world.join("routed", Some("10.244.7.0/24")).await?;
    world.until("the route exists", async |w| Ok(routes(w) == ["10.244.7.0/24"])).await?;
    world
        .until("the condition NetworkUnavailable is False", async |w| {
            Ok(network_unavailable(&w.node("routed").await?) == Some("False".to_owned()))
        })
        .await?;
    let id = id_of(&world.node("routed").await?)?;
    let private =
        world.standin.server(id).and_then(|server| Some(server.private_net.first()?.ip.to_string()));
    let state = world.standin.dump();
    let gateways: Vec<String> =
        state.networks[&NETWORK].routes.iter().map(|route| route.gateway.to_string()).collect();
    ensure!(gateways == private.into_iter().collect::<Vec<_>>(), "{gateways:?}");
    // Without the Node, the route stays as long as the server: the kubelet may register again.
    world.standin.delete_server(id).map_err(anyhow::Error::msg)?;
    world.nodes().delete("routed", &DeleteParams::default()).await?;
    world.until("the route is removed", async |w| Ok(routes(w).is_empty())).await
}

fn routes(world: &World) -> Vec<String> {
    let state = world.standin.dump();
    state.networks[&NETWORK].routes.iter().map(|route| route.destination.to_string()).collect()
}

fn network_unavailable(node: &Node) -> Option<String> {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let found = conditions.into_iter().find(|condition| condition.type_ == "NetworkUnavailable");
    found.map(|condition| condition.status.clone())
}
