//! What a driver is asked to make, and with whose credential.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

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

/// Names one credential (`namespace/secret`, never its content): limits and pools are kept per account.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountId(pub String);

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
}
