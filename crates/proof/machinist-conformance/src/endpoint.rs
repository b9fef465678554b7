//! The server that a case is played against: the embedded server in process, or any server over
//! HTTPS.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower::Service as _;

use crate::broken::{self, DeliberateFault};
use machinist_apiserver::Body;
use machinist_apiserver::Identity;
use machinist_apiserver::Server;

/// A server under examination.
#[derive(Debug, Clone)]
pub enum ExaminedServer {
    /// The embedded server.
    Embedded(Server),
    /// The embedded server with a deliberate fault.
    Broken(Server, DeliberateFault),
    /// A server over HTTPS.
    Remote(Arc<Remote>),
}

/// A server over HTTPS, and its etcd for compaction.
pub struct Remote {
    authority: String,
    host: String,
    admin: TlsConnector,
    nobody: TlsConnector,
    etcd: Option<String>,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("authority", &self.authority).finish_non_exhaustive()
    }
}

/// A request could not be sent, or its answer could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// A kubeconfig entry is missing or invalid.
    #[error("kubeconfig: {0}")]
    Kubeconfig(String),
    /// The connection failed.
    #[error("connection: {0}")]
    Connection(Box<dyn std::error::Error + Send + Sync>),
    /// A case compacts a remote server, but the address of its etcd is not known.
    #[error("this case compacts the store. Pass the address of the server's etcd")]
    NoEtcd,
}

impl ExchangeError {
    pub(crate) fn connection(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        ExchangeError::Connection(error.into())
    }
}

/// Sender of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Actor {
    Admin,
    Nobody,
    Bearer(String),
    /// The administrator, who impersonates a user.
    As {
        user: String,
        groups: Vec<String>,
    },
}

impl Actor {
    /// Identity for the embedded server, unless the request carries its own credentials.
    fn identity(&self) -> Option<Identity> {
        match self {
            Actor::Admin | Actor::As { .. } => Some(Identity::admin()),
            Actor::Nobody | Actor::Bearer(_) => None,
        }
    }
}

impl ExaminedServer {
    /// Reads the server's `gitVersion`.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn version(&self) -> Result<String, ExchangeError> {
        let request = Request::get("/version").body(Full::default()).map_err(ExchangeError::connection)?;
        let body = self.send(&Actor::Admin, request).await?.into_body().collect().await;
        let bytes = body.map_err(ExchangeError::connection)?.to_bytes();
        let version: Value = serde_json::from_slice(&bytes).map_err(ExchangeError::connection)?;
        Ok(version["gitVersion"].as_str().unwrap_or_default().to_owned())
    }

    /// Forwards a request of another program, as the administrator.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn pass(&self, request: Request<Full<Bytes>>) -> Result<Response<Body>, ExchangeError> {
        self.send(&Actor::Admin, request).await
    }

    /// Sends one request. The body of the answer is still unread.
    pub(crate) async fn send(
        &self,
        actor: &Actor,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Body>, ExchangeError> {
        let mut request = request;
        if let Actor::Bearer(token) = actor
            && let Ok(header) = format!("Bearer {token}").parse()
        {
            request.headers_mut().insert(http::header::AUTHORIZATION, header);
        }
        if let Actor::As { user, groups } = actor {
            let headers = request.headers_mut();
            let named = [("impersonate-user", user)]
                .into_iter()
                .chain(groups.iter().map(|group| ("impersonate-group", group)));
            for (name, value) in named {
                // User names may contain characters outside ASCII.
                let value = HeaderValue::from_bytes(value.as_bytes()).map_err(ExchangeError::connection)?;
                headers.append(name, value);
            }
        }
        match self {
            ExaminedServer::Embedded(server) => {
                let mut service = match actor.identity() {
                    Some(identity) => server.service_as(identity),
                    None => server.service_anonymous(),
                };
                service.call(request).await.map_err(ExchangeError::connection)
            }
            ExaminedServer::Broken(server, fault) => {
                broken::send(server, *fault, actor.identity(), request).await
            }
            ExaminedServer::Remote(remote) => remote.send(actor, request).await,
        }
    }

    /// Compacts the store at its newest revision.
    pub(crate) async fn compact(&self) -> Result<(), ExchangeError> {
        match self {
            ExaminedServer::Embedded(server) | ExaminedServer::Broken(server, _) => {
                server.compact();
                Ok(())
            }
            ExaminedServer::Remote(remote) => remote.compact().await,
        }
    }
}

