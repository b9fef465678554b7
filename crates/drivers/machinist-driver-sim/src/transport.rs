//! [`Transport`]: sends requests to the cloud.

use async_trait::async_trait;
use jiff::SignedDuration;
use machinist_cloud_sim::{Caller, Cloud, CloudRefusal, NoAnswer, Reply, Request};

/// Sends a request to the cloud and returns its answer.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Address of the cloud, which is part of its account ids.
    fn endpoint(&self) -> &str;

    /// Makes one attempt to call the cloud.
    ///
    /// # Errors
    /// [`NoAnswer::NotSent`] only when the request cannot have reached the cloud.
    async fn call(
        &self,
        caller: Caller<'_>,
        request: Request,
    ) -> Result<Result<Reply, CloudRefusal>, NoAnswer>;

    /// The cloud's time minus the local time; `None` if it is not measured.
    fn clock_skew(&self) -> Option<SignedDuration> {
        None
    }
}

/// Direct calls to a cloud in this process.
#[async_trait]
impl Transport for Cloud {
    fn endpoint(&self) -> &str {
        "in process"
    }

    async fn call(
        &self,
        caller: Caller<'_>,
        request: Request,
    ) -> Result<Result<Reply, CloudRefusal>, NoAnswer> {
        Self::call(self, caller, request).await
    }
}
