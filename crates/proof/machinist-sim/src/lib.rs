//! The whole system in one process, under paused time: both processes, two API servers, a cloud whose machines boot, a user, and
//! everything that can go wrong between them.
//!
//! ```text
//! world/       two clusters, cloud, machines, both processes, a user; and the real one
//! scenarios/   what users do, one function each, for every world
//! faults/      what goes wrong, drawn from a seed, and crashes at exact calls
//! history      what really happened, in one order
//! invariants/  what must hold whatever goes wrong, judged on that history
//! trace        the same as text; two runs of one seed have the same
//! run, case    one scenario in one world, from its first request to the verdict; and the line of text that repeats it
//! sweep        one scenario, killed at every call
//! mutants      the program, broken on purpose: invariants that catch nothing prove nothing
//! fixtures     what another program left behind, taken over
//! ```
//!
//! A run draws everything from one number: same number, same trace, in every process. That rests on the product: no hash map
//! decides an order, no `select!` draws lots, no clock but the injected one is read. So nothing has to be overridden here, and this
//! crate forbids unsafe code like all others.
//!
//! Deliberately absent: any knowledge of how the product decides. This crate sees requests, commits, driver calls and objects as they
//! are on the wire; planners are only ever replaced, by broken ones.

pub mod actor;
pub mod ask;
pub mod case;
pub mod faults;
pub mod fixtures;
pub mod history;
pub mod invariants;
pub mod lab;
pub mod mutants;
pub mod passes;
pub mod run;
pub mod scenarios;
pub mod seed;
pub mod sight;
pub mod sweep;
pub mod trace;
pub mod world;
