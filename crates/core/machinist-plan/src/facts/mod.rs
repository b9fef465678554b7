//! What was read from one object, parsed once when it entered a store.
//!
//! Facts hold what planners use, typed, plus the raw values that guards must repeat (an absent field and an empty one
//! differ for a JSON patch `test`). They hold no secret, and no resourceVersion that a planner could read.

use std::hash::{Hash, Hasher};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

mod attachment;
mod class;
mod freeze;
mod machine;
mod machine_deployment;
mod machine_set;
mod node;
mod pod;
mod token;

pub use attachment::AttachmentFacts;
pub use class::{ClassFacts, SecretFacts, TOKEN_PLACEHOLDER, TOKEN_PLACEHOLDER_ENCODED, USER_DATA};
pub use freeze::{FreezeFacts, FrozenCondition};
pub use machine::{
    ACCOUNT, ConditionFacts, MachineFacts, OwnerFacts, Preserved, PreservedBy, ReadPhase, StatusFacts,
};
pub use machine_deployment::MachineDeploymentFacts;
pub use machine_set::{MachineSetFacts, RESERVED_NUMBERS};
pub use node::NodeFacts;
pub(crate) use pod::selects;
pub use pod::{BudgetFacts, PodFacts};
pub(crate) use token::fnv1a;
pub use token::{
    TOKEN_NAMESPACE, TOKEN_OWNER, TOKEN_TYPE, Token, TokenFacts, description as token_description,
    legacy_token_id, token_id,
};

/// Which version of an object facts are of. It tells one from another, and nothing else can be done with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Version(u64);

impl Version {
    fn of(metadata: &ObjectMeta) -> Self {
        Self(metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default())
    }
}

/// Facts are equal if they are of one version of one object. Versions of a cluster are not used twice.
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
    MachineDeploymentFacts,
    MachineFacts,
    MachineSetFacts,
    NodeFacts,
    PodFacts,
    SecretFacts,
    TokenFacts
);
