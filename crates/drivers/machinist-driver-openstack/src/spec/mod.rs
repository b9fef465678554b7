//! The `providerSpec` of a class for OpenStack, as Gardener's provider of
//! machine-controller-manager defines it.
//!
//! `fields` decodes as strictly as that provider does. Finding, listing and deleting instances
//! reads only the region of a class, so no other mistake in a class blocks a deletion.

mod fields;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use machinist_instance::{Error, Place};
use serde_json::Value;

use crate::tag;
use fields::Fields;

const ROOT: &str = "providerSpec";
const API_VERSION: &str = "openstack.machine.gardener.cloud/v1alpha1";
const KIND: &str = "MachineProviderConfig";

/// Every field of `spec`.
const KNOWN: [&str; 18] = [
    "imageID",
    "imageName",
    "region",
    "availabilityZone",
    "flavorName",
    "keyName",
    "securityGroups",
    "tags",
    "networkID",
    "networks",
    "subnetID",
    "subnetIDs",
    "podNetworkCidr",
    "podNetworkCIDRs",
    "rootDiskSize",
    "rootDiskType",
    "useConfigDrive",
    "serverGroupID",
];

/// A parsed `providerSpec`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProviderSpec {
    pub(crate) image: Named,
    pub(crate) region: String,
    pub(crate) zone: String,
    pub(crate) flavor: String,
    pub(crate) key_name: String,
    pub(crate) security_groups: Vec<String>,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) network: Networking,
    pub(crate) root_disk: RootDisk,
    pub(crate) config_drive: Option<bool>,
    pub(crate) server_group: Option<String>,
}

/// An object of the cloud, as a class or a credential names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Named {
    Id(String),
    Name(String),
}

/// The networks of an instance, and the addresses of pods on its ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Networking {
    pub(crate) networks: Networks,
    /// The ranges of pod addresses, sorted. Ports in networks of pods accept packets from them.
    pub(crate) pod_ranges: Vec<String>,
}

/// The networks of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Networks {
    /// One network, with a port of our own in these subnets. The subnets are sorted.
    OwnPort { network: String, subnets: Vec<String> },
    /// Nova makes the ports.
    OfNova(Vec<Network>),
}

/// A network in which Nova makes a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Network {
    pub(crate) network: Named,
    pub(crate) has_pods: bool,
}

/// The root disk of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RootDisk {
    /// The disk of the flavor.
    OfFlavor,
    /// A volume of that size in GiB, which Nova creates and deletes.
    OfNova { size: u32 },
    /// A volume of our own.
    Own { size: u32, volume_type: String },
}

impl ProviderSpec {
    /// Parses and validates a `providerSpec`.
    ///
    /// # Errors
    /// `InvalidSpec`, with the field, the expected and the found value.
    pub(crate) fn parse(spec: &Value) -> Result<Self, Error> {
        let root = Fields::of(ROOT, spec)?;
        root.allow(&["apiVersion", "kind", "spec"])?;
        root.constant("apiVersion", API_VERSION)?;
        root.constant("kind", KIND)?;
        let fields = root.object("spec")?;
        fields.allow(&KNOWN)?;
        Ok(Self {
            image: image(&fields)?,
            region: region(&fields)?,
            zone: fields.required("availabilityZone", "an availability zone, for example \"nova\"")?,
            flavor: fields.required("flavorName", "the name of a flavor, for example \"m1.large\"")?,
            key_name: fields.required("keyName", "the name of a key pair")?,
            security_groups: fields.texts("securityGroups")?,
            tags: tags(&fields)?,
            network: Networking::of(&fields)?,
            root_disk: root_disk(&fields)?,
            config_drive: fields.boolean("useConfigDrive")?,
            server_group: fields.text("serverGroupID")?,
        })
    }
}

impl Networking {
    /// Reads the networks and the ranges of pods. Other fields are not read.
    ///
    /// # Errors
    /// `InvalidSpec`, with the field, the expected and the found value.
    pub(crate) fn parse(spec: &Value) -> Result<Self, Error> {
        Self::of(&Fields::of(ROOT, spec)?.object("spec")?)
    }

