//! The CustomResourceDefinitions of our kinds, as values and as the YAML that `machinist crds`
//! prints.
//!
//! This file defines the kinds of the machine API, `cluster_api` the kinds of the Cluster API
//! providers.
//!
//! The definitions of the machine API are equal to Go MCM's in names, columns, subresources and
//! schema, so either program can install them. They therefore validate little: no enums, no
//! defaults, no CEL, and a pattern only on resource quantities. A stricter schema would reject
//! objects that are already stored. [`crate::validation`] checks more.
//!
//! The schemas, with the descriptions that `kubectl explain` shows, are derived from the types.

mod cluster_api;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceSubresourceScale,
    CustomResourceSubresourceStatus, CustomResourceSubresources, CustomResourceValidation, JSONSchemaProps,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ListableResource, NamespaceResourceScope, Resource};
use schemars::JsonSchema;
use serde_json::json;

pub use cluster_api::{docker_crds, mailgun_crds};

use crate::mcm::{GROUP, Machine, MachineClass, MachineDeployment, MachineSet, VERSION};

/// Returns the four CRDs of the machine API, sorted by name.
pub fn all_crds() -> Vec<CustomResourceDefinition> {
    vec![machine_classes(), machine_deployments(), machines(), machine_sets()]
}

/// Renders the CRD as YAML. The output is always the same: fields have the fixed order of their
/// type, properties are sorted by name.
///
/// # Errors
/// Never for a CRD of this module; otherwise if the YAML writer reaches one of its limits.
pub fn render_yaml(crd: &CustomResourceDefinition) -> Result<String, serde_saphyr::ser::Error> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let mut yaml = String::from("---\n");
    serde_saphyr::to_fmt_writer_with_options(&mut yaml, crd, options)?;
    Ok(yaml)
}

/// The subresources of a CRD.
enum Subresources {
    None,
    Status,
    StatusAndScale,
}

fn machine_classes() -> CustomResourceDefinition {
    define::<MachineClass>("mcc", vec![], Subresources::None)
}

fn machine_deployments() -> CustomResourceDefinition {
    let columns = vec![
        column("Ready", "integer", ".status.readyReplicas", "Machines that are Running"),
        column("Desired", "integer", ".spec.replicas", "Desired number of Machines"),
        column("Up-to-date", "integer", ".status.updatedReplicas", "Machines of the current template"),
        column("Available", "integer", ".status.availableReplicas", "Machines that are Running or Available"),
        age_column(),
    ];
    define::<MachineDeployment>("mcd", columns, Subresources::StatusAndScale)
}

fn machines() -> CustomResourceDefinition {
    let provider_id = CustomResourceColumnDefinition {
        // The column is visible only with `kubectl get -o wide`.
        priority: Some(1),
        ..column("ProviderID", "string", ".spec.providerID", "Identity of the instance")
    };
    let columns = vec![
        column("Status", "string", ".status.currentStatus.phase", "Phase of the Machine"),
        age_column(),
        column("Node", "string", ".metadata.labels.node", "Node of the instance"),
        provider_id,
    ];
    define::<Machine>("mc", columns, Subresources::Status)
}

fn machine_sets() -> CustomResourceDefinition {
    let columns = vec![
        column("Desired", "integer", ".spec.replicas", "Desired number of Machines"),
        column("Current", "integer", ".status.replicas", "Number of Machines"),
        column("Ready", "integer", ".status.readyReplicas", "Machines that are Running"),
        age_column(),
    ];
    define::<MachineSet>("mcs", columns, Subresources::StatusAndScale)
}

fn define<K: JsonSchema + ListableResource<Scope = NamespaceResourceScope>>(
    short_name: &str,
    columns: Vec<CustomResourceColumnDefinition>,
    subresources: Subresources,
) -> CustomResourceDefinition {
    let version = CustomResourceDefinitionVersion {
        name: VERSION.to_owned(),
        served: true,
        storage: true,
        schema: Some(CustomResourceValidation { open_api_v3_schema: Some(schema_of::<K>()) }),
        additional_printer_columns: (!columns.is_empty()).then_some(columns),
        subresources: subresources_of(subresources),
        ..Default::default()
    };
    CustomResourceDefinition {
        metadata: ObjectMeta { name: Some(format!("{}.{GROUP}", K::URL_PATH_SEGMENT)), ..Default::default() },
        spec: CustomResourceDefinitionSpec {
            group: GROUP.to_owned(),
            names: CustomResourceDefinitionNames {
                kind: K::KIND.to_owned(),
                list_kind: Some(K::LIST_KIND.to_owned()),
                plural: K::URL_PATH_SEGMENT.to_owned(),
                singular: Some(K::KIND.to_lowercase()),
                short_names: Some(vec![short_name.to_owned()]),
                categories: None,
            },
            scope: "Namespaced".to_owned(),
            versions: vec![version],
            ..Default::default()
        },
        status: None,
    }
}

/// Returns the schema of a kind.
fn schema_of<K: JsonSchema + Resource>() -> JSONSchemaProps {
    let mut schema = crate::schema::of::<K>();
    let properties = &mut schema["properties"];
    properties["apiVersion"] = json!({"type": "string", "description": format!("{}.", K::API_VERSION)});
    properties["kind"] = json!({"type": "string", "description": "Kind of this object."});
    properties["metadata"] = json!({"type": "object"});
    serde_json::from_value(schema).expect("a derived schema has the fields of a schema")
}

fn subresources_of(subresources: Subresources) -> Option<CustomResourceSubresources> {
    let status = Some(CustomResourceSubresourceStatus(json!({})));
    match subresources {
        Subresources::None => None,
        Subresources::Status => Some(CustomResourceSubresources { scale: None, status }),
        Subresources::StatusAndScale => Some(CustomResourceSubresources {
            scale: Some(CustomResourceSubresourceScale {
                // No selector path: Go MCM has none, and a HorizontalPodAutoscaler is not supposed
                // to find one.
                label_selector_path: None,
                spec_replicas_path: ".spec.replicas".to_owned(),
                status_replicas_path: ".status.replicas".to_owned(),
            }),
            status,
        }),
    }
}

fn column(name: &str, type_: &str, json_path: &str, description: &str) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: type_.to_owned(),
        json_path: json_path.to_owned(),
        description: Some(description.to_owned()),
        ..Default::default()
    }
}

fn age_column() -> CustomResourceColumnDefinition {
    column("Age", "date", ".metadata.creationTimestamp", "Time since the object was created")
}
