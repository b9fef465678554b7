//! A Cluster API provider as a contract of the runtime.

use jiff::Timestamp;
use machinist_api::capi::{Beta1, Beta2};
use machinist_plan::capi::CapiReason;
use machinist_plan::capi::facts::{
    ClusterFacts, CoreMachineFacts, DockerClusterFacts, DockerMachineFacts, MailgunClusterFacts,
    MailgunMachineFacts,
};
use machinist_runtime::{Contract, Feed, feed};
use machinist_serve::{Gauge, Metrics};

use super::key::Key;
use super::options::{CoreApi, Serves, Tools};
use super::seen::Seen;
use super::versioned::Core;

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

    fn forget_moments(seen: &mut Seen, now: Timestamp) {
        seen.memory.forget_moments(now);
    }

    fn measure(seen: &Seen, _: Timestamp, metrics: &Metrics) {
        metrics.set_number(&WORKLOAD_CLIENTS, &[], seen.memory.workloads.len());
    }
}