    fn of(fields: &Fields<'_>) -> Result<Self, Error> {
        let network = fields.text("networkID")?;
        let listed = fields.objects("networks")?;
        let subnets = sorted(fields, "subnetID", "subnetIDs")?;
        let networks = match (network, listed.as_slice()) {
            (Some(network), []) if subnets.is_empty() => {
                Networks::OfNova(vec![Network { network: Named::Id(network), has_pods: true }])
            }
            (Some(network), []) => Networks::OwnPort { network, subnets },
            (None, [_, ..]) => Networks::OfNova(listed.iter().map(listed_network).collect::<Result<_, _>>()?),
            (None, []) => return Err(fields.wrong("networkID", "the id of a network, or networks instead")),
            (Some(_), [_, ..]) => return Err(fields.wrong("networks", "nothing, because networkID is set")),
        };
        let pod_ranges = sorted(fields, "podNetworkCidr", "podNetworkCIDRs")?;
        if let Some(wrong) = pod_ranges.iter().find(|range| !is_range(range)) {
            let expected = "ranges of addresses, for example \"100.96.0.0/11\"";
            let path = fields.path_of("podNetworkCIDRs");
            return Err(Error::wrong_field(&path, expected, &Value::String(wrong.clone())));
        }
        if pod_ranges.is_empty() {
            return Err(fields.wrong("podNetworkCIDRs", "at least one range of addresses of pods"));
        }
        Ok(Self { networks, pod_ranges })
    }
}

/// The region of a class. No other field is read.
///
/// # Errors
/// `InvalidSpec` if the class names no region.
pub(crate) fn place(spec: &Value) -> Result<Place, Error> {
    Ok(Place::new(region(&Fields::of(ROOT, spec)?.object("spec")?)?))
}

/// The tags of a class; none if they cannot be read.
pub(crate) fn tags_of(spec: &Value) -> BTreeMap<String, String> {
    let fields = Fields::of(ROOT, spec).and_then(|root| root.object("spec"));
    fields.and_then(|fields| fields.map("tags")).unwrap_or_default()
}

fn region(fields: &Fields<'_>) -> Result<String, Error> {
    fields.required("region", "a region, for example \"RegionOne\"")
}

fn image(fields: &Fields<'_>) -> Result<Named, Error> {
    // The id wins, as in Go's provider.
    let id = fields.text("imageID")?.map(Named::Id);
    let image = id.or(fields.text("imageName")?.map(Named::Name));
    image.ok_or_else(|| fields.wrong("imageID", "the id of an image here, or its name in imageName"))
}

fn tags(fields: &Fields<'_>) -> Result<BTreeMap<String, String>, Error> {
    let tags = fields.map("tags")?;
    for mark in [tag::CLUSTER_MARK, tag::ROLE_MARK] {
        if !tags.keys().any(|key| key.contains(mark)) {
            return Err(fields.wrong("tags", &format!("a key that contains {mark}")));
        }
    }
    tag::check_class(&fields.path_of("tags"), &tags)?;
    Ok(tags)
}

fn listed_network(fields: &Fields<'_>) -> Result<Network, Error> {
    fields.allow(&["id", "name", "podNetwork"])?;
    let network = match (fields.text("id")?, fields.text("name")?) {
        (Some(id), None) => Named::Id(id),
        (None, Some(name)) => Named::Name(name),
        (None, None) => return Err(fields.wrong("id", "the id of a network here, or its name in name")),
        (Some(_), Some(_)) => return Err(fields.wrong("name", "nothing, because id is set")),
    };
    Ok(Network { network, has_pods: fields.boolean("podNetwork")?.unwrap_or_default() })
}

/// The values of a deprecated field and of the list that replaced it, sorted and without doubles.
fn sorted(fields: &Fields<'_>, one: &str, many: &str) -> Result<Vec<String>, Error> {
    let mut all: BTreeSet<String> = fields.texts(many)?.into_iter().collect();
    all.extend(fields.text(one)?);
    Ok(all.into_iter().collect())
}

fn is_range(text: &str) -> bool {
    let (address, length) = text.split_once('/').unwrap_or((text, "0"));
    let Ok(address) = address.parse::<IpAddr>() else { return false };
    let longest = if address.is_ipv4() { 32 } else { 128 };
    length.parse::<u8>().is_ok_and(|length| length <= longest)
}

fn root_disk(fields: &Fields<'_>) -> Result<RootDisk, Error> {
    let (size, volume_type) = (fields.size("rootDiskSize")?, fields.text("rootDiskType")?);
    Ok(match (size, volume_type) {
        (0, _) => RootDisk::OfFlavor,
        (size, None) => RootDisk::OfNova { size },
        (size, Some(volume_type)) => RootDisk::Own { size, volume_type },
    })
}

#[cfg(test)]
pub(crate) mod tests;
