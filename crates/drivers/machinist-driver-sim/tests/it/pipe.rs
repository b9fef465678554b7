//! Connections to the simulated cloud.

use hyper_util::client::legacy::connect::Connect;
use machinist_cloud_sim::{Cloud, http};
use machinist_driver_http::pipe::Pipes;
use machinist_driver_sim::Endpoint;

/// The simulated cloud behind HTTP.
pub(crate) fn endpoint(cloud: Cloud) -> Endpoint<impl Connect + Clone + Send + Sync + 'static> {
    let serve = move |far| Ok(http::serve_connection(cloud.clone(), far));
    Endpoint::over("cloud.example".parse().expect("an authority"), Pipes(serve))
}
