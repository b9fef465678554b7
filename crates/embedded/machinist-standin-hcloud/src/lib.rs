//! A stand-in for the Hetzner Cloud API: real HTTP, for tests in process and for demonstrations
//! without an account.
//!
//! ```text
//! http       hyper: routes to `api` and `/_control`, breaks connections on request
//! standin    one request: token, rate limit, fault, `api`, journal, machines, log
//! api        one file per sort of object: validates a request, and begins an action
//! books      the state behind one lock; settles the actions whose time has come
//! effect     the change of each action, on success and on failure
//! store      all objects; `journal` keeps them on disk
//! machines   brings the servers' power to a `machinist_cloud_sim::Cloud`, so that they boot
//! control    the operator's functions; `/_control` calls them
//! ```
//!
//! # Servers that boot
//!
//! The stand-in has a [`Cloud`](machinist_cloud_sim::Cloud) inside, which holds one entry per
//! server: its power, its user data, its disk and its console. `machinist-node-sim` runs a machine
//! per entry, and needs to know nothing about Hetzner. The objects of the API are not in that
//! cloud. Its entries have no networks, no renames and no labels that can be removed, and its
//! ledger has a commit for each kind of change, while the API has some thirty actions. So the
//! stand-in keeps its own objects and its own journal, decides alone, and then brings the power of
//! each entry to the state that the server has. Bringing compares both sides. A crash between the
//! two files is repaired when the folder is opened.
//!
//! # Time
//!
//! Time comes from the given [`Clock`](machinist_cloud_sim::Clock), and [`Standin::advance`] adds
//! to it. Equal seeds, times and requests give equal replies.
//!
//! # Deliberately absent
//!
//! Volumes, firewalls, placement groups, ISOs, DNS zones, prices, the metadata
//! service of servers, and the Robot API of dedicated servers. Requests for them get the same 404
//! page as any unknown path.

mod addresses;
mod api;
mod books;
mod catalogue;
mod control;
mod effect;
mod error;
mod fault;
mod journal;
mod limit;
mod log;
mod machines;
mod model;
mod settings;
mod standin;
mod store;

pub mod http;

pub use control::{ControlError, NewServer};
pub use fault::{Fault, FaultRule};
pub use journal::OpenError;
pub use limit::Rate;
pub use log::RequestRecord;
pub use model::{
    ActionError, ActionStatus, Certificate, CertificateType, FloatingIp, HcloudAction, HcloudLoadBalancer,
    HcloudServer, HealthCheck, HealthCheckHttp, LabelMap, LbAlgorithm, LbPrivateNet, LbTarget, Network,
    NetworkRoute, PrivateNet, Protocol, PublicIp, ResourceRef, ServerStatus, Service, ServiceHttp, SshKey,
    Subnet, TargetKind,
};
pub use settings::{Access, Busy, DeletionReply, Grant, LargePages, ReadOnlyCode, Settings, Tokens};
pub use standin::Standin;
pub use store::State;
