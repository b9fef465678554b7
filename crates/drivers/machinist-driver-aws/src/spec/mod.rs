//! The `providerSpec` of a class for AWS, as Gardener's provider of machine-controller-manager
//! defines it.
//!
//! `fields` decodes as that provider does, `storage` and `network` parse the two lists. Finding,
//! listing and deleting instances reads only the region of a class, so no other mistake in a class
//! blocks a deletion.
//!
//! Deliberately absent: the fields `apiVersion` and `kind`, which that provider never checks.

mod fields;
mod network;
mod storage;

use std::collections::BTreeMap;

use machinist_driver::unknown_fields;
use machinist_instance::{Error, KeyScope, Place};
use serde_json::Value;

use crate::tag;
use fields::Fields;
pub(crate) use network::Interface;
pub(crate) use storage::BlockDevice;

const SPEC: &str = "providerSpec";

/// Fields that Gardener's provider accepts and never sends, see [`fields_without_effect`].
const NEVER_SENT: [&str; 2] = ["ebsOptimized", "monitoring"];

/// Every field of the top level.
const KNOWN: [&str; 20] = [
    "apiVersion",
    "kind",
    "ami",
    "region",
    "machineType",
    "blockDevices",
    "ebsOptimized",
    "iam",
    "keyName",
    "monitoring",
    "networkInterfaces",
    "srcAndDstChecksEnabled",
    "tags",
    "capacityReservation",
    "instanceMarketOptions",
    "spotPrice",
    "placement",
    "instanceMetadataOptions",
    "cpuOptions",
    "credentialsSecretRef",
];

/// A parsed `providerSpec`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProviderSpec {
    pub(crate) ami: String,
    pub(crate) region: String,
    pub(crate) machine_type: String,
    pub(crate) block_devices: Vec<BlockDevice>,
    pub(crate) profile: Profile,
    pub(crate) key_name: Option<String>,
    pub(crate) interfaces: Vec<Interface>,
    /// Tags of the class, without `Name`.
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) reservation: Option<Reservation>,
    pub(crate) market: Option<Market>,
    pub(crate) placement: Placement,
    pub(crate) metadata: MetadataOptions,
    pub(crate) cpu: CpuOptions,
    /// Sent only if an option of the provider says so.
    pub(crate) ebs_optimized: Option<bool>,
    /// Sent only if an option of the provider says so.
    pub(crate) monitoring: Option<bool>,
}

/// The instance profile, whose role the instance has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Profile {
    Name(String),
    Arn(String),
}

/// The capacity reservation of the instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reservation {
    Preference(String),
    Id(String),
    Group(String),
}

/// How the instance is paid, if not on demand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Market {
    Type(String),
    /// A spot instance with a maximum price per hour in US dollars. Without a price, the price on
    /// demand is the maximum.
    Spot {
        max_price: Option<String>,
    },
}

/// The host or the group on which the instance runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Placement {
    pub(crate) group_id: Option<String>,
    pub(crate) tenancy: Option<String>,
    pub(crate) host_id: Option<String>,
    pub(crate) partition: Option<i32>,
    pub(crate) affinity: Option<String>,
    /// Only the annotation of a Machine has this and the next three: no class has them.
    pub(crate) group_name: Option<String>,
    pub(crate) zone: Option<String>,
    pub(crate) host_group: Option<String>,
    pub(crate) spread_domain: Option<String>,
}

/// The metadata service of the instance.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct MetadataOptions {
    pub(crate) endpoint: Option<String>,
    pub(crate) hop_limit: Option<i32>,
    pub(crate) tokens: Option<String>,
    pub(crate) ipv6: Option<String>,
}

/// The cores and threads of the instance.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct CpuOptions {
    pub(crate) cores: Option<i32>,
    pub(crate) threads_per_core: Option<i32>,
    pub(crate) amd_sev_snp: Option<String>,
}

