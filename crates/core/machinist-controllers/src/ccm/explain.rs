//! Explains the state of a Node or a Service from the API server alone.
//!
//! The credential of the cloud is only known to a running controller, and so are the answers of the
//! cloud; its `/why` shows them.

use machinist_plan::ccm::CcmReason;
use machinist_plan::facts::{CloudNodeFacts, ServiceFacts};
use machinist_runtime::{
    Clients, ExplainError, Explanation, Fed, decide, is_unreadable, read_all, runtime_without_workers,
};

use super::contract::Ccm;
use super::key::Key;
use super::options::CcmOptions;
use super::{backends, kinds};
use crate::ProcessOptions;

/// Explains one object.
///
/// # Errors
/// If the object does not exist, or if facts cannot be read.
pub async fn explain(
    clients: Clients,
    process: ProcessOptions,
    options: CcmOptions,
    key: &Key,
) -> Result<Explanation<CcmReason>, ExplainError<Key>> {
    let runtime = runtime_without_workers::<Ccm>(clients, process, options.into());
    read_all(&runtime).await?;
    backends::compute(&runtime);
    let undecodable = || ExplainError::Undecodable(key.clone(), runtime.options.namespace.clone());
    match key {
        Key::Node(name) => {
            let id = machinist_kube::ObjectKey::cluster_scoped(name);
            if is_unreadable(&runtime, <CloudNodeFacts as Fed<Ccm>>::RESOURCE, &id) {
                return Err(undecodable());
            }
            decide::<Ccm, kinds::Nodes>(&runtime, key, name)
        }
        Key::Service(id) => {
            if is_unreadable(&runtime, <ServiceFacts as Fed<Ccm>>::RESOURCE, id) {
                return Err(undecodable());
            }
            decide::<Ccm, kinds::Services>(&runtime, key, id)
        }
        Key::Account | Key::NodeRemoval | Key::Backends | Key::BalancerDrift | Key::Routes => {
            Err(ExplainError::NotDecided(key.clone()))
        }
    }
}
