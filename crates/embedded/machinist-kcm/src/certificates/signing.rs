//! Signs certificates with a given certificate authority.
//!
//! The serial number is derived from the UID of the request, so the same request, key and time give
//! the same certificate as far as the algorithm allows. Signatures of an ECDSA authority contain a
//! random number; signatures of an Ed25519 or RSA authority do not. A simulation that compares
//! bytes uses an Ed25519 or RSA authority.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, SerialNumber,
};
use sha2::{Digest, Sha256};

use super::request::{KEY_ENCIPHERMENT, NODES_GROUP, Wish};

/// Certificates become valid this long before the signing, for clients and servers with clocks that
/// are behind.
const BACKDATED_BY: Duration = Duration::from_secs(5 * 60);

/// Shortest lifetime of a certificate. With a shorter one, the kubelet would renew it all the time.
const SHORTEST_LIFE: Duration = Duration::from_secs(10 * 60);

/// A certificate authority: its certificate and its private key.
pub struct CaPair {
    issuer: Issuer<'static, KeyPair>,
    /// End of the authority's own validity; no certificate is valid for longer.
    not_after: Timestamp,
    /// PEM for clients that have to trust the authority.
    certificate_pem: String,
}

/// The reason why a certificate authority cannot be used. The messages never quote the key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaError {
    /// The key cannot be read.
    #[error("CA key: expected one private key in PEM (PKCS#8)")]
    Key {
        /// Parse error of the key.
        source: rcgen::Error,
    },
    /// The certificate cannot be read.
    #[error("CA certificate: expected one X.509 certificate in PEM")]
    Certificate,
    /// The certificate does not belong to a CA, or has a form that cannot be used.
    #[error("CA certificate: expected a certificate that may sign certificates (basicConstraints CA:TRUE)")]
    NotAnAuthority,
    /// The key does not belong to the certificate.
    #[error("CA key: expected the key that belongs to the CA certificate")]
    OtherKey,
}

/// The reason why a request was not signed. The request itself is wrong, so a retry fails, too.
#[derive(Debug, thiserror::Error)]
#[error("the request cannot be signed: {source}")]
pub(crate) struct SignError {
    #[from]
    source: rcgen::Error,
}

impl CaPair {
    /// Loads a certificate authority from PEM texts.
    ///
    /// # Errors
    /// If either text cannot be parsed, or the key does not belong to the certificate.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, CaError> {
        let key = KeyPair::from_pem(key).map_err(|source| CaError::Key { source })?;
        let (_, block) =
            x509_parser::pem::parse_x509_pem(certificate.as_bytes()).map_err(|_| CaError::Certificate)?;
        let parsed = block.parse_x509().map_err(|_| CaError::Certificate)?;
        if !parsed.is_ca() {
            return Err(CaError::NotAnAuthority);
        }
        if *parsed.public_key().subject_public_key.data != *key.public_key_raw() {
            return Err(CaError::OtherKey);
        }
        let not_after =
            Timestamp::from_second(parsed.validity().not_after.timestamp()).unwrap_or(Timestamp::MAX);
        let issuer = Issuer::from_ca_cert_pem(certificate, key).map_err(|_| CaError::NotAnAuthority)?;
        Ok(Self { issuer, not_after, certificate_pem: certificate.to_owned() })
    }

    /// Returns the authority's certificate in PEM.
    pub(crate) fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// Signs the request, valid from about `now`, and returns the certificate in PEM.
    pub(crate) fn sign(
        &self,
        wish: &Wish,
        uid: &str,
        now: Timestamp,
        life: Duration,
    ) -> Result<String, SignError> {
        // Parsing verifies that the requester has the private key.
        let CertificateSigningRequestParams { public_key, .. } =
            CertificateSigningRequestParams::from_pem(&wish.pem)?;
        let mut params = CertificateParams::default();
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        let not_after = now.saturating_add(life).unwrap_or(Timestamp::MAX).min(self.not_after);
        params.not_before = epoch + since_epoch(now).saturating_sub(BACKDATED_BY);
        params.not_after = epoch + since_epoch(not_after);
        params.serial_number = Some(serial_number(uid));
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, NODES_GROUP);
        params.distinguished_name.push(DnType::CommonName, wish.user.as_str());
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        if wish.usages.contains(KEY_ENCIPHERMENT) {
            params.key_usages.push(KeyUsagePurpose::KeyEncipherment);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = CertificateSigningRequestParams { params, public_key }.signed_by(&self.issuer)?;
        Ok(certificate.pem())
    }
}

impl fmt::Debug for CaPair {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaPair").field("not_after", &self.not_after).finish_non_exhaustive()
    }
}

/// Returns the lifetime of a certificate.
pub(crate) fn life(asked_seconds: Option<i32>, longest: Duration) -> Duration {
    let asked = asked_seconds.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    asked.unwrap_or(longest).max(SHORTEST_LIFE).min(longest)
}

/// Returns one number per request: UIDs are never reused.
fn serial_number(uid: &str) -> SerialNumber {
    // RFC 5280 allows 20 bytes, positive; 16 bytes of a hash do not collide.
    let mut bytes: [u8; 16] = [0; 16];
    bytes.copy_from_slice(&Sha256::digest(uid)[..16]);
    bytes[0] = bytes[0] & 0x7f | 0x40;
    SerialNumber::from_slice(&bytes)
}

