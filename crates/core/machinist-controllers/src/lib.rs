//! Connects the contracts with the runtime: which kinds are watched, how their facts are collected,
//! and how actions are performed.
//!
//! A module here has the same path in `machinist-plan`: the two files together contain all code
//! about one kind. The work loop, which is the same for every contract, is in `machinist-runtime`.
//!
//! Deliberately absent: decisions. Every rule about machines belongs into `machinist-plan`.

pub mod capi;
pub mod ccm;
mod evidence;
pub mod mcm;

pub use machinist_runtime::{
    Clients, Contract, Drained, Ended, Inspector as ProcessInspector, Options as ProcessOptions,
    Running as RunningProcess, Task, Wrap, render_why,
};
pub use mcm::{
    Entropy, Inspector, Key, MachineController, MachineOptions, Manager, Mcm, Options, Planners, Running,
    explain,
};

/// Explanation of an object's state in the machine API, with the next actions.
pub type Explanation = machinist_runtime::Explanation<machinist_plan::McmReason>;
/// The reason why an object cannot be explained.
pub type ExplainError = machinist_runtime::ExplainError<Key>;
/// The last decision about an object of the machine API, with its reason.
pub type WhyRecord = machinist_runtime::WhyRecord<machinist_plan::McmReason>;
