//! Sends the same requests to a real kube-apiserver and to this server, and compares the answers.
//!
//! A case ([`RecordedCase`]) is a list of requests in YAML. [`run`] plays a case against an
//! [`ExaminedServer`], in a namespace of its own, and returns a [`Transcript`]: every answer in
//! canonical form.
//! Canonical answers contain placeholders for uids, revisions, times and generated names. Recorded
//! from a real server, the transcript is the golden answer and is kept as a file. Replayed against
//! the embedded server, the case must produce the same transcript byte for byte.
//!
//! [`generated`] makes cases from seeds, to cover combinations that no case lists.
//! [`disagreements`] plays a generated case against two servers at once. [`shorten`] removes all
//! steps that a difference does not need, so that it can be read and kept as a case.
//!
//! Not compared: the value of server times (only their format), the times of managedFields entries,
//! and headers other than `Content-Type`, `Warning` and `Retry-After`.

mod broken;
mod canonical;
mod case;
mod compare;
mod corpus;
mod endpoint;
pub mod fuzz;
mod generate;
mod ledger;
mod report;
mod run;
mod sequence;
mod trace;

pub use broken::DeliberateFault;
pub use case::{CaseError, Level, RecordedCase, choose, load};
pub use compare::{Comparison, Difference, compare};
pub use corpus::{Corpus, Feature, Importance};
pub use endpoint::{ExaminedServer, ExchangeError, Remote};
pub use generate::generated;
pub use ledger::{DifferencePlace, Divergence, DivergenceLedger};
pub use report::{CaseTally, ConformanceReport};
pub use run::{RunError, Transcript, make_namespace, prepare, run, unused_namespace};
pub use sequence::{Disagreement, Sequence, Sequences, disagreements, shorten};
pub use trace::RequestTrace;
