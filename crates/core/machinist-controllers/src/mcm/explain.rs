//! Explains the state of an object of the machine API, from the API servers alone.
//!
//! Only a running controller knows calls in flight, responses of the cloud and failed evictions;
//! its `/why` shows them. In return, this code reads more than a controller watches: whether a
//! bootstrap token was ever used.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::ListParams;
use machinist_api::OperationState;
use machinist_api::code::{Code, CodedMessage};
use machinist_core::{Reason, Step};
use machinist_instance::ErrorKind;
use machinist_kube::ObjectKey;
use machinist_plan::mcm::facts::Token;
use machinist_plan::mcm::{McmReason, TokenUse};
use machinist_runtime::{Clients, ContractKey as _, decide, read_all, runtime_without_workers};

use super::contract::{Mcm, Runtime, is_about_turns, may_await_turn};
use super::key::Key;
use super::lost_owner;
use super::machine::token as token_of;
use super::options::{MachineOptions, Options, Tools};
use super::replacement::Replacements;
use crate::ProcessOptions;

/// Explanation of the state of an object, with the next actions.
pub type Explanation = machinist_runtime::Explanation<McmReason>;
/// The reason why an object cannot be explained.
pub type ExplainError = machinist_runtime::ExplainError<Key>;

/// Explains one object.
///
/// # Errors
/// If the object does not exist, or if facts cannot be read.
pub async fn explain(
    clients: Clients,
    options: ProcessOptions,
    machine: MachineOptions,
    key: &Key,
) -> Result<Explanation, ExplainError> {
    let Options { process, safety_margins, protects_nodes, planners } = options.into();
    let tools =
        Tools { machine: Some(machine), decides_sets: true, safety_margins, protects_nodes, planners };
    let runtime = runtime_without_workers::<Mcm>(clients, process, tools);
    read_all(&runtime).await?;
    let mut explanation = key.explain(&runtime)?;
    if let Key::Machine(id) = key {
        complete(&runtime, id, &mut explanation).await;
    }
    Ok(explanation)
}

/// Adds to the explanation of a Machine what is not in its own facts.
async fn complete(runtime: &Runtime, id: &ObjectKey, explanation: &mut Explanation) {
    recall_failure(runtime, id, explanation);
    await_turn(runtime, id, explanation);
    if let Some(lost) = lost_owner::snapshot(&runtime.lock().seen, id) {
        explanation.why = machinist_plan::mcm::lost_owner::why(lost.set);
    }
    if let Reason::Contract(McmReason::Joining { token, .. }) = &mut explanation.why.reason {
        *token = token_use(runtime, id).await;
    }
}

/// Restores the last failure from the Machine's status. Responses of the cloud are only in the
/// memory of a running controller, but the status contains the last failure, too.
fn recall_failure(runtime: &Runtime, id: &ObjectKey, explanation: &mut Explanation) {
    let Reason::Calling(call) = explanation.why.reason else { return };
    let facts = runtime.lock().seen.machines.get(id).map(|machine| machine.facts.clone());
    let Some(machine) = facts else { return };
    let operation = &machine.status.operation;
    let (Some(OperationState::Failed), Some(code)) = (&operation.state, operation.code()) else { return };
    let kind = match code {
        Code::ResourceExhausted => ErrorKind::Exhausted,
        Code::InvalidArgument => ErrorKind::InvalidSpec,
        Code::PermissionDenied | Code::Unauthenticated => ErrorKind::Denied,
        Code::Unavailable => ErrorKind::Unavailable,
        Code::Unimplemented => ErrorKind::Unsupported,
        Code::Internal => ErrorKind::Bug,
        _ => ErrorKind::Ambiguous,
    };
    // The status wraps the cloud's message into code and markers; the reason renders these itself.
    let description = operation.description();
    let message =
        CodedMessage::decode(description).map_or_else(|| description.to_owned(), |coded| coded.message);
    explanation.why.reason = Reason::CallFailed { call, kind, message, failures: 0 };
    explanation.why.since = operation.last_update_time.as_ref().map(|time| time.0);
    explanation.why.next = Step::Expect("a running machine controller retries the call after a backoff");
}

/// Replaces the reason of a Machine that waits for its replacement with the reason of the decision
/// about replacements.
fn await_turn(runtime: &Runtime, id: &ObjectKey, explanation: &mut Explanation) {
    if !may_await_turn(&explanation.why, explanation.at) {
        return;
    }
    let key = {
        let seen = &runtime.lock().seen;
        seen.machines.get(id).map(|machine| seen.replacement_key(&machine.facts))
    };
    let Some(key) = key else { return };
    let Key::Replacement(owner) = &key else { return };
    if let Ok(turn) = decide::<Mcm, Replacements>(runtime, &key, owner)
        && is_about_turns(&turn.why)
    {
        explanation.why = turn.why;
    }
}

/// Checks whether a certificate was ever requested with the Machine's token.
async fn token_use(runtime: &Runtime, id: &ObjectKey) -> TokenUse {
    let token = {
        let seen = &runtime.lock().seen;
        seen.machines.get(id).map(|machine| token_of(seen, &machine.facts))
    };
    let Some(Token::Ours(token)) = token else { return TokenUse::Unasked };
    let requests: Api<CertificateSigningRequest> = Api::all(runtime.clients.target.clone());
    let user = format!("system:bootstrap:{}", token.id);
    match requests.list(&ListParams::default()).await {
        Ok(list) if list.items.iter().any(|csr| csr.spec.username.as_deref() == Some(&user)) => {
            TokenUse::Used
        }
        Ok(_) => TokenUse::NeverUsed,
        Err(error) => {
            tracing::debug!(%error, "Cannot read whether the token was used");
            TokenUse::Unasked
        }
    }
}
