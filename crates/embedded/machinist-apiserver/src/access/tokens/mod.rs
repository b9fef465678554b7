//! Tokens of ServiceAccounts: signed claims that say whose they are, until when, and what they are bound to.
//!
//! A token lets in as long as it is not expired and its account, and what it is bound to, are still the same objects: that is looked up
//! each time, so deleting one of them ends it at once. (kube-apiserver remembers an answer for seconds.)
//!
//! Signed with ES256 over `ring`. Tokens and keys are never logged.

pub(crate) mod discovery;

use crate::values::token_key::TokenKey;
use crate::values::token_key::TokenKeyError;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::access::keys::Keys;
use crate::store::key::Key;
use crate::store::mvcc::Store;
use crate::values::identity::{CREDENTIAL_ID, Identity, account_groups};
use crate::values::object::{self, Object};

/// Who issues tokens, and the audience of those that are for this server.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc";

pub(crate) const PRIVATE: &str = "kubernetes.io";
/// Longest token that is looked at.
const MAX_LENGTH: usize = 16 * 1024;
/// A deleted account's or object's token lives this much longer, as the object itself may.
const DELETION_LEEWAY_SECONDS: i64 = 60;

/// Why a token lets nobody in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rejected {
    Invalid,
    /// It is good, but for these audiences.
    OtherAudience(Vec<String>),
}

/// Whether a bearer token has the form of a signed one.
pub(crate) fn looks_like_one(token: &str) -> bool {
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

/// The claims of a token that `key` signed.
fn verified(key: &TokenKey, token: &str) -> Option<Value> {
    if MAX_LENGTH < token.len() {
        return None;
    }
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, claims) = signed.split_once('.')?;
    let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
    let header: Value = serde_json::from_slice(&decoded(header)?).ok()?;
    // What a token says of its own algorithm is never followed, only checked.
    if header["alg"] != "ES256" || header["kid"] != key.id() {
        return None;
    }
    key.verifies(signed.as_bytes(), &decoded(signature)?)
        .then(|| serde_json::from_slice(&decoded(claims)?).ok())
        .flatten()
}

/// Whose the token is, and for which of the `wanted` audiences.
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
    let shared: Vec<String> = audiences.iter().filter(|it| wanted.contains(&it.as_str())).cloned().collect();
    if shared.is_empty() {
        return Err(Rejected::OtherAudience(audiences));
    }
    let identity = holder(store, &claims, now).ok_or(Rejected::Invalid)?;
    Ok((identity, shared))
}

/// The account that the claims name, if it and what the token is bound to still are what they were.
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
    for (kind, table) in [("pod", "pods"), ("secret", "secrets"), ("node", "nodes")] {
        let Some(bound) = private.get(kind) else { continue };
        let (name, uid) = (bound["name"].as_str()?, bound["uid"].as_str()?);
        // The node of a bound pod is told, not bound to.
        let is_bound = kind != "node" || private.get("pod").is_none();
        if is_bound {
            let within = if kind == "node" { "" } else { namespace };
            still_there(store, table, within, name, uid, now)?;
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

/// The user that a ServiceAccount is.
pub(crate) fn account_user(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// The object, if it is still the one with this uid and not long deleted.
fn still_there(
    store: &Store,
    table: &str,
    namespace: &str,
    name: &str,
    uid: &str,
    now: Timestamp,
) -> Option<std::sync::Arc<Object>> {
    let held = store.get_shown(table, &Key::new(namespace, name)).filter(|held| held.uid() == uid)?;
    let deleted: Option<Timestamp> = object::meta_str(held.value(), "deletionTimestamp").parse().ok();
    let over = deleted.is_some_and(|at| at.as_second() + DELETION_LEEWAY_SECONDS <= now.as_second());
    (!over).then_some(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_key_signed_is_believed() {
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
    fn a_key_survives_being_written_down() {
        let key = TokenKey::generate().expect("a key");
        let read = TokenKey::from_pem(key.pem()).expect("the same key");
        let token = sign(&key, &json!({"sub": "a"})).expect("signed");
        assert_eq!(verified(&read, &token), Some(json!({"sub": "a"})));
        assert!(!format!("{key:?}").contains("PRIVATE"));
        assert!(TokenKey::from_pem("nonsense").is_err());
    }
}
