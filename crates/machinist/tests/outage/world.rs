//! The two clusters, the cloud with its machines, and the two processes.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use machinist_api::{Machine, MachineDeployment, Phase};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::clusters::{self, Cluster, LOOK_EVERY, Process, client, described, free_port};
use crate::processes::{self, Piped};
use crate::proxy::Proxy;

pub(crate) const NAMESPACE: &str = "default";
pub(crate) const WORKERS: &str = "workers";

/// The drain timeout of all machines.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
/// The creation timeout of all machines: longer than a watch counts as fresh.
pub(crate) const CREATION_TIMEOUT: Duration = Duration::from_secs(125);

/// How long a state may take to appear.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Deserialize)]
struct Described {
    control: Cluster,
    target: Cluster,
}

/// Everything that a scenario runs against.
pub(crate) struct World {
    pub control: kube::Client,
    pub target: kube::Client,
    pub proxy: Proxy,
    controllers: Option<Controllers>,
    /// Kubeconfigs of the controllers: control cluster, and target cluster behind the proxy.
    kubeconfigs: (PathBuf, PathBuf),
    _cloud: Piped,
    cloud: String,
    folder: tempfile::TempDir,
}

/// The two processes under test, and their ports.
struct Controllers {
    manager: (Process, u16),
    machines: (Process, u16),
}

impl World {
    /// Starts cloud and proxy, and installs the kinds.
    pub(crate) async fn new() -> Result<Self> {
        let Described { control, target } = described("outage")?;
        println!("kube-apiserver {}", target.version);
        let folder = tempfile::tempdir()?;
        let server = target.server.strip_prefix("https://").context("the server has an HTTPS URL")?;
        let proxy = Proxy::start(server.parse().context("the server has an address and a port")?).await?;
        let behind = folder.path().join("target.kubeconfig");
        let mut kubeconfig: Value = serde_json::to_value(Kubeconfig::read_from(&target.kubeconfig)?)?;
        kubeconfig["clusters"][0]["cluster"]["server"] = format!("https://{}", proxy.address).into();
        std::fs::write(&behind, kubeconfig.to_string())?;
        let arguments = format!(
            "sim-cloud --listen 127.0.0.1:0 --data-dir {} --target-server {} --target-ca {}",
            folder.path().join("cloud").display(),
            target.server,
            target.ca_file.display()
        );
        let (cloud, line) =
            processes::start_until(&arguments, folder.path(), "cloud", "Simulated cloud at ")?;
        let url =
            line.split_whitespace().find(|word| word.starts_with("http://")).context("the cloud's URL")?;
        let world = Self {
            control: client(&control.kubeconfig).await?,
            target: client(&target.kubeconfig).await?,
            proxy,
            controllers: None,
            kubeconfigs: (control.kubeconfig, behind),
            _cloud: cloud,
            cloud: url.trim_end_matches(',').to_owned(),
            folder,
        };
        world.apply_kinds().await?;
        Ok(world)
    }

    /// Starts the controllers, and creates three workers.
    pub(crate) async fn create_workers(&mut self) -> Result<()> {
        self.start_controllers()?;
        for object in machinist_api::manifest::parse_manifest(include_str!("../../quickstart.yaml"))? {
            self.create(&object.kind, &object.body).await?;
        }
        self.until("three workers", async |w| w.are_running(3).await).await
    }

    async fn apply_kinds(&self) -> Result<()> {
        for definition in machinist_api::crd::all_crds() {
            let name = definition.metadata.name.clone().unwrap_or_default();
            let api: Api<_> = Api::all(self.control.clone());
            let params = PatchParams::apply("outage").force();
            api.patch(&name, &params, &Patch::Apply(&definition)).await?;
            let is_served = kube::runtime::conditions::is_crd_established();
            kube::runtime::wait::await_condition(api, &name, is_served).await?;
        }
        Ok(())
    }

    async fn create(&self, kind: &str, body: &Value) -> Result<()> {
        let path = match kind {
            "Secret" => format!("/api/v1/namespaces/{NAMESPACE}/secrets"),
            "MachineClass" => {
                format!("/apis/machine.sapcloud.io/v1alpha1/namespaces/{NAMESPACE}/machineclasses")
            }
            "MachineDeployment" => {
                format!("/apis/machine.sapcloud.io/v1alpha1/namespaces/{NAMESPACE}/machinedeployments")
            }
            other => bail!("the quick start has a {other}"),
        };
        let request = http::Request::post(path).header("content-type", "application/json");
        self.control.request::<Value>(request.body(body.to_string().into_bytes())?).await?;
        Ok(())
    }

