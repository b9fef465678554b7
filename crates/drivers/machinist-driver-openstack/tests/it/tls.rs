//! The certificates of a Secret: a server that speaks TLS on the loopback interface.

use std::sync::Arc;

use machinist_driver::Provider as _;
use machinist_driver_openstack::{OpenStackOptions, OpenStackProvider};
use machinist_instance::{Credential, Error, ErrorKind, Instance, Place, Scope};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::cloud::{PROJECT, REGION, USER, secret, users};
use crate::fake::{Fake, Settings, server};

/// A certificate in PEM, its key in PEM, and both for a server.
struct Certificate {
    pem: String,
    key: String,
    der: (CertificateDer<'static>, PrivateKeyDer<'static>),
}

struct Authority {
    pem: String,
    root: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = parameters.self_signed(&key).expect("a certificate");
        let (pem, root) = (certificate.pem(), certificate.der().clone());
        Self { pem, root, issuer: Issuer::new(parameters, key) }
    }

    fn issue(&self) -> Certificate {
        let key = KeyPair::generate().expect("a key");
        let parameters = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
        let certificate = parameters.signed_by(&key, &self.issuer).expect("a certificate");
        let private = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        Certificate {
            pem: certificate.pem(),
            key: key.serialize_pem(),
            der: (certificate.der().clone(), private),
        }
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).expect("a certificate");
        Arc::new(roots)
    }
}

/// Serves the fake over TLS, and returns the URL of Keystone. With `clients`, a client needs a
/// certificate of that authority.
async fn serve(fake: Fake, authority: &Authority, clients: Option<&Authority>) -> String {
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions");
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let provider = Arc::new(ring::default_provider());
            let verifier = WebPkiClientVerifier::builder_with_provider(clients.roots(), provider);
            builder.with_client_cert_verifier(verifier.build().expect("a verifier"))
        }
    };
    let (certificate, key) = authority.issue().der;
    let config = builder.with_single_cert(vec![certificate], key).expect("a certificate");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            if let Ok(connection) = acceptor.accept(connection).await {
                tokio::spawn(server::serve(fake.clone(), connection));
            }
        }
    });
    format!("https://{address}/identity/v3")
}

/// Lists servers with a Secret that also has these entries. The catalogue names a host that does
/// not exist, so a success of the login shows as another error.
async fn list(url: &str, entries: &[(&str, &str)]) -> Result<Vec<Instance>, Error> {
    let login = [
        ("authURL", url),
        ("username", USER),
        ("password", "canary"),
        ("domainName", "Default"),
        ("tenantName", PROJECT),
    ];
    let credential: Credential = secret(&[&login[..], entries].concat());
    let provider = OpenStackProvider::new(OpenStackOptions::default());
    let place = Place::new(REGION);
    let driver = provider.open(&provider.account(&credential, &place), &credential, &place)?;
    driver.instances().list(&Scope::Visible).await
}

fn fake() -> Fake {
    let fake = Fake::new(Settings::default());
    fake.lock().users = users();
    fake
}

#[tokio::test]
async fn the_certificates_of_a_secret_are_used() {
    let (authority, other, clients) = (Authority::new(), Authority::new(), Authority::new());
    let fake = fake();
    let logins = || fake.lock().logins.len();
    let open = serve(fake.clone(), &authority, None).await;
    // Without the certificate of the authority, nothing is sent.
    for entries in [&[][..], &[("caCert", other.pem.as_str())], &[("insecure", "false")]] {
        let refused = list(&open, entries).await.expect_err("an unknown authority");
        assert_eq!((refused.kind, logins()), (ErrorKind::Unavailable, 0), "{refused}");
    }
    let _ = list(&open, &[("caCert", &authority.pem)]).await;
    assert_eq!(logins(), 1);
    let _ = list(&open, &[("insecure", "true")]).await;
    assert_eq!(logins(), 2);

    let closed = serve(fake.clone(), &authority, Some(&clients)).await;
    let _ = list(&closed, &[("caCert", &authority.pem)]).await.expect_err("no certificate");
    assert_eq!(logins(), 2);
    let client = clients.issue();
    let with_client =
        [("caCert", authority.pem.as_str()), ("clientCert", &client.pem), ("clientKey", &client.key)];
    let _ = list(&closed, &with_client).await;
    assert_eq!(logins(), 3);

    // A key of another certificate is named before anything is sent.
    let wrong = [("clientCert", client.pem.as_str()), ("clientKey", &other.issue().key)];
    let error = list(&closed, &wrong).await.expect_err("another key");
    assert_eq!(error.message, "clientKey: expected the private key of clientCert");
}
