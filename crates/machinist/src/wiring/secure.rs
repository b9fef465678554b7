//! The HTTP port of a process with TLS, and with permissions for every path that is not excluded.
//!
//! ```text
//! connection -> TLS (certificate) -> excluded path? -> answer
//!                                    | no: client certificate or token (TokenReview)
//!                                    |     -> SubjectAccessReview -> answer (review)
//! ```
//!
//! A process without these options serves plain HTTP: the paths that probes and scrapers need to
//! every client, and the other ones to clients on the same host.

mod certificate;
mod client_ca;
mod decisions;
mod review;

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use anyhow::Context;
use http::request::Parts;
use http::{StatusCode, header};
use machinist_serve::{Door, Rejection};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use self::certificate::Certificate;
pub(crate) use self::client_ca::CLIENT_CA_CONFIG_MAP;
use self::client_ca::Source;
pub(crate) use self::review::Reviews;
use self::review::{Caller, caller_of};
use crate::args::SecureArgs;
use crate::wrong_flags::WrongFlags;

/// The time between two reads of the CA of client certificates.
const READ_CLIENT_CA_EVERY: Duration = Duration::from_secs(60);

/// Options of a port with TLS.
#[derive(Debug, Clone, Default)]
pub(crate) struct SecureOptions {
    /// Files with the certificate and its key.
    pub files: Option<(PathBuf, PathBuf)>,
    /// Folder that keeps a generated certificate.
    pub folder: Option<PathBuf>,
    /// File with the CA certificates of clients.
    pub client_ca: Option<PathBuf>,
    /// Addresses for which a generated certificate is valid, in addition to the loopback addresses.
    pub addresses: Vec<IpAddr>,
    /// Paths that every client may read. `*` at the end stands for any rest.
    pub always_allow: Vec<String>,
    /// Kubeconfig for TokenReviews; the cluster of the process if absent.
    pub authentication: Option<PathBuf>,
    /// Kubeconfig for SubjectAccessReviews; the cluster of the process if absent.
    pub authorization: Option<PathBuf>,
}

impl SecureOptions {
    /// Converts the flags to options of a port at this address.
    pub(crate) fn of(args: &SecureArgs, address: IpAddr) -> Self {
        Self {
            files: args.tls_cert_file.clone().zip(args.tls_private_key_file.clone()),
            folder: args.cert_dir.clone(),
            client_ca: args.client_ca_file.clone(),
            addresses: vec![address],
            always_allow: args.always_allow(),
            authentication: args.authentication_kubeconfig.clone(),
            authorization: args.authorization_kubeconfig.clone(),
        }
    }
}

/// The door of a port: plain HTTP, or TLS with permissions.
#[derive(Clone)]
pub(crate) enum FrontDoor {
    Plain,
    Secure(Arc<Secure>),
}

/// The state of a port with TLS.
pub(crate) struct Secure {
    certificate: Certificate,
    tls: RwLock<Arc<ServerConfig>>,
    always_allow: Vec<String>,
    /// File with the CA of client certificates; the CA of the cluster if absent.
    client_ca: Option<PathBuf>,
    /// Absent until the API server has answered.
    reviews: OnceLock<Reviews>,
}

/// A connection of either kind.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Connection for T {}

impl FrontDoor {
    /// Creates the door of a port with TLS, with a certificate from files or a generated one.
    ///
    /// # Errors
    /// If a file cannot be read or written, or is not a certificate or key. A wrong
    /// `--client-ca-file` is a [`WrongFlags`].
    pub(crate) fn secure(options: &SecureOptions) -> anyhow::Result<Self> {
        let certificate = Certificate::load(options)?;
        let config = match &options.client_ca {
            None => certificate.config(None)?,
            Some(file) => {
                let wrong = |error: anyhow::Error| WrongFlags::new(format!("{error:#}"));
                let authority = client_ca::read(file).map_err(wrong)?;
                let config = certificate.config(Some(&authority));
                config.with_context(|| format!("--client-ca-file {}", file.display())).map_err(wrong)?
            }
        };
        Ok(Self::Secure(Arc::new(Secure {
            certificate,
            tls: RwLock::new(Arc::new(config)),
            always_allow: options.always_allow.clone(),
            client_ca: options.client_ca.clone(),
            reviews: OnceLock::new(),
        })))
    }

