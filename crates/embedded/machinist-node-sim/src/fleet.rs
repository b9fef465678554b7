//! [`Fleet`] runs one machine per instance that has power.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::PostParams;
use machinist_cloud_sim::{Cloud, Following, LedgerCommit, LedgerEntry};
use machinist_instance::ProviderId;
use tokio::task::AbortHandle;

use crate::backoff::Backoff;
use crate::connect::{code, describe};
use crate::machine::{Machine, Surroundings};
use crate::node::{self, Readiness};
use crate::pods::SharedFeed;
use crate::{ClientConnector, Keys, Kubelet, MachineTiming, Metadata, RandomKeys};

/// Options for the machines of a cloud.
pub struct FleetOptions {
    /// Data that the cloud gives to every machine.
    pub metadata: Metadata,
    /// Creates the machines' clients for the API server.
    pub connector: Arc<dyn ClientConnector>,
    /// Source of the machines' keys.
    pub keys: Arc<dyn Keys>,
    /// Timing of pods and Leases.
    pub machines: MachineTiming,
    /// How machines register their Nodes.
    pub join: Join,
    /// How machines watch their pods.
    pub pods: PodWatch,
}

impl FleetOptions {
    /// Options for machines that behave as real ones do.
    pub fn new(metadata: Metadata, connector: Arc<dyn ClientConnector>) -> Self {
        Self {
            metadata,
            connector,
            keys: Arc::new(RandomKeys),
            machines: MachineTiming::default(),
            join: Join::Bootstrap,
            pods: PodWatch::Own,
        }
    }
}

/// How machines join.
#[derive(Clone)]
pub enum Join {
    /// With the bootstrap token of the user data, a certificate per machine, and a Lease.
    Bootstrap,
    /// For benchmarks of controllers only: one POST of a Node that is ready from the start, with
    /// this client and its credential. The machine ignores the token and has no Lease, no heartbeat
    /// and no pods.
    Thin(kube::Client),
}

/// How machines watch their pods.
#[derive(Clone)]
pub enum PodWatch {
    /// Each machine has its own watch, as kubelets do.
    Own,
    /// One shared watch for all machines, with a client that may read all pods: for simulations
    /// with thousands of machines.
    Shared(kube::Client),
}

/// The machines of one cloud. Dropping the fleet powers all of them off. A new fleet for the same
/// cloud powers them on again, each with the files on its disk.
#[derive(Debug)]
pub struct Fleet {
    task: AbortHandle,
}

impl Fleet {
    /// Starts a machine for every instance that has power, now and later. Must be called within a
    /// runtime.
    pub fn start(cloud: &Cloud, options: FleetOptions) -> Self {
        let pods = match options.pods {
            PodWatch::Own => None,
            PodWatch::Shared(client) => Some(SharedFeed::start(client)),
        };
        let surroundings = Arc::new(Surroundings {
            cloud: cloud.clone(),
            metadata: options.metadata,
            connector: options.connector,
            keys: options.keys,
            options: options.machines,
            pods,
        });
        let machines = Machines { surroundings, join: options.join, up: BTreeMap::new() };
        let following = cloud.follow();
        Self { task: tokio::spawn(machines.follow(following)).abort_handle() }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Machines {
    surroundings: Arc<Surroundings>,
    join: Join,
    up: BTreeMap<ProviderId, Power>,
}

/// A machine's task. Dropping it powers the machine off.
struct Power(AbortHandle);

impl Drop for Power {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Machines {
    async fn follow(mut self, following: Following) {
        let Following { entries, mut commits } = following;
        for entry in entries {
            self.power_on(entry);
        }
        while let Some(commit) = commits.recv().await {
            match &*commit {
                LedgerCommit::Made { entry } => self.power_on((**entry).clone()),
                LedgerCommit::Started { id, .. } => {
                    if let Some(entry) = self.surroundings.cloud.entry(id) {
                        self.power_on(entry);
                    }
                }
                LedgerCommit::Stopped { id, .. }
                | LedgerCommit::DeletionBegun { id, .. }
                | LedgerCommit::Gone { id, .. } => {
                    self.up.remove(id);
                }
                LedgerCommit::Adopted { .. } | LedgerCommit::Rekeyed { .. } => {}
            }
        }
    }

    fn power_on(&mut self, entry: LedgerEntry) {
        let Some(boots_at) = entry.boots() else { return };
        let (id, surroundings, join) = (entry.id.clone(), self.surroundings.clone(), self.join.clone());
        let life = async move {
            surroundings.cloud.clock().sleep_until(boots_at).await;
            match join {
                Join::Bootstrap => Machine::new(surroundings, entry).live().await,
                Join::Thin(client) => join_thinly(&surroundings.cloud, client, &entry).await,
            }
        };
        self.up.insert(id, Power(tokio::spawn(life).abort_handle()));
    }
}

async fn join_thinly(cloud: &Cloud, client: kube::Client, entry: &LedgerEntry) {
    let api: Api<Node> = Api::all(client);
    let (mut backoff, kubelet) = (Backoff::new(), Kubelet::default());
    loop {
        let node = node::registration(entry, &entry.name, &kubelet, cloud.clock().now(), Readiness::Ready);
        match api.create(&PostParams::default(), &node).await {
            Ok(_) => return,
            Err(error) if code(&error) == Some(409) => return,
            Err(error) => cloud.print(&entry.id, format!("cannot register: {}", describe(&error))),
        }
        backoff.wait().await;
    }
}