impl ProviderSpec {
    /// Parses and validates a `providerSpec`.
    ///
    /// # Errors
    /// `InvalidSpec`, with the field, the expected and the found value.
    pub(crate) fn parse(spec: &Value) -> Result<Self, Error> {
        let fields = Fields::of(SPEC, spec)?;
        Initialization::parse(spec)?;
        Ok(Self {
            ami: fields.required("ami", "the id of an image, for example \"ami-0a1b2c\"")?,
            region: region(&fields)?,
            machine_type: fields.required("machineType", "an instance type, for example \"m5.large\"")?,
            block_devices: storage::parse(&fields)?,
            profile: profile(&fields.object("iam")?)?,
            key_name: fields.set_text("keyName")?,
            interfaces: network::parse(&fields)?,
            tags: tags(&fields)?,
            reservation: reservation(&fields.object("capacityReservation")?)?,
            market: market(&fields)?,
            placement: placement(&fields.object("placement")?)?,
            metadata: metadata(&fields.object("instanceMetadataOptions")?)?,
            cpu: cpu(&fields.object("cpuOptions")?)?,
            ebs_optimized: fields.boolean("ebsOptimized")?,
            monitoring: fields.boolean("monitoring")?,
        })
    }
}

/// The region of a class. No other field is read.
///
/// # Errors
/// `InvalidSpec` if the class names no region.
pub(crate) fn place(spec: &Value) -> Result<Place, Error> {
    Ok(Place::new(region(&Fields::of(SPEC, spec)?)?))
}

/// The part of the region within which EC2 recognises a client token. The documentation of EC2 says
/// that a repeated request may have another availability zone, so each zone creates an instance.
/// Only EC2 knows the zone of a subnet. All interfaces of an instance are in one zone, so the first
/// subnet names it. Two subnets of one zone cost a wait that is not needed.
///
/// Nothing is created for a class that cannot be read.
pub(crate) fn key_scope(spec: &Value) -> KeyScope {
    let first = ProviderSpec::parse(spec).ok().and_then(|spec| spec.interfaces.into_iter().next());
    first.map_or(KeyScope::WHOLE, |interface| KeyScope::new(interface.subnet))
}

/// The tags of a class; none if they cannot be read.
pub(crate) fn tags_of(spec: &Value) -> BTreeMap<String, String> {
    Fields::of(SPEC, spec).and_then(|fields| fields.map("tags")).unwrap_or_default()
}

/// The settings of a class that its instances get after their creation. Other fields are not read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Initialization {
    /// Whether the network interfaces forward packets of other addresses.
    pub(crate) forwards: bool,
    /// The number of IPv6 prefixes by network card and device index.
    pub(crate) prefixes: BTreeMap<(i32, i32), i32>,
}

impl Initialization {
    /// Reads the settings.
    ///
    /// # Errors
    /// `InvalidSpec`, with the field, the expected and the found value.
    pub(crate) fn parse(spec: &Value) -> Result<Self, Error> {
        let fields = Fields::of(SPEC, spec)?;
        let forwards = fields.boolean("srcAndDstChecksEnabled")? == Some(false);
        let mut prefixes = BTreeMap::new();
        for (number, interface) in fields.objects("networkInterfaces")?.iter().enumerate() {
            let count = interface.number_in("ipv6PrefixCount", 0..=i32::MAX)?.unwrap_or_default();
            if 0 < count {
                prefixes.insert(network::position(interface, number)?, count);
            }
        }
        Ok(Self { forwards, prefixes })
    }

    /// Whether there is nothing to set.
    pub(crate) fn is_empty(&self) -> bool {
        !self.forwards && self.prefixes.is_empty()
    }
}

