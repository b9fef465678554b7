//! Explains the state of an object of a provider from the API server alone.
//!
//! The answers of the engine and of the mail service are only known to a running controller; its
//! `/why` shows them.

use machinist_plan::capi::CapiReason;
use machinist_runtime::{Clients, ContractKey as _, read_all, runtime_without_workers};

use super::contract::Capi;
use super::key::Key;
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
    key.explain(&runtime)
}
