//! Tests of the driver with a real engine: the contract, and what only containers have.
//!
//! The variable `MACHINIST_DOCKER_HOST` names the engine, for example `unix:///run/docker.sock`.
//! Without it, each of these tests prints that it was skipped. They need the programs `docker` and
//! `busybox` (statically linked) on this machine. With the program `haproxy`, or an image that
//! `MACHINIST_DOCKER_BALANCER_IMAGE` names, they use a real HAProxy. The variable
//! `MACHINIST_DOCKER_NODE_IMAGE` adds a test of a real node image. `cargo xtask real --lane docker`
//! provides all of this.

#![expect(clippy::print_stdout, reason = "a test that is skipped says why")]

mod balancers;
mod boot;
mod bootstrap;
mod contract;
mod engine;
mod instances;
mod memory;
mod ownership;
mod real_node;
mod restarts;
mod scripted;
mod sweep;
mod wire;
