//! Access to workload clusters: one client per Cluster, made from its kubeconfig.
//!
//! A client is made when it is first needed, in a call that no pass awaits. A failed request drops
//! the client, so that the next attempt reads the kubeconfig again: its certificate may have been
//! renewed. The client of a deleted Cluster is dropped.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{Patch, PatchParams};
use kube::config::Kubeconfig;
use kube::{Api, Client};
use machinist_api::capi::constants::SECRET_VALUE;
use machinist_core::{Answered, Call};
use machinist_driver::may_change;
use machinist_instance::{AccountId, Error, ErrorKind, ProviderId};
use machinist_kube::ObjectKey;
use machinist_plan::capi::docker_machine::NodeCompletion;
use machinist_plan::capi::facts::ObjectFacts;
use machinist_plan::capi::kubeconfig;
use machinist_plan::capi::node::{NodeChange, change};
use machinist_runtime::{Ask, Stop};

use super::contract::Runtime;
use super::engine::next_failures;
use super::events::key_of;
use super::key::Key;
use super::seen::Seen;
use super::workload_clusters::Connection;

/// The longest duration of the requests for one Node.
const BOUND: Duration = Duration::from_secs(20);
/// Concurrent calls to one workload cluster.
const CALLS_AT_ONCE: usize = 4;

/// The Node that a container needs.
pub(super) struct Completion {
    /// The Cluster.
    pub cluster: ObjectKey,
    /// Name of the Node.
    pub node: String,
    /// Provider id of the Node.
    pub id: ProviderId,
    /// Addresses of the container.
    pub addresses: Vec<String>,
}

/// Starts the completion of a Node, without awaiting it.
pub(super) fn complete(
    runtime: &Arc<Runtime>,
    object: &ObjectFacts,
    call: Call,
    completion: Completion,
) -> Result<(), Stop> {
    let (id, uid) = (key_of(object), object.uid.clone());
    let cluster = completion.cluster.to_string();
    // A cluster that does not answer must not hold the calls of others.
    let account = AccountId::of([b"workload".as_slice(), cluster.as_bytes()]);
    let is_there = |seen: &Seen, id: &ObjectKey, uid: &str| {
        seen.docker_machines
            .get(id)
            .is_some_and(|entry| entry.uid == uid && entry.facts.object.deleting_since.is_none())
    };
    let ask = Ask {
        subject: uid.clone(),
        key: Key::DockerMachine(id.clone()),
        call,
        account: runtime.accounts.limits("workload", account, CALLS_AT_ONCE, None),
        bound: BOUND,
        begins_by: None,
        still_wanted: {
            let (id, uid) = (id.clone(), uid.clone());
            Box::new(move |seen: &mut Seen| {
                let object = seen.docker_machines.get(&id).map(|entry| entry.facts.clone());
                is_there(seen, &id, &uid)
                    && object.is_some_and(|machine| !seen.machine_is_paused(&machine.object))
            })
        },
        remember: Box::new(move |seen: &mut Seen, answered: Answered<NodeCompletion>| {
            if is_there(seen, &id, &uid) {
                let steps = seen.memory.steps.entry(uid).or_default();
                steps.failures = next_failures(steps.failures, &answered.answer);
                steps.node = Some(answered);
            }
        }),
    };
    let of_call = runtime.clone();
    runtime.ask(ask, async move {
        let answer = complete_now(&of_call, &completion).await;
        if answer.is_err() {
            of_call.lock().seen.memory.workloads.remove(&completion.cluster);
        }
        answer
    })
}

async fn complete_now(runtime: &Runtime, completion: &Completion) -> Result<NodeCompletion, Error> {
    let client = connect(runtime, &completion.cluster).await?;
    let nodes: Api<Node> = Api::all(client);
    let failed = |error: kube::Error| Error::new(ErrorKind::Ambiguous, error.to_string());
    let Some(node) = nodes.get_opt(&completion.node).await.map_err(failed)? else {
        return Ok(NodeCompletion::Missing);
    };
    let (status, spec) = match change(&node, &completion.id, &completion.addresses) {
        NodeChange::None => return Ok(NodeCompletion::Complete),
        NodeChange::OtherId(id) => return Ok(NodeCompletion::OtherId(id)),
        NodeChange::Patch { status, spec } => (status, spec),
    };
    let params = PatchParams::default();
    let json = |patch: serde_json::Value| {
        let parsed = serde_json::from_value(patch);
        parsed.map(Patch::<()>::Json).map_err(|_| Error::new(ErrorKind::Bug, "an invalid patch of a Node"))
    };
    // The Node was read a moment ago, but another process may lead by now.
    may_change()?;
    if let Some(status) = status {
        nodes.patch_status(&completion.node, &params, &json(status)?).await.map_err(failed)?;
        may_change()?;
    }
    nodes.patch(&completion.node, &params, &json(spec)?).await.map_err(failed)?;
    Ok(NodeCompletion::Complete)
}

/// Returns the client of a workload cluster, and makes it if there is none.
async fn connect(runtime: &Runtime, cluster: &ObjectKey) -> Result<Client, Error> {
    let known = runtime.lock().seen.memory.workloads.get(cluster).cloned();
    if let Some(Connection(client)) = known {
        return Ok(client);
    }
    let Some(docker) = runtime.tools.docker() else {
        return Err(Error::unsupported("workload clusters"));
    };
    let kubeconfig = read_kubeconfig(runtime, cluster).await?;
    let client = docker.workloads.client(kubeconfig).await?;
    let mut world = runtime.lock();
    // The Cluster may have been deleted meanwhile, and memory must not grow.
    if world.seen.cluster(cluster).is_some() {
        world.seen.memory.workloads.insert(cluster.clone(), Connection(client.clone()));
    }
    Ok(client)
}

async fn read_kubeconfig(runtime: &Runtime, cluster: &ObjectKey) -> Result<Kubeconfig, Error> {
    let name = format!("{}-kubeconfig", cluster.name);
    let secrets: Api<Secret> = Api::namespaced(runtime.clients.control.clone(), &cluster.namespace);
    let unavailable = |text: String| Error::new(ErrorKind::Unavailable, text);
    let secret = secrets.get_opt(&name).await;
    let secret = secret.map_err(|error| unavailable(format!("cannot read Secret {name}: {error}")))?;
    let secret = secret.ok_or_else(|| unavailable(format!("Secret {name} does not exist")))?;
    let invalid = |text: &str| Error::new(ErrorKind::InvalidSpec, format!("Secret {name}: {text}"));
    let value = secret.data.unwrap_or_default().remove(SECRET_VALUE);
    let value = value.ok_or_else(|| invalid("expected the key value with a kubeconfig"))?;
    let text = String::from_utf8(value.0).map_err(|_| invalid("expected text"))?;
    let kubeconfig = Kubeconfig::from_yaml(&text).map_err(|_| invalid("expected a kubeconfig"))?;
    let fields = serde_json::to_value(&kubeconfig).map_err(|_| invalid("expected a kubeconfig"))?;
    kubeconfig::check(&fields).map_err(|problem| invalid(&problem))?;
    Ok(kubeconfig)
}