    /// Starts both controllers.
    pub(crate) fn start_controllers(&mut self) -> Result<()> {
        let (control, target) = &self.kubeconfigs;
        let both = format!(
            "--control-kubeconfig {} --target-kubeconfig {} --namespace {NAMESPACE} --address 127.0.0.1 \
             --leader-elect-lease-duration=6s --leader-elect-renew-deadline=4s --leader-elect-retry-period=1s",
            control.display(),
            target.display()
        );
        let (manager, machines) = (free_port()?, free_port()?);
        let folder = self.folder.path();
        let manager_line = format!("machine-controller-manager --port {manager} {both}");
        let machines_line = format!(
            "machine-controller --port {machines} --provider sim --sim-endpoint {} \
             --machine-drain-timeout={}s --machine-creation-timeout={}s {both}",
            self.cloud,
            DRAIN_TIMEOUT.as_secs(),
            CREATION_TIMEOUT.as_secs()
        );
        self.controllers = Some(Controllers {
            manager: (processes::start(&manager_line, folder, "manager")?, manager),
            machines: (processes::start(&machines_line, folder, "machine-controller")?, machines),
        });
        Ok(())
    }

    /// Kills both controllers.
    pub(crate) fn kill_controllers(&mut self) -> Result<()> {
        if let Some(Controllers { mut manager, mut machines }) = self.controllers.take() {
            manager.0.kill()?;
            machines.0.kill()?;
        }
        Ok(())
    }

    /// The ends of the logs, for a failed run.
    pub(crate) fn report(&self) -> String {
        let logs = self.controllers.iter().flat_map(|pair| [&pair.manager, &pair.machines]);
        logs.map(|(process, _)| process.log()).collect::<Vec<_>>().join("\n----\n")
    }

    /// The text of `machinist why`, which asks the running controllers.
    pub(crate) async fn why(&self, object: &str) -> Result<String> {
        let controllers = self.controllers.as_ref().context("the controllers run")?;
        let (control, target) = &self.kubeconfigs;
        processes::run(&format!(
            "why {object} -n {NAMESPACE} --control-kubeconfig {} --target-kubeconfig {} \
             --controller http://127.0.0.1:{} --controller http://127.0.0.1:{}",
            control.display(),
            target.display(),
            controllers.machines.1,
            controllers.manager.1
        ))
        .await
    }

    /// GET of a path of the machine controller: status and body.
    pub(crate) async fn get(&self, path: &str) -> Result<(u16, String)> {
        let port = self.controllers.as_ref().context("the controllers run")?.machines.1;
        get(&format!("http://127.0.0.1:{port}"), path).await
    }

    /// Changes a setting of the cloud.
    pub(crate) async fn set_cloud(&self, settings: Value) -> Result<()> {
        let client = plain_client(&self.cloud)?;
        let request = http::Request::patch("/admin/settings").body(settings.to_string().into_bytes())?;
        client.request_text(request).await?;
        Ok(())
    }

    /// Switches an instance `on` or `off`.
    pub(crate) async fn power(&self, state: &str, id: &str) -> Result<()> {
        let client = plain_client(&self.cloud)?;
        let request = http::Request::post(format!("/admin/power-{state}"));
        client.request_text(request.body(json!({"id": id}).to_string().into_bytes())?).await?;
        Ok(())
    }

    /// The entries of the cloud's ledger: every instance ever made.
    pub(crate) async fn ledger(&self) -> Result<Vec<Value>> {
        let (_, body) = get(&self.cloud, "/admin/ledger").await?;
        let ledger: Value = serde_json::from_str(&body)?;
        Ok(ledger["entries"].as_array().context("the ledger has entries")?.clone())
    }

    /// Number of instances that were deleted.
    pub(crate) async fn deleted(&self) -> Result<usize> {
        Ok(self.ledger().await?.iter().filter(|entry| !entry["deleted"].is_null()).count())
    }

    pub(crate) fn machines(&self) -> Api<Machine> {
        Api::namespaced(self.control.clone(), NAMESPACE)
    }

