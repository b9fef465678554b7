//! Authentication: identities, client certificates, bootstrap tokens and ServiceAccount tokens.
//!
//! HTTPS and in-process callers share one code path. The `authz` module decides what a user may do.

use crate::values::identity::Identity;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;

use crate::access::keys::Keys;
use crate::access::tokens;
use crate::store::mvcc::Store;
use crate::values::key::Key;
use crate::values::object;
use crate::values::status::{ApiError, ApiResult};
use crate::values::tls::PresentedCertificate;

/// Group of every user who authenticates with a bootstrap token.
const BOOTSTRAPPERS: &str = "system:bootstrappers";
/// Type of the Secrets that are bootstrap tokens.
const TOKEN_TYPE: &str = "bootstrap.kubernetes.io/token";

/// Credentials that a handle uses for its requests.
#[derive(Clone)]
pub(crate) enum Credentials {
    /// The code that created the handle vouches for this identity.
    Trusted(Arc<Identity>),
    /// A client certificate, which must be valid at each request, and a bearer token. If `bearer`
    /// is `None`, the server reads the `Authorization` header instead.
    Presented { certificate: Option<Arc<PresentedCertificate>>, bearer: Option<Arc<str>> },
}

impl fmt::Debug for Credentials {
    /// Formats the credentials without their secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Credentials::Trusted(identity) => f.debug_tuple("Trusted").field(&identity.user).finish(),
            Credentials::Presented { certificate, bearer } => f
                .debug_struct("Presented")
                .field("certificate", &certificate.is_some())
                .field("bearer", &bearer.is_some())
                .finish(),
        }
    }
}

/// Checks the credentials of one request.
pub(crate) struct Authenticator<'a> {
    pub(crate) store: &'a Store,
    pub(crate) keys: &'a Keys,
    pub(crate) now: Timestamp,
}

impl Authenticator<'_> {
    /// Returns the caller's identity, or `None` for a request without credentials. Invalid
    /// credentials get a 401.
    pub(crate) fn authenticate(
        &self,
        credentials: &Credentials,
        headers: &http::HeaderMap,
    ) -> ApiResult<Option<Arc<Identity>>> {
        let (certificate, bearer) = match credentials {
            Credentials::Trusted(identity) => return Ok(Some(identity.clone())),
            Credentials::Presented { certificate, bearer } => (certificate, bearer),
        };
        if let Some(certificate) = certificate {
            // Without a CA, the server cannot verify any client certificate.
            let ca = self.keys.ca().map_err(|e| ApiError::internal(e.to_string()))?;
            if let Some(identity) = ca.identify(certificate, self.now) {
                return Ok(Some(identity));
            }
        }
        // A header that is not UTF-8 still counts as a credential, and as an invalid one.
        let header =
            headers.get(http::header::AUTHORIZATION).map(|header| String::from_utf8_lossy(header.as_bytes()));
        let token = bearer.as_deref().or_else(|| header.as_deref().and_then(bearer_of));
        let known = token.and_then(|token| {
            if tokens::has_token_format(token) {
                // A token must be issued for this server's audience.
                tokens::identify(self.store, self.keys, self.now, token, &[tokens::ISSUER])
                    .ok()
                    .map(|(identity, _)| identity)
            } else {
                self.bootstrap_token(token)
            }
        });
        match known {
            Some(identity) => Ok(Some(Arc::new(identity))),
            None if certificate.is_none() && token.is_none() => Ok(None),
            None => Err(ApiError::unauthorized()),
        }
    }

    /// Returns the identity behind `id.secret` if that token exists, allows authentication and has
    /// not expired.
    pub(crate) fn bootstrap_token(&self, token: &str) -> Option<Identity> {
        let (id, secret) = token.split_once('.')?;
        let plain = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if id.len() != 6 || secret.len() != 16 || !plain(id) || !plain(secret) {
            return None;
        }
        let held =
            self.store.get_shown("secrets", &Key::new("kube-system", &format!("bootstrap-token-{id}")))?;
        let held = held.value();
        if held.get("type")? != TOKEN_TYPE || object::is_deleting(held) {
            return None;
        }
        if data(held, "token-id")? != id || !same_secret(&data(held, "token-secret")?, secret) {
            return None;
        }
        if let Some(expiration) = data(held, "expiration").filter(|e| !e.is_empty()) {
            let expires: Timestamp = expiration.parse().ok()?;
            if expires <= self.now {
                return None;
            }
        }
        if data(held, "usage-bootstrap-authentication")? != "true" {
            return None;
        }
        let mut groups = vec![BOOTSTRAPPERS.to_owned()];
        let extra = data(held, "auth-extra-groups").unwrap_or_default();
        for group in extra.split(',').filter(|g| !g.is_empty()) {
            group.strip_prefix("system:bootstrappers:").filter(|rest| !rest.is_empty())?;
            groups.push(group.to_owned());
        }
        Some(Identity::new(format!("system:bootstrap:{id}"), groups))
    }
}

fn bearer_of(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Returns one value of a Secret's data, decoded.
fn data(secret: &Value, key: &str) -> Option<String> {
    let encoded = secret.get("data")?.get(key)?.as_str()?;
    String::from_utf8(STANDARD.decode(encoded).ok()?).ok()
}

/// Compares in a time that does not reveal how many characters match.
fn same_secret(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |acc, (a, b)| acc | (a ^ b)) == 0
}
