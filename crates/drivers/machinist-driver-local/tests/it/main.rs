//! Tests of the driver: the contract with the embedded API server behind a pipe that breaks, the
//! rules about owners, pods that Go's provider left, and errors of an API server.

mod cluster;
mod contract;
mod errors;
mod gardener;
mod instances;
mod mutants;
mod owners;
mod pipe;
mod subject;
