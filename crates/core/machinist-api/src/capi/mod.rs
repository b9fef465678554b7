//! Cluster API: the kinds of our infrastructure providers, and views of the two core kinds.
//!
//! ```text
//! docker_cluster, docker_machine      DockerCluster, DockerMachine and their templates
//! mailgun_cluster, mailgun_machine    the kinds of the tutorial's provider
//! core                                the fields of Cluster and Machine that a provider reads
//! condition, constants                conditions in both formats; labels, annotations, finalizers
//! ```
//!
//! Our kinds have one shape, which three versions serve: `v1beta2` (stored), `v1beta1` and
//! `v1alpha1`. The shape has the fields of both versions of the contract (`status.ready` in
//! addition to `status.initialization.provisioned`), so no conversion webhook is necessary. The
//! failure domains are a list in one contract and a map in the other: the schema accepts both, and
//! [`FailureDomain::list`] reads both.
//!
//! The rules of the wire:
//!
//! - Every optional field is omitted when it is absent. Core controllers fail on `null`.
//! - The views of the core kinds ignore unknown fields and are never written.

mod condition;
pub mod constants;
mod core;
mod docker_cluster;
mod docker_machine;
mod group;
mod limits;
mod mailgun_cluster;
mod mailgun_machine;
mod shared;

pub use condition::{Condition, ConditionV1, Deprecated, DeprecatedV1Beta1};
pub use core::{
    Beta1, Beta2, Bootstrap, Cluster, ClusterInitialization, ClusterSpec, ClusterStatus, ConditionView,
    ConditionsView, CoreVersion, DeprecatedView, Machine, MachineSpec, MachineStatus, NodeRef, Reference,
};
pub use docker_cluster::{
    DockerCluster, DockerClusterSpec, DockerClusterStatus, DockerClusterTemplate, DockerClusterTemplateBody,
    DockerClusterTemplateSpec, LoadBalancer, LoadBalancerStatus, LocalReference,
};
pub use docker_machine::{
    DockerMachine, DockerMachineSpec, DockerMachineStatus, DockerMachineTemplate, DockerMachineTemplateBody,
    DockerMachineTemplateSpec, DockerMachineTemplateStatus, Mount, NodeInfo,
};
pub use group::{API_VERSION, GROUP, VERSION};
pub use mailgun_cluster::{MailgunCluster, MailgunClusterSpec};
pub use mailgun_machine::{MailgunMachine, MailgunMachineSpec};
pub use shared::{
    Delivery, Endpoint, FailureDomain, Initialization, MachineAddress, MailStatus, OnUncertain,
    TemplateMetadata,
};

/// The API group of Cluster, Machine and the other core kinds.
pub const CORE_GROUP: &str = "cluster.x-k8s.io";
