//! Clients that connect a machine to the API server.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinist_kube::{ClientOptions, layer_client};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// User agent of simulated machines. It distinguishes their writes from the controllers' writes.
pub const NODE_USER_AGENT: &str = concat!("machinist-node/", env!("CARGO_PKG_VERSION"));

/// A kubelet's request times out before the next Lease renewal is due.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The data that a cloud gives to every machine: the API server's URL and CA. It holds no
/// credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// The URL of the API server.
    pub server: String,
    /// The CA certificates that the server's certificate must chain up to, PEM.
    pub ca_pem: String,
}

/// The credential of a machine.
#[derive(Clone)]
pub enum Auth {
    /// A bootstrap token.
    Bearer(String),
    /// The machine's certificate and its key.
    ClientCert {
        /// The certificate, PEM.
        cert_pem: String,
        /// The key of the certificate, PEM.
        key_pem: String,
    },
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bearer(_) => "Bearer",
            Self::ClientCert { .. } => "ClientCert",
        })
    }
}

/// A client could not be created; nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot connect to the API server: {0}")]
pub struct ClientError(pub String);

/// Creates the clients of machines: over HTTPS, or direct calls to a server in this process.
pub trait ClientConnector: Send + Sync {
    /// Creates a client that presents only that credential. Sends nothing yet.
    ///
    /// # Errors
    /// When the metadata or the credential is invalid.
    fn connect(&self, metadata: &Metadata, auth: &Auth) -> Result<kube::Client, ClientError>;
}

impl<F> ClientConnector for F
where
    F: Fn(&Metadata, &Auth) -> Result<kube::Client, ClientError> + Send + Sync,
{
    fn connect(&self, metadata: &Metadata, auth: &Auth) -> Result<kube::Client, ClientError> {
        self(metadata, auth)
    }
}

/// Connects over HTTPS and trusts only the CA of the metadata.
#[derive(Debug, Clone, Copy, Default)]
pub struct HttpsConnector;

impl ClientConnector for HttpsConnector {
    fn connect(&self, metadata: &Metadata, auth: &Auth) -> Result<kube::Client, ClientError> {
        let server: http::Uri = metadata
            .server
            .parse()
            .map_err(|_| ClientError(format!("server {:?}: expected a URL", metadata.server)))?;
        if server.scheme_str() != Some("https") {
            return Err(ClientError(format!("server {:?}: expected https://", metadata.server)));
        }
        let certificates: Vec<Vec<u8>> = CertificateDer::pem_slice_iter(metadata.ca_pem.as_bytes())
            .map(|certificate| certificate.map(|certificate| certificate.to_vec()))
            .collect::<Result<_, _>>()
            .map_err(|_| ClientError("CA: expected certificates in PEM".to_owned()))?;
        if certificates.is_empty() {
            return Err(ClientError("CA: expected at least one certificate in PEM".to_owned()));
        }
        let mut config = kube::Config::new(server);
        config.root_cert = Some(certificates);
        config.connect_timeout = Some(REQUEST_TIMEOUT);
        // A hidden retry of a create could register a Node again that was deleted in between.
        config.default_retry = false;
        match auth {
            Auth::Bearer(token) => config.auth_info.token = Some(token.clone().into()),
            Auth::ClientCert { cert_pem, key_pem } => {
                config.auth_info.client_certificate_data = Some(STANDARD.encode(cert_pem));
                config.auth_info.client_key_data = Some(STANDARD.encode(key_pem).into());
            }
        }
        let client = kube::Client::try_from(config).map_err(|error| ClientError(error.to_string()))?;
        let options =
            ClientOptions { request_timeout: REQUEST_TIMEOUT, ..ClientOptions::new(NODE_USER_AGENT) };
        let send = tower::service_fn(move |request| {
            let client = client.clone();
            async move { client.send(request).await }
        });
        Ok(layer_client(send, &options))
    }
}

/// Describes an error of the API server without content of the request.
pub(crate) fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 401 => {
            "401 Unauthorized: the server does not accept this credential".to_owned()
        }
        kube::Error::Api(status) => format!("{} {}: {}", status.code, status.reason, status.message),
        error => error.to_string(),
    }
}

/// The HTTP status of an answer; `None` without an answer.
pub(crate) fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connect_error_says_what_it_expected() {
        let connect = |server: &str, ca_pem: &str| {
            let metadata = Metadata { server: server.to_owned(), ca_pem: ca_pem.to_owned() };
            let result = HttpsConnector.connect(&metadata, &Auth::Bearer("canary".to_owned()));
            result.err().expect("the metadata is invalid").to_string()
        };
        assert!(connect("http://127.0.0.1:1", "").contains("expected https://"));
        assert!(connect("no url", "").contains("expected a URL"));
        assert!(connect("https://127.0.0.1:1", "").contains("expected at least one certificate"));
    }

    #[test]
    fn credentials_do_not_print() {
        let cert = Auth::ClientCert { cert_pem: "canary".to_owned(), key_pem: "canary".to_owned() };
        assert_eq!(format!("{:?} {cert:?}", Auth::Bearer("canary".to_owned())), "Bearer ClientCert");
    }
}
