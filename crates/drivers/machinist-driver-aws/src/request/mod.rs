//! Builds the requests for instances. Pure functions.
//!
//! The same spec gives the same request in every process: EC2 compares a repeated creation with
//! the first one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinist_instance::{Error, ErrorKind, InstanceKey, InstanceSpec};

use crate::client::call::Call;
use crate::spec::{BlockDevice, CpuOptions, Interface, Market, MetadataOptions, Placement, Profile};
use crate::spec::{ProviderSpec, Reservation};
use crate::tag::{self, CLUSTER, KEY, NAME, Tags};

/// Largest user data in bytes, before base64.
const MAX_USER_DATA_LEN: usize = 16_384;

/// The kinds of objects that get the tags of an instance when it is created.
const TAGGED: [&str; 3] = ["instance", "volume", "network-interface"];

/// The states in which an instance exists. A terminated one is shown for about an hour.
const EXISTING: [&str; 5] = ["pending", "running", "shutting-down", "stopping", "stopped"];

/// A creation whose request needs one fact of the image.
pub(crate) struct Creation {
    class: ProviderSpec,
    token: String,
    tags: Tags,
    user_data: String,
}

impl Creation {
    /// Checks everything that can be checked without the cloud.
    ///
    /// # Errors
    /// `InvalidSpec` names the field.
    pub(crate) fn of(spec: &InstanceSpec, region: &str) -> Result<Self, Error> {
        let mut class = ProviderSpec::parse(&spec.provider_spec)?;
        if class.region != region {
            let text = format!("providerSpec.region: expected {region}, got {}", class.region);
            return Err(Error::new(ErrorKind::InvalidSpec, text));
        }
        if class.placement == Placement::default() {
            class.placement = Placement::of_annotations(&spec.annotations)?;
        }
        let tags = tags(spec, &class.tags)?;
        Ok(Self { token: spec.key.as_str().to_owned(), user_data: user_data(spec)?, class, tags })
    }

    /// The image of the class.
    pub(crate) fn image(&self) -> &str {
        &self.class.ami
    }

    /// The tags of the class.
    pub(crate) fn tags_of_class(&self) -> &Tags {
        &self.class.tags
    }

    /// The request that creates the instance. Its client token is the key, so EC2 creates one
    /// instance per key.
    pub(crate) fn call(&self, root_device: &str, sends_all_fields: bool) -> Call {
        let class = &self.class;
        let mut call = Call::change("RunInstances")
            .with("MinCount", "1")
            .with("MaxCount", "1")
            .with("ClientToken", &self.token)
            .with("ImageId", &class.ami)
            .with("InstanceType", &class.machine_type)
            .with("UserData", &self.user_data)
            .with_some("KeyName", class.key_name.as_deref());
        call = match &class.profile {
            Profile::Name(name) => call.with("IamInstanceProfile.Name", name),
            Profile::Arn(arn) => call.with("IamInstanceProfile.Arn", arn),
        };
        for (number, device) in (1..).zip(&class.block_devices) {
            call = block_device(call, number, device, root_device, sends_all_fields);
        }
        for (number, interface) in (1..).zip(&class.interfaces) {
            call = network_interface(call, number, interface);
        }
        call = reservation(call, class.reservation.as_ref());
        call = market(call, class.market.as_ref());
        call = placement(call, &class.placement);
        call = metadata(call, &class.metadata);
        call = cpu(call, &class.cpu);
        if sends_all_fields {
            call = call
                .with_some("EbsOptimized", class.ebs_optimized.map(flag))
                .with_some("Monitoring.Enabled", class.monitoring.map(flag));
        }
        tag_specifications(call, &self.tags)
    }
}

/// The tags of an instance: the tags of the class, the tags of the controller, the name, the key
/// and the installation. On a conflict, the later one wins.
fn tags(spec: &InstanceSpec, of_class: &Tags) -> Result<Tags, Error> {
    tag::check_key(spec.key.as_str())?;
    let mut tags = of_class.clone();
    tags.extend(spec.tags.clone());
    for (key, value) in [(NAME, spec.name.as_str()), (KEY, spec.key.as_str()), (CLUSTER, &spec.cluster)] {
        tags.insert(key.to_owned(), value.to_owned());
    }
    tag::check_limits("tags", &tags)?;
    Ok(tags)
}

fn user_data(spec: &InstanceSpec) -> Result<String, Error> {
    let bytes = spec.user_data.expose();
    let expected = match bytes.len() {
        0 => "data, because an instance without it does not join".to_owned(),
        len if MAX_USER_DATA_LEN < len => format!("at most {MAX_USER_DATA_LEN} bytes, got {len}"),
        _ => return Ok(STANDARD.encode(bytes)),
    };
    Err(Error::new(ErrorKind::InvalidSpec, format!("userData: expected {expected}")))
}

