//! The reasons that only objects of a Cluster API provider have.

use std::fmt;

use machinist_core::{Call, ContractReason};

use super::calls::{COMPLETE_NODE, LOOK_UP, SEND};

/// The reason for the state of an object of a provider, with the next step.
pub type Why = machinist_core::Why<CapiReason>;
/// The result of one decision about one object of a Cluster API provider.
pub type Plan<A> = machinist_core::Plan<A, CapiReason>;
/// The reason for the state of an object of a provider.
pub type Reason = machinist_core::Reason<CapiReason>;

/// A reason that only objects of a Cluster API provider have.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
pub enum CapiReason {
    /// A user or a core controller has paused the object or its Cluster.
    Paused {
        /// The causes, as in the condition Paused.
        causes: String,
    },
    /// Another program manages the infrastructure.
    ManagedExternally,
    /// The core controller has not made its object the owner yet.
    OwnerUnset {
        /// Kind of the expected owner.
        kind: &'static str,
    },
    /// The owner does not exist.
    OwnerMissing {
        /// Kind and name of the owner.
        owner: String,
    },
    /// The Cluster of the object is not known.
    ClusterUnknown,
    /// The Cluster names no infrastructure of this provider.
    InfrastructureUnset {
        /// Name of the Cluster.
        cluster: String,
    },
    /// The infrastructure of the Cluster does not exist.
    InfrastructureMissing {
        /// Kind and name of the infrastructure.
        infrastructure: String,
    },
    /// The infrastructure of the Cluster is not complete.
    InfrastructureNotReady {
        /// Name of the Cluster.
        cluster: String,
    },
    /// The control plane does not serve its API yet, so workers get no bootstrap data.
    ControlPlaneNotInitialized {
        /// Name of the Cluster.
        cluster: String,
    },
    /// The Machine has no bootstrap data.
    BootstrapDataMissing {
        /// Name of the Machine.
        machine: String,
    },
    /// The Machine names no version, and the DockerMachine no image.
    VersionMissing {
        /// Name of the Machine.
        machine: String,
    },
    /// The name of the container would be too long for a host name.
    NameTooLong {
        /// The name.
        name: String,
    },
    /// Another object has the same key.
    KeyTaken {
        /// `namespace/name` of the other object.
        object: String,
    },
    /// Today's engine is not the one on which the container may exist.
    OtherEngine,
    /// The recorded provider id belongs to another provider, or cannot be parsed.
    ProviderIdNotOurs {
        /// The recorded id.
        id: String,
        /// Format of this provider's ids.
        expected: String,
    },
    /// A container of that name belongs to another object.
    ContainerNotOurs {
        /// Name or id of the container.
        container: String,
    },
    /// The deleted object records no container, and another provider created one of that name.
    ContainerUnrecorded {
        /// Name of the container.
        container: String,
    },
    /// The container is recorded, but no longer exists.
    ContainerMissing {
        /// Name of the container.
        container: String,
    },
    /// The container exists and does not run.
    ContainerStopped {
        /// Name of the container.
        container: String,
    },
    /// The container of a control plane lost the address for which kubeadm configured it.
    ContainerMoved {
        /// Name of the container.
        container: String,
        /// The address of the control plane.
        from: String,
        /// The address of the container.
        to: String,
    },
    /// The operating system in the container starts.
    ContainerStarting {
        /// The missing part.
        missing: String,
    },
    /// Images are being loaded into the container.
    ImagesLoading {
        /// The present work.
        image: String,
    },
    /// The load balancer does not have this machine of the control plane yet.
    LoadBalancerPending {
        /// Name of the DockerCluster.
        cluster: String,
    },
    /// The bootstrap runs.
    Bootstrapping {
        /// The progress.
        progress: String,
    },
    /// The bootstrap failed. It is never repeated.
    BootstrapFailed {
        /// The cause.
        cause: String,
    },
    /// The workload cluster cannot be reached.
    WorkloadUnreachable {
        /// Name of the Cluster.
        cluster: String,
        /// The error.
        message: String,
    },
    /// The Node has not registered.
    NodeMissing {
        /// Name of the Node.
        node: String,
    },
    /// The Node has another provider id.
    NodeIdMismatch {
        /// Name of the Node.
        node: String,
        /// Provider id of the Node.
        id: String,
    },
    /// The cloud is creating, changing or deleting the load balancer.
    BalancerWorking {
        /// The change.
        change: String,
    },
    /// The load balancer has no address.
    BalancerWithoutAddress,
    /// The load balancer no longer has the address of the endpoint.
    BalancerAddressChanged {
        /// The address of the endpoint.
        endpoint: String,
        /// The addresses of the load balancer.
        addresses: String,
    },
    /// Machines of the cluster exist, so its load balancer is kept.
    MachinesRemain {
        /// Number of machines.
        machines: usize,
    },
    /// The engine removes the container.
    ContainerLeaving {
        /// Name of the container.
        container: String,
    },
    /// The container may still appear, because an earlier call may take effect.
    AbsenceNotProven,
    /// The mail service rejected the mail. It was not sent.
    MailRejected {
        /// The message of the mail service.
        message: String,
    },
    /// The mail may have been accepted, and the controller asks the mail service.
    MailUncertain,
    /// The mail may have been accepted, and a user must decide.
    MailOnHold {
        /// Why the mail service cannot answer.
        because: String,
    },
    /// The mail was sent, and a person has to fulfil the request.
    AwaitingFulfilment {
        /// The field that the person fills in.
        field: &'static str,
    },
}