    pub(crate) fn deployments(&self) -> Api<MachineDeployment> {
        Api::namespaced(self.control.clone(), NAMESPACE)
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.target.clone())
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.target.clone(), NAMESPACE)
    }

    /// The Machines that are not being deleted.
    pub(crate) async fn live(&self) -> Result<Vec<Machine>> {
        let all = self.machines().list(&ListParams::default()).await?;
        Ok(all.items.into_iter().filter(|machine| machine.metadata.deletion_timestamp.is_none()).collect())
    }

    /// Whether exactly this number of live Machines exists, all of them Running.
    pub(crate) async fn are_running(&self, count: usize) -> Result<bool> {
        let live = self.live().await?;
        Ok(live.len() == count && live.iter().all(|machine| machine.phase() == Phase::Running))
    }

    /// Changes the number of workers.
    pub(crate) async fn scale(&self, replicas: u32) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.deployments().patch(WORKERS, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Creates a pod on the Node of a Machine, which no budget lets go, and waits for the budget.
    pub(crate) async fn create_held_pod(&mut self, name: &str, node: &str) -> Result<()> {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
            "spec": {
                "nodeName": node, "terminationGracePeriodSeconds": 2, "automountServiceAccountToken": false,
                "containers": [{"name": "c", "image": "registry.example/app"}],
            },
        });
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}},
        });
        self.budgets().create(&PostParams::default(), &serde_json::from_value(budget)?).await?;
        self.until("the budget counts the pod", async |w| {
            let budget = w.budgets().get(name).await?;
            Ok(budget
                .status
                .is_some_and(|status| status.current_healthy == 1 && status.disruptions_allowed == 0))
        })
        .await
    }

    /// Deletes the budget of a pod.
    pub(crate) async fn delete_budget(&self, name: &str) -> Result<()> {
        self.budgets().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    fn budgets(&self) -> Api<PodDisruptionBudget> {
        Api::namespaced(self.target.clone(), NAMESPACE)
    }

    /// Whether a pod exists and no client has asked for its deletion.
    pub(crate) async fn is_pod_untouched(&self, name: &str) -> Result<bool> {
        let pod = self.pods().get_opt(name).await?;
        Ok(pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none()))
    }

    /// Waits for a state.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        is_so: impl AsyncFn(&Self) -> Result<bool>,
    ) -> Result<()> {
        self.until_within(PATIENCE, what, is_so).await
    }

    /// Waits for a state, at most that long.
    pub(crate) async fn until_within(
        &mut self,
        limit: Duration,
        what: &str,
        is_so: impl AsyncFn(&Self) -> Result<bool>,
    ) -> Result<()> {
        clusters::until_within(self, limit, what, is_so, Self::ensure_alive).await
    }

    /// Checks a state again and again for that long.
    pub(crate) async fn always(
        &mut self,
        length: Duration,
        what: &str,
        is_so: impl AsyncFn(&Self) -> Result<bool>,
    ) -> Result<()> {
        let started = Instant::now();
        while started.elapsed() < length {
            ensure!(is_so(self).await?, "after {:.0?} this was false: {what}", started.elapsed());
            self.ensure_alive()?;
            tokio::time::sleep(LOOK_EVERY * 5).await;
        }
        Ok(())
    }

    fn ensure_alive(&mut self) -> Result<()> {
        let Some(controllers) = &mut self.controllers else { return Ok(()) };
        controllers.manager.0.ensure_alive()?;
        controllers.machines.0.ensure_alive()
    }
}

/// Name of the Node of a Machine.
pub(crate) fn node_of(machine: &Machine) -> Result<String> {
    let labels = machine.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get("node").cloned()).context("the Machine has the label node")
}

/// Name of a Machine.
pub(crate) fn name_of(machine: &Machine) -> String {
    machine.metadata.name.clone().unwrap_or_default()
}

fn plain_client(url: &str) -> Result<kube::Client> {
    let mut config = kube::Config::new(url.parse()?);
    // 503 is an answer that scenarios expect.
    config.default_retry = false;
    Ok(kube::Client::try_from(config)?)
}

async fn get(url: &str, path: &str) -> Result<(u16, String)> {
    let request = http::Request::get(path).body(kube::client::Body::empty())?;
    let answer = plain_client(url)?.send(request).await?;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}
