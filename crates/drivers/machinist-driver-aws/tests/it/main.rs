//! Tests of the driver: the contract over HTTP with a small EC2 in memory, the flaws of Go's
//! provider, instances that Go's provider left, and a real counterpart.

#![expect(clippy::print_stdout, reason = "a test that is skipped says why")]

mod cloud;
mod contract;
mod fake;
mod flaws;
mod gardener;
mod instances;
mod mutants;
mod pipe;
mod real;
mod subject;
mod workload;
