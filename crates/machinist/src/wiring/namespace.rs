//! Says that the served namespace is being deleted. Kubernetes then deletes the Leases, roles and
//! pods in it as well, so that often no process can finish the Machines.

use std::convert::Infallible;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use machinist_controllers::Metrics;
use machinist_kube::Delta;
use machinist_kube::watch::{WatchOptions, run_watch};

/// 1 while the served namespace is being deleted.
const DELETING: &str = "machinist_namespace_deleting";

/// Watches the namespace. Without permission to read it, only says so.
pub(super) async fn tell_of_deletion(client: kube::Client, name: &str, metrics: Metrics) -> Infallible {
    let api: Api<Namespace> = Api::all(client);
    if let Err(kube::Error::Api(status)) = api.get_opt(name).await
        && status.code == 403
    {
        tracing::info!(
            namespace = name,
            "No permission to read the namespace, so its deletion would not be reported"
        );
        return std::future::pending().await;
    }
    metrics.set(DELETING, &[], 0.0);
    let options =
        WatchOptions { field_selector: Some(format!("metadata.name={name}")), ..WatchOptions::default() };
    let is_ending = |namespace: Namespace| namespace.metadata.deletion_timestamp.is_some();
    let mut told = false;
    let fatal = run_watch(api, options, is_ending, |delta: Delta<bool>| {
        let is_ending = match delta {
            Delta::Upsert(_, namespace) => *namespace.facts,
            Delta::Relist(list) => list.items.iter().any(|(_, namespace)| *namespace.facts),
            _ => return,
        };
        metrics.set(DELETING, &[], f64::from(u8::from(is_ending)));
        if is_ending && !std::mem::replace(&mut told, true) {
            tracing::error!(
                namespace = name,
                "The namespace is being deleted. Its Machines are deleted with it; without rights outside of the \
                 namespace no process can finish them, and instances run on. See the page Uninstall"
            );
        }
    })
    .await;
    tracing::warn!(error = %fatal, "The namespace is not watched any more");
    std::future::pending().await
}
