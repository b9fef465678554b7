//! The reasons that only objects of the cloud-controller-manager have.

use std::fmt;

use machinist_core::ContractReason;

/// The reason for the state of a Node, a Service or the routes, with the next step.
pub type Why = machinist_core::Why<CcmReason>;
/// The result of one decision about one object of the cloud-controller-manager.
pub type Plan<A> = machinist_core::Plan<A, CcmReason>;
/// The reason for the state of a Node, a Service or the routes.
pub type Reason = machinist_core::Reason<CcmReason>;

/// A reason that only objects of the cloud-controller-manager have.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
pub enum CcmReason {
    /// The credential opens no account, so no call to the cloud is possible.
    NoAccount,
    /// The account has few calls left, and the call is not urgent.
    CallsSaved {
        /// Number of calls that the last answer of the cloud left.
        remaining: u32,
        /// Number of calls of the full account.
        limit: u32,
    },
    /// The decision needs an answer of the cloud, and the explaining process has no credential.
    CloudUnknown,
    /// Nothing shows that the account has an instance of a Node.
    AccountUnproven,
    /// The cloud shows no instance for an uninitialised Node.
    InstanceNotFound {
        /// The id or name that was looked up.
        instance: String,
    },
    /// The Node waits a moment, so that one list serves several new Nodes.
    LookupBatched,
    /// The provider id of the Node belongs to another cloud.
    NodeOfAnotherCloud {
        /// The provider id.
        id: String,
        /// Format of this provider's ids.
        expected: String,
    },
    /// The provider id of the Node cannot be parsed.
    NodeIdMalformed {
        /// The text in `spec.providerID`.
        id: String,
        /// Format of this provider's ids.
        expected: String,
    },
    /// The Node was initialised without a provider id.
    NodeWithoutId,
    /// The address of `--node-ip` does not fit the instance.
    NodeIpMismatch {
        /// Both sides.
        message: String,
    },
    /// Another Node has the same instance.
    InstanceClaimed {
        /// The instance.
        instance: String,
        /// The other Node.
        node: String,
    },
    /// The Node is not ready, but its instance exists.
    NodeNotReady {
        /// The instance.
        instance: String,
    },
    /// The Node is ready, but the cloud does not show its instance.
    ReadyWithoutInstance {
        /// The instance.
        instance: String,
    },
    /// The instance is stopped.
    InstanceStopped {
        /// The instance.
        instance: String,
    },
    /// A lookup found no instance. A second lookup follows.
    InstanceMissing {
        /// The instance.
        instance: String,
    },
    /// Two lookups found no instance, and the deletion of the Node is next.
    NodeRemovable {
        /// The instance.
        instance: String,
    },
    /// The instance is missing, and nothing proves that the credential opens its account.
    NodeAccountUnproven {
        /// The instance.
        instance: String,
    },
    /// The instance is missing, and the Node is too young to be deleted.
    NodeTooYoung {
        /// The instance.
        instance: String,
    },
    /// This process has just begun to act, so it deletes and taints no Node yet.
    LeaderTooYoung,
    /// The instance is missing, and a user excluded the Node from deletion.
    NodeDeletionSkipped {
        /// The instance.
        instance: String,
    },
    /// The instance is missing, and the Machine of the Node is expected to handle that.
    NodeOwned {
        /// The instance.
        instance: String,
        /// `namespace/name` of the Machine.
        machine: String,
    },
    /// Too many instances are missing, so no Node is deleted.
    NodeDeletionSuspended {
        /// Number of Nodes whose instance is missing, including those deleted recently.
        missing: u32,
        /// Number of Nodes with an instance of this cloud, including those deleted recently.
        nodes: u32,
        /// The rule that holds the deletion.
        held_by: BrakeRule,
    },
    /// A DELETE of the Node was rejected.
    NodeDeletionRefused {
        /// Name of the Node.
        node: String,
    },
    /// Another program provides the load balancer.
    OtherBalancerClass {
        /// Value of `spec.loadBalancerClass`.
        class: String,
    },
    /// The annotation that selects Nodes cannot be read.
    NodeSelectorInvalid {
        /// The annotation, and the expected value.
        message: String,
    },
    /// Another Service has the name for the load balancer.
    BalancerNameTaken {
        /// `namespace/name` of the other Service.
        holder: String,
    },
    /// The load balancer keeps the name of its creation for a while.
    BalancerNameKept {
        /// The name of its creation.
        first_name: String,
        /// The name that the Service chooses.
        name: String,
    },
    /// A Service records a load balancer of another account, and today's account does not show it.
    BalancerElsewhere {
        /// The id of the load balancer; absent if only its account is recorded.
        balancer: Option<String>,
        /// `namespace/name` of the Service.
        service: String,
    },
    /// The driver rejected an annotation or a setting, or found that the load balancer does not
    /// belong to the Service. The cloud rejected nothing.
    BalancerInvalid {
        /// The error, and the expected value.
        message: String,
    },
    /// The cloud is changing or deleting the load balancer.
    BalancerWorking {
        /// The change, in words of the cloud.
        change: String,
    },
    /// No Node is behind the load balancer.
    NoBackends,
    /// The load balancer lacks Nodes that are meant to be behind it.
    TargetsSkipped {
        /// Number of these Nodes.
        nodes: usize,
        /// The first of these Nodes, with the reasons.
        messages: String,
    },
    /// The load balancer forwards no port of the Service.
    NoPorts,
    /// The cluster has no Nodes, so no route is changed.
    NoNodes,
    /// The cloud is changing a route.
    RouteWorking {
        /// The change, in words of the cloud.
        change: String,
    },
    /// A change of a route failed and will be retried.
    RouteFailed {
        /// The change.
        change: String,
        /// The message of the cloud.
        message: String,
        /// Number of failing changes.
        failing: u32,
    },
    /// Two Nodes want a route to the same destination, or it is not a network.
    RouteDestinationTaken {
        /// The destination.
        destination: String,
        /// The Node without a route.
        node: String,
    },
}

