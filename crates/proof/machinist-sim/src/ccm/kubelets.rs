//! Kubelets that run on servers of the stand-in, and the controller that notices their silence.
//!
//! A kubelet registers its Node once, with the taint of uninitialised Nodes, the host name as the
//! only address, and no provider id. It registers again only after a restart. If another machine
//! has registered a Node of that name, the kubelet waits until that Node is deleted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use machinist_standin_hcloud::{ServerStatus, Standin};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::invariants::UNINITIALIZED;
use crate::actor::Side;
use crate::lab::Lab;
use crate::sight::NODES;

/// Interval in which kubelets look at their machines.
const TICK: Duration = Duration::from_secs(1);
/// A Node whose kubelet is silent for this time is not ready.
const SILENT_FOR: Duration = Duration::from_secs(40);
/// Time from the start of a server to the registration of its Node.
const BOOT: Duration = Duration::from_secs(3);

/// All kubelets.
#[derive(Clone)]
pub struct Kubelets {
    lab: Arc<Lab>,
    client: kube::Client,
    standin: Standin,
    all: Arc<Mutex<BTreeMap<i64, Kubelet>>>,
    /// Whether each new server has a kubelet.
    is_everywhere: Arc<AtomicBool>,
}

/// One kubelet.
#[derive(Debug, Clone)]
struct Kubelet {
    /// Name of the Node: the host name, which does not follow the name of the server.
    name: String,
    boots_at: Instant,
    last_alive: Instant,
    has_registered: bool,
    is_stopped: bool,
}

/// A Node that exists.
struct Registered {
    /// The UUID of the machine that registered it.
    machine: String,
    is_ready: bool,
}

impl Kubelets {
    /// Creates a cluster without kubelets.
    pub fn new(lab: Arc<Lab>, client: kube::Client, standin: Standin) -> Self {
        Self { lab, client, standin, all: Arc::default(), is_everywhere: Arc::default() }
    }

    /// Installs a kubelet on a server. `name` is the host name.
    pub fn install(&self, server: i64, name: &str) {
        let now = Instant::now();
        let kubelet = Kubelet {
            name: name.to_owned(),
            boots_at: now + BOOT,
            last_alive: now,
            has_registered: false,
            is_stopped: false,
        };
        self.lock().insert(server, kubelet);
    }

    /// Installs a kubelet on each server from now on, with the name of the server.
    pub fn install_everywhere(&self) {
        self.is_everywhere.store(true, Ordering::SeqCst);
    }

    /// Stops or continues the kubelet of a server, while the server runs.
    pub fn set_stopped(&self, server: i64, is_stopped: bool) {
        if let Some(kubelet) = self.lock().get_mut(&server) {
            kubelet.is_stopped = is_stopped;
        }
    }

    /// Restarts all kubelets, which register their Nodes again if they are missing.
    pub fn restart(&self) {
        self.lock().values_mut().for_each(|kubelet| kubelet.has_registered = false);
    }

    /// Runs forever.
    pub async fn run(self) {
        loop {
            tokio::time::sleep(TICK).await;
            if self.is_everywhere.load(Ordering::SeqCst) {
                self.install_missing();
            }
            let kubelets = self.lock().clone();
            for (server, kubelet) in kubelets {
                // A refused request is repeated with the next tick.
                if let Err(error) = self.tick(server, kubelet).await {
                    self.lab
                        .history
                        .note(format!("a request of the kubelet of server {server} failed: {error}"));
                }
            }
        }
    }

    fn install_missing(&self) {
        for server in self.standin.servers_ever().iter().filter(|server| server.is_alive()) {
            if !self.lock().contains_key(&server.id) {
                self.install(server.id, &server.name);
            }
        }
    }

    async fn tick(&self, id: i64, kubelet: Kubelet) -> Result<(), kube::Error> {
        let now = Instant::now();
        let status = self.standin.server(id).filter(|server| server.is_alive()).map(|server| server.status);
        let runs = status == Some(ServerStatus::Running) && !kubelet.is_stopped && kubelet.boots_at <= now;
        let found = self.node(&kubelet.name);
        let uid = format!("hcloud://{id}");
        let is_own = found.as_ref().is_some_and(|node| node.machine == uid);
        if !runs {
            let is_ready = found.as_ref().is_some_and(|node| node.is_ready);
            if is_own && is_ready && kubelet.last_alive + SILENT_FOR <= now {
                self.set_ready(&kubelet.name, "Unknown", &[]).await?;
            }
            return Ok(());
        }
        if let Some(kubelet) = self.lock().get_mut(&id) {
            kubelet.last_alive = now;
        }
        match found {
            None if !kubelet.has_registered => self.register(id, &kubelet.name, &uid).await,
            Some(node) if is_own && !node.is_ready => self.set_ready(&kubelet.name, "True", &[]).await,
            None | Some(_) => Ok(()),
        }
    }

    async fn register(&self, id: i64, name: &str, uid: &str) -> Result<(), kube::Error> {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]},
            "status": {"nodeInfo": node_info(uid)},
        });
        let Ok(node) = serde_json::from_value::<Node>(node) else { return Ok(()) };
        self.nodes().create(&PostParams::default(), &node).await?;
        if let Some(kubelet) = self.lock().get_mut(&id) {
            kubelet.has_registered = true;
        }
        let host = json!({"addresses": [{"type": "Hostname", "address": name}], "nodeInfo": node_info(uid)});
        self.set_ready(name, "True", &[host]).await
    }

    async fn set_ready(&self, name: &str, status: &str, more: &[Value]) -> Result<(), kube::Error> {
        let since = format!("{:.0}", self.lab.clock.time());
        let ready = json!({"type": "Ready", "status": status, "lastTransitionTime": since});
        let mut patch = json!({"status": {"conditions": [ready]}});
        for fields in more.iter().filter_map(Value::as_object) {
            for (field, value) in fields {
                patch["status"][field] = value.clone();
            }
        }
        self.nodes().patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await?;
        Ok(())
    }

    /// The Node of that name, as the history shows it: there, each version is parsed once.
    fn node(&self, name: &str) -> Option<Registered> {
        let history = &self.lab.history;
        history.catch_up();
        history.look(|state| {
            let node = state.track(Side::Target, NODES, name)?.now()?;
            let machine = node.text("/status/nodeInfo/systemUUID").to_owned();
            Some(Registered { machine, is_ready: node.condition("Ready") == "True" })
        })
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i64, Kubelet>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The system information of a Node. The machine of the Node is known by its UUID.
fn node_info(uid: &str) -> Value {
    json!({
        "systemUUID": uid, "machineID": uid, "bootID": uid, "kernelVersion": "6", "osImage": "sim",
        "containerRuntimeVersion": "none://0", "kubeletVersion": "v1.33.0", "kubeProxyVersion": "",
        "operatingSystem": "linux", "architecture": "amd64",
    })
}
