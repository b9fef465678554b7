//! What was read from one object, parsed once when it entered a store.
//!
//! Facts hold what planners use, typed, plus the raw values that guards must repeat (an absent field and an empty one
//! differ for a JSON patch `test`). They never hold a resourceVersion: planners must not see one, and no secret.

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
