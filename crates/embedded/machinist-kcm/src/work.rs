//! How every controller works through its queue: a few passes at once, each on a key of its own, all within one task.

use std::convert::Infallible;
use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use futures::future::select_all;
use machinist_kube::{KeyQueue, WriteOutcome};
use tokio::time::Instant;

/// How many passes of one controller may wait for an answer at once: the writes of one pass come one after the other, and
/// a slow one must not hold up the other keys. More would only compete with the other clients of the server.
const PASSES_AT_ONCE: usize = 4;

/// When to look again after a refusal that says our view is old. The watch is expected to wake the key before that.
const STALE_PAUSE: Duration = Duration::from_secs(1);

/// One controller.
pub(crate) trait Controller: Send + Sync {
    /// Names what to look at.
    type Key: Ord + Clone + Display + Send + Sync;

    /// The controller's name in logs.
    const NAME: &'static str;

    /// What is to be looked at.
    fn queue(&self) -> &KeyQueue<Self::Key>;

    /// Looks at everything that concerns the key, decides, and acts. Any pass may be the first one.
    fn pass(&self, key: &Self::Key) -> impl Future<Output = Next> + Send;
}

/// When to look at a key again, if nothing wakes it before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// When something changes.
    Idle,
    /// After this long.
    In(Duration),
    /// After a delay that grows with every failure.
    Failed(String),
}

impl Next {
    /// After a write with this outcome.
    pub(crate) fn after_write(what: &str, outcome: WriteOutcome) -> Self {
        match outcome {
            // The watch shows what was written, or that the object is gone.
            WriteOutcome::Done | WriteOutcome::NotFound => Self::Idle,
            WriteOutcome::Stale | WriteOutcome::AlreadyExists => Self::In(STALE_PAUSE),
            WriteOutcome::Throttled { retry_after: Some(pause) } => Self::In(pause),
            WriteOutcome::Throttled { retry_after: None } => {
                Self::Failed(format!("{what}: the server takes no requests now"))
            }
            WriteOutcome::Invalid { message, .. }
            | WriteOutcome::Denied { message }
            | WriteOutcome::Unknown { message } => Self::Failed(format!("{what}: {message}")),
        }
    }

    /// After a read that failed.
    pub(crate) fn after_failed_read(what: &str, error: &kube::Error) -> Self {
        Self::Failed(format!("{what}: {error}"))
    }

    /// The sooner of two: a failure first, then the shorter wait.
    pub(crate) fn sooner(self, other: Self) -> Self {
        match (self, other) {
            (Self::Failed(why), _) | (_, Self::Failed(why)) => Self::Failed(why),
            (Self::In(one), Self::In(two)) => Self::In(one.min(two)),
            (Self::In(after), Self::Idle) | (Self::Idle, Self::In(after)) => Self::In(after),
            (Self::Idle, Self::Idle) => Self::Idle,
        }
    }
}

/// Works through the controller's queue for ever.
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
    // A panic is one key's trouble; it is looked at again after a while, and everything else goes on.
    let next = AssertUnwindSafe(controller.pass(&key)).catch_unwind().await;
    match next.unwrap_or_else(|_| Next::Failed("the pass panicked, which is a bug".to_owned())) {
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
