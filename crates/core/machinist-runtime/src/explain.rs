//! Explains the state of an object from the API servers alone, without a running controller.
//!
//! The module uses the same facts and planners as a controller. It lists each watched kind once and
//! writes nothing. Only the `/why` of a running controller also knows its calls in flight, the
//! answers of the cloud and the rejected evictions.

use std::sync::{Arc, PoisonError};

use jiff::Timestamp;
use machinist_core::Why;
use machinist_kube::ObjectKey;

use crate::contract::{Contract, Kind, Observed};
use crate::key::QueueKey;
use crate::kinds::KindId;
use crate::options::{Clients, Options};
use crate::panics;
use crate::pass::planner_failed;
use crate::runtime::Runtime;

/// The reason for the state of an object, and the planned actions.
#[derive(Debug, Clone)]
pub struct Explanation<R> {
    /// The time of the decision.
    pub at: Timestamp,
    /// The reason and the next step.
    pub why: Why<R>,
    /// The actions that a controller would perform now, rendered as text.
    pub actions: Vec<String>,
}

/// The reason why an explanation failed.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError<K: QueueKey> {
    /// The object does not exist.
    #[error("{0} not found; check the name and the namespace")]
    NotFound(K),
    /// The object does not exist. Objects of its kind have no namespace.
    #[error("{0} not found; check the name and the cluster")]
    NotFoundInCluster(K),
    /// The object exists, but its fields do not match its kind.
    #[error("cannot parse {0}: a field has the wrong type; correct the object")]
    Undecodable(K),
    /// No planner decides about objects of this kind.
    #[error("cannot explain {0}: the controller makes no decisions about this kind")]
    NotDecided(K),
    /// A list request to an API server failed.
    #[error("cannot list {kind}")]
    Unreadable {
        /// The plural name of the kind.
        kind: &'static str,
        /// The error of the client.
        #[source]
        source: Box<kube::Error>,
    },
}

/// Creates a runtime without watches and workers.
pub fn runtime_without_workers<C: Contract>(
    clients: Clients,
    options: Options,
    tools: C::Tools,
) -> Arc<Runtime<C>> {
    Arc::new(Runtime::new(clients, options, tools, None))
}

/// Lists every watched kind once, which completes the stores.
///
/// # Errors
/// If a list request fails.
pub async fn read_all<C: Contract>(runtime: &Runtime<C>) -> Result<(), ExplainError<C::Key>> {
    let reads = runtime.feeds.iter().map(|feed| async move {
        let unreadable =
            |source| ExplainError::Unreadable { kind: feed.resource(), source: Box::new(source) };
        feed.read_once(runtime).await.map_err(unreadable)
    });
    futures::future::try_join_all(reads).await?;
    *runtime.started.lock().unwrap_or_else(PoisonError::into_inner) = Some(runtime.now());
    Ok(())
}

/// Decides about one object of a kind that `why` explains without a controller.
///
/// # Errors
/// If the object does not exist or cannot be parsed, or if the kind is not explained.
pub fn explain_one<C: Contract, K: Kind<C>>(
    runtime: &Runtime<C>,
    key: &C::Key,
    id: &K::Id,
) -> Result<Explanation<C::Reason>, ExplainError<C::Key>> {
    let Some(resource) = K::EXPLAINS else { return Err(ExplainError::NotDecided(key.clone())) };
    if id.object_key().is_some_and(|id| is_unreadable(runtime, resource, &id)) {
        return Err(ExplainError::Undecodable(key.clone()));
    }
    decide::<C, K>(runtime, key, id)
}

/// Whether an object exists but cannot be parsed.
fn is_unreadable<C: Contract>(runtime: &Runtime<C>, resource: &str, key: &ObjectKey) -> bool {
    let mut feeds = runtime.feeds.iter().filter(|feed| feed.resource() == resource);
    feeds.any(|feed| feed.is_unreadable(&runtime.lock().seen, key))
}

/// Decides about one key without performing the actions.
///
/// # Errors
/// If the object does not exist.
pub fn decide<C: Contract, K: Kind<C>>(
    runtime: &Runtime<C>,
    key: &C::Key,
    id: &K::Id,
) -> Result<Explanation<C::Reason>, ExplainError<C::Key>> {
    let at = runtime.now();
    let observed = K::observe(runtime, &runtime.lock(), id);
    let snapshot = match observed {
        Observed::Ready(snapshot) => snapshot,
        Observed::NotYet | Observed::Gone => {
            return Err(if key.is_cluster_scoped() {
                ExplainError::NotFoundInCluster(key.clone())
            } else {
                ExplainError::NotFound(key.clone())
            });
        }
    };
    let decided = panics::catch(|| {
        let plan = K::plan(&runtime.tools, &snapshot);
        (plan.why, plan.actions.iter().map(ToString::to_string).collect())
    });
    let (why, actions) = decided.unwrap_or_else(|panicked| (planner_failed(panicked), Vec::new()));
    Ok(Explanation { at, why, actions })
}
