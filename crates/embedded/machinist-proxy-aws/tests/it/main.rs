//! Tests of the proxy in front of a small backend in memory, under paused time.

mod backend;
mod client;
mod control;
mod delays;
mod faults;
mod signatures;
mod tokens;
