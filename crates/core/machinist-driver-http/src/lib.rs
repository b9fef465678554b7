//! What the drivers of clouds with an HTTP API share: the base URL of an API, connections, and what
//! a missing answer means for a call.
//!
//! Deliberately absent: retries, time limits, authentication, and the errors of any cloud. The
//! clients of the drivers have these.

mod endpoint;
mod nature;
mod transport;

pub use endpoint::{Endpoint, EndpointError};
pub use nature::{Nature, NoAnswer};
pub use transport::{Http, Transport};
