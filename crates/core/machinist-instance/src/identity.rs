//! Types for names and identities. Each text is parsed once, where it enters the program.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An identity that could not be parsed. The message contains the given and the expected text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {given:?}: expected {expected}")]
pub struct IdentityError {
    /// The sort of identity, for example `provider id`.
    pub what: &'static str,
    /// The given text.
    pub given: String,
    /// A description of the accepted texts.
    pub expected: &'static str,
}

/// The cloud's own identity of an instance, as in `spec.providerID` of Nodes and Machines.
///
/// Every text except the empty one is valid. Most clouds write `scheme://identity`, and some write
/// a bare name. Only the provider knows the form of its ids, so no other code checks it: see
/// [`RecordedId`].
///
/// ```
/// use machinist_instance::ProviderId;
///
/// let id = ProviderId::parse("aws:///eu-west-1/i-0a1b2c")?;
/// assert_eq!((id.scheme(), id.identity()), ("aws", "eu-west-1/i-0a1b2c"));
///
/// // Some clouds write a bare name.
/// let bare = ProviderId::parse("machine-workers-1")?;
/// assert_eq!((bare.scheme(), bare.identity()), ("", "machine-workers-1"));
///
/// assert!(ProviderId::parse("").is_err());
/// # Ok::<(), machinist_instance::IdentityError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProviderId(String);

impl ProviderId {
    /// Wraps the text without changing it.
    ///
    /// # Errors
    /// If the text is empty.
    pub fn parse(text: &str) -> Result<Self, IdentityError> {
        if text.is_empty() {
            return Err(IdentityError {
                what: "provider id",
                given: text.to_owned(),
                expected: "a text that is not empty, for example sim:///i-1",
            });
        }
        Ok(Self(text.to_owned()))
    }

    /// The part before `://`; empty if the id has no scheme.
    pub fn scheme(&self) -> &str {
        self.0.split_once("://").map_or("", |(scheme, _)| scheme)
    }

    /// The part after `://`, without leading slashes; the whole text if the id has no scheme.
    pub fn identity(&self) -> &str {
        self.0.split_once("://").map_or(&self.0, |(_, rest)| rest.trim_start_matches('/'))
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ProviderId {
    type Error = IdentityError;
    fn try_from(text: String) -> Result<Self, IdentityError> {
        Self::parse(&text)
    }
}

impl From<ProviderId> for String {
    fn from(id: ProviderId) -> Self {
        id.0
    }
}

impl fmt::Display for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text of a `spec.providerID`, as the provider classifies it.
///
/// Every text except the empty one records an instance that exists or existed. If the provider
/// cannot read the record, the controller neither creates nor deletes an instance for it, because
/// the record does not identify one.
///
/// ```
/// use machinist_instance::RecordedId;
///
/// assert_eq!(RecordedId::any(""), RecordedId::Unset);
/// let recorded = RecordedId::any("sim:///workers-1");
/// assert_eq!(recorded.ours().map(|id| id.as_str()), Some("sim:///workers-1"));
///
/// let foreign = RecordedId::NotOurs { expected: "sim:///IDENTITY".to_owned() };
/// assert_eq!(foreign.ours(), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RecordedId {
    /// The text is empty: no instance is recorded.
    Unset,
    /// An id of this provider.
    Ours(ProviderId),
    /// An id in the form of another cloud.
    NotOurs {
        /// The form of this provider's ids.
        expected: String,
    },
    /// An incomplete id of this provider, or a text that is not an id of any cloud.
    Malformed {
        /// The form of this provider's ids.
        expected: String,
    },
}

impl RecordedId {
    /// Accepts every text except the empty one as an id of the calling provider.
    pub fn any(text: &str) -> Self {
        ProviderId::parse(text).map_or(Self::Unset, Self::Ours)
    }

    /// The id, if it belongs to this provider.
    pub fn ours(&self) -> Option<&ProviderId> {
        match self {
            Self::Ours(id) => Some(id),
            Self::Unset | Self::NotOurs { .. } | Self::Malformed { .. } => None,
        }
    }
}

/// The key that identifies an instance before the cloud's own id is known.
///
/// The core chooses the key (the UID of a Machine), and the cloud stores it as a tag or a client
/// token. A key is never reused.
///
/// ```
/// use machinist_instance::InstanceKey;
///
/// let key = InstanceKey::new("7ece3c7f-0388-476c-b336-c09b9c9745d4");
/// assert_eq!(key.to_string(), key.as_str());
/// assert_ne!(key, InstanceKey::new("afc3b9cd-c170-421b-b805-221992a6f233"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InstanceKey(String);

impl InstanceKey {
    /// Wraps an identity that always stays unique, such as the UID of an API object.
    pub fn new(unique: impl Into<String>) -> Self {
        Self(unique.into())
    }

    /// The text as it is stored in the cloud.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InstanceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The cloud's internal id of an object, which it never gives to another object, such as the id of
/// a container. The provider id may be a name that the cloud gives out again.
///
/// A controller records the native id on its own API object. The API object may receive another UID
/// (`clusterctl move`, a restored backup). If the cloud cannot change keys, this record is then the
/// proof of ownership: an object with another key belongs to the caller only if it has this id.
///
/// ```
/// use machinist_instance::NativeId;
///
/// let id = NativeId::new("4f53cda18c2b").expect("not empty");
/// assert_eq!((id.as_str(), id.to_string()), ("4f53cda18c2b", "4f53cda18c2b".to_owned()));
/// assert_eq!(NativeId::new(""), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NativeId(String);

impl NativeId {
    /// Wraps an id. Returns `None` for an empty text.
    pub fn new(id: impl Into<String>) -> Option<Self> {
        let id = id.into();
        (!id.is_empty()).then_some(Self(id))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NativeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name with which the kubelet of an instance registers its Node.
///
/// ```
/// use machinist_instance::NodeName;
///
/// let name = NodeName::new("workers-1").expect("not empty");
/// assert_eq!((name.as_str(), name.to_string()), ("workers-1", "workers-1".to_owned()));
/// assert_eq!(NodeName::new(""), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeName(String);

impl NodeName {
    /// Wraps a name. Returns `None` for an empty name.
    pub fn new(name: impl Into<String>) -> Option<Self> {
        let name = name.into();
        (!name.is_empty()).then_some(Self(name))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_id_is_any_nonempty_text() {
        let parts = |text| {
            let id = ProviderId::parse(text).expect("a provider id in the form of some cloud");
            (id.scheme().to_owned(), id.identity().to_owned())
        };
        assert_eq!(parts("fast:///w-1"), ("fast".to_owned(), "w-1".to_owned()));
        assert_eq!(parts("machine-w-1"), (String::new(), "machine-w-1".to_owned()));
        assert_eq!(parts("fast://"), ("fast".to_owned(), String::new()));
        let error = ProviderId::parse("").expect_err("empty").to_string();
        assert!(error.contains("expected a text that is not empty"), "{error}");
    }

    #[test]
    fn only_the_empty_text_is_unset() {
        assert_eq!(RecordedId::any(""), RecordedId::Unset);
        for text in ["machine-w-1", "fast://", " "] {
            assert_eq!(RecordedId::any(text).ours().map(ProviderId::as_str), Some(text));
        }
    }
}
