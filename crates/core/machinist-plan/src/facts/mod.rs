//! Facts: the content of one object, parsed once when the object enters a store.
//!
//! Facts hold the fields that planners use, typed. They also hold the raw values that guards must
//! repeat, because a JSON patch `test` distinguishes an absent field from an empty one. They hold
//! no secret, and no resourceVersion that a planner compares.

use std::fmt;
use std::hash::{Hash, Hasher};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

mod attachment;
mod capi;
mod class;
mod cloud_node;
mod freeze;
pub(crate) mod generated;
mod machine;
mod machine_deployment;
mod machine_set;
mod node;
mod pod;
mod service;
mod token;

pub use attachment::AttachmentFacts;
pub(crate) use capi::LONGEST_MESSAGE_ID;
pub use capi::{
    ClusterFacts, CoreMachineFacts, DockerClusterFacts, DockerMachineFacts, MailRequestFacts,
    MailgunClusterFacts, MailgunMachineFacts, ObjectFacts,
};
pub use class::{ClassFacts, SecretFacts, TOKEN_PLACEHOLDER, TOKEN_PLACEHOLDER_ENCODED, USER_DATA};
pub use cloud_node::{CloudNodeFacts, NodeConditionFacts, RawVersion};
pub use freeze::{FreezeFacts, FrozenCondition};
pub use machine::{
    ACCOUNT, ConditionFacts, DELETION_HELD, EARLIER_CALLS_SINCE, MachineFacts, OwnerFacts, Preserved,
    PreservedBy, ReadPhase, StatusFacts,
};
pub use machine_deployment::MachineDeploymentFacts;
pub use machine_set::MachineSetFacts;
pub use node::{NODE_MARK, NodeFacts, NodeMark};
pub(crate) use pod::selects;
pub use pod::{BudgetFacts, PodFacts};
pub use service::{BalancerRecord, ServiceFacts, ServicePortFacts};
pub use token::{
    TOKEN_NAMESPACE, TOKEN_OWNER, TOKEN_TYPE, Token, TokenFacts, description as token_description,
    legacy_token_id, token_id,
};

/// The version of an object from which facts were read. Versions can only be compared for equality.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Version(u64);

impl Version {
    fn of(metadata: &ObjectMeta) -> Self {
        Self(metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default())
    }
}

/// The resourceVersion, for preconditions.
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Parses the annotation [`EARLIER_CALLS_SINCE`] of an object that is being deleted. A time before
/// the deletion belongs to a copied annotation.
fn recorded_wait(recorded: &str, deleting_since: Option<Timestamp>) -> Option<Timestamp> {
    let recorded: Timestamp = recorded.parse().ok()?;
    Some(recorded.max(deleting_since?))
}

/// Implements `Hash` by version. Facts are equal if they have the same version, because a cluster
/// uses each version once.
macro_rules! hash_by_version {
    ($($facts:ty),*) => {
        $(impl Hash for $facts {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.version.hash(state);
            }
        })*
    };
}

hash_by_version!(
    AttachmentFacts,
    BudgetFacts,
    ClassFacts,
    CloudNodeFacts,
    MachineDeploymentFacts,
    MachineFacts,
    MachineSetFacts,
    NodeFacts,
    PodFacts,
    SecretFacts,
    ServiceFacts,
    TokenFacts
);
