//! The schema of each kind, from the top down. Field by field it says what [`crate::mcm`] says in Rust.

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
    .describe("One instance that should exist, and the Node that should come of it.")
}

pub(super) fn machine_class() -> JSONSchemaProps {
    object([
        ("apiVersion", api_version()),
        ("kind", kind()),
        ("metadata", any_object()),
        ("nodeTemplate", class_node_template()),
        (
            "credentialsSecretRef",
            secret_reference().describe("Secret whose data is merged over that of secretRef."),
        ),
        ("secretRef", secret_reference().describe("Secret with credentials and userData.")),
        (
            "providerSpec",
            any_object().keep_unknown().describe("What the instance should be, in the words of its cloud."),
        ),
        ("provider", string().describe("Name of the cloud.")),
    ])
    .required(&["providerSpec"])
    .describe("What the instances of a kind should be.")
}

pub(super) fn machine_set() -> JSONSchemaProps {
    let spec = object([
        ("replicas", int32().describe("How many Machines there should be.")),
        ("selector", label_selector().describe("Which Machines count.")),
        ("machineClass", class_spec().describe("Not acted upon; the class is the template's.")),
        ("template", machine_template()),
        ("minReadySeconds", int32().describe("Carried, not honoured.")),
        (
            "autoPreserveFailedMachineMax",
            int32().describe("How many failed Machines are preserved by themselves."),
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
    .describe("A number of Machines of one template, and how to get from one template to the next.")
}

fn api_version() -> JSONSchemaProps {
    string().describe("machine.sapcloud.io/v1alpha1.")
}

fn kind() -> JSONSchemaProps {
    string().describe("The kind of this object.")
}

fn machine_spec() -> JSONSchemaProps {
    object([
        ("class", class_spec().describe("The class that says what the instance should be.")),
        ("providerID", string().describe("Identity of the instance; set by the controller.")),
        ("nodeTemplate", node_template()),
        ("drainTimeout", string().describe("How long a normal drain may take, such as 20m.")),
        (
            "healthTimeout",
            string().describe("How long the Node may be unhealthy before the Machine is replaced."),
        ),
        ("creationTimeout", string().describe("How long creation and joining may take.")),
        ("inPlaceUpdateTimeout", string().describe("How long an update in place may take.")),
        ("machinePreserveTimeout", string().describe("How long a preserved Machine is kept.")),
        ("disableHealthTimeout", boolean().describe("Never replace the Machine because of its health.")),
        ("maxEvictRetries", int32().describe("Eviction attempts for each pod.")),
        (
            "nodeConditions",
            string().describe("Comma list of condition types that mean unhealthy unless False."),
        ),
    ])
    .describe("What the Machine should be.")
}

fn class_spec() -> JSONSchemaProps {
    object([
        ("apiGroup", string().describe("For information only.")),
        ("kind", string().describe("MachineClass.")),
        ("name", string().describe("Name of the class, in the same namespace.")),
    ])
}

fn machine_template() -> JSONSchemaProps {
    object([
        ("metadata", any_object().keep_unknown().describe("Labels and annotations of the Machines.")),
        ("spec", machine_spec()),
    ])
    .describe("What the Machines should be.")
}

fn node_template() -> JSONSchemaProps {
    object([
        ("metadata", any_object().keep_unknown().describe("Labels and annotations for the Node.")),
        ("spec", node_spec()),
    ])
    .describe("What is kept in sync on the Node.")
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
    .describe("Only taints are acted upon.")
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
        ("lastUpdateTime", time().describe("Since when the phase is what it is.")),
        ("phase", string().describe("Pending, Running, Unknown, Failed, Terminating and others.")),
        ("preserveExpiryTime", time().describe("Until when the Machine is preserved.")),
        ("timeoutActive", boolean().describe("Whether a timeout runs.")),
    ]);
    object([
        ("addresses", array_of(address).describe("Addresses of the instance.")),
        ("conditions", array_of(condition).describe("Copy of the Node's conditions.")),
        ("currentStatus", current_status.describe("Phase and times.")),
        ("lastKnownState", string().describe("State that only the driver understands.")),
        ("lastOperation", last_operation()),
    ])
    .describe("What was observed.")
}

fn last_operation() -> JSONSchemaProps {
    object([
        ("description", string().describe("What is being done, or why it failed.")),
        ("errorCode", string().describe("Name of the status code that it failed with.")),
        ("lastUpdateTime", time().describe("When this was written.")),
        ("state", string().describe("Processing, Failed or Successful.")),
        ("type", string().describe("Create, InPlaceUpdate, DrainNode, HealthCheck or Delete.")),
    ])
    .describe("What was done last.")
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
        ("autoPreserveFailedMachineCount", int32().describe("Failed Machines preserved by themselves.")),
        ("availableReplicas", int32().describe("Machines that are Running or Available.")),
        ("failedMachines", failed_machines()),
        ("fullyLabeledReplicas", int32().describe("Machines with all labels of the template.")),
        ("lastOperation", last_operation()),
        ("machineSetCondition", array_of(condition).describe("The conditions.")),
        ("observedGeneration", int64().describe("Generation of the spec that this is about.")),
        ("preservedFailedReplicas", int32().describe("Failed Machines that are preserved.")),
        ("readyReplicas", int32().describe("Machines that are Running.")),
        ("replicas", int32().describe("All Machines, those being deleted included.")),
    ])
    .describe("What was observed.")
}

