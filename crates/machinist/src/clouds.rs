//! The registry of the clouds that are compiled in.
//!
//! A driver is one crate and one row here. All commands read this table: the flags `--provider`,
//! `--cloud-provider` and `--cloud`, `machinist why`, and the checks of manifests.
//! `clouds/<name>.rs` has the row of a cloud with its settings.

#[cfg(feature = "aws")]
mod aws;
pub(crate) mod docker;
mod hcloud;
mod hcloud_traffic;
#[cfg(feature = "local")]
pub(crate) mod local;
#[cfg(feature = "openstack")]
mod openstack;
mod sim;
pub(crate) mod traffic;

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use futures::future::BoxFuture;
use machinist_driver::Provider;
use machinist_driver_http::Traffic;
use machinist_instance::Error;
use machinist_serve::Metrics;
use serde_json::Value;

use crate::args::ClusterArgs;
use crate::wiring::credential::TokenFrom;

/// The clouds, in the order of the help.
pub(crate) static CLOUDS: &[Cloud] = &[
    sim::CLOUD,
    hcloud::CLOUD,
    docker::CLOUD,
    #[cfg(feature = "aws")]
    aws::CLOUD,
    #[cfg(feature = "openstack")]
    openstack::CLOUD,
    #[cfg(feature = "local")]
    local::CLOUD,
];

/// The state of a process whose provider can be used at once.
pub(crate) const STARTING: &str = "starting";
/// Heading of the flags that choose a cloud.
const HEADING: &str = "Cloud";

/// The properties of one cloud that the program uses.
pub(crate) struct Cloud {
    /// The name on the command line, in a MachineClass, and before `://` in the ids of instances.
    pub name: &'static str,
    /// Further names in a MachineClass, exactly as the providers of machine-controller-manager
    /// spell them.
    pub other_names: &'static [&'static str],
    /// One line for the help of `--provider`.
    pub about: &'static str,
    /// Checks a providerSpec. The error names the first wrong field and the expected value.
    pub check: fn(&Value) -> Result<(), Error>,
    /// Whether a machine controller without `--provider` and without flags of a cloud serves it:
    /// its classes and Secrets have all that it needs.
    pub needs_no_settings: bool,
    /// The first flag that is set and that only this cloud has.
    pub own_flag: fn(&CloudArgs) -> Option<&'static str>,
    /// Returns what a machine controller needs. An error names a wrong flag or variable.
    pub for_machines: fn(&Given<'_>) -> anyhow::Result<ForMachines>,
    /// The cloud controller manager of the cloud, if there is one.
    pub for_nodes: Option<NodeCloud>,
    /// How checks and explanations get the provider.
    pub reader: Reader,
    /// How `up` runs the cloud, if it can.
    pub up: Option<ForUp>,
}

/// The flags of a machine controller from which a cloud reads its settings.
pub(crate) struct Given<'a> {
    pub cloud: &'a CloudArgs,
    #[cfg_attr(not(feature = "local"), allow(dead_code, reason = "only local reads it"))]
    pub clusters: &'a ClusterArgs,
}

/// The parts of a cloud that a machine controller needs.
pub(crate) struct ForMachines {
    /// Waits until the provider can be used.
    pub provider: BoxFuture<'static, anyhow::Result<Arc<dyn Provider>>>,
    /// The state of the process until then, for `/readyz`.
    pub waits_for: &'static str,
    /// How long after its start a call may take effect.
    pub call_bound: Duration,
    /// The requests to the cloud, if the driver counts them.
    pub traffic: Option<Traffic>,
}

impl ForMachines {
    /// A provider that can be used at once.
    fn ready(provider: Arc<dyn Provider>, call_bound: Duration, traffic: Option<Traffic>) -> Self {
        let provider = Box::pin(std::future::ready(Ok(provider)));
        Self { provider, waits_for: STARTING, call_bound, traffic }
    }
}

/// How checks and explanations get a provider. Only its parsers and checks are used; nothing is
/// changed.
pub(crate) enum Reader {
    /// At once, without a request.
    Alone(fn() -> Arc<dyn Provider>),
    /// After a question to the cloud.
    Asks(fn() -> BoxFuture<'static, ForExplanations>),
}

/// The cloud controller manager of a cloud.
pub(crate) struct NodeCloud {
    /// One line for the help of `--cloud-provider`.
    pub about: &'static str,
    /// The class of Services whose load balancers are provided, beside no class.
    pub balancer_class: &'static str,
    /// The prefix of the annotations of Services with options of load balancers.
    pub annotation_prefix: &'static str,
    /// Reads the settings. An error names a wrong variable.
    pub open: fn() -> anyhow::Result<ForNodes>,
}

/// The parts of a cloud that a cloud controller manager needs.
pub(crate) struct ForNodes {
    pub provider: Arc<dyn Provider>,
    pub token: TokenFrom,
    /// Whether the settings name a network for routes.
    pub has_routes: bool,
    /// Whether the settings allow load balancers.
    pub has_balancers: bool,
    /// Address of the plain HTTP server for metrics, if there is one.
    pub metrics: Option<SocketAddr>,
    /// Adds the metrics of the calls.
    pub measure: Box<dyn FnOnce(&Metrics)>,
    /// How long after its start a call may take effect.
    pub call_bound: Duration,
}

/// The parts of a cloud that `machinist why` needs.
pub(crate) struct ForExplanations {
    pub provider: Arc<dyn Provider>,
    /// The sentence that the cloud does not answer to this process.
    pub silent: Option<String>,
}

/// How `up` runs a cloud.
pub(crate) struct ForUp {
    pub which: UpCloud,
    /// One line for the help of `--cloud`.
    pub about: &'static str,
    /// The manifest that is applied without `--manifest`.
    pub quick_start: &'static str,
}

/// A cloud that `up` can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UpCloud {
    /// The simulated cloud of this program.
    Sim,
    /// A stand-in for Hetzner Cloud.
    Hcloud,
    /// Containers of a Docker engine.
    Docker,
    /// Pods of the embedded API server.
    #[cfg_attr(not(feature = "local"), allow(dead_code, reason = "no row has it then"))]
    Local,
}

