//! `cargo xtask`: the developer tasks that would otherwise be shell scripts.
//!
//! | command | purpose |
//! |---|---|
//! | `envtest` | finds or builds kube-apiserver, kube-controller-manager, etcd and kubectl, and prints their folder |
//! | `control-plane` | runs one or two real clusters until its standard input closes |
//! | `conformance` | compares the embedded API server with a real one, or with its recorded answers |
//! | `node-image` | builds the images of the lanes with Docker, and prints their paths |
//! | `real` | runs the test lanes that need real clusters |
//! | `openstack` | runs a control plane of OpenStack until its standard input closes |
//! | `sim` | plays seeds of the simulator |
//! | `bench` | measures the controllers on the embedded or the real API server, and compares the two servers |
//! | `kill` | scales, rolls out or drains on real clusters while it kills the controllers |
//! | `book` | checks the links of the book in `docs`, and builds it |
//! | `components` | writes the CRDs, and the files of the Cluster API providers for clusterctl |
//! | `types` | generates the type tables of the embedded API server |
//! | `tidy` | checks the rules of this workspace that the compiler cannot check |
//!
//! `xtask/README.md` explains how to use them. Deliberately absent: an async runtime and a
//! Kubernetes client. The tasks use the kubectl that belongs to the clusters, so this crate
//! compiles in seconds on a new computer.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line program prints to its terminal"
)]
#![expect(clippy::disallowed_methods, reason = "real programs run in real time")]

mod bench;
mod book;
mod components;
mod conformance;
mod control_plane;
mod debian;
mod docker;
mod envtest;
mod go_modules;
mod go_programs;
mod kill;
mod node_image;
mod ports;
mod real;
mod sim;
mod tidy;
mod types;
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
    /// Find or build kube-apiserver, kube-controller-manager, etcd and kubectl, and print their
    /// folder
    Envtest,
    /// Run one or two real clusters until standard input closes; the first line of output is JSON
    /// that describes them
    ControlPlane(control_plane::Args),
    /// Compare the embedded API server with a real one, by level, with the ledger of known
    /// differences
    Conformance(conformance::Args),
    /// Build the images of the Docker provider's lane from Debian packages and Go modules, and
    /// print their paths
    NodeImage(node_image::Args),
    /// Run the test lanes that need real clusters
    Real(real::Args),
    /// Run a control plane of OpenStack until standard input closes; the first line of output is
    /// JSON that describes it
    Openstack(real::openstack::Args),
    /// Run the inner part of the lane `capi`, which `real` starts
    #[command(hide = true)]
    CapiInside(real::capi::InsideArgs),
    /// Run the inner part of the lane `docker`, which `real` starts
    #[command(hide = true)]
    EngineInside(real::engine::InsideArgs),
    /// Play seeds of the simulator: each is one run with its own scenario, workload and faults
    Sim(sim::Args),
    /// Measure the controllers, or the embedded API server, in a build with the profile
    /// `dist`
    Bench(bench::BenchArgs),
    /// Scale, roll out or drain on real clusters while the controllers are killed, and check that
    /// nothing is lost or duplicated
    Kill(kill::Args),
    /// Check the links of the book in docs, and build it with mdbook into target/book
    Book,
    /// Write the CRDs, and the files of the Cluster API providers for clusterctl
    Components(components::Args),
    /// Generate the type tables of the embedded API server from the descriptions that Kubernetes
    /// publishes
    Types(types::Args),
    /// Check the rules of this workspace that the compiler cannot check
    Tidy,
}

fn main() -> ExitCode {
    let outcome = match Args::parse().task {
        Task::Envtest => envtest::run(),
        Task::ControlPlane(args) => control_plane::run(&args),
        Task::Conformance(args) => conformance::run(&args),
        Task::NodeImage(args) => node_image::run(&args),
        Task::Real(args) => real::run(&args),
        Task::Openstack(args) => real::openstack::run(&args),
        Task::CapiInside(args) => real::capi::inside(&args),
        Task::EngineInside(args) => real::engine::inside(&args),
        Task::Sim(args) => sim::run(&args),
        Task::Bench(args) => bench::bench(&args),
        Task::Kill(args) => kill::run(&args),
        Task::Book => book::run(),
        Task::Components(args) => components::run(&args),
        Task::Types(args) => types::run(&args),
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
