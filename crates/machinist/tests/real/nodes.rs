//! Nodes of a real cluster: initialised, labelled, and deleted after their servers.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, PostParams};
use serde_json::json;

use crate::world::{UNINITIALIZED, World, has_taint};

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
pub(crate) const TYPE: &str = "node.kubernetes.io/instance-type";

/// Provider id, labels, addresses and taint, with at most three lists.
pub(crate) async fn fresh_nodes_are_initialised(world: &mut World) -> Result<()> {
    let names = ["worker-1", "worker-2", "worker-3"];
    let mut ids = BTreeMap::new();
    for name in names {
        ids.insert(name, world.server(name)?);
    }
    world.standin.clear_requests();
    let synced_before = world.events("Synced").await?.len();
    for name in names {
        world.join(name, None).await?;
    }
    world
        .until("all Nodes are initialised", async |w| {
            let nodes = w.nodes().list(&ListParams::default()).await?.items;
            Ok(nodes.len() == names.len() && nodes.iter().all(|node| !has_taint(node, UNINITIALIZED)))
        })
        .await?;
    for (name, id) in ids {
        let node = world.node(name).await?;
        ensure!(provider_id(&node) == format!("hcloud://{id}"), "{name}: {:?}", node.spec);
        let server = world.standin.server(id).context("the server exists")?;
        let expected = [
            (TYPE, server.server_type.as_str()),
            ("beta.kubernetes.io/instance-type", &server.server_type),
            ("topology.kubernetes.io/region", "fsn1"),
            ("failure-domain.beta.kubernetes.io/region", "fsn1"),
            ("topology.kubernetes.io/zone", "fsn1-dc14"),
        ];
        for (label, value) in expected {
            ensure!(
                label_of(&node, label) == Some(value),
                "{name}: {label} is not {value}: {:?}",
                node.metadata
            );
        }
        let addresses = addresses(&node);
        let types: Vec<&str> = addresses.iter().map(|(kind, _)| kind.as_str()).collect();
        ensure!(types == ["Hostname", "ExternalIP", "InternalIP"], "{name}: {addresses:?}");
        let private = server.private_net.first().context("the server is in the network")?.ip.to_string();
        ensure!(addresses[2].1 == private, "{name}: {addresses:?}");
    }
    let requests = world.standin.requests();
    let agents = requests.iter().map(|request| request.user_agent.as_str());
    ensure!(agents.clone().all(|agent| agent.starts_with("machinist")), "{:?}", agents.collect::<Vec<_>>());
    let (status, why) = world.program.get("/why/node/worker-1", Some(&world.reader)).await?;
    ensure!(status == 200 && why.contains("worker-1"), "{status}: {why}");
    let synced = world.events("Synced").await?;
    ensure!(synced.len() == synced_before + names.len(), "one Event per Node: {synced:?}");
    Ok(())
}

/// After the first match, the id decides.
pub(crate) async fn a_renamed_server_keeps_its_node(world: &mut World) -> Result<()> {
    let id = id_of(&world.node("worker-1").await?)?;
    world
        .standin
        .change_server(id, |server| server.name = "renamed".to_owned())
        .map_err(anyhow::Error::msg)?;
    world.after_lists(2).await?;
    let node = world.node("worker-1").await?;
    ensure!(provider_id(&node) == format!("hcloud://{id}"));
    let back = |server: &mut machinist_standin_hcloud::HcloudServer| server.name = "worker-1".to_owned();
    world.standin.change_server(id, back).map_err(anyhow::Error::msg)
}

/// The label of the type follows the server.
pub(crate) async fn a_resized_server_changes_one_label(world: &mut World) -> Result<()> {
    let id = id_of(&world.node("worker-2").await?)?;
    let resize = |server: &mut machinist_standin_hcloud::HcloudServer| server.server_type = "cx32".to_owned();
    world.standin.change_server(id, resize).map_err(anyhow::Error::msg)?;
    world
        .until("the label has the new type", async |w| {
            Ok(label_of(&w.node("worker-2").await?, TYPE) == Some("cx32"))
        })
        .await
}

/// The taint is set and removed, and the Node stays.
pub(crate) async fn a_stopped_server_has_the_shutdown_taint(world: &mut World) -> Result<()> {
    let id = id_of(&world.node("worker-2").await?)?;
    world.standin.power_off(id).map_err(anyhow::Error::msg)?;
    world.set_ready("worker-2", false).await?;
    world.until("the taint is set", async |w| Ok(has_taint(&w.node("worker-2").await?, SHUTDOWN))).await?;
    world.standin.power_on(id).map_err(anyhow::Error::msg)?;
    world.set_ready("worker-2", true).await?;
    world.until("the taint is removed", async |w| Ok(!has_taint(&w.node("worker-2").await?, SHUTDOWN))).await
}

/// Their ids belong to other clouds, or are malformed.
pub(crate) async fn nodes_of_others_are_left_alone(world: &mut World) -> Result<()> {
    let others = [("talos", "talos://x"), ("malformed", "hcloud://x"), ("robot", "hrobot://7")];
    for (name, id) in others {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"providerID": id},
        });
        world.nodes().create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        world.set_ready(name, false).await?;
    }
    world.after_lists(3).await?;
    for (name, id) in others {
        let node = world.node(name).await?;
        ensure!(provider_id(&node) == id, "{name}: {:?}", node.spec);
        world.nodes().delete(name, &kube::api::DeleteParams::default()).await?;
    }
    Ok(())
}

/// The Node is kept while it is ready, then deleted once.
pub(crate) async fn a_node_goes_after_its_server(world: &mut World) -> Result<()> {
    let id = id_of(&world.node("worker-3").await?)?;
    world.standin.delete_server(id).map_err(anyhow::Error::msg)?;
    world.after_lists(3).await?;
    world.ensure_node("worker-3").await.context("a ready Node is kept")?;
    world.set_ready("worker-3", false).await?;
    world.until("the Node is deleted", async |w| Ok(w.nodes().get_opt("worker-3").await?.is_none())).await?;
    world.ensure_node("worker-1").await?;
    world.ensure_node("worker-2").await?;
    let events = world.events("DeletingNode").await?;
    ensure!(events.len() == 1, "{events:?}");
    Ok(())
}

pub(crate) fn provider_id(node: &Node) -> &str {
    node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default()
}

pub(crate) fn id_of(node: &Node) -> Result<i64> {
    let id = provider_id(node).strip_prefix("hcloud://").context("no id of the cloud")?;
    Ok(id.parse()?)
}

pub(crate) fn label_of<'a>(node: &'a Node, label: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(label).map(String::as_str)
}

fn addresses(node: &Node) -> Vec<(String, String)> {
    let status = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    status.map(|address| (address.type_.clone(), address.address.clone())).collect()
}
