//! Serves HTTPS on a listener and writes the files that a client needs into a folder: CA, key and
//! kubeconfig.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tower::Service as _;

use crate::access::authn::Credentials;
use crate::server::core::Core;
use crate::server::handle::Server;
use crate::server::service::ApiService;
use crate::storage::{PRIVATE_FOLDER, replace};
use crate::values::tls::{Issued, PresentedCertificate, TlsError, certificates, provider};

/// Time limit for the TLS handshake, and for reading the headers of an HTTP/1 request.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the first request on a connection. Without it, an idle connection would occupy a
/// place that other clients need.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of connections. A listener on loopback has few clients, and a runaway client must
/// not take all memory.
const MAX_CONNECTIONS: usize = 4096;
/// Maximum number of concurrent requests on one HTTP/2 connection. Controllers keep many watches
/// open on one connection.
const MAX_STREAMS: u32 = 1000;

/// Reason why the server cannot serve over the network.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is in use or does not belong to this machine.
    #[error("cannot listen on {address}")]
    Bind {
        /// Requested address.
        address: SocketAddr,
        /// Error from the operating system.
        source: io::Error,
    },
    /// A file that clients need could not be written.
    #[error("cannot write {}", file.display())]
    Write {
        /// Path of the file.
        file: PathBuf,
        /// Error from the operating system.
        source: io::Error,
    },
    /// Certificates or the TLS configuration could not be created.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A listening server. Dropping it stops the listener and closes its connections.
#[derive(Debug)]
pub struct Serving {
    /// Address of the listener.
    pub address: SocketAddr,
    /// CA certificate that clients must trust, in PEM.
    pub ca_pem: String,
    /// Path of the administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    accepting: JoinHandle<()>,
}

impl Serving {
    /// Stops listening and waits until all connections are closed.
    pub async fn shutdown(mut self) {
        if let Some(stop) = self.stop.take() {
            // Sending fails only if the task has already ended.
            let _ended = stop.send(());
        }
        let _cancelled = (&mut self.accepting).await;
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Server {
    /// Listens on `address` and writes `ca.crt`, `ca.key` and `kubeconfig` into `folder`. Only
    /// their owner can read these files. The kubeconfig contains the administrator's client
    /// certificate.
    ///
    /// # Errors
    /// Fails if the address cannot be bound, a file cannot be written, or a certificate cannot be
    /// created.
    pub async fn serve(&self, address: SocketAddr, folder: &Path) -> Result<Serving, ServeError> {
        let listener =
            TcpListener::bind(address).await.map_err(|source| ServeError::Bind { address, source })?;
        let address = listener.local_addr().map_err(|source| ServeError::Bind { address, source })?;
        let ca = self.ca()?;
        let now = self.clock().now();
        let serving = ca.issue_serving(
            "kube-apiserver",
            &[address.ip()],
            &["localhost", "kubernetes", "kubernetes.default.svc"],
            now,
        )?;
        let acceptor = TlsAcceptor::from(Arc::new(tls_config(&serving, ca.verifier())?));

        let admin = ca.issue_client("kubernetes-admin", "system:masters", now)?;
        let kubeconfig = folder.join("kubeconfig");
        let wrote = |file: &Path, result: io::Result<()>| {
            result.map_err(|source| ServeError::Write { file: file.to_owned(), source })
        };
        wrote(folder, fs::DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(folder))?;
        for (name, text) in [("ca.crt", ca.certificate_pem()), ("ca.key", ca.key_pem())] {
            let file = folder.join(name);
            wrote(&file, write_private(&file, text))?;
        }
        wrote(
            &kubeconfig,
            write_private(&kubeconfig, &kubeconfig_text(address, ca.certificate_pem(), &admin)),
        )?;

        let (stop, stopped) = oneshot::channel();
        let core = self.core().clone();
        let tasks = core.tasks.clone();
        let accepting = tasks.spawn(async move {
            let connection = |stream| connection(stream, acceptor.clone(), core.clone());
            let _stopped = machinist_serve::accept(&listener, MAX_CONNECTIONS, stopped, connection).await;
        });
        Ok(Serving {
            address,
            ca_pem: ca.certificate_pem().to_owned(),
            kubeconfig,
            stop: Some(stop),
            accepting,
        })
    }
}

/// Serves one connection until it ends or a time limit passes.
async fn connection<S>(stream: S, acceptor: TlsAcceptor, core: Arc<Core>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake failed");
            return;
        }
        Err(_elapsed) => return,
    };
    let certificate = stream.get_ref().1.peer_certificates().map(|chain| {
        Arc::new(PresentedCertificate::new(chain.iter().map(|certificate| certificate.as_ref().to_vec())))
    });
    let handle = ApiService::new(core, Credentials::Presented { certificate, bearer: None });
    let has_asked = Arc::new(AtomicBool::new(false));
    let asks = has_asked.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        asks.store(true, Ordering::Relaxed);
        handle.clone().call(request)
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE_TIMEOUT);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS);
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // HTTP timeouts start with the first bytes of a request or later, so an idle connection needs
    // this one.
    let ended = match tokio::time::timeout(FIRST_REQUEST_TIMEOUT, &mut served).await {
        Ok(ended) => ended,
        Err(_elapsed) if has_asked.load(Ordering::Relaxed) => served.await,
        Err(_elapsed) => return,
    };
    if let Err(error) = ended {
        tracing::debug!(error, "Connection ended");
    }
}

