//! Connects the contracts with the runtime: which kinds are watched, how their facts are collected,
//! and how actions are performed.
//!
//! ```text
//! mcm/      the machine API
//! ccm/      the cloud-controller-manager
//! capi/     the infrastructure providers of Cluster API
//! account_proof  what the accounts of a process have shown: the same for each contract
//! ```
//!
//! Each contract has the same rooms: `contract`, `key` (the table of its kinds), `feeds`, `seen`,
//! `options`, `process` and `explain`. Nothing here belongs to one contract only.
//!
//! A module here has the same path in `machinist-plan`: the two files together contain all code
//! about one kind. The work loop, which is the same for every contract, is in `machinist-runtime`.
//!
//! Deliberately absent: decisions. Every rule about machines belongs into `machinist-plan`.

mod account_proof;
pub mod capi;
pub mod ccm;
pub mod mcm;

pub use machinist_runtime::{
    Clients, Contract, Drained, Ended, Inspector as ProcessInspector, Options as ProcessOptions, Pulse,
    Running as RunningProcess, Task, Wrap, render_why,
};
