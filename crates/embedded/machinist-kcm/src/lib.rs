//! The built-in controllers that kube-controller-manager runs and an API server lacks, as far as a fleet of machines needs
//! them: ordinary clients, beside the embedded server or beside a real kube-apiserver.
//!
//! ```text
//! watches --> views (facts of each kind, shared) --> queues of keys --> passes: observe, decide (pure), write (guarded)
//! ```
//!
//! | module | does |
//! |---|---|
//! | `garbage_collector` | deletes what has lost its owners, in the background or the foreground, or orphans it |
//! | `disruption` | keeps the status of PodDisruptionBudgets |
//! | `certificates` | approves and signs what kubelets ask for, deletes old requests |
//! | `node_lifecycle` | conditions, taints and Pods of Nodes that have fallen silent |
//! | `lost_pods` | deletes Pods whose Node does not exist |
//! | `bootstrap_tokens` | deletes bootstrap tokens at their expiration |
//! | `namespaces` | empties namespaces that are going, and lets them go |
//! | `volume_protection` | lets go of claims that no Pod uses, and of volumes that are not bound |
//! | `provisions` | gives each namespace its default ServiceAccount and the server's CA |
//!
//! Deliberately absent: the aggregation of ClusterRoles, workload kinds, and leader election: nothing here breaks when two processes do it, since
//! every write names what it was decided on.

mod config;

mod bootstrap_tokens;
mod certificates;
mod disruption;
mod garbage_collector;
mod lost_pods;
mod namespaces;
mod node_lifecycle;
mod provisions;
mod volume_protection;

mod facts;
mod kinds;
mod view;
mod wiring;
mod work;

use std::convert::Infallible;

use kube::Client;
use machinist_kube::WatchFatal;

pub use certificates::signing::{CaError, CaPair};
pub use config::{Config, GcResource};

/// Runs all controllers until it is dropped or aborted; nothing of it outlives that.
///
/// # Errors
/// When a watch can never succeed. The controllers are useless without it, so the process should end.
pub async fn run(client: Client, config: Config) -> Result<Infallible, WatchFatal> {
    Err(wiring::Controllers::new(&client, config).run(&client).await)
}
