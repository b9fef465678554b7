//! A deployment on a real cluster whose Machines are instances of a cloud, as several lanes use it.
//!
//! One cluster has both roles, because here the cloud matters. No kube-controller-manager runs, so
//! a Node stays Ready without heartbeats. The lane itself acts as kubelet and as
//! cloud-controller-manager: when an instance runs, the lane creates its Node, with the provider id
//! that this cloud's controller writes.
//!
//! The list of the cloud comes from a client of its own ([`observer`]), and not from a driver.

pub(super) mod compare;
pub(super) mod observer;
pub(super) mod ours;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::control_plane::{
    Audit, Cluster, ControllerManagers, Durability, Options, Roles, pause, pipe_into,
};
use crate::ports;
use crate::workspace::output_of;
use compare::{Instance, Inventory, Machine, Memory, Objects, Stage, doubles};
use observer::{Cloud, Prepared};

/// Machines that a rollout may create beyond the replicas.
pub(super) const SURGE: usize = 2;

const DEPLOYMENT: &str = "workers";
/// The classes before and after a rollout.
pub(super) const CLASSES: [&str; 2] = ["workers-v1", "workers-v2"];
const SECRET: &str = "workers";

/// Far longer than each step takes. A take-over from Go waits 15 s for its Leases, and one minute
/// more before the first deletion. A rollout of 20 Machines on OpenStack took 17 minutes on a busy
/// computer.
pub(super) const STEP_WITHIN: Duration = Duration::from_secs(30 * 60);
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long an instance boots before its Node appears. Without it, a rollout on a quick cloud could
/// end between two looks.
const BOOT: Duration = Duration::from_secs(6);

/// The cluster of a lane.
pub(super) fn options() -> Options {
    Options {
        roles: Roles::OneClusterForBoth,
        controller_managers: ControllerManagers::None,
        audit: Audit::Off,
        durability: Durability::None,
        ..Options::default()
    }
}

pub(super) const MANAGER: &str = "machine-controller-manager";
pub(super) const CONTROLLER: &str = "machine-controller";

/// Adds the flags of a controller, ours or Go's, for the cluster of a lane.
pub(super) fn connect(command: &mut Command, cluster: &Cluster) -> Result<()> {
    for which in ["control", "target"] {
        command.arg(format!("--{which}-kubeconfig={}", cluster.kubeconfig().display()));
    }
    command.args(["--namespace=default", "--v=3", "--address=127.0.0.1"]);
    command.arg(format!("--port={}", ports::free()?)).env_remove("KUBECONFIG");
    Ok(())
}

/// Controllers that run.
pub(super) trait Running {
    /// Their name for messages.
    fn name(&self) -> &'static str;

    /// Fails if a controller has ended.
    fn ensure_alive(&mut self) -> Result<()>;
}

/// The deployment, its cluster and its cloud.
pub(super) struct Deployment<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) cloud: Cloud,
    pub(super) memory: Memory,
    /// The types of instances of the two classes.
    types: [String; 2],
    /// When each instance was first seen running.
    booting: BTreeMap<String, Instant>,
    /// Instances whose Node was created.
    joined: BTreeSet<String>,
}

impl<'a> Deployment<'a> {
    /// Creates the kinds and the objects. The deployment has no Machines yet.
    pub(super) fn install(machinist: &Path, cluster: &'a Cluster, mut cloud: Cloud) -> Result<Self> {
        let prepared = cloud.prepare()?;
        install(machinist, cluster, &prepared)?;
        let memory = Memory::new(prepared.marks);
        let (booting, joined) = (BTreeMap::new(), BTreeSet::new());
        Ok(Self { cluster, cloud, memory, types: prepared.types, booting, joined })
    }

    pub(super) fn patch(&self, change: &Value) -> Result<()> {
        let mut kubectl = self.cluster.kubectl();
        kubectl.args(["patch", "machinedeployment", DEPLOYMENT, "--type=merge", "--patch"]);
        output_of(kubectl.arg(change.to_string()))?;
        println!("patched: {change}");
        Ok(())
    }

