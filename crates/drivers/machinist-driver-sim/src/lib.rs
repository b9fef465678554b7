//! The driver for the simulated cloud, in process or over HTTP.
//!
//! A [`SimProvider`] reaches one cloud through a [`Transport`] and opens an account per credential.
//! The rest is four files, as in every driver. `spec` parses the class's `providerSpec`, `request`
//! builds the cloud's requests, and `reply` converts the cloud's answers (all three pure). `driver`
//! awaits. `id` parses the cloud's ids.
//!
//! Deliberately absent: retries, rate limits and memory of earlier calls. The core does all of
//! these.

mod driver;
mod endpoint;
mod id;
mod reply;
mod request;
mod spec;
mod transport;

pub use driver::{CSI_DRIVER, PROMISES, SimProvider};
pub use endpoint::{Endpoint, EndpointError};
pub use spec::ProviderSpec;
pub use transport::Transport;
