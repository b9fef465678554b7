//! Requests to a running controller.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;
use std::{fmt, io};

use anyhow::{Context, bail};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::answer::Reported;
use crate::output;
use crate::wrong_flags::WrongFlags;

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

    /// A request that ended without a reason: the controller refused it, or did not answer.
    pub(super) fn failed(url: &str, error: &anyhow::Error) -> Self {
        let outcome = if error.is::<Refused>() { "refused" } else { "silent" };
        Self { url: url.to_owned(), outcome, problem: Some(format!("{error:#}")), serves: None }
    }

    /// Returns whether the controller returned a reason.
    pub(super) fn is_answered(&self) -> bool {
        self.outcome == "answered"
    }

    /// Returns whether the controller did not answer.
    pub(super) fn is_silent(&self) -> bool {
        self.outcome == "silent"
    }

    /// Returns the reason of a controller that answered without a decision.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.problem.as_deref().filter(|_| !self.is_silent())
    }
}

/// The answer of a controller that runs, and gives no decision.
#[derive(Debug)]
struct Refused(String);

impl std::error::Error for Refused {}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How controllers with TLS are asked.
#[derive(Debug, Clone, Default)]
pub(super) struct Trust {
    /// DER certificates of the CAs that sign the certificates of controllers. Without them, the
    /// certificate of a controller is not checked.
    pub authorities: Option<Vec<Vec<u8>>>,
    /// Bearer token; sent only to a controller whose certificate was checked, or to this host.
    pub token: Option<String>,
}

impl Trust {
    /// Reads the files of `--controller-ca` and `--controller-token-file`.
    ///
    /// # Errors
    /// If a file cannot be read, or the CA is not PEM.
    pub(super) fn read(ca: Option<&Path>, token: Option<&Path>) -> anyhow::Result<Self> {
        let text = |file: &Path| {
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
        };
        let authorities = ca.map(|file| {
            let pem = text(file)?;
            let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes())
                .map(|certificate| certificate.map(|certificate| certificate.to_vec()))
                .collect();
            parsed.map_err(|_| anyhow::anyhow!("--controller-ca {}: expected PEM", file.display()))
        });
        let token = token.map(|file| Ok::<_, anyhow::Error>(text(file)?.trim().to_owned())).transpose()?;
        Ok(Self { authorities: authorities.transpose()?, token })
    }

    /// Checks that the token can be sent to all of these controllers.
    ///
    /// # Errors
    /// If nothing proves which process gets the token: without a CA, for a URL with another host.
    pub(super) fn check(&self, urls: &[String]) -> Result<(), WrongFlags> {
        let is_unproven = |url: &&String| url.starts_with("https:") && !self.may_send_token(url);
        match urls.iter().find(is_unproven) {
            Some(url) if self.token.is_some() => Err(WrongFlags::new(format!(
                "--controller-token-file: expected --controller-ca, which checks {url} before it gets the token. \
                 Only a loopback address, such as a forwarded port, needs none"
            ))),
            Some(_) | None => Ok(()),
        }
    }

    fn may_send_token(&self, url: &str) -> bool {
        self.authorities.is_some() || is_loopback(url)
    }
}

