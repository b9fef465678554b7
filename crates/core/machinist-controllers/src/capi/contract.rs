//! A Cluster API provider as a contract of the runtime.

use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use machinist_api::capi::{Beta1, Beta2};
use machinist_driver::Check;
use machinist_kube::ObjectKey;
use machinist_plan::capi::CapiReason;
use machinist_plan::facts::{
    ClusterFacts, CoreMachineFacts, DockerClusterFacts, DockerMachineFacts, MailgunClusterFacts,
    MailgunMachineFacts,
};
use machinist_runtime::{Contract, Feed, feed, pass};
use machinist_serve::{Gauge, Metrics};

use super::core::Core;
use super::key::Key;
use super::kinds;
use super::options::{CoreApi, Serves, Tools};
use super::seen::Seen;

const WORKLOAD_CLIENTS: Gauge =
    Gauge::new("machinist_capi_workload_clients", "Clients of workload clusters.");

/// A Cluster API provider.
pub struct Capi;

/// The runtime of a process.
pub(crate) type Runtime = machinist_runtime::Runtime<Capi>;
/// Everything that a process has observed.
pub(crate) type World = machinist_runtime::World<Capi>;
/// One write of a process.
pub(crate) type Write<'a> = machinist_runtime::Write<'a, Capi>;

impl Contract for Capi {
    type Key = Key;
    type Seen = Seen;
    type Tools = Tools;
    type Reason = CapiReason;

    fn feeds(tools: &Tools) -> Vec<Box<dyn Feed<Self>>> {
        let mut feeds = match tools.options.core {
            CoreApi::Beta1 => {
                vec![feed::<Self, Core<Beta1, ClusterFacts>>(), feed::<Self, Core<Beta1, CoreMachineFacts>>()]
            }
            CoreApi::Beta2 => {
                vec![feed::<Self, Core<Beta2, ClusterFacts>>(), feed::<Self, Core<Beta2, CoreMachineFacts>>()]
            }
        };
        match tools.options.serves {
            Serves::Docker(_) => {
                feeds.push(feed::<Self, DockerClusterFacts>());
                feeds.push(feed::<Self, DockerMachineFacts>());
            }
            Serves::Mailgun(_) => {
                feeds.push(feed::<Self, MailgunClusterFacts>());
                feeds.push(feed::<Self, MailgunMachineFacts>());
            }
        }
        feeds
    }

    fn keys(seen: &Seen, _: &Tools) -> Vec<Key> {
        let mut keys: Vec<Key> = Vec::new();
        keys.extend(seen.docker_clusters.iter().map(|(key, _)| Key::DockerCluster(key.clone())));
        keys.extend(seen.docker_machines.iter().map(|(key, _)| Key::DockerMachine(key.clone())));
        keys.extend(seen.mailgun_clusters.iter().map(|(key, _)| Key::MailgunCluster(key.clone())));
        keys.extend(seen.mailgun_machines.iter().map(|(key, _)| Key::MailgunMachine(key.clone())));
        keys
    }

    fn decides_about(tools: &Tools, key: &Key) -> bool {
        match (&tools.options.serves, key) {
            (Serves::Docker(_), Key::DockerCluster(_) | Key::DockerMachine(_))
            | (Serves::Mailgun(_), Key::MailgunCluster(_) | Key::MailgunMachine(_)) => true,
            (Serves::Docker(_), Key::MailgunCluster(_) | Key::MailgunMachine(_))
            | (Serves::Mailgun(_), Key::DockerCluster(_) | Key::DockerMachine(_)) => false,
        }
    }

    fn pass<'a>(runtime: &'a Arc<Runtime>, key: &'a Key) -> BoxFuture<'a, ()> {
        match key {
            Key::DockerCluster(id) => Box::pin(pass::<Self, kinds::DockerClusters>(runtime, key, id)),
            Key::DockerMachine(id) => Box::pin(pass::<Self, kinds::DockerMachines>(runtime, key, id)),
            Key::MailgunCluster(id) => Box::pin(pass::<Self, kinds::MailgunClusters>(runtime, key, id)),
            Key::MailgunMachine(id) => Box::pin(pass::<Self, kinds::MailgunMachines>(runtime, key, id)),
        }
    }

    fn forget_moments(seen: &mut Seen, now: Timestamp) {
        seen.memory.forget_moments(now);
    }

    fn measure(seen: &Seen, _: Timestamp, metrics: &Metrics) {
        metrics.set_number(&WORKLOAD_CLIENTS, &[], seen.memory.workloads.len());
    }

    fn check_cloud(tools: &Tools, _: &Key) -> Option<Check> {
        tools.docker()?.provider.check()
    }

    fn key_named(kind: &str, namespace: &str, name: &str) -> Option<Key> {
        // A process may serve all namespaces: `NAMESPACE/NAME`.
        let (namespace, name) = name.split_once('/').unwrap_or((namespace, name));
        let id = ObjectKey::new(namespace, name);
        match kind {
            "dockercluster" => Some(Key::DockerCluster(id)),
            "dockermachine" => Some(Key::DockerMachine(id)),
            "mailguncluster" => Some(Key::MailgunCluster(id)),
            "mailgunmachine" => Some(Key::MailgunMachine(id)),
            _ => None,
        }
    }
}