impl Remote {
    /// Reads the server and the administrator from a kubeconfig's first entries. `etcd` is the
    /// plain HTTP address of the server's etcd.
    ///
    /// # Errors
    /// When the kubeconfig, or a file that it names, cannot be read.
    pub fn from_kubeconfig(file: &Path, etcd: Option<String>) -> Result<Self, ExchangeError> {
        let wrong = |why: String| ExchangeError::Kubeconfig(why);
        let text = std::fs::read_to_string(file).map_err(|e| wrong(format!("{}: {e}", file.display())))?;
        let config: Value = serde_saphyr::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        let cluster = &config["clusters"][0]["cluster"];
        let user = &config["users"][0]["user"];
        let server = cluster["server"].as_str().ok_or_else(|| wrong("no server".into()))?;
        let authority = server
            .strip_prefix("https://")
            .ok_or_else(|| wrong(format!("{server} is not https")))?
            .trim_end_matches('/');
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);

        let mut roots = rustls::RootCertStore::empty();
        let ca = pem_of(cluster, "certificate-authority")?;
        for certificate in CertificateDer::pem_slice_iter(&ca) {
            let certificate = certificate.map_err(|e| wrong(format!("certificate-authority: {e}")))?;
            roots.add(certificate).map_err(|e| wrong(format!("certificate-authority: {e}")))?;
        }
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(&pem_of(user, "client-certificate")?).collect();
        let chain = chain.map_err(|e| wrong(format!("client-certificate: {e}")))?;
        let key = PrivateKeyDer::from_pem_slice(&pem_of(user, "client-key")?)
            .map_err(|e| wrong(format!("client-key: {e}")))?;
        let builder = || {
            rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map(|b| b.with_root_certificates(roots.clone()))
                .map_err(|e| wrong(e.to_string()))
        };
        let admin = builder()?.with_client_auth_cert(chain, key).map_err(|e| wrong(e.to_string()))?;
        Ok(Remote {
            authority: authority.to_owned(),
            host: host.to_owned(),
            admin: TlsConnector::from(Arc::new(admin)),
            nobody: TlsConnector::from(Arc::new(builder()?.with_no_client_auth())),
            etcd,
        })
    }

    /// Opens a connection for each request. A case sends few requests, and a watch keeps its own
    /// connection.
    async fn send(
        &self,
        actor: &Actor,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Body>, ExchangeError> {
        let stream = TcpStream::connect(&self.authority).await.map_err(ExchangeError::connection)?;
        let name = ServerName::try_from(self.host.clone()).map_err(ExchangeError::connection)?;
        let connector = match actor {
            Actor::Admin | Actor::As { .. } => &self.admin,
            Actor::Nobody | Actor::Bearer(_) => &self.nobody,
        };
        let stream = connector.connect(name, stream).await.map_err(ExchangeError::connection)?;
        if let Ok(host) = self.authority.parse() {
            request.headers_mut().insert(http::header::HOST, host);
        }
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(ExchangeError::connection)?;
        tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(ExchangeError::connection)?;
        Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
    }

    /// Compacts etcd at its newest revision, through its JSON gateway.
    async fn compact(&self) -> Result<(), ExchangeError> {
        let etcd = self.etcd.as_deref().ok_or(ExchangeError::NoEtcd)?;
        let authority = etcd.trim_start_matches("http://").trim_end_matches('/');
        let newest = post(authority, "/v3/kv/range", r#"{"key":"AA==","limit":1}"#).await?;
        let revision = newest["header"]["revision"].as_str().unwrap_or_default().to_owned();
        let body = format!(r#"{{"revision":"{revision}","physical":true}}"#);
        post(authority, "/v3/kv/compaction", &body).await?;
        Ok(())
    }
}

async fn post(authority: &str, path: &str, body: &str) -> Result<Value, ExchangeError> {
    let stream = TcpStream::connect(authority).await.map_err(ExchangeError::connection)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(ExchangeError::connection)?;
    tokio::spawn(connection);
    let request = Request::post(path)
        .header(http::header::HOST, authority)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body.to_owned())))
        .map_err(ExchangeError::connection)?;
    let response = sender.send_request(request).await.map_err(ExchangeError::connection)?;
    let bytes = response.into_body().collect().await.map_err(ExchangeError::connection)?.to_bytes();
    serde_json::from_slice(&bytes).map_err(ExchangeError::connection)
}

/// Decodes `KEY-data`, or reads the file that `KEY` names.
fn pem_of(entry: &Value, key: &str) -> Result<Vec<u8>, ExchangeError> {
    let wrong = |why: String| ExchangeError::Kubeconfig(format!("{key}: {why}"));
    if let Some(data) = entry[format!("{key}-data")].as_str() {
        return STANDARD.decode(data).map_err(|e| wrong(e.to_string()));
    }
    match entry[key].as_str() {
        Some(file) => std::fs::read(file).map_err(|e| wrong(format!("{file}: {e}"))),
        None => Err(wrong("missing".into())),
    }
}
