//! `machinist stand-in`: the API of a real cloud without the cloud, for tests and demonstrations.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use machinist_cloud_sim::Clock;
use machinist_node_sim::{Fleet, FleetOptions, HttpsConnector, Metadata};
use machinist_standin_hcloud::http::LoopbackServer;
use machinist_standin_hcloud::{Access, Settings, Standin, Tokens};

use crate::args::{StandInArgs, StandInName};
use crate::output::Output;
use crate::version::VERSION;
use crate::wrong_flags::WrongFlags;
use crate::{stop, wiring};

/// The project of the token. More projects and tokens can be added at `/_control`.
const PROJECT: &str = "default";
/// Length of a token of the real cloud.
const TOKEN_LENGTH: usize = 64;

pub(crate) async fn run(args: &StandInArgs, output: &Output) -> anyhow::Result<ExitCode> {
    match args.cloud {
        StandInName::Hcloud => hcloud(args, output).await,
        StandInName::Mailgun => mailgun(args, output).await,
    }
}

/// Mails of the stand-in appear in events after this time.
const MAILS_VISIBLE_AFTER: Duration = Duration::from_secs(5);

async fn mailgun(args: &StandInArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let only_hcloud = [
        ("--data-dir", args.data_dir.is_some()),
        ("--target-server", args.target_server.is_some()),
        ("--target-ca", args.target_ca.is_some()),
    ];
    if let Some((flag, _)) = only_hcloud.iter().find(|(_, is_set)| *is_set) {
        bail!(WrongFlags::new(format!("{flag}: expected only with hcloud")));
    }
    let stop = stop::requested().context("cannot listen for signals")?;
    let from_environment = || std::env::var("MAILGUN_API_KEY").ok().filter(|key| !key.is_empty());
    let key = args.token.clone().or_else(from_environment).unwrap_or_else(new_token);
    let standin = machinist_standin_mailgun::Standin::new(&key, MAILS_VISIBLE_AFTER);
    let server = machinist_standin_mailgun::LoopbackServer::bind(standin.clone(), args.listen).await;
    let server = server.context("--listen")?;
    output.line(&format!("Stand-in for Mailgun at {}", server.url()))?;
    output.line(&format!("export MAILGUN_API_BASE={} MAILGUN_API_KEY={key}", server.url()))?;
    server.serve(stop).await;
    output.line(&format!("Accepted {} mails, {} of them twice", standin.accepted(), standin.duplicates()))?;
    Ok(ExitCode::SUCCESS)
}

async fn hcloud(args: &StandInArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let stop = stop::requested().context("cannot listen for signals")?;
    tracing::info!(version = VERSION, "Starting");
    let from_environment = || std::env::var("HCLOUD_TOKEN").ok().filter(|token| !token.is_empty());
    let token = args.token.clone().or_else(from_environment).unwrap_or_else(new_token);
    let tokens = Tokens::default().with(&token, PROJECT, Access::ReadWrite);
    let settings = Settings { tokens, ..Settings::default() };
    let standin = match &args.data_dir {
        None => Standin::in_memory(settings, Clock::wall()),
        Some(folder) => Standin::open(folder, settings, Clock::wall())
            .with_context(|| format!("--data-dir {}", folder.display()))?,
    };
    let _fleet = fleet(args, &standin)?;
    let server = LoopbackServer::bind(standin, args.listen).await.context("--listen")?;
    output.line(&format!("Stand-in for Hetzner Cloud at {}", server.url()))?;
    output.line(&format!("export HCLOUD_ENDPOINT={} HCLOUD_TOKEN={token}", server.url()))?;
    server.serve(stop).await;
    Ok(ExitCode::SUCCESS)
}

/// Starts the machines of the servers, if they have a cluster to join.
fn fleet(args: &StandInArgs, standin: &Standin) -> anyhow::Result<Option<Fleet>> {
    let (Some(server), Some(ca)) = (&args.target_server, &args.target_ca) else { return Ok(None) };
    let ca_pem = std::fs::read_to_string(ca)
        .with_context(|| format!("--target-ca {}: cannot read the file", ca.display()))?;
    let metadata = Metadata { server: server.clone(), ca_pem };
    let options = FleetOptions::new(metadata, Arc::new(HttpsConnector));
    Ok(Some(Fleet::start(standin.machines(), options)))
}

/// Returns a token in the form of the real cloud.
fn new_token() -> String {
    let mut token = String::with_capacity(TOKEN_LENGTH);
    while token.len() < TOKEN_LENGTH {
        token.push_str(&format!("{:016x}", wiring::seed()));
    }
    token
}
