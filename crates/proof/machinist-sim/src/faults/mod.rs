//! The faults of a run, drawn from a seed, or none.
//!
//! | | fault | where |
//! |---|---|---|
//! | P1 | a watch is delivered late, in order | [`stream`] |
//! | P4 | a watch is closed, and the server compacts its history before the watch can resume, so the process misses states | [`stream`], [`wire`] |
//! | P5 | a lagging replica answers reads that allow it (`resourceVersion=0`) | the world, by the server's replica view |
//! | P7 | a request is refused before it has any effect | [`wire`] |
//! | P8 | a write takes effect, and its answer is an error, or never comes | [`wire`] |
//! | P9 | a write takes effect late, perhaps after its sender is dead | [`wire`] |
//! | P10 | a process dies before or after one of its calls | [`crash`] |
//! | P13 | the wall clock of a process steps, and steps back later | [`crate::lives`] |
//! | D1 | a call of the cloud fails before it has any effect | [`cloud`], [`crate::ccm::wire`] |
//! | D2, D3 | a call of the cloud takes effect, and its answer is an error, or never comes | [`cloud`], [`crate::ccm::wire`] |
//! | D4 | the cloud's reads do not show a new object yet | [`cloud`], [`crate::ccm::cluster`] |
//! | D10 | a list is late, or lacks an object | [`crate::ccm::wire`] |
//! | D11 | the account has no requests left | [`crate::ccm::wire`] |
//!
//! Faults that last for minutes to hours are in [`long`].
//!
//! The worlds of the machine API draw from P1 to P10 and D2 to D4, and from D1 in runs with long
//! faults. The worlds of the cloud-controller-manager draw from all kinds but P5, and the worlds of
//! Cluster API from all kinds but P5, D10 and D11. There, D1 to D4 are in [`crate::capi::engine`]
//! and [`crate::capi::mail`].
//!
//! A run has three phases: a warm-up without faults, chaos, and a calm phase in which it must reach
//! its end state. Nodes, the built-in controllers and the user meet no faults: they are part of the
//! environment, not of the tested system.

pub mod answer;
pub(crate) mod call;
pub mod cloud;
pub mod crash;
pub mod freeze;
pub mod fuse;
pub mod long;
pub mod plan;
pub mod stream;
pub mod wire;

pub use self::crash::{Crash, CrashMoment, CrashPoints, Points, Victims};
pub use self::freeze::Gate;
pub use self::fuse::Fuse;
pub use self::long::{LongFault, LongKind, OutageMode};
pub use self::plan::{Fault, FaultPlan, Profile};
