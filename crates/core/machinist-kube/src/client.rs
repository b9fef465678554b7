//! Clients of an API server with our request policy.
//!
//! kube's own client repeats a write up to fifteen times, which turns one lost answer into several
//! objects. Our client never repeats a write: the caller knows best how to handle an unknown
//! outcome (see [`crate::outcome`]). The policy is one tower layer, so a simulation can put the
//! same policy over its in-process server with [`layer_client`].
//!
//! | request | repeated | deadline |
//! |---|---|---|
//! | POST, PUT, PATCH | never | `request_timeout`, body included |
//! | DELETE | never | `delete_timeout`, body included |
//! | GET, LIST | `read_retries` times (3) in 10 s, on 429, 5xx, transport errors | `request_timeout` each |
//! | WATCH | never (the watch loop repeats it) | none (the watch loop has one) |
//!
//! A connection that is not made within half of `request_timeout` fails. So a write whose deadline
//! passes was sent, and a write without a connection certainly was not.

use std::error::Error as StdError;
use std::path::PathBuf;

use bytes::Bytes;
use http::{Request, Response};
use hyper_util::client::legacy::Error;
use kube::client::{Body, ClientBuilder};
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use tower::{BoxError, Layer, Service};

use crate::policy::PolicyLayer;
use crate::request::ClientOptions;

/// Source of the address of an API server and of our credential for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeconfigSource {
    /// The current context of a kubeconfig file.
    File(PathBuf),
    /// The service account of the pod that this process runs in.
    InCluster,
}

/// `None` means in-cluster, as with the `--kubeconfig` flags of other Kubernetes programs.
impl From<Option<PathBuf>> for KubeconfigSource {
    fn from(path: Option<PathBuf>) -> Self {
        path.map_or(Self::InCluster, Self::File)
    }
}

/// Reason why [`connect`] cannot create a client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The kubeconfig file cannot be used.
    #[error("cannot use kubeconfig {}; name a readable file whose current context has a cluster and a user", path.display())]
    Kubeconfig {
        /// Path of the file.
        path: PathBuf,
        /// The error of the file.
        source: KubeconfigError,
    },
    /// The URL of the API server cannot be parsed.
    #[error("{server}: expected the URL of an API server, for example https://127.0.0.1:6443")]
    Server {
        /// The text.
        server: String,
    },
    /// The kubeconfig file cannot be parsed. The message omits the error of the parser, because
    /// that error quotes the file, and the file holds credentials.
    #[error("cannot parse kubeconfig {}: expected YAML of `kind: Config`; correct the file", path.display())]
    KubeconfigSyntax {
        /// Path of the file.
        path: PathBuf,
    },
    /// The process does not run in a pod, or its pod has no service account.
    #[error(
        "no in-cluster configuration: expected KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT and the files of \
         /var/run/secrets/kubernetes.io/serviceaccount; outside of a pod, name a kubeconfig file"
    )]
    InCluster {
        /// The missing variable or file.
        source: InClusterError,
    },
    /// The credential or the certificates cannot be used.
    #[error(
        "cannot create a client for API server {server}: expected usable certificates and credentials; \
         correct them in the kubeconfig or the service account"
    )]
    Client {
        /// Address of the API server.
        server: String,
        /// The error of the credential or the certificates.
        source: Box<kube::Error>,
    },
}

/// Creates a client with our policy for the API server that `source` names. Sends no request.
///
/// # Errors
/// Fails if the configuration is missing or unusable. The error names the file and the expected
/// content.
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
    if let Some(server) = &options.server {
        let parsed = server.parse();
        config.cluster_url = parsed.map_err(|_| ConnectError::Server { server: server.clone() })?;
    }
    connect_to(config, options)
}

