//! Docker: containers of an engine. Its settings are the environment variables of Docker's own
//! programs, and flags.

use std::collections::BTreeMap;
use std::time::Duration;

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use machinist_driver::Provider;
use machinist_driver_docker::{
    DockerOptions, DockerProvider, EngineNews, PROMISES, Privileges, ProviderSpec,
};
use machinist_instance::{ErrorKind, Scope};

use super::{Cloud, ForExplanations, ForMachines, ForUp, Given, Reader, UpCloud};
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

/// Heading of the flags in the help.
const HEADING: &str = "Docker engine";

/// The state of a process before the engine has answered.
pub(crate) const WAITS_FOR_ENGINE: &str = "the engine has not answered yet; the log has the last error";
/// Time between two attempts to reach the engine.
const CONNECT_AGAIN: Duration = Duration::from_secs(5);

/// Longest wait for the engine of the environment. `why` answers within two seconds, and asks the
/// controller after that.
const EXPLAINED_WITHIN: Duration = Duration::from_secs(1);

/// Settings of containers: flags of every controller that uses a Docker engine.
#[derive(Debug, Args)]
pub(crate) struct DockerArgs {
    /// How much of the host a container may use at most: full, caps (capabilities without
    /// --privileged) or none [default: full]
    #[arg(long, value_name = "PROFILE", value_parser = privileges, help_heading = HEADING)]
    pub docker_privileges: Option<Privileges>,
    /// Folder of the host below which containers may mount folders; repeat the flag for further
    /// folders [default: every folder]
    #[arg(long, value_name = "FOLDER", help_heading = HEADING)]
    pub docker_mounts_below: Vec<String>,
    /// Subnet of the network, if this process creates it, for example 172.20.0.0/16
    #[arg(long, value_name = "CIDR", value_parser = subnet, help_heading = HEADING)]
    pub docker_subnet: Option<String>,
    /// Never pull an image: the engine must have it
    #[arg(long, help_heading = HEADING)]
    pub docker_no_pull: bool,
}

impl DockerArgs {
    /// The first of these flags that is set.
    pub(crate) fn first_set(&self) -> Option<&'static str> {
        [
            ("--docker-privileges", self.docker_privileges.is_some()),
            ("--docker-mounts-below", !self.docker_mounts_below.is_empty()),
            ("--docker-subnet", self.docker_subnet.is_some()),
            ("--docker-no-pull", self.docker_no_pull),
        ]
        .into_iter()
        .find_map(|(flag, is_set)| is_set.then_some(flag))
    }
}

/// Parses an IPv4 subnet.
fn subnet(text: &str) -> Result<String, String> {
    let is_subnet = text.split_once('/').is_some_and(|(address, bits)| {
        address.parse::<Ipv4Addr>().is_ok() && bits.parse::<u8>().is_ok_and(|bits| bits <= 32)
    });
    if is_subnet {
        Ok(text.to_owned())
    } else {
        Err("expected an IPv4 subnet, such as 172.20.0.0/16".to_owned())
    }
}

/// Parses a privilege profile of containers.
fn privileges(text: &str) -> Result<Privileges, String> {
    text.parse().map_err(|_| "expected full, caps or none".to_owned())
}

fn for_machines(given: &Given<'_>) -> anyhow::Result<ForMachines> {
    let options = options(&given.cloud.docker)?;
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
    // Without an answer, the engine counts as another one. A reader does not wait for one that
    // hangs.
    let connecting = tokio::time::timeout(EXPLAINED_WITHIN, DockerProvider::connect(settings.clone()));
    let why = match connecting.await {
        Ok(Ok(provider)) => return (provider, None),
        Ok(Err(error)) => error.message,
        Err(_) => format!("no answer within {} s", EXPLAINED_WITHIN.as_secs()),
    };
    let silent = format!("the engine at {} does not answer: {why}", settings.engine);
    (DockerProvider::new(settings), Some(silent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subnet_has_an_address_and_a_length() {
        assert_eq!(subnet("172.20.0.0/16"), Ok("172.20.0.0/16".to_owned()));
        for text in ["foo", "172.20.0.0", "172.20.0.0/33", "fd00::/64", "/16"] {
            assert!(subnet(text).expect_err(text).contains("172.20.0.0/16"), "{text}");
        }
    }
}
