//! Connections with the certificates of a Secret.

use std::sync::Arc;

use hyper_rustls::ConfigBuilderExt as _;
use machinist_driver_http::{Http, Transport};
use machinist_instance::{Error, ErrorKind};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::secret::{Login, Tls, wrong};

/// Builds the connections of an account. Nothing is sent.
///
/// # Errors
/// `Denied` names the entry of the Secret that is not PEM. `Unavailable` if the system has no root
/// certificates and the Secret has none either.
pub(crate) fn transport(login: &Login) -> Result<Arc<dyn Transport>, Error> {
    if login.tls == Tls::default() && !login.keystone.is_https() {
        // A cloud without TLS works without root certificates of the system.
        return match Http::with_tls() {
            Ok(http) => Ok(Arc::new(http)),
            Err(_) => Ok(Arc::new(Http::plain())),
        };
    }
    Ok(Arc::new(Http::with_config(config(&login.tls)?)))
}

fn config(tls: &Tls) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let unusable = |_| Error::new(ErrorKind::Bug, "the TLS library has no protocol version");
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().map_err(unusable)?;
    let builder = match (tls.is_insecure, &tls.ca) {
        (true, _) => builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptsAll(provider))),
        (false, Some(pem)) => builder.with_root_certificates(roots(pem)?),
        (false, None) => builder.with_native_roots().map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("the system has no root certificates: {error}"))
        })?,
    };
    match &tls.client {
        None => Ok(builder.with_no_client_auth()),
        Some((certificate, key)) => {
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
            let key = key.map_err(|_| wrong("clientKey", "a private key in PEM"))?;
            let certificates = certificates("clientCert", certificate)?;
            let fits = builder.with_client_auth_cert(certificates, key);
            fits.map_err(|_| wrong("clientKey", "the private key of clientCert"))
        }
    }
}

fn roots(pem: &str) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("caCert", pem)? {
        roots.add(certificate).map_err(|_| wrong("caCert", "certificates in PEM"))?;
    }
    Ok(roots)
}

fn certificates(entry: &str, pem: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let found = found.ok().filter(|found| !found.is_empty());
    found.ok_or_else(|| wrong(entry, "certificates in PEM"))
}

/// Accepts every certificate of a server, as `insecure: "true"` says. Signatures are checked
/// nevertheless, so that the server has the key of its certificate.
#[derive(Debug)]
struct AcceptsAll(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptsAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_is_no_pem_is_named() {
        let tls = |ca: Option<&str>, client: Option<(&str, &str)>| Tls {
            ca: ca.map(str::to_owned),
            client: client.map(|(certificate, key)| (certificate.to_owned(), key.to_owned())),
            is_insecure: false,
        };
        let error = config(&tls(Some("canary"), None)).expect_err("no PEM");
        assert_eq!(error.message, "caCert: expected certificates in PEM");
        let insecure = Tls { is_insecure: true, ..tls(None, Some(("canary", "canary"))) };
        let error = config(&insecure).expect_err("no PEM");
        assert_eq!(error.message, "clientKey: expected a private key in PEM");
        assert!(config(&Tls { is_insecure: true, ..Tls::default() }).is_ok());
    }
}
