//! A simulated host: a Node whose pods are machines themselves, as in Gardener's provider `local`.
//!
//! ```text
//! watch -> decide (pure) -> bind the pod to the host
//!                        -> start: its Secret exists -> an instance of the simulated cloud -> Running
//!                        -> end: the instance loses its power -> the pod is deleted
//! ```
//!
//! A [`Fleet`](crate::Fleet) of the same simulated cloud boots the instances. The cloud only
//! executes here: the pods decide which instances exist.

mod decide;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use machinist_cloud_sim::{Cloud, LedgerCommit, LedgerEntry};
use machinist_instance::{InstanceKey, NodeName, ProviderId, UserData};
use machinist_kube::{Delta, WatchOptions, run_watch};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::backoff::Backoff;
use crate::connect::{code, describe};
use crate::pods::PodChange;
use crate::{Kubelet, MachineTiming, lease, register};
use decide::{MachinePod, Step};

/// Name of the Node.
const HOST: &str = "host";
/// The label of pods that are machines.
const IS_MACHINE: &str = "machine-provider=local";
/// The entry of the Secret that the machine reads as its user data.
const USER_DATA: &str = "userdata";
/// Wait before a step is repeated: after a failure, and while a Secret is missing.
const REPEAT_AFTER: Duration = Duration::from_secs(1);

/// A host. Dropping it stops the host; the machines of its pods run until the fleet is dropped.
#[derive(Debug)]
pub struct Host {
    task: AbortHandle,
}

impl Host {
    /// Starts a host for the pods of a namespace. The client may read and write Nodes, Leases, pods
    /// and Secrets. Must be called within a runtime.
    pub fn start(cloud: &Cloud, client: Client, namespace: &str) -> Self {
        let (cloud, namespace) = (cloud.clone(), namespace.to_owned());
        Self { task: tokio::spawn(run(cloud, client, namespace)).abort_handle() }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(cloud: Cloud, client: Client, namespace: String) {
    let name = NodeName::new(HOST).expect("not empty");
    let node = entry_of_host(&name, cloud.clock().now());
    let mut backoff = Backoff::new();
    let registered = loop {
        let kubelet = Kubelet::default();
        match register::register(client.clone(), &node, &name, &kubelet, cloud.clock().now()).await {
            Ok(registered) => break registered,
            Err(error) => tracing::warn!(error = describe(&error), "Cannot register the simulated host"),
        }
        backoff.wait().await;
    };
    let (to, changes) = mpsc::unbounded_channel();
    let pods = Api::namespaced(client.clone(), &namespace);
    let secrets = Api::namespaced(client.clone(), &namespace);
    let runner = Runner { cloud: cloud.clone(), pods, secrets };
    let every = MachineTiming::default().lease_renewal;
    tokio::join!(
        lease::renew(client.clone(), &name, &registered.uid, cloud.clock(), every),
        register::heartbeat(client.clone(), &name, cloud.clock()),
        watch(client, &namespace, to),
        runner.run(changes),
    );
}

/// The entry from which the Node of the host is made. The host is not an instance of the cloud.
fn entry_of_host(name: &NodeName, now: Timestamp) -> LedgerEntry {
    let id = ProviderId::parse(HOST).expect("not empty");
    LedgerEntry { boots_at: None, ..entry(0, id, name.clone(), now) }
}

fn entry(serial: u64, id: ProviderId, name: NodeName, now: Timestamp) -> LedgerEntry {
    LedgerEntry {
        serial,
        id,
        key: None,
        name,
        cluster: None,
        project: String::new(),
        instance_type: "local".to_owned(),
        region: "local".to_owned(),
        zone: "local".to_owned(),
        image: None,
        tags: BTreeMap::new(),
        created: now,
        visible_at: now,
        running_at: now,
        boots_at: Some(now),
        stopped: false,
        deletion: None,
        deleted: None,
        calls: BTreeMap::new(),
    }
}

async fn watch(client: Client, namespace: &str, to: mpsc::UnboundedSender<PodChange<MachinePod>>) {
    let options = WatchOptions { label_selector: Some(IS_MACHINE.to_owned()), ..WatchOptions::default() };
    let sink = move |delta: Delta<MachinePod>| {
        if let Some(change) = PodChange::of(delta) {
            // The runner ends together with the host, and so does this watch.
            let _ = to.send(change);
        }
    };
    let fatal = run_watch(Api::<Pod>::namespaced(client, namespace), options, MachinePod::read, sink).await;
    tracing::error!(error = %fatal, "The watch of the simulated host failed, so it runs no pod");
}

/// Performs the steps of the pods, one after another.
struct Runner {
    cloud: Cloud,
    pods: Api<Pod>,
    secrets: Api<Secret>,
}

impl Runner {
    async fn run(self, mut changes: mpsc::UnboundedReceiver<PodChange<MachinePod>>) {
        let mut pods: BTreeMap<String, MachinePod> = BTreeMap::new();
        let mut is_listed = false;
        loop {
            let mut is_open = false;
            if is_listed {
                self.power_off_all_but(&pods);
            }
            for (uid, pod) in &pods {
                let Some(step) = decide::next_step(pod, HOST, self.is_powered(pod)) else { continue };
                match self.perform(uid, pod, step).await {
                    Ok(is_done) => is_open |= !is_done,
                    // The pod was changed or deleted, so a change follows.
                    Err(error) if matches!(code(&error), Some(404 | 409)) => {}
                    Err(error) => {
                        is_open = true;
                        tracing::warn!(pod = pod.name, error = describe(&error), "Cannot run a pod");
                    }
                }
            }
            tokio::select! {
                change = changes.recv() => match change {
                    Some(PodChange::Seen(uid, pod)) => drop(pods.insert(uid, pod)),
                    Some(PodChange::Gone(uid)) => drop(pods.remove(&uid)),
                    Some(PodChange::All(all)) => {
                        pods = all;
                        is_listed = true;
                    }
                    None => return,
                },
                () = tokio::time::sleep(REPEAT_AFTER), if is_open => {}
            }
        }
    }

    /// The living instance of a name.
    fn instance(&self, name: &str) -> Option<LedgerEntry> {
        let entry = self.cloud.entry(&ProviderId::parse(name).ok()?)?;
        entry.deleted.is_none().then_some(entry)
    }

    fn is_powered(&self, pod: &MachinePod) -> bool {
        self.instance(&pod.name).is_some()
    }

    /// Takes the power of instances whose pods no longer exist.
    fn power_off_all_but(&self, pods: &BTreeMap<String, MachinePod>) {
        let names: BTreeSet<&str> = pods.values().map(|pod| pod.name.as_str()).collect();
        let ledger = self.cloud.ledger();
        for entry in ledger.alive().filter(|entry| !names.contains(entry.id.as_str())) {
            self.power_off(&entry.id);
        }
    }

    fn power_off(&self, id: &ProviderId) {
        let gone = LedgerCommit::Gone { id: id.clone(), at: self.cloud.clock().now() };
        if let Err(refusal) = self.cloud.commit(gone, UserData::default()) {
            tracing::warn!(message = refusal.message, "Cannot record the end of a machine");
        }
    }

    /// Performs a step. Returns whether it is done; otherwise it is repeated.
    async fn perform(&self, uid: &str, pod: &MachinePod, step: Step) -> Result<bool, kube::Error> {
        match step {
            Step::Bind => self.bind(&pod.name).await.map(|()| true),
            Step::Start => self.start(uid, pod).await,
            Step::PowerOn => self.power_on(pod).await,
            Step::End => {
                if let Some(entry) = self.instance(&pod.name) {
                    self.power_off(&entry.id);
                }
                self.end(uid, &pod.name).await.map(|()| true)
            }
        }
    }

    async fn bind(&self, name: &str) -> Result<(), kube::Error> {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": HOST},
        });
        self.pods
            .create_subresource::<Value, Value>("binding", name, &PostParams::default(), &binding)
            .await
            .map(drop)
    }