impl ContractReason for CapiReason {
    const PAGE: &'static str = "capi/stuck.md";

    fn callee(call: Call) -> &'static str {
        match call {
            SEND | LOOK_UP => "the mail service",
            COMPLETE_NODE => "the workload cluster",
            _ => "the engine",
        }
    }

    fn code(&self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for CapiReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused { causes } => write!(f, "paused: {causes}"),
            Self::ManagedExternally => {
                f.write_str("another program manages this infrastructure (annotation cluster.x-k8s.io/managed-by)")
            }
            Self::OwnerUnset { kind } => write!(f, "waiting for the {kind} controller to set the owner reference"),
            Self::OwnerMissing { owner } => write!(f, "the owner {owner} does not exist"),
            Self::ClusterUnknown => f.write_str(
                "the Cluster is unknown: the label cluster.x-k8s.io/cluster-name is missing or names no Cluster",
            ),
            Self::InfrastructureUnset { cluster } => {
                write!(f, "Cluster {cluster} names no infrastructure of this provider in spec.infrastructureRef")
            }
            Self::InfrastructureMissing { infrastructure } => write!(f, "{infrastructure} does not exist"),
            Self::InfrastructureNotReady { cluster } => {
                write!(f, "the infrastructure of Cluster {cluster} is not ready")
            }
            Self::ControlPlaneNotInitialized { cluster } => {
                write!(f, "the control plane of Cluster {cluster} is not initialized")
            }
            Self::BootstrapDataMissing { machine } => {
                write!(f, "Machine {machine} has no bootstrap data (spec.bootstrap.dataSecretName)")
            }
            Self::VersionMissing { machine } => write!(
                f,
                "no image is known: Machine {machine} has no spec.version, and spec.customImage is not set"
            ),
            Self::NameTooLong { name } => {
                write!(f, "the container name {name} is too long for a host name (at most 63 characters)")
            }
            Self::KeyTaken { object } => write!(f, "{object} was claimed with the same key"),
            Self::OtherEngine => f.write_str(
                "the engine is not the one on which the container may exist (annotation machinist.dev/engine)",
            ),
            Self::ProviderIdNotOurs { id, expected } => {
                write!(f, "provider id {id:?} does not belong to this provider (expected {expected})")
            }
            Self::ContainerNotOurs { container } => {
                write!(f, "container {container} belongs to another object")
            }
            Self::ContainerUnrecorded { container } => write!(
                f,
                "another provider created container {container}, and nothing records whether it is of this machine"
            ),
            Self::ContainerMissing { container } => write!(f, "container {container} no longer exists"),
            Self::ContainerStopped { container } => write!(f, "container {container} does not run"),
            Self::ContainerMoved { container, from, to } => {
                write!(f, "container {container} has the address {to}, but its control plane is configured for {from}")
            }
            Self::ContainerStarting { missing } => write!(f, "the container is starting: {missing}"),
            Self::ImagesLoading { image } => write!(f, "loading images into the container: {image}"),
            Self::LoadBalancerPending { cluster } => {
                write!(f, "the load balancer of DockerCluster {cluster} does not have this machine yet")
            }
            Self::Bootstrapping { progress } => write!(f, "the bootstrap runs: {progress}"),
            Self::BootstrapFailed { cause } => write!(f, "the bootstrap failed: {cause}"),
            Self::WorkloadUnreachable { cluster, message } => {
                write!(f, "the API server of Cluster {cluster} cannot be reached: {message}")
            }
            Self::NodeMissing { node } => write!(f, "Node {node} has not registered"),
            Self::NodeIdMismatch { node, id } => write!(f, "Node {node} has another provider id: {id}"),
            Self::BalancerWorking { change } => {
                write!(f, "waiting for the engine to change the load balancer: {change}")
            }
            Self::BalancerWithoutAddress => f.write_str("the load balancer has no address"),
            Self::BalancerAddressChanged { endpoint, addresses } => {
                write!(f, "the endpoint is {endpoint}, but the load balancer now has {addresses}")
            }
            Self::MachinesRemain { machines: 1 } => {
                f.write_str("the load balancer is kept, because one machine of the cluster exists")
            }
            Self::MachinesRemain { machines } => {
                write!(f, "the load balancer is kept, because {machines} machines of the cluster exist")
            }
            Self::ContainerLeaving { container } => write!(f, "the engine is removing container {container}"),
            Self::AbsenceNotProven => {
                f.write_str("no container was found, but an earlier call may still create it")
            }
            Self::MailRejected { message } => write!(f, "the mail was rejected: {message}"),
            Self::MailUncertain => {
                f.write_str("it is unknown whether the mail was accepted; the mail service is asked")
            }
            Self::MailOnHold { because } => {
                write!(f, "it is unknown whether the mail was accepted: {because}")
            }
            Self::AwaitingFulfilment { field } => {
                write!(f, "the request was sent; waiting for a person to fill in {field}")
            }
        }
    }
}

#[cfg(test)]
mod pages;