fn tls_config(
    serving: &Issued,
    verifier: Arc<dyn ClientCertVerifier>,
) -> Result<rustls::ServerConfig, TlsError> {
    let key = PrivateKeyDer::from_pem_slice(serving.key_pem.as_bytes())
        .map_err(|e| TlsError::Pem(format!("serving key PEM: {e}")))?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(Arc::new(AskOnly(verifier)))
        .with_single_cert(certificates(&serving.certificate_pem)?, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Accepts any client certificate if the client holds its private key. Each request checks whether
/// the certificate belongs to a user. A bad certificate therefore gets a 401 instead of a broken
/// connection.
#[derive(Debug)]
struct AskOnly(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for AskOnly {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[rustls::DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _above: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Writes a file that only its owner can read. Does nothing if the content is already the same.
fn write_private(file: &Path, text: &str) -> io::Result<()> {
    match fs::read(file) {
        Ok(present) if present == text.as_bytes() => Ok(()),
        Ok(_) | Err(_) => replace(file, text.as_bytes()),
    }
}

fn kubeconfig_text(address: SocketAddr, ca_pem: &str, admin: &Issued) -> String {
    let base64 = |text: &str| STANDARD.encode(text);
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: machinist\n\
         clusters:\n- name: machinist\n  cluster:\n    server: https://{address}\n    certificate-authority-data: {}\n\
         users:\n- name: kubernetes-admin\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\n\
         contexts:\n- name: machinist\n  context:\n    cluster: machinist\n    user: kubernetes-admin\n",
        base64(ca_pem),
        base64(&admin.certificate_pem),
        base64(&admin.key_pem),
    )
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::Instant;
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::values::tls::CertificateAuthority;
    use crate::{Config, Server};

    /// Size of each direction of a connection: far above a handshake.
    const BUFFER: usize = 64 << 10;
    /// A client that is connected for longer never gives up its place.
    const TOO_LONG: Duration = Duration::from_secs(120);
    const LIMIT: Duration = Duration::from_secs(60);

    /// The connection is in memory. Paused time therefore advances only when neither side can
    /// continue; a connection of the operating system may still have bytes to deliver then.
    #[tokio::test(start_paused = true)]
    async fn a_stalled_client_is_disconnected() {
        let server = Server::new(Config::default());
        let acceptor = acceptor(&server);
        for (protocol, sent) in [
            ("http/1.1", ""),
            ("http/1.1", "G"),
            ("http/1.1", "GET /version HTTP/1.1\r\nHost: x\r\n"),
            ("h2", ""),
            ("h2", "PRI * HTTP/2"),
        ] {
            let (client, stream) = tokio::io::duplex(BUFFER);
            let served = tokio::spawn(connection(stream, acceptor.clone(), server.core().clone()));
            let name = "localhost".try_into().expect("a name");
            let connector = connector(server.ca().expect("a CA"), protocol);
            let mut client = connector.connect(name, client).await.expect("a handshake");
            let began = Instant::now();
            client.write_all(sent.as_bytes()).await.expect("sent");
            client.flush().await.expect("sent");
            let mut answer = Vec::new();
            let ended = tokio::time::timeout(TOO_LONG, client.read_to_end(&mut answer)).await;
            assert!(ended.is_ok(), "{protocol} {sent:?}: the connection is never closed");
            let after = began.elapsed();
            assert!(HANDSHAKE_TIMEOUT <= after && after <= LIMIT, "{protocol} {sent:?}: {after:?}");
            served.await.expect("the connection ends without a panic");
        }
    }

    fn acceptor(server: &Server) -> TlsAcceptor {
        let ca = server.ca().expect("a CA");
        let now = server.clock().now();
        let serving = ca.issue_serving("kube-apiserver", &[], &["localhost"], now).expect("a certificate");
        TlsAcceptor::from(Arc::new(tls_config(&serving, ca.verifier()).expect("a configuration")))
    }

    /// A client without a certificate that offers one protocol.
    fn connector(ca: &CertificateAuthority, protocol: &str) -> TlsConnector {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in certificates(ca.certificate_pem()).expect("a certificate") {
            roots.add(certificate).expect("a certificate");
        }
        let mut config = rustls::ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        TlsConnector::from(Arc::new(config))
    }
}
