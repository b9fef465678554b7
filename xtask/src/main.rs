//! `cargo xtask`: everything a script would do.
//!
//! | command | what it does |
//! |---|---|
//! | `envtest` | finds or builds kube-apiserver, kube-controller-manager, etcd and kubectl, and prints their folder |
//! | `control-plane` | runs one or two real clusters until its standard input closes |
//! | `conformance` | holds the embedded API server against a real one, or its recorded answers |
//! | `real` | runs the test lanes that need real clusters |
//! | `bench` | measures the controllers on the embedded or the real API server, and the two servers side by side |
//! | `kill` | scales on real clusters while the controllers are killed |
//! | `crds` | writes `deploy/crds` as the program prints it |
//! | `tidy` | checks the rules of this workspace that the compiler cannot check |
//!
//! `xtask/README.md` tells how to use them. What is deliberately absent: an async runtime and a Kubernetes client. Clusters
//! are spoken to through the kubectl that belongs to them, so this crate compiles in seconds on a new machine.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line program talks to its terminal"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "real programs are started, timed and waited for in real time"
)]

mod bench;
mod conformance;
mod control_plane;
mod crds;
mod envtest;
mod real;
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Developer tasks of Machinist")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Find or build kube-apiserver, kube-controller-manager, etcd and kubectl, and print their folder
    Envtest,
    /// Run one or two real clusters until standard input closes; the first line of output is JSON that tells where they are
    ControlPlane(control_plane::Args),
    /// Hold the embedded API server against a real one, by level, with the ledger of what differs
    Conformance(conformance::Args),
    /// Run the test lanes that need real clusters
    Real(real::Args),
    /// Measure the controllers, or the embedded API server, in the release build
    Bench(bench::BenchArgs),
    /// Scale up and down on real clusters while the controllers are killed, and see that nothing is lost or doubled
    Kill(bench::KillArgs),
    /// Write deploy/crds as the program prints it
    Crds,
    /// Check the rules of this workspace that the compiler cannot check
    Tidy,
}

fn main() -> ExitCode {
    let outcome = match Args::parse().task {
        Task::Envtest => envtest::run(),
        Task::ControlPlane(args) => control_plane::run(&args),
        Task::Conformance(args) => conformance::run(&args),
        Task::Real(args) => real::run(&args),
        Task::Bench(args) => bench::bench(&args),
        Task::Kill(args) => bench::kill(&args),
        Task::Crds => crds::run(),
        Task::Tidy => tidy::run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
