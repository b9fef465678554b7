//! The life of a Cluster on real nodes: created, scaled, rolled out, repaired, deleted.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::clusterctl::{self, Clusterctl, FLAVORS, NAMESPACE, Size};
use super::management::objects_in;
use crate::control_plane::{Cluster, pause};
use crate::docker::Daemon;
use crate::workspace::output_of;

const NAME: &str = "first";
const OF_A_CLASS: &str = "second";

/// A minute on an idle computer. The limits allow for a compiler that runs at the same time.
const AVAILABLE_WITHIN: Duration = Duration::from_secs(6 * 60);
/// Replacing three control plane machines one after the other.
const ROLLED_OUT_WITHIN: Duration = Duration::from_secs(12 * 60);
const DELETED_WITHIN: Duration = Duration::from_secs(5 * 60);
/// A cluster should serve again within a minute. The rest is for a computer that also compiles.
const SERVES_AGAIN_WITHIN: Duration = Duration::from_secs(2 * 60);
/// The ways in which the engine ends.
const TERM: &str = "TERM";
const KILL: &str = "KILL";
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Time after which a worker with a silent kubelet is replaced. The node controller of the workload
/// cluster needs 50 s before that.
const UNHEALTHY_AFTER_SECONDS: u32 = 5;

pub(super) struct Lane<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) docker: &'a Daemon,
    pub(super) clusterctl: &'a Clusterctl,
}

