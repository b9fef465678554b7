//! Facts of the kinds of the machine API, and of the Nodes, pods and tokens of its target cluster.

mod attachment;
mod class;
mod condition;
mod freeze;
mod machine;
mod machine_deployment;
mod machine_set;
mod node;
mod pod;
mod quantity;
mod token;
mod volume;

pub use attachment::AttachmentFacts;
pub use class::{ClassFacts, SecretFacts, TOKEN_PLACEHOLDER, TOKEN_PLACEHOLDER_ENCODED, USER_DATA};
pub use condition::ConditionFacts;
pub use freeze::{FreezeFacts, FrozenCondition};
pub use machine::{
    CreationIntent, DELETION_HELD, MachineFacts, OwnerFacts, Preserved, PreservedBy, ReadPhase, StatusFacts,
};
pub use machine_deployment::MachineDeploymentFacts;
pub use machine_set::{MachineSetFacts, NodeMarks, PROTECTED_FROM_AUTOSCALER};
pub use node::{JOINED_AS, NODE_MARK, NodeFacts, NodeMark};
pub use pod::{BudgetFacts, PodFacts};
pub use quantity::is_same_quantity;
pub use token::{
    TOKEN_NAMESPACE, TOKEN_OWNER, TOKEN_TYPE, Token, TokenFacts, description as token_description,
    legacy_token_id, token_id,
};
pub use volume::{ClaimFacts, VolumeFacts};

use crate::facts::hash_by_version;

hash_by_version!(
    AttachmentFacts,
    BudgetFacts,
    ClaimFacts,
    ClassFacts,
    MachineDeploymentFacts,
    MachineFacts,
    MachineSetFacts,
    NodeFacts,
    PodFacts,
    SecretFacts,
    TokenFacts,
    VolumeFacts
);
