//! Simulated machines that boot from their user data only, and then behave as kubelets.
//!
//! A [`Fleet`] follows a simulated cloud and runs one machine per instance that has power. A
//! machine knows its instance's user data, name, type and zone. It also knows the [`Metadata`] that
//! the cloud gives to every machine: the URL of the API server and its CA. From there:
//!
//! ```text
//! user_data   the bootstrap token, the machine's name, and the kubelet's flags
//! bootstrap   as system:bootstrap:ID: a CertificateSigningRequest, then the NodeIdentity with its
//!             certificate, kept on the disk
//! register    as system:node:NAME: the Node, then its Ready condition
//! lease       renewed every 10 s, or as often as told; the Node's status every 5 min
//! pods        sets its pods Running and Ready, ends those that are being deleted
//! ```
//!
//! A machine whose kubelet has `--cloud-provider=external` registers as that kubelet does: without
//! a provider id, with its hostname as its only address, and with the taint that a cloud controller
//! manager removes.
//!
//! A [`Host`] runs machines that are pods: it makes an instance of the simulated cloud for each
//! pod, and a fleet boots it.
//!
//! When the instance loses power, the machine's one task is dropped, so all of this stops at once.
//! A machine prints its progress on the instance's console. If the server rejects its token, the
//! machine retries at growing intervals and never joins.
//!
//! Deliberately absent: containers, certificate renewal (certificates last a year), and a second
//! registration after a user deletes the Node. A kubelet registers only when it starts.

mod backoff;
mod bootstrap;
mod connect;
mod fleet;
mod host;
mod identity;
mod kubelet;
mod lease;
mod machine;
mod node;
mod pods;
mod register;
mod user_data;

pub use connect::{Auth, ClientConnector, ClientError, HttpsConnector, Metadata, NODE_USER_AGENT};
pub use fleet::{Fleet, FleetOptions, Join, PodWatch};
pub use host::Host;
pub use identity::{Keys, NodeIdentity, RandomKeys, SeededKeys};
pub use kubelet::{CloudProvider, Kubelet};
pub use machine::MachineTiming;
pub use user_data::{BootData, BootstrapToken, UserDataError};
