//! Settings of Docker: the environment variables of Docker's own programs, and the flags.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use machinist_driver_docker::{DockerOptions, DockerProvider, EngineNews};
use machinist_instance::{ErrorKind, Scope};

use crate::args::{DockerArgs, WrongFlags};

/// The state of a process before the engine has answered.
pub(crate) const WAITS_FOR_ENGINE: &str = "the engine has not answered yet; the log has the last error";
/// Time between two attempts to reach the engine.
const CONNECT_AGAIN: Duration = Duration::from_secs(5);

/// Waits until the engine answers. Its id names the account, so nothing can be decided before that.
///
/// # Errors
/// If the engine refuses this program.
pub(crate) async fn provider(options: DockerOptions) -> anyhow::Result<DockerProvider> {
    loop {
        match DockerProvider::connect(options.clone()).await {
            Ok(provider) => {
                follow(provider.clone());
                return Ok(provider);
            }
            Err(error) if error.kind == ErrorKind::Unavailable => {
                tracing::warn!(%error, "The engine does not answer; trying again in 5 s");
                tokio::time::sleep(CONNECT_AGAIN).await;
            }
            Err(error) => bail!("cannot use the engine: {error}"),
        }
    }
}

/// Starts containers again that end with the engine, as long as this process runs.
fn follow(provider: DockerProvider) {
    tokio::spawn(async move { provider.follow(&Scope::Visible, BTreeMap::new(), log).await });
}

fn log(news: EngineNews) {
    match news {
        EngineNews::Silent(error) => tracing::warn!(error, "The engine does not answer"),
        EngineNews::Back { started } if started.is_empty() => tracing::info!("The engine answers again"),
        EngineNews::Back { started } => {
            let started = started.join(", ");
            tracing::info!(started, "The engine answers again; started the containers that ended with it");
        }
        EngineNews::Running(_) => {}
        EngineNews::Ended { container } => tracing::info!(container, "A container ended"),
        EngineNews::NotStarted { container, message } => {
            tracing::warn!(container, error = message, "Cannot start a container that ended with the engine");
        }
    }
}

/// Reads the variables, and adds the flags.
///
/// # Errors
/// If a variable is wrong. The error names it and the expected value.
pub(crate) fn options(args: &DockerArgs) -> anyhow::Result<DockerOptions> {
    let options = DockerOptions::from_env(|name| std::env::var(name).ok());
    let options = options.map_err(|error| WrongFlags::new(error.to_string()))?;
    if let Some(folder) = args.docker_mounts_below.iter().find(|folder| !folder.starts_with('/')) {
        let text = format!("--docker-mounts-below {folder:?}: expected an absolute path");
        return Err(WrongFlags::new(text).into());
    }
    Ok(DockerOptions {
        privileges: args.docker_privileges.unwrap_or(options.privileges),
        mounts_below: args.docker_mounts_below.clone(),
        subnet: args.docker_subnet.clone(),
        pulls_images: !args.docker_no_pull,
        ..options
    })
}