    /// Waits until that many Machines run, and nothing else is left to do.
    pub(super) fn await_end_state(
        &mut self,
        running: &mut dyn Running,
        machines: usize,
        class: usize,
    ) -> Result<()> {
        let started = Instant::now();
        loop {
            let differences = self.unsettled(running, machines, class)?;
            if differences.is_empty() {
                println!("{} Machines are settled after {:.0?}", machines, started.elapsed());
                return Ok(());
            }
            if STEP_WITHIN < started.elapsed() {
                bail!("{} did not finish in {STEP_WITHIN:?}:\n{}", running.name(), differences.join("\n"));
            }
            pause(LOOK_EVERY);
        }
    }

    /// Returns what is left to do until that many Machines run, and nothing else.
    pub(super) fn unsettled(
        &mut self,
        running: &mut dyn Running,
        machines: usize,
        class: usize,
    ) -> Result<Vec<String>> {
        let (objects, inventory) = self.look(running)?;
        let instance_type = self.types[class].clone();
        let stage = Stage::Settled { machines, class: CLASSES[class], instance_type: &instance_type };
        Ok(self.memory.differences(&objects, &inventory, stage))
    }

    /// Reads both sides while controllers run. Two instances of a Machine, and a changed provider
    /// id, are errors at any time.
    pub(super) fn look(&mut self, running: &mut dyn Running) -> Result<(Objects, Inventory)> {
        running.ensure_alive()?;
        let inventory = self.cloud.list()?;
        self.join(&inventory)?;
        let objects = self.objects()?;
        let mut wrong = doubles(&inventory);
        wrong.extend(self.memory.changed_ids(&objects));
        ensure!(wrong.is_empty(), "while {} ran:\n{}", running.name(), wrong.join("\n"));
        Ok((objects, inventory))
    }

    /// Creates a Node for each instance that has booted and has none.
    fn join(&mut self, inventory: &Inventory) -> Result<()> {
        for instance in &inventory.instances {
            if !instance.runs || self.joined.contains(&instance.id) {
                continue;
            }
            let since = self.booting.entry(instance.id.clone()).or_insert_with(Instant::now);
            if since.elapsed() < BOOT {
                continue;
            }
            let created = pipe_into(
                self.cluster.kubectl().args(["create", "--filename=-"]),
                &node_of(instance).to_string(),
            );
            match created {
                Ok(()) => {
                    self.joined.insert(instance.id.clone());
                }
                // An earlier instance had that address. Its Node will be deleted.
                Err(error) if format!("{error:#}").contains("AlreadyExists") => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn objects(&self) -> Result<Objects> {
        let mut kubectl = self.cluster.kubectl();
        let read = output_of(kubectl.args(["get", "machines.machine.sapcloud.io,nodes", "--output=json"]))?;
        let list: List = serde_json::from_str(&read)?;
        let (nodes, machines): (Vec<_>, Vec<_>) =
            list.items.into_iter().partition(|item| item.kind == "Node");
        Ok(Objects {
            nodes: nodes.into_iter().map(|node| node.metadata.name).collect(),
            machines: machines.into_iter().map(Item::into_machine).collect(),
        })
    }

    pub(super) fn compare_settled(&mut self, when: &str, machines: usize, class: usize) -> Result<()> {
        let types = self.types.clone();
        self.compare(when, Stage::Settled { machines, class: CLASSES[class], instance_type: &types[class] })
    }

    /// Compares both sides while no controller runs.
    pub(super) fn compare(&mut self, when: &str, stage: Stage<'_>) -> Result<()> {
        let (objects, inventory) = (self.objects()?, self.cloud.list()?);
        let differences = self.memory.differences(&objects, &inventory, stage);
        ensure!(differences.is_empty(), "{when}, and the two sides differ:\n{}", differences.join("\n"));
        println!(
            "{when}: {} Machines, {} instances, {} parts, {} Nodes; no difference",
            objects.machines.len(),
            inventory.instances.len(),
            inventory.parts.len(),
            objects.nodes.len()
        );
        Ok(())
    }

    /// Compares the numbers of Machines and instances that ever existed, and looks for tokens.
    pub(super) fn ensure_nothing_was_doubled(&mut self) -> Result<()> {
        let (instances, machines) = (self.cloud.list()?.ever, self.memory.machines());
        ensure!(instances == machines, "{instances} instances were made for {machines} Machines");
        let mut kubectl = self.cluster.kubectl();
        kubectl.args(["get", "secrets", "--namespace=kube-system", "--output=name"]);
        let tokens = output_of(kubectl.arg("--field-selector=type=bootstrap.kubernetes.io/token"))?;
        ensure!(tokens.trim().is_empty(), "bootstrap tokens are left:\n{tokens}");
        println!("{machines} Machines existed, and {instances} instances; no bootstrap token is left");
        Ok(())
    }
}

/// Creates the kinds and the objects. The deployment has no Machines yet.
fn install(machinist: &Path, cluster: &Cluster, prepared: &Prepared) -> Result<()> {
    let kinds = output_of(Command::new(machinist).arg("crds"))?;
    pipe_into(cluster.kubectl().args(["apply", "--server-side", "--filename=-"]), &kinds)?;
    let names = ["machinedeployments", "machinesets", "machines", "machineclasses"];
    for name in names {
        let kind = format!("crd/{name}.machine.sapcloud.io");
        output_of(cluster.kubectl().args(["wait", "--for=condition=Established", "--timeout=60s", &kind]))?;
    }
    pipe_into(cluster.kubectl().args(["create", "--filename=-"]), &objects_of(prepared).to_string())
}

fn objects_of(prepared: &Prepared) -> Value {
    let api_version = "machine.sapcloud.io/v1alpha1";
    let of_default = |name: &str| json!({"name": name, "namespace": "default"});
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": of_default(SECRET), "stringData": prepared.secret,
    });
    let class = |(name, spec): (&str, &Value)| {
        json!({
            "apiVersion": api_version, "kind": "MachineClass", "metadata": of_default(name),
            "provider": prepared.provider, "providerSpec": spec, "secretRef": of_default(SECRET),
        })
    };
    let labels = json!({"name": DEPLOYMENT});
    let deployment = json!({
        "apiVersion": api_version, "kind": "MachineDeployment", "metadata": of_default(DEPLOYMENT),
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": SURGE, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "class": {"kind": "MachineClass", "name": CLASSES[0]},
                    "nodeTemplate": {"metadata": {"labels": {"worker.gardener.cloud/pool": "worker"}}},
                },
            },
        },
    });
    let classes = CLASSES.into_iter().zip(&prepared.classes).map(class);
    let items: Vec<Value> = std::iter::once(secret).chain(classes).chain([deployment]).collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// The Node of an instance, Ready. Without a kube-controller-manager no heartbeat is missed.
