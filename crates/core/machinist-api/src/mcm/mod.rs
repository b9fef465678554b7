//! The four kinds of `machine.sapcloud.io/v1alpha1`, Gardener's machine API.
//!
//! The JSON names are the contract, and so is Go's spelling of absent values. The rules:
//!
//! - Fields that Go always writes (`class`, `nodeTemplate`, `machineClass` and the `metadata` and
//!   `spec` of templates) are always written, `{}` when empty. All other fields are omitted when
//!   they are empty.
//! - `null` reads as absent everywhere: Go writes an unset time as `null`.
//! - A field is an `Option` if absent and zero have different spellings and a guarded patch must
//!   test the value that was read. Counters of a status are plain numbers: `0` and absent are the
//!   same.
//! - Unknown fields are kept where the CRD keeps them ([`TemplateMetadata`], [`ClassNodeTemplate`],
//!   `providerSpec`) and are dropped elsewhere, as the API server drops them. Machinist never
//!   replaces a whole object that another program wrote.
//!
//! Deliberately absent: defaults. The API has none; each reader decides what an absent value means.

mod condition_status;
mod group;
mod last_operation;
mod machine;
mod machine_class;
mod machine_deployment;
mod machine_set;
mod non_empty;
mod template;

pub use condition_status::ConditionStatus;
pub use group::{API_VERSION, GROUP, VERSION};
pub use last_operation::{LastOperation, MachineSummary, OperationState, OperationType};
pub use machine::{CurrentStatus, Machine, MachineStatus, Phase};
pub use machine_class::{ClassNodeTemplate, MachineClass};
pub use machine_deployment::{
    InPlaceUpdateStrategy, MachineDeployment, MachineDeploymentCondition, MachineDeploymentSpec,
    MachineDeploymentStatus, OrchestrationType, RollbackConfig, RollingUpdateStrategy, Strategy,
    StrategyType,
};
pub use machine_set::{MachineSet, MachineSetCondition, MachineSetSpec, MachineSetStatus};
pub use template::{
    ClassSpec, MachineConfiguration, MachineSpec, MachineTemplateSpec, NodeTemplateNode, NodeTemplateSpec,
    TemplateMetadata,
};
