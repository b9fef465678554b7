//! What a driver is asked to make, and with whose credential.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::{InstanceKey, NodeName};

/// Everything a driver needs to make one instance.
#[derive(Debug, Clone)]
pub struct InstanceSpec {
    /// Makes creation idempotent: one instance per key, for ever.
    pub key: InstanceKey,
    /// The name it boots with and registers under.
    pub name: NodeName,
    /// Which installation it belongs to; [`crate::Scope::Ours`] lists by it.
    pub cluster: String,
    /// The cloud's own description of it, as the user wrote it; the driver parses and validates it.
    pub provider_spec: Value,
    /// What it boots from. May hold a bootstrap token.
    pub user_data: UserData,
    /// Kept beside the instance.
    pub tags: BTreeMap<String, String>,
    /// An instance of this name, without a key, made at or after this moment, was made for the same purpose by
    /// another program: `ensure` tags it with the key and returns it. `None` adopts nothing.
    pub adopt_made_since: Option<Timestamp>,
}

/// What an instance boots from. It holds secrets, so it neither prints nor compares.
#[derive(Clone, Default)]
pub struct UserData(Vec<u8>);

impl UserData {
    /// Wraps the bytes that the instance will see.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes, for the request to the cloud and nothing else.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserData({} bytes)", self.0.len())
    }
}

/// What opens a cloud account: the data of the Secrets that a class refers to. It neither prints nor compares.
#[derive(Clone, Default)]
pub struct Credential(BTreeMap<String, Vec<u8>>);

impl Credential {
    /// Wraps the data of a Secret.
    pub fn new(data: BTreeMap<String, Vec<u8>>) -> Self {
        Self(data)
    }

    /// One entry as text, if it is there and valid UTF-8.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(|bytes| std::str::from_utf8(bytes).ok())
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Names one cloud account: limits, pools and proofs of ownership are kept per account.
///
/// The name is a truncated SHA-256, so it may be written on API objects: the credential cannot be read from it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountId(Arc<str>);

/// Separates these hashes from every other use of SHA-256 on the same bytes.
const ACCOUNT_DOMAIN: &str = "machinist.dev/account/v1";
/// Bytes of the hash that are kept: no two accounts of one installation share them by chance.
const ACCOUNT_BYTES: usize = 12;

impl AccountId {
    /// Names an account by the parts that lead to it: the provider, then the endpoint and the entries of the credential that open
    /// the account, or the cloud's own id of the project. The same parts give the same name in every process.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hash = Sha256::new();
        for part in std::iter::once(ACCOUNT_DOMAIN.as_bytes()).chain(parts) {
            // The length keeps ("ab", "c") apart from ("a", "bc").
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let hex = hash.finalize().into_iter().take(ACCOUNT_BYTES).map(|byte| format!("{byte:02x}"));
        Self(hex.collect::<String>().into())
    }

    /// The name as it was recorded on an object; empty text names no account.
    pub fn recorded(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(text.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_do_not_print() {
        let data = BTreeMap::from([("token".to_owned(), b"canary".to_vec())]);
        let printed = format!("{:?} {:?}", Credential::new(data), UserData::new(*b"canary"));
        assert_eq!(printed, r#"{"token"} UserData(6 bytes)"#);
    }

    #[test]
    fn an_account_is_named_by_each_of_its_parts_and_shows_none() {
        let named = |parts: &[&str]| AccountId::of(parts.iter().map(|part| part.as_bytes()));
        let name = named(&["sim", "cloud.example", "canary"]);
        assert_eq!(name, named(&["sim", "cloud.example", "canary"]));
        assert!(!name.to_string().contains("canary"));
        assert_eq!(name.as_str().len(), 2 * ACCOUNT_BYTES);
        for other in [["sim", "cloud.example", "rotated"], ["sim", "cloud.examplec", "anary"]] {
            assert_ne!(name, named(&other), "{other:?}");
        }
        assert_eq!(AccountId::recorded(name.as_str()), Some(name));
        assert_eq!(AccountId::recorded(""), None);
    }
}
