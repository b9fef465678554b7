//! The driver for AWS: instances of EC2, for classes of Gardener's provider of
//! machine-controller-manager.
//!
//! An [`AwsProvider`] opens an account per credential and region. As in every driver, `spec` parses
//! the class's `providerSpec`, `request` builds the cloud's requests, `reply` converts the cloud's
//! answers (all three pure), and `driver` awaits. `client` is a thin client of the Query API of EC2
//! that makes one attempt per call: it signs a request (`sign`), exchanges the token of a workload
//! for keys (`sts`) and converts refusals (`failure`). `initialize` compares the network interfaces
//! of an instance with its class.
//!
//! Identity: the key of an instance is the client token of its creation and one of its tags. EC2
//! creates one instance per token, also for repeated and concurrent requests. The tag can be
//! changed, the token cannot.
//!
//! Regions: a call shows only the instances of its region, so the region is the place of an
//! instance. A provider id contains the region.
//!
//! Deliberately absent: retries, a token bucket and waits until an instance is visible, which are
//! the task of the runtime. Load balancers and routes belong to the cloud controller manager of
//! AWS.

mod client;
mod driver;
mod id;
mod initialize;
mod model;
mod options;
mod reply;
mod request;
mod secret;
mod spec;
mod tag;

pub use driver::{AwsProvider, PROMISES, validate};
pub use machinist_driver_http::{Endpoint, EndpointError, Http, NoAnswer, Transport};
pub use options::{AwsOptions, OptionsError};
pub use spec::fields_without_effect;
