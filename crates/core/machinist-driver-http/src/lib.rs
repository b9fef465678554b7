//! What the drivers of clouds with an HTTP API share: the base URL of an API, connections, sending
//! with a time limit and counters, and what a missing answer means for a call.
//!
//! Deliberately absent: retries, authentication, pages of lists, and the error codes of any cloud.
//! The clients of the drivers have the last three, and the runtime has the first.

mod caller;
mod endpoint;
mod excerpt;
pub mod header;
mod nature;
#[cfg(feature = "pipe")]
pub mod pipe;
mod traffic;
mod transport;

pub use caller::{About, Caller, Now};
pub use endpoint::{Endpoint, EndpointError};
pub use excerpt::excerpt;
pub use nature::{Nature, NoAnswer};
pub use traffic::{CallLabels, Traffic};
pub use transport::{Http, Transport};