impl Lane<'_> {
    pub(super) fn run(&self) -> Result<()> {
        self.templates_are_accepted()?;
        self.create(NAME, "", Size { control_plane: 1, workers: 2 })?;
        self.restart_engine(1, &[TERM])?;
        self.scale()?;
        self.restart_engine(1, &[KILL])?;
        self.a_template_is_protected()?;
        self.roll_out()?;
        self.repair()?;
        self.delete(NAME)
    }

    /// Restarts the engine five times in each way, with one and with three machines of the control
    /// plane.
    pub(super) fn restart_often(&self) -> Result<()> {
        self.create(NAME, "", Size { control_plane: 1, workers: 2 })?;
        self.restart_engine(5, &[TERM, KILL])?;
        self.set_replicas("kubeadmcontrolplane", "first-control-plane", 3)?;
        self.wait_for_machines(NAME, Size { control_plane: 3, workers: 2 })?;
        self.restart_engine(5, &[TERM, KILL])?;
        self.delete(NAME)
    }

    /// Restarts the engine with these signals. All Nodes must be Ready again without help, in the
    /// same containers, and no Machine may be replaced.
    fn restart_engine(&self, times: u32, signals: &[&str]) -> Result<()> {
        let (containers, machines) = (self.containers()?, self.machine_names()?);
        for round in 1..=times {
            for signal in signals {
                let started = Instant::now();
                let ended_at = output_of(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%S.000000Z"]))?;
                let ended_at = ended_at.trim();
                self.docker.restart(signal)?;
                let what = format!("Ready Nodes after restart {round} of the engine with SIG{signal}");
                self.wait(&what, SERVES_AGAIN_WITHIN, || {
                    let ready = self.nodes_ready_since(ended_at).unwrap_or_default();
                    Ok((ready < machines.len()).then(|| format!("{ready} of {} Nodes", machines.len())))
                })?;
                println!(
                    "restart {round} with SIG{signal}: {} Nodes were Ready after {:.0?}; {} containers before and after",
                    machines.len(),
                    started.elapsed(),
                    containers.len()
                );
                let (after, left) = (self.containers()?, self.machine_names()?);
                ensure!(
                    after == containers,
                    "the restart changed the containers {containers:?} to {after:?}"
                );
                ensure!(left == machines, "the restart changed the machines {machines:?} to {left:?}");
            }
        }
        Ok(())
    }

    /// Returns the number of Nodes of the workload cluster that are Ready, and have renewed their
    /// Lease since that time.
    fn nodes_ready_since(&self, moment: &str) -> Result<usize> {
        let mut command = self.clusterctl.command(&["get", "kubeconfig", NAME, "--namespace", NAMESPACE]);
        let text = output_of(command.arg("--kubeconfig").arg(self.cluster.kubeconfig()))?;
        let kubeconfig = tempfile::NamedTempFile::new()?;
        fs::write(kubeconfig.path(), text)?;
        let read = |arguments: &[&str]| -> Result<Value> {
            let mut command = self.cluster.kubectl_for(kubeconfig.path());
            command.args(["--request-timeout=3s", "get", "--output=json"]).args(arguments);
            serde_json::from_str(&output_of(&mut command)?).context("kubectl printed no JSON")
        };
        let leases = read(&["leases", "--namespace=kube-node-lease"])?;
        let has_renewed = |name: &str| {
            let mut items = leases["items"].as_array().into_iter().flatten();
            let lease =
                items.find(|lease| lease.pointer("/metadata/name").is_some_and(|found| found == name));
            let renewed = lease.and_then(|lease| lease.pointer("/spec/renewTime")?.as_str());
            renewed.is_some_and(|renewed| moment < renewed)
        };
        let nodes = read(&["nodes"])?;
        let nodes = nodes["items"].as_array().into_iter().flatten();
        let is_ready = |node: &&Value| {
            let name = node.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            has_condition(node, "Ready") && has_renewed(name)
        };
        Ok(nodes.filter(is_ready).count())
    }

    /// Creates a Cluster of the class `quick-start`, moves it to another management cluster, and
    /// deletes it there. Its containers must not notice.
    pub(super) fn move_to(&self, other: &Self) -> Result<()> {
        let size = Size { control_plane: 1, workers: 1 };
        self.create(OF_A_CLASS, "topology", size)?;
        let before = self.containers()?;
        let mut command = self.clusterctl.command(&["move", "--namespace", NAMESPACE]);
        command.arg("--kubeconfig").arg(self.cluster.kubeconfig());
        command.arg("--to-kubeconfig").arg(other.cluster.kubeconfig());
        output_of(&mut command)?;
        other.wait_for_machines(OF_A_CLASS, size)?;
        let after = self.containers()?;
        ensure!(before == after, "the move changed the containers {before:?} to {after:?}");
        other.delete(OF_A_CLASS)
    }

    /// Sends every template to the API server and the webhooks, without creating anything.
    fn templates_are_accepted(&self) -> Result<()> {
        for flavor in FLAVORS {
            let manifest = self.clusterctl.generate("dry", flavor, Size { control_plane: 1, workers: 1 })?;
            // The API server does not know the class of a Cluster that only a dry run created.
            let objects = objects_in(self.cluster, &manifest)?;
            let is_managed = |object: &Value| object.pointer("/spec/topology").is_some();
            for object in objects.iter().filter(|object| !is_managed(object)) {
                let mut create = self.cluster.kubectl();
                create.args(["create", "--dry-run=server", "--validate=strict", "--filename=-"]);
                crate::control_plane::pipe_into(&mut create, &object.to_string())
                    .with_context(|| format!("the template {flavor:?}, {}", object["kind"]))?;
            }
            println!("the API server accepts the template {flavor:?}");
        }
        Ok(())
    }

    fn create(&self, name: &str, flavor: &str, size: Size) -> Result<()> {
        let manifest = self.clusterctl.generate(name, flavor, size)?;
        let mut objects = objects_in(self.cluster, &manifest)?;
        objects.iter_mut().for_each(adapt_to_lane);
        clusterctl::create(self.cluster, &objects)?;
        self.wait_for_machines(name, size)
    }

    fn scale(&self) -> Result<()> {
        self.set_replicas("kubeadmcontrolplane", "first-control-plane", 3)?;
        self.wait_for_machines(NAME, Size { control_plane: 3, workers: 2 })?;
        self.set_replicas("machinedeployment", "first-md-0", 3)?;
        self.wait_for_machines(NAME, Size { control_plane: 3, workers: 3 })?;
        self.set_replicas("machinedeployment", "first-md-0", 2)?;
        self.wait_for_machines(NAME, Size { control_plane: 3, workers: 2 })
    }

    /// Checks the admission policy: only a dry run of the topology controller may change a spec.
    fn a_template_is_protected(&self) -> Result<()> {
        let spec = json!({"template": {"spec": {"customImage": "other"}}});
        let announced = json!({"annotations": {"topology.cluster.x-k8s.io/dry-run": ""}});
        let patches = [(json!({"spec": spec}), false), (json!({"metadata": announced, "spec": spec}), true)];
        for (patch, is_announced) in patches {
            for dry_run in ["--dry-run=none", "--dry-run=server"] {
                let patch = patch.to_string();
                let patch =
                    ["patch", "dockermachinetemplate", "first-md-0", "--type=merge", "--patch", &patch];
                let patched = self.kubectl(&[&patch[..], &[dry_run]].concat());
                let may_change = is_announced && dry_run == "--dry-run=server";
                match patched {
                    Ok(_) => ensure!(may_change, "the spec of a template could be changed with {dry_run}"),
                    Err(error) if !may_change => {
                        let error = format!("{error:#}");
                        ensure!(
                            error.contains("immutable"),
                            "a template was refused for another reason: {error}"
                        );
                    }
                    Err(error) => {
                        return Err(error.context("the topology controller cannot compare templates"));
                    }
                }
            }
        }
        println!("the spec of a template changes only in a dry run of the topology controller");
        Ok(())
    }

    /// Replaces all machines by machines from new templates.
    fn roll_out(&self) -> Result<()> {
        let before = self.machine_names()?;
        for (kind, name, path) in [
            ("machinedeployment", "first-md-0", "/spec/template/spec/infrastructureRef/name"),
            (
                "kubeadmcontrolplane",
                "first-control-plane",
                "/spec/machineTemplate/spec/infrastructureRef/name",
            ),
        ] {
            let template = self.get(&["dockermachinetemplate", name])?;
            let next = format!("{name}-2");
            let copy = json!({
                "apiVersion": template["apiVersion"],
                "kind": template["kind"],
                "metadata": {"name": next, "namespace": NAMESPACE},
                "spec": template["spec"],
            });
            clusterctl::create(self.cluster, &[copy])?;
            let patch = json!([{"op": "replace", "path": path, "value": next}]).to_string();
            self.kubectl(&["patch", kind, name, "--type=json", "--patch", &patch])?;
        }
        self.wait("replacement of every machine", ROLLED_OUT_WITHIN, || {
            let names = self.machine_names()?;
            let left: Vec<&String> = names.iter().filter(|name| before.contains(name)).collect();
            Ok((!left.is_empty()).then(|| format!("left {left:?} of {names:?}")))
        })?;
        self.wait_for_machines(NAME, Size { control_plane: 3, workers: 2 })
    }

    /// Kills a worker, and waits for another one in its place.
    fn repair(&self) -> Result<()> {
        let check = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "MachineHealthCheck",
            "metadata": {"name": NAME, "namespace": NAMESPACE},
            "spec": {
                "clusterName": NAME,
                "selector": {"matchLabels": {"cluster.x-k8s.io/deployment-name": "first-md-0"}},
                "checks": {"unhealthyNodeConditions": [
                    {"type": "Ready", "status": "Unknown", "timeoutSeconds": UNHEALTHY_AFTER_SECONDS},
                    {"type": "Ready", "status": "False", "timeoutSeconds": UNHEALTHY_AFTER_SECONDS},
                ]},
            },
        });
        clusterctl::create(self.cluster, &[check])?;
        let machines = self.get(&["machines", "--selector=cluster.x-k8s.io/deployment-name=first-md-0"])?;
        let victim =
            machines.pointer("/items/0/metadata/name").and_then(Value::as_str).context("no worker")?;
        let container = self.container_of(victim)?;
        output_of(self.docker.docker()?.args(["kill", &container]))?;
        println!("killed {container}");
        self.wait("replacement of the killed worker", AVAILABLE_WITHIN, || {
            let names = self.machine_names()?;
            Ok(names.iter().any(|name| name == victim).then(|| format!("machines {names:?}")))
        })?;
        self.wait_for_machines(NAME, Size { control_plane: 3, workers: 2 })
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.kubectl(&["delete", "cluster", name, "--wait=false"])?;
        self.wait("deletion of the Cluster", DELETED_WITHIN, || {
            let left = self.kubectl(&[
                "get",
                "clusters,machines,dockerclusters,dockermachines,kubeadmconfigs",
                "--output=jsonpath={range .items[*]}{.kind}/{.metadata.name} {end}",
            ])?;
            Ok((!left.trim().is_empty()).then(|| left.trim().to_owned()))
        })?;
        for listing in
            [&["ps", "--all", "--format", "{{.Names}}"][..], &["volume", "ls", "--format", "{{.Name}}"]]
        {
            let left = output_of(self.docker.docker()?.args(listing))?;
            ensure!(left.trim().is_empty(), "`docker {}` shows {}", listing[0], left.trim());
        }
        println!("Cluster {name} is deleted, and Docker has no container and no volume");
        Ok(())
    }

    /// Waits until that many Machines exist, all of them available, and no other container.
    fn wait_for_machines(&self, name: &str, size: Size) -> Result<()> {
        let wanted = usize::try_from(size.control_plane + size.workers)?;
        let what = format!("{} control plane and {} worker machines", size.control_plane, size.workers);
        self.wait(&what, AVAILABLE_WITHIN, || {
            let machines = self.get(&["machines"])?;
            let items = machines["items"].as_array().map(Vec::as_slice).unwrap_or_default();
            let available = items.iter().filter(|machine| has_condition(machine, "Available")).count();
            let cluster = self.get(&["cluster", name])?;
            let is_reached =
                items.len() == wanted && available == wanted && has_condition(&cluster, "Available");
            Ok((!is_reached).then(|| format!("{available} of {} machines are available", items.len())))
        })
    }

    /// Repeats a check until it returns no more reason to wait.
    fn wait(
        &self,
        what: &str,
        limit: Duration,
        mut check: impl FnMut() -> Result<Option<String>>,
    ) -> Result<()> {
        let started = Instant::now();
        while let Some(state) = check()? {
            ensure!(started.elapsed() < limit, "timed out: no {what} within {limit:?}; {state}");
            pause(LOOK_EVERY);
        }
        println!("{what}: after {:.0?}", started.elapsed());
        Ok(())
    }

    fn set_replicas(&self, kind: &str, name: &str, replicas: u32) -> Result<()> {
        self.kubectl(&["scale", kind, name, &format!("--replicas={replicas}")]).map(drop)
    }

    fn machine_names(&self) -> Result<Vec<String>> {
        let names = self.kubectl(&["get", "machines", "--output=jsonpath={.items[*].metadata.name}"])?;
        Ok(names.split_whitespace().map(str::to_owned).collect())
    }

    /// Returns the name of a Machine's container, from its provider id.
    fn container_of(&self, machine: &str) -> Result<String> {
        let id = self.kubectl(&["get", "machine", machine, "--output=jsonpath={.spec.providerID}"])?;
        let container = id.trim().rsplit('/').next().unwrap_or_default();
        ensure!(!container.is_empty(), "Machine {machine} has no provider id");
        Ok(container.to_owned())
    }

    /// Returns the ids of all containers.
    fn containers(&self) -> Result<BTreeSet<String>> {
        let ids = output_of(self.docker.docker()?.args(["ps", "--all", "--quiet", "--no-trunc"]))?;
        Ok(ids.split_whitespace().map(str::to_owned).collect())
    }

    fn get(&self, arguments: &[&str]) -> Result<Value> {
        let printed = self.kubectl(&[&["get", "--output=json"], arguments].concat())?;
        serde_json::from_str(&printed).context("kubectl printed no JSON")
    }

    fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        output_of(self.cluster.kubectl().args(arguments).args(["--namespace", NAMESPACE]))
    }

    /// Prints what a reader of a failure needs.
    pub(super) fn print_state(&self) {
        for name in [NAME, OF_A_CLASS] {
            let describe = ["describe", "cluster", name, "--show-conditions=all", "--kubeconfig"];
            let described = output_of(self.clusterctl.command(&describe).arg(self.cluster.kubeconfig()));
            eprintln!("{}", described.unwrap_or_else(|error| format!("{error:#}")));
        }
        let machines = self.kubectl(&[
            "get",
            "clusters,kubeadmcontrolplanes,machinedeployments,machines,dockermachines",
            "--output=wide",
        ]);
        let docker = self.docker.docker().and_then(|mut docker| output_of(docker.args(["ps", "--all"])));
        for text in [machines, docker] {
            eprintln!("{}", text.unwrap_or_else(|error| format!("{error:#}")));
        }
    }
}

