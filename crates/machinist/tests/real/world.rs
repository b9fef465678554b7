//! The cluster, the cloud, and the kubelets' part of a Node.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Node, Service};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use machinist_api::crd;
use machinist_cloud_sim::Clock;
use machinist_standin_hcloud::http::LoopbackServer;
use machinist_standin_hcloud::{Access, Fault, FaultRule, Network, NewServer, Settings, Standin, Subnet};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::clusters::{self, Cluster, client, described};
use crate::program::{Program, Surroundings};

/// The manifests that a user applies: the program with a network, in a cluster with a machine
/// controller.
const MANIFESTS: &str = "deploy/ccm/overlays/network-machines";
const SERVICE_ACCOUNT: &str = "machinist-cloud-controller-manager";
/// The name of the service account in audit logs.
pub(crate) const USER: &str = "system:serviceaccount:kube-system:machinist-cloud-controller-manager";

pub(crate) const TOKEN: &str = "token-of-the-project";
pub(crate) const OTHER_TOKEN: &str = "token-of-another-project";
pub(crate) const PROJECT: &str = "a";
/// The network of the project.
pub(crate) const NETWORK: i64 = 4711;
pub(crate) const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// How long a state may take to appear.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Described {
    target: Audited,
    kubectl: PathBuf,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Audited {
    #[serde(flatten)]
    cluster: Cluster,
    audit_log: Option<PathBuf>,
}

pub(crate) struct World {
    pub standin: Standin,
    pub user: kube::Client,
    pub program: Program,
    pub audit_log: PathBuf,
    /// A token of a user who may read `/metrics` and `/why`, and nothing else.
    pub reader: String,
    surroundings: Surroundings,
    folder: tempfile::TempDir,
}

impl World {
    /// Applies the manifests, starts the cloud and the program. The cloud does not answer yet.
    pub(crate) async fn new() -> Result<Self> {
        let Described { target, kubectl } = described("ccm")?;
        let Audited { cluster: target, audit_log } = target;
        println!("kube-apiserver {}", target.version);
        let audit_log = audit_log.context("the cluster writes no audit log")?;
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let kubectl = |arguments: &[&str]| run_kubectl(&kubectl, &target.kubeconfig, &root, arguments);
        let folder = tempfile::tempdir()?;
        let crds = folder.path().join("crds.yaml");
        std::fs::write(&crds, crds_as_yaml()?)?;
        let crds = crds.to_str().context("the path of the folder is not UTF-8")?;
        kubectl(&["apply", "-f", crds])?;
        kubectl(&["apply", "-k", MANIFESTS])?;
        let token =
            kubectl(&["create", "token", SERVICE_ACCOUNT, "--namespace=kube-system", "--duration=1h"])?;
        kubectl(&["create", "serviceaccount", "reader"])?;
        kubectl(&[
            "create",
            "clusterrole",
            "reader",
            "--verb=get",
            "--non-resource-url=/metrics",
            "--non-resource-url=/why/*",
        ])?;
        let binding = ["create", "clusterrolebinding", "reader"];
        kubectl(&[&binding[..], &["--clusterrole=reader", "--serviceaccount=default:reader"]].concat())?;
        let reader = kubectl(&["create", "token", "reader", "--duration=1h"])?.trim().to_owned();
        let standin = standin()?;
        let surroundings = Surroundings {
            kubeconfig: folder.path().join("kubeconfig"),
            token_file: folder.path().join("token"),
            endpoint: serve(&standin).await?,
            network: NETWORK,
        };
        std::fs::write(&surroundings.kubeconfig, kubeconfig(&target, token.trim()).to_string())?;
        std::fs::write(&surroundings.token_file, TOKEN)?;
        standin.add_fault(FaultRule::everywhere(Fault::Reset));
        let program = Program::start(&surroundings, folder.path(), "first")?;
        let user = client(&target.kubeconfig).await?;
        Ok(Self { standin, user, program, audit_log, reader, surroundings, folder })
    }

    /// Starts one more process in addition to the first.
    pub(crate) fn start_another(&self, name: &str) -> Result<Program> {
        Program::start(&self.surroundings, self.folder.path(), name)
    }

