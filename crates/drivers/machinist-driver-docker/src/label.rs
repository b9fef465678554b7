//! Labels of containers and networks. Pure.

use std::collections::BTreeMap;

/// The label that stores the key: the UID of the API object.
pub(crate) const OWNER: &str = "machinist.dev/owner-uid";
/// The label that stores the installation.
pub(crate) const CLUSTER: &str = "machinist.dev/cluster";
/// The label that stores the sort of node image, which the bootstrap needs later.
pub(crate) const IMAGE_MODE: &str = "machinist.dev/image-mode";
/// The label that stores the ports of a balancer.
pub(crate) const PORTS: &str = "machinist.dev/ports";
/// The label that stores the fixed addresses of a container.
pub(crate) const ADDRESSES: &str = "machinist.dev/addresses";
/// The label of a balancer whose network has no static addresses.
pub(crate) const ADDRESS: &str = "machinist.dev/address";
/// The value of [`ADDRESS`].
pub(crate) const DYNAMIC: &str = "dynamic";
/// The label of networks that this driver created.
pub(crate) const CREATED_BY: &str = "machinist.dev/created-by";
/// The value of [`CREATED_BY`].
pub(crate) const US: &str = "machinist-driver-docker";

/// The label of a network that only shows a free subnet.
pub(crate) const SUBNET_PROBE: &str = "machinist.dev/subnet-probe";

/// The label for the name of the Kubernetes cluster, as kind and Cluster API's provider set it.
pub(crate) const KIND_CLUSTER: &str = "io.x-k8s.kind.cluster";
/// The label for the role of a container in the cluster.
pub(crate) const KIND_ROLE: &str = "io.x-k8s.kind.role";
/// The value of [`KIND_ROLE`] of a load balancer.
pub(crate) const BALANCER_ROLE: &str = "external-load-balancer";
/// The value of [`KIND_ROLE`] of a machine of the control plane.
pub(crate) const CONTROL_PLANE_ROLE: &str = "control-plane";
/// The label for the failure domain of a machine.
pub(crate) const FAILURE_DOMAIN: &str = "io.x-k8s.cluster.failureDomain";

/// Labels by name.
pub(crate) type Labels = BTreeMap<String, String>;

/// The value of a label, unless it is empty.
pub(crate) fn get<'l>(labels: &'l Labels, name: &str) -> Option<&'l str> {
    labels.get(name).map(String::as_str).filter(|value| !value.is_empty())
}

/// Whether the container belongs to a control plane.
pub(crate) fn is_of_control_plane(labels: &Labels) -> bool {
    matches!(get(labels, KIND_ROLE), Some(BALANCER_ROLE | CONTROL_PLANE_ROLE))
}

/// Whether the container is a load balancer.
pub(crate) fn is_balancer(labels: &Labels) -> bool {
    get(labels, KIND_ROLE) == Some(BALANCER_ROLE)
}
