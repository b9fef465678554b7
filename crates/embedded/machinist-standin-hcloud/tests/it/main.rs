//! Tests of the stand-in, with a plain HTTP client over a pipe and paused time.

mod actions;
mod api;
mod client;
mod control;
mod durability;
mod faults;
mod load_balancers;
mod machines;
mod networks;
mod servers;
