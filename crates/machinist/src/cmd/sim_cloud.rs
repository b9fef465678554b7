//! `machinist sim-cloud`: the simulated cloud and its instances in a separate process.
//!
//! The cloud keeps running when controllers crash, and its ledger survives its own crash. Like the
//! metadata service of a real cloud, it knows the address and the CA of the target cluster. It has
//! no credentials for the cluster.

use std::convert::Infallible;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use machinist_cloud_sim::Cloud;
use machinist_cloud_sim::http::LoopbackServer;
use machinist_node_sim::{Fleet, FleetOptions, HttpsConnector, MachineTiming, Metadata};

use crate::args::SimCloudArgs;
use crate::output::Output;
use crate::version::VERSION;
use crate::{stop, wiring};

pub(crate) async fn run(args: &SimCloudArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let stop = stop::requested().context("cannot listen for signals")?;
    tracing::info!(version = VERSION, "Starting");
    let metadata = Metadata { server: args.target_server.clone(), ca_pem: target_ca(args)? };
    let folder = args.data_dir.display();
    let cloud = wiring::open_ledger(&args.data_dir)?;
    let server = LoopbackServer::bind(cloud.clone(), args.listen).await.context("--listen")?;
    let url = server.url();
    let instances = cloud.alive();
    let machines = machine_options(args);
    let fleet = FleetOptions { machines, ..FleetOptions::new(metadata, Arc::new(HttpsConnector)) };
    let _fleet = Fleet::start(&cloud, fleet);
    output.line(&format!(
        "Simulated cloud at {url}, ledger in {folder}, {instances} instances alive; instances join {}",
        args.target_server
    ))?;
    output.line(&format!("machinist machine-controller --provider sim --sim-endpoint {url}"))?;
    tokio::select! {
        () = server.serve(stop) => Ok(ExitCode::SUCCESS),
        never = log_trouble(&cloud) => match never {},
    }
}

/// Logs when the ledger becomes unwritable and writable again, because the clients of failed calls
/// may run elsewhere.
async fn log_trouble(cloud: &Cloud) -> Infallible {
    let mut trouble = cloud.ledger_trouble();
    while trouble.changed().await.is_ok() {
        match &*trouble.borrow_and_update() {
            Some(error) => tracing::error!(
                %error,
                "Cannot write the ledger; rejecting create and delete calls until it is writable"
            ),
            None => tracing::info!("The ledger is writable again"),
        }
    }
    // Not reached: the cloud outlives this future.
    std::future::pending().await
}

/// Returns the options of the simulated machines.
pub(crate) fn machine_options(args: &SimCloudArgs) -> MachineTiming {
    MachineTiming { lease_renewal: args.node_lease_renewal, ..MachineTiming::default() }
}

fn target_ca(args: &SimCloudArgs) -> anyhow::Result<String> {
    let file = args.target_ca.display();
    let pem = std::fs::read_to_string(&args.target_ca)
        .with_context(|| format!("--target-ca {file}: cannot read the file"))?;
    if !pem.contains("-----BEGIN CERTIFICATE-----") {
        bail!("--target-ca {file}: expected a file with PEM certificates");
    }
    Ok(pem)
}
