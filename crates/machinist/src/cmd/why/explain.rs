//! Explains one object from the API servers: the planner of its controller decides in this process.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use kube::Api;
use machinist_api::{Machine, MachineClass};
use machinist_controllers::capi::{self, CapiOptions, DockerOptions, MailOptions, Serves};
use machinist_controllers::ccm::{self, CcmOptions, Controllers};
use machinist_controllers::mcm::{Key, MachineOptions, explain as explain_machine};
use machinist_controllers::{Clients, ProcessOptions};
use machinist_instance::Error;
use machinist_kube::{ObjectKey, is_answer};
use machinist_mailer::{Attempt, Envelope, Mailer};
use machinist_plan::ccm::{route, service};
use machinist_plan::mcm::machine::TargetCluster;
use machinist_plan::mcm::{McmReason, Reason};
use tokio::sync::watch;

use super::answer::Reported;
use crate::args::{ExplainedKind, InfrastructureKind, ObjectArg};
use crate::clouds::{self, ForExplanations};
use crate::wiring;

/// The decision about one object, from the API servers only.
pub(super) struct Explained {
    pub reported: Reported,
    /// Time of the decision.
    pub at: Timestamp,
    /// The Machine that the object waits for, if any.
    pub waits_for: Option<ObjectArg>,
    /// The sentence that the cloud of the object does not answer to this process.
    pub silent_cloud: Option<String>,
}

/// The controllers that decide about a kind.
enum Deciding {
    Machines(Key),
    Cloud(ccm::Key),
    Infrastructure(capi::Key),
}

/// Where the Nodes are, as the command line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodesIn {
    /// In the cluster that `--target-kubeconfig` names.
    Named,
    /// Probably in the cluster of the Machines, because no other one was named.
    Unnamed,
    /// Nowhere: `--target-kubeconfig none`.
    NoCluster,
}

/// Returns the key of an object as the answers of controllers spell it.
pub(super) fn key_of(object: &ObjectArg, namespace: &str) -> String {
    match deciding(object, namespace) {
        Deciding::Machines(key) => key.to_string(),
        Deciding::Cloud(key) => key.to_string(),
        Deciding::Infrastructure(key) => key.to_string(),
    }
}

/// Explains one object.
pub(super) async fn explain(
    clients: Clients,
    namespace: &str,
    object: &ObjectArg,
    nodes: NodesIn,
) -> anyhow::Result<Explained> {
    let mut process = ProcessOptions::new(namespace, "machinist-why");
    process.seed = wiring::seed();
    match deciding(object, namespace) {
        Deciding::Machines(key) => {
            let ForExplanations { provider, silent: silent_cloud } = machine_provider(&clients, &key).await?;
            let mut machine = MachineOptions::new(provider, namespace);
            match nodes {
                NodesIn::Named => {}
                NodesIn::Unnamed => machine.nodes_may_be_elsewhere = true,
                NodesIn::NoCluster => machine.target = TargetCluster::None,
            }
            let explained = explain_machine(clients, process, machine, &key).await?;
            Ok(Explained {
                reported: Reported::of(&explained.why, explained.at, &explained.actions),
                at: explained.at,
                waits_for: waited_for(&explained.why.reason),
                silent_cloud,
            })
        }
        Deciding::Cloud(key) => {
            let options = cloud_options(object.kind).await?;
            let explained = ccm::explain(clients, process, options, &key).await?;
            Ok(Explained {
                reported: Reported::of(&explained.why, explained.at, &explained.actions),
                at: explained.at,
                waits_for: None,
                silent_cloud: None,
            })
        }
        Deciding::Infrastructure(key) => {
            let core = wiring::core_api(&clients.control).await?;
            let (serves, silent_cloud) = serves(&key).await;
            let options = CapiOptions::new(serves, core);
            let explained = capi::explain(clients, process, options, &key).await?;
            Ok(Explained {
                reported: Reported::of(&explained.why, explained.at, &explained.actions),
                at: explained.at,
                waits_for: None,
                silent_cloud,
            })
        }
    }
}

/// Whether an API server did not answer, in contrast to an answer that the object does not exist or
/// that the request is not permitted.
pub(super) fn is_unanswered(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<kube::Error>());
    causes.any(|cause| !is_answer(cause))
}

/// Returns the provider of a Machine, as its class or its recorded id names it. Only its parsers
/// and its validation are used; no cloud call is made. Without a recorded id and a class, no
/// provider matters for the decision, so any will do.
///
/// # Errors
/// If that provider is not compiled in.
async fn machine_provider(clients: &Clients, key: &Key) -> anyhow::Result<ForExplanations> {
    let named = match key {
        Key::Machine(id) => provider_of_machine(clients, id).await?,
        Key::Class(id) => provider_of_class(clients, id).await?,
        _ => None,
    };
    let cloud = match &named {
        None => &clouds::CLOUDS[0],
        Some(name) => clouds::named(name).with_context(|| {
            format!(
                "cannot explain {key}: the provider {name:?} is not compiled into this program, which has {}",
                clouds::names()
            )
        })?,
    };
    Ok(cloud.for_explanations().await)
}

/// Returns the provider that a class names; `None` if there is no such class.
async fn provider_of_class(clients: &Clients, id: &ObjectKey) -> anyhow::Result<Option<String>> {
    let classes: Api<MachineClass> = Api::namespaced(clients.control.clone(), &id.namespace);
    let Some(class) = classes.get_opt(&id.name).await? else { return Ok(None) };
    let named = class.provider.filter(|name| !name.is_empty());
    // A controller with one provider serves the class. Another provider would find wrong errors.
    named.map(Some).context("the class names no provider, so only its controller can explain it")
}

