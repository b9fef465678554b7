//! The embedded server as its clients meet it.

mod apply;
mod authorization;
mod client;
mod controls;
mod documents;
mod durability;
mod https;
mod limits;
mod linearizability;
mod load;
mod properties;
mod service;
