//! The flags with the settings of clouds.

use std::net::Ipv4Addr;

use clap::Args;
use machinist_driver_docker::Privileges;
use machinist_driver_sim::Endpoint;

/// Heading of the flags that choose a cloud.
pub(super) const HEADING: &str = "Cloud";
/// Heading of the flags of the engine.
const ENGINE: &str = "Docker engine";

/// The flags of a machine controller with the settings of its clouds.
#[derive(Debug, Args)]
pub(crate) struct SettingArgs {
    #[command(flatten)]
    pub sim: SimArgs,
    #[command(flatten)]
    pub docker: DockerArgs,
}

/// Flags of the simulated cloud.
#[derive(Debug, Args)]
pub(crate) struct SimArgs {
    /// URL of the simulated cloud, as `machinist sim-cloud` prints it, for example
    /// http://127.0.0.1:7070; required for the provider sim
    #[arg(long, value_name = "URL", value_parser = endpoint, required_if_eq("provider", "sim"),
          help_heading = HEADING)]
    pub sim_endpoint: Option<Endpoint>,
}

/// Parses the URL of a simulated cloud.
fn endpoint(text: &str) -> Result<Endpoint, String> {
    Endpoint::parse(text).map_err(|_| "expected http://ADDRESS:PORT, without a path".to_owned())
}

/// Settings of containers: flags of every controller that uses a Docker engine.
#[derive(Debug, Args)]
pub(crate) struct DockerArgs {
    /// How much of the host a container may use at most: full, caps (capabilities without
    /// --privileged) or none [default: full]
    #[arg(long, value_name = "PROFILE", value_parser = privileges, help_heading = ENGINE)]
    pub docker_privileges: Option<Privileges>,
    /// Folder of the host below which containers may mount folders; repeat the flag for further
    /// folders [default: every folder]
    #[arg(long, value_name = "FOLDER", help_heading = ENGINE)]
    pub docker_mounts_below: Vec<String>,
    /// Subnet of the network, if this process creates it, for example 172.20.0.0/16
    #[arg(long, value_name = "CIDR", value_parser = subnet, help_heading = ENGINE)]
    pub docker_subnet: Option<String>,
    /// Never pull an image: the engine must have it
    #[arg(long, help_heading = ENGINE)]
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