fn block_device(call: Call, number: usize, device: &BlockDevice, root: &str, sends_all: bool) -> Call {
    let name = |field: &str| format!("BlockDeviceMapping.{number}.{field}");
    let ebs = &device.ebs;
    let call = call
        .with(name("DeviceName"), device.device.as_deref().unwrap_or(root))
        .with(name("Ebs.DeleteOnTermination"), flag(ebs.is_deleted_with_instance))
        .with(name("Ebs.Encrypted"), flag(ebs.is_encrypted))
        .with(name("Ebs.VolumeSize"), ebs.size.to_string())
        .with(name("Ebs.VolumeType"), &ebs.volume_type)
        .with_some(name("Ebs.Iops"), ebs.iops.map(|iops| iops.to_string()))
        .with_some(name("Ebs.Throughput"), ebs.throughput.map(|rate| rate.to_string()))
        .with_some(name("Ebs.SnapshotId"), ebs.snapshot.as_deref());
    if !sends_all {
        return call;
    }
    call.with_some(name("Ebs.KmsKeyId"), ebs.kms_key.as_deref())
        .with_some(name("NoDevice"), device.no_device.as_deref())
        .with_some(name("VirtualName"), device.virtual_name.as_deref())
}

fn network_interface(call: Call, number: usize, interface: &Interface) -> Call {
    let name = |field: &str| format!("NetworkInterface.{number}.{field}");
    let text = |number: Option<i32>| number.map(|number| number.to_string());
    let mut call = call
        .with(name("SubnetId"), &interface.subnet)
        .with(name("DeviceIndex"), interface.device_index.to_string())
        .with(name("DeleteOnTermination"), flag(interface.is_deleted_with_instance))
        .with_some(name("NetworkCardIndex"), text(interface.network_card))
        .with_some(name("AssociatePublicIpAddress"), interface.has_public_address.map(flag))
        .with_some(name("Description"), interface.description.as_deref())
        .with_some(name("InterfaceType"), interface.interface_type.as_deref())
        .with_some(name("Ipv6AddressCount"), text(interface.ipv6_addresses))
        .with_some(name("PrimaryIpv6"), interface.has_primary_ipv6.map(flag));
    for (group, id) in (1..).zip(&interface.security_groups) {
        call = call.with(name(&format!("SecurityGroupId.{group}")), id);
    }
    call
}

fn reservation(call: Call, reservation: Option<&Reservation>) -> Call {
    let name = |field: &str| format!("CapacityReservationSpecification.{field}");
    match reservation {
        None => call,
        Some(Reservation::Preference(word)) => call.with(name("CapacityReservationPreference"), word),
        Some(Reservation::Id(id)) => call.with(name("CapacityReservationTarget.CapacityReservationId"), id),
        Some(Reservation::Group(arn)) => {
            call.with(name("CapacityReservationTarget.CapacityReservationResourceGroupArn"), arn)
        }
    }
}

fn market(call: Call, market: Option<&Market>) -> Call {
    const TYPE: &str = "InstanceMarketOptions.MarketType";
    match market {
        None => call,
        Some(Market::Type(of_type)) => call.with(TYPE, of_type),
        Some(Market::Spot { max_price }) => call
            .with(TYPE, "spot")
            .with("InstanceMarketOptions.SpotOptions.SpotInstanceType", "one-time")
            .with_some("InstanceMarketOptions.SpotOptions.MaxPrice", max_price.as_deref()),
    }
}

fn placement(call: Call, placement: &Placement) -> Call {
    call.with_some("Placement.GroupId", placement.group_id.as_deref())
        .with_some("Placement.GroupName", placement.group_name.as_deref())
        .with_some("Placement.AvailabilityZone", placement.zone.as_deref())
        .with_some("Placement.HostResourceGroupArn", placement.host_group.as_deref())
        .with_some("Placement.SpreadDomain", placement.spread_domain.as_deref())
        .with_some("Placement.Tenancy", placement.tenancy.as_deref())
        .with_some("Placement.HostId", placement.host_id.as_deref())
        .with_some("Placement.PartitionNumber", placement.partition.map(|number| number.to_string()))
        .with_some("Placement.Affinity", placement.affinity.as_deref())
}

fn metadata(call: Call, options: &MetadataOptions) -> Call {
    call.with_some("MetadataOptions.HttpEndpoint", options.endpoint.as_deref())
        .with_some("MetadataOptions.HttpPutResponseHopLimit", options.hop_limit.map(|hops| hops.to_string()))
        .with_some("MetadataOptions.HttpTokens", options.tokens.as_deref())
        .with_some("MetadataOptions.HttpProtocolIpv6", options.ipv6.as_deref())
}

