//! The schema of each kind, from the top down. It has the same fields as the Rust types in
//! [`crate::mcm`].

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;

use super::schema::{
    Refine, any_object, array_of, boolean, int_or_string, int32, int64, map_of, object, resource_list,
    string, time,
};

pub(super) fn machine() -> JSONSchemaProps {
    object([
        ("apiVersion", api_version()),
        ("kind", kind()),
        ("metadata", any_object()),
        ("spec", machine_spec()),
        ("status", machine_status()),
    ])
    .describe("Desired state of one instance and its Node.")
}

pub(super) fn machine_class() -> JSONSchemaProps {
    object([
        ("apiVersion", api_version()),
        ("kind", kind()),
        ("metadata", any_object()),
        ("nodeTemplate", class_node_template()),
        (
            "credentialsSecretRef",
            secret_reference().describe("Secret with data that overrides the data of secretRef."),
        ),
        ("secretRef", secret_reference().describe("Secret with credentials and userData.")),
        (
            "providerSpec",
            any_object()
                .keep_unknown()
                .describe("Settings of the instance; only the driver of the cloud reads them."),
        ),
        ("provider", string().describe("Name of the cloud.")),
    ])
    .required(&["providerSpec"])
    .describe("Desired properties of instances.")
}

pub(super) fn machine_set() -> JSONSchemaProps {
    let spec = object([
        ("replicas", int32().describe("Desired number of Machines.")),
        ("selector", label_selector().describe("Selector of the Machines.")),
        ("machineClass", class_spec().describe("Ignored; the class of the template is used.")),
        ("template", machine_template()),
        ("minReadySeconds", int32().describe("Stored, but ignored.")),
        (
            "autoPreserveFailedMachineMax",
            int32().describe("Maximum number of failed Machines that are preserved automatically."),
        ),
    ]);
    object([
        ("apiVersion", api_version()),
        ("kind", kind()),
        ("metadata", any_object()),
        ("spec", spec),
        ("status", machine_set_status()),
    ])
    .describe("A number of Machines of one template.")
}

pub(super) fn machine_deployment() -> JSONSchemaProps {
    object([
        ("apiVersion", api_version()),
        ("kind", kind()),
        ("metadata", any_object()),
        ("spec", machine_deployment_spec()),
        ("status", machine_deployment_status()),
    ])
    .describe("A number of Machines of one template, with rollouts from one template to the next.")
}

fn api_version() -> JSONSchemaProps {
    string().describe("machine.sapcloud.io/v1alpha1.")
}

fn kind() -> JSONSchemaProps {
    string().describe("Kind of this object.")
}

fn machine_spec() -> JSONSchemaProps {
    object([
        ("class", class_spec().describe("Reference to the MachineClass.")),
        ("providerID", string().describe("Identity of the instance; set by the controller.")),
        ("nodeTemplate", node_template()),
        ("drainTimeout", string().describe("Maximum duration of a normal drain, such as 20m.")),
        (
            "healthTimeout",
            string().describe("Time that the Node may be unhealthy before the Machine is replaced."),
        ),
        ("creationTimeout", string().describe("Maximum duration of creation and joining.")),
        ("inPlaceUpdateTimeout", string().describe("Maximum duration of an update in place.")),
        ("machinePreserveTimeout", string().describe("Time that a preserved Machine is kept.")),
        ("disableHealthTimeout", boolean().describe("Never replace the Machine because of its health.")),
        ("maxEvictRetries", int32().describe("Eviction attempts for each pod.")),
        (
            "nodeConditions",
            string().describe(
                "Comma-separated condition types that mean unhealthy unless their status is False.",
            ),
        ),
    ])
    .describe("Desired state of the Machine.")
}

fn class_spec() -> JSONSchemaProps {
    object([
        ("apiGroup", string().describe("API group; not evaluated.")),
        ("kind", string().describe("MachineClass.")),
        ("name", string().describe("Name of the class, in the same namespace.")),
    ])
}

fn machine_template() -> JSONSchemaProps {
    object([
        ("metadata", any_object().keep_unknown().describe("Labels and annotations of the Machines.")),
        ("spec", machine_spec()),
    ])
    .describe("Template of the Machines.")
}

