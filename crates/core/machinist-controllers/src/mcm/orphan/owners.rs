//! Lists Machines and Nodes with quorum, and finds the owners of instances that seem to have none.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::ListParams;
use machinist_core::orphan::{OwnerNode, Owners};
use machinist_driver::Provider;
use machinist_kube::list_once;
use machinist_kube::store::Relist;
use machinist_plan::mcm::facts::{MachineFacts, NodeFacts};
use machinist_plan::mcm::orphan::Candidate;
use machinist_runtime::{Opened, Stop};

use super::sighting::same_instance;
use crate::mcm::contract::Runtime;
use crate::mcm::machine_list::list_machines;

/// Reads the owners of all instances of an account that seem to have none.
pub(super) async fn read(runtime: &Arc<Runtime>, opened: &Opened) -> Result<(), Stop> {
    let (account, provider) = (opened.account.id(), &*opened.provider);
    let started = runtime.now();
    let (machines, nodes) = tokio::try_join!(list_machines(runtime), nodes(runtime))?;
    let ended = runtime.now();
    // Comparing takes time, and other passes need the lock.
    let candidates = runtime.lock().seen.memory.orphans.get(account).cloned().unwrap_or_default();
    let owners = candidates.instances.iter().map(|(id, one)| {
        let object = machine_of(provider, one, &machines);
        let node = nodes.as_ref().map_or(OwnerNode::NotListed, |nodes| node_of(provider, one, nodes));
        (id, Owners { started, ended, object, node })
    });
    let owners: Vec<_> = owners.collect();
    let mut world = runtime.lock();
    let known = &mut world.seen.memory.orphans_of(account).instances;
    for (id, owners) in owners {
        if let Some(one) = known.get_mut(id) {
            one.owners = Some(owners);
        }
    }
    Ok(())
}

/// Lists the Nodes with quorum; `None` if there is no target cluster. A rejected list is not an
/// answer: an API server that starts may not know the roles yet.
async fn nodes(runtime: &Runtime) -> Result<Option<Relist<NodeFacts>>, Stop> {
    if !runtime.tools.decides_nodes() {
        return Ok(None);
    }
    let api: Api<Node> = Api::all(runtime.clients.target.clone());
    let list = list_once(api, &ListParams::default(), |node: Node| NodeFacts::parse(&node)).await;
    list.map(Some).map_err(|error| Stop::Unanswered(error.to_string()))
}

/// The name of a Machine that may have an instance. A Machine that cannot be parsed may have any
/// instance.
fn machine_of(provider: &dyn Provider, one: &Candidate, machines: &Relist<MachineFacts>) -> Option<String> {
    let mut owners = machines.items.iter().filter(|(_, machine)| {
        let same = same_instance(provider, machine.facts.spec.provider_id(), &one.instance.id);
        one.may_be_of(&machine.facts, same)
    });
    let owner = owners.next().map(|(key, _)| key.name.clone());
    owner.or_else(|| machines.unreadable.first().map(|(key, _)| key.name.clone()))
}

/// The Node of an instance. A Node that cannot be parsed may be the Node of any instance.
fn node_of(provider: &dyn Provider, one: &Candidate, nodes: &Relist<NodeFacts>) -> OwnerNode {
    let mut owners = nodes.items.iter().filter(|(_, node)| {
        let same = same_instance(provider, node.facts.provider_id(), &one.instance.id);
        one.may_have_node(&node.facts, same)
    });
    let owner = owners.next().map(|(key, _)| key.name.clone());
    let owner = owner.or_else(|| nodes.unreadable.first().map(|(key, _)| key.name.clone()));
    owner.map_or(OwnerNode::None, OwnerNode::Exists)
}
