//! The common parts of the facts of all contracts.
//!
//! Facts are the content of one object, parsed once when the object enters a store. They hold the
//! fields that planners use, typed. They also hold the raw values that guards must repeat, because
//! a JSON patch `test` distinguishes an absent field from an empty one. They hold no secret, and no
//! resourceVersion that a planner compares.
//!
//! The kinds of a contract are in its own folder: `mcm/facts`, `ccm/facts`, `capi/facts`.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::Value;

/// Annotation of a Machine or Node: the account in which the instance was created, written together
/// with the provider id. A hash; see [`machinist_instance::AccountId`].
pub const ACCOUNT: &str = "machinist.dev/account";
/// Annotation of a Machine, in addition to [`ACCOUNT`]: the place of the instance, as
/// [`machinist_instance::Place`] spells it. It is absent if the provider id contains the place, and
/// if a cloud has only one.
pub const PLACE: &str = "machinist.dev/place";
/// Annotation of a Machine whose instance is not recorded yet: the account of the first call that
/// may create it. The bootstrap token has it in [`ACCOUNT`]; this is for a Machine without a token.
pub const INTENDED_ACCOUNT: &str = "machinist.dev/intended-account";
/// Annotation of a Machine, in addition to [`INTENDED_ACCOUNT`]: the place of that call.
pub const INTENDED_PLACE: &str = "machinist.dev/intended-place";
/// Annotation of a bootstrap token: the key scope of the first call that may create the instance,
/// as [`machinist_instance::KeyScope`] spells it. It is absent if a key counts in the whole place.
pub const KEY_SCOPE: &str = "machinist.dev/key-scope";
/// Annotation of a Machine whose instance is not recorded yet: the key scope of the last call that
/// may create it, for a Machine without a token with [`KEY_SCOPE`], or if a user edited the class
/// after the token was created.
pub const INTENDED_KEY_SCOPE: &str = "machinist.dev/intended-key-scope";
/// Annotation of a deleted Machine, and of a Service without a wanted load balancer: when a process
/// found first that it must wait for the calls of earlier processes. Later processes count from
/// this time and not from their own start.
pub const EARLIER_CALLS_SINCE: &str = "machinist.dev/earlier-calls-since";

/// The version of an object from which facts were read. Versions can only be compared for equality.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Version(u64);

impl Version {
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        Self(metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default())
    }
}

/// The resourceVersion, for preconditions.
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A part of an object as it was read, which guards and copies must repeat: compact JSON. The part
/// is stored for hours without a use, and a parsed value takes several times the memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RawJson(Box<str>);

impl RawJson {
    pub(crate) fn of(part: &impl Serialize) -> Option<Self> {
        serde_json::to_string(part).ok().map(|text| Self(text.into()))
    }

    /// Returns the parsed part.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

/// A resourceVersion as text. Planners pass it on to the precondition of a DELETE, and never
/// compare it.
#[derive(Clone, Default)]
pub struct RawVersion(Box<str>);

impl RawVersion {
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        Self(metadata.resource_version.clone().unwrap_or_default().into())
    }

    /// The text for the precondition of a DELETE; empty if the object had no resourceVersion.
    pub fn as_precondition(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for RawVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Parses the annotation [`EARLIER_CALLS_SINCE`] of an object that is being deleted. A time before
/// the deletion belongs to a copied annotation.
pub(crate) fn recorded_wait(recorded: &str, deleting_since: Option<Timestamp>) -> Option<Timestamp> {
    let recorded: Timestamp = recorded.parse().ok()?;
    Some(recorded.max(deleting_since?))
}

/// Implements `Hash` by version. Facts are equal if they have the same version, because a cluster
/// uses each version once.
macro_rules! hash_by_version {
    ($($facts:ty),*) => {
        $(impl ::std::hash::Hash for $facts {
            fn hash<H: ::std::hash::Hasher>(&self, state: &mut H) {
                self.version.hash(state);
            }
        })*
    };
}

pub(crate) use hash_by_version;
