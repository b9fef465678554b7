//! The state of the cluster as `up` sees it, built from the commits of the API server.
//!
//! The view decides whether the awaited state is reached. It tracks only what this needs: machine
//! objects, Nodes, and whether each of them is ready.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use machinist_apiserver::{Commit, Object, Server};
use serde_json::Value;

/// Resources, as the commit log names them.
const MACHINES: &str = "machines.machine.sapcloud.io";
const SETS: &str = "machinesets.machine.sapcloud.io";
const DEPLOYMENTS: &str = "machinedeployments.machine.sapcloud.io";
const NODES: &str = "nodes";
const EVENTS: &str = "events";
const LEASES: &str = "leases";

/// Namespace of the Leases that kubelets renew for their Nodes.
const LEASES_OF_NODES: &str = "kube-node-lease";

/// Kind of a Machine in Events.
const MACHINE: &str = "Machine";

/// Resources and kinds of short-lived objects. When an object of these kinds is deleted, its
/// warnings are forgotten.
const WARNED_OF: [(&str, &str); 5] = [
    (MACHINES, MACHINE),
    (SETS, "MachineSet"),
    (DEPLOYMENTS, "MachineDeployment"),
    (NODES, "Node"),
    ("pods", "Pod"),
];

/// Maximum number of objects with remembered warnings, and of warnings per object. A forgotten
/// warning may be reported twice.
const MAX_WARNED_OF: usize = 4096;
const MAX_WARNINGS: usize = 64;

/// Taint of a Node that a cloud controller manager has not initialised.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Phase of a Machine with a healthy Node.
const RUNNING: &str = "Running";

/// The state of the cluster as far as `up` follows it.
#[derive(Debug)]
pub(super) struct View {
    /// Namespace that the controllers serve.
    served: String,
    machines: BTreeMap<Name, Machine>,
    sets: BTreeMap<Name, Owned>,
    deployments: BTreeMap<Name, Owned>,
    nodes: BTreeMap<String, bool>,
    found: Found,
    /// Reported warnings by object, of any kind.
    warned: BTreeMap<About, BTreeSet<String>>,
    /// Reported messages of failed operations by Machine.
    problems: BTreeMap<Name, BTreeSet<String>>,
    machines_ever: usize,
    /// Whether each followed object exists. Objects may have any kind.
    present: BTreeMap<(String, Name), bool>,
    leaving: Leaving,
}

/// State of an earlier run. Its Nodes may look ready, but their machines are known to run only
/// after they renew their Leases.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Newest revision of the earlier run.
    pub revision: u64,
    /// Names of the Nodes that have not renewed their Lease since.
    pub silent_nodes: BTreeSet<String>,
}

/// Machine objects to delete, and the objects that depend on them.
#[derive(Debug, Default)]
struct Leaving {
    named: BTreeSet<Awaited>,
    /// UIDs of owners among them. An owner may be deleted before its dependents.
    owners: BTreeSet<String>,
    nodes: BTreeSet<String>,
}

/// Namespace and name.
type Name = (String, String);

/// Kind, namespace and name.
type About = (String, Name);

/// Tracked fields of a Machine.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Machine {
    owner: Option<String>,
    phase: String,
    node: Option<String>,
    is_leaving: bool,
}

/// Tracked fields of a set or a deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owned {
    uid: String,
    owner: Option<String>,
    replicas: u64,
    ready: u64,
    is_leaving: bool,
    /// Whether the status says that all machines are ready and have the current template.
    is_complete: bool,
}

/// A row of the table. Sets of a deployment are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listed<'v> {
    Deployment(&'v str, Replicas),
    /// A MachineSet without a deployment.
    Set(&'v str, Replicas),
    Machine {
        name: &'v str,
        /// Phase; empty until a controller has written one.
        phase: &'v str,
        /// Name of the Node, once known.
        node: Option<&'v str>,
    },
    Node {
        name: &'v str,
        ready: bool,
    },
}

/// Numbers of Machines of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Replicas {
    /// Ready Machines according to the status.
    pub ready: u64,
    pub wanted: u64,
    /// Whether the owner is being deleted, together with its Machines.
    pub is_leaving: bool,
}

/// A change that users should see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// A Machine is new, or its phase changed.
    Machine {
        name: String,
        /// Phase; empty until a controller has written one.
        phase: String,
        /// Message of the last operation, if it failed.
        problem: Option<String>,
    },
    /// A Machine was deleted.
    MachineGone { name: String },
    /// A Node registered, or became ready or unready.
    Node { name: String, ready: bool },
    /// A Node was deleted.
    NodeGone { name: String },
    /// A machine object exists in a namespace that no controller serves.
    Unserved {
        /// Kind and name.
        object: String,
        /// Namespace of the object.
        namespace: String,
        /// Namespace that the controllers serve.
        served: String,
    },
    /// A controller wrote a warning Event.
    Warning {
        /// Kind and name of the object.
        object: String,
        reason: String,
        message: String,
        /// Whether the line of the Machine already reported the message.
        is_told: bool,
    },
}