    /// Adds the means to check who asks. Before this call, protected paths are not answered.
    pub(crate) fn connect(&self, reviews: Reviews) {
        let Self::Secure(secure) = self else { return };
        let source = match &secure.client_ca {
            Some(file) => Source::File(file.clone()),
            None => Source::Cluster(reviews.client()),
        };
        // A process connects once.
        let _ = secure.reviews.set(reviews);
        tokio::spawn(follow_client_ca(source, Arc::downgrade(secure)));
    }
}

/// Reads the CA of client certificates again and again, until the port is closed. Connections that
/// begin after a change use the new CA.
async fn follow_client_ca(source: Source, secure: Weak<Secure>) {
    let mut last = None;
    let mut is_failing = false;
    loop {
        let read = source.read().await;
        let Some(secure) = secure.upgrade() else { return };
        let replaced = read.and_then(|found| match found {
            Some(authority) if last.as_ref() != Some(&authority) => {
                secure.replace_client_ca(&authority)?;
                last = Some(authority);
                Ok(())
            }
            // An absent ConfigMap may be about to be created again, so the last CA stays.
            Some(_) | None => Ok(()),
        });
        match replaced {
            Ok(()) => is_failing = false,
            Err(error) if !is_failing => {
                is_failing = true;
                let reason = format!("{error:#}");
                tracing::warn!(
                    reason,
                    "Cannot read the CA of client certificates; the last one stays in use"
                );
            }
            Err(_) => {}
        }
        drop(secure);
        tokio::time::sleep(READ_CLIENT_CA_EVERY).await;
    }
}

impl Secure {
    fn replace_client_ca(&self, authority: &str) -> anyhow::Result<()> {
        let config = self.certificate.config(Some(authority))?;
        *self.tls.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
        Ok(())
    }
}

/// The client of a connection.
#[derive(Clone)]
pub(crate) enum Peer {
    /// A client of a plain port: whether it is on this host.
    Plain { is_local: bool },
    /// A client of a port with TLS: the user of its certificate, if it has one.
    Secure(Option<Arc<Caller>>),
}

/// Paths of a plain port that every client may read. The other ones show the state of objects.
const OPEN: [&str; 6] = ["/healthz", "/livez", "/readyz", "/metrics", "/configz", "/serves"];

/// Decides about a request to a plain port.
fn admit_plain(is_local: bool, path: &str) -> Result<(), Rejection> {
    if is_local || OPEN.contains(&path) {
        return Ok(());
    }
    Err(rejection(
        StatusCode::FORBIDDEN,
        "403 Forbidden: without TLS, only clients on this host get an answer. Use kubectl port-forward, \
         or turn on TLS and authentication, for example with --cert-dir",
    ))
}

impl Door<TcpStream> for FrontDoor {
    type Stream = Box<dyn Connection>;
    type Peer = Peer;

    async fn open(&self, stream: TcpStream) -> io::Result<(Self::Stream, Self::Peer)> {
        let Self::Secure(secure) = self else {
            let is_local = stream.peer_addr()?.ip().to_canonical().is_loopback();
            return Ok((Box::new(stream), Peer::Plain { is_local }));
        };
        let config = secure.tls.read().unwrap_or_else(PoisonError::into_inner).clone();
        let stream = TlsAcceptor::from(config).accept(stream).await?;
        // The handshake has verified the certificate.
        let leaf = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let caller = leaf.and_then(|leaf| caller_of(leaf)).map(Arc::new);
        Ok((Box::new(stream), Peer::Secure(caller)))
    }

    async fn admit(&self, peer: &Self::Peer, request: &Parts) -> Result<(), Rejection> {
        let path = request.uri.path();
        let (secure, caller) = match (self, peer) {
            (Self::Secure(secure), Peer::Secure(caller)) => (secure, caller.as_deref()),
            (_, Peer::Plain { is_local }) => return admit_plain(*is_local, path),
            (Self::Plain, Peer::Secure(_)) => return admit_plain(false, path),
        };
        if is_excluded(path, &secure.always_allow) {
            return Ok(());
        }
        let Some(reviews) = secure.reviews.get() else {
            return Err(rejection(
                StatusCode::SERVICE_UNAVAILABLE,
                "permissions cannot be checked: the API server has not answered yet",
            ));
        };
        let token = request.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = token.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
        reviews.admit(caller, token, path).await
    }
}

