//! All existing objects at one moment, as a scenario sees them.

use std::collections::BTreeMap;
use std::fmt;

use machinist_apiserver::Server;
use machinist_instance::InstanceKey;
use machinist_standin_docker::Engine;
use machinist_standin_mailgun::{Accepted, Standin};

use super::process::ProviderProcess;
use super::tables::{CLUSTERS, MACHINES, MAILGUN_CLUSTERS, MAILGUN_MACHINES};
use crate::said::Said;
use crate::sight::{DOCKER_CLUSTERS, DOCKER_MACHINES};
use crate::sight::{Item, NODES, SeenObject};

/// All existing objects at one moment.
#[derive(Debug, Clone)]
pub struct ProviderView {
    /// Clusters.
    pub clusters: Vec<Item>,
    /// Machines.
    pub machines: Vec<Item>,
    /// DockerClusters and MailgunClusters.
    pub cluster_infrastructure: Vec<Item>,
    /// DockerMachines and MailgunMachines.
    pub machine_infrastructure: Vec<Item>,
    /// Nodes of the workload cluster.
    pub nodes: Vec<Item>,
    /// The containers, by name.
    pub containers: BTreeMap<String, ContainerView>,
    /// The load balancers, by name: the key, and the backends.
    pub balancers: BTreeMap<String, (String, Vec<String>)>,
    /// The accepted mails.
    pub mails: Vec<Accepted>,
    /// The answers of `why`, by `kind/namespace/name`.
    pub whys: BTreeMap<String, Said>,
}

/// A container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerView {
    /// The key; empty if another program created the container.
    pub key: String,
    /// Whether the bootstrap was started.
    pub is_bootstrapped: bool,
}

impl ProviderView {
    pub(super) fn of(
        management: &Server,
        workload: &Server,
        engine: &Engine,
        post: &Standin,
        provider: &ProviderProcess,
    ) -> Self {
        let engine = engine.state();
        let container = |container: &machinist_standin_docker::Container| ContainerView {
            key: container.instance.key.as_ref().map_or("", InstanceKey::as_str).to_owned(),
            is_bootstrapped: 0 < container.bootstraps,
        };
        let whys = provider.lives().look(|running| {
            let whys = running.inspector().whys().into_iter();
            whys.map(|(key, record)| (key.to_string(), Said::of(&record.why))).collect()
        });
        Self {
            clusters: Item::all(management, &[CLUSTERS]),
            machines: Item::all(management, &[MACHINES]),
            cluster_infrastructure: Item::all(management, &[DOCKER_CLUSTERS, MAILGUN_CLUSTERS]),
            machine_infrastructure: Item::all(management, &[DOCKER_MACHINES, MAILGUN_MACHINES]),
            nodes: Item::all(workload, &[NODES]),
            containers: engine
                .containers
                .iter()
                .map(|(name, found)| (name.clone(), container(found)))
                .collect(),
            balancers: engine
                .balancers
                .iter()
                .map(|(name, (spec, targets))| {
                    let backends = targets.iter().map(|(name, _)| name.clone()).collect();
                    (name.clone(), (spec.key.as_str().to_owned(), backends))
                })
                .collect(),
            mails: post.mails(),
            whys: whys.unwrap_or_default(),
        }
    }

    /// The answer of `why` about an object.
    pub fn said(&self, object: SeenObject<'_>) -> Option<&Said> {
        let kind = object.text("/kind").to_lowercase();
        self.whys.get(&format!("{kind}/{}/{}", object.namespace(), object.name()))
    }

    /// The DockerMachine or MailgunMachine of that name.
    pub fn machine(&self, name: &str) -> Option<SeenObject<'_>> {
        self.machine_infrastructure.iter().map(Item::seen).find(|machine| machine.name() == name)
    }

    /// Whether the Machines of these names exist, with infrastructure that is ready.
    pub fn are_ready(&self, names: &[String]) -> Result<(), String> {
        names.iter().try_for_each(|name| {
            let Some(machine) = self.machine(name) else { return Err(format!("{name} does not exist")) };
            match machine.condition("Ready") {
                "True" if !machine.is_deleting() => Ok(()),
                other => Err(format!("{name} has the condition Ready={other:?}")),
            }
        })
    }

    /// Whether no Machine of these names exists.
    pub fn are_gone(&self, names: &[String]) -> Result<(), String> {
        let left = self.machines.iter().chain(&self.machine_infrastructure).map(Item::seen);
        match left.into_iter().find(|machine| names.iter().any(|name| name == machine.name())) {
            None => Ok(()),
            Some(machine) => Err(format!("{} {} exists", machine.text("/kind"), machine.name())),
        }
    }

    /// Whether no object, container or load balancer exists.
    pub fn is_empty(&self) -> Result<(), String> {
        let objects =
            [&self.clusters, &self.machines, &self.cluster_infrastructure, &self.machine_infrastructure];
        let objects: usize = objects.iter().map(|items| items.len()).sum();
        match (objects, self.containers.len(), self.balancers.len()) {
            (0, 0, 0) => Ok(()),
            (objects, containers, balancers) => Err(format!(
                "{objects} objects, {containers} containers and {balancers} load balancers exist"
            )),
        }
    }
}

impl fmt::Display for ProviderView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let core = self.clusters.iter().chain(&self.machines);
        let all = core.chain(&self.cluster_infrastructure).chain(&self.machine_infrastructure);
        for object in all.map(Item::seen) {
            let (kind, name, ready) = (object.text("/kind"), object.name(), object.condition("Ready"));
            let why = self.said(object).map_or("", |said| said.text.as_str());
            writeln!(f, "{kind} {name} deleting={} Ready={ready:?} {why}", object.is_deleting())?;
        }
        for node in self.nodes.iter().map(Item::seen) {
            writeln!(f, "Node {} {:?}", node.name(), node.provider_id())?;
        }
        for (name, container) in &self.containers {
            writeln!(f, "container {name} {container:?}")?;
        }
        for (name, balancer) in &self.balancers {
            writeln!(f, "load balancer {name} {balancer:?}")?;
        }
        writeln!(f, "{} mails", self.mails.len())
    }
}
