//! Tests of the driver with its cloud: the contract over both transports, and mutants that prove
//! that the contract can fail.

mod contract;
mod mutants;
mod pipe;
mod subject;
mod tcp;
