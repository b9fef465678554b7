//! `machinist-bench`: the program that `cargo xtask bench` and `cargo xtask kill` run.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "results go to standard output and errors to standard error, for xtask and for people"
)]

use std::fmt::Display;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use machinist_bench::ccm::CcmReport;
use machinist_bench::kill::KillVerdict;
use machinist_bench::scale::ScaleReport;
use machinist_bench::{apiserver, capi, ccm, kill, scale};

#[derive(Parser)]
#[command(name = "machinist-bench", about = "Benchmark and crash test of the controllers")]
struct Args {
    #[command(subcommand)]
    job: Job,
}

#[derive(Subcommand)]
enum Job {
    /// Scale from 0 to N machines and back, and measure time and requests
    Scale(scale::Args),
    /// Scale, roll out or drain while the controllers are killed, and check that nothing is lost or
    /// duplicated
    Kill(kill::Args),
    /// Initialise N Nodes with the cloud controller manager, and count its requests
    Ccm(ccm::Args),
    /// Provision N DockerMachines, and compare the rate with the limit of the engine
    Capi(capi::Args),
    /// Send the same mix of requests to the embedded API server and to kube-apiserver
    Apiserver(apiserver::Args),
    /// Run the embedded API server as a process, for the apiserver command
    #[command(hide = true)]
    EmbeddedServer(apiserver::EmbeddedArgs),
}

fn main() -> ExitCode {
    let outcome = match Args::parse().job {
        Job::Scale(args) => printed(in_runtime(scale::run(&args)), ScaleReport::is_within_budget),
        Job::Kill(args) => printed(in_runtime(kill::run(&args)), KillVerdict::holds),
        // Pauses time, for which it needs its own runtime.
        Job::Ccm(args) => printed(ccm::run(&args), CcmReport::is_within_budget),
        Job::Capi(args) => printed(in_runtime(capi::run(&args)), |report| {
            let missed = report.missed();
            for goal in &missed {
                eprintln!("missed goal: {goal}");
            }
            missed.is_empty()
        }),
        Job::Apiserver(args) => printed(in_runtime(apiserver::run(&args)), |_| true),
        Job::EmbeddedServer(args) => in_runtime(apiserver::serve(&args)).map(|()| true),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a result, and returns whether it is good.
fn printed<T: Display>(result: Result<T>, is_good: impl Fn(&T) -> bool) -> Result<bool> {
    let result = result?;
    println!("{result}");
    Ok(is_good(&result))
}

fn in_runtime<T>(job: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("cannot start the Tokio runtime")?.block_on(job)
}
