//! The CustomResourceDefinitions of our Cluster API providers.
//!
//! Unlike the machine API, nothing has stored such objects before, so the schemas validate: ranges,
//! enums, and rules for fields that must not change. All versions have one schema, because the API
//! server converts between them only by changing `apiVersion`.
//!
//! Only the spec of a DockerMachineTemplate is not protected here. The topology controller must be
//! able to change it in a dry run, and a rule of a schema does not know the request. The policy in
//! `deploy/capi` protects it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceSubresourceStatus,
    CustomResourceSubresources, CustomResourceValidation,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ListableResource, NamespaceResourceScope};
use schemars::JsonSchema;

use super::{age_column, column, schema_of};
use crate::capi::{
    DockerCluster, DockerClusterTemplate, DockerMachine, DockerMachineTemplate, GROUP, MailgunCluster,
    MailgunMachine, VERSION, constants,
};

/// The versions that the definitions serve, the stored one first.
const VERSIONS: [&str; 3] = [VERSION, "v1beta1", "v1alpha1"];
/// The versions that keep the contract v1beta1. The newest one is used.
const KEEPS_V1BETA1: &str = "v1alpha1_v1beta1";

/// Returns the definitions of the Docker provider, in the order of their files.
pub fn docker_crds() -> Vec<CustomResourceDefinition> {
    vec![
        define::<DockerCluster>(docker_cluster_columns(), HasStatus::Yes),
        define::<DockerClusterTemplate>(vec![age_column()], HasStatus::No),
        define::<DockerMachine>(docker_machine_columns(), HasStatus::Yes),
        define::<DockerMachineTemplate>(vec![age_column()], HasStatus::Yes),
    ]
}

/// Returns the definitions of the Mailgun provider, in the order of their files.
pub fn mailgun_crds() -> Vec<CustomResourceDefinition> {
    vec![
        define::<MailgunCluster>(mailgun_columns(), HasStatus::Yes),
        define::<MailgunMachine>(mailgun_columns(), HasStatus::Yes),
    ]
}

enum HasStatus {
    Yes,
    No,
}

fn define<K: JsonSchema + ListableResource<Scope = NamespaceResourceScope>>(
    columns: Vec<CustomResourceColumnDefinition>,
    has_status: HasStatus,
) -> CustomResourceDefinition {
    let status = Some(CustomResourceSubresourceStatus(serde_json::json!({})));
    let subresources = match has_status {
        HasStatus::Yes => Some(CustomResourceSubresources { scale: None, status }),
        HasStatus::No => None,
    };
    let schema = schema_of::<K>();
    let version = |name: &str| CustomResourceDefinitionVersion {
        name: name.to_owned(),
        served: true,
        storage: name == VERSION,
        schema: Some(CustomResourceValidation { open_api_v3_schema: Some(schema.clone()) }),
        additional_printer_columns: Some(columns.clone()),
        subresources: subresources.clone(),
        ..Default::default()
    };
    let labels = [
        (constants::CONTRACT_V1BETA1_LABEL, KEEPS_V1BETA1),
        (constants::CONTRACT_V1BETA2_LABEL, VERSION),
        (constants::CLUSTERCTL_LABEL, ""),
    ];
    CustomResourceDefinition {
        metadata: ObjectMeta {
            name: Some(format!("{}.{GROUP}", K::URL_PATH_SEGMENT)),
            labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            ..Default::default()
        },
        spec: CustomResourceDefinitionSpec {
            group: GROUP.to_owned(),
            names: CustomResourceDefinitionNames {
                kind: K::KIND.to_owned(),
                list_kind: Some(K::LIST_KIND.to_owned()),
                plural: K::URL_PATH_SEGMENT.to_owned(),
                singular: Some(K::KIND.to_lowercase()),
                short_names: None,
                categories: Some(vec!["cluster-api".to_owned()]),
            },
            scope: "Namespaced".to_owned(),
            versions: VERSIONS.map(version).to_vec(),
            ..Default::default()
        },
        status: None,
    }
}

/// Path of the label with the name of the Cluster, for a column.
const CLUSTER_OF: &str = r".metadata.labels['cluster\.x-k8s\.io/cluster-name']";
/// Path of the status of the condition Ready.
const READY: &str = r#".status.conditions[?(@.type=="Ready")].status"#;

fn docker_cluster_columns() -> Vec<CustomResourceColumnDefinition> {
    vec![
        column("Cluster", "string", CLUSTER_OF, "Cluster of this object"),
        column("Endpoint", "string", ".spec.controlPlaneEndpoint.host", "Address of the API servers"),
        column("Ready", "string", READY, "Whether the infrastructure is ready"),
        age_column(),
    ]
}

fn docker_machine_columns() -> Vec<CustomResourceColumnDefinition> {
    vec![
        column("Cluster", "string", CLUSTER_OF, "Cluster of this object"),
        column(
            "Machine",
            "string",
            r#".metadata.ownerReferences[?(@.kind=="Machine")].name"#,
            "Machine that owns this object",
        ),
        column("ProviderID", "string", ".spec.providerID", "Identity of the container"),
        column("Ready", "string", READY, "Whether the machine is ready"),
        age_column(),
    ]
}

fn mailgun_columns() -> Vec<CustomResourceColumnDefinition> {
    vec![
        column("Cluster", "string", CLUSTER_OF, "Cluster of this object"),
        column("Priority", "string", ".spec.priority", "Priority of the request"),
        column("Mail", "string", ".status.sendState", "State of the mail"),
        column("Ready", "string", READY, "Whether the request is fulfilled"),
        age_column(),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn all() -> Vec<CustomResourceDefinition> {
        docker_crds().into_iter().chain(mailgun_crds()).collect()
    }

    /// Core controllers find the kinds of each version of the contract by these names and labels.
    #[test]
    fn names_and_labels_keep_both_contracts() {
        for definition in all() {
            let names = &definition.spec.names;
            assert_eq!(names.plural, format!("{}s", names.kind.to_lowercase()));
            assert_eq!(names.list_kind.as_deref(), Some(format!("{}List", names.kind).as_str()));
            let name = definition.metadata.name.as_deref();
            assert_eq!(name, Some(format!("{}.{GROUP}", names.plural).as_str()));
            assert_eq!(definition.spec.scope, "Namespaced");
            let labels: BTreeMap<String, String> = definition.metadata.labels.unwrap_or_default();
            assert_eq!(labels["cluster.x-k8s.io/v1beta1"], "v1alpha1_v1beta1");
            assert_eq!(labels["cluster.x-k8s.io/v1beta2"], "v1beta2");
            let versions = &definition.spec.versions;
            assert_eq!(versions.iter().filter(|version| version.storage).count(), 1);
            assert!(versions.iter().all(|version| version.schema == versions[0].schema), "{}", names.kind);
            let has_status = versions[0].subresources.is_some();
            assert_eq!(has_status, names.kind != "DockerClusterTemplate");
        }
    }
}
