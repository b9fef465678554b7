//! The cluster's certificate authority: signs certificates and identifies clients by their
//! certificates.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType,
};
use rustls::pki_types::pem::{self, PemObject as _, SectionKind};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use sha2::{Digest as _, Sha256};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::values::identity::{CREDENTIAL_ID, Identity};

/// Validity of the CA and of the server's own certificates. The server lives for a session, not for
/// years.
const VALID_YEARS: i32 = 10;
/// The last day that every month has, so that adding years always gives a valid date.
const LAST_COMMON_DAY: u8 = 28;

/// Error while creating or reading a CA.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Creating or parsing certificates or keys failed.
    #[error("certificate authority: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The TLS configuration is invalid.
    #[error("TLS: {0}")]
    Rustls(#[from] rustls::Error),
    /// Creating the verifier of client certificates failed.
    #[error("client certificate verifier: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    /// A PEM text lacks the expected certificate or key.
    #[error("{0}")]
    Pem(String),
}

/// A certificate authority: signs the server's and the administrator's certificates, and verifies
/// client certificates.
#[derive(Clone)]
pub struct CertificateAuthority {
    certificate_pem: String,
    key_pem: String,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl fmt::Debug for CertificateAuthority {
    /// Formats the value without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateAuthority")
            .field("certificate", &self.certificate_pem)
            .finish_non_exhaustive()
    }
}

/// A certificate with its key, in PEM.
#[derive(Clone)]
pub struct Issued {
    /// The certificate in PEM.
    pub certificate_pem: String,
    /// The private key in PEM.
    pub key_pem: String,
}

impl fmt::Debug for Issued {
    /// Formats the value without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued").field("certificate", &self.certificate_pem).finish_non_exhaustive()
    }
}

