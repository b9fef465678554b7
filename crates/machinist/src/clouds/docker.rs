//! Docker: containers of an engine. Its settings are the environment variables of Docker's own
//! programs, and flags.

use std::collections::BTreeMap;
use std::time::Duration;

use std::sync::Arc;

use anyhow::bail;
use machinist_driver::Provider;
use machinist_driver_docker::{DockerOptions, DockerProvider, EngineNews, PROMISES, ProviderSpec};
use machinist_instance::{ErrorKind, Scope};

use super::cloud::{Cloud, ForExplanations, ForMachines, ForUp, Given, Reader, UpCloud};
use super::flags::DockerArgs;
use crate::wrong_flags::WrongFlags;

/// The row of the registry.
pub(super) const CLOUD: Cloud = Cloud {
    name: "docker",
    other_names: &[],
    about: "Containers of a Docker engine; settings come from DOCKER_HOST and DOCKER_NETWORK",
    check: |spec| ProviderSpec::parse(spec).map(drop),
    needs_no_settings: false,
    own_flag: |args| args.docker.first_set(),
    for_machines,
    for_nodes: None,
    reader: Reader::Asks(|| Box::pin(for_explanations())),
    up: Some(ForUp {
        which: UpCloud::Docker,
        about: "Containers of a Docker engine: a control plane with kubeadm, and workers that join it; \
                settings come from DOCKER_HOST",
        quick_start: include_str!("../../quickstart-docker.yaml"),
    }),
};

/// The state of a process before the engine has answered.
pub(crate) const WAITS_FOR_ENGINE: &str = "the engine has not answered yet; the log has the last error";
/// Time between two attempts to reach the engine.
const CONNECT_AGAIN: Duration = Duration::from_secs(5);

/// Longest wait for the engine of the environment. `why` answers within two seconds, and asks the
/// controller after that.
const EXPLAINED_WITHIN: Duration = Duration::from_secs(1);

fn for_machines(given: &Given<'_>) -> anyhow::Result<ForMachines> {
    let options = options(&given.settings.docker)?;
    let opened = async move { Ok(Arc::new(provider(options).await?) as Arc<dyn Provider>) };
    Ok(ForMachines {
        provider: Box::pin(opened),
        waits_for: WAITS_FOR_ENGINE,
        call_bound: PROMISES.call_bound,
        traffic: None,
    })
}

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

/// Returns the engine of the environment, which may be another one than the controller's.
async fn for_explanations() -> ForExplanations {
    let (provider, silent) = engine_of_environment().await;
    ForExplanations { provider: Arc::new(provider), silent }
}

/// Returns the engine of the environment, and the sentence that it does not answer.
pub(crate) async fn engine_of_environment() -> (DockerProvider, Option<String>) {
    let settings = DockerOptions::from_env(|name| std::env::var(name).ok()).unwrap_or_default();
    // Without an answer, the engine counts as another one. A reader does not wait for an engine
    // that hangs.
    let connecting = tokio::time::timeout(EXPLAINED_WITHIN, DockerProvider::connect(settings.clone()));
    let why = match connecting.await {
        Ok(Ok(provider)) => return (provider, None),
        Ok(Err(error)) => error.message,
        Err(_) => format!("no answer within {} s", EXPLAINED_WITHIN.as_secs()),
    };
    let silent = format!("the engine at {} does not answer: {why}", settings.engine);
    (DockerProvider::new(settings), Some(silent))
}