/// Identity of an object in the commit log.
#[derive(Debug)]
pub(super) struct Identity {
    /// Resource as `plural.group`.
    pub resource: String,
    /// Namespace; empty for a cluster-scoped object.
    pub namespace: String,
    pub name: String,
}

impl Identity {
    /// Returns whether the server has the object.
    pub(super) fn is_there(&self, server: &Server) -> bool {
        let is_it = |object: &Arc<Object>| object.name() == self.name && object.namespace() == self.namespace;
        server.snapshot(&self.resource).iter().any(is_it)
    }
}

/// An applied machine object that `up` waits for, with namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Awaited {
    Deployment(String, String),
    /// A MachineSet without a deployment.
    Set(String, String),
    /// A Machine without a set.
    Machine(String, String),
}

impl Awaited {
    /// Returns the object of a kind that creates machines; nothing for another kind.
    pub(super) fn of(kind: &str, namespace: &str, name: &str) -> Option<Self> {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        match kind {
            "MachineDeployment" => Some(Self::Deployment(namespace, name)),
            "MachineSet" => Some(Self::Set(namespace, name)),
            "Machine" => Some(Self::Machine(namespace, name)),
            _ => None,
        }
    }
}

/// Kind and name.
impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Awaited::Deployment(_, name) => write!(f, "MachineDeployment {name}"),
            Awaited::Set(_, name) => write!(f, "MachineSet {name}"),
            Awaited::Machine(_, name) => write!(f, "Machine {name}"),
        }
    }
}

impl View {
    /// Creates an empty view for this namespace.
    #[cfg(test)]
    pub(super) fn of(served: &str) -> Self {
        Self::after(served, Found::default())
    }

    /// Creates an empty view for this namespace, with the Nodes of an earlier run.
    pub(super) fn after(served: &str, found: Found) -> Self {
        Self {
            found,
            served: served.to_owned(),
            machines: BTreeMap::new(),
            sets: BTreeMap::new(),
            deployments: BTreeMap::new(),
            nodes: BTreeMap::new(),
            warned: BTreeMap::new(),
            problems: BTreeMap::new(),
            machines_ever: 0,
            present: BTreeMap::new(),
            leaving: Leaving::default(),
        }
    }

    /// Processes one commit. Returns the change for users, if any.
    pub(super) fn take_in(&mut self, commit: &Commit) -> Option<Change> {
        let is_of_this_run = self.found.revision < commit.revision;
        // Only the kubelet of the Node renews its Lease.
        let is_renewed = &*commit.resource == LEASES && commit.new.is_some();
        if is_of_this_run && is_renewed && commit.key.namespace() == LEASES_OF_NODES {
            self.found.silent_nodes.remove(commit.key.name());
        }
        let new = commit.new.as_ref().map(|object| object.value());
        self.take_in_object(&commit.resource, commit.key.as_str(), new)
    }

    /// Processes the new version of an object, or its deletion. The key is `namespace/name`, or the
    /// name alone.
    pub(super) fn take_in_object(
        &mut self,
        resource: &str,
        key: &str,
        new: Option<&Value>,
    ) -> Option<Change> {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let key = (namespace.to_owned(), name.to_owned());
        if let Some(present) = self.present.get_mut(&(resource.to_owned(), key.clone())) {
            *present = new.is_some();
        }
        let change = self.take_in_followed(resource, key, new);
        if !self.leaving.named.is_empty() && [MACHINES, SETS].contains(&resource) {
            self.note_leaving();
        }
        change
    }

    /// Processes the state of all Nodes of another cluster. Returns the changes for users.
    pub(super) fn take_in_nodes(&mut self, nodes: &BTreeMap<String, Value>) -> Vec<Change> {
        let gone: Vec<String> =
            self.nodes.keys().filter(|name| !nodes.contains_key(*name)).cloned().collect();
        let gone = gone.iter().map(|name| (name, None));
        let all = gone.chain(nodes.iter().map(|(name, node)| (name, Some(node))));
        all.filter_map(|(name, node)| self.take_in_object(NODES, name, node)).collect()
    }

    fn take_in_followed(&mut self, resource: &str, key: Name, new: Option<&Value>) -> Option<Change> {
        if new.is_none() {
            self.forget(resource, &key);
        }
        if [MACHINES, SETS, DEPLOYMENTS].contains(&resource) && key.0 != self.served {
            return self.take_in_unserved(key, new?);
        }
        match (resource, new) {
            (MACHINES, new) => self.take_in_machine(key, new),
            (SETS, Some(set)) => {
                self.sets.insert(key, Owned::of_set(set));
                None
            }
            (SETS, None) => {
                self.sets.remove(&key);
                None
            }
            (DEPLOYMENTS, Some(deployment)) => {
                self.deployments.insert(key, Owned::of_deployment(deployment));
                None
            }
            (DEPLOYMENTS, None) => {
                self.deployments.remove(&key);
                None
            }
            (NODES, Some(node)) => {
                let (name, ready) = (key.1, is_node_ready(node));
                let before = self.nodes.insert(name.clone(), ready);
                (before != Some(ready)).then_some(Change::Node { name, ready })
            }
            (NODES, None) => {
                self.nodes.remove(&key.1);
                Some(Change::NodeGone { name: key.1 })
            }
            (EVENTS, Some(event)) => self.take_in_event(event),
            _ => None,
        }
    }

