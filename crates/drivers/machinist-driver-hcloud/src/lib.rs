//! The driver for Hetzner Cloud: instances, load balancers and routes over the public API.
//!
//! An [`HcloudProvider`] opens an account per credential; a token belongs to exactly one project.
//! As in every driver, `spec` parses the class's `providerSpec`, `request` builds the cloud's
//! requests, `reply` converts the cloud's answers (all three pure), and `driver` awaits. `balancer`
//! and `route` have the same parts: a pure planner compares the wanted state with the cloud's, and
//! their `driver` performs the differences one by one. `client` is a thin HTTP client that makes
//! one attempt per call and sees every header.
//!
//! `gardener` reads the classes of 23technologies' provider of machine-controller-manager. Its
//! servers and Machines are continued with its labels and its spelling of ids.
//!
//! Identity: the key and the installation of an instance are labels of the server. Names of servers
//! are unique in a project, so two concurrent creations never make two servers.
//!
//! Deliberately absent: retries, a token bucket, caches and waits for long actions, which are the
//! task of the runtime. Dedicated servers of Hetzner Robot (`hrobot://` and `hcloud://bm-` ids) are
//! not supported: their ids count as ids of another cloud, and no controller acts on them.

mod action;
mod balancer;
mod cidr;
mod client;
mod driver;
mod floating;
mod gardener;
mod go_syntax;
mod id;
mod label;
mod model;
mod names;
mod options;
mod reply;
mod request;
mod route;
mod spec;

pub use client::{RateState, Rates};
pub use driver::{GARDENER_NAME, HcloudProvider, PROMISES, validate};
pub use machinist_driver_http::{Endpoint, EndpointError, Http, NoAnswer, Traffic, Transport};
pub use options::{AddressFamily, Algorithm, BalancerDefaults, HcloudOptions, OptionsError, TokenSource};
pub use spec::ProviderSpec;
