//! Connecting to an API server under our request policy.
//!
//! kube's own client repeats writes up to fifteen times, which turns one lost answer into several objects. Ours never
//! repeats a write: whoever wrote knows best what an unknown outcome means (see [`crate::outcome`]). The policy is one
//! tower layer, so a simulation puts the very same one over its in-process server with [`layer_client`].
//!
//! | request | repeated | deadline |
//! |---|---|---|
//! | POST, PUT, PATCH | never | `request_timeout`, body included |
//! | DELETE | never | `delete_timeout`, body included |
//! | GET, LIST | at most 3 times within 10 s, on 429, 5xx and transport errors | `request_timeout` each |
//! | WATCH | never (the watch loop does) | none (the watch loop has one) |

use std::error::Error as StdError;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use kube::client::{Body, ClientBuilder};
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use tower::{BoxError, Layer, Service};

use crate::clock::{SharedClock, Skew, SystemClock};
use crate::policy::PolicyLayer;

/// How long one request may take, unless told otherwise: longer than the slowest admission webhook is allowed (30 s
/// would be its maximum, 10 s its default), shorter than a person's patience.
pub const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a DELETE may take: longer than the 30 s that an admission webhook may hold it. A DELETE whose answer we do not wait
/// for may take effect later, when another object has been chosen in its place.
pub const DEFAULT_DELETE_TIMEOUT: Duration = Duration::from_secs(35);

/// Told about every request when it is over.
pub type RequestObserver = Arc<dyn Fn(&RequestReport<'_>) + Send + Sync>;

/// One finished request, for metrics.
#[derive(Clone, Copy, Debug)]
pub struct RequestReport<'a> {
    /// kube's name of the operation: `get`, `list`, `watch`, `create`, `patch_status`, ...; `raw` when it has none.
    pub operation: &'static str,
    /// The HTTP method.
    pub method: &'a http::Method,
    /// The path, without its query.
    pub path: &'a str,
    /// The status of the answer; `None` when there was none.
    pub status: Option<u16>,
    /// From sending to the end of the answer (for a watch: to its first byte).
    pub took: Duration,
    /// How many times this request had been sent before.
    pub earlier_attempts: u32,
}

/// The policy of one client: who it is, how fast it may be, and who is told about its requests.
#[derive(Clone)]
pub struct ClientOptions {
    /// Sent with every request; names the program and its part, as audit logs and write counts go by it.
    pub user_agent: String,
    /// Requests per second; `None` leaves the pace to the server's own priority and fairness.
    pub qps: Option<f64>,
    /// How many requests may exceed the rate at once; the rate itself, rounded up, when unset.
    pub burst: Option<u32>,
    /// How long one request may take, from sending to the last byte of its answer. Watches are exempt.
    pub request_timeout: Duration,
    /// The same for a DELETE.
    pub delete_timeout: Duration,
    /// The clock that the server's is compared with.
    pub clock: SharedClock,
    /// Where the server's `Date` headers are reported.
    pub skew: Skew,
    /// Told about every request, when set.
    pub observer: Option<RequestObserver>,
    /// The seed of the jitter between repeated reads.
    pub seed: u64,
}

impl ClientOptions {
    /// Options without limits, on the system clock.
    pub fn new(user_agent: impl Into<String>) -> Self {
        Self {
            user_agent: user_agent.into(),
            qps: None,
            burst: None,
            request_timeout: DEFAULT_REQUEST_TIMEOUT,
            delete_timeout: DEFAULT_DELETE_TIMEOUT,
            clock: SystemClock::shared(),
            skew: Skew::default(),
            observer: None,
            seed: 0,
        }
    }
}

impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientOptions")
            .field("user_agent", &self.user_agent)
            .field("qps", &self.qps)
            .field("burst", &self.burst)
            .field("request_timeout", &self.request_timeout)
            .finish_non_exhaustive()
    }
}

/// Where to find the address of an API server and our credential for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeconfigSource {
    /// A kubeconfig file, its current context.
    File(PathBuf),
    /// The service account of the pod that we run in.
    InCluster,
}