    fn take_in_machine(&mut self, key: Name, new: Option<&Value>) -> Option<Change> {
        let name = key.1.clone();
        let Some(new) = new else {
            self.machines.remove(&key);
            return Some(Change::MachineGone { name });
        };
        let machine = Machine::read(new);
        let phase = machine.phase.clone();
        let before = self.machines.insert(key.clone(), machine);
        self.machines_ever += usize::from(before.is_none());
        if before.is_some_and(|before| before.phase == phase) {
            return None;
        }
        let operation = &new["status"]["lastOperation"];
        let problem = (operation["state"] == "Failed").then(|| text(&operation["description"])).flatten();
        if let Some(problem) = &problem {
            let said = self.problems.entry(key).or_default();
            if said.len() == MAX_WARNINGS {
                said.clear();
            }
            said.insert(problem.clone());
        }
        Some(Change::Machine { name, phase, problem })
    }

    /// Reports a machine object in another namespace once. It is not counted.
    fn take_in_unserved(&mut self, (namespace, name): Name, new: &Value) -> Option<Change> {
        let kind = new["kind"].as_str()?;
        let object = format!("{kind} {name}");
        let is_new = self.is_news((kind.to_owned(), (namespace.clone(), name)), String::new());
        is_new.then(|| Change::Unserved { object, namespace, served: self.served.clone() })
    }

    fn take_in_event(&mut self, event: &Value) -> Option<Change> {
        if event["type"] != "Warning" {
            return None;
        }
        let about = &event["involvedObject"];
        let (kind, name) = (about["kind"].as_str()?, about["name"].as_str()?);
        let object = format!("{kind} {name}");
        let reason = text(&event["reason"]).unwrap_or_default();
        let message = text(&event["message"]).unwrap_or_default();
        // A repeated Event only increases its count. Report it once.
        let key = (text(&about["namespace"]).unwrap_or_default(), name.to_owned());
        // An Event may arrive after its Machine was deleted. Ignore it, because no later event
        // would remove it from memory.
        if kind == MACHINE && !self.machines.contains_key(&key) {
            return None;
        }
        let said = self.problems.get(&key);
        let is_told = kind == MACHINE && said.is_some_and(|said| said.contains(&message));
        let is_new = self.is_news((kind.to_owned(), key), format!("{reason}/{message}"));
        is_new.then_some(Change::Warning { object, reason, message, is_told })
    }

    /// Returns whether a warning is new, as far as warnings are remembered.
    fn is_news(&mut self, about: About, what: String) -> bool {
        if self.warned.len() == MAX_WARNED_OF && !self.warned.contains_key(&about) {
            self.warned.clear();
        }
        let warned = self.warned.entry(about).or_default();
        if warned.len() == MAX_WARNINGS && !warned.contains(&what) {
            warned.clear();
        }
        warned.insert(what)
    }

    /// Forgets the warnings of a deleted object. A later object with the same name is another
    /// object.
    fn forget(&mut self, resource: &str, object: &Name) {
        if resource == MACHINES {
            self.problems.remove(object);
        }
        if let Some((_, kind)) = WARNED_OF.iter().find(|(of, _)| *of == resource) {
            self.warned.remove(&((*kind).to_owned(), object.clone()));
        }
    }

    /// Returns whether all awaited machines run: each owner has the wanted number of Running
    /// Machines with ready Nodes, and its status agrees. While a machine object is being deleted,
    /// the result is false.
    pub(super) fn is_ready(&self, awaited: &[Awaited]) -> bool {
        let runs = awaited.iter().all(|object| match object {
            Awaited::Deployment(namespace, name) => {
                self.is_owner_ready(&self.deployments, namespace, name, |deployment| {
                    let sets = self.sets.values().filter(|set| set.owner.as_deref() == Some(&deployment.uid));
                    sets.map(|set| set.uid.as_str()).collect()
                })
            }
            Awaited::Set(namespace, name) => {
                self.is_owner_ready(&self.sets, namespace, name, |set| BTreeSet::from([set.uid.as_str()]))
            }
            Awaited::Machine(namespace, name) => {
                let machine = self.machines.get(&(namespace.clone(), name.clone()));
                machine.is_some_and(|machine| self.is_running_and_ready(machine))
            }
        });
        runs && !self.machines.values().any(|machine| machine.is_leaving)
            && !self.sets.values().chain(self.deployments.values()).any(|owner| owner.is_leaving)
    }

    fn is_owner_ready<'v>(
        &'v self,
        owners: &'v BTreeMap<Name, Owned>,
        namespace: &str,
        name: &str,
        owner_uids: impl Fn(&'v Owned) -> BTreeSet<&'v str>,
    ) -> bool {
        let Some(owner) = owners.get(&(namespace.to_owned(), name.to_owned())) else { return false };
        // This function runs at every commit, so the cheap check comes first.
        if !owner.is_complete {
            return false;
        }
        let owner_uids = owner_uids(owner);
        let is_its =
            |machine: &&Machine| machine.owner.as_deref().is_some_and(|uid| owner_uids.contains(uid));
        let mut count = 0;
        self.machines.values().filter(is_its).all(|machine| {
            count += 1;
            self.is_running_and_ready(machine)
        }) && count == owner.replicas
    }

