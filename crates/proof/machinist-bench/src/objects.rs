//! The objects of the benchmark: the machine kinds, and the Secret, class and deployment of the
//! quick start.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use machinist_api::manifest::parse_manifest;
use machinist_api::mcm::API_VERSION;
use machinist_api::{Machine, MachineDeployment, crd};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::progress;

/// Namespace of the objects.
pub(crate) const NAMESPACE: &str = "default";

/// The deployment that is scaled.
const DEPLOYMENT: &str = "workers";

/// The manifest that `machinist up` applies, so that the benchmark measures the same objects.
const QUICK_START: &str = include_str!("../quickstart.yaml");

/// Timeout for a new kind; kube-apiserver serves it after a fraction of a second.
const SERVED_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Creates the machine kinds and waits until all of them are served and named by the discovery,
/// which the controllers ask when they start.
///
/// # Errors
/// When the server refuses a kind, or does not serve it in time.
pub(crate) async fn install_kinds(client: &Client) -> Result<()> {
    let definitions = crd::all_crds();
    let names: Vec<_> = definitions.iter().map(|kind| kind.spec.names.plural.clone()).collect();
    create_definitions(client, definitions).await?;
    let deployments: Api<MachineDeployment> = Api::namespaced(client.clone(), NAMESPACE);
    let (machines, one) = (machines(client), ListParams::default().limit(1));
    let are_served = async || {
        Ok(deployments.list(&one).await.is_ok()
            && machines.list(&one).await.is_ok()
            && are_discovered(client, &names).await)
    };
    let served = progress::until(SERVED_WITHIN, LOOK_EVERY, are_served).await;
    served.context("the machine kinds are not served in time")?
}

async fn are_discovered(client: &Client, names: &[String]) -> bool {
    let Ok(served) = client.list_api_group_resources(API_VERSION).await else { return false };
    names.iter().all(|name| served.resources.iter().any(|resource| resource.name == *name))
}

/// Creates definitions of kinds.
pub(crate) async fn create_definitions(
    client: &Client,
    definitions: impl IntoIterator<Item = CustomResourceDefinition>,
) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in definitions {
        let created = api.create(&PostParams::default(), &definition).await;
        created.context("cannot create a CustomResourceDefinition")?;
    }
    Ok(())
}

/// Creates Secret, class and deployment, with `replicas` machines.
///
/// # Errors
/// When the server refuses one of them.
pub(crate) async fn apply(client: &Client, replicas: u32) -> Result<()> {
    for mut object in parse_manifest(QUICK_START).context("the quick start")? {
        match object.kind.as_str() {
            "Secret" | "MachineClass" => {}
            "MachineDeployment" => object.body["spec"]["replicas"] = replicas.into(),
            other => bail!("the quick start contains a {other}, which this benchmark cannot create"),
        }
        create(client, object.body).await?;
    }
    Ok(())
}

/// Creates an object, and returns its UID.
///
/// # Errors
/// When the server refuses the object.
pub(crate) async fn create(client: &Client, object: Value) -> Result<String> {
    let object: DynamicObject = from_json(object);
    let types = object.types.clone().context("the object has a kind")?;
    let what = format!("{} {}", types.kind, object.metadata.name.as_deref().unwrap_or_default());
    let api = api(client, &types.api_version, &types.kind);
    let created = api.create(&PostParams::default(), &object).await;
    let created = created.with_context(|| format!("cannot create {what}"))?;
    created.metadata.uid.with_context(|| format!("{what} has no UID"))
}

/// The objects of a kind: all Nodes, or the objects of another kind in [`NAMESPACE`].
pub(crate) fn api(client: &Client, api_version: &str, kind: &str) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match kind {
        "Node" => Api::all_with(client.clone(), &resource),
        _ => Api::namespaced_with(client.clone(), NAMESPACE, &resource),
    }
}

/// An object of the benchmark, which has the fields of its kind.
///
/// # Panics
/// If the object lacks a field of its kind, which is a bug of the benchmark.
pub(crate) fn from_json<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("the benchmark's objects have the fields of their kinds")
}

/// A Machine without a set.
pub(crate) fn machine(name: &str, class: &str) -> Machine {
    from_json(json!({
        "apiVersion": API_VERSION, "kind": "Machine", "metadata": { "name": name },
        "spec": { "class": { "kind": "MachineClass", "name": class } },
    }))
}

/// The Machines of [`NAMESPACE`].
pub(crate) fn machines(client: &Client) -> Api<Machine> {
    Api::namespaced(client.clone(), NAMESPACE)
}

/// Lists the Machines of [`NAMESPACE`].
///
/// # Errors
/// When the server refuses the list.
pub(crate) async fn list_machines(client: &Client) -> Result<Vec<Machine>> {
    let list = machines(client).list(&ListParams::default()).await;
    Ok(list.context("cannot list Machines")?.items)
}

/// Changes the number of machines.
///
/// # Errors
/// When the deployment cannot be patched.
pub(crate) async fn scale(client: &Client, replicas: u32) -> Result<()> {
    patch_deployment(client, json!({ "spec": { "replicas": replicas } }))
        .await
        .with_context(|| format!("cannot scale to {replicas} machines"))
}

/// Changes the deployment with a merge patch.
///
/// # Errors
/// When the deployment cannot be patched.
pub(crate) async fn patch_deployment(client: &Client, patch: Value) -> Result<()> {
    let deployments: Api<MachineDeployment> = Api::namespaced(client.clone(), NAMESPACE);
    deployments.patch(DEPLOYMENT, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}
