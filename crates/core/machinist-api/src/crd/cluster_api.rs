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
    CustomResourceSubresources, CustomResourceValidation, JSON, JSONSchemaProps, ValidationRule,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ListableResource, NamespaceResourceScope};

use super::schema::{
    Refine, any_object, array_of, boolean, int32, int64, map_of, object, resource_list, string, time,
};
use super::{age_column, column};
use crate::capi::{
    DockerCluster, DockerClusterTemplate, DockerMachine, DockerMachineTemplate, GROUP, MailgunCluster,
    MailgunMachine, VERSION, constants,
};

/// The versions that the definitions serve, the stored one first.
const VERSIONS: [&str; 3] = [VERSION, "v1beta1", "v1alpha1"];
/// The versions that keep the contract v1beta1. The newest one is used.
const KEEPS_V1BETA1: &str = "v1alpha1_v1beta1";
/// Number of failure domains and addresses that the contract allows.
const MOST_FAILURE_DOMAINS: i64 = 100;
const MOST_ADDRESSES: i64 = 256;
const MOST_CONDITIONS: i64 = 32;
/// Length of a name in the contract.
const LONGEST_NAME: i64 = 256;
const LONGEST_ID: i64 = 512;
const LONGEST_MESSAGE: i64 = 32_768;
/// A duration in Go's format that is not negative.
const DURATION: &str = r"^(0|([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+)$";

/// Returns the definitions of the Docker provider, in the order of their files.
pub fn docker_crds() -> Vec<CustomResourceDefinition> {
    vec![
        define::<DockerCluster>(docker_cluster(), docker_cluster_columns(), HasStatus::Yes),
        define::<DockerClusterTemplate>(docker_cluster_template(), vec![age_column()], HasStatus::No),
        define::<DockerMachine>(docker_machine(), docker_machine_columns(), HasStatus::Yes),
        define::<DockerMachineTemplate>(docker_machine_template(), vec![age_column()], HasStatus::Yes),
    ]
}

/// Returns the definitions of the Mailgun provider, in the order of their files.
pub fn mailgun_crds() -> Vec<CustomResourceDefinition> {
    vec![
        define::<MailgunCluster>(mailgun_cluster(), mailgun_columns(), HasStatus::Yes),
        define::<MailgunMachine>(mailgun_machine(), mailgun_columns(), HasStatus::Yes),
    ]
}

enum HasStatus {
    Yes,
    No,
}

