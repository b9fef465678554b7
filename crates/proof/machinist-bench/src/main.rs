//! `machinist-bench`: what `cargo xtask bench` and `cargo xtask kill` run.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "results go to standard output and errors to standard error, for xtask and for people"
)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use machinist_bench::{apiserver, kill, scale};

#[derive(Parser)]
#[command(name = "machinist-bench", about = "Measures the two controllers, and kills them")]
struct Args {
    #[command(subcommand)]
    job: Job,
}

#[derive(Subcommand)]
enum Job {
    /// Scale from 0 to N machines and back, and count
    Scale(scale::Args),
    /// Scale while the controllers are killed, and see that nothing is lost or doubled
    Kill(kill::Args),
    /// Put one mix of requests to the embedded API server and to kube-apiserver
    Apiserver(apiserver::Args),
    /// The embedded API server as a process, for the former
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
