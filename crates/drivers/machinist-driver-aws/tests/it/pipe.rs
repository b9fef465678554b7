//! Connections to the fake cloud.

use std::io;
use std::sync::Arc;

use machinist_driver_http::pipe::Pipes;
use machinist_driver_http::{Http, Transport};

use crate::fake::{Fake, server};

/// HTTP to the fake cloud, which may be unreachable.
pub(crate) fn http(fake: Fake) -> Arc<dyn Transport> {
    Arc::new(Http::over(Pipes(move |far| {
        if fake.is_unreachable() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        Ok(server::serve(fake.clone(), far))
    })))
}
