//! Why an object is where it is, from the API servers alone: the same facts and the same planners, without a controller.
//!
//! Each watched kind is read once and nothing is written. Calls in flight, answers of the cloud and refused evictions are known to
//! a running controller only; its `/why` has them.

use std::sync::{Arc, PoisonError};

use jiff::Timestamp;
use machinist_core::Why;
use machinist_kube::ObjectKey;

use crate::contract::{Contract, Kind, Observed, QueueKey};
use crate::options::{Clients, Options};
use crate::panics;
use crate::pass::planner_failed;
use crate::runtime::Runtime;

/// Why an object is where it is, and what would be done next.
#[derive(Debug, Clone)]
pub struct Explanation<R> {
    /// When the facts were read.
    pub at: Timestamp,
    /// Why.
    pub why: Why<R>,
    /// What a controller would do now, rendered.
    pub actions: Vec<String>,
}

/// Why nothing could be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError<K: QueueKey> {
    /// There is no such object.
    #[error("{0} does not exist in namespace {1}")]
    NotFound(K, String),
    /// It exists, and is not what an object of its kind looks like.
    #[error("{0} exists in namespace {1} and cannot be read: expected an object of its kind")]
    Undecodable(K, String),
    /// It is of a kind that nothing is decided about.
    #[error("nothing is decided about {0}")]
    NotDecided(K),
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

/// A runtime that watches nothing and has no workers.
pub fn runtime_without_workers<C: Contract>(
    clients: Clients,
    options: Options,
    tools: C::Tools,
) -> Arc<Runtime<C>> {
    Arc::new(Runtime::new(clients, options, tools, None))
}

/// Lists every watched kind once, so that decisions can be made.
///
/// # Errors
/// When a kind cannot be listed.
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

/// Whether an object of a kind exists in a form that cannot be read.
pub fn is_unreadable<C: Contract>(runtime: &Runtime<C>, resource: &str, key: &ObjectKey) -> bool {
    let mut feeds = runtime.feeds.iter().filter(|feed| feed.resource() == resource);
    feeds.any(|feed| feed.is_unreadable(&runtime.lock().seen, key))
}

/// Decides about one key, and does nothing.
///
/// # Errors
/// When there is no such object.
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
            return Err(ExplainError::NotFound(key.clone(), runtime.options.namespace.clone()));
        }
    };
    let decided = panics::catch(|| {
        let plan = K::plan(runtime, &snapshot);
        (plan.why, plan.actions.iter().map(ToString::to_string).collect())
    });
    let (why, actions) = decided.unwrap_or_else(|panicked| (planner_failed(panicked), Vec::new()));
    Ok(Explanation { at, why, actions })
}
