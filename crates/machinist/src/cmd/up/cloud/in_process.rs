//! Sends requests to a stand-in in this process.

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use machinist_driver_hcloud::{NoAnswer, Transport};
use machinist_standin_hcloud::Standin;
use machinist_standin_hcloud::http::{Broken, answer};

/// A transport without a connection. Requests and answers are the same as on a connection.
pub(super) struct InProcess(pub Standin);

#[async_trait]
impl Transport for InProcess {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, NoAnswer> {
        let lost = |broken: Broken| NoAnswer::Lost(broken.to_string());
        let answer = answer(&self.0, request.map(Full::new)).await.map_err(lost)?;
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.map_err(lost)?.to_bytes();
        Ok(Response::from_parts(parts, body))
    }

    fn outlives_process(&self) -> bool {
        false
    }
}
