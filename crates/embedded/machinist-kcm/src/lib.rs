//! The built-in controllers of kube-controller-manager that a fleet of machines needs and an API
//! server lacks. They are ordinary clients of the embedded server or of a real kube-apiserver.
//!
//! ```text
//! watches --> views (facts of each kind, shared) --> queues of keys --> passes: observe, decide (pure), write (guarded)
//! ```
//!
//! | module | purpose |
//! |---|---|
//! | `garbage_collector` | deletes objects without owners, in the background or the foreground, or orphans them |
//! | `disruption` | maintains the status of PodDisruptionBudgets |
//! | `certificates` | approves and signs certificate requests of kubelets, deletes old requests |
//! | `node_lifecycle` | sets conditions and taints of silent Nodes, and evicts their Pods |
//! | `lost_pods` | deletes Pods bound to a Node that does not exist |
//! | `bootstrap_tokens` | deletes expired bootstrap tokens |
//! | `namespaces` | empties and finalizes namespaces that are being deleted |
//! | `volume_protection` | releases claims that no Pod uses, and volumes that are not bound |
//! | `provisions` | gives each namespace its default ServiceAccount and the server's CA |
//!
//! Deliberately absent: the aggregation of ClusterRoles, workload kinds, and leader election. Two
//! processes may run these controllers at the same time, since every write names the state that it
//! was decided on.

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
pub use config::{GcResource, KcmConfig};

/// Runs all controllers until the future is dropped or aborted. No task outlives it.
///
/// # Errors
/// If a watch can never succeed. The controllers are useless without it, so the process should end.
pub async fn run(client: Client, config: KcmConfig) -> Result<Infallible, WatchFatal> {
    Err(wiring::Controllers::new(&client, config).run(&client).await)
}
