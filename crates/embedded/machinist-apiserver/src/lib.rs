//! An embedded, faithful subset of kube-apiserver.
//!
//! One [`Server`] holds one cluster's state in memory, and keeps it in a folder if it is given one ([`Server::open`]). In
//! process it is a [`tower::Service`] per caller ([`Server::service_as`]), made for `kube::Client::new`; over the network it is
//! HTTPS on a listener with a kubeconfig ([`Server::serve`]). It holds only what kube-apiserver itself does: garbage
//! collection, signing, node lifecycle and token cleaning are clients' work.
//!
//! A request takes one path: route, authentication, authorisation, decoding, the current object, patch or apply, pruning,
//! defaulting, owners of fields, validation, metadata rules, the no-op check, commit, event, answer. Time and randomness are injected
//! ([`Clock`], [`Ids`]), so that a simulation repeats exactly.
//!
//! [`Server::load`] is for tests and for taking over: it stores an object as it is, past all of that.
//!
//! Never for production clusters.

mod audit;
mod authn;
mod authz;
mod body;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod crd;
mod discovery;
mod fields;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod go;
mod kinds;
mod listen;
mod load;
mod meta;
mod object;
mod openapi;
mod patch;
mod protobuf;
mod resource;
mod reviews;
mod route;
mod server;
mod service;
mod status;
mod storage;
mod store;
mod table;
mod tls;
mod tokens;
mod verbs;

pub use audit::{AuditRecord, Commit, Subscription};
pub use authn::Identity;
pub use authz::Authorization;
pub use clock::{Clock, Ids, RandomIds, SeededIds, SystemClock, TokioClock};
pub use listen::{ServeError, Serving};
pub use load::LoadError;
pub use object::Object;
pub use server::{Config, Server};
pub use service::{ApiService, Body, ReplicaView, Unanswered};
pub use status::{ApiError, ApiResult, Target};
pub use storage::{Folder, Kept, StorageError};
pub use store::mvcc::{History, Key};
pub use tls::{CertificateAuthority, Issued, TlsError};
pub use tokens::{TokenKey, TokenKeyError};
