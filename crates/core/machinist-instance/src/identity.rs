//! Names and identities, parsed once and typed ever after.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An identity that could not be parsed; names what was given and what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {given:?}: expected {expected}")]
pub struct IdentityError {
    /// Which identity was being parsed.
    pub what: &'static str,
    /// The text that was given.
    pub given: String,
    /// What would have been accepted.
    pub expected: &'static str,
}

/// A cloud's own identity for an instance, as `spec.providerID` of Nodes and Machines holds it.
///
/// Any text that is not empty. Most clouds write `scheme://identity`; some write a bare name. Only the provider knows what
/// its ids look like, so nothing else judges their form: see [`RecordedId`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProviderId(String);

impl ProviderId {
    /// Takes the text as it is.
    ///
    /// # Errors
    /// When it is empty.
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

    /// The part before `://`; empty where there is none.
    pub fn scheme(&self) -> &str {
        self.0.split_once("://").map_or("", |(scheme, _)| scheme)
    }

    /// The part after `://`, without leading slashes; the whole text where there is no scheme.
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

/// What a provider makes of the text of a `spec.providerID`.
///
/// Every text but the empty one is a record of an instance that exists or existed. For a record that the provider cannot
/// read, nothing is created and nothing is deleted: it is unknown which instance the record means.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RecordedId {
    /// Nothing is recorded.
    Unset,
    /// An id of this provider.
    Ours(ProviderId),
    /// A text that another cloud's ids look like.
    NotOurs {
        /// What an id of this provider looks like.
        expected: String,
    },
    /// A text that looks like an id of this provider and lacks a part, or like no id at all.
    Malformed {
        /// What an id of this provider looks like.
        expected: String,
    },
}

impl RecordedId {
    /// Takes every text but the empty one for an id of the provider that asks.
    pub fn any(text: &str) -> Self {
        ProviderId::parse(text).map_or(Self::Unset, Self::Ours)
    }

    /// The id, if it is one of this provider.
    pub fn ours(&self) -> Option<&ProviderId> {
        match self {
            Self::Ours(id) => Some(id),
            Self::Unset | Self::NotOurs { .. } | Self::Malformed { .. } => None,
        }
    }
}

/// How an instance is found before the cloud's own id is known: chosen by the core (a Machine's UID), stored by
/// the cloud as a tag or a client token, never reused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InstanceKey(String);

impl InstanceKey {
    /// Wraps an identity that is unique for ever, such as the UID of an API object.
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

/// The name that an instance's kubelet registers with.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeName(String);

impl NodeName {
    /// Wraps a name; empty names have no meaning and give `None`.
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
    fn a_provider_id_is_any_text_but_the_empty_one() {
        let parts = |text| {
            let id = ProviderId::parse(text).expect("this is how some cloud writes it");
            (id.scheme().to_owned(), id.identity().to_owned())
        };
        assert_eq!(parts("fast:///w-1"), ("fast".to_owned(), "w-1".to_owned()));
        assert_eq!(parts("machine-w-1"), (String::new(), "machine-w-1".to_owned()));
        assert_eq!(parts("fast://"), ("fast".to_owned(), String::new()));
        let error = ProviderId::parse("").expect_err("empty").to_string();
        assert!(error.contains("expected a text that is not empty"), "{error}");
    }

    #[test]
    fn only_the_empty_text_records_nothing() {
        assert_eq!(RecordedId::any(""), RecordedId::Unset);
        for text in ["machine-w-1", "fast://", " "] {
            assert_eq!(RecordedId::any(text).ours().map(ProviderId::as_str), Some(text));
        }
    }
}