fn machine_deployment_spec() -> JSONSchemaProps {
    object([
        ("replicas", int32().describe("How many Machines there should be.")),
        ("selector", label_selector().describe("Which MachineSets count; must match the template's labels.")),
        ("template", machine_template()),
        ("strategy", strategy()),
        ("minReadySeconds", int32().describe("Copied to the MachineSet, otherwise not honoured.")),
        ("revisionHistoryLimit", int32().describe("How many old MachineSets are kept.")),
        ("paused", boolean().describe("Whether rollouts rest.")),
        (
            "rollbackTo",
            object([("revision", int64().describe("0 means the one before."))])
                .describe("A wish to go back; cleared by the controller."),
        ),
        ("progressDeadlineSeconds", int32().describe("How long a rollout may stand still.")),
        (
            "autoPreserveFailedMachineMax",
            int32().describe("How many failed Machines are preserved by themselves."),
        ),
    ])
    .required(&["template"])
    .describe("What should be.")
}

fn strategy() -> JSONSchemaProps {
    let max_surge = || int_or_string().describe("How many may be too many; a percentage rounds up.");
    let max_unavailable = || int_or_string().describe("How many may be missing; a percentage rounds down.");
    let in_place_update = object([
        ("maxSurge", max_surge()),
        ("maxUnavailable", max_unavailable()),
        ("orchestrationType", string().describe("Auto or Manual: who picks the Machines.")),
    ]);
    object([
        ("inPlaceUpdate", in_place_update.describe("Bounds of an update in place.")),
        (
            "rollingUpdate",
            object([("maxSurge", max_surge()), ("maxUnavailable", max_unavailable())])
                .describe("Bounds of a rolling update."),
        ),
        ("type", string().describe("RollingUpdate, Recreate or InPlaceUpdate; has to be given.")),
    ])
    .describe("How to get from one template to the next.")
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
        ("collisionCount", int32().describe("How often a MachineSet's name was taken.")),
        ("conditions", array_of(condition).describe("The conditions.")),
        ("failedMachines", failed_machines()),
        ("observedGeneration", int64().describe("Generation of the spec that this is about.")),
        ("preservedFailedReplicas", int32().describe("Failed Machines that are preserved.")),
        ("readyReplicas", int32().describe("Machines that are Running.")),
        ("replicas", int32().describe("All Machines of all MachineSets.")),
        ("unavailableReplicas", int32().describe("Machines that are missing.")),
        ("updatedReplicas", int32().describe("Machines of the current template.")),
    ])
    .describe("What was observed.")
}

fn class_node_template() -> JSONSchemaProps {
    object([
        ("architecture", string().describe("Processor architecture.")),
        ("capacity", resource_list().describe("Resources; cpu, gpu and memory have to be there.")),
        ("instanceType", string()),
        ("region", string()),
        ("virtualCapacity", resource_list().describe("Resources that are written into the Node's capacity.")),
        ("zone", string()),
    ])
    .required(&["capacity", "instanceType", "region", "zone"])
    .keep_unknown()
    .describe("What a Node of this class will look like, for scaling up from zero.")
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
