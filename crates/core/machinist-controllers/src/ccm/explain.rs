//! Explains the state of a Node or a Service from the API server alone.
//!
//! The credential of the cloud is only known to a running controller, and so are the answers of the
//! cloud; its `/why` shows them.

use machinist_core::Step;
use machinist_plan::ccm::{CcmReason, Reason, Why};
use machinist_runtime::{Clients, ContractKey as _, read_all, runtime_without_workers};

use super::backends;
use super::contract::Ccm;
use super::key::Key;
use super::options::CcmOptions;
use crate::ProcessOptions;

/// The reason for the state of a Node or a Service, with the next actions.
pub type Explanation = machinist_runtime::Explanation<CcmReason>;
/// The reason why a Node or a Service cannot be explained.
pub type ExplainError = machinist_runtime::ExplainError<Key>;

/// Explains one object. `options` choose the controllers whose kinds are read.
///
/// # Errors
/// If the object does not exist, or if facts cannot be read.
pub async fn explain(
    clients: Clients,
    process: ProcessOptions,
    options: CcmOptions,
    key: &Key,
) -> Result<Explanation, ExplainError> {
    let runtime = runtime_without_workers::<Ccm>(clients, process, options.into());
    read_all(&runtime).await?;
    backends::compute(&runtime);
    let mut explanation = key.explain(&runtime)?;
    // This process has no credential. That says nothing about the credential of a controller.
    if explanation.why.reason == Reason::Contract(CcmReason::NoAccount) {
        let next = Step::Expect("a running cloud controller manager asks the cloud");
        explanation.why = Why::new(CcmReason::CloudUnknown, next);
    }
    Ok(explanation)
}
