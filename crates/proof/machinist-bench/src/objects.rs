//! The objects of the benchmark: the machine kinds, and the Secret, class and deployment of the
//! quick start.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use machinist_api::manifest::{ManifestObject, parse_manifest};
use machinist_api::mcm::API_VERSION;
use machinist_api::{Machine, MachineClass, MachineDeployment, crd};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

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
    let machines: Api<Machine> = Api::namespaced(client.clone(), NAMESPACE);
    let one = ListParams::default().limit(1);
    let served = async {
        while deployments.list(&one).await.is_err()
            || machines.list(&one).await.is_err()
            || !are_discovered(client, &names).await
        {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(SERVED_WITHIN, served).await.context("the machine kinds are not served in time")
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
            "Secret" => create::<Secret>(client, &object).await?,
            "MachineClass" => create::<MachineClass>(client, &object).await?,
            "MachineDeployment" => {
                object.body["spec"]["replicas"] = replicas.into();
                create::<MachineDeployment>(client, &object).await?;
            }
            other => bail!("the quick start contains a {other}, which this benchmark cannot create"),
        }
    }
    Ok(())
}

async fn create<K>(client: &Client, object: &ManifestObject) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + k8s_openapi::Resource
        + DeserializeOwned
        + Serialize
        + Clone
        + std::fmt::Debug,
{
    let what = format!("{} {}", object.kind, object.name);
    let typed: K = object.decode().with_context(|| format!("cannot decode {what} of the quick start"))?;
    let api: Api<K> = Api::namespaced(client.clone(), NAMESPACE);
    api.create(&PostParams::default(), &typed).await.with_context(|| format!("cannot create {what}"))?;
    Ok(())
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