fn has_condition(object: &Value, kind: &str) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// Leaves out kube-proxy and CoreDNS, which the node image does not have, and pulls no image. etcd
/// skips fsync, because nodes share one disk, and the lane discards the data.
fn adapt_to_lane(object: &mut Value) {
    let unmanaged = json!({
        "controlplane.cluster.x-k8s.io/skip-coredns": "",
        "controlplane.cluster.x-k8s.io/skip-kube-proxy": "",
    });
    if object["kind"] == "KubeadmControlPlane" {
        adapt_kubeadm(&mut object["spec"]["kubeadmConfigSpec"]);
        object["metadata"]["annotations"] = unmanaged;
    } else if object["kind"] == "KubeadmControlPlaneTemplate" {
        adapt_kubeadm(&mut object["spec"]["template"]["spec"]["kubeadmConfigSpec"]);
    } else if object.pointer("/spec/topology").is_some() {
        object["spec"]["topology"]["controlPlane"]["metadata"] = json!({"annotations": unmanaged});
    }
}

fn adapt_kubeadm(config: &mut Value) {
    config["initConfiguration"]["skipPhases"] = json!(["addon/coredns", "addon/kube-proxy"]);
    for configuration in ["initConfiguration", "joinConfiguration"] {
        config[configuration]["nodeRegistration"]["imagePullPolicy"] = json!("Never");
    }
    config["clusterConfiguration"]["etcd"]["local"]["extraArgs"] =
        json!([{"name": "unsafe-no-fsync", "value": "true"}]);
}
