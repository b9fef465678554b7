//! The driver for the simulated cloud, in process or over HTTP.
//!
//! A [`SimProvider`] reaches one cloud through a [`Transport`] and opens an account per credential. The rest is
//! four files, as in every driver: `spec` parses what the user wrote, `request` says it in the cloud's words,
//! `reply` says the cloud's answer in ours (all three pure), and `driver` awaits. `id` knows what its ids look like.
//!
//! Deliberately absent: retries, rate limits and memory of earlier calls. The core bounds, repeats and remembers.

mod driver;
mod endpoint;
mod id;
mod reply;
mod request;
mod spec;
mod transport;

pub use driver::{PROMISES, SimProvider};
pub use endpoint::{Endpoint, EndpointError};
pub use spec::ProviderSpec;
pub use transport::Transport;