/// Lists the fields of a `providerSpec` that have no effect: unknown fields, and fields that
/// Gardener's provider accepts and never sends, such as the key of an encrypted volume. A program
/// that checks classes can warn about them.
///
/// ```
/// use machinist_driver_aws::fields_without_effect;
/// use serde_json::json;
///
/// let volume = json!({"ebs": {"kmsKeyID": "arn:aws:kms:eu-west-1:123456789012:key/k"}});
/// let spec = json!({"monitoring": true, "blockDevices": [volume], "ami": "ami-1"});
/// let expected = ["providerSpec.monitoring", "providerSpec.blockDevices[0].ebs.kmsKeyID"];
/// assert_eq!(fields_without_effect(&spec), expected);
/// ```
pub fn fields_without_effect(provider_spec: &Value) -> Vec<String> {
    let Ok(fields) = Fields::of(SPEC, provider_spec) else { return Vec::new() };
    let is_set = |name: &&str| fields.names().any(|set| set.eq_ignore_ascii_case(name));
    let never_sent = NEVER_SENT.into_iter().filter(is_set).map(|name| fields.path_of(name));
    unknown_fields(provider_spec, &KNOWN)
        .into_iter()
        .chain(never_sent)
        .chain(storage::never_sent(&fields))
        .collect()
}

fn region(fields: &Fields<'_>) -> Result<String, Error> {
    let expected = "a region, for example \"eu-west-1\"";
    let region = fields.required("region", expected)?;
    // The region is a part of the host name of the API.
    let is_name = region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if is_name { Ok(region) } else { Err(fields.wrong("region", expected)) }
}

fn profile(iam: &Fields<'_>) -> Result<Profile, Error> {
    match (iam.set_text("name")?, iam.set_text("arn")?) {
        (Some(name), None) => Ok(Profile::Name(name)),
        (None, Some(arn)) => Ok(Profile::Arn(arn)),
        (None, None) => Err(iam.wrong("name", "the name of an instance profile here, or its ARN in arn")),
        (Some(_), Some(_)) => Err(iam.wrong("arn", "only one of name and arn")),
    }
}

fn tags(fields: &Fields<'_>) -> Result<BTreeMap<String, String>, Error> {
    let mut tags = fields.map("tags")?;
    for mark in [tag::CLUSTER_MARK, tag::ROLE_MARK] {
        if !tags.keys().any(|key| key.contains(mark)) {
            return Err(fields.wrong("tags", &format!("a key that contains {mark}")));
        }
    }
    // The name of an instance is the name of its Machine.
    tags.remove(tag::NAME);
    if tag::MAX_OF_CLASS < tags.len() {
        let expected = format!("at most {} tags, since each instance gets more", tag::MAX_OF_CLASS);
        return Err(fields.wrong("tags", &expected));
    }
    tag::check_all("providerSpec.tags", &tags)?;
    Ok(tags)
}

fn reservation(fields: &Fields<'_>) -> Result<Option<Reservation>, Error> {
    let preference = fields.set_text("capacityReservationPreference")?.map(Reservation::Preference);
    let id = fields.set_text("capacityReservationId")?.map(Reservation::Id);
    let group = fields.set_text("capacityReservationResourceGroupArn")?.map(Reservation::Group);
    match [preference, id, group].into_iter().flatten().collect::<Vec<_>>().as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(only.clone())),
        _ => {
            let names = "only one of capacityReservationPreference, capacityReservationId and \
                         capacityReservationResourceGroupArn";
            Err(fields.wrong("capacityReservationPreference", names))
        }
    }
}

/// The market. The newer field wins over the price.
fn market(fields: &Fields<'_>) -> Result<Option<Market>, Error> {
    const TYPES: [&str; 3] = ["spot", "capacity-block", "interruptible-capacity-reservation"];
    if let Some(market) = fields.set_object("instanceMarketOptions")? {
        let of_type = market.word("marketType", &TYPES)?;
        return match of_type {
            Some(of_type) => Ok(Some(Market::Type(of_type))),
            None => Err(market.wrong("marketType", &fields::one_of(&TYPES))),
        };
    }
    let price = fields.text("spotPrice")?;
    Ok(price.map(|price| Market::Spot { max_price: Some(price).filter(|price| !price.is_empty()) }))
}