fn rejection(status: StatusCode, message: impl Into<String>) -> Rejection {
    Rejection { status, message: message.into() }
}

/// Whether every client may read a path.
fn is_excluded(path: &str, always_allow: &[String]) -> bool {
    always_allow.iter().any(|allowed| match allowed.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => path == allowed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excluded_paths_match_exactly_or_by_prefix() {
        let allowed = ["/healthz".to_owned(), "/why/*".to_owned()];
        for path in ["/healthz", "/why/node/a"] {
            assert!(is_excluded(path, &allowed), "{path}");
        }
        for path in ["/healthz/", "/metrics", "/why", "/"] {
            assert!(!is_excluded(path, &allowed), "{path}");
        }
    }

    #[test]
    fn only_this_host_reads_the_state_of_objects_from_a_plain_port() {
        for path in ["/healthz", "/livez", "/readyz", "/metrics", "/configz", "/serves"] {
            assert_eq!(admit_plain(false, path), Ok(()), "{path}");
        }
        for path in ["/why", "/why/machine/a", "/debug/pprof/", "/timeline", "/healthz/"] {
            let refused = admit_plain(false, path).expect_err(path);
            assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}");
            assert!(refused.message.contains("port-forward") && refused.message.contains("--cert-dir"));
            assert_eq!(admit_plain(true, path), Ok(()), "{path}");
        }
    }

    fn authority() -> String {
        let now = machinist_kube::Clock::now(&machinist_kube::SystemClock);
        let authority = machinist_apiserver::CertificateAuthority::generate(now).expect("generated");
        authority.certificate_pem().to_owned()
    }

    fn config_of(door: &FrontDoor) -> Arc<ServerConfig> {
        let FrontDoor::Secure(secure) = door else { panic!("a door with TLS") };
        secure.tls.read().expect("unpoisoned").clone()
    }

    #[test]
    fn a_wrong_client_ca_file_is_a_wrong_flag() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("ca.crt");
        let options = SecureOptions { client_ca: Some(file.clone()), ..SecureOptions::default() };
        for (content, expected) in [(None, "cannot read it"), (Some("nothing"), "no certificate in PEM")] {
            if let Some(content) = content {
                std::fs::write(&file, content).expect("written");
            }
            let error = FrontDoor::secure(&options).err().expect("refused");
            let message = error.downcast_ref::<WrongFlags>().expect("a wrong flag").to_string();
            assert!(message.starts_with("--client-ca-file ") && message.contains(expected), "{message}");
        }
        std::fs::write(&file, authority()).expect("written");
        assert!(FrontDoor::secure(&options).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_client_ca_is_used_and_a_broken_one_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("ca.crt");
        std::fs::write(&file, authority()).expect("written");
        let options = SecureOptions { client_ca: Some(file.clone()), ..SecureOptions::default() };
        let door = FrontDoor::secure(&options).expect("a CA");
        let config = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
        let client = kube::Client::try_from(config).expect("a client");
        door.connect(Reviews::new(client.clone(), client));
        // A read in a thread of its own may end after the time of the next one has come.
        let reads = READ_CLIENT_CA_EVERY * 3;
        tokio::time::sleep(reads).await;
        let first = config_of(&door);
        tokio::time::sleep(reads).await;
        assert!(Arc::ptr_eq(&first, &config_of(&door)), "the same CA replaces nothing");
        std::fs::write(&file, "half-written").expect("written");
        tokio::time::sleep(reads).await;
        assert!(Arc::ptr_eq(&first, &config_of(&door)), "the last CA stays in use");
        std::fs::write(&file, authority()).expect("written");
        tokio::time::sleep(reads).await;
        assert!(!Arc::ptr_eq(&first, &config_of(&door)), "the new CA is used");
    }
}