/// Returns the name of a Machine's provider: the one whose ids begin like the recorded id,
/// otherwise the provider of its class. `None` if there is no such Machine, or neither an id nor a
/// class.
///
/// # Errors
/// If an object cannot be read, or if the class names no provider.
async fn provider_of_machine(clients: &Clients, id: &ObjectKey) -> anyhow::Result<Option<String>> {
    let machines: Api<Machine> = Api::namespaced(clients.control.clone(), &id.namespace);
    let Some(machine) = machines.get_opt(&id.name).await? else { return Ok(None) };
    let of_id = machine.spec.provider_id.as_deref().and_then(|id| Some(id.split_once("://")?.0.to_owned()));
    // As in the controller, an edited class does not hide an instance.
    if of_id.as_deref().is_some_and(|scheme| clouds::named(scheme).is_some()) {
        return Ok(of_id);
    }
    let class = machine.spec.class.name.clone().unwrap_or_default();
    if class.is_empty() {
        return Ok(of_id);
    }
    let of_class = provider_of_class(clients, &ObjectKey::new(&id.namespace, &class)).await?;
    Ok(of_class.or(of_id))
}

/// Returns the provider of a kind, for its planner only. Nothing is changed, and no mail is sent.
async fn serves(key: &capi::Key) -> (Serves, Option<String>) {
    match key {
        capi::Key::DockerCluster(_) | capi::Key::DockerMachine(_) => {
            let (provider, silent) = clouds::docker::engine_of_environment().await;
            (Serves::Docker(DockerOptions::new(Arc::new(provider))), silent)
        }
        capi::Key::MailgunCluster(_) | capi::Key::MailgunMachine(_) => (
            Serves::Mailgun(MailOptions {
                mailer: Arc::new(NoMailer),
                domain: String::new(),
                service: String::new(),
                recipient: String::new(),
                recipient_domains: Vec::new(),
                credential: String::new(),
                process: String::new(),
            }),
            None,
        ),
    }
}

/// A mailer for explanations, which send nothing.
struct NoMailer;

impl Mailer for NoMailer {
    fn send<'a>(&'a self, _: &'a Envelope) -> Attempt<'a, ()> {
        Box::pin(async { Err(Error::unsupported("send")) })
    }
    fn look_up<'a>(&'a self, _: &'a str) -> Attempt<'a, bool> {
        Box::pin(async { Err(Error::unsupported("look_up")) })
    }
    fn shown_within(&self) -> Duration {
        machinist_mailgun::SHOWN_WITHIN
    }
}

fn deciding(object: &ObjectArg, namespace: &str) -> Deciding {
    let id = ObjectKey::new(namespace, &object.name);
    match object.kind {
        ExplainedKind::Machine => Deciding::Machines(Key::Machine(id)),
        ExplainedKind::MachineSet => Deciding::Machines(Key::Set(id)),
        ExplainedKind::MachineDeployment => Deciding::Machines(Key::Deployment(id)),
        ExplainedKind::MachineClass => Deciding::Machines(Key::Class(id)),
        ExplainedKind::Node => Deciding::Cloud(ccm::Key::Node(object.name.clone())),
        ExplainedKind::Service => Deciding::Cloud(ccm::Key::Service(id)),
        ExplainedKind::Infrastructure(kind) => Deciding::Infrastructure(match kind {
            InfrastructureKind::DockerCluster => capi::Key::DockerCluster(id),
            InfrastructureKind::DockerMachine => capi::Key::DockerMachine(id),
            InfrastructureKind::MailgunCluster => capi::Key::MailgunCluster(id),
            InfrastructureKind::MailgunMachine => capi::Key::MailgunMachine(id),
        }),
    }
}

/// Options of a cloud controller manager that reads only the kinds which the answer needs, and has
/// no credential.
#[expect(clippy::disallowed_methods, reason = "no task waits for the credential")]
async fn cloud_options(kind: ExplainedKind) -> anyhow::Result<CcmOptions> {
    let (cloud, nodes) = clouds::with_nodes().next().context("no cloud controller manager is compiled in")?;
    let provider = cloud.for_explanations().await.provider;
    let services = service::Options::new(nodes.balancer_class, nodes.annotation_prefix);
    let routes =
        route::Options { cluster: Vec::new(), period: std::time::Duration::MAX, follows_addresses: true };
    let (_, no_credential) = watch::channel(None);
    let mut options = CcmOptions::new(provider, no_credential, services, routes);
    let is_service = kind == ExplainedKind::Service;
    options.controllers =
        Controllers { node: true, node_lifecycle: !is_service, service: is_service, route: false };
    Ok(options)
}

/// Returns the Machine that an object waits for, if any.
fn waited_for(reason: &Reason) -> Option<ObjectArg> {
    let machine = match reason {
        Reason::Contract(McmReason::MachinesPending { first, .. })
        | Reason::Contract(McmReason::MachinesLeaving { first, .. }) => first.as_ref(),
        Reason::Contract(McmReason::SurgeBound { waiting_for, .. })
        | Reason::Contract(McmReason::UnavailableBound { waiting_for, .. }) => waiting_for.as_ref(),
        Reason::Contract(McmReason::ReplacementLimit { other }) => Some(other),
        _ => None,
    };
    machine.map(|name| ObjectArg { kind: ExplainedKind::Machine, name: name.clone() })
}
