//! The settings of the driver. Pure.

use std::fmt;
use std::str::FromStr;

use crate::engine::address::EngineAddress;

/// The default network, which kind also creates.
const DEFAULT_NETWORK: &str = "kind";
/// `haproxy` of this repository and tag balances unless an option says otherwise.
const DEFAULT_BALANCER_IMAGE: &str = "kindest/haproxy:v20230606-42a2262b";

/// The settings of the driver, from flags and environment variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DockerOptions {
    /// The engine, from `DOCKER_HOST`.
    pub engine: EngineAddress,
    /// The id of the engine. [`crate::DockerProvider::connect`] asks the engine for it. Without it,
    /// the address names the account, and another engine at the same address is only noticed while
    /// the provider exists.
    pub engine_id: Option<String>,
    /// The network of the containers, from `DOCKER_NETWORK`. The driver creates it if it does not
    /// exist.
    pub network: String,
    /// The subnet of a network that the driver creates, for example `172.20.0.0/16`. Only networks
    /// with a configured subnet can have static addresses.
    pub subnet: Option<String>,
    /// How much of the host a node container may use. A provider spec may ask for less, and never
    /// for more.
    pub privileges: Privileges,
    /// Folders of the host that a provider spec may mount; empty permits every folder.
    pub mounts_below: Vec<String>,
    /// The image of load balancers.
    pub balancer_image: String,
    /// Whether the driver pulls images that the engine does not have.
    pub pulls_images: bool,
}

impl Default for DockerOptions {
    fn default() -> Self {
        Self {
            engine: EngineAddress::default(),
            engine_id: None,
            network: DEFAULT_NETWORK.to_owned(),
            subnet: None,
            privileges: Privileges::Full,
            mounts_below: Vec::new(),
            balancer_image: DEFAULT_BALANCER_IMAGE.to_owned(),
            pulls_images: true,
        }
    }
}

impl DockerOptions {
    /// The subnet for a network, if the driver creates it. Two networks cannot have the same
    /// subnet, so only the network of these options has one.
    pub(crate) fn subnet_of(&self, network: &str) -> Option<&str> {
        self.subnet.as_deref().filter(|_| network == self.network)
    }

    /// Reads the variables `DOCKER_HOST` and `DOCKER_NETWORK`.
    ///
    /// ```
    /// use machinist_driver_docker::DockerOptions;
    ///
    /// let variables = |name: &str| (name == "DOCKER_NETWORK").then(|| "clusters".to_owned());
    /// assert_eq!(DockerOptions::from_env(variables)?.network, "clusters");
    /// # Ok::<(), machinist_driver_docker::OptionsError>(())
    /// ```
    ///
    /// # Errors
    /// If a variable is wrong. The error names it and the expected value.
    pub fn from_env(variable: impl Fn(&str) -> Option<String>) -> Result<Self, OptionsError> {
        let set =
            |name: &str| variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let mut options = Self::default();
        if let Some(text) = set("DOCKER_HOST") {
            options.engine = text.parse().map_err(|error| OptionsError(format!("DOCKER_HOST: {error}")))?;
        }
        if set("DOCKER_TLS_VERIFY").is_some() {
            let text = "DOCKER_TLS_VERIFY: expected no value, because TLS to the engine is not supported";
            return Err(OptionsError(text.to_owned()));
        }
        if let Some(network) = set("DOCKER_NETWORK") {
            options.network = network;
        }
        Ok(options)
    }
}

/// A wrong setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OptionsError(String);

/// How much of the host a node container may use. systemd and the kubelet need more than an
/// ordinary container.
///
/// ```
/// use machinist_driver_docker::Privileges;
///
/// assert_eq!("caps".parse(), Ok(Privileges::Capabilities));
/// assert_eq!(Privileges::Full.to_string(), "full");
/// assert!("root".parse::<Privileges>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Privileges {
    /// `none`: an ordinary container, for images that need no more.
    None,
    /// `caps`: a list of capabilities without `--privileged`, for hosts that lack a capability.
    Capabilities,
    /// `full`: `--privileged`.
    Full,
}

impl FromStr for Privileges {
    type Err = OptionsError;

    fn from_str(text: &str) -> Result<Self, OptionsError> {
        match text {
            "full" => Ok(Self::Full),
            "caps" => Ok(Self::Capabilities),
            "none" => Ok(Self::None),
            other => Err(OptionsError(format!("{other:?}: expected full, caps or none"))),
        }
    }
}

impl fmt::Display for Privileges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Capabilities => "caps",
            Self::None => "none",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<DockerOptions, OptionsError> {
        DockerOptions::from_env(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn variables_change_the_engine_and_the_network() {
        assert_eq!(read(&[]), Ok(DockerOptions::default()));
        assert_eq!(read(&[("DOCKER_HOST", ""), ("DOCKER_NETWORK", " ")]), Ok(DockerOptions::default()));
        let options = read(&[("DOCKER_HOST", "tcp://h:1"), ("DOCKER_NETWORK", "n")]).expect("valid");
        assert_eq!((options.engine.to_string().as_str(), options.network.as_str()), ("tcp://h:1", "n"));
    }

    #[test]
    fn a_wrong_variable_is_named() {
        for (name, value) in [("DOCKER_HOST", "ssh://h"), ("DOCKER_TLS_VERIFY", "1")] {
            let error = read(&[(name, value)]).expect_err(name).to_string();
            assert!(error.starts_with(&format!("{name}: ")) && error.contains("expected"), "{error}");
        }
    }
}
