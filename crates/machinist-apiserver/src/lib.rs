//! An embedded, faithful subset of kube-apiserver.
//!
//! One [`Server`] holds one cluster's state in memory, and keeps it in a folder if it is given one ([`Server::open`]). In
//! process it is a [`tower::Service`] per caller ([`Server::service_as`]), made for `kube::Client::new`; over the network it is
//! HTTPS on a listener with a kubeconfig ([`Server::serve`]). It holds only what kube-apiserver itself does: garbage
//! collection, signing, node lifecycle and token cleaning are clients' work.
//!
//! A request takes one path: route, authentication, authorisation, decoding, the current object, patch, pruning,
//! defaulting, validation, metadata rules, the no-op check, commit, event, answer. Time and randomness are injected
//! ([`Clock`], [`Ids`]), so that a simulation repeats exactly.
//!
//! [`Server::load`] is for tests and for taking over: it stores an object as it is, past all of that.
//!
//! Deliberately absent, with a seam each: server-side apply (`patch`), CEL (`crd::validate`), RBAC (`authn`). Never for
//! production clusters.

mod audit;
mod authn;
mod body;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod crd;
mod discovery;
mod kinds;
mod listen;
mod load;
mod meta;
mod object;
mod openapi;
mod patch;
mod protobuf;
mod resource;
mod route;
mod server;
mod service;
mod status;
mod storage;
mod store;
mod table;
mod tls;
mod verbs;

pub use audit::{AuditRecord, Commit, Subscription};
pub use authn::Identity;
pub use clock::{Clock, Ids, RandomIds, SeededIds, SystemClock, TokioClock};
pub use listen::{ServeError, Serving};
pub use load::LoadError;
pub use object::Object;
pub use server::{Config, Server};
pub use service::{ApiService, Body, ReplicaView, Unanswered};
pub use status::{ApiError, ApiResult, Target};
pub use storage::{Folder, StorageError};
pub use store::mvcc::{History, Key};
pub use tls::{CertificateAuthority, Issued, TlsError};
