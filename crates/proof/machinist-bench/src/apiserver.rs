//! Compares the embedded API server with kube-apiserver and etcd: the same requests, from the same
//! client, on the same machine, in one run.
//!
//! ```text
//! for each server: start -> kinds -> writes -> reads -> watch fan-out -> fill -> memory (-> kill, start again)
//! ```
//!
//! All servers are separate processes, and the client connects over HTTPS with a client
//! certificate. The client neither builds nor parses typed objects. Its own cost is part of both
//! sides of a ratio and moves the ratio towards 1.
//!
//! Deliberately absent: absolute limits on throughput. Machines differ, so the benchmark compares
//! what one machine does with either server.

mod load;
mod report;
mod subject;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use machinist_apiserver::{Config, Folder, Server};

use self::load::Load;
pub use self::report::ApiServerReport;
use self::report::Measured;
use self::subject::Subject;
use crate::report::Format;

/// Options of `machinist-bench apiserver`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// How long each part is measured, in seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,

    /// How many objects the memory and restart measurements use
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    objects: u32,

    /// Do not run kube-apiserver
    #[arg(long)]
    embedded_only: bool,

    /// Output format: text for people, or one JSON object
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
}

/// Options of the embedded server's process.
#[derive(Debug, Clone, clap::Args)]
pub struct EmbeddedArgs {
    /// Folder for the kubeconfig and the CA; with --keep, also for the state
    #[arg(long)]
    folder: PathBuf,

    /// Store the state in this folder
    #[arg(long)]
    keep: bool,
}

/// Runs the benchmark.
///
/// # Errors
/// If a server does not start or rejects a request; the error names the server.
pub async fn run(args: &Args) -> Result<ApiServerReport> {
    let memory = measure(Subject::embedded(subject::Keeping::Memory).await?, args).await?;
    let data_dir = measure(Subject::embedded(subject::Keeping::Folder).await?, args).await?;
    let real = if args.embedded_only { None } else { Some(measure(Subject::real().await?, args).await?) };
    Ok(ApiServerReport { format: args.output, objects: args.objects, memory, data_dir, real })
}

async fn measure(mut subject: Subject, args: &Args) -> Result<Measured> {
    let load = Load::prepare(subject.client().await?, Duration::from_secs(args.seconds.into())).await?;
    let writes = load.writes().await?;
    let reads = load.reads().await?;
    let fan_out = load.fan_out().await?;
    load.fill(args.objects).await?;
    let memory_mb = subject.resident_mb()?;
    let restart_ms = subject.restart().await?;
    Ok(Measured {
        name: subject.name.clone(),
        start_ms: subject.start_ms,
        writes,
        reads,
        fan_out,
        memory_mb,
        restart_ms,
    })
}

/// Runs the embedded server until the process is killed.
///
/// # Errors
/// If the folder cannot be opened or the server cannot start.
pub async fn serve(args: &EmbeddedArgs) -> Result<()> {
    let server = if args.keep {
        Server::open(Config::default(), Folder::open(&args.folder)?)?
    } else {
        Server::new(Config::default())
    };
    let address = std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0));
    let serving = server.serve(address, &args.folder).await?;
    subject::say_ready(&serving.url())?;
    std::future::pending().await
}
