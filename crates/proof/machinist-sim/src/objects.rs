//! Requests about objects of any table, as users and other actors make them.

use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use machinist_apiserver::{Identity, Server};
use serde_json::{Value, json};

use crate::sight::{NAMESPACE, SeenObject};

/// A client that meets no faults.
pub(crate) fn client(server: &Server, agent: &str) -> kube::Client {
    kube::Client::new(server.service_as(Identity::admin()).with_user_agent(agent), NAMESPACE)
}

/// The resource of that kind.
pub(crate) fn resource(api_version: &str, kind: &str, plural: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// The API of an object of a table, for requests with that User-Agent.
pub(crate) fn api_of(server: &Server, table: &str, object: &Value, agent: &str) -> Api<DynamicObject> {
    let seen = SeenObject(object);
    let plural = table.split('.').next().unwrap_or_default();
    let resource = resource(seen.text("/apiVersion"), seen.text("/kind"), plural);
    match seen.namespace() {
        "" => Api::all_with(client(server, agent), &resource),
        namespace => Api::namespaced_with(client(server, agent), namespace, &resource),
    }
}

/// Deletes an object despite its finalizers.
pub(crate) async fn erase(server: &Server, table: &str, object: &Value, agent: &str) {
    let (api, name) = (api_of(server, table, object, agent), SeenObject(object).name());
    let unheld = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    // An object that is being deleted disappears with its last finalizer.
    let _ = api.patch(name, &PatchParams::default(), &unheld).await;
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    let _ = api.delete(name, &now).await;
}
