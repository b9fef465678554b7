//! Spellings of Cluster API, and those that our providers add.

/// Label with the name of the Cluster.
pub const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";
/// Label of the Machines of a control plane. Its value is empty.
pub const CONTROL_PLANE_LABEL: &str = "cluster.x-k8s.io/control-plane";
/// Label that selects the objects of one instance of a provider (`--watch-filter`).
pub const WATCH_FILTER_LABEL: &str = "cluster.x-k8s.io/watch-filter";
/// Annotation that pauses an object. Its value has no meaning.
pub const PAUSED_ANNOTATION: &str = "cluster.x-k8s.io/paused";
/// Annotation of infrastructure that another program manages. Its value has no meaning.
pub const MANAGED_BY_ANNOTATION: &str = "cluster.x-k8s.io/managed-by";
/// Label of a CRD with its versions that keep the contract v1beta1.
pub const CONTRACT_V1BETA1_LABEL: &str = "cluster.x-k8s.io/v1beta1";
/// Label of a CRD with its versions that keep the contract v1beta2.
pub const CONTRACT_V1BETA2_LABEL: &str = "cluster.x-k8s.io/v1beta2";
/// Label of the objects that clusterctl manages. Its value is empty.
pub const CLUSTERCTL_LABEL: &str = "clusterctl.cluster.x-k8s.io";

/// Finalizer of a DockerCluster.
pub const DOCKER_CLUSTER_FINALIZER: &str = "dockercluster.infrastructure.cluster.x-k8s.io";
/// Finalizer of a DockerMachine.
pub const DOCKER_MACHINE_FINALIZER: &str = "dockermachine.infrastructure.cluster.x-k8s.io";

/// Annotation with the key of an instance or a load balancer: `<namespace>/<name>/<uid>` of the
/// object when it was claimed. The key survives `clusterctl move`, after which the object has
/// another UID.
pub const KEY_ANNOTATION: &str = "machinist.dev/key";
/// Annotation with the engine on which a container may exist. It is written before the first call.
pub const ENGINE_ANNOTATION: &str = "machinist.dev/engine";
/// Annotation with the id of the container: `<namespace>/<name>/<id>`. An annotation that was
/// copied from another object has no effect.
pub const CONTAINER_ID_ANNOTATION: &str = "machinist.dev/container-id";
/// Annotation with which a user gives up the containers of an object, so that its finalizer is
/// removed without proof of their deletion. Its value must be `true`.
pub const ABANDON_ANNOTATION: &str = "machinist.dev/abandon-containers";
/// Annotation with the attempt to send a mail, written before the call.
pub const SEND_INTENT_ANNOTATION: &str = "machinist.dev/send-intent";
/// Annotation with the time at which the mail was accepted.
pub const SENT_AT_ANNOTATION: &str = "machinist.dev/sent-at";
/// Annotation with which a user asks for a mail to be sent again after an uncertain outcome.
pub const RESEND_ANNOTATION: &str = "machinist.dev/resend";

/// Type of Secrets with bootstrap data and kubeconfigs.
pub const SECRET_TYPE: &str = "cluster.x-k8s.io/secret";
/// Key of the content in a Secret of this type.
pub const SECRET_VALUE: &str = "value";
/// Key of the format of bootstrap data.
pub const SECRET_FORMAT: &str = "format";
/// Taint of a Node that waits for its cloud controller manager.
pub const CLOUD_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The default port of an API server.
pub const API_PORT: u16 = 6443;

/// Types and reasons of conditions.
pub mod conditions {
    /// Summary of the other conditions.
    pub const READY: &str = "Ready";
    /// Whether the controller leaves the object alone.
    pub const PAUSED: &str = "Paused";
    /// Whether the load balancer of the API servers exists.
    pub const LOAD_BALANCER_AVAILABLE: &str = "LoadBalancerAvailable";
    /// Whether the container of the machine runs.
    pub const CONTAINER_PROVISIONED: &str = "ContainerProvisioned";
    /// Whether the operating system in the container has started.
    pub const CGROUPS_READY: &str = "CGroupsReady";
    /// Whether the images of `spec.preLoadImages` are in the container.
    pub const PRELOADED_IMAGES_READY: &str = "PreLoadedImagesReady";
    /// Whether the bootstrap commands have ended successfully.
    pub const BOOTSTRAP_COMPLETED: &str = "BootstrapCompleted";
    /// Whether the Node has the provider id of the machine. The condition is only written after a
    /// problem.
    pub const NODE_INITIALIZED: &str = "NodeInitialized";
    /// Reason of a condition: nothing listens at the address of the engine.
    pub const ENGINE_CLOSED: &str = "EngineClosed";
    /// Reason of a condition: another object has the same key or container.
    pub const KEY_TAKEN: &str = "KeyTaken";
    /// Name of the condition about the bootstrap in the contract v1beta1.
    pub const BOOTSTRAP_EXEC_SUCCEEDED: &str = "BootstrapExecSucceeded";
    /// Whether the mail with the request was accepted.
    pub const REQUEST_SENT: &str = "RequestSent";
    /// Whether a person has fulfilled the request.
    pub const FULFILLED: &str = "Fulfilled";
    /// Condition of a Cluster: its control plane serves its API.
    pub const CONTROL_PLANE_INITIALIZED: &str = "ControlPlaneInitialized";
}