/// No path means in-cluster, as with the `--kubeconfig` flags of other Kubernetes programs.
impl From<Option<PathBuf>> for KubeconfigSource {
    fn from(path: Option<PathBuf>) -> Self {
        path.map_or(Self::InCluster, Self::File)
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The kubeconfig file cannot be used.
    #[error("kubeconfig {}: expected a readable kubeconfig with a current context, its cluster and its user", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: KubeconfigError,
    },
    /// The kubeconfig file is not even YAML of the right shape. The parser's own words are left out, because they
    /// quote the file, and the file holds credentials.
    #[error("kubeconfig {}: expected YAML of `kind: Config`, but it cannot be parsed", path.display())]
    KubeconfigSyntax {
        /// The file.
        path: PathBuf,
    },
    /// We are in no pod, or in one without a service account.
    #[error(
        "in-cluster configuration: expected KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT and the files of \
         /var/run/secrets/kubernetes.io/serviceaccount; outside of a pod, name a kubeconfig file"
    )]
    InCluster {
        /// What is missing.
        source: InClusterError,
    },
    /// The credential or the certificates cannot be used.
    #[error("API server {server}: expected usable TLS material and credentials")]
    Client {
        /// The address of the server.
        server: String,
        /// What is wrong with them.
        source: Box<kube::Error>,
    },
}

/// Connects to the API server that `source` names, under our policy. Sends nothing yet.
///
/// # Errors
/// When the configuration is missing or unusable; the error names the file and what was expected.
pub async fn connect(
    source: &KubeconfigSource,
    options: &ClientOptions,
) -> Result<kube::Client, ConnectError> {
    let mut config = match source {
        KubeconfigSource::File(path) => kubeconfig_file(path).await?,
        KubeconfigSource::InCluster => {
            kube::Config::incluster().map_err(|source| ConnectError::InCluster { source })?
        }
    };
    config.default_retry = false;
    let server = config.cluster_url.to_string();
    let builder = ClientBuilder::try_from(config)
        .map_err(|source| ConnectError::Client { server, source: Box::new(source) })?;
    Ok(builder.with_layer(&PolicyLayer::new(options)).build())
}

async fn kubeconfig_file(path: &PathBuf) -> Result<kube::Config, ConnectError> {
    let explain = |source: KubeconfigError| match source {
        KubeconfigError::Parse(_) => ConnectError::KubeconfigSyntax { path: path.clone() },
        source => ConnectError::Kubeconfig { path: path.clone(), source },
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(explain)?;
    kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(explain)
}

/// Puts our policy over any service that answers like an API server. The default namespace is `default`.
pub fn layer_client<S, B>(service: S, options: &ClientOptions) -> kube::Client
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    kube::Client::new(PolicyLayer::new(options).layer(service), "default")
}

/// A request that got no whole answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The deadline passed; the effect of a write is unknown.
    #[error("no whole answer to {method} {path} within {after:?}")]
    Deadline {
        /// The HTTP method.
        method: http::Method,
        /// The path, without its query.
        path: String,
        /// The deadline.
        after: Duration,
    },
}

/// True when the error, or what caused it, is a refused connection: then the request was never sent.
pub(crate) fn is_connection_refused(error: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(error);
    // Transports nest a handful of errors; the bound stops a source that cycles.
    for _ in 0..16 {
        let Some(error) = next else { return false };
        let refused = error
            .downcast_ref::<std::io::Error>()
            .is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused);
        if refused {
            return true;
        }
        next = error.source();
    }
    false
}

/// The header value of a User-Agent; characters that HTTP forbids are replaced.
pub(crate) fn user_agent_header(text: &str) -> HeaderValue {
    let allowed: String =
        text.chars().map(|c| if c == ' ' || c.is_ascii_graphic() { c } else { '?' }).collect();
    HeaderValue::from_str(&allowed).expect("printable ASCII is a valid header value")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error and what caused it, as a log would print it.
    fn chain(error: &dyn StdError) -> String {
        let mut text = error.to_string();
        let mut next = error.source();
        while let Some(cause) = next {
            text = format!("{text}: {cause}");
            next = cause.source();
        }
        text
    }

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named_with_what_was_expected() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("nowhere.yaml");
        let result = connect(&KubeconfigSource::File(path), &ClientOptions::new("test")).await;
        let text = chain(&result.err().expect("there is no such file"));
        assert!(text.contains("nowhere.yaml") && text.contains("expected a readable kubeconfig"), "{text}");
    }

    #[tokio::test]
    async fn a_broken_kubeconfig_is_never_quoted() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("broken.yaml");
        std::fs::write(&path, "users: [{name: a, user: {token: s3cr3t-canary, \n  oops").expect("written");
        let result = connect(&KubeconfigSource::File(path), &ClientOptions::new("test")).await;
        let error = result.err().expect("it cannot be parsed");
        let text = format!("{} {error:?}", chain(&error));
        assert!(text.contains("broken.yaml") && !text.contains("canary"), "{text}");
    }

    #[test]
    fn a_user_agent_with_forbidden_characters_is_still_sent() {
        assert_eq!(user_agent_header("machinist/1\n(x)"), "machinist/1?(x)");
    }
}
