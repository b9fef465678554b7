//! Observe and act: the only library that holds a client and a driver.
//!
//! ```text
//! feed       watches -> World (stores, barrier, answers) -> wakes keys
//! reconcile  key -> observe -> plan (machinist-plan) -> act, for every kind the same
//! mcm/<kind> what is observed of a kind and how its actions are performed; the path of its planner
//! act/       the calls themselves: guarded writes, driver calls
//! panics     one object's panic is not the others' problem
//! process    the machine controller and the manager, put together from these
//! serve      /healthz, /readyz, /metrics and /why of a process
//! ```
//!
//! Deliberately absent: decisions. A rule about machines that can be found here is in the wrong place.

mod act;
mod clock_steps;
mod evidence;
mod explain;
mod feed;
mod key;
mod mcm;
mod memory;
mod options;
mod panics;
mod process;
mod reconcile;
mod serve;
mod sweep;
mod world;

pub use explain::{ExplainError, Explanation, explain};
pub use key::Key;
pub use memory::WhyRecord;
pub use options::{Entropy, MachineOptions, Options, Planners};
pub use process::{Clients, Ended, Inspector, MachineController, Manager, Running};
pub use serve::{answer_all, listen, render_why, serve};