impl CertificateAuthority {
    /// Creates a CA with a certificate that is valid at `now`.
    ///
    /// # Errors
    /// When key generation or signing fails.
    pub fn generate(now: Timestamp) -> Result<Self, TlsError> {
        let key = KeyPair::generate()?;
        let mut params = params("machinist-ca", None, now)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key)?;
        Self::from_pem(certificate.pem(), key.serialize_pem())
    }

    /// Reads an existing CA.
    ///
    /// # Errors
    /// When `certificate_pem` contains no certificate that can be a root.
    pub fn from_pem(certificate_pem: String, key_pem: String) -> Result<Self, TlsError> {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in certificates(&certificate_pem)? {
            roots.add(certificate)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
            .allow_unauthenticated()
            .build()?;
        Ok(CertificateAuthority { certificate_pem, key_pem, verifier })
    }

    /// Checks that the key belongs to the certificate and that the certificate has not expired.
    pub(crate) fn check(&self, now: Timestamp) -> Result<(), TlsError> {
        let first = certificates(&self.certificate_pem)?.remove(0);
        let (_, parsed) =
            X509Certificate::from_der(&first).map_err(|e| TlsError::Pem(format!("ca.crt: {e}")))?;
        let key = KeyPair::from_pem(&self.key_pem)?;
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err(TlsError::Pem("ca.key is not the key of ca.crt".into()));
        }
        if parsed.validity().not_after.timestamp() <= now.as_second() {
            return Err(TlsError::Pem(
                "ca.crt has expired. Move the folder away to start with an empty one".into(),
            ));
        }
        Ok(())
    }

    /// The CA's certificate, which clients trust.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The CA's private key. A process with this key can impersonate any user.
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// Issues a client certificate for `user` in `group`.
    ///
    /// # Errors
    /// When key generation or signing fails.
    pub fn issue_client(&self, user: &str, group: &str, now: Timestamp) -> Result<Issued, TlsError> {
        let mut params = params(user, Some(group), now)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(params)
    }

    /// Issues a serving certificate for `addresses` and `names`. `common_name` names the program.
    ///
    /// # Errors
    /// When key generation or signing fails.
    pub fn issue_serving(
        &self,
        common_name: &str,
        addresses: &[IpAddr],
        names: &[&str],
        now: Timestamp,
    ) -> Result<Issued, TlsError> {
        let mut params = params(common_name, None, now)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = addresses.iter().map(|a| SanType::IpAddress(*a)).collect();
        for name in names {
            params.subject_alt_names.push(SanType::DnsName((*name).try_into()?));
        }
        self.issue(params)
    }

    fn issue(&self, params: CertificateParams) -> Result<Issued, TlsError> {
        let issuer = Issuer::from_ca_cert_pem(&self.certificate_pem, KeyPair::from_pem(&self.key_pem)?)?;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?;
        Ok(Issued { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }

    /// Identifies the client, if this CA signed its certificate for client use and the certificate
    /// is valid at `now`. CN is the user, and each O is a group. The signatures are verified once
    /// per connection, the validity on each request.
    pub(crate) fn identify(&self, presented: &PresentedCertificate, now: Timestamp) -> Option<Arc<Identity>> {
        let recognised = presented.recognised.get();
        if let Some(recognised) = recognised.filter(|recognised| recognised.valid.contains(&now.as_second()))
        {
            return Some(recognised.identity.clone());
        }
        let identity = Arc::new(self.verify(&presented.chain, now)?);
        if let Some(valid) = presented.valid() {
            let _another_request_was_first =
                presented.recognised.set(Recognised { identity: identity.clone(), valid });
        }
        Some(identity)
    }

    fn verify(&self, chain: &[Vec<u8>], now: Timestamp) -> Option<Identity> {
        let (leaf, above) = chain.split_first()?;
        let leaf_der = CertificateDer::from(leaf.as_slice());
        let above: Vec<CertificateDer<'_>> =
            above.iter().map(|c| CertificateDer::from(c.as_slice())).collect();
        let seconds = u64::try_from(now.as_second()).ok()?;
        let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        self.verifier.verify_client_cert(&leaf_der, &above, at).ok()?;
        let (_, parsed) = X509Certificate::from_der(leaf).ok()?;
        let subject = parsed.subject();
        let user = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
        let groups: Vec<String> =
            subject.iter_organization().filter_map(|o| o.as_str().ok().map(str::to_owned)).collect();
        // Identifies the certificate in audit records.
        let digest: String = Sha256::digest(leaf).iter().map(|byte| format!("{byte:02x}")).collect();
        let mut identity = Identity::new(user, groups);
        identity.extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={digest}")]);
        Some(identity)
    }

    pub(crate) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        self.verifier.clone()
    }
}

/// A client certificate with its chain, from one connection to one server.
pub(crate) struct PresentedCertificate {
    chain: Vec<Vec<u8>>,
    recognised: OnceLock<Recognised>,
}

/// The identity that a certificate stands for.
struct Recognised {
    identity: Arc<Identity>,
    /// Period in seconds since the epoch during which all certificates of the chain are valid.
    valid: RangeInclusive<i64>,
}

impl PresentedCertificate {
    /// Takes the chain as DER, the client's own certificate first.
    pub(crate) fn new(chain: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self { chain: chain.into_iter().collect(), recognised: OnceLock::new() }
    }

    fn valid(&self) -> Option<RangeInclusive<i64>> {
        let mut valid = i64::MIN..=i64::MAX;
        for certificate in &self.chain {
            let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
            let times = parsed.validity();
            let (from, to) = (times.not_before.timestamp(), times.not_after.timestamp());
            valid = *valid.start().max(&from)..=*valid.end().min(&to);
        }
        Some(valid)
    }
}

/// The subject that a certificate signing request names.
pub(crate) struct Requested {
    /// Empty if the request has none.
    pub(crate) common_name: String,
    pub(crate) organizations: Vec<String>,
}

