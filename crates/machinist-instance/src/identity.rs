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

/// A cloud's own identity for an instance, in the form `scheme://rest` that `spec.providerID` of Nodes and
/// Machines uses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProviderId(String);

impl ProviderId {
    /// Parses `scheme://rest`.
    ///
    /// # Errors
    /// When the scheme or the rest is empty or `://` is missing.
    pub fn parse(text: &str) -> Result<Self, IdentityError> {
        match text.split_once("://") {
            Some((scheme, rest)) if !scheme.is_empty() && !rest.trim_matches('/').is_empty() => {
                Ok(Self(text.to_owned()))
            }
            _ => Err(IdentityError {
                what: "provider id",
                given: text.to_owned(),
                expected: "scheme://identity, for example sim:///i-1",
            }),
        }
    }

    /// The part before `://`.
    pub fn scheme(&self) -> &str {
        self.0.split_once("://").map_or("", |(scheme, _)| scheme)
    }

    /// The part after `://`, without leading slashes.
    pub fn identity(&self) -> &str {
        self.0.split_once("://").map_or("", |(_, rest)| rest.trim_start_matches('/'))
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
    fn a_provider_id_needs_a_scheme_and_an_identity() {
        let id = ProviderId::parse("fast:///w-1").expect("this is how drivers write it");
        assert_eq!((id.scheme(), id.identity()), ("fast", "w-1"));
        for bad in ["", "w-1", "fast://", "fast:///", "://w-1"] {
            let error = ProviderId::parse(bad).expect_err(bad).to_string();
            assert!(error.contains("expected scheme://identity"), "{error}");
        }
    }
}
