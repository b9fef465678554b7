//! The driver for machines that are pods of a Kubernetes cluster, for classes of Gardener's
//! `provider: local`.
//!
//! A [`LocalProvider`] opens an account per API server and namespace. As in every driver, `spec`
//! parses the class's `providerSpec`, `request` builds the objects, `reply` converts pods (all
//! three pure), and `driver` awaits. `kubeconfig` parses the credential, `failure` classifies the
//! errors of an API server, `name` and `label` have the names and marks of the objects.
//!
//! Identity: the name of a pod is unique in its namespace, and follows from the name of the
//! Machine. The driver creates pods with POST and never applies one, so it never takes over a pod
//! of another owner. The key is a label.
//!
//! An instance is a pod, a headless Service and a Secret with the user data. The pod is created
//! first and owns the other two, so the garbage collector deletes them in any case. The Secret is
//! created last: a pod without it is only a part of an instance, see
//! [`machinist_instance::Sighting::Parts`].
//!
//! Place: a call shows only the pods of its namespace, so the namespace is the place of an
//! instance. The API server is a part of the account.
//!
//! Deliberately absent: retries and waits for a state, which are the task of the runtime, and the
//! Nodes, which the kubelets inside of the pods register.

mod driver;
mod failure;
mod id;
mod kubeconfig;
mod label;
mod name;
mod options;
mod reply;
mod request;
mod spec;

pub use driver::{LocalProvider, PROMISES, validate};
pub use options::{ClusterConnector, ControlCluster, LocalOptions, client_options};
