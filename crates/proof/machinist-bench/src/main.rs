//! `machinist-bench`: the program that `cargo xtask bench` and `cargo xtask kill` run.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "results go to standard output and errors to standard error, for xtask and for people"
)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use machinist_bench::{apiserver, kill, scale};

#[derive(Parser)]
#[command(name = "machinist-bench", about = "Benchmark and crash test of the two controllers")]
struct Args {
    #[command(subcommand)]
    job: Job,
}

#[derive(Subcommand)]
enum Job {
    /// Scale from 0 to N machines and back, and measure time and requests
    Scale(scale::Args),
    /// Scale while the controllers are killed, and check that nothing is lost or duplicated
    Kill(kill::Args),
    /// Send the same mix of requests to the embedded API server and to kube-apiserver
    Apiserver(apiserver::Args),
    /// Run the embedded API server as a process, for the apiserver command
    #[command(hide = true)]
    EmbeddedServer(apiserver::EmbeddedArgs),
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Args::parse().job {
        Job::Scale(args) => scale::run(&args).await.map(|report| {
            println!("{report}");
            report.is_within_budget()
        }),
        Job::Kill(args) => kill::run(&args).await.map(|verdict| {
            println!("{verdict}");
            verdict.holds()
        }),
        Job::Apiserver(args) => apiserver::run(&args).await.map(|report| {
            println!("{report}");
            true
        }),
        Job::EmbeddedServer(args) => apiserver::serve(&args).await.map(|()| true),
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
