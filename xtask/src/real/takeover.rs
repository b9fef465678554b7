//! The lanes of a take-over: Go's machine-controller-manager and our two processes take turns with
//! the same Machines, and both sides must leave the same instances.
//!
//! Go's manager is built from its module. Go's machine controller is the library of that module
//! with drivers of `xtask/takeover`, because the providers themselves cannot be had as modules. A
//! driver creates instances as the provider does: ids, names, tags, ports, volumes and addresses.
//!
//! One cluster has both roles: the lane `gardener` has two, and here the cloud matters. No
//! kube-controller-manager runs, so a Node stays Ready without heartbeats. The lane itself acts as
//! kubelet and as cloud-controller-manager: when an instance runs, the lane creates its Node, with
//! the provider id that this cloud's controller writes.
//!
//! The list of the cloud comes from a client of its own ([`observer`]), and not from a driver.

mod compare;
mod controllers;
mod observer;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::hcloud_clients::{Ending, why_no_go};
use crate::control_plane::{
    Audit, Cluster, ControlPlane, ControllerManagers, Durability, Options, Roles, pause, pipe_into,
};
use crate::envtest::Assets;
use crate::workspace::output_of;
use compare::{Instance, Inventory, Machine, Memory, Objects, Stage, doubles};
use controllers::{Pair, Programs, Side};
pub(super) use observer::Kind;
use observer::{Cloud, Prepared, Tools};

/// Machines of the deployment while the two sides take turns.
const MACHINES: usize = 10;
/// Machines that the deployment keeps before it has none.
const FEW: usize = 3;
/// New Machines in the middle of the rollout.
const MIDDLE: usize = 4;
/// Machines that a rollout may create beyond the replicas.
const SURGE: usize = 2;

const DEPLOYMENT: &str = "workers";
/// The classes before and after the rollout.
const CLASSES: [&str; 2] = ["workers-v1", "workers-v2"];
const SECRET: &str = "workers";

/// Far longer than each step takes. A take-over from Go waits 15 s for its Leases, and one minute
/// more before the first deletion.
const STEP_WITHIN: Duration = Duration::from_secs(15 * 60);
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long an instance boots before its Node appears. Without it, a rollout on a quick cloud could
/// end between two looks.
const BOOT: Duration = Duration::from_secs(6);
/// Go's sweep runs at least twice in this time.
const SWEEPS: Duration = Duration::from_secs(25);

/// Plays the take-over on one cloud.
pub(super) fn check(kind: Kind) -> Result<Ending> {
    let reason = Assets::reason_they_cannot_be_had().or_else(why_no_go);
    if let Some(reason) = reason.or_else(Programs::reason_they_cannot_be_had) {
        return Ok(Ending::Skipped(reason));
    }
    let folder = tempfile::tempdir()?;
    let tools = match Tools::provide(kind, folder.path()) {
        Ok(tools) => tools,
        Err(error) => return Ok(Ending::Skipped(format!("{error:#}"))),
    };
    let programs = Programs::provide(folder.path())?;
    let cloud = Cloud::start(&tools, &programs.machinist, folder.path())?;
    let mut control_plane = ControlPlane::start(
        &Assets::provide()?,
        &Options {
            roles: Roles::OneClusterForBoth,
            controller_managers: ControllerManagers::None,
            audit: Audit::Off,
            durability: Durability::None,
            ..Options::default()
        },
    )?;
    let outcome = Lane::play(&programs, control_plane.control(), cloud, folder.path());
    if outcome.is_err() {
        keep_logs(folder.path())?;
    }
    outcome?;
    control_plane.ensure_alive()?;
    Ok(Ending::Passed)
}

/// The state of a lane while it runs.
struct Lane<'a> {
    programs: &'a Programs,
    cluster: &'a Cluster,
    cloud: Cloud,
    folder: &'a Path,
    /// The types of instances of the two classes.
    types: [String; 2],
    memory: Memory,
    /// When each instance was first seen running.
    booting: BTreeMap<String, Instant>,
    /// Instances whose Node was created.
    joined: BTreeSet<String>,
    turns: usize,
}

impl<'a> Lane<'a> {
    fn play(programs: &'a Programs, cluster: &'a Cluster, mut cloud: Cloud, folder: &'a Path) -> Result<()> {
        let prepared = cloud.prepare()?;
        install(programs, cluster, &prepared)?;
        let memory = Memory::new(prepared.marks);
        let types = prepared.types;
        let (booting, joined) = (BTreeMap::new(), BTreeSet::new());
        let mut lane = Self { programs, cluster, cloud, folder, types, memory, booting, joined, turns: 0 };
        lane.steps()
    }