    /// The kubeconfig of the program.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.surroundings.kubeconfig
    }

    /// Changes the token, as the kubelet does when the Secret of a pod changes: the file is
    /// replaced at once.
    pub(crate) fn set_token(&self, token: &str) -> Result<()> {
        let new = self.folder.path().join("token.new");
        std::fs::write(&new, token)?;
        std::fs::rename(&new, &self.surroundings.token_file)?;
        Ok(())
    }

    /// The end of the program's log and the requests to the cloud, for a failed run.
    pub(crate) fn report(&self) -> String {
        format!("requests to the cloud: {:#?}\nlog:\n{}", self.standin.counters(), self.program.process.log())
    }

    /// Creates a running server in the network, and returns its id.
    pub(crate) fn server(&self, name: &str) -> Result<i64> {
        let new = NewServer { networks: vec![NETWORK], ..NewServer::new(PROJECT, name) };
        Ok(self.standin.create_server(&new).map_err(anyhow::Error::msg)?.id)
    }

    /// Acts as the kubelet of a server: registers its Node, which becomes ready.
    pub(crate) async fn join(&self, name: &str, pods: Option<&str>) -> Result<()> {
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]},
        });
        if let Some(pods) = pods {
            node["spec"]["podCIDR"] = pods.into();
            node["spec"]["podCIDRs"] = json!([pods]);
        }
        self.nodes().create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        let addresses = json!({"status": {"addresses": [{"type": "Hostname", "address": name}]}});
        self.patch_status(name, addresses).await?;
        self.set_ready(name, true).await
    }

    pub(crate) async fn set_ready(&self, name: &str, is_ready: bool) -> Result<()> {
        let status = if is_ready { "True" } else { "False" };
        let since = format!("{:.0}", jiff::Timestamp::now());
        let ready = json!({
            "type": "Ready", "status": status, "reason": "Test", "message": "set by the test",
            "lastHeartbeatTime": since, "lastTransitionTime": since,
        });
        self.patch_status(name, json!({"status": {"conditions": [ready]}})).await
    }

    async fn patch_status(&self, name: &str, status: Value) -> Result<()> {
        self.nodes().patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await?;
        Ok(())
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.user.clone())
    }

    pub(crate) fn services(&self) -> Api<Service> {
        Api::namespaced(self.user.clone(), "default")
    }

    /// The Node of this name.
    pub(crate) async fn node(&self, name: &str) -> Result<Node> {
        self.nodes().get(name).await.with_context(|| format!("Node {name}"))
    }

    /// Fails if the Node does not exist.
    pub(crate) async fn ensure_node(&self, name: &str) -> Result<()> {
        self.node(name).await.map(drop)
    }

    /// The messages of all Events with this reason.
    pub(crate) async fn events(&self, reason: &str) -> Result<Vec<String>> {
        let events: Api<Event> = Api::all(self.user.clone());
        let events = events.list(&ListParams::default().fields(&format!("reason={reason}"))).await?;
        Ok(events.items.into_iter().filter_map(|event| event.message).collect())
    }

    /// Number of requests to the cloud whose label is counted, for example `GET /servers`.
    pub(crate) fn requests(&self, is_counted: impl Fn(&str) -> bool) -> u64 {
        let counters = self.standin.counters();
        counters.iter().filter(|(label, _)| is_counted(label)).map(|(_, count)| count).sum()
    }

    /// Waits until the program has listed all servers this many times more.
    pub(crate) async fn after_lists(&mut self, times: u64) -> Result<()> {
        let lists = |label: &str| label.starts_with("GET") && label.ends_with("/servers");
        let wanted = self.requests(lists) + times;
        self.until("the program asks the cloud again", async |w| Ok(w.requests(lists) >= wanted)).await
    }

    /// Waits for a state of the cluster or the cloud.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        is_so: impl AsyncFn(&Self) -> Result<bool>,
    ) -> Result<()> {
        self.until_within(PATIENCE, what, is_so).await
    }

    /// Waits for a state that takes longer.
    pub(crate) async fn until_within(
        &mut self,
        limit: Duration,
        what: &str,
        is_so: impl AsyncFn(&Self) -> Result<bool>,
    ) -> Result<()> {
        clusters::until_within(self, limit, what, is_so, |world| world.program.process.ensure_alive()).await
    }
}

pub(crate) fn has_taint(node: &Node, key: &str) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == key)
}

/// The definitions of all contracts, as `machinist crds --kinds all` prints them.
fn crds_as_yaml() -> Result<String> {
    let definitions = [crd::all_crds(), crd::docker_crds(), crd::mailgun_crds()].concat();
    definitions
        .iter()
        .map(|definition| crd::render_yaml(definition).context("a CRD does not render"))
        .collect()
}

fn run_kubectl(kubectl: &Path, kubeconfig: &Path, root: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(kubectl)
        .current_dir(root)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(arguments)
        .output()
        .context("cannot run kubectl")?;
    let problem = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kubectl {}: {problem}", arguments.join(" "));
    Ok(String::from_utf8(output.stdout)?)
}

/// A kubeconfig with only the service account's token, as the files in its pod have it.
fn kubeconfig(cluster: &Cluster, token: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "pod",
        "clusters": [{
            "name": "cluster",
            "cluster": {"server": cluster.server, "certificate-authority": cluster.ca_file},
        }],
        "users": [{"name": SERVICE_ACCOUNT, "user": {"token": token}}],
        "contexts": [{"name": "pod", "context": {"cluster": "cluster", "user": SERVICE_ACCOUNT}}],
    })
}

fn standin() -> Result<Standin> {
    let mut settings = Settings {
        // Long enough to be seen as a state of its own.
        action: Duration::from_millis(300),
        ..Settings::instant()
    };
    settings.tokens.set(TOKEN, PROJECT, Access::ReadWrite);
    settings.tokens.set(OTHER_TOKEN, "b", Access::ReadWrite);
    let standin = Standin::in_memory(settings, Clock::wall());
    let mut state = standin.dump();
    state.networks.insert(NETWORK, network());
    standin.load(state)?;
    Ok(standin)
}

/// Serves the stand-in on a free port, and returns the URL.
async fn serve(standin: &Standin) -> Result<String> {
    let server = LoopbackServer::bind(standin.clone(), ([127, 0, 0, 1], 0).into()).await?;
    let endpoint = server.url();
    tokio::spawn(server.serve(std::future::pending()));
    Ok(endpoint)
}

fn network() -> Network {
    Network {
        id: NETWORK,
        project: PROJECT.to_owned(),
        name: "cluster".to_owned(),
        created: jiff::Timestamp::now(),
        ip_range: "10.0.0.0/8".to_owned(),
        subnets: vec![Subnet {
            kind: "cloud".to_owned(),
            ip_range: "10.0.0.0/16".to_owned(),
            network_zone: "eu-central".to_owned(),
            gateway: "10.0.0.1".to_owned(),
            vswitch_id: None,
        }],
        routes: Vec::new(),
        labels: BTreeMap::new(),
        protected: false,
        expose_routes_to_vswitch: false,
    }
}
