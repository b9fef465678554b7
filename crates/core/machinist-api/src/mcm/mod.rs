//! The four kinds of `machine.sapcloud.io/v1alpha1`, Gardener's machine API.
//!
//! The JSON names are the contract, and so is what Go writes for a value that is not there. The rules here:
//!
//! - Fields that Go writes always (`class`, `nodeTemplate`, `machineClass` and the `metadata` and `spec` of templates) are
//!   always written, `{}` when empty. All others are left out when they hold nothing.
//! - `null` reads as "not there" everywhere: that is how Go writes an unset time.
//! - A field is an `Option` where "not there" and "zero" are different texts and a guarded patch must test
//!   the value that was read. Counters of a status are plain numbers: `0` and "not there" are one.
//! - Unknown fields survive where the CRD keeps them ([`TemplateMetadata`], [`ClassNodeTemplate`], `providerSpec`) and are
//!   dropped elsewhere, as the API server drops them. Nothing of ours writes a whole object over another's.
//!
//! Deliberately absent: defaults. The API has none; what a missing value means is decided by who reads it.

mod last_operation;
mod machine;
mod machine_class;
mod machine_deployment;
mod machine_set;
mod resource;
mod template;

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
    ClassSpec, MachineConfiguration, MachineSpec, MachineTemplateSpec, NodeTemplateSpec, TemplateMetadata,
};

use crate::text_enum::text_enum;

/// The API group of the four kinds.
pub const GROUP: &str = "machine.sapcloud.io";
/// The only version there is, served and stored.
pub const VERSION: &str = "v1alpha1";
/// Group and version as `apiVersion` has them.
pub const API_VERSION: &str = "machine.sapcloud.io/v1alpha1";

text_enum! {
    /// Status of a condition.
    pub enum ConditionStatus {
        /// It holds.
        True = "True",
        /// It does not hold.
        False = "False",
        /// Nobody can tell.
        Unknown = "Unknown",
    }
}

/// An empty spelling is "not there"; most texts of this API follow that.
fn non_empty(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}
