//! Why an object is where it is, from the API servers alone: the same facts and the same planners, without a controller.
//!
//! Everything is read once and nothing is written. What only a running controller knows (calls in flight, answers of the cloud,
//! refused evictions) is not here; ask its `/why` for that. On the other hand this reads more than a controller
//! watches: whether a bootstrap token was ever used.

use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::ListParams;
use machinist_api::OperationState;
use machinist_api::code::{Code, CodedMessage};
use machinist_instance::ErrorKind;
use machinist_kube::{Delta, KeyQueue, ObjectKey, Recorder, list_once};
use machinist_plan::facts::{
    AttachmentFacts, BudgetFacts, ClassFacts, MachineDeploymentFacts, MachineFacts, MachineSetFacts,
    NodeFacts, PodFacts, TOKEN_NAMESPACE, TOKEN_TYPE, Token,
};
use machinist_plan::{Reason, Step, TokenUse, Why};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::act::{Accounts, Ends};
use crate::clock_steps::ClockSteps;
use crate::feed::{Fed, take_in};
use crate::mcm::{self, kinds};
use crate::panics;
use crate::reconcile::{Kind, Observed, Shared, planner_failed};
use crate::world::{SecretEntry, SharedWorld, TokenEntry};
use crate::{Clients, Key, MachineOptions, Options};

/// Why an object is where it is, and what would be done next.
#[derive(Debug, Clone)]
pub struct Explanation {
    /// When the facts were read.
    pub at: Timestamp,
    /// Why.
    pub why: Why,
    /// What a controller would do now, rendered.
    pub actions: Vec<String>,
}

/// Why nothing could be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// There is no such object.
    #[error("{0} does not exist in namespace {1}")]
    NotFound(Key, String),
    /// It exists, and is not what an object of its kind looks like.
    #[error("{0} exists in namespace {1} and cannot be read: expected an object of the machine API")]
    Undecodable(Key, String),
    /// It is of a kind that nothing is decided about.
    #[error("nothing is decided about {0}: expected a machine, machineset or machinedeployment")]
    NotDecided(Key),
    /// An API server did not answer.
    #[error("cannot list {kind}")]
    Unreadable {
        /// What was to be listed.
        kind: &'static str,
        /// What the client says.
        #[source]
        source: Box<kube::Error>,
    },
}

/// Explains one object.
///
/// # Errors
/// When it does not exist, or when facts cannot be read.
pub async fn explain(
    clients: Clients,
    options: Options,
    machine: MachineOptions,
    key: &Key,
) -> Result<Explanation, ExplainError> {
    let shared = shared(clients, options, machine);
    let namespace = shared.options.namespace.clone();
    read_all(&shared, &namespace).await?;
    *shared.started.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(shared.now());
    if is_unreadable(&shared, key) {
        return Err(ExplainError::Undecodable(key.clone(), namespace));
    }
    match key {
        Key::Machine(id) => {
            let mut explanation = decide::<kinds::Machines>(&shared, key, id)?;
            recall_failure(&shared, id, &mut explanation);
            await_turn(&shared, id, &mut explanation);
            if let Reason::Joining { token, .. } = &mut explanation.why.reason {
                *token = token_use(&shared, id).await;
            }
            Ok(explanation)
        }
        Key::Set(id) => decide::<kinds::Sets>(&shared, key, id),
        Key::Deployment(id) => decide::<kinds::Deployments>(&shared, key, id),
        Key::Class(_) | Key::Secret(_) | Key::Replacement(_) => Err(ExplainError::NotDecided(key.clone())),
    }
}

fn is_unreadable(shared: &Shared, key: &Key) -> bool {
    let world = shared.world.lock();
    match key {
        Key::Machine(id) => world.machines.is_unreadable(id),
        Key::Set(id) => world.sets.is_unreadable(id),
        Key::Deployment(id) => world.deployments.is_unreadable(id),
        Key::Class(_) | Key::Secret(_) | Key::Replacement(_) => false,
    }
}

fn decide<K: Kind>(shared: &Arc<Shared>, key: &Key, id: &K::Id) -> Result<Explanation, ExplainError> {
    let observed = K::observe(shared, &shared.world.lock(), id);
    let Observed::Ready(snapshot, _) = observed else {
        return Err(ExplainError::NotFound(key.clone(), shared.options.namespace.clone()));
    };
    panics::note_places();
    let decided = panics::catch(|| {
        let plan = K::plan(shared, &snapshot);
        let actions = plan.actions.iter().map(ToString::to_string).collect();
        (plan.why, actions)
    });
    let (why, actions) = decided.unwrap_or_else(|panicked| (planner_failed(panicked), Vec::new()));
    Ok(Explanation { at: shared.now(), why, actions })
}

fn shared(clients: Clients, options: Options, machine: MachineOptions) -> Arc<Shared> {
    Arc::new(Shared {
        world: SharedWorld::new(),
        queue: KeyQueue::new(mcm::min_interval, options.seed),
        machine: Some(machine),
        control: clients.control,
        target: clients.target,
        recorder: Recorder::new(options.component, options.instance.clone(), options.clock.clone()),
        accounts: Accounts::default(),
        call_ends: Ends::default(),
        leadership: None,
        tasks: Mutex::new(JoinSet::new()),
        is_synced: |_| true,
        started: Mutex::default(),
        clock_steps: ClockSteps::default(),
        decided: Notify::default(),
        options,
    })
}