fn node_template() -> JSONSchemaProps {
    object([
        ("metadata", any_object().keep_unknown().describe("Labels and annotations for the Node.")),
        ("spec", node_spec()),
    ])
    .describe("Fields that are synced to the Node.")
}

fn node_spec() -> JSONSchemaProps {
    let config_map = object([
        ("kubeletConfigKey", string()),
        ("name", string()),
        ("namespace", string()),
        ("resourceVersion", string()),
        ("uid", string()),
    ])
    .required(&["kubeletConfigKey", "name", "namespace"]);
    let taint = object([("effect", string()), ("key", string()), ("timeAdded", time()), ("value", string())])
        .required(&["effect", "key"]);
    object([
        ("configSource", object([("configMap", config_map)])),
        ("externalID", string()),
        ("podCIDR", string()),
        ("podCIDRs", array_of(string()).list_type("set")),
        ("providerID", string()),
        ("taints", array_of(taint).list_type("atomic").describe("Taints for the Node.")),
        ("unschedulable", boolean()),
    ])
    .describe("Spec of the Node; only taints are applied.")
}

fn machine_status() -> JSONSchemaProps {
    let address = object([("address", string()), ("type", string())]).required(&["address", "type"]);
    let condition = object([
        ("lastHeartbeatTime", time()),
        ("lastTransitionTime", time()),
        ("message", string()),
        ("reason", string()),
        ("status", string()),
        ("type", string()),
    ])
    .required(&["status", "type"]);
    let current_status = object([
        ("lastUpdateTime", time().describe("Time of the last phase change.")),
        ("phase", string().describe("Pending, Running, Unknown, Failed, Terminating and others.")),
        ("preserveExpiryTime", time().describe("End of the preservation of the Machine.")),
        ("timeoutActive", boolean().describe("Whether a timeout is running.")),
    ]);
    object([
        ("addresses", array_of(address).describe("Addresses of the instance.")),
        ("conditions", array_of(condition).describe("Copy of the Node's conditions.")),
        ("currentStatus", current_status.describe("Phase and times.")),
        ("lastKnownState", string().describe("State that only the driver understands.")),
        ("lastOperation", last_operation()),
    ])
    .describe("Observed state.")
}

fn last_operation() -> JSONSchemaProps {
    object([
        ("description", string().describe("Text that describes the operation or its failure.")),
        ("errorCode", string().describe("Name of the status code of a failed operation.")),
        ("lastUpdateTime", time().describe("Time of the last update of this record.")),
        ("state", string().describe("Processing, Failed or Successful.")),
        ("type", string().describe("Create, InPlaceUpdate, DrainNode, HealthCheck or Delete.")),
    ])
    .describe("Last operation.")
}

fn failed_machines() -> JSONSchemaProps {
    let summary = object([
        ("lastOperation", last_operation()),
        ("name", string()),
        ("ownerRef", string().describe("Name of the MachineSet.")),
        ("providerID", string()),
    ]);
    array_of(summary).describe("Machines whose last operation failed.")
}

fn machine_set_status() -> JSONSchemaProps {
    let condition = object([
        ("lastTransitionTime", time()),
        ("message", string()),
        ("reason", string()),
        ("status", string()),
        ("type", string()),
    ])
    .required(&["status", "type"]);
    object([
        (
            "autoPreserveFailedMachineCount",
            int32().describe("Failed Machines that are preserved automatically."),
        ),
        ("availableReplicas", int32().describe("Machines that are Running or Available.")),
        ("failedMachines", failed_machines()),
        ("fullyLabeledReplicas", int32().describe("Machines with all labels of the template.")),
        ("lastOperation", last_operation()),
        ("machineSetCondition", array_of(condition).describe("Conditions of this object.")),
        ("observedGeneration", int64().describe("Generation of the spec that this status belongs to.")),
        ("preservedFailedReplicas", int32().describe("Failed Machines that are preserved.")),
        ("readyReplicas", int32().describe("Machines that are Running.")),
        ("replicas", int32().describe("All Machines, including those that are being deleted.")),
    ])
    .describe("Observed state.")
}

