//! The certificate of a port: from files, or generated at the start.

use std::fs;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use jiff::Timestamp;
use machinist_apiserver::CertificateAuthority;
use machinist_kube::{Clock as _, SystemClock};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::SecureOptions;
use crate::wiring::identity::host_name;

/// Common name of a generated certificate.
const COMMON_NAME: &str = "cloud-controller-manager";
/// Common name of the CA that signs it.
const ISSUER: &str = "machinist-ca";
/// A kept certificate with less than these seconds left is generated again: one day.
const LEFT_AT_START: i64 = 24 * 60 * 60;
/// Name of the files of a generated certificate, as other cloud controller managers name them.
const FILES: [&str; 2] = ["cloud-controller-manager.crt", "cloud-controller-manager.key"];

/// A certificate chain with its key.
pub(super) struct Certificate {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl Certificate {
    /// Reads the files of the options, or generates a certificate.
    ///
    /// # Errors
    /// If a file cannot be read or written, or its content is not PEM.
    pub(super) fn load(options: &SecureOptions) -> anyhow::Result<Self> {
        if let Some((certificate, key)) = &options.files {
            return Self::read(certificate, key);
        }
        let Some(folder) = &options.folder else {
            let (certificate, key) = generate(&options.addresses)?;
            return Self::parse(&certificate, &key);
        };
        let [certificate_file, key_file] = FILES.map(|name| folder.join(name));
        if certificate_file.exists() && key_file.exists() {
            let kept = Self::read(&certificate_file, &key_file)?;
            if !kept.is_generated() || kept.serves(&options.addresses, SystemClock.now()) {
                return Ok(kept);
            }
            let file = certificate_file.display();
            tracing::info!(%file, "Generating a new certificate; the old one has expired or lacks an address");
        }
        let (certificate, key) = generate(&options.addresses)?;
        fs::create_dir_all(folder).with_context(|| format!("--cert-dir {}", folder.display()))?;
        for (file, text) in [(&key_file, &key), (&certificate_file, &certificate)] {
            replace(folder, file, text)
                .with_context(|| format!("--cert-dir: cannot write {}", file.display()))?;
        }
        Self::parse(&certificate, &key)
    }

    /// Whether this program has generated the certificate. It does not replace the certificate of a
    /// user.
    fn is_generated(&self) -> bool {
        self.leaf().is_some_and(|leaf| {
            let mut names = leaf.issuer().iter_common_name();
            names.next().and_then(|name| name.as_str().ok()) == Some(ISSUER)
        })
    }

    /// Whether clients accept the certificate for all addresses, for some time after `now`.
    fn serves(&self, addresses: &[IpAddr], now: Timestamp) -> bool {
        let Some(leaf) = self.leaf() else { return false };
        let ends = leaf.validity().not_after.timestamp();
        let is_current = now.as_second().saturating_add(LEFT_AT_START) < ends;
        let names = leaf.subject_alternative_name().ok().flatten();
        let names = names.map(|extension| extension.value.general_names.as_slice()).unwrap_or_default();
        let has = |address: &IpAddr| {
            let octets = match address {
                IpAddr::V4(address) => address.octets().to_vec(),
                IpAddr::V6(address) => address.octets().to_vec(),
            };
            names.iter().any(|name| matches!(name, GeneralName::IPAddress(bytes) if *bytes == octets))
        };
        // Two files of different starts do not fit, if the process ended between their writes.
        is_current && served(addresses).iter().all(has) && self.config(None).is_ok()
    }

    fn leaf(&self) -> Option<X509Certificate<'_>> {
        X509Certificate::from_der(self.chain.first()?).ok().map(|(_, leaf)| leaf)
    }

    fn read(certificate: &Path, key: &Path) -> anyhow::Result<Self> {
        let text =
            |file: &Path| fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()));
        Self::parse(&text(certificate)?, &text(key)?).with_context(|| {
            format!("expected a certificate in {} and its key in {}", certificate.display(), key.display())
        })
    }

    fn parse(certificate: &str, key: &str) -> anyhow::Result<Self> {
        let chain = certificates(certificate)?;
        // The error does not quote the key.
        let key =
            PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| anyhow::anyhow!("no key in PEM"))?;
        Ok(Self { chain, key, provider: Arc::new(ring::default_provider()) })
    }

    /// Returns the configuration of TLS. With a CA, clients may present a certificate of that CA.
    ///
    /// # Errors
    /// If key and certificate do not fit, or the CA is not PEM.
    pub(super) fn config(&self, client_ca: Option<&str>) -> anyhow::Result<ServerConfig> {
        let builder = ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .context("TLS")?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(pem)? {
                    roots.add(certificate).context("CA of clients")?;
                }
                let provider = self.provider.clone();
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = verifier.allow_unauthenticated().build().context("CA of clients")?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .context("certificate and key")?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn certificates(pem: &str) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let parsed = parsed.map_err(|_| anyhow::anyhow!("no certificate in PEM"))?;
    anyhow::ensure!(!parsed.is_empty(), "no certificate in PEM");
    Ok(parsed)
}