    fn is_running_and_ready(&self, machine: &Machine) -> bool {
        machine.phase == RUNNING && machine.node.as_ref().is_some_and(|node| self.is_node_ready(node))
    }

    /// Returns whether all Nodes are ready, and there is one.
    pub(super) fn is_every_node_ready(&self) -> bool {
        !self.nodes.is_empty() && self.nodes.keys().all(|name| self.is_node_ready(name))
    }

    fn is_node_ready(&self, name: &str) -> bool {
        self.nodes.get(name) == Some(&true) && !self.found.silent_nodes.contains(name)
    }

    /// Starts to follow these objects and their dependents. Returns kind and name of other objects
    /// without an owner.
    pub(super) fn follow_leaving(&mut self, named: &[Awaited]) -> Vec<String> {
        self.leaving = Leaving { named: named.iter().cloned().collect(), ..Leaving::default() };
        self.note_leaving();
        let stays = |object: &Awaited| !self.leaving.named.contains(object);
        let of = |make: fn(String, String) -> Awaited, (namespace, name): &Name| {
            make(namespace.clone(), name.clone())
        };
        let deployments = self.deployments.keys().map(|key| of(Awaited::Deployment, key));
        let sets = self.sets.iter().filter(|(_, set)| set.owner.is_none());
        let sets = sets.map(|(key, _)| of(Awaited::Set, key));
        let machines = self.machines.iter().filter(|(_, machine)| machine.owner.is_none());
        let machines = machines.map(|(key, _)| of(Awaited::Machine, key));
        deployments.chain(sets).chain(machines).filter(stays).map(|object| object.to_string()).collect()
    }

    /// Adds the dependents of the objects that are to be deleted.
    fn note_leaving(&mut self) {
        let Leaving { named, owners, nodes } = &mut self.leaving;
        for ((namespace, name), deployment) in &self.deployments {
            if named.contains(&Awaited::Deployment(namespace.clone(), name.clone())) {
                owners.insert(deployment.uid.clone());
            }
        }
        for ((namespace, name), set) in &self.sets {
            let is_owned = set.owner.as_ref().is_some_and(|owner| owners.contains(owner));
            if is_owned || named.contains(&Awaited::Set(namespace.clone(), name.clone())) {
                owners.insert(set.uid.clone());
            }
        }
        for ((namespace, name), machine) in &self.machines {
            let is_owned = machine.owner.as_ref().is_some_and(|owner| owners.contains(owner));
            if is_owned || named.contains(&Awaited::Machine(namespace.clone(), name.clone())) {
                nodes.extend(machine.node.clone());
            }
        }
    }

    /// Returns whether the objects to delete, their dependents and their Nodes no longer exist. A
    /// Machine exists until its instance is deleted.
    pub(super) fn have_left(&self) -> bool {
        let Leaving { named, owners, nodes } = &self.leaving;
        let is_named = |make: fn(String, String) -> Awaited, (namespace, name): &Name| {
            named.contains(&make(namespace.clone(), name.clone()))
        };
        let is_owned = |owner: &Option<String>| owner.as_ref().is_some_and(|owner| owners.contains(owner));
        !self.deployments.keys().any(|key| is_named(Awaited::Deployment, key))
            && !self.sets.iter().any(|(key, set)| is_owned(&set.owner) || is_named(Awaited::Set, key))
            && !self
                .machines
                .iter()
                .any(|(key, machine)| is_owned(&machine.owner) || is_named(Awaited::Machine, key))
            && !nodes.iter().any(|node| self.nodes.contains_key(node))
    }

    /// Starts to follow whether an object exists.
    pub(super) fn follow_presence(&mut self, object: Identity, is_there: bool) {
        let Identity { resource, namespace, name } = object;
        self.present.insert((resource, (namespace, name)), is_there);
    }

    /// Stops following objects.
    pub(super) fn follow_no_presence(&mut self) {
        self.present.clear();
    }

    /// Returns resource and name of the followed objects that still exist.
    pub(super) fn still_present(&self) -> impl Iterator<Item = String> {
        let left = self.present.iter().filter(|(_, present)| **present);
        left.map(|((resource, (namespace, name)), _)| match namespace.as_str() {
            "" => format!("{resource} {name}"),
            namespace => format!("{resource} {namespace}/{name}"),
        })
    }

    /// Returns whether no followed object exists.
    pub(super) fn is_all_absent(&self) -> bool {
        self.present.values().all(|present| !present)
    }

