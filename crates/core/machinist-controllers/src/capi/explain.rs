//! Explains the state of an object of a provider from the API server alone.
//!
//! The answers of the engine and of the mail service are only known to a running controller; its
//! `/why` shows them.

use machinist_plan::capi::CapiReason;
use machinist_plan::facts::{
    DockerClusterFacts, DockerMachineFacts, MailgunClusterFacts, MailgunMachineFacts,
};
use machinist_runtime::{Clients, Fed, decide, is_unreadable, read_all, runtime_without_workers};

use super::contract::Capi;
use super::key::Key;
use super::kinds;
use super::options::CapiOptions;
use crate::ProcessOptions;

/// The reason for the state of an object, with the next actions.
pub type Explanation = machinist_runtime::Explanation<CapiReason>;
/// The reason why an object cannot be explained.
pub type ExplainError = machinist_runtime::ExplainError<Key>;

/// Explains one object. `options` choose the provider whose kinds are read.
///
/// # Errors
/// If the object does not exist, or if facts cannot be read.
pub async fn explain(
    clients: Clients,
    process: ProcessOptions,
    options: CapiOptions,
    key: &Key,
) -> Result<Explanation, ExplainError> {
    let runtime = runtime_without_workers::<Capi>(clients, process, options.into());
    read_all(&runtime).await?;
    let resource = match key {
        Key::DockerCluster(_) => <DockerClusterFacts as Fed<Capi>>::RESOURCE,
        Key::DockerMachine(_) => <DockerMachineFacts as Fed<Capi>>::RESOURCE,
        Key::MailgunCluster(_) => <MailgunClusterFacts as Fed<Capi>>::RESOURCE,
        Key::MailgunMachine(_) => <MailgunMachineFacts as Fed<Capi>>::RESOURCE,
    };
    if is_unreadable(&runtime, resource, key.id()) {
        return Err(ExplainError::Undecodable(key.clone()));
    }
    match key {
        Key::DockerCluster(id) => decide::<Capi, kinds::DockerClusters>(&runtime, key, id),
        Key::DockerMachine(id) => decide::<Capi, kinds::DockerMachines>(&runtime, key, id),
        Key::MailgunCluster(id) => decide::<Capi, kinds::MailgunClusters>(&runtime, key, id),
        Key::MailgunMachine(id) => decide::<Capi, kinds::MailgunMachines>(&runtime, key, id),
    }
}
