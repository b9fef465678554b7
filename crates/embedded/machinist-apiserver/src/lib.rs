//! An embedded API server: a faithful subset of kube-apiserver, for tests, demonstrations and
//! simulation. Never for production clusters.
//!
//! One [`Server`] holds the state of one cluster, in memory or also in a data folder
//! ([`Server::open`]). In the same process, each caller gets a [`tower::Service`]
//! ([`Server::service_as`]), made for `kube::Client::new`. Over the network, [`Server::serve`]
//! serves HTTPS and writes a kubeconfig. The server does only the work of kube-apiserver. Garbage
//! collection, signing, node lifecycle and token cleaning are the work of clients.
//!
//! `Note` is a kind of your own. The attribute `#[derive(CustomResource)]` of kube gives it
//! `crd()`.
//!
//! ```
//! use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
//! use kube::api::{Api, Patch, PatchParams};
//! use kube::runtime::wait::{await_condition, conditions};
//! use machinist_apiserver::{Config, Identity, Server};
//! # struct Note;
//! # impl Note {
//! #     fn crd() -> CustomResourceDefinition {
//! #         serde_json::from_value(serde_json::json!({
//! #             "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
//! #             "metadata": {"name": "notes.example.dev"},
//! #             "spec": {
//! #                 "group": "example.dev", "scope": "Namespaced",
//! #                 "names": {"plural": "notes", "kind": "Note"},
//! #                 "versions": [{
//! #                     "name": "v1", "served": true, "storage": true,
//! #                     "schema": {"openAPIV3Schema": {"type": "object", "properties": {
//! #                         "spec": {"type": "object", "properties": {"text": {"type": "string"}}}
//! #                     }}}
//! #                 }]
//! #             }
//! #         }))
//! #         .expect("a definition")
//! #     }
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!
//! let server = Server::new(Config::default());
//! let client = kube::Client::new(server.service_as(Identity::admin()), "default");
//! let crds: Api<CustomResourceDefinition> = Api::all(client);
//! crds.patch("notes.example.dev", &PatchParams::apply("test"), &Patch::Apply(Note::crd())).await?;
//! await_condition(crds, "notes.example.dev", conditions::is_crd_established()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! `examples/foreign_controller.rs` tests a whole controller.
//!
//! # Stages of a request
//!
//! | Stage | File |
//! |---|---|
//! | connection, TLS, client certificate | `server/listen.rs` |
//! | one request from start to answer, audit | `server/service.rs` |
//! | path, method and query | `values/route.rs`, `values/query.rs` |
//! | authentication | `access/authn.rs`, `access/tokens/` |
//! | impersonation, authorization | `access/authz/` |
//! | decoding of the body | `schema/body.rs`, `schema/protobuf.rs` |
//! | the verb | `server/verbs/<verb>.rs`; what writes share is in `server/verbs/write/` |
//! | patch, server-side apply, owners of fields | `schema/patch/`, `schema/fields/` |
//! | pruning, defaults, validation of custom resources | `schema/crd/` |
//! | defaults, admission and validation of a built-in kind | `schema/kinds/<kind>.rs` |
//! | rules for metadata of every kind | `values/meta.rs` |
//! | commit, event log, watches | `store/mvcc.rs` |
//! | stable storage, if there is a data folder | `storage/` |
//! | answer: whole object, metadata, table | `schema/shape.rs`, `schema/table/` |
//!
//! Each layer imports only layers below it. They are, lowest first: `values`, `log`, `storage`,
//! `store`, `schema`, `access` and `server`. Time and randomness are injected ([`Clock`],
//! [`Ids`]), so that a simulation repeats exactly. [`Server::load`] is for tests and for restoring:
//! it stores an object as it is, without any of these stages.

mod access;
mod log;
mod schema;
mod server;
mod storage;
mod store;
mod values;

pub use access::authz::Authorization;
pub use server::audit::{AuditRecord, AuditVerb};
pub use server::config::Config;
pub use server::discovery::REFERENCE;
pub use server::handle::Server;
pub use server::kept::Kept;
pub use server::listen::{ServeError, Serving};
pub use server::load::LoadError;
pub use server::replica::ReplicaView;
pub use server::response::Body;
pub use server::service::{ApiService, NoResponse, PANICKED};

pub use storage::{Folder, StorageError};
pub use store::commits::{Commit, Subscription};
pub use store::mvcc::History;
pub use values::clock::{Clock, Ids, RandomIds, SeededIds, SystemClock, TokioClock, is_generated_suffix};
pub use values::identity::Identity;
pub use values::key::Key;
pub use values::object::Object;
pub use values::route::Verb;
pub use values::status::{ApiError, ApiResult};
pub use values::tls::{CertificateAuthority, Issued, TlsError};
pub use values::token_key::{TokenKey, TokenKeyError};