    /// Returns the rows of the table, by kind and name.
    pub(super) fn listed(&self) -> impl Iterator<Item = Listed<'_>> {
        let deployments = self
            .deployments
            .iter()
            .map(|((_, name), deployment)| Listed::Deployment(name, deployment.replicas()));
        let sets = self.sets.iter().filter(|(_, set)| set.owner.is_none());
        let sets = sets.map(|((_, name), set)| Listed::Set(name, set.replicas()));
        let machines = self.machines.iter().map(|((_, name), machine)| Listed::Machine {
            name,
            phase: &machine.phase,
            node: machine.node.as_deref(),
        });
        let nodes = self.nodes.iter().map(|(name, ready)| Listed::Node { name, ready: *ready });
        deployments.chain(sets).chain(machines).chain(nodes)
    }

    /// Returns the namespace that the controllers serve.
    pub(super) fn served(&self) -> &str {
        &self.served
    }

    /// Returns the number of Machines.
    pub(super) fn machines(&self) -> usize {
        self.machines.len()
    }

    /// Returns the number of wanted Machines: replicas of deployments, of sets without deployment,
    /// and Machines without set.
    pub(super) fn wanted(&self) -> u64 {
        let staying = |owned: &&Owned| !owned.is_leaving;
        let deployments = self.deployments.values().filter(staying);
        let sets = self.sets.values().filter(staying).filter(|set| set.owner.is_none());
        let machines =
            self.machines.values().filter(|machine| !machine.is_leaving && machine.owner.is_none());
        let replicas = deployments.chain(sets).map(|owned| owned.replicas);
        replicas.fold(machines.map(|_| 1).sum(), u64::saturating_add)
    }

    /// Returns the number of Machines ever seen.
    pub(super) fn machines_ever(&self) -> usize {
        self.machines_ever
    }

    /// Returns the number of Running Machines.
    pub(super) fn running(&self) -> usize {
        self.machines.values().filter(|machine| machine.phase == RUNNING).count()
    }

    /// Returns the number of ready Nodes. Nodes of an earlier run count after they renew their
    /// Lease.
    pub(super) fn nodes_ready(&self) -> usize {
        self.nodes.keys().filter(|name| self.is_node_ready(name)).count()
    }

    /// Returns the Nodes of an earlier run that have not renewed their Lease.
    pub(super) fn silent_nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().filter(|name| self.found.silent_nodes.contains(*name)).map(String::as_str)
    }
}

impl Machine {
    fn read(machine: &Value) -> Self {
        Self {
            owner: controller_uid(machine),
            phase: text(&machine["status"]["currentStatus"]["phase"]).unwrap_or_default(),
            node: text(&machine["metadata"]["labels"]["node"]),
            is_leaving: is_leaving(machine),
        }
    }
}

impl Owned {
    fn replicas(&self) -> Replicas {
        Replicas { ready: self.ready, wanted: self.replicas, is_leaving: self.is_leaving }
    }

    fn of_deployment(deployment: &Value) -> Self {
        let mut owned = Self::of_set(deployment);
        // An absent count is 0: no machine has the current template.
        owned.is_complete &= count(&deployment["status"]["updatedReplicas"]) == owned.replicas;
        owned
    }

    fn of_set(owner: &Value) -> Self {
        let (spec, status) = (&owner["spec"], &owner["status"]);
        let replicas = count(&spec["replicas"]);
        let is_observed = count(&owner["metadata"]["generation"]) <= count(&status["observedGeneration"]);
        let is_complete = is_observed
            && count(&status["replicas"]) == replicas
            && count(&status["readyReplicas"]) == replicas;
        Self {
            uid: text(&owner["metadata"]["uid"]).unwrap_or_default(),
            owner: controller_uid(owner),
            replicas,
            ready: count(&status["readyReplicas"]),
            is_leaving: is_leaving(owner),
            is_complete,
        }
    }
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn is_leaving(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn controller_uid(object: &Value) -> Option<String> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let controller = owners.iter().find(|owner| owner["controller"] == true)?;
    text(&controller["uid"])
}

/// Returns whether pods may run on a Node: its kubelet is ready, and a cloud controller manager has
/// initialised it.
fn is_node_ready(node: &Value) -> bool {
    let any = |list: &Value, is_it: &dyn Fn(&Value) -> bool| {
        list.as_array().is_some_and(|all| all.iter().any(is_it))
    };
    any(&node["status"]["conditions"], &|condition| {
        condition["type"] == "Ready" && condition["status"] == "True"
    }) && !any(&node["spec"]["taints"], &|taint| taint["key"] == UNINITIALIZED)
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use machinist_kube::{ClientOptions, layer_client};
    use serde_json::json;

    use super::*;

    /// A server and an up-to-date view of it.
    struct World {
        server: Server,
        client: kube::Client,
        commits: machinist_apiserver::Subscription<std::sync::Arc<Commit>>,
        view: View,
        changes: Vec<Change>,
    }

    impl World {
        async fn new() -> Self {
            let server = Server::new(machinist_apiserver::Config::default());
            let client = layer_client(
                server.service_as(machinist_apiserver::Identity::admin()),
                &ClientOptions::new("test"),
            );
            crate::cmd::up::cluster::install_crds(&client).await.expect("installed");
            let commits = server.commits();
            Self { server, client, commits, view: View::of("default"), changes: Vec::new() }
        }

        async fn send(&mut self, method: &str, path: &str, body: Value) {
            let mut request = http::Request::builder().method(method).uri(path);
            let content_type =
                if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
            request = request.header("content-type", content_type);
            let request = request.body(body.to_string().into_bytes()).expect("a request");
            self.client
                .request::<Value>(request)
                .await
                .unwrap_or_else(|error| panic!("{method} {path}: {error}"));
            for commit in self.commits.drain() {
                self.changes.extend(self.view.take_in(&commit));
            }
        }

        async fn machine(&mut self, name: &str, owner: &str, phase: &str) {
            let body = json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
                "metadata": {"name": name, "labels": {"node": format!("node-{name}")}, "ownerReferences": [{
                    "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "s", "uid": owner,
                    "controller": true
                }]},
                "spec": {"class": {"name": "c"}}
            });
            self.send("POST", &format!("{MACHINE_PATH}/machines"), body).await;
            let status = json!({"status": {"currentStatus": {"phase": phase}}});
            self.send("PATCH", &format!("{MACHINE_PATH}/machines/{name}/status"), status).await;
        }