/// Creates a client with our policy for the API server of a configuration. Sends no request.
///
/// # Errors
/// Fails if the credential or the certificates cannot be used.
pub fn connect_to(mut config: kube::Config, options: &ClientOptions) -> Result<kube::Client, ConnectError> {
    config.default_retry = false;
    config.connect_timeout = Some(options.request_timeout.min(options.delete_timeout) / 2);
    let server = config.cluster_url.to_string();
    let builder = ClientBuilder::try_from(config)
        .map_err(|source| ConnectError::Client { server, source: Box::new(source) })?;
    Ok(builder.with_layer(&PolicyLayer::new(options)).build())
}

/// Returns a client of no cluster: every request fails and none is sent. A process that has no
/// target cluster uses it, so that no request can reach another cluster instead.
pub fn no_cluster() -> kube::Client {
    let refuse = |_: http::Request<Body>| async { Err::<http::Response<Body>, _>(NoCluster) };
    kube::Client::new(tower::service_fn(refuse), "default")
}

/// The error of a request to a cluster that does not exist.
#[derive(Debug, thiserror::Error)]
#[error("there is no such cluster")]
struct NoCluster;

async fn kubeconfig_file(path: &PathBuf) -> Result<kube::Config, ConnectError> {
    let explain = |source: KubeconfigError| match source {
        KubeconfigError::Parse(_) => ConnectError::KubeconfigSyntax { path: path.clone() },
        source => ConnectError::Kubeconfig { path: path.clone(), source },
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(explain)?;
    kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(explain)
}

/// Puts our policy over a service that answers like an API server. The default namespace is
/// `default`.
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

/// Whether an API server answered a request and is neither busy nor failing: the answer may say
/// that the object does not exist, or that the request is not permitted.
pub fn is_answer(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code != 429 && status.code < 500)
}

/// True if the error or one of its sources says that there was no connection for the request: it
/// was refused, its address or its host was not found, it timed out, or its TLS handshake failed.
/// The request was then never sent. After a reset of an existing connection, this is false.
pub(crate) fn was_never_sent(error: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(error);
    // Transports nest a handful of errors; the limit ends the loop if the sources form a cycle.
    for _ in 0..16 {
        let Some(error) = next else { return false };
        let refused = error
            .downcast_ref::<std::io::Error>()
            .is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused);
        let unconnected = error.downcast_ref::<Error>().is_some_and(Error::is_connect);
        if refused || unconnected {
            return true;
        }
        next = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;

    use super::*;
    use crate::outcome::WriteOutcome;

    /// The error and its sources, as a log prints them.
    fn chain(error: &dyn StdError) -> String {
        let mut text = error.to_string();
        let mut next = error.source();
        while let Some(cause) = next {
            text = format!("{text}: {cause}");
            next = cause.source();
        }
        text
    }

    /// The outcome of a POST to that address.
    async fn outcome_of_a_write_to(address: std::net::SocketAddr) -> WriteOutcome {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("kubeconfig");
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
             clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}], users: [{{name: u, user: {{}}}}]}}"
        );
        std::fs::write(&path, text).expect("written");
        let client = connect(&KubeconfigSource::File(path), &ClientOptions::new("test")).await;
        let secrets: kube::Api<Secret> = kube::Api::default_namespaced(client.expect("a client"));
        let secret = Secret::default();
        WriteOutcome::of(&secrets.create(&kube::api::PostParams::default(), &secret).await)
    }

    #[tokio::test]
    async fn a_write_without_a_connection_was_never_sent() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let reset = async {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            // The request arrives before the connection ends.
            tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 16]).await.expect("a request");
        };
        let (outcome, ()) = tokio::join!(outcome_of_a_write_to(address), reset);
        assert!(matches!(outcome, WriteOutcome::Unknown { .. }), "{outcome:?}");
        drop(listener);
        let outcome = outcome_of_a_write_to(address).await;
        assert_eq!(outcome, WriteOutcome::Throttled { retry_after: None });
    }

    #[tokio::test]
    async fn an_error_names_the_missing_kubeconfig() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("nowhere.yaml");
        let result = connect(&KubeconfigSource::File(path), &ClientOptions::new("test")).await;
        let text = chain(&result.err().expect("there is no such file"));
        assert!(text.contains("nowhere.yaml") && text.contains("name a readable file"), "{text}");
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
}
