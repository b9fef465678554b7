//! The driver for OpenStack: servers of Nova with their ports and volumes, for classes of
//! Gardener's provider of machine-controller-manager.
//!
//! An [`OpenStackProvider`] opens an account per credential and region. As in every driver, `spec`
//! parses the class's `providerSpec`, `request` builds the cloud's requests, `reply` converts the
//! cloud's answers (all three pure), and `driver` awaits. `create` has the steps of a creation,
//! `parts` the ports and volumes of an instance. `client` is a thin client of Keystone, Nova,
//! Neutron and Cinder that makes one attempt per call.
//!
//! Identity: Nova has no unique names and no client tokens. The key is stored in the metadata of
//! the server and of its volume, and in a tag of its port. A port or volume of our own is made
//! first, and Nova gives it to one server only.
//!
//! Regions: a call shows only the servers of its region, so the region is the place of an instance.
//! A provider id contains the region.
//!
//! Deliberately absent: retries and waits for a state, which are the task of the runtime. Nodes,
//! load balancers and routes belong to the cloud controller manager of OpenStack.

mod client;
mod create;
mod driver;
mod id;
mod model;
mod options;
mod parts;
mod reply;
mod request;
mod secret;
mod spec;
mod tag;

pub use driver::{OpenStackProvider, PROMISES, validate};
pub use options::OpenStackOptions;
