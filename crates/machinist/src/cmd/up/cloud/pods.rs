//! The provider of `--cloud local`: pods of the embedded API server.

use std::sync::Arc;

use machinist_apiserver::Server;
use machinist_driver::Provider;

/// Returns the provider. Each request is sent once, because the runtime repeats calls.
#[cfg(feature = "local")]
pub(super) fn provider(server: &Server, namespace: &str) -> Arc<dyn Provider> {
    let service = server.service_as(machinist_apiserver::Identity::admin());
    let client = machinist_kube::layer_client(service, &machinist_driver_local::client_options());
    crate::clouds::local::for_up(client, namespace)
}

/// Without the feature, the registry has no row of this cloud.
#[cfg(not(feature = "local"))]
pub(super) fn provider(_: &Server, _: &str) -> Arc<dyn Provider> {
    unreachable!("no flag names a cloud that is not compiled in")
}