/// Whether the host of a URL is this host. `kubectl port-forward` checks who is behind a forwarded
/// port.
fn is_loopback(url: &str) -> bool {
    let Ok(uri) = url.parse::<http::Uri>() else { return false };
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Asks a controller about one object; `None` if it does not know the object.
pub(super) async fn ask(url: &str, path: &str, trust: &Trust) -> anyhow::Result<Option<Reported>> {
    get(url, path, trust).await
}

/// Asks a controller for its component and namespace; `None` without an answer.
pub(super) async fn ask_what_it_serves(url: &str, trust: &Trust) -> Option<Serves> {
    get(url, "/serves", trust).await.ok()?
}

async fn get<T: DeserializeOwned>(url: &str, path: &str, trust: &Trust) -> anyhow::Result<Option<T>> {
    let answer = tokio::time::timeout(ANSWER_WITHIN, request(url, path, trust)).await;
    answer.unwrap_or_else(|_| bail!("no answer within {} s", ANSWER_WITHIN.as_secs()))
}

async fn request<T: DeserializeOwned>(url: &str, path: &str, trust: &Trust) -> anyhow::Result<Option<T>> {
    let uri: http::Uri = format!("{}{path}", url.trim_end_matches('/')).parse().context("expected a URL")?;
    match uri.scheme_str() {
        Some("http") => {
            let client: Client<_, Empty<Bytes>> =
                Client::builder(TokioExecutor::new()).build(HttpConnector::new());
            answer_of(client.get(uri).await.map_err(|error| unanswered(error.into()))?).await
        }
        Some("https") => {
            let mut config = kube::Config::new(url.parse().context("expected a URL")?);
            config.accept_invalid_certs = trust.authorities.is_none();
            // A process that waits for its Lease answers 503, and the user wants to know that now.
            config.default_retry = false;
            config.root_cert.clone_from(&trust.authorities);
            if trust.may_send_token(url) {
                config.auth_info.token = trust.token.clone().map(Into::into);
            }
            let client = kube::Client::try_from(config).context("TLS")?;
            let request = http::Request::get(path).body(kube::client::Body::empty()).context("a path")?;
            answer_of(client.send(request).await.map_err(|error| unanswered(error.into()))?).await
        }
        Some(_) | None => bail!("expected http://ADDRESS:PORT or https://ADDRESS:PORT"),
    }
}

/// The error of a request without an answer. An untrusted certificate is not a missing process.
fn unanswered(error: anyhow::Error) -> anyhow::Error {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    if causes.any(|cause| cause.kind() == io::ErrorKind::ConnectionRefused) {
        return anyhow::anyhow!("no process answers at this address");
    }
    anyhow::anyhow!("{}", output::one_line(&error))
}

/// Parses the answer of a controller.
async fn answer_of<T: DeserializeOwned, B>(response: http::Response<B>) -> anyhow::Result<Option<T>>
where
    B: http_body_util::BodyExt<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES);
    let body = Box::pin(body).collect().await;
    match (status, body) {
        (StatusCode::NOT_FOUND, _) => Ok(None),
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => refused(
            "it requires permission to read /why. Use --controller-token-file, or start it with \
             --authorization-always-allow-paths",
        ),
        (StatusCode::SERVICE_UNAVAILABLE, _) => {
            refused("it is not ready: it is not the leader, or it is still loading objects")
        }
        (StatusCode::OK, Ok(body)) => {
            let answer = serde_json::from_slice(&body.to_bytes());
            Ok(Some(answer.context("the answer does not have the form of a controller's answer")?))
        }
        (status, _) => refused(&format!("it answered {status}")),
    }
}

fn refused<T>(reason: &str) -> anyhow::Result<T> {
    Err(Refused(reason.to_owned()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_refusal_is_not_a_missing_answer() {
        let answer = |status: u16| {
            let body: Empty<Bytes> = Empty::new();
            answer_of::<Serves, _>(http::Response::builder().status(status).body(body).expect("a response"))
        };
        for (status, expected) in [
            (401, "--controller-token-file"),
            (403, "--controller-token-file"),
            (503, "not the leader"),
            (500, "500"),
        ] {
            let error = answer(status).await.expect_err("a refusal");
            let asked = Asked::failed("https://a", &error);
            assert!(!asked.is_silent(), "{status}");
            assert!(asked.refusal().expect("a reason").contains(expected), "{status}: {asked:?}");
        }
        let asked = Asked::failed("https://a", &anyhow::anyhow!("no process answers at this address"));
        assert!(asked.is_silent());
        assert_eq!(asked.refusal(), None);
    }

    #[test]
    fn without_a_ca_only_this_host_gets_the_token() {
        let trust = Trust { authorities: None, token: Some("secret".to_owned()) };
        let check = |url: &str| trust.check(&[url.to_owned()]);
        for url in ["https://127.0.0.1:10258", "https://[::1]:10258", "https://localhost:1", "http://a:1"] {
            assert!(check(url).is_ok(), "{url}");
        }
        for url in ["https://a:10258", "https://localhost.example:1", "https://localhost@a:1"] {
            let message = check(url).expect_err(url).to_string();
            assert!(message.contains(url) && message.contains("--controller-ca"), "{message}");
            assert!(!message.contains("secret"), "{message}");
        }
        let trusted = Trust { authorities: Some(Vec::new()), ..trust.clone() };
        assert!(trusted.check(&["https://a:10258".to_owned()]).is_ok());
    }
}
