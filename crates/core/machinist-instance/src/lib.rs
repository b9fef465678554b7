//! What the core and the drivers say to each other.
//!
//! An [`Instance`] is what a cloud runs; it carries an [`InstanceKey`] that the core chose, a [`ProviderId`]
//! that the cloud chose, and a name that both use. Drivers receive an [`InstanceSpec`] and answer with
//! instances, [`Sighting`]s and [`Error`]s; [`Promises`] tell the core what it may conclude from an answer.
//!
//! Deliberately absent: Machines, classes, conditions, retries. A driver never sees a Kubernetes object, and
//! nothing here performs a call.

mod error;
mod identity;
mod instance;
mod promises;
mod spec;

pub use error::{Error, ErrorKind};
pub use identity::{IdentityError, InstanceKey, NodeName, ProviderId, RecordedId};
pub use instance::{Address, AddressKind, Foreign, Instance, InstanceRef, Power, Scope, Sighting};
pub use promises::{CallRate, CreateGuarantee, KeyTag, Promises};
pub use spec::{AccountId, Credential, InstanceSpec, UserData};
