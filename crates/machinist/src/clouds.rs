//! The registry of the clouds that are compiled in.
//!
//! A driver is one crate and one row here. All commands read this table: the flags `--provider`,
//! `--cloud-provider` and `--cloud`, `machinist why`, and the checks of manifests.
//! `clouds/<name>.rs` has the row of a cloud with its settings, and `clouds/flags.rs` its flags.

#[cfg(feature = "aws")]
mod aws;
mod cloud;
pub(crate) mod docker;
mod flags;
mod hcloud;
mod hcloud_traffic;
#[cfg(feature = "local")]
pub(crate) mod local;
#[cfg(feature = "openstack")]
mod openstack;
mod sim;
pub(crate) mod traffic;

use std::collections::BTreeSet;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

pub(crate) use self::cloud::{Cloud, ForExplanations, Given, STARTING, UpCloud};
use self::cloud::{ForUp, NodeCloud};
pub(crate) use self::flags::DockerArgs;
use self::flags::{HEADING, SettingArgs};

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

/// The flags of a machine controller that choose a cloud and its settings.
#[derive(Debug, Args)]
pub(crate) struct CloudArgs {
    /// Clouds whose classes are served, comma-separated; the field `provider` of a class chooses
    /// one of them [default: the clouds whose flags are set, or else those without flags]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = parse(), help_heading = HEADING)]
    pub provider: Vec<&'static Cloud>,
    #[command(flatten)]
    pub settings: SettingArgs,
}

impl CloudArgs {
    /// The clouds that a machine controller serves.
    pub(crate) fn served(&self) -> Vec<&'static Cloud> {
        let by_flag = || CLOUDS.iter().filter(|cloud| (cloud.own_flag)(&self.settings).is_some());
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