fn cpu(call: Call, options: &CpuOptions) -> Call {
    call.with_some("CpuOptions.CoreCount", options.cores.map(|cores| cores.to_string()))
        .with_some("CpuOptions.ThreadsPerCore", options.threads_per_core.map(|threads| threads.to_string()))
        .with_some("CpuOptions.AmdSevSnp", options.amd_sev_snp.as_deref())
}

fn tag_specifications(mut call: Call, tags: &Tags) -> Call {
    for (number, kind) in (1..).zip(TAGGED) {
        let specification = format!("TagSpecification.{number}");
        call = call.with(format!("{specification}.ResourceType"), kind);
        call = with_tags(call, &format!("{specification}.Tag"), tags);
    }
    call
}

fn with_tags(mut call: Call, name: &str, tags: &Tags) -> Call {
    for (number, (key, value)) in (1..).zip(tags) {
        call = call.with(format!("{name}.{number}.Key"), key).with(format!("{name}.{number}.Value"), value);
    }
    call
}

fn flag(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

/// A list of instances by filters. Each filter has a name and the accepted values.
fn filtered(filters: &[(&str, &[&str])]) -> Call {
    let mut call = Call::read("DescribeInstances");
    for (number, (name, values)) in (1..).zip(filters) {
        call = call.with(format!("Filter.{number}.Name"), *name);
        for (value_number, value) in (1..).zip(*values) {
            call = call.with(format!("Filter.{number}.Value.{value_number}"), *value);
        }
    }
    call
}

fn existing(name: &str, value: &str) -> Call {
    filtered(&[(name, &[plain(value).as_str()]), ("instance-state-name", &EXISTING)])
}

/// A value of a filter. A filter takes * and ? as wildcards, and \ makes the next letter a plain
/// one.
fn plain(value: &str) -> String {
    let mut plain = String::new();
    for letter in value.chars() {
        if matches!(letter, '*' | '?' | '\\') {
            plain.push('\\');
        }
        plain.push(letter);
    }
    plain
}

/// Reads one instance, in every state.
pub(crate) fn by_id(instance: &str) -> Call {
    Call::read("DescribeInstances").with("InstanceId.1", instance)
}

pub(crate) fn by_tag(tag: &str, value: &str) -> Call {
    existing(&format!("tag:{tag}"), value)
}

/// Finds the instances that have all of these tags, with any value.
pub(crate) fn by_marks(keys: &[String]) -> Call {
    let keys: Vec<String> = keys.iter().map(|key| plain(key)).collect();
    let keys: Vec<[&str; 1]> = keys.iter().map(|key| [key.as_str()]).collect();
    let mut filters: Vec<(&str, &[&str])> = keys.iter().map(|key| ("tag-key", key.as_slice())).collect();
    filters.push(("instance-state-name", &EXISTING));
    filtered(&filters)
}

/// Finds instances by the name that the cloud gave them, which is the name of the Node.
pub(crate) fn by_private_dns_name(name: &str) -> Call {
    existing("private-dns-name", name)
}

/// Finds the instance that a client token created, also a terminated one.
pub(crate) fn by_token(key: &InstanceKey) -> Call {
    filtered(&[("client-token", &[key.as_str()])])
}

pub(crate) fn all() -> Call {
    filtered(&[("instance-state-name", &EXISTING)])
}

pub(crate) fn image(ami: &str) -> Call {
    Call::read("DescribeImages").with("ImageId.1", ami)
}

pub(crate) fn terminate(instance: &str) -> Call {
    Call::change("TerminateInstances").with("InstanceId.1", instance)
}

/// Sets tags of an instance. Other tags stay.
pub(crate) fn set_tags(instance: &str, tags: &Tags) -> Call {
    with_tags(Call::change("CreateTags").with("ResourceId.1", instance), "Tag", tags)
}

/// The tags by which an adopted instance is found. The class's tags are on the instance already.
pub(crate) fn tags_of_adoption(spec: &InstanceSpec) -> Tags {
    let mut tags = spec.tags.clone();
    tags.insert(KEY.to_owned(), spec.key.as_str().to_owned());
    tags.insert(CLUSTER.to_owned(), spec.cluster.clone());
    tags
}

/// Lets an interface forward packets of other addresses.
pub(crate) fn disable_source_check(interface: &str) -> Call {
    Call::change("ModifyNetworkInterfaceAttribute")
        .with("NetworkInterfaceId", interface)
        .with("SourceDestCheck.Value", "false")
}

/// Adds IPv6 prefixes to an interface.
pub(crate) fn assign_prefixes(interface: &str, count: i32) -> Call {
    Call::change("AssignIpv6Addresses")
        .with("NetworkInterfaceId", interface)
        .with("Ipv6PrefixCount", count.to_string())
}

#[cfg(test)]
mod tests;