/// The flags of a machine controller that choose a cloud and its settings.
#[derive(Debug, Args)]
pub(crate) struct CloudArgs {
    /// Clouds whose classes are served, comma-separated; the field `provider` of a class chooses
    /// one of them [default: the clouds whose flags are set, or else those without flags]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = parse(), help_heading = HEADING)]
    pub provider: Vec<&'static Cloud>,
    #[command(flatten)]
    pub sim: sim::SimArgs,
    #[command(flatten)]
    pub docker: docker::DockerArgs,
}

impl CloudArgs {
    /// The clouds that a machine controller serves.
    pub(crate) fn served(&self) -> Vec<&'static Cloud> {
        let by_flag = || CLOUDS.iter().filter(|cloud| (cloud.own_flag)(self).is_some());
        let mut clouds: Vec<&'static Cloud> = match self.provider.as_slice() {
            [] if by_flag().next().is_some() => by_flag().collect(),
            [] => CLOUDS.iter().filter(|cloud| cloud.needs_no_settings).collect(),
            named => named.to_vec(),
        };
        let mut names = BTreeSet::new();
        clouds.retain(|cloud| names.insert(cloud.name));
        clouds
    }
}

impl Cloud {
    /// Returns what `machinist why` needs.
    pub(crate) async fn for_explanations(&self) -> ForExplanations {
        match self.reader {
            Reader::Alone(provider) => ForExplanations { provider: provider(), silent: None },
            Reader::Asks(explanations) => explanations().await,
        }
    }

    /// Returns the provider for checks without a request; `None` if it must ask the cloud first.
    pub(crate) fn parser(&self) -> Option<Arc<dyn Provider>> {
        match self.reader {
            Reader::Alone(provider) => Some(provider()),
            Reader::Asks(_) => None,
        }
    }
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl UpCloud {
    /// The row of the cloud.
    pub(crate) fn cloud(self) -> &'static Cloud {
        let is_it = |cloud: &&Cloud| cloud.up.as_ref().is_some_and(|up| up.which == self);
        CLOUDS.iter().find(is_it).expect("each cloud of `up` has a row")
    }

    /// How `up` runs the cloud.
    pub(crate) fn run(self) -> &'static ForUp {
        self.cloud().up.as_ref().expect("`up` runs this cloud")
    }
}

/// The cloud of that name, as a MachineClass spells it.
pub(crate) fn named(name: &str) -> Option<&'static Cloud> {
    CLOUDS.iter().find(|cloud| cloud.name.eq_ignore_ascii_case(name) || cloud.other_names.contains(&name))
}

/// The names of the clouds that are compiled in, for messages.
pub(crate) fn names() -> String {
    CLOUDS.iter().map(|cloud| cloud.name).collect::<Vec<_>>().join(", ")
}

/// The cloud controller managers that are compiled in.
pub(crate) fn with_nodes() -> impl Iterator<Item = (&'static Cloud, &'static NodeCloud)> {
    CLOUDS.iter().filter_map(|cloud| Some((cloud, cloud.for_nodes.as_ref()?)))
}

/// Parses `--provider`.
pub(crate) fn parse() -> impl TypedValueParser<Value = &'static Cloud> {
    values(CLOUDS.iter().map(|cloud| (cloud, cloud.about)))
}

/// Parses `--cloud-provider`.
pub(crate) fn parse_with_nodes() -> impl TypedValueParser<Value = &'static Cloud> {
    values(with_nodes().map(|(cloud, nodes)| (cloud, nodes.about)))
}

/// Parses `--cloud` of `up`.
pub(crate) fn parse_for_up() -> impl TypedValueParser<Value = UpCloud> {
    let rows = CLOUDS.iter().filter_map(|cloud| Some((cloud, cloud.up.as_ref()?.about)));
    values(rows).map(|cloud| cloud.up.as_ref().expect("a cloud of `up`").which)
}

/// Parses the names of these clouds. Each has its line in the help.
fn values(
    rows: impl Iterator<Item = (&'static Cloud, &'static str)>,
) -> impl TypedValueParser<Value = &'static Cloud> {
    let values = rows.map(|(cloud, about)| PossibleValue::new(cloud.name).help(about));
    PossibleValuesParser::new(values).map(|name| named(&name).expect("one of the names"))
}
