//! Simulates the whole system in one process, under paused time: both processes of the machine API,
//! two API servers, a cloud with machines that boot, a user, and the faults between them. The
//! cloud-controller-manager and the providers of Cluster API have worlds of their own.
//!
//! ```text
//! world/       two clusters, cloud, machines, both processes, a user; and the real world
//! scenarios/   what users do, one function each, for every world
//! faults/      faults drawn from a seed, and crashes at exact calls
//! history      all events of a run, in one order
//! invariants/  the rules that must hold under every fault, checked on that history
//! trace        the history as text; two runs of one seed have the same trace
//! contract     what differs between the contracts; mcm, ccm/ and capi/ are the contracts
//! run, case    one scenario in one world, from its first request to the verdict; and the line of text that repeats it
//! seeds        many seeds, each a run, in parallel
//! sweep        one scenario, killed at every call
//! mutants      the program, broken on purpose, to prove that the invariants can fail
//! fixtures     the takeover of objects that Go MCM left
//! lives, stage the lives of the one process of a world, and how scenarios wait in it: for ccm/ and capi/
//! backup       a backup of a cluster, and its restore
//! said         what `why` says about an object
//! ccm/         the same for the cloud-controller-manager, with the stand-in of Hetzner Cloud
//! capi/        the same for the providers of Cluster API, with stand-ins of a container engine and Mailgun
//! ```
//!
//! A run draws everything from one number: the same number gives the same trace, in every process.
//! This relies on the product. It uses no iteration order of hash maps, no random `select!`, and no
//! clock except the injected one. So this crate need not override any of these, and forbids unsafe
//! code like all other crates.
//!
//! Deliberately absent: any knowledge of how the product decides. This crate sees requests,
//! commits, driver calls and objects as they are on the wire. It only replaces planners by broken
//! ones.

pub mod actor;
pub mod ask;
mod backup;
pub mod capi;
pub mod case;
pub mod ccm;
pub mod contract;
pub mod faults;
pub mod fixtures;
pub mod history;
pub mod invariants;
pub mod lab;
pub mod lives;
pub mod mcm;
pub mod mutants;
mod mutation;
mod objects;
mod outcome;
pub mod passes;
pub mod run;
pub mod said;
pub mod scenarios;
pub mod seed;
pub mod seeds;
pub mod sight;
pub mod stage;
pub mod sweep;
pub mod trace;
pub mod world;
