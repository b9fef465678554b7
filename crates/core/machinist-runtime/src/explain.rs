//! Explains the state of an object from the API servers alone, without a running controller.
//!
//! The module uses the same facts and planners as a controller. It lists each watched kind once and
//! writes nothing. Only the `/why` of a running controller also knows its calls in flight, the
//! answers of the cloud and the rejected evictions.

use std::sync::{Arc, PoisonError};

use machinist_kube::ObjectKey;

use crate::contract::{Contract, Kind, Observed};
use crate::explanation::{ExplainError, Explanation};
use crate::key::QueueKey as _;
use crate::kinds::KindId;
use crate::options::{Clients, Options};
use crate::panics;
use crate::pass::planner_failed;
use crate::runtime::Runtime;

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