async fn read_all(shared: &Arc<Shared>, namespace: &str) -> Result<(), ExplainError> {
    let any = ListParams::default();
    let tokens = ListParams::default().fields(&format!("type={TOKEN_TYPE}"));
    let (control, target) = (&shared.control, &shared.target);
    tokio::try_join!(
        read::<MachineFacts>(shared, Api::namespaced(control.clone(), namespace), &any),
        read::<MachineSetFacts>(shared, Api::namespaced(control.clone(), namespace), &any),
        read::<MachineDeploymentFacts>(shared, Api::namespaced(control.clone(), namespace), &any),
        read::<ClassFacts>(shared, Api::namespaced(control.clone(), namespace), &any),
        read::<SecretEntry>(shared, Api::namespaced(control.clone(), namespace), &any),
        read::<TokenEntry>(shared, Api::namespaced(target.clone(), TOKEN_NAMESPACE), &tokens),
        read::<NodeFacts>(shared, Api::all(target.clone()), &any),
        read::<PodFacts>(shared, Api::all(target.clone()), &any),
        read::<BudgetFacts>(shared, Api::all(target.clone()), &any),
        read::<AttachmentFacts>(shared, Api::all(target.clone()), &any),
    )?;
    Ok(())
}

async fn read<F: Fed>(shared: &Shared, api: Api<F::Object>, params: &ListParams) -> Result<(), ExplainError> {
    let unreadable = |source| ExplainError::Unreadable { kind: F::RESOURCE, source: Box::new(source) };
    // Item by item: what cannot be read must not hide the rest.
    let relist = list_once(api, params, |object: F::Object| F::parse(&object)).await.map_err(unreadable)?;
    take_in::<F>(shared, Delta::Relist(relist));
    Ok(())
}

/// Answers of the cloud are a running controller's memory; the last failure is in the Machine's status too, so that it can be told
/// without one.
fn recall_failure(shared: &Shared, id: &ObjectKey, explanation: &mut Explanation) {
    let Reason::Calling(call) = explanation.why.reason else { return };
    let world = shared.world.lock();
    let Some(machine) = world.machines.get(id) else { return };
    let operation = &machine.facts.status.operation;
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
    // The status wraps what the cloud said into code and markers, which the reason tells in its own words.
    let description = operation.description();
    let message = CodedMessage::decode(description).map_or_else(|| description.to_owned(), |it| it.message);
    explanation.why.reason = Reason::CallFailed { call, kind, message, failures: 0 };
    explanation.why.since = operation.last_update_time.as_ref().map(|time| time.0);
    explanation.why.next = Step::Expect("the controller repeats the call; its /why says when");
}

/// What a Machine waits for that waits for its turn: what the decision about all Machines of its deployment waits for.
fn await_turn(shared: &Arc<Shared>, id: &ObjectKey, explanation: &mut Explanation) {
    if !may_await_turn(&explanation.why, explanation.at) {
        return;
    }
    let key = {
        let world = shared.world.lock();
        world.machines.get(id).map(|machine| world.replacement_key(&machine.facts))
    };
    let Some(key) = key else { return };
    let Key::Replacement(owner) = &key else { return };
    if let Ok(turn) = decide::<kinds::Replacements>(shared, &key, owner)
        && is_about_turns(&turn.why)
    {
        explanation.why = turn.why;
    }
}

/// Whether a Machine may be waiting for its turn: one that is unhealthy for too long is given up by another decision, about all
/// Machines of its deployment.
pub(crate) fn may_await_turn(machine: &Why, now: Timestamp) -> bool {
    let is_overdue = machine.deadline.as_ref().is_some_and(|deadline| deadline.at <= now);
    matches!(machine.reason, Reason::Unhealthy { .. }) && is_overdue
}

/// Whether that other decision gives up nobody for now.
pub(crate) fn is_about_turns(replacement: &Why) -> bool {
    matches!(
        replacement.reason,
        Reason::ReplacementLimit { .. }
            | Reason::ReplacementGap { .. }
            | Reason::OwnerUnknown { .. }
            | Reason::ClockSkew { .. }
    )
}

/// Whether somebody ever asked for a certificate with the Machine's token.
async fn token_use(shared: &Shared, id: &ObjectKey) -> TokenUse {
    let token = {
        let world = shared.world.lock();
        world.machines.get(id).map(|machine| mcm::token_of(&world, &machine.facts))
    };
    let Some(Token::Ours(token)) = token else { return TokenUse::Unasked };
    let requests: Api<CertificateSigningRequest> = Api::all(shared.target.clone());
    let user = format!("system:bootstrap:{}", token.id);
    match requests.list(&ListParams::default()).await {
        Ok(list) if list.items.iter().any(|csr| csr.spec.username.as_deref() == Some(&user)) => {
            TokenUse::Used
        }
        Ok(_) => TokenUse::NeverUsed,
        Err(error) => {
            tracing::debug!(%error, "Cannot see whether the token was used");
            TokenUse::Unasked
        }
    }
}