        async fn node(&mut self, name: &str, ready: &str) {
            self.send(
                "POST",
                "/api/v1/nodes",
                json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}),
            )
            .await;
            self.node_is(name, ready).await;
        }

        async fn node_is(&mut self, name: &str, ready: &str) {
            let status = json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
            self.send("PATCH", &format!("/api/v1/nodes/{name}/status"), status).await;
        }

        async fn warn(&mut self, kind: &str, name: &str, message: &str) {
            self.send("POST", "/api/v1/namespaces/default/events", warning(kind, name, message)).await;
        }

        async fn set_status(&mut self, status: Value) {
            let path = format!("{MACHINE_PATH}/machinesets/s/status");
            self.send("PATCH", &path, json!({"status": status})).await;
        }
    }

    fn warning(kind: &str, name: &str, message: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"generateName": "e", "namespace": "default"}, "type": "Warning",
            "involvedObject": {"kind": kind, "name": name, "namespace": "default"}, "reason": "FailedCreate", "message": message
        })
    }

    const MACHINE_PATH: &str = "/apis/machine.sapcloud.io/v1alpha1/namespaces/default";

    #[tokio::test]
    async fn a_set_is_ready_when_machines_nodes_and_status_are() {
        let mut world = World::new().await;
        let awaited = [Awaited::Set("default".to_owned(), "s".to_owned())];
        let set = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "metadata": {"name": "s"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": {}}
        });
        assert!(!world.view.is_ready(&awaited), "it does not exist yet");
        world.send("POST", &format!("{MACHINE_PATH}/machinesets"), set).await;
        let uid = world.view.sets.values().next().expect("the set").uid.clone();

        world.machine("a", &uid, "Running").await;
        world.node("node-a", "True").await;
        world.set_status(json!({"observedGeneration": 1, "replicas": 2, "readyReplicas": 2})).await;
        assert!(!world.view.is_ready(&awaited), "one machine of two");

        world.machine("b", &uid, "Pending").await;
        world.node("node-b", "True").await;
        assert!(
            !world.view.is_ready(&awaited),
            "one machine is Pending although the status counts it as ready"
        );

        let status = json!({"status": {"currentStatus": {"phase": "Running"}}});
        world.send("PATCH", &format!("{MACHINE_PATH}/machines/b/status"), status).await;
        assert!(world.view.is_ready(&awaited));

        world.node_is("node-b", "Unknown").await;
        assert!(!world.view.is_ready(&awaited), "a Node is not ready");
        world.node_is("node-b", "True").await;
        assert!(world.view.is_ready(&awaited));
        let taints = |taints: Value| json!({"spec": {"taints": taints}});
        let uninitialized = taints(json!([{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]));
        world.send("PATCH", "/api/v1/nodes/node-b", uninitialized).await;
        assert!(!world.view.is_ready(&awaited), "the cloud controller manager has not initialised a Node");
        world.send("PATCH", "/api/v1/nodes/node-b", taints(Value::Null)).await;
        assert!(world.view.is_ready(&awaited));

        world.set_status(json!({"readyReplicas": 1})).await;
        assert!(!world.view.is_ready(&awaited), "the status does not agree yet");
        assert_eq!((world.view.machines(), world.view.running(), world.view.nodes_ready()), (2, 2, 2));
    }

    #[tokio::test]
    async fn a_node_of_an_earlier_run_is_ready_after_it_renews_its_lease() {
        let mut world = World::new().await;
        world.machine("a", "u", "Running").await;
        world.node("node-a", "True").await;
        let lease =
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "node-a"}});
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        world.send("POST", leases, lease).await;
        let awaited = [Awaited::Machine("default".to_owned(), "a".to_owned())];
        assert!(world.view.is_ready(&awaited));

        // The next run.
        let found =
            Found { revision: world.server.revision(), silent_nodes: BTreeSet::from(["node-a".to_owned()]) };
        world.view = View::after("default", found);
        world.commits = world.server.state_and_commits();
        world.node_is("node-a", "True").await;
        assert!(!world.view.is_ready(&awaited), "other clients may write the status of the Node");
        assert_eq!((world.view.nodes_ready(), world.view.silent_nodes().count()), (0, 1));
        let renewed = json!({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}});
        world.send("PATCH", &format!("{leases}/node-a"), renewed).await;
        assert!(world.view.is_ready(&awaited));
        assert_eq!((world.view.nodes_ready(), world.view.silent_nodes().count()), (1, 0));
    }

    #[tokio::test]
    async fn a_deployment_is_not_ready_before_its_rollout_or_in_deletion() {
        let mut world = World::new().await;
        let awaited = [Awaited::Deployment("default".to_owned(), "w".to_owned())];
        let deployment = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": {"name": "w", "finalizers": ["example.org/here"]}, "spec": {"replicas": 0, "template": {}}
        });
        let path = format!("{MACHINE_PATH}/machinedeployments");
        world.send("POST", &path, deployment).await;
        world.send("PATCH", &format!("{path}/w/status"), json!({"status": {"observedGeneration": 1}})).await;
        assert!(world.view.is_ready(&awaited), "no machine is wanted");
        let spec = json!({"spec": {"replicas": 1}});
        world.send("PATCH", &format!("{path}/w"), spec).await;
        // A controller saw the change but has created no machine of the new template. Counts of 0
        // are absent.
        let status = json!({"observedGeneration": 2, "replicas": 1, "readyReplicas": 1});
        world.send("PATCH", &format!("{path}/w/status"), json!({"status": status})).await;
        let owned = world.view.deployments.values().next().expect("the deployment");
        assert!(!owned.is_complete, "{owned:?}");

        let back = json!({"spec": {"replicas": 0}});
        world.send("PATCH", &format!("{path}/w"), back).await;
        let status = json!({"observedGeneration": 3, "replicas": null, "readyReplicas": null});
        world.send("PATCH", &format!("{path}/w/status"), json!({"status": status})).await;
        assert!(world.view.is_ready(&awaited));
        world.send("DELETE", &format!("{path}/w"), json!({})).await;
        assert!(!world.view.is_ready(&[]), "the deployment is being deleted");
        world.send("PATCH", &format!("{path}/w"), json!({"metadata": {"finalizers": null}})).await;
        assert!(world.view.is_ready(&[]));
    }

    #[tokio::test]
    async fn each_phase_and_each_warning_is_reported_once() {
        let mut world = World::new().await;
        world.machine("a", "u", "Pending").await;
        world
            .send(
                "PATCH",
                &format!("{MACHINE_PATH}/machines/a/status"),
                json!({"status": {"lastOperation": {"description": "more of the same"}}}),
            )
            .await;
        for name in ["e1", "e2"] {
            let event = json!({
                "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"}, "type": "Warning",
                "involvedObject": {"kind": "Machine", "name": "a", "namespace": "default"}, "reason": "Quota", "message": "full"
            });
            world.send("POST", "/api/v1/namespaces/default/events", event).await;
        }
        world.send("DELETE", &format!("{MACHINE_PATH}/machines/a"), json!({})).await;
        let machine =
            |phase: &str| Change::Machine { name: "a".to_owned(), phase: phase.to_owned(), problem: None };
        assert_eq!(
            world.changes,
            [
                machine(""),
                machine("Pending"),
                Change::Warning {
                    object: "Machine a".to_owned(),
                    reason: "Quota".to_owned(),
                    message: "full".to_owned(),
                    is_told: false,
                },
                Change::MachineGone { name: "a".to_owned() },
            ]
        );
        assert_eq!(world.view.machines_ever(), 1);
        assert_eq!(world.view.listed().count(), 0);
    }

    #[tokio::test]
    async fn a_warning_with_the_message_of_its_machine_is_not_repeated() {
        let mut world = World::new().await;
        world.machine("a", "u", "Pending").await;
        let status = json!({"status": {
            "currentStatus": {"phase": "CrashLoopBackOff"},
            "lastOperation": {"state": "Failed", "description": "the quota is used up"}
        }});
        world.send("PATCH", &format!("{MACHINE_PATH}/machines/a/status"), status).await;
        for message in ["the quota is used up", "something else"] {
            world.warn("Machine", "a", message).await;
        }
        let (output, written) = crate::output::Output::memory();
        let progress = crate::progress::Progress::new(output, crate::progress::Form::Lines);
        for change in &world.changes {
            progress.changed(change).expect("written");
        }
        let text = written.text();
        assert_eq!(text.matches("the quota is used up").count(), 1, "{text}");
        assert!(text.contains("Warning, Machine a: FailedCreate: something else"), "{text}");

        assert!(!world.view.problems.is_empty() && !world.view.warned.is_empty());
        world.send("DELETE", &format!("{MACHINE_PATH}/machines/a"), json!({})).await;
        assert!(world.view.problems.is_empty() && world.view.warned.is_empty(), "{:?}", world.view);

        let before = world.changes.len();
        world.warn("Machine", "a", "too late").await;
        assert!(world.changes.len() == before && world.view.warned.is_empty(), "{:?}", world.changes);
    }

    #[tokio::test]
    async fn warnings_are_forgotten_at_deletion_and_at_their_limit() {
        let mut world = World::new().await;
        for (kind, resource) in [("MachineSet", "machinesets"), ("MachineDeployment", "machinedeployments")] {
            let path = format!("{MACHINE_PATH}/{resource}");
            let owner = json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind, "metadata": {"name": "s"},
                "spec": {"replicas": 1, "template": {}}
            });
            world.send("POST", &path, owner).await;
            world.warn(kind, "s", "full").await;
            assert_eq!(world.view.warned.len(), 1);
            world.send("DELETE", &format!("{path}/s"), json!({})).await;
            assert_eq!(world.view.warned.len(), 0, "{kind}");
        }
        for number in 0..=MAX_WARNINGS {
            world.view.take_in_event(&warning("Node", "n", &number.to_string()));
        }
        assert_eq!(world.view.warned.values().map(BTreeSet::len).sum::<usize>(), 1);
        for number in 0..=MAX_WARNED_OF {
            world.view.take_in_event(&warning("Node", &number.to_string(), "full"));
        }
        assert!(world.view.warned.len() <= MAX_WARNED_OF);
    }

    #[tokio::test]
    async fn an_object_in_another_namespace_is_reported_once() {
        let mut world = World::new().await;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
        world.send("POST", "/api/v1/namespaces", namespace).await;
        let path = "/apis/machine.sapcloud.io/v1alpha1/namespaces/team/machinedeployments";
        let deployment = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment", "metadata": {"name": "w"},
            "spec": {"replicas": 2, "template": {}}
        });
        world.send("POST", path, deployment).await;
        world.send("PATCH", &format!("{path}/w"), json!({"spec": {"replicas": 3}})).await;
        let expected = Change::Unserved {
            object: "MachineDeployment w".to_owned(),
            namespace: "team".to_owned(),
            served: "default".to_owned(),
        };
        assert_eq!(world.changes, [expected]);
        assert_eq!(world.view.wanted(), 0);
        assert_eq!(world.view.listed().count(), 0);
    }

    #[tokio::test]
    async fn wanted_counts_owners_and_machines_without_owner() {
        let mut world = World::new().await;
        for (kind, resource) in [("MachineDeployment", "machinedeployments"), ("MachineSet", "machinesets")] {
            let owner = json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind, "metadata": {"name": "s"},
                "spec": {"replicas": 3, "template": {}}
            });
            world.send("POST", &format!("{MACHINE_PATH}/{resource}"), owner).await;
        }
        world.machine("a", "u", "Pending").await;
        assert_eq!(world.view.wanted(), 6, "replicas of the deployment and of the set without owner");
        let uid = world.view.deployments.values().next().expect("the deployment").uid.clone();
        let owners = json!([{
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment", "name": "s", "uid": uid, "controller": true
        }]);
        let path = format!("{MACHINE_PATH}/machinesets/s");
        world.send("PATCH", &path, json!({"metadata": {"ownerReferences": owners}})).await;
        assert_eq!(world.view.wanted(), 3, "a set with a deployment does not count");
        world.send("DELETE", &format!("{MACHINE_PATH}/machinedeployments/s"), json!({})).await;
        assert_eq!(world.view.wanted(), 0);
    }

    #[tokio::test]
    async fn a_deleted_set_waits_for_its_own_machines_only() {
        let mut world = World::new().await;
        let path = format!("{MACHINE_PATH}/machinesets");
        for name in ["a", "b"] {
            let set = json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "metadata": {"name": name},
                "spec": {"replicas": 1, "template": {}}
            });
            world.send("POST", &path, set).await;
            let key = ("default".to_owned(), name.to_owned());
            let uid = world.view.sets[&key].uid.clone();
            world.machine(&format!("{name}-1"), &uid, "Pending").await;
        }
        let staying = world.view.follow_leaving(&[Awaited::Set("default".to_owned(), "b".to_owned())]);
        assert_eq!(staying, ["MachineSet a"]);
        world.send("DELETE", &format!("{path}/b"), json!({})).await;
        assert!(!world.view.have_left(), "its Machine still exists");
        world.send("DELETE", &format!("{MACHINE_PATH}/machines/b-1"), json!({})).await;
        assert!(world.view.have_left());
        assert_ne!(world.view.listed().count(), 0);
    }

    #[tokio::test]
    async fn followed_objects_are_absent_when_the_last_one_is_deleted() {
        let mut world = World::new().await;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
        world.send("POST", "/api/v1/namespaces/default/secrets", secret).await;
        for (name, is_there) in [("a", true), ("b", false)] {
            let (resource, namespace) = ("secrets".to_owned(), "default".to_owned());
            world.view.follow_presence(Identity { resource, namespace, name: name.to_owned() }, is_there);
        }
        assert!(!world.view.is_all_absent());
        assert_eq!(world.view.still_present().collect::<Vec<_>>(), ["secrets default/a"]);
        world.send("DELETE", "/api/v1/namespaces/default/secrets/a", json!({})).await;
        assert!(world.view.is_all_absent());
    }
}