    /// Starts the machine, and reports the pod as running. A pod without its Secret waits, because
    /// its volume cannot be mounted.
    async fn start(&self, uid: &str, pod: &MachinePod) -> Result<bool, kube::Error> {
        if !self.power_on(pod).await? {
            return Ok(false);
        }
        let address = self.instance(&pod.name).and_then(|entry| entry.addresses().into_iter().next());
        let address = address.map(|address| address.address).unwrap_or_default();
        let patch = Patch::Strategic(decide::running_patch(uid, pod, &address, self.cloud.clock().now()));
        self.pods.patch_status(&pod.name, &PatchParams::default(), &patch).await.map(|_| true)
    }

    /// Gives power to the instance of a pod. Returns whether it has power.
    async fn power_on(&self, pod: &MachinePod) -> Result<bool, kube::Error> {
        if self.is_powered(pod) {
            return Ok(true);
        }
        let Some(secret) = self.secrets.get_opt(&pod.secret).await? else { return Ok(false) };
        let data = secret.data.unwrap_or_default().remove(USER_DATA).unwrap_or_default();
        let (Ok(id), Some(name)) = (ProviderId::parse(&pod.name), NodeName::new(pod.name.clone())) else {
            return Ok(false);
        };
        let serial =
            self.cloud.ledger().ever().iter().map(|entry| entry.serial).max().unwrap_or_default() + 1;
        let entry = LedgerEntry {
            key: pod.key.clone().map(InstanceKey::new),
            image: pod.image.clone(),
            ..entry(serial, id, name, self.cloud.clock().now())
        };
        let made = LedgerCommit::Made { entry: Box::new(entry) };
        match self.cloud.commit(made, UserData::new(data.0)) {
            Ok(()) => Ok(true),
            Err(refusal) => {
                tracing::warn!(message = refusal.message, pod = pod.name, "Cannot record a machine");
                Ok(false)
            }
        }
    }

    /// Deletes a pod with grace period 0, as its kubelet does at the end.
    async fn end(&self, uid: &str, name: &str) -> Result<(), kube::Error> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params =
            DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }.grace_period(0);
        self.pods.delete(name, &params).await.map(drop)
    }
}
