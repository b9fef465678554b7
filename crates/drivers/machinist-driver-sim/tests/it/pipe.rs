//! Connections to the simulated cloud.

use std::io;

use machinist_cloud_sim::{Cloud, http};
use machinist_driver_http::pipe::Pipes;
use machinist_driver_sim::Endpoint;
use tokio::io::DuplexStream;

/// The simulated cloud behind HTTP.
pub(crate) fn endpoint(
    cloud: Cloud,
) -> Endpoint<Pipes<impl Fn(DuplexStream) -> io::Result<()> + Clone + Send + Sync>> {
    let serve = move |far| {
        tokio::spawn(http::serve_connection(cloud.clone(), far));
        Ok(())
    };
    Endpoint::over("cloud.example".parse().expect("an authority"), Pipes(serve))
}
