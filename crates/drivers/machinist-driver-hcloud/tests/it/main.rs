//! Tests of the driver with a stand-in of its cloud: the contract over HTTP, and the faults, limits
//! and details that only this cloud has.

mod balancers;
mod cloud;
mod contract;
mod gardener;
mod instances;
mod limits;
mod pipe;
mod routes;
mod subject;
