//! The driver against its cloud: the contract over both transports, and proof that the contract can fail.

mod contract;
mod mutants;
mod pipe;
mod subject;
mod tcp;
