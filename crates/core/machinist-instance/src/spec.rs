//! The input of a driver: the spec of an instance, and the credential of an account.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::identity::{InstanceKey, NodeName};

/// Everything that a driver needs to create one instance.
#[derive(Debug, Clone)]
pub struct InstanceSpec {
    /// The key that makes creation idempotent: at most one instance ever has it.
    pub key: InstanceKey,
    /// The name of the instance. In most clouds it is the host name, with which the kubelet
    /// registers the Node.
    pub name: NodeName,
    /// The installation to which the instance belongs. [`crate::Scope::Ours`] lists by this name.
    pub cluster: String,
    /// The provider spec as the user wrote it. The driver parses and validates it.
    pub provider_spec: Value,
    /// The user data, which may contain a bootstrap token.
    pub user_data: UserData,
    /// Tags that the cloud stores with the instance.
    pub tags: BTreeMap<String, String>,
    /// The annotations of the object's node template. Some clouds have options there, which belong
    /// to one object and not to its class.
    pub annotations: BTreeMap<String, String>,
    /// The earliest creation time of an instance that `ensure` may adopt. If an instance of this
    /// name has no key and was created at or after this time, another program created it for the
    /// same purpose: `ensure` tags it with the key and returns it. `None` adopts no instance.
    pub adopt_made_since: Option<Timestamp>,
    /// The text that the driver last returned with an error about this instance, see
    /// [`crate::Error::with_state`].
    pub last_known_state: Option<String>,
}

/// The user data of an instance. The data may contain secrets, so `Debug` prints only its length
/// and the type has no comparison.
///
/// ```
/// use machinist_instance::UserData;
///
/// let user_data = UserData::new(*b"token: s3cret");
/// assert_eq!(user_data.expose(), b"token: s3cret");
/// assert_eq!(format!("{user_data:?}"), "UserData(13 bytes)");
/// ```
#[derive(Clone, Default)]
pub struct UserData(Vec<u8>);

impl UserData {
    /// Wraps the bytes that the instance receives.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes. Use them only for the request to the cloud.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserData({} bytes)", self.0.len())
    }
}

/// The credential of a cloud account: the data of the Secrets that a class refers to. `Debug`
/// prints only the names of the entries, and the type has no comparison.
///
/// ```
/// use std::collections::BTreeMap;
/// use machinist_instance::Credential;
///
/// let data = BTreeMap::from([("token".to_owned(), b"s3cret".to_vec())]);
/// let credential = Credential::new(data);
/// assert_eq!(credential.text("token"), Some("s3cret"));
/// assert_eq!(credential.text("project"), None);
/// assert_eq!(format!("{credential:?}"), r#"{"token"}"#);
/// ```
#[derive(Clone, Default)]
pub struct Credential(BTreeMap<String, Vec<u8>>);

impl Credential {
    /// Wraps the data of a Secret.
    pub fn new(data: BTreeMap<String, Vec<u8>>) -> Self {
        Self(data)
    }

    /// One entry as text, if the entry exists and is valid UTF-8.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(|bytes| std::str::from_utf8(bytes).ok())
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The part of a cloud in which an instance is: a region, a zone, a resource group, a namespace, as
/// its provider writes it. One credential may open several places, and none of them shows the
/// instances of another one. The text is on API objects, so it contains no secret.
///
/// ```
/// use machinist_instance::Place;
///
/// assert_eq!(Place::new("eu-west-1").to_string(), "eu-west-1");
/// assert_eq!(Place::WHOLE, Place::new(""));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Place(Cow<'static, str>);

impl Place {
    /// The place of a cloud that shows all instances of an account together.
    pub const WHOLE: Self = Self(Cow::Borrowed(""));

    /// A place in the spelling of its provider.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Cow::Owned(text.into()))
    }

    /// The place as text; empty for the whole cloud.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The part of a place within which the cloud recognises a repeated creation, as its provider
/// writes it, for example a subnet. In another part, a request with the same key may create a
/// second instance. The text is on API objects, so it contains no secret.
///
/// ```
/// use machinist_instance::KeyScope;
///
/// assert_eq!(KeyScope::new("subnet-1").to_string(), "subnet-1");
/// assert_eq!(KeyScope::WHOLE, KeyScope::new(""));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct KeyScope(Cow<'static, str>);

impl KeyScope {
    /// The whole place: a key creates one instance in all of it.
    pub const WHOLE: Self = Self(Cow::Borrowed(""));

    /// A part of a place in the spelling of its provider.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Cow::Owned(text.into()))
    }

    /// The part as text; empty for the whole place.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a cloud account. Limits, pools and proofs of ownership are kept per account.
///
/// The name is a truncated SHA-256 hash. The credential cannot be derived from it, so the name may
/// be written on API objects.
///
/// ```
/// use machinist_instance::AccountId;
///
/// let account = AccountId::of([&b"sim"[..], b"http://127.0.0.1:7070", b"s3cret"]);
/// assert_eq!(account, AccountId::of([&b"sim"[..], b"http://127.0.0.1:7070", b"s3cret"]));
/// assert_ne!(account, AccountId::of([&b"sim"[..], b"http://127.0.0.1:7070", b"renewed"]));
/// assert_eq!(AccountId::recorded(account.as_str()), Some(account));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountId(Arc<str>);

/// Makes these hashes differ from every other SHA-256 hash of the same bytes.
const ACCOUNT_DOMAIN: &str = "machinist.dev/account/v1";
/// Number of bytes kept from the hash: enough to prevent collisions between the accounts of one
/// installation.
const ACCOUNT_BYTES: usize = 12;

impl AccountId {
    /// Computes the name from the parts that identify the account. The first part is the provider.
    /// The other parts are the cloud's own id of the project, or the endpoint and the entries of
    /// the credential that open the account. The same parts give the same name in every process.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hash = Sha256::new();
        for part in std::iter::once(ACCOUNT_DOMAIN.as_bytes()).chain(parts) {
            // With the length, ("ab", "c") and ("a", "bc") have different hashes.
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let hex = hash.finalize().into_iter().take(ACCOUNT_BYTES).map(|byte| format!("{byte:02x}"));
        Self(hex.collect::<String>().into())
    }

    /// Reads the name that was recorded on an object. Returns `None` for an empty text.
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
    fn debug_output_contains_no_secrets() {
        let data = BTreeMap::from([("token".to_owned(), b"canary".to_vec())]);
        let printed = format!("{:?} {:?}", Credential::new(data), UserData::new(*b"canary"));
        assert_eq!(printed, r#"{"token"} UserData(6 bytes)"#);
    }

    #[test]
    fn account_name_depends_on_all_parts_and_reveals_none() {
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
