//! `machinist sim-cloud`: the simulated cloud and its instances, as a process of its own.
//!
//! It goes on when controllers die, and its ledger goes on when it dies itself. It knows where the target cluster is and how to
//! recognise it, as every cloud's metadata service does, and holds no credential.

use std::convert::Infallible;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use machinist_cloud_sim::Cloud;
use machinist_cloud_sim::http::Server;
use machinist_node_sim::{Fleet, FleetOptions, HttpsConnector, MachineOptions, Metadata};

use crate::args::SimCloudArgs;
use crate::output::Output;
use crate::{cmd, stop, wiring};

pub(crate) async fn run(args: &SimCloudArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let stop = stop::requested().context("listening for signals")?;
    tracing::info!(version = cmd::version::VERSION, "Starting");
    let metadata = Metadata { server: args.target_server.clone(), ca_pem: target_ca(args)? };
    let folder = args.data_dir.display();
    let cloud = wiring::open_ledger(&args.data_dir)?;
    let server = Server::bind(cloud.clone(), args.listen).await.context("--listen")?;
    let url = server.url();
    let instances = cloud.alive();
    let machines = machine_options(args);
    let fleet = FleetOptions { machines, ..FleetOptions::new(metadata, Arc::new(HttpsConnector)) };
    let _fleet = Fleet::start(&cloud, fleet);
    output.line(&format!(
        "Simulated cloud at {url}, ledger in {folder}, {instances} instances alive; they join {}",
        args.target_server
    ))?;
    output.line(&format!("machinist machine-controller --provider sim --sim-endpoint {url}"))?;
    tokio::select! {
        () = server.serve(stop) => Ok(ExitCode::SUCCESS),
        never = log_trouble(&cloud) => match never {},
    }
}

/// Says when the ledger cannot be written, and when it can again: whose call was refused may be anywhere.
async fn log_trouble(cloud: &Cloud) -> Infallible {
    let mut trouble = cloud.ledger_trouble();
    while trouble.changed().await.is_ok() {
        match &*trouble.borrow_and_update() {
            Some(error) => tracing::error!(
                %error,
                "Cannot write the ledger; refusing to make or delete anything until it can be written"
            ),
            None => tracing::info!("The ledger can be written again"),
        }
    }
    // The cloud outlives this.
    std::future::pending().await
}

/// How the machines of the cloud behave.
pub(crate) fn machine_options(args: &SimCloudArgs) -> MachineOptions {
    MachineOptions { lease_renewal: args.node_lease_renewal, ..MachineOptions::default() }
}

fn target_ca(args: &SimCloudArgs) -> anyhow::Result<String> {
    let file = args.target_ca.display();
    let pem = std::fs::read_to_string(&args.target_ca)
        .with_context(|| format!("--target-ca {file}: cannot be read"))?;
    if !pem.contains("-----BEGIN CERTIFICATE-----") {
        bail!("--target-ca {file}: expected certificates in PEM");
    }
    Ok(pem)
}