/// Replaces a file with a file that only its owner can read. An earlier file may have other
/// permissions, so it is not written to.
fn replace(folder: &Path, file: &Path, text: &str) -> io::Result<()> {
    // The mode of a temporary file is 0600.
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    new.write_all(text.as_bytes())?;
    new.as_file().sync_all()?;
    new.persist(file).map_err(|error| error.error)?;
    Ok(())
}

/// Returns the addresses of a generated certificate: the loopback addresses, and those that name
/// this host.
fn served(addresses: &[IpAddr]) -> Vec<IpAddr> {
    let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    loopback
        .into_iter()
        .chain(addresses.iter().copied().filter(|address| !address.is_unspecified()))
        .collect()
}

/// Returns a certificate and its key in PEM. Its CA is forgotten, so only a client that does not
/// verify certificates accepts it.
fn generate(addresses: &[IpAddr]) -> anyhow::Result<(String, String)> {
    let now = SystemClock.now();
    let addresses = served(addresses);
    let authority = CertificateAuthority::generate(now).context("cannot generate a certificate")?;
    let host = host_name();
    let issued = authority
        .issue_serving(COMMON_NAME, &addresses, &["localhost", &host], now)
        .or_else(|_| authority.issue_serving(COMMON_NAME, &addresses, &["localhost"], now))
        .context("cannot generate a certificate")?;
    Ok((issued.certificate_pem, issued.key_pem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_certificate_serves_and_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = SecureOptions { folder: Some(folder.path().join("certs")), ..SecureOptions::default() };
        let first = Certificate::load(&options).expect("generated");
        assert!(first.config(None).is_ok());
        let again = Certificate::load(&options).expect("read");
        assert_eq!(first.chain, again.chain, "the second start uses the files");
        let in_memory = Certificate::load(&SecureOptions::default()).expect("generated");
        assert!(in_memory.config(None).is_ok());
    }

    #[test]
    fn a_kept_certificate_is_renewed_in_a_private_file() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().expect("a folder");
        let options = |addresses: &[IpAddr]| SecureOptions {
            folder: Some(folder.path().to_owned()),
            addresses: addresses.to_vec(),
            ..SecureOptions::default()
        };
        let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let first = Certificate::load(&options(&[])).expect("generated");
        let name = first.leaf().expect("a certificate").subject().to_string();
        assert!(name.contains("CN=cloud-controller-manager"), "{name}");
        assert!(first.is_generated());
        let key = folder.path().join(FILES[1]);
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("changed");
        let second = Certificate::load(&options(&[address])).expect("generated again");
        assert_ne!(first.chain, second.chain, "the first one lacks the address");
        assert_eq!(fs::metadata(&key).expect("a file").permissions().mode() & 0o777, 0o600);
        let now = SystemClock.now();
        assert!(second.serves(&[address], now));
        assert!(!second.serves(&[address], now + jiff::SignedDuration::from_hours(24 * 365 * 100)));
        let third = Certificate::load(&options(&[address])).expect("read");
        assert_eq!(second.chain, third.chain);
    }

    #[test]
    fn a_wrong_file_is_named_without_its_content() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("key"), "secret").expect("written");
        std::fs::write(path("crt"), "nothing").expect("written");
        let files = Some((path("crt"), path("key")));
        let error = Certificate::load(&SecureOptions { files, ..SecureOptions::default() });
        let message = format!("{:#}", error.err().expect("refused"));
        assert!(message.contains("expected a certificate in") && !message.contains("secret"), "{message}");
        let files = Some((path("absent"), path("key")));
        let error = Certificate::load(&SecureOptions { files, ..SecureOptions::default() });
        assert!(format!("{:#}", error.err().expect("refused")).contains("cannot read"));
    }
}
