//! Names on Nodes and Services that Kubernetes and its cloud-controller-managers agreed on, and our
//! own.

pub use crate::facts::EARLIER_CALLS_SINCE;

/// Key of the taint on a Node that waits for its initialisation. The kubelet sets it.
pub const UNINITIALIZED_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// Key of the taint on the Node of a stopped instance.
pub const SHUTDOWN_TAINT: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// Key of the taint that the cluster-autoscaler sets before it deletes an instance.
pub const AUTOSCALER_DELETION_TAINT: &str = "ToBeDeletedByClusterAutoscaler";
/// Key of the taint on a Node whose volumes may be attached to other Nodes.
pub const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";
/// Value of the taint `out-of-service` that this program sets. Kubernetes ignores the value; users
/// set `nodeshutdown`, as Kubernetes' documentation says. So this value shows whose taint it is.
pub const NODE_SHUTDOWN: &str = "nodeshutdown-machinist";
/// Effect of that taint.
pub const NO_EXECUTE: &str = "NoExecute";
/// Effect of the shutdown taint.
pub const NO_SCHEDULE: &str = "NoSchedule";

/// Annotation with the addresses that the kubelet was started with (`--node-ip`).
pub const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";
/// Annotation of a Node: `true` excludes the Node from deletion by this program.
pub const SKIP_CLOUD_DELETION: &str = "machinist.dev/skip-cloud-deletion";
/// Annotation with a time in RFC 3339: until then, the limit on the number of deleted Nodes does
/// not apply.
pub const ALLOW_NODE_DELETION_UNTIL: &str = "machinist.dev/allow-node-deletion-until";

/// Labels with the type of the instance: today's and the older one.
pub const INSTANCE_TYPE_LABELS: LabelPair =
    LabelPair { stable: "node.kubernetes.io/instance-type", beta: "beta.kubernetes.io/instance-type" };
/// Labels with the zone: today's and the older one.
pub const ZONE_LABELS: LabelPair =
    LabelPair { stable: "topology.kubernetes.io/zone", beta: "failure-domain.beta.kubernetes.io/zone" };
/// Labels with the region: today's and the older one.
pub const REGION_LABELS: LabelPair =
    LabelPair { stable: "topology.kubernetes.io/region", beta: "failure-domain.beta.kubernetes.io/region" };

/// Two labels with the same value.
#[derive(Debug, Clone, Copy)]
pub struct LabelPair {
    /// Today's label.
    pub stable: &'static str,
    /// The older label.
    pub beta: &'static str,
}

/// Label of a Node that receives no traffic of load balancers.
pub const EXCLUDE_FROM_BALANCERS: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// Finalizer of a Service that has, or may have, a load balancer.
pub const BALANCER_FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// Annotation of a Service, after the cloud's prefix: a label selector for the Nodes behind its
/// load balancer.
pub const NODE_SELECTOR: &str = "node-selector";

/// Annotation of a Service, after the cloud's prefix: the name of its load balancer.
pub const BALANCER_NAME: &str = "name";
/// Annotation of a Service: its load balancer, as `ID in ACCOUNT for UID`. Before the creation, the
/// id is `?`. In another account, the load balancer may be left over from a wrong credential.
pub const BALANCER_RECORD: &str = "machinist.dev/load-balancer";

/// Condition of a Node: the kubelet is ready.
pub const READY: &str = "Ready";
/// Condition of a Node: the network does not reach its pods.
pub const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

