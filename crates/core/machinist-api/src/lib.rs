//! Types on the wire and their constants.
//!
//! This crate contains everything that other programs see: the JSON of the four kinds of
//! `machine.sapcloud.io/v1alpha1` ([`mcm`]) and of the kinds of our Cluster API providers
//! ([`capi`]), the spellings of labels, annotations, finalizers, taints, conditions and texts
//! ([`constants`]), the CRDs ([`crd`]), the validation rules ([`validation`]) and the parser for
//! manifests ([`manifest`]). It depends on serde, schemars and k8s-openapi.
//!
//! Deliberately absent: any client, any clock, any decision.

pub mod capi;
pub mod code;
pub mod constants;
pub mod crd;
pub mod duration;
pub mod manifest;
pub mod mcm;
pub mod priority;
pub mod scaled_value;
pub mod validation;

mod absent;
mod resource;
mod schema;
mod text_enum;
mod wire_time;

pub use duration::{DurationText, GoDuration};
pub use mcm::{
    ClassNodeTemplate, ClassSpec, ConditionStatus, CurrentStatus, InPlaceUpdateStrategy, LastOperation,
    Machine, MachineClass, MachineConfiguration, MachineDeployment, MachineDeploymentCondition,
    MachineDeploymentSpec, MachineDeploymentStatus, MachineSet, MachineSetCondition, MachineSetSpec,
    MachineSetStatus, MachineSpec, MachineStatus, MachineSummary, MachineTemplateSpec, NodeTemplateNode,
    NodeTemplateSpec, OperationState, OperationType, OrchestrationType, Phase, RollbackConfig,
    RollingUpdateStrategy, Strategy, StrategyType, TemplateMetadata,
};
pub use priority::MachinePriority;
pub use wire_time::WireTime;
