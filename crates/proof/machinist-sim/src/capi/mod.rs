//! The providers of Cluster API in a simulated world: a management cluster, a workload cluster, the
//! stand-ins of a container engine and of a mail service, and one provider between them.
//!
//! ```text
//! realm       the world: servers, stand-ins, provider, and the others below
//! core        the core controllers of Cluster API, as far as a provider needs them; kubelets; and
//!             the person who fulfils requests
//! tables      the names of the kinds in the history
//! view        all objects at one moment
//! process     the lives of the provider
//! engine      the connection to the container engine; mail: to the mail service
//! outside     containers, load balancers and mails, as the history records them
//! invariants  the rules K1 to K9
//! settled     the end state, and K10: objects, engine and mails agree
//! weather     the long faults; marks: a user who takes marks off again
//! wishes      the objects that users want, and what a person does after a restore
//! scenarios   what users do
//! run         how one scenario in one world is judged
//! mutants     the program, broken on purpose
//! ```
//!
//! One world runs one provider, for containers or for requests by mail. History, trace, faults of
//! the API servers, crash points and the sweep are the same as for the machine API.
//!
//! The stand-in of the engine is a driver. So the requests of `machinist-driver-docker` are
//! deliberately absent here: its tests use a real engine.

pub mod core;
pub mod engine;
pub mod invariants;
pub mod mail;
mod marks;
pub mod mutants;
pub mod outside;
pub mod process;
pub mod realm;
pub mod run;
pub mod scenarios;
pub mod settled;
mod tables;
pub mod view;
mod weather;
pub mod wishes;

pub use self::run::SimulatedCapi;

/// The beginning of the text of each case.
pub const PREFIX: &str = "capi/";

/// The full description of one run.
pub type Case = crate::case::CaseOf<SimulatedCapi>;