fn machine_deployment_spec() -> JSONSchemaProps {
    object([
        ("replicas", int32().describe("Desired number of Machines.")),
        (
            "selector",
            label_selector().describe("Selector of the MachineSets; must match the template's labels."),
        ),
        ("template", machine_template()),
        ("strategy", strategy()),
        ("minReadySeconds", int32().describe("Copied to the MachineSet, otherwise ignored.")),
        ("revisionHistoryLimit", int32().describe("Number of old MachineSets to keep.")),
        ("paused", boolean().describe("Whether rollouts are paused.")),
        (
            "rollbackTo",
            object([("revision", int64().describe("Revision to roll back to; 0 means the previous one."))])
                .describe("Requested rollback; the controller clears it."),
        ),
        (
            "progressDeadlineSeconds",
            int32().describe("Time without progress after which a rollout counts as failed."),
        ),
        (
            "autoPreserveFailedMachineMax",
            int32().describe("Maximum number of failed Machines that are preserved automatically."),
        ),
    ])
    .required(&["template"])
    .describe("Desired state.")
}

fn strategy() -> JSONSchemaProps {
    let max_surge =
        || int_or_string().describe("Maximum number of additional Machines; a percentage rounds up.");
    let max_unavailable =
        || int_or_string().describe("Maximum number of missing Machines; a percentage rounds down.");
    let in_place_update = object([
        ("maxSurge", max_surge()),
        ("maxUnavailable", max_unavailable()),
        (
            "orchestrationType",
            string().describe("Auto lets the controller select the Machines, Manual a user."),
        ),
    ]);
    object([
        ("inPlaceUpdate", in_place_update.describe("Limits of an update in place.")),
        (
            "rollingUpdate",
            object([("maxSurge", max_surge()), ("maxUnavailable", max_unavailable())])
                .describe("Limits of a rolling update."),
        ),
        ("type", string().describe("RollingUpdate, Recreate or InPlaceUpdate; required.")),
    ])
    .describe("Strategy of rollouts.")
}

fn machine_deployment_status() -> JSONSchemaProps {
    let condition = object([
        ("lastTransitionTime", time()),
        ("lastUpdateTime", time()),
        ("message", string()),
        ("reason", string()),
        ("status", string()),
        ("type", string()),
    ])
    .required(&["status", "type"]);
    object([
        ("availableReplicas", int32().describe("Machines that are Running or Available.")),
        ("collisionCount", int32().describe("Number of name collisions of MachineSets.")),
        ("conditions", array_of(condition).describe("Conditions of this object.")),
        ("failedMachines", failed_machines()),
        ("observedGeneration", int64().describe("Generation of the spec that this status belongs to.")),
        ("preservedFailedReplicas", int32().describe("Failed Machines that are preserved.")),
        ("readyReplicas", int32().describe("Machines that are Running.")),
        ("replicas", int32().describe("All Machines of all MachineSets.")),
        ("unavailableReplicas", int32().describe("Machines that are missing.")),
        ("updatedReplicas", int32().describe("Machines of the current template.")),
    ])
    .describe("Observed state.")
}

fn class_node_template() -> JSONSchemaProps {
    object([
        ("architecture", string().describe("Processor architecture.")),
        ("capacity", resource_list().describe("Resources; cpu, gpu and memory are required.")),
        ("instanceType", string()),
        ("region", string()),
        ("virtualCapacity", resource_list().describe("Resources that are written into the Node's capacity.")),
        ("zone", string()),
    ])
    .required(&["capacity", "instanceType", "region", "zone"])
    .keep_unknown()
    .describe("Expected properties of a Node of this class, for scaling up from zero.")
}

fn secret_reference() -> JSONSchemaProps {
    object([("name", string()), ("namespace", string())]).atomic_map()
}

fn label_selector() -> JSONSchemaProps {
    let expression = object([
        ("key", string()),
        ("operator", string().describe("In, NotIn, Exists or DoesNotExist.")),
        ("values", array_of(string()).list_type("atomic")),
    ])
    .required(&["key", "operator"]);
    object([
        ("matchExpressions", array_of(expression).list_type("atomic")),
        ("matchLabels", map_of(string())),
    ])
    .atomic_map()
}
