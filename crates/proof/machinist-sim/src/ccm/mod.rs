//! The cloud-controller-manager in a simulated world: one cluster, the stand-in of Hetzner Cloud,
//! kubelets, and the process between them.
//!
//! ```text
//! cluster     the world: server, stand-in, kubelets, process, and the steps of its clock
//! view        all objects at one moment
//! kubelets    register Nodes, and report that they are ready while their servers run
//! process     the lives of the process
//! wire        the connection from the process to the stand-in: crash points and faults
//! project     the objects of the stand-in, as the history records them
//! invariants  the rules C1 to C12
//! settled     the end state: Nodes, servers, Services and load balancers agree, and L9
//! services    the Services that users want
//! weather     the long faults; stranger: another actor takes finalizers off
//! scenarios   what users and the cloud do
//! run         how one scenario in one world is judged
//! mutants     the program, broken on purpose
//! machines    the processes of the machine API on the same cluster and the same project
//! ```
//!
//! History, trace, faults of the API server, crash points and the sweep are the same as for the
//! machine API. The world is another one, because the stand-in has servers, load balancers and rate
//! limits, while the simulated cloud has instances only.
//!
//! Routes are deliberately absent: no rule about crashes depends on them yet.

pub mod cluster;
pub mod invariants;
pub mod kubelets;
pub mod machines;
pub mod mutants;
pub mod process;
pub mod project;
pub mod run;
pub mod scenarios;
pub mod services;
pub mod settled;
mod stranger;
pub mod view;
mod weather;
pub mod wire;

pub use self::run::SimulatedCcm;

/// The beginning of the text of each case.
pub const PREFIX: &str = "ccm/";

/// The full description of one run.
pub type Case = crate::case::CaseOf<SimulatedCcm>;