impl Requested {
    /// Parses a request's PEM text in base64. An unreadable name makes the whole request invalid,
    /// because a skipped name would not be checked.
    pub(crate) fn parse(request: &str) -> Result<Self, String> {
        let pem = STANDARD.decode(request).map_err(|e| e.to_string())?;
        let Some(Ok((SectionKind::Csr, der))) = sections(&pem).next() else {
            return Err("PEM block type must be CERTIFICATE REQUEST".to_owned());
        };
        let (_, parsed) = X509CertificationRequest::from_der(&der).map_err(|e| e.to_string())?;
        let subject = &parsed.certification_request_info.subject;
        let names: Result<Vec<&str>, _> = subject.iter_common_name().map(|name| name.as_str()).collect();
        let organizations: Result<Vec<&str>, _> =
            subject.iter_organization().map(|name| name.as_str()).collect();
        let (Ok(names), Ok(organizations)) = (names, organizations) else {
            return Err("a name in the subject is not readable text".to_owned());
        };
        Ok(Requested {
            common_name: names.last().copied().unwrap_or_default().to_owned(),
            organizations: organizations.into_iter().map(str::to_owned).collect(),
        })
    }
}

/// Checks that a PEM text contains only certificates.
pub(crate) fn check_certificates(pem: &[u8]) -> Result<(), String> {
    let mut found = 0;
    for section in sections(pem) {
        let (SectionKind::Certificate, der) = section.map_err(|e| pem_fault(&e))? else {
            return Err("only CERTIFICATE PEM blocks are allowed".to_owned());
        };
        X509Certificate::from_der(&der).map_err(|e| e.to_string())?;
        found += 1;
    }
    if found == 0 { Err("must contain at least one CERTIFICATE PEM block".to_owned()) } else { Ok(()) }
}

/// The only crypto provider of the project.
pub(crate) fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Reads the certificates in a PEM text.
pub(crate) fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match found {
        Ok(list) if !list.is_empty() => Ok(list),
        Ok(_) => Err(TlsError::Pem("no certificate in the PEM text".into())),
        Err(e) => Err(TlsError::Pem(format!("certificate PEM: {}", pem_fault(&e)))),
    }
}

/// The blocks of a PEM text. Blocks of an unknown type are skipped.
fn sections(pem: &[u8]) -> impl Iterator<Item = Result<(SectionKind, Vec<u8>), pem::Error>> + '_ {
    <(SectionKind, Vec<u8>)>::pem_slice_iter(pem)
}

/// Describes an error in a PEM text. The library would print the text as a list of numbers.
fn pem_fault(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            format!("section end {:?} missing", String::from_utf8_lossy(end_marker))
        }
        pem::Error::IllegalSectionStart { line } => {
            format!("illegal section start: {:?}", String::from_utf8_lossy(line))
        }
        pem::Error::Base64Decode(fault) => fault.clone(),
        other => other.to_string(),
    }
}

fn params(
    common_name: &str,
    organization: Option<&str>,
    now: Timestamp,
) -> Result<CertificateParams, TlsError> {
    let mut params = CertificateParams::new(Vec::new())?;
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    params.distinguished_name = name;
    let today = now.to_zoned(TimeZone::UTC).date();
    // Valid from yesterday on, so that a client with a slightly slow clock can connect.
    let from = today.yesterday().unwrap_or(today);
    let (month, day) = (from.month().unsigned_abs(), from.day().unsigned_abs().min(LAST_COMMON_DAY));
    params.not_before = rcgen::date_time_ymd(from.year().into(), month, day);
    params.not_after = rcgen::date_time_ymd(i32::from(from.year()) + VALID_YEARS, month, day);
    Ok(params)
}

#[test]
fn a_damaged_pem_text_is_quoted_as_text() {
    let fault = |text: &str| certificates(text).err().map(|error| error.to_string());
    let says = |text: &str, expected: &str| {
        let found = fault(text).unwrap_or_default();
        assert!(found.ends_with(expected), "{text:?} gives {found:?}, expected {expected:?}");
    };
    says("-----BEGIN CERTIFICATE-----\nQUJD\n", "certificate PEM: section end \"CERTIFICATE\" missing");
    says("-----BEGIN CERTIFICATE--\n", "illegal section start: \"-----BEGIN CERTIFICATE--\"");
    says("", "no certificate in the PEM text");
}
