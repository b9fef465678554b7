//! The fence of a call: whether a call that has begun may still change the cloud.
//!
//! A call may consist of several requests, and a process may be paused between two of them, for
//! any length of time. When the process continues, another process may lead. The driver knows
//! neither the Lease nor the time limit of the call, so its caller sets a fence around the call.

use std::fmt;
use std::sync::Arc;

use machinist_instance::{Error, ErrorKind};

tokio::task_local! {
    static FENCE: Fence;
}

/// Checks whether a call that has begun may still change the cloud.
///
/// ```
/// use machinist_driver::{Fence, may_change};
/// use machinist_instance::ErrorKind;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let ended = Fence::new(|| Err("the lease has ended"));
/// let error = ended.around(async { may_change() }).await.expect_err("too late");
/// assert_eq!(error.kind, ErrorKind::Unavailable);
///
/// // A call without a fence may always change the cloud.
/// assert_eq!(may_change(), Ok(()));
/// # }
/// ```
#[derive(Clone)]
pub struct Fence(Arc<dyn Fn() -> Result<(), &'static str> + Send + Sync>);

impl Fence {
    /// Creates a fence. The function returns the reason if the call may no longer change anything.
    pub fn new(may_change: impl Fn() -> Result<(), &'static str> + Send + Sync + 'static) -> Self {
        Self(Arc::new(may_change))
    }

    /// Carries out a call behind this fence. The fence covers the task of the call, and not the
    /// tasks that the call spawns.
    pub async fn around<F: Future>(self, call: F) -> F::Output {
        FENCE.scope(self, call).await
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fence").finish_non_exhaustive()
    }
}

/// Checks whether the present call may still change the cloud. A driver whose calls consist of
/// several requests asks this directly before it sends each request that changes something.
///
/// # Errors
/// `Unavailable` if the driver must not send the request.
pub fn may_change() -> Result<(), Error> {
    let refused = FENCE.try_with(|fence| (fence.0)().err()).ok().flatten();
    refused.map_or(Ok(()), |why| Err(Error::new(ErrorKind::Unavailable, format!("not sent: {why}"))))
}