    /// All steps, in order.
    fn steps(&mut self) -> Result<()> {
        let mut go = self.start(Side::Go)?;
        self.patch(&json!({"spec": {"replicas": MACHINES}}))?;
        self.settle(&mut go, MACHINES, 0)?;
        self.stop(go)?;
        self.compare_settled("Go created all Machines", MACHINES, 0)?;

        let mut ours = self.start(Side::Ours)?;
        self.patch(&json!({"spec": {"template": {"spec": {"class": {"name": CLASSES[1]}}}}}))?;
        self.reach_the_middle(&mut ours)?;
        self.stop(ours)?;
        self.compare("Machinist was stopped in the middle of the rollout", Stage::InBetween)?;

        let mut go = self.start(Side::Go)?;
        self.settle(&mut go, MACHINES, 1)?;
        pause(SWEEPS);
        self.settle(&mut go, MACHINES, 1)?;
        self.stop(go)?;
        self.compare_settled("Go finished the rollout", MACHINES, 1)?;

        let mut ours = self.start(Side::Ours)?;
        self.patch(&json!({"spec": {"replicas": FEW}}))?;
        self.settle(&mut ours, FEW, 1)?;
        self.patch(&json!({"spec": {"replicas": 0}}))?;
        self.settle(&mut ours, 0, 1)?;
        self.stop(ours)?;
        self.compare_settled("Machinist deleted all Machines", 0, 1)?;
        self.ensure_nothing_was_doubled()
    }

    fn start(&mut self, side: Side) -> Result<Pair> {
        self.turns += 1;
        println!("{} starts", side.name());
        Pair::start(side, self.turns, self.programs, self.cluster, &self.cloud, self.folder)
    }

    fn stop(&self, pair: Pair) -> Result<()> {
        let started = Instant::now();
        let name = pair.side.name();
        pair.stop()?;
        println!("{name} ended in {:.1?}", started.elapsed());
        Ok(())
    }

    fn patch(&self, change: &Value) -> Result<()> {
        let mut kubectl = self.cluster.kubectl();
        kubectl.args(["patch", "machinedeployment", DEPLOYMENT, "--type=merge", "--patch"]);
        output_of(kubectl.arg(change.to_string()))?;
        println!("patched: {change}");
        Ok(())
    }

    /// Waits until that many Machines run, and nothing else is left to do.
    fn settle(&mut self, pair: &mut Pair, machines: usize, class: usize) -> Result<()> {
        let started = Instant::now();
        let types = self.types.clone();
        let stage = Stage::Settled { machines, class: CLASSES[class], instance_type: &types[class] };
        loop {
            let (objects, inventory) = self.look(pair)?;
            let differences = self.memory.differences(&objects, &inventory, stage);
            if differences.is_empty() {
                println!("{} Machines are settled after {:.0?}", machines, started.elapsed());
                return Ok(());
            }
            if STEP_WITHIN < started.elapsed() {
                bail!("{} did not finish in {STEP_WITHIN:?}:\n{}", pair.side.name(), differences.join("\n"));
            }
            pause(LOOK_EVERY);
        }
    }

    /// Waits until some new Machines have their instances, none is being created, and some old ones
    /// were deleted.
    ///
    /// A creation in progress would belong to Go alone afterwards: Go finds the instance by its
    /// name, and completes neither its power nor its address, as after a crash of Go itself.
    fn reach_the_middle(&mut self, pair: &mut Pair) -> Result<()> {
        let started = Instant::now();
        loop {
            let (objects, inventory) = self.look(pair)?;
            let of_class = |class| objects.machines.iter().filter(move |machine| machine.class == class);
            let new = of_class(CLASSES[1]).count();
            let are_complete =
                of_class(CLASSES[1]).all(|machine| self.memory.is_complete(machine, &inventory));
            let old = of_class(CLASSES[0]).count();
            if MIDDLE <= new && are_complete && old < MACHINES {
                ensure!(0 < old, "the rollout has no old Machine left");
                println!("{new} new Machines exist beside {old} old ones after {:.0?}", started.elapsed());
                return Ok(());
            }
            ensure!(started.elapsed() < STEP_WITHIN, "only {new} new Machines exist, and {old} old ones");
            pause(LOOK_EVERY);
        }
    }

    /// Reads both sides while a pair runs. Two instances of a Machine, and a changed provider id,
    /// are errors at any time.
    fn look(&mut self, pair: &mut Pair) -> Result<(Objects, Inventory)> {
        pair.ensure_alive()?;
        let inventory = self.cloud.list()?;
        self.join(&inventory)?;
        let objects = self.objects()?;
        let mut wrong = doubles(&inventory);
        wrong.extend(self.memory.changed_ids(&objects));
        ensure!(wrong.is_empty(), "while {} ran:\n{}", pair.side.name(), wrong.join("\n"));
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

    fn compare_settled(&mut self, when: &str, machines: usize, class: usize) -> Result<()> {
        let types = self.types.clone();
        self.compare(when, Stage::Settled { machines, class: CLASSES[class], instance_type: &types[class] })
    }

    /// Compares both sides while no controller runs.
    fn compare(&mut self, when: &str, stage: Stage<'_>) -> Result<()> {
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
    fn ensure_nothing_was_doubled(&mut self) -> Result<()> {
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
fn install(programs: &Programs, cluster: &Cluster, prepared: &Prepared) -> Result<()> {
    let kinds = output_of(std::process::Command::new(&programs.machinist).arg("crds"))?;
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
fn keep_logs(folder: &Path) -> Result<()> {
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
