//! The work loop of every controller: a few concurrent passes, each on a different key, in one
//! task.

use std::convert::Infallible;
use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use futures::future::select_all;
use machinist_kube::{KeyQueue, WriteOutcome};
use tokio::time::Instant;

/// Number of passes of one controller that may wait for responses at once. The writes of one pass
/// are sequential, and a slow pass must not hold up the other keys. More passes would only compete
/// with the other clients of the server.
const PASSES_AT_ONCE: usize = 4;

/// Delay after a write that was rejected because our view is old. The watch usually wakes the key
/// earlier.
const STALE_PAUSE: Duration = Duration::from_secs(1);

/// A controller with a queue of keys.
pub(crate) trait Controller: Send + Sync {
    /// Identifies the object to look at.
    type Key: Ord + Clone + Display + Send + Sync;

    /// Name of the controller in logs.
    const NAME: &'static str;

    fn queue(&self) -> &KeyQueue<Self::Key>;

    /// Reads all facts about the key, decides, and acts. Any pass may be the first one.
    fn pass(&self, key: &Self::Key) -> impl Future<Output = Next> + Send;
}

/// Delay until the next pass of a key, if no event wakes it before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Until an event wakes the key.
    Idle,
    /// After this delay.
    In(Duration),
    /// After a delay that grows with every failure.
    Failed(String),
}

impl Next {
    /// Converts the outcome of a write.
    pub(crate) fn after_write(what: &str, outcome: WriteOutcome) -> Self {
        match outcome {
            // The watch shows the written object, or its deletion.
            WriteOutcome::Done | WriteOutcome::NotFound => Self::Idle,
            WriteOutcome::Stale | WriteOutcome::AlreadyExists => Self::In(STALE_PAUSE),
            WriteOutcome::Throttled { retry_after: Some(pause) } => Self::In(pause),
            WriteOutcome::Throttled { retry_after: None } => {
                Self::Failed(format!("cannot {what}: the server accepts no requests now"))
            }
            WriteOutcome::Invalid { message, .. }
            | WriteOutcome::Denied { message }
            | WriteOutcome::Unknown { message } => Self::Failed(format!("cannot {what}: {message}")),
        }
    }

    /// Converts a failed read.
    pub(crate) fn after_failed_read(what: &str, error: &kube::Error) -> Self {
        Self::Failed(format!("cannot {what}: {error}"))
    }

    /// Returns the failure if either of the two is one, otherwise the shorter delay.
    pub(crate) fn sooner(self, other: Self) -> Self {
        match (self, other) {
            (Self::Failed(why), _) | (_, Self::Failed(why)) => Self::Failed(why),
            (Self::In(one), Self::In(two)) => Self::In(one.min(two)),
            (Self::In(after), Self::Idle) | (Self::Idle, Self::In(after)) => Self::In(after),
            (Self::Idle, Self::Idle) => Self::Idle,
        }
    }
}

/// Works through the controller's queue and never returns.
pub(crate) async fn work<C: Controller>(controller: &C) -> Infallible {
    let worker = || async {
        loop {
            work_on_next(controller).await;
        }
    };
    let workers = (0..PASSES_AT_ONCE).map(|_| Box::pin(worker()));
    let (never, _, _) = select_all(workers).await;
    never
}

async fn work_on_next<C: Controller>(controller: &C) {
    let queue = controller.queue();
    let key = queue.next().await;
    // A panic affects one key only: the key is retried after a delay, and all other work continues.
    let next = AssertUnwindSafe(controller.pass(&key)).catch_unwind().await;
    match next
        .unwrap_or_else(|_| Next::Failed("internal error (please report it): the pass panicked".to_owned()))
    {
        Next::Idle => queue.forget(&key),
        Next::In(after) => {
            queue.forget(&key);
            queue.wake_at(key.clone(), Instant::now() + after);
        }
        Next::Failed(why) => {
            let after = queue.retry(key.clone());
            tracing::warn!(controller = C::NAME, key = %key, ?after, reason = why, "A pass failed");
        }
    }
    queue.done(&key);
}
