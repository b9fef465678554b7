//! The ServiceAccount and the roles of the cloud controller manager, from the manifests with which
//! users install it.

use anyhow::Context;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use machinist_api::manifest::{ManifestObject, parse_manifest};
use machinist_apiserver::Identity;
use serde_json::Value;

/// ServiceAccount of the program.
const ACCOUNT: (&str, &str) = ("kube-system", "machinist-cloud-controller-manager");
const SERVICE_ACCOUNT: &str = include_str!("../../../ccm-service-account.yaml");
const ROLES: &str = include_str!("../../../ccm-rbac.yaml");
/// Roles in the namespace of the Machines.
const ROLES_OF_MACHINES: &str = include_str!("../../../ccm-machines-rbac.yaml");

/// Returns the identity of the ServiceAccount.
pub(in crate::embedded) fn identity() -> Identity {
    let (namespace, name) = ACCOUNT;
    let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
    Identity::new(format!("system:serviceaccount:{namespace}:{name}"), groups)
}

/// Creates the objects, and updates objects of an earlier run.
///
/// # Errors
/// If an object is rejected. The error names it.
pub(in crate::embedded) async fn install(client: &Client, machines: &str) -> anyhow::Result<()> {
    for object in objects(machines)? {
        apply(client, &object).await.with_context(|| format!("{} {}", object.kind, object.name))?;
    }
    Ok(())
}

fn objects(machines: &str) -> anyhow::Result<Vec<ManifestObject>> {
    let mut objects = parse_manifest(SERVICE_ACCOUNT)?;
    objects.extend(parse_manifest(ROLES)?);
    for mut object in parse_manifest(ROLES_OF_MACHINES)? {
        object.namespace = Some(machines.to_owned());
        object.body["metadata"]["namespace"] = Value::from(machines);
        objects.push(object);
    }
    Ok(objects)
}

async fn apply(client: &Client, object: &ManifestObject) -> anyhow::Result<()> {
    let (group, version) = object.api_version.split_once('/').unwrap_or(("", &object.api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &object.kind));
    let api: Api<DynamicObject> = match &object.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let body: DynamicObject = serde_json::from_value(object.body.clone())?;
    match api.create(&PostParams::default(), &body).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {
            api.patch(&object.name, &PatchParams::default(), &Patch::Merge(&object.body)).await?;
        }
        created => drop(created?),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_binding_names_the_service_account() {
        let objects = objects("team").expect("manifests");
        let bindings: Vec<_> = objects.iter().filter(|object| object.kind.ends_with("RoleBinding")).collect();
        assert_eq!(bindings.len(), 4);
        for binding in bindings {
            let subject = &binding.body["subjects"][0];
            let (namespace, name) = ACCOUNT;
            assert_eq!((&subject["namespace"], &subject["name"]), (&namespace.into(), &name.into()));
        }
        let of_machines = objects.iter().filter(|object| object.name.ends_with(":machines"));
        assert!(of_machines.clone().count() == 2);
        assert!(of_machines.into_iter().all(|object| object.namespace.as_deref() == Some("team")));
    }
}
