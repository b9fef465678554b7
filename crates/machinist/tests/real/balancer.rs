//! The load balancer of a Service, from its creation to its deletion.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::world::{UNINITIALIZED, World, has_taint};

pub(crate) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The Service is created, its ports change, a Node joins and leaves, and the Service is deleted.
pub(crate) async fn a_load_balancer_follows_its_service(world: &mut World) -> Result<()> {
    world.services().create(&PostParams::default(), &service("web", &[80])?).await?;
    world
        .until("the Service has an address", async |w| {
            Ok(!ingress(&w.services().get("web").await?).is_empty())
        })
        .await?;
    let made = world.services().get("web").await?;
    ensure!(made.metadata.finalizers.iter().flatten().any(|name| name == FINALIZER), "{made:?}");
    ensure!(balancer(world) == Some((vec![80], 2)), "{:?}", balancer(world));

    let ports = json!({"spec": {"ports": [{"name": "p80", "port": 80}, {"name": "p443", "port": 443}]}});
    let params = PatchParams::default();
    world.services().patch("web", &params, &Patch::Strategic(ports)).await?;
    world.until("the port is added", async |w| Ok(balancer(w) == Some((vec![80, 443], 2)))).await?;

    world.server("target")?;
    world.join("target", None).await?;
    world.until("the Node is added", async |w| Ok(balancer(w) == Some((vec![80, 443], 3)))).await?;
    let excluded = json!({"metadata": {"labels": {EXCLUDE: ""}}});
    world.nodes().patch("target", &params, &Patch::Merge(excluded)).await?;
    world.until("the Node is removed", async |w| Ok(balancer(w) == Some((vec![80, 443], 2)))).await?;

    world.services().delete("web", &DeleteParams::default()).await?;
    world
        .until("Service and load balancer are gone", async |w| {
            Ok(balancer(w).is_none() && w.services().get_opt("web").await?.is_none())
        })
        .await?;
    let ensured = world.events("EnsuredLoadBalancer").await?;
    ensure!(!ensured.is_empty(), "no Event about the load balancer");
    Ok(())
}

/// While an action of a load balancer never ends, Nodes are initialised.
pub(crate) async fn a_frozen_action_blocks_nothing_else(world: &mut World) -> Result<()> {
    world.standin.freeze_actions();
    world.services().create(&PostParams::default(), &service("slow", &[81])?).await?;
    world.until("the load balancer is requested", async |w| Ok(balancer(w).is_some())).await?;
    world.server("meanwhile")?;
    world.join("meanwhile", None).await?;
    world
        .until("the Node is initialised", async |w| {
            Ok(!has_taint(&w.node("meanwhile").await?, UNINITIALIZED))
        })
        .await?;
    world.standin.thaw_actions();
    world
        .until("the load balancer is complete", async |w| {
            Ok(balancer(w).is_some_and(|balancer| balancer.0 == [81]))
        })
        .await?;
    world.services().delete("slow", &DeleteParams::default()).await?;
    world.until("the load balancer is gone", async |w| Ok(balancer(w).is_none())).await?;
    for name in ["meanwhile", "target"] {
        let id = crate::nodes::id_of(&world.node(name).await?)?;
        world.nodes().delete(name, &DeleteParams::default()).await?;
        world.standin.delete_server(id).map_err(anyhow::Error::msg).context("the server exists")?;
    }
    Ok(())
}

pub(crate) fn service(name: &str, ports: &[u16]) -> Result<Service> {
    let port = |port: &u16| json!({"name": format!("p{port}"), "port": port});
    Ok(serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {
            "type": "LoadBalancer",
            "ports": ports.iter().map(port).collect::<Vec<_>>(),
            "selector": {"app": name},
        },
    }))?)
}

fn ingress(service: &Service) -> Vec<String> {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.clone()).unwrap_or_default();
    ingress.into_iter().filter_map(|entry| entry.ip).collect()
}

/// The listen ports and the number of targets of the only load balancer.
fn balancer(world: &World) -> Option<(Vec<u16>, usize)> {
    let state = world.standin.dump();
    let balancer = state.load_balancers.values().next()?;
    let mut ports: Vec<u16> = balancer.services.iter().map(|service| service.listen_port).collect();
    ports.sort_unstable();
    Some((ports, balancer.targets.len()))
}
