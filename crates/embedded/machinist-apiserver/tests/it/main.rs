//! Tests of the embedded server through its clients.

mod apply;
mod authorization;
mod client;
mod controls;
mod documents;
mod durability;
mod foreign_controller;
mod https;
mod limits;
mod linearizability;
mod load;
mod properties;
mod readme;
mod service;