/// The rule of the brake that holds the deletion of Nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrakeRule {
    /// More instances are missing than the limit allows.
    Limit {
        /// Number of instances that may be missing.
        most: u32,
    },
    /// The instances of all Nodes are missing.
    All,
    /// The last list of the account shows the instance of no Node.
    NothingShown,
}

impl fmt::Display for BrakeRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit { most } => write!(f, "at most {most} may be missing"),
            Self::All => f.write_str("all instances are missing"),
            Self::NothingShown => f.write_str("the account shows the instance of no Node"),
        }
    }
}

impl ContractReason for CcmReason {
    const PAGE: &'static str = "ccm/stuck.md";

    fn code(&self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for CcmReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAccount => f.write_str("the credential of the cloud cannot be used"),
            Self::CallsSaved { remaining, limit } => {
                write!(
                    f,
                    "few calls of the account are left ({remaining} of {limit}), and other calls are more urgent"
                )
            }
            Self::CloudUnknown => f.write_str(
                "the decision needs an answer of the cloud; only a running cloud controller manager has the \
                 credential to ask for it",
            ),
            Self::AccountUnproven => f.write_str(
                "the account shows no server of any Node, so the credential may belong to another project",
            ),
            Self::InstanceNotFound { instance } => write!(f, "the cloud shows no instance {instance}"),
            Self::LookupBatched => f.write_str("waiting a moment to look up several new Nodes at once"),
            Self::NodeOfAnotherCloud { id, expected } => {
                write!(f, "provider id {id} belongs to another cloud (expected {expected})")
            }
            Self::NodeIdMalformed { id, expected } => {
                write!(f, "provider id {id:?} is malformed: expected {expected}")
            }
            Self::NodeWithoutId => f.write_str("the Node has no provider id, although it is initialized"),
            Self::NodeIpMismatch { message } => f.write_str(message),
            Self::InstanceClaimed { instance, node } => {
                write!(f, "instance {instance} already belongs to Node {node}")
            }
            Self::NodeNotReady { instance } => {
                write!(f, "the Node is not ready, but its instance {instance} exists")
            }
            Self::ReadyWithoutInstance { instance } => {
                write!(f, "the cloud does not show instance {instance}, but the Node reports to be ready")
            }
            Self::InstanceStopped { instance } => write!(f, "instance {instance} is stopped"),
            Self::InstanceMissing { instance } => {
                write!(f, "instance {instance} was not found; a second lookup follows")
            }
            Self::NodeRemovable { instance } => {
                write!(f, "instance {instance} does not exist; the Node will be deleted")
            }
            Self::NodeAccountUnproven { instance } => write!(
                f,
                "instance {instance} was not found, but the credential may belong to another account, so the \
                 Node is kept"
            ),
            Self::NodeTooYoung { instance } => {
                write!(f, "instance {instance} was not found, but the Node is too young to be deleted")
            }
            Self::LeaderTooYoung => {
                f.write_str("this process has just started to lead, so it changes no Node yet")
            }
            Self::NodeDeletionSkipped { instance } => {
                write!(f, "instance {instance} does not exist, but an annotation keeps the Node")
            }
            Self::NodeOwned { instance, machine } => {
                write!(f, "instance {instance} does not exist; waiting for Machine {machine} to handle it")
            }
            Self::NodeDeletionSuspended { missing, nodes, held_by } => {
                write!(
                    f,
                    "the instances of {missing} of {nodes} Nodes are missing; no Node is deleted: {held_by}"
                )
            }
            Self::NodeDeletionRefused { node } => {
                write!(f, "the API server rejected the deletion of Node {node}")
            }
            Self::OtherBalancerClass { class } => {
                write!(f, "another program provides load balancers of class {class}")
            }
            Self::NodeSelectorInvalid { message } | Self::BalancerInvalid { message } => f.write_str(message),
            Self::BalancerNameTaken { holder } => {
                write!(f, "Service {holder} has the name for the load balancer, so none is created")
            }
            Self::BalancerNameKept { first_name, name } => write!(
                f,
                "the load balancer keeps its first name {first_name} for now, because an earlier creation may \
                 still take effect; it gets the name {name} after that"
            ),
            Self::BalancerElsewhere { balancer: None, service } => write!(
                f,
                "a load balancer of Service {service} may have been created with another credential, and the \
                 project of today's credential does not show it"
            ),
            Self::BalancerElsewhere { balancer: Some(balancer), service } => write!(
                f,
                "load balancer {balancer} of Service {service} was created with another credential, and the \
                 project of today's credential does not show it"
            ),
            Self::BalancerWorking { change } => {
                write!(f, "waiting for the cloud to change the load balancer: {change}")
            }
            Self::NoBackends => f.write_str("the load balancer has no Nodes"),
            Self::TargetsSkipped { nodes: 1, messages } => {
                write!(f, "a Node is not a target of the load balancer as the Service asks: {messages}")
            }
            Self::TargetsSkipped { nodes, messages } => {
                write!(
                    f,
                    "{nodes} Nodes are not targets of the load balancer as the Service asks: {messages}"
                )
            }
            Self::NoPorts => f.write_str("the load balancer forwards no port of the Service"),
            Self::NoNodes => f.write_str("the cluster has no Nodes, so no route is changed"),
            Self::RouteWorking { change } => write!(f, "waiting for the cloud to change a route: {change}"),
            Self::RouteFailed { change, message, failing } => {
                write!(f, "the cloud failed to {change}: {message}")?;
                if *failing > 1 { write!(f, " (and {} more)", failing - 1) } else { Ok(()) }
            }
            Self::RouteDestinationTaken { destination, node } => {
                write!(f, "Node {node} cannot have a route to {destination}: it is in use, or not a network")
            }
        }
    }
}

#[cfg(test)]
mod pages;
#[cfg(test)]
mod tests;