/// The fields of EC2's `Placement`.
const PLACEMENT_FIELDS: [&str; 9] = [
    "affinity",
    "availabilityZone",
    "groupId",
    "groupName",
    "hostId",
    "hostResourceGroupArn",
    "partitionNumber",
    "spreadDomain",
    "tenancy",
];

/// The annotation of a node template with the placement of one Machine, as JSON.
const PLACEMENT: &str = "machine.sapcloud.io/awsPlacement";

impl Placement {
    /// Reads the placement of a Machine, which counts if its class has none.
    ///
    /// # Errors
    /// `InvalidSpec`, with the annotation or its field, the expected and the found value.
    pub(crate) fn of_annotations(annotations: &BTreeMap<String, String>) -> Result<Self, Error> {
        let path = format!("nodeTemplate.metadata.annotations[{PLACEMENT}]");
        let Some(text) = annotations.get(PLACEMENT).filter(|text| !text.is_empty()) else {
            return Ok(Self::default());
        };
        let expected =
            || Error::wrong_field(&path, "a placement of EC2 as JSON", &Value::from(text.as_str()));
        let value: Value = serde_json::from_str(text).map_err(|_| expected())?;
        let fields = Fields::of(path.clone(), &value)?;
        let is_unknown = |name: &&str| !PLACEMENT_FIELDS.iter().any(|known| known.eq_ignore_ascii_case(name));
        if let Some(unknown) = fields.names().find(is_unknown) {
            return Err(
                fields.wrong(unknown, &format!("no such field, but {}", fields::one_of(&PLACEMENT_FIELDS)))
            );
        }
        Ok(Self {
            group_name: fields.set_text("groupName")?,
            zone: fields.set_text("availabilityZone")?,
            host_group: fields.set_text("hostResourceGroupArn")?,
            spread_domain: fields.set_text("spreadDomain")?,
            ..placement(&fields)?
        })
    }
}

fn placement(fields: &Fields<'_>) -> Result<Placement, Error> {
    let placement = Placement {
        group_id: fields.set_text("groupId")?,
        tenancy: fields.word("tenancy", &["default", "dedicated", "host"])?,
        host_id: fields.set_text("hostId")?,
        partition: fields.number_in("partitionNumber", 1..=i32::MAX)?,
        affinity: fields.word("affinity", &["default", "host"])?,
        ..Placement::default()
    };
    if placement.host_id.is_some() && placement.tenancy.as_deref() != Some("host") {
        return Err(fields.wrong("tenancy", "host, because hostId is set"));
    }
    Ok(placement)
}

fn metadata(fields: &Fields<'_>) -> Result<MetadataOptions, Error> {
    const SWITCH: [&str; 2] = ["enabled", "disabled"];
    Ok(MetadataOptions {
        endpoint: fields.word("httpEndpoint", &SWITCH)?,
        hop_limit: fields.number_in("httpPutResponseHopLimit", 0..=64)?,
        tokens: fields.word("httpTokens", &["required", "optional"])?,
        ipv6: fields.word("httpProtocolIpv6", &SWITCH)?,
    })
}

fn cpu(fields: &Fields<'_>) -> Result<CpuOptions, Error> {
    let options = CpuOptions {
        cores: fields.number_in("coreCount", 1..=i32::MAX)?,
        threads_per_core: fields.number_in("threadsPerCore", 1..=2)?,
        amd_sev_snp: fields.word("amdSevSnp", &["enabled", "disabled"])?,
    };
    match (options.cores, options.threads_per_core) {
        (Some(_), None) => Err(fields.wrong("threadsPerCore", "a number, because coreCount is set")),
        (None, Some(_)) => Err(fields.wrong("coreCount", "a number, because threadsPerCore is set")),
        (Some(_), Some(_)) | (None, None) => Ok(options),
    }
}

#[cfg(test)]
pub(crate) mod tests;
