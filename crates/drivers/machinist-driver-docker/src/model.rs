//! The parts of the engine's answers that this driver reads. Fields that an older or newer engine
//! leaves out have a default.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// A container, as `inspect` shows it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Container {
    pub(crate) id: String,
    /// The name after a slash.
    pub(crate) name: String,
    /// RFC 3339.
    #[serde(default)]
    pub(crate) created: String,
    /// How often the engine has started the container again since a user started it.
    #[serde(default)]
    pub(crate) restart_count: u32,
    #[serde(default)]
    pub(crate) state: State,
    #[serde(default)]
    pub(crate) config: Config,
    #[serde(default)]
    pub(crate) host_config: HostConfig,
    #[serde(default)]
    pub(crate) network_settings: NetworkSettings,
}

/// The state of a container.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct State {
    pub(crate) status: String,
    pub(crate) exit_code: i64,
    pub(crate) error: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Config {
    pub(crate) image: String,
    #[serde(deserialize_with = "null_as_empty")]
    pub(crate) labels: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct HostConfig {
    /// The name of the network.
    pub(crate) network_mode: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct NetworkSettings {
    #[serde(deserialize_with = "null_as_empty")]
    pub(crate) networks: BTreeMap<String, Endpoint>,
    /// The published ports, by a text such as `6443/tcp`.
    #[serde(deserialize_with = "null_as_empty")]
    pub(crate) ports: BTreeMap<String, Option<Vec<Binding>>>,
}

/// The connection of a container to a network.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Endpoint {
    /// Empty if the container does not run, or has no address of this family.
    #[serde(rename = "IPAddress")]
    pub(crate) ip_address: String,
    #[serde(rename = "GlobalIPv6Address")]
    pub(crate) global_ipv6_address: String,
    /// The addresses that the request for the container asked for.
    #[serde(rename = "IPAMConfig")]
    pub(crate) requested: Option<RequestedAddresses>,
}

/// The addresses that a container has in any case.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RequestedAddresses {
    #[serde(rename = "IPv4Address")]
    pub(crate) ipv4: String,
    #[serde(rename = "IPv6Address")]
    pub(crate) ipv6: String,
}

/// A published port of a container.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Binding {
    pub(crate) host_port: String,
}

/// An entry of the list of containers. The details are in [`Container`].
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Summary {
    pub(crate) id: String,
    #[serde(default, deserialize_with = "null_as_empty")]
    pub(crate) names: Vec<String>,
    /// Seconds since 1970.
    #[serde(default)]
    pub(crate) created: i64,
    #[serde(default)]
    pub(crate) state: String,
    #[serde(default, deserialize_with = "null_as_empty")]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) host_config: HostConfig,
    #[serde(default)]
    pub(crate) network_settings: NetworkSettings,
}

/// Properties of the engine and its host.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Info {
    /// The id of the engine, which it keeps in the same folder as its containers.
    #[serde(rename = "ID")]
    pub(crate) id: String,
    /// `1` or `2`.
    pub(crate) cgroup_version: String,
}

/// The id of a new container.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Created {
    pub(crate) id: String,
}

/// Engines write `null` for an empty map or list.
fn null_as_empty<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}
