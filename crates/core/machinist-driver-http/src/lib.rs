//! The common parts of the drivers of clouds with an HTTP API: the base URL of an API, connections,
//! sending with a time limit and counters, and the meaning of a missing answer for a call.
//!
//! Deliberately absent: retries, which the runtime makes; authentication, pages of lists, and the
//! error codes of any cloud, which the clients of the drivers have.

mod caller;
mod endpoint;
mod excerpt;
pub mod header;
mod nature;
#[cfg(feature = "pipe")]
pub mod pipe;
mod request;
mod traffic;
mod transport;

pub use caller::{HttpCall, HttpCaller, Now};
pub use endpoint::{Endpoint, EndpointError};
pub use excerpt::excerpt;
pub use nature::{Nature, NoAnswer};
pub use request::{AGENT, ESCAPED};
pub use traffic::{CallLabels, Traffic};
pub use transport::{Http, Transport};
