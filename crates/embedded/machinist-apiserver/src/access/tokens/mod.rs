//! ServiceAccount tokens: signed claims with the account, the expiry and the bound object.
//!
//! A token is valid until it expires, as long as its account and its bound object still exist with
//! the same uid. The server checks this on every request, so a token is invalid as soon as either
//! object is gone, or a minute after it was marked for deletion. (kube-apiserver caches a result
//! for seconds.)
//!
//! Tokens are signed with ES256 through `ring`. Tokens and keys are never logged.

pub(crate) mod discovery;

use crate::values::token_key::TokenKey;
use crate::values::token_key::TokenKeyError;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::access::keys::Keys;
use crate::store::mvcc::Store;
use crate::values::identity::{CREDENTIAL_ID, Identity, account_groups};
use crate::values::key::Key;
use crate::values::object::{self, Object};

/// Issuer of the tokens, and the audience of tokens for this server.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc";

pub(crate) const PRIVATE: &str = "kubernetes.io";
/// Maximum length of a token. Longer tokens are rejected unread.
const MAX_LENGTH: usize = 16 * 1024;
/// A token stays valid for this time after its account or bound object is marked for deletion, as
/// that object may exist for longer.
const DELETION_LEEWAY_SECONDS: i64 = 60;

/// Reason why a token is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rejected {
    Invalid,
    /// The token is valid, but for these audiences.
    OtherAudience(Vec<String>),
}

/// Reports whether a bearer token has the form of a signed token.
pub(crate) fn has_token_format(token: &str) -> bool {
    token.split('.').count() == 3
}

/// Signs `claims`.
pub(crate) fn sign(key: &TokenKey, claims: &Value) -> Result<String, TokenKeyError> {
    let header = json!({"alg": "ES256", "kid": key.id()});
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&header), part(claims));
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes())?);
    Ok(format!("{signed}.{signature}"))
}

/// Returns the claims of a token that `key` signed.
fn verified(key: &TokenKey, token: &str) -> Option<Value> {
    if MAX_LENGTH < token.len() {
        return None;
    }
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, claims) = signed.split_once('.')?;
    let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
    let header: Value = serde_json::from_slice(&decoded(header)?).ok()?;
    // The algorithm in the token is only checked, never followed.
    if header["alg"] != "ES256" || header["kid"] != key.id() {
        return None;
    }
    key.verifies(signed.as_bytes(), &decoded(signature)?)
        .then(|| serde_json::from_slice(&decoded(claims)?).ok())
        .flatten()
}

/// Returns the identity of the token's account, and the matching audience of `wanted`.
pub(crate) fn identify(
    store: &Store,
    keys: &Keys,
    now: Timestamp,
    token: &str,
    wanted: &[&str],
) -> Result<(Identity, Vec<String>), Rejected> {
    let key = keys.token_key().map_err(|_| Rejected::Invalid)?;
    let claims = verified(key, token).ok_or(Rejected::Invalid)?;
    if claims["iss"] != ISSUER {
        return Err(Rejected::Invalid);
    }
    let audiences: Vec<String> = claims["aud"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|audience| audience.as_str().map(str::to_owned))
        .collect();
    let shared: Vec<String> =
        audiences.iter().filter(|audience| wanted.contains(&audience.as_str())).cloned().collect();
    if shared.is_empty() {
        return Err(Rejected::OtherAudience(audiences));
    }
    let identity = holder(store, &claims, now).ok_or(Rejected::Invalid)?;
    Ok((identity, shared))
}

/// Returns the account in the claims, if the account and the bound object still have the same uid.
fn holder(store: &Store, claims: &Value, now: Timestamp) -> Option<Identity> {
    let second = |claim: &str| claims[claim].as_i64();
    if now.as_second() < second("nbf")? || second("exp")? <= now.as_second() {
        return None;
    }
    let private = &claims[PRIVATE];
    let namespace = private["namespace"].as_str()?;
    let (name, uid) = (
        private.pointer("/serviceaccount/name")?.as_str()?,
        private.pointer("/serviceaccount/uid")?.as_str()?,
    );
    if claims["sub"] != account_user(namespace, name) {
        return None;
    }
    still_there(store, "serviceaccounts", namespace, name, uid, now)?;
    let mut extra = BTreeMap::new();
    let known = "authentication.kubernetes.io";
    for (kind, collection) in [("pod", "pods"), ("secret", "secrets"), ("node", "nodes")] {
        let Some(bound) = private.get(kind) else { continue };
        let (name, uid) = (bound["name"].as_str()?, bound["uid"].as_str()?);
        // The node of a bound pod is informative. The token is not bound to it.
        let is_bound = kind != "node" || private.get("pod").is_none();
        if is_bound {
            let within = if kind == "node" { "" } else { namespace };
            still_there(store, collection, within, name, uid, now)?;
        }
        if kind != "secret" {
            extra.insert(format!("{known}/{kind}-name"), vec![name.to_owned()]);
            extra.insert(format!("{known}/{kind}-uid"), vec![uid.to_owned()]);
        }
    }
    if let Some(id) = claims["jti"].as_str() {
        extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
    }
    let groups = account_groups(namespace);
    Some(Identity { uid: uid.to_owned(), extra, ..Identity::new(account_user(namespace, name), groups) })
}

/// Name of a ServiceAccount's user.
pub(crate) fn account_user(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// Returns the object, if it still has this uid and was not deleted too long ago.
fn still_there(
    store: &Store,
    collection: &str,
    namespace: &str,
    name: &str,
    uid: &str,
    now: Timestamp,
) -> Option<std::sync::Arc<Object>> {
    let held = store.get_shown(collection, &Key::new(namespace, name)).filter(|held| held.uid() == uid)?;
    let deleted: Option<Timestamp> = object::meta_str(held.value(), "deletionTimestamp").parse().ok();
    let over = deleted.is_some_and(|at| at.as_second() + DELETION_LEEWAY_SECONDS <= now.as_second());
    (!over).then_some(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tokens_that_the_key_signed_are_accepted() {
        let key = TokenKey::generate().expect("a key");
        let token = sign(&key, &json!({"sub": "a"})).expect("signed");
        assert_eq!(verified(&key, &token), Some(json!({"sub": "a"})));
        let other = TokenKey::generate().expect("a key");
        assert_eq!(verified(&other, &token), None);
        let (signed, signature) = token.rsplit_once('.').expect("three parts");
        let (header, _) = signed.split_once('.').expect("three parts");
        let forged = URL_SAFE_NO_PAD.encode(json!({"sub": "b"}).to_string());
        assert_eq!(verified(&key, &format!("{header}.{forged}.{signature}")), None);
        let unsigned = URL_SAFE_NO_PAD.encode(json!({"alg": "none", "kid": key.id()}).to_string());
        assert_eq!(verified(&key, &format!("{unsigned}.{forged}.")), None);
        for nonsense in ["..", "a.b.c", "", "a"] {
            assert_eq!(verified(&key, nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_key_round_trips_through_pem() {
        let key = TokenKey::generate().expect("a key");
        let read = TokenKey::from_pem(key.pem()).expect("the same key");
        let token = sign(&key, &json!({"sub": "a"})).expect("signed");
        assert_eq!(verified(&read, &token), Some(json!({"sub": "a"})));
        assert!(!format!("{key:?}").contains("PRIVATE"));
        assert!(TokenKey::from_pem("nonsense").is_err());
    }
}
