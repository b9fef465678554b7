//! What the contracts tell the runtime: which kinds are watched, what is observed of them, and how actions are performed.
//!
//! A path here has the same path in `machinist-plan`: two files tell one kind's whole story. The loop itself, which is the same for
//! every contract, is in `machinist-runtime`.
//!
//! Deliberately absent: decisions. A rule about machines that can be found here is in the wrong place.

pub mod mcm;

pub use machinist_runtime::{
    Clients, Drained, Ended, Options as ProcessOptions, answer_all, listen, render_why, serve,
};
pub use mcm::{
    Entropy, Inspector, Key, MachineController, MachineOptions, Manager, Mcm, Options, Planners, Running,
    explain,
};

/// Why an object of the machine API is where it is, and what would be done next.
pub type Explanation = machinist_runtime::Explanation<machinist_plan::McmReason>;
/// Why nothing could be explained.
pub type ExplainError = machinist_runtime::ExplainError<Key>;
/// What was last decided about an object of the machine API, and why.
pub type WhyRecord = machinist_runtime::WhyRecord<machinist_plan::McmReason>;
