//! How a request reaches the cloud.

use async_trait::async_trait;
use jiff::SignedDuration;
use machinist_cloud_sim::{Cloud, NoAnswer, Refusal, Reply, Request};

/// How a request reaches the cloud and its answer comes back.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Where the cloud is: part of the names of its accounts.
    fn endpoint(&self) -> &str;

    /// One attempt.
    ///
    /// # Errors
    /// [`NoAnswer::NotSent`] only when the request cannot have reached the cloud.
    async fn call(&self, token: Option<&str>, request: Request) -> Result<Result<Reply, Refusal>, NoAnswer>;

    /// The cloud's time minus ours; `None` where that is not measured.
    fn clock_skew(&self) -> Option<SignedDuration> {
        None
    }
}

/// In process: the cloud itself.
#[async_trait]
impl Transport for Cloud {
    fn endpoint(&self) -> &str {
        "in process"
    }

    async fn call(&self, token: Option<&str>, request: Request) -> Result<Result<Reply, Refusal>, NoAnswer> {
        Self::call(self, token, request).await
    }
}
