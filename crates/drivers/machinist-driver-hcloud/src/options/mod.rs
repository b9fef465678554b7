//! Options of the provider, under the names of hcloud-cloud-controller-manager.
//!
//! The options apply to all accounts. The token is not an option: a credential of an account holds
//! the token. [`TokenSource`] only says where the cloud controller manager finds its token.

mod env;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use env::OptionsError;
use machinist_driver_http::Endpoint;

/// Options of the provider for all accounts.
///
/// ```
/// use machinist_driver_hcloud::{AddressFamily, HcloudOptions};
///
/// let variables = |name: &str| match name {
///     "HCLOUD_NETWORK" => Some("cluster".to_owned()),
///     "HCLOUD_INSTANCES_ADDRESS_FAMILY" => Some("dualstack".to_owned()),
///     _ => None,
/// };
/// let options = HcloudOptions::from_env(variables)?;
/// assert_eq!(options.network.as_deref(), Some("cluster"));
/// assert_eq!(options.address_family, AddressFamily::DualStack);
///
/// let wrong = HcloudOptions::from_env(|name| (name == "HCLOUD_ENDPOINT").then(|| "x".to_owned()));
/// assert!(wrong.is_err_and(|error| error.to_string().starts_with("HCLOUD_ENDPOINT: expected")));
/// # Ok::<(), machinist_driver_hcloud::OptionsError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HcloudOptions {
    /// The base URL of the API.
    pub endpoint: Endpoint,
    /// Name or id of the network. With a network, instances have internal addresses, and the
    /// account has routes. If an account has no network of that name, all its calls for instances
    /// fail: the token may belong to another project, where no absence proves anything.
    pub network: Option<String>,
    /// The external addresses that an instance reports.
    pub address_family: AddressFamily,
    /// Whether an instance reports a zone.
    pub zone_label: bool,
    /// Whether the account has balancers.
    pub balancers_enabled: bool,
    /// Whether an account with a network has routes.
    pub routes_enabled: bool,
    /// Defaults for balancers whose options omit them.
    pub balancer_defaults: BalancerDefaults,
    /// The oldest list of servers that a controller may use. `None`: the controller decides.
    pub server_list_max_age: Option<Duration>,
}

/// The API of Hetzner Cloud.
fn public() -> Endpoint {
    Endpoint::parse("https://api.hetzner.cloud/v1").expect("the constant is a URL")
}

impl Default for HcloudOptions {
    fn default() -> Self {
        Self {
            endpoint: public(),
            network: None,
            address_family: AddressFamily::Ipv4,
            zone_label: true,
            balancers_enabled: true,
            routes_enabled: true,
            balancer_defaults: BalancerDefaults::default(),
            server_list_max_age: None,
        }
    }
}

impl HcloudOptions {
    /// Whether an account has routes.
    pub fn has_routes(&self) -> bool {
        self.routes_enabled && self.network.is_some()
    }
}

/// The external addresses that an instance reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressFamily {
    /// Only IPv4 addresses.
    Ipv4,
    /// Only IPv6 addresses.
    Ipv6,
    /// Both, IPv4 first.
    DualStack,
}

/// Defaults for balancers whose options omit them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BalancerDefaults {
    /// Location for a new balancer.
    pub location: Option<String>,
    /// Network zone for a new balancer, if there is no location.
    pub network_zone: Option<String>,
    /// Type of the balancer, for example `lb11`.
    pub balancer_type: Option<String>,
    /// How the balancer distributes connections. `None` leaves the algorithm unchanged.
    pub algorithm: Option<Algorithm>,
    /// Whether the public interface is off. `None` leaves the interface unchanged.
    pub disable_public_network: Option<bool>,
    /// Whether a Service's status omits the private addresses.
    pub disable_private_ingress: bool,
    /// Whether a Service's status omits the IPv6 address.
    pub disable_ipv6: bool,
    /// Whether the balancer reaches its targets over the network.
    pub use_private_ip: bool,
    /// Whether the balancer sends the PROXY protocol. `None` leaves the services unchanged.
    pub uses_proxyprotocol: Option<bool>,
    /// The subnet to which a balancer is attached, in CIDR notation.
    pub private_subnet_ip_range: Option<String>,
    /// Interval of health checks.
    pub health_check_interval: Option<Duration>,
    /// Timeout of a health check.
    pub health_check_timeout: Option<Duration>,
    /// Number of failed health checks after which a target receives no traffic.
    pub health_check_retries: Option<u32>,
}

/// How a balancer distributes connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// To each target in turn.
    RoundRobin,
    /// To the target with the fewest connections.
    LeastConnections,
}

impl Algorithm {
    /// The accepted texts, for messages.
    pub(crate) const EXPECTED: &str = "round_robin or least_connections";

    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "round_robin" => Some(Self::RoundRobin),
            "least_connections" => Some(Self::LeastConnections),
            _ => None,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::LeastConnections => "least_connections",
        }
    }
}

/// Where the cloud controller manager finds the token of its account. `Debug` shows no token.
#[derive(Clone, PartialEq, Eq)]
pub enum TokenSource {
    /// The token itself, from `HCLOUD_TOKEN`.
    Token(String),
    /// A file that contains the token, from `HCLOUD_TOKEN_FILE`. The program reads the file again
    /// when it changes.
    File(PathBuf),
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(token) => write!(f, "Token({} bytes)", token.len()),
            Self::File(path) => write!(f, "File({})", path.display()),
        }
    }
}