/// Event: a Node was initialised.
pub const SYNCED: &str = "Synced";
/// Event: the instance of an uninitialised Node was not found, or the lookup failed.
pub const CLOUD_INSTANCE_LOOKUP_FAILED: &str = "CloudInstanceLookupFailed";
/// Event: the address of `--node-ip` is not an address of the instance.
pub const NODE_IP_MISMATCH: &str = "NodeIPMismatch";
/// Event: a label of the instance is not valid for a Node.
pub const INVALID_NODE_LABEL: &str = "InvalidNodeLabel";
/// Event: a Node has an incomplete provider id.
pub const PROVIDER_ID_MALFORMED: &str = "ProviderIDMalformed";
/// Event: two Nodes have the same instance.
pub const INSTANCE_CLAIMED: &str = "InstanceClaimed";
/// Event: a Node is deleted because its instance does not exist.
pub const DELETING_NODE: &str = "DeletingNode";
/// Event: a Node could not be deleted.
pub const DELETING_NODE_FAILED: &str = "DeletingNodeFailed";
/// Event: too many instances are missing, so no Node is deleted.
pub const NODE_DELETION_SUSPENDED: &str = "NodeDeletionSuspended";
/// Event: an instance is missing, but the credential may belong to another account.
pub const ACCOUNT_UNPROVEN: &str = "CloudAccountUnproven";
/// Event: the settings of the program do not fit the account, for example an unknown network.
pub const SETTINGS_INVALID: &str = "CloudSettingsInvalid";
/// Event: the cloud rejects the credential.
pub const CREDENTIAL_DENIED: &str = "CloudCredentialDenied";

/// Event: a load balancer is created or changed.
pub const ENSURING_BALANCER: &str = "EnsuringLoadBalancer";
/// Event: a load balancer is as the Service wants it.
pub const ENSURED_BALANCER: &str = "EnsuredLoadBalancer";
/// Event: the Nodes behind a load balancer were changed.
pub const UPDATED_BALANCER: &str = "UpdatedLoadBalancer";
/// Event: a load balancer is deleted.
pub const DELETING_BALANCER: &str = "DeletingLoadBalancer";
/// Event: a load balancer was deleted.
pub const DELETED_BALANCER: &str = "DeletedLoadBalancer";
/// Event: a load balancer does not exist, and a call of an earlier process may still create it.
pub const AWAITING_EARLIER_CALLS: &str = "AwaitingEarlierCalls";
/// Event: a protected load balancer was not deleted.
pub const BALANCER_RETAINED: &str = "LoadBalancerRetained";
/// Event: no Node is behind a load balancer.
pub const UNAVAILABLE_BALANCER: &str = "UnAvailableLoadBalancer";
/// Event: the Nodes behind a load balancer could not be changed.
pub const UPDATE_BALANCER_FAILED: &str = "UpdateLoadBalancerFailed";
/// Event: a load balancer could not be deleted.
pub const DELETE_BALANCER_FAILED: &str = "DeleteLoadBalancerFailed";
/// Event: a load balancer could not be created or changed.
pub const SYNC_BALANCER_FAILED: &str = "SyncLoadBalancerFailed";
/// Event: a port of a Service has no node port, so no load balancer can reach it.
pub const PORT_SKIPPED: &str = "LoadBalancerPortSkipped";
/// Event: a Service has a load balancer in another account.
pub const BALANCER_LEFT_OVER: &str = "LoadBalancerLeftOver";
/// Event: a load balancer belongs to no Service.
pub const ORPHANED_BALANCER: &str = "OrphanedLoadBalancer";

/// Event: a route could not be created.
pub const FAILED_TO_CREATE_ROUTE: &str = "FailedToCreateRoute";
/// Event: a route could not be deleted.
pub const FAILED_TO_DELETE_ROUTE: &str = "FailedToDeleteRoute";
/// Event: routes without a Node were deleted.
pub const DELETED_ROUTE: &str = "DeletedAbandonedRoute";
/// Event: the number of routes is near its limit.
pub const ROUTE_LIMIT_NEAR: &str = "RouteLimitNear";

/// Whether a key of a label or annotation belongs to Kubernetes: its prefix is `kubernetes.io` or
/// `k8s.io`, or ends in one of them after a dot.
pub fn is_of_kubernetes(key: &str) -> bool {
    let Some((prefix, _)) = key.split_once('/') else { return false };
    ["kubernetes.io", "k8s.io"].into_iter().any(|domain| {
        prefix.strip_suffix(domain).is_some_and(|before| before.is_empty() || before.ends_with('.'))
    })
}