/// Converts to whole seconds, at most until the end of the year 9999, as X.509 requires.
fn since_epoch(time: Timestamp) -> Duration {
    const LAST: i64 = 253_402_300_799;
    Duration::from_secs(time.as_second().clamp(0, LAST).unsigned_abs())
}

#[cfg(test)]
pub(crate) mod tests {
    use rcgen::BasicConstraints;

    use super::*;
    use crate::certificates::approval::tests::{BOOTSTRAPPER, request};
    use crate::certificates::request::RequestFacts;

    const DAY: Duration = Duration::from_secs(86_400);

    fn now() -> Timestamp {
        "2030-01-01T00:00:00Z".parse().expect("a time")
    }

    /// Returns certificate and key of an authority with repeatable signatures.
    fn authority(is_ca: IsCa) -> (String, String) {
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = is_ca;
        params.not_after = rcgen::date_time_ymd(2030, 6, 1);
        (params.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
    }

    fn ca() -> CaPair {
        let (certificate, key) = authority(IsCa::Ca(BasicConstraints::Unconstrained));
        CaPair::from_pem(&certificate, &key).expect("an authority")
    }

    fn wish() -> Wish {
        RequestFacts::parse(request("system:node:a", "system:nodes", BOOTSTRAPPER))
            .wish
            .expect("a good request")
    }

    #[test]
    fn a_certificate_has_exactly_the_requested_identity_and_usages() {
        let ca = ca();
        let pem = ca.sign(&wish(), "u1", now(), DAY).expect("signed");
        let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).expect("PEM");
        let certificate = block.parse_x509().expect("a certificate");
        assert_eq!(certificate.subject().to_string(), "O=system:nodes, CN=system:node:a");
        assert_eq!(certificate.issuer().to_string(), "CN=rcgen self signed cert");
        assert_eq!(certificate.validity().not_before.timestamp(), now().as_second() - 300);
        assert_eq!(certificate.validity().not_after.timestamp(), now().as_second() + 86_400);
        assert!(!certificate.is_ca());
        let usage = certificate.extended_key_usage().expect("one").expect("present").value;
        assert!(usage.client_auth && !usage.server_auth && !usage.any);
    }

    #[test]
    fn the_same_request_gives_the_same_certificate() {
        let (ca, wish) = (ca(), wish());
        let sign = |uid| ca.sign(&wish, uid, now(), DAY).expect("signed");
        assert_eq!(sign("u1"), sign("u1"));
        assert_ne!(sign("u1"), sign("u2"));
    }

    #[test]
    fn no_certificate_outlives_its_authority() {
        let pem = ca().sign(&wish(), "u1", now(), DAY * 365).expect("signed");
        let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).expect("PEM");
        let not_after = block.parse_x509().expect("a certificate").validity().not_after.timestamp();
        assert_eq!(not_after, "2030-06-01T00:00:00Z".parse::<Timestamp>().expect("a time").as_second());
    }

    #[test]
    fn a_request_with_an_invalid_signature_is_rejected() {
        // The signature is at the end; a flipped bit in it keeps the request well-formed.
        let mut wish = wish();
        let (_, block) = x509_parser::pem::parse_x509_pem(wish.pem.as_bytes()).expect("PEM");
        let mut der = block.contents;
        if let Some(last) = der.last_mut() {
            *last ^= 1;
        }
        wish.pem = pem_of(&der);
        assert!(ca().sign(&wish, "u1", now(), DAY).is_err());
    }

    fn pem_of(der: &[u8]) -> String {
        use k8s_openapi::ByteString;
        // serde is the base64 encoder at hand.
        let base64 = serde_json::to_value(ByteString(der.to_vec())).expect("text");
        let base64 = base64.as_str().expect("text").to_owned();
        format!("-----BEGIN CERTIFICATE REQUEST-----\n{base64}\n-----END CERTIFICATE REQUEST-----\n")
    }

    #[test]
    fn the_life_is_bounded_both_ways() {
        assert_eq!(life(None, DAY), DAY);
        assert_eq!(life(Some(3600), DAY), Duration::from_secs(3600));
        assert_eq!(life(Some(1), DAY), SHORTEST_LIFE);
        assert_eq!(life(Some(-5), DAY), DAY);
        assert_eq!(life(Some(i32::MAX), DAY), DAY);
    }

    #[test]
    fn an_invalid_authority_is_rejected_with_the_expected_form() {
        let (certificate, key) = authority(IsCa::Ca(BasicConstraints::Unconstrained));
        let (other_certificate, other_key) = authority(IsCa::ExplicitNoCa);
        let error = |certificate: &str, key: &str| {
            CaPair::from_pem(certificate, key).expect_err("refused").to_string()
        };
        assert!(error(&certificate, "nonsense").starts_with("CA key: expected one private key"));
        assert!(error("nonsense", &key).starts_with("CA certificate: expected one X.509"));
        assert!(error(&other_certificate, &other_key).contains("may sign"));
        assert!(error(&certificate, &other_key).contains("belongs to"));
    }

    #[test]
    fn the_key_is_not_shown() {
        assert!(!format!("{:?}", ca()).to_lowercase().contains("key"));
    }
}
