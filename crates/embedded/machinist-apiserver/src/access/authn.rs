//! Who is asking: identities, client certificates, bootstrap tokens and tokens of ServiceAccounts.
//!
//! One code path for HTTPS and in-process callers. What somebody may do is decided elsewhere (`authz`).

use crate::values::identity::Identity;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;

use crate::access::keys::Keys;
use crate::access::tokens;
use crate::store::key::Key;
use crate::store::mvcc::Store;
use crate::values::object;
use crate::values::status::{ApiError, ApiResult};
use crate::values::tls::PresentedCertificate;

/// Group of everyone who authenticated with a bootstrap token.
const BOOTSTRAPPERS: &str = "system:bootstrappers";
/// Type of the Secrets that are bootstrap tokens.
const TOKEN_TYPE: &str = "bootstrap.kubernetes.io/token";

/// How a handle presents itself.
#[derive(Clone)]
pub(crate) enum Credentials {
    /// The handle's maker vouches.
    Trusted(Arc<Identity>),
    /// A client certificate, which must be valid at each request, and the `Authorization` header if there is none.
    Presented { certificate: Option<Arc<PresentedCertificate>>, bearer: Option<Arc<str>> },
}

impl fmt::Debug for Credentials {
    /// Without the secrets.
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

/// What authentication needs to know.
pub(crate) struct Authenticator<'a> {
    pub(crate) store: &'a Store,
    pub(crate) keys: &'a Keys,
    pub(crate) now: Timestamp,
}

impl Authenticator<'_> {
    /// Who the caller is; `None` for one who presents nothing to be known by, 401 for one whose credentials are no good.
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
            // A CA that cannot be made leaves nobody whose certificate could be verified.
            let ca = self.keys.ca().map_err(|e| ApiError::internal(e.to_string()))?;
            if let Some(identity) = ca.identify(certificate, self.now) {
                return Ok(Some(identity));
            }
        }
        // What is no text is a credential all the same, and no good one.
        let header =
            headers.get(http::header::AUTHORIZATION).map(|it| String::from_utf8_lossy(it.as_bytes()));
        let token = bearer.as_deref().or_else(|| header.as_deref().and_then(bearer_of));
        let known = token.and_then(|token| match tokens::looks_like_one(token) {
            // Only a token that was made for this server lets in here.
            true => tokens::identify(self.store, self.keys, self.now, token, &[tokens::ISSUER])
                .ok()
                .map(|(identity, _)| identity),
            false => self.bootstrap_token(token),
        });
        match known {
            Some(identity) => Ok(Some(Arc::new(identity))),
            None if certificate.is_none() && token.is_none() => Ok(None),
            None => Err(ApiError::unauthorized()),
        }
    }

    /// The identity behind `id.secret`, if such a token exists, is meant for authentication and has not expired.
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

/// A value of a Secret's data, decoded.
fn data(secret: &Value, key: &str) -> Option<String> {
    let encoded = secret.get("data")?.get(key)?.as_str()?;
    String::from_utf8(STANDARD.decode(encoded).ok()?).ok()
}

/// Compares without telling by its duration how far the texts agree.
fn same_secret(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |acc, (a, b)| acc | (a ^ b)) == 0
}
