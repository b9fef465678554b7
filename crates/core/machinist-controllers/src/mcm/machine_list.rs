//! Lists all Machines with quorum. The store may be older than a decision allows.

use kube::Api;
use kube::api::ListParams;
use machinist_api::Machine;
use machinist_kube::list_once;
use machinist_kube::store::Relist;
use machinist_plan::mcm::facts::MachineFacts;
use machinist_runtime::Stop;

use super::contract::Runtime;

/// Lists all Machines of the namespace.
///
/// # Errors
/// If the API server gives no list.
pub(super) async fn list_machines(runtime: &Runtime) -> Result<Relist<MachineFacts>, Stop> {
    let api: Api<Machine> = Api::namespaced(runtime.clients.control.clone(), &runtime.options.namespace);
    let list = list_once(api, &ListParams::default(), |machine: Machine| MachineFacts::parse(&machine)).await;
    list.map_err(|error| Stop::Unanswered(error.to_string()))
}
