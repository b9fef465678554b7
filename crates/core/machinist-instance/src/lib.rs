//! Types that the core and the drivers exchange.
//!
//! An [`Instance`] runs in a cloud. It has an [`InstanceKey`] that the core chose, a [`ProviderId`]
//! that the cloud chose, and a name that both use. A driver receives an [`InstanceSpec`] and
//! returns instances, [`Sighting`]s and [`Error`]s. The driver's [`Promises`] say which
//! conclusions an answer permits.
//!
//! Deliberately absent: Machines, classes, conditions, retries. A driver never sees a Kubernetes
//! object, and this crate performs no call.

mod balancer;
mod bootstrap;
mod error;
mod identity;
mod instance;
mod promises;
mod route;
mod spec;
mod volume;

pub use balancer::{
    Balancer, BalancerDeletion, BalancerKey, BalancerNote, BalancerRef, BalancerSpec, BalancerTarget,
    BalancerTrace, Ensured, Ingress, Listener, NameClaim, Progress, SkipCause, SkippedTarget,
    TransportProtocol,
};
pub use bootstrap::{
    Boot, BootTrouble, BootstrapCause, BootstrapData, BootstrapFailure, BootstrapFormat, BootstrapState,
    BootstrapStatus, Readiness,
};
pub use error::{Circumstance, Error, ErrorKind};
pub use identity::{IdentityError, InstanceKey, NativeId, NodeName, ProviderId, RecordedId};
pub use instance::{Address, AddressKind, Foreign, Instance, InstanceRef, Marks, Power, Scope, Sighting};
pub use promises::{CallBudget, CallRate, CreateGuarantee, KeyTag, Promises};
pub use route::{Route, RouteSpec, RouteTable};
pub use spec::{AccountId, Credential, InstanceSpec, KeyScope, Place, UserData};
pub use volume::VolumeSource;
