//! Requests to a running controller.

use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::answer::Reported;

/// Timeout of a request. A controller answers from memory, so it needs less.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Maximum size of an answer. A reason has a few hundred bytes.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;

/// Result of a request to one controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Asked {
    pub url: String,
    pub outcome: &'static str,
    /// Reason for a missing answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Component and namespace of the controller; absent if not asked or not answered.
    #[serde(flatten)]
    pub serves: Option<Serves>,
}

/// Component and namespace of a controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Serves {
    pub component: String,
    /// Namespace that the controller serves.
    pub namespace: String,
}

impl Asked {
    pub(super) fn answered(url: &str) -> Self {
        Self { url: url.to_owned(), outcome: "answered", problem: None, serves: None }
    }

    pub(super) fn knows_nothing(url: &str, serves: Option<Serves>) -> Self {
        Self { url: url.to_owned(), outcome: "knowsNothing", problem: None, serves }
    }

    pub(super) fn silent(url: &str, error: &anyhow::Error) -> Self {
        let problem = Some(format!("{error:#}"));
        Self { url: url.to_owned(), outcome: "silent", problem, serves: None }
    }

    /// Returns whether the controller returned a reason.
    pub(super) fn is_answered(&self) -> bool {
        self.outcome == "answered"
    }

    /// Returns whether the controller did not answer.
    pub(super) fn is_silent(&self) -> bool {
        self.problem.is_some()
    }
}

/// Asks a controller about one object; `None` if it does not know the object.
pub(super) async fn ask(url: &str, path: &str) -> anyhow::Result<Option<Reported>> {
    get(url, path).await
}

/// Asks a controller for its component and namespace; `None` without an answer.
pub(super) async fn ask_what_it_serves(url: &str) -> Option<Serves> {
    get(url, "/serves").await.ok()?
}

async fn get<T: DeserializeOwned>(url: &str, path: &str) -> anyhow::Result<Option<T>> {
    let answer = tokio::time::timeout(ANSWER_WITHIN, request(url, path)).await;
    answer.unwrap_or_else(|_| bail!("no answer within {} s", ANSWER_WITHIN.as_secs()))
}

async fn request<T: DeserializeOwned>(url: &str, path: &str) -> anyhow::Result<Option<T>> {
    let uri: http::Uri = format!("{}{path}", url.trim_end_matches('/')).parse().context("expected a URL")?;
    if uri.scheme_str() != Some("http") {
        bail!("expected http://ADDRESS:PORT");
    }
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build(HttpConnector::new());
    let response =
        client.get(uri).await.map_err(|_| anyhow::anyhow!("no process answers at this address"))?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
    match (status, body) {
        (StatusCode::NOT_FOUND, _) => Ok(None),
        (StatusCode::SERVICE_UNAVAILABLE, _) => {
            bail!("the controller is not ready: it is not the leader, or it is still loading objects")
        }
        (StatusCode::OK, Ok(body)) => {
            let answer = serde_json::from_slice(&body.to_bytes());
            Ok(Some(answer.context("the answer is not that of a controller")?))
        }
        (status, _) => bail!("the controller answered {status}"),
    }
}
