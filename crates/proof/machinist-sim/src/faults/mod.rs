//! What goes wrong, and when: drawn from a seed, or nothing at all.
//!
//! | | fault | where |
//! |---|---|---|
//! | P1 | a watch is delivered late, in order | [`stream`] |
//! | P4 | a watch is closed, and the past forgotten before it can resume: states that nobody ever saw | [`stream`], [`wire`] |
//! | P5 | a lagging replica answers whoever lets it (`resourceVersion=0`) | the world, by the server's replica view |
//! | P7 | a request is refused before it has any effect | [`wire`] |
//! | P8 | a write takes effect, and its answer is an error, or never comes | [`wire`] |
//! | P9 | a write takes effect late, maybe after its sender is dead | [`wire`] |
//! | P10 | a process dies before or after one of its calls | [`crash`] |
//! | D2, D3 | the cloud does it, and then answers with an error, or not at all | [`cloud`] |
//! | D4 | the cloud's reads do not show a new instance yet | [`cloud`] |
//!
//! A run has three phases: a warm-up without faults, chaos, and calm, in which it must come to its end. Nodes, the built-in
//! controllers and the user are never disturbed: they are part of the environment, not of what is tested.

pub mod cloud;
pub mod crash;
pub mod fuse;
pub mod plan;
pub mod stream;
pub mod wire;

pub use self::crash::{Crash, CrashPoints, Moment, Points, Victims};
pub use self::fuse::Fuse;
pub use self::plan::{Fault, FaultPlan, Profile};