fn define<K: ListableResource<Scope = NamespaceResourceScope>>(
    schema: JSONSchemaProps,
    columns: Vec<CustomResourceColumnDefinition>,
    has_status: HasStatus,
) -> CustomResourceDefinition {
    let status = Some(CustomResourceSubresourceStatus(serde_json::json!({})));
    let subresources = match has_status {
        HasStatus::Yes => Some(CustomResourceSubresources { scale: None, status }),
        HasStatus::No => None,
    };
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

fn kind_with(description: &str, spec: JSONSchemaProps, status: Option<JSONSchemaProps>) -> JSONSchemaProps {
    let mut whole = object([
        ("apiVersion", string().describe("infrastructure.cluster.x-k8s.io/v1beta2.")),
        ("kind", string().describe("Kind of this object.")),
        ("metadata", any_object()),
        ("spec", spec),
    ]);
    if let (Some(status), Some(properties)) = (status, whole.properties.as_mut()) {
        properties.insert("status".to_owned(), status);
    }
    whole.describe(description)
}

fn docker_cluster() -> JSONSchemaProps {
    let status = object([
        ("ready", boolean().describe("Whether the infrastructure is complete (contract v1beta1).")),
        ("initialization", initialization()),
        ("failureDomains", failure_domains()),
        ("conditions", conditions()),
        ("deprecated", deprecated()),
        ("loadBalancer", balancer_status()),
    ]);
    kind_with(
        "The shared infrastructure of a cluster whose machines are containers.",
        docker_cluster_spec().describe("Desired state."),
        Some(status.describe("Observed state.")),
    )
}

fn docker_cluster_template() -> JSONSchemaProps {
    let template = object([("metadata", template_metadata()), ("spec", docker_cluster_spec())]);
    let spec = object([("template", template.describe("The DockerCluster to create."))])
        .required(&["template"])
        .rule("self == oldSelf", "spec.template is immutable: create a new DockerClusterTemplate instead");
    kind_with("A template of DockerClusters, for ClusterClasses.", spec, None)
}

fn docker_cluster_spec() -> JSONSchemaProps {
    let template = object([("name", string().describe("Name of the ConfigMap."))]);
    let balancer = object([
        ("imageRepository", string().describe("Repository of the image, without the last part haproxy.")),
        ("imageTag", string().describe("Tag of the image.")),
        (
            "customHAProxyConfigTemplateRef",
            template.describe("ConfigMap with a template of the configuration."),
        ),
    ]);
    object([
        (
            "controlPlaneEndpoint",
            endpoint().describe("Address of the API servers; written by the controller if it is not set."),
        ),
        ("failureDomains", failure_domains()),
        ("loadBalancer", balancer.describe("The load balancer of the API servers.")),
        ("loadbalancerImage", string().describe("The complete image of the load balancer (v1alpha1).")),
    ])
}

fn balancer_status() -> JSONSchemaProps {
    object([
        ("containerName", string().describe("Name of the container.")),
        ("ips", array_of(string()).list_type("atomic").describe("Addresses of the container.")),
        ("hostPort", port().describe("Port on the host of the engine.")),
        ("backends", array_of(string()).list_type("atomic").describe("Machines behind the load balancer.")),
    ])
    .describe("The load balancer, for users.")
}

fn docker_machine() -> JSONSchemaProps {
    let address = object([
        ("type", one_of(&["Hostname", "ExternalIP", "InternalIP", "ExternalDNS", "InternalDNS"])),
        ("address", bounded(1, LONGEST_NAME)),
    ])
    .required(&["type", "address"]);
    let status = object([
        ("ready", boolean().describe("Whether the container is complete (contract v1beta1).")),
        ("initialization", initialization()),
        ("addresses", array_of(address).list_type("atomic").at_most(MOST_ADDRESSES).describe("Addresses.")),
        ("failureDomain", bounded(1, LONGEST_NAME).describe("The failure domain of the container.")),
        ("loadBalancerConfigured", boolean().describe("Whether the load balancer has this machine.")),
        ("conditions", conditions()),
        ("deprecated", deprecated()),
    ]);
    let spec = docker_machine_spec()
        .rule(
            "!has(oldSelf.providerID) || oldSelf.providerID == '' \
             || (has(self.providerID) && self.providerID == oldSelf.providerID)",
            "spec.providerID cannot be changed once it is set",
        )
        .rule(
            "has(self.customImage) == has(oldSelf.customImage) \
             && (!has(self.customImage) || self.customImage == oldSelf.customImage)",
            "spec.customImage cannot be changed: create a new DockerMachine instead",
        );
    kind_with(
        "One machine of a cluster, which is a container.",
        spec.describe("Desired state."),
        Some(status.describe("Observed state.")),
    )
}

fn docker_machine_spec() -> JSONSchemaProps {
    let mount = object([
        (
            "containerPath",
            JSONSchemaProps { min_length: Some(1), ..string() }.describe("Path in the container."),
        ),
        ("hostPath", string().describe("Path on the host of the engine.")),
        ("readOnly", boolean().describe("Whether the container may only read.")),
    ])
    .required(&["containerPath"]);
    object([
        (
            "providerID",
            longest(LONGEST_ID).describe("Identity of the container; the controller writes it once."),
        ),
        ("customImage", string().describe("Image of the container; default: that of the version.")),
        (
            "preLoadImages",
            array_of(string()).list_type("atomic").describe("Images to load into the container."),
        ),
        (
            "extraMounts",
            array_of(mount).list_type("atomic").describe("Folders of the host in the container."),
        ),
        (
            "bootstrapTimeout",
            JSONSchemaProps { pattern: Some(DURATION.to_owned()), ..string() }
                .describe("The longest duration of the bootstrap, such as 5m."),
        ),
        ("bootstrapped", boolean().describe("Whether the bootstrap has ended (contract v1beta1).")),
    ])
}

fn docker_machine_template() -> JSONSchemaProps {
    let template = object([("metadata", template_metadata()), ("spec", docker_machine_spec())]);
    let spec =
        object([("template", template.describe("The DockerMachine to create."))]).required(&["template"]);
    let node_info = object([
        ("architecture", one_of(&["amd64", "arm64", "s390x", "ppc64le"])),
        ("operatingSystem", string()),
    ]);
    let status = object([
        ("capacity", resource_list().describe("Resources of one machine.")),
        ("nodeInfo", node_info.describe("Processor architecture and operating system.")),
    ]);
    kind_with("A template of DockerMachines.", spec, Some(status.describe("Observed state.")))
}

fn mailgun_cluster() -> JSONSchemaProps {
    let spec = request([
        ("fulfilment", one_of(&["Manual", "Assume"]).describe("Whether a person fills in the endpoint.")),
        (
            "controlPlaneEndpoint",
            endpoint()
                .describe("Address of the API servers; the person who fulfils the request fills it in."),
        ),
    ]);
    kind_with("A cluster that a person provides after a request by mail.", spec, Some(mail_status()))
}

fn mailgun_machine() -> JSONSchemaProps {
    let spec = request([(
        "providerID",
        longest(LONGEST_ID)
            .describe("Identity of the machine; the person who fulfils the request fills it in."),
    )]);
    kind_with("A machine that a person provides after a request by mail.", spec, Some(mail_status()))
}

/// The spec of a request by mail, with the properties of the kind.
fn request<const N: usize>(more: [(&str, JSONSchemaProps); N]) -> JSONSchemaProps {
    let mut spec = object([
        ("priority", one_of(&["Urgent", "ExtremelyUrgent", "BusinessCritical"]).describe("Priority.")),
        ("request", string().describe("Text of the request.")),
        ("requester", bounded(3, 320).describe("Mail address of the person who asks.")),
        (
            "recipients",
            array_of(bounded(3, 320)).list_type("atomic").describe("Mail addresses of the recipients."),
        ),
        ("messageID", longest(LONGEST_ID).describe("Message-Id of the mail; the controller writes it once.")),
        (
            "onUncertain",
            one_of(&["Verify", "Hold", "Resend"]).describe("Handling of a mail whose outcome is unknown."),
        ),
    ]);
    if let Some(properties) = spec.properties.as_mut() {
        properties.extend(more.map(|(name, schema)| (name.to_owned(), schema)));
    }
    spec.required(&["priority", "request", "requester"])
        .rule(
            "!has(oldSelf.messageID) || oldSelf.messageID == '' \
             || (has(self.messageID) && self.messageID == oldSelf.messageID)",
            "spec.messageID cannot be changed once it is set",
        )
        .describe("The request, and its fulfilment.")
}

fn mail_status() -> JSONSchemaProps {
    let delivery = object([("event", string()), ("at", string())]);
    object([
        ("ready", boolean().describe("Whether the request is fulfilled (contract v1beta1).")),
        ("initialization", initialization()),
        ("messageID", string().describe("Message-Id of the mail, as in the spec.")),
        ("sendState", string().describe("Sending, Sent, Rejected, Throttled, Unavailable or Uncertain.")),
        ("sentAt", string().describe("When the mail was accepted.")),
        ("lastError", string().describe("The last error of the mail service.")),
        ("delivery", delivery.describe("The last event of the mail service about the mail.")),
        ("conditions", conditions()),
        ("deprecated", deprecated()),
    ])
    .describe("Observed state.")
}

fn template_metadata() -> JSONSchemaProps {
    object([("labels", map_of(string())), ("annotations", map_of(string()))])
        .describe("Labels and annotations of the objects.")
}

fn initialization() -> JSONSchemaProps {
    object([("provisioned", boolean().describe("Whether the infrastructure is complete."))])
        .describe("Steps that were completed once.")
}

fn endpoint() -> JSONSchemaProps {
    object([("host", longest(LONGEST_ID)), ("port", port())])
}

/// A port. The contract v1beta1 spells an unset port as 0.
fn port() -> JSONSchemaProps {
    JSONSchemaProps { minimum: Some(0.0), maximum: Some(65_535.0), ..int32() }
}

/// A list in the contract v1beta2, a map in v1beta1. A schema cannot say that, so it accepts both.
fn failure_domains() -> JSONSchemaProps {
    JSONSchemaProps { max_items: Some(MOST_FAILURE_DOMAINS), ..JSONSchemaProps::default() }
        .keep_unknown()
        .describe("Failure domains: a list with name, controlPlane and attributes, or a map by name.")
}

fn conditions() -> JSONSchemaProps {
    let condition = object([
        ("type", bounded(1, LONGEST_NAME)),
        ("status", one_of(&["True", "False", "Unknown"])),
        ("observedGeneration", int64()),
        ("lastTransitionTime", time()),
        ("reason", string()),
        ("message", longest(LONGEST_MESSAGE)),
    ])
    .required(&["type", "status"]);
    let mut list = array_of(condition).list_type("map").at_most(MOST_CONDITIONS).describe("Conditions.");
    list.x_kubernetes_list_map_keys = Some(vec!["type".to_owned()]);
    list
}

fn deprecated() -> JSONSchemaProps {
    let condition = object([
        ("type", string()),
        ("status", string()),
        ("severity", string()),
        ("lastTransitionTime", time()),
        ("reason", string()),
        ("message", string()),
    ])
    .required(&["type", "status"]);
    let v1_beta1 = object([("conditions", array_of(condition).describe("Conditions of v1beta1."))]);
    object([("v1beta1", v1_beta1)]).describe("Fields of older contracts.")
}

fn longest(length: i64) -> JSONSchemaProps {
    JSONSchemaProps { max_length: Some(length), ..string() }
}

fn bounded(shortest: i64, length: i64) -> JSONSchemaProps {
    JSONSchemaProps { min_length: Some(shortest), ..longest(length) }
}

fn one_of(values: &[&str]) -> JSONSchemaProps {
    let values = values.iter().map(|value| JSON(serde_json::Value::from(*value))).collect();
    JSONSchemaProps { enum_: Some(values), ..string() }
}

/// Adds the validation that only these definitions have.
trait Validate: Sized {
    fn rule(self, rule: &str, message: &str) -> Self;
    fn at_most(self, items: i64) -> Self;
}

impl Validate for JSONSchemaProps {
    fn rule(mut self, rule: &str, message: &str) -> Self {
        let rule = ValidationRule {
            rule: rule.to_owned(),
            message: Some(message.to_owned()),
            ..ValidationRule::default()
        };
        self.x_kubernetes_validations.get_or_insert_default().push(rule);
        self
    }

    fn at_most(mut self, items: i64) -> Self {
        self.max_items = Some(items);
        self
    }
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
