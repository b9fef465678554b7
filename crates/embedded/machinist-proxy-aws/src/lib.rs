//! A proxy in front of moto, a server of the APIs of AWS. It adds the behaviour of AWS that moto
//! lacks and that a driver depends on, so that tests of a driver can fail for it.
//!
//! ```text
//! proxy       one request: signature, fault, action; the answer of the backend
//! signature   checks Signature Version 4, with keys that the operator or STS gave out
//! creations   the client tokens, and the instances that they created
//! delays      which new instances a read does not show yet
//! faults      refusals, lost answers and late effects on request
//! control     the operator's functions, over HTTP at `/_control`
//! form, xml   read and change requests and answers
//! backend     sends a request to moto
//! ```
//!
//! # Behaviour
//!
//! - A request needs a valid signature that is at most 15 minutes old. Only the exchange of a
//!   workload's token for keys needs none.
//! - A client token creates instances once per zone that the request names by a subnet or by its
//!   placement, or once per region if it names none. So it is also if requests with one token
//!   arrive at the same time or a client ends before the answer. With other parameters,
//!   `RunInstances` answers `IdempotentParameterMismatch`; after the termination of the instances,
//!   `IdempotentInstanceTerminated`. The filter `client-token` finds the instances.
//! - All other requests reach the backend as they are.
//!
//! The proxy reads no credential except the credentials of its tests, has no TLS, and binds to
//! loopback only.
//!
//! # Deliberately absent
//!
//! Permissions, spot requests and launch templates. Query strings that carry the signature
//! (presigned URLs) are refused as requests without one.

mod backend;
mod control;
mod creations;
mod delays;
mod faults;
mod form;
mod proxy;
mod refusal;
mod signature;
mod xml;

pub use backend::{Backend, BackendError, HttpBackend, WrongUrl};
pub use machinist_serve::LoopbackServer;
pub use proxy::{AnswerLost, Proxy};