fn node_of(instance: &Instance) -> Value {
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "Lane"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": instance.node, "labels": {"kubernetes.io/hostname": instance.node}},
        "spec": {"providerID": instance.node_id},
        "status": {"conditions": [
            condition("MemoryPressure", "False"),
            condition("DiskPressure", "False"),
            condition("PIDPressure", "False"),
            condition("Ready", "True"),
        ]},
    })
}

/// The output of kubectl, as far as the lane reads it.
#[derive(Deserialize)]
struct List {
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    kind: String,
    metadata: Metadata,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    uid: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    deletion_timestamp: Option<String>,
}

impl Item {
    fn into_machine(self) -> Machine {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Machine {
            id: text(&self.spec["providerID"]),
            class: text(&self.spec["class"]["name"]),
            phase: text(&self.status["currentStatus"]["phase"]),
            node: self.metadata.labels.get("node").cloned().unwrap_or_default(),
            is_deleted: self.metadata.deletion_timestamp.is_some(),
            uid: self.metadata.uid,
            name: self.metadata.name,
        }
    }
}

/// Copies the logs to a folder that stays, for the reader of a failure.
pub(super) fn keep_logs(folder: &Path) -> Result<()> {
    let kept = tempfile::Builder::new().prefix("machinist-logs-").tempdir()?.keep();
    for entry in fs::read_dir(folder)? {
        let file = entry?.path();
        let is_log = file.extension().is_some_and(|extension| extension == "log");
        if let (true, Some(name)) = (is_log, file.file_name()) {
            fs::copy(&file, kept.join(name))?;
        }
    }
    eprintln!("the logs are in {}", kept.display());
    Ok(())
}
