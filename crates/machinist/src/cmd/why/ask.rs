//! Asking a running controller.

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

/// A controller answers from memory; one that takes longer will not.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// One reason is a few hundred bytes.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;

/// What became of asking one controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Asked {
    /// Where.
    pub url: String,
    /// What became of it.
    pub outcome: &'static str,
    /// Why there was no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What it serves; absent when that was not asked, or not answered.
    #[serde(flatten)]
    pub serves: Option<Serves>,
}

/// What a controller says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Serves {
    /// What it is.
    pub component: String,
    /// The one namespace whose objects it acts on.
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

    /// Whether it told a reason.
    pub(super) fn is_answered(&self) -> bool {
        self.outcome == "answered"
    }

    /// Whether there was no answer of any kind.
    pub(super) fn is_silent(&self) -> bool {
        self.problem.is_some()
    }
}

/// Asks a controller about one object; `None` when it has nothing to say about it.
pub(super) async fn ask(url: &str, path: &str) -> anyhow::Result<Option<Reported>> {
    get(url, path).await
}

/// Asks a controller what it serves; `None` when it does not say.
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
    let response = client.get(uri).await.map_err(|_| anyhow::anyhow!("nobody answers there"))?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
    match (status, body) {
        (StatusCode::NOT_FOUND, _) => Ok(None),
        (StatusCode::SERVICE_UNAVAILABLE, _) => {
            bail!("it is not ready: another process leads, or its stores fill")
        }
        (StatusCode::OK, Ok(body)) => {
            let answer = serde_json::from_slice(&body.to_bytes());
            Ok(Some(answer.context("it does not answer as a controller does")?))
        }
        (status, _) => bail!("it answered {status}"),
    }
}
