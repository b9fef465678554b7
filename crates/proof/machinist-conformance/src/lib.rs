//! The same requests to a real kube-apiserver and to this one, and the answers compared.
//!
//! A case ([`Case`]) is a list of requests in YAML. [`run`] plays it against an [`Endpoint`], in a namespace of its own, and
//! gives back a [`Transcript`]: every answer, canonicalised (uids, revisions, times and generated names are replaced by what
//! they have in common on every server). Recorded from a real server it is the golden answer, kept as a file; replayed
//! against the embedded server it has to come out the same, byte for byte. So a changed byte in a golden fails its case.
//!
//! Nobody thinks of everything: [`generated`] makes cases from seeds, [`disagreements`] plays one against two servers at once, and
//! [`shorten`] leaves out of it what a difference does not need, so that it can be read, and kept as a case.
//!
//! Not compared: the exact time of anything (only its format), of field owners not even that, and headers other than
//! `Content-Type`, `Warning` and `Retry-After`.

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

pub use broken::Fault;
pub use case::{Case, CaseError, Level, choose, load};
pub use compare::{Comparison, Difference, compare};
pub use corpus::{Corpus, Feature, Importance};
pub use endpoint::{Endpoint, EndpointError, Remote};
pub use generate::generated;
pub use ledger::{Divergence, Ledger, Place};
pub use report::{Report, Tally};
pub use run::{RunError, Transcript, make_namespace, prepare, run, unused_namespace};
pub use sequence::{Disagreement, Sequence, Sequences, disagreements, shorten};
pub use trace::Trace;
