//! The list `networkInterfaces` of a class.

use machinist_instance::Error;

use super::fields::Fields;

const FIELD: &str = "networkInterfaces";

/// Types of interfaces that only carry traffic of a cluster of instances.
const TYPES: [&str; 3] = ["interface", "efa", "efa-only"];

/// One network interface of the instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) subnet: String,
    pub(crate) security_groups: Vec<String>,
    pub(crate) has_public_address: Option<bool>,
    pub(crate) is_deleted_with_instance: bool,
    pub(crate) description: Option<String>,
    pub(crate) device_index: i32,
    pub(crate) network_card: Option<i32>,
    pub(crate) interface_type: Option<String>,
    pub(crate) ipv6_addresses: Option<i32>,
    /// Whether the first IPv6 address never changes; absent without IPv6 addresses.
    pub(crate) has_primary_ipv6: Option<bool>,
}

/// Parses the list.
///
/// # Errors
/// `InvalidSpec`, with the field, the expected and the found value.
pub(super) fn parse(spec: &Fields<'_>) -> Result<Vec<Interface>, Error> {
    let entries = spec.objects(FIELD)?;
    if entries.is_empty() {
        return Err(spec.wrong(FIELD, "at least one network interface"));
    }
    entries.iter().enumerate().map(|(number, entry)| interface(entry, number)).collect()
}

fn interface(fields: &Fields<'_>, number: usize) -> Result<Interface, Error> {
    let security_groups = fields.texts("securityGroupIDs")?;
    if security_groups.is_empty() || security_groups.iter().any(|id| id.trim().is_empty()) {
        return Err(fields.wrong("securityGroupIDs", "ids of security groups, none of them empty"));
    }
    let (_, device_index) = position(fields, number)?;
    let ipv6_addresses = fields.number_in("ipv6AddressCount", 0..=i32::MAX)?.filter(|count| 0 < *count);
    let primary_ipv6 = fields.boolean("primaryIpv6")?;
    // The number of prefixes is checked before something is created, and set afterwards.
    fields.number_in("ipv6PrefixCount", 0..=i32::MAX)?;
    Ok(Interface {
        subnet: fields.required("subnetID", "the id of a subnet")?,
        security_groups,
        has_public_address: fields.boolean("associatePublicIPAddress")?,
        is_deleted_with_instance: fields.boolean("deleteOnTermination")?.unwrap_or(true),
        description: fields.set_text("description")?,
        device_index,
        network_card: fields.number_in("networkCardIndex", 0..=i32::MAX)?,
        interface_type: fields.word("interfaceType", &TYPES)?,
        ipv6_addresses,
        has_primary_ipv6: ipv6_addresses.map(|_| primary_ipv6.unwrap_or(true)),
    })
}

/// The network card and the device index of an interface. Together they identify it on an instance.
///
/// # Errors
/// `InvalidSpec`, with the field, the expected and the found value.
pub(super) fn position(fields: &Fields<'_>, number: usize) -> Result<(i32, i32), Error> {
    let card = fields.number_in("networkCardIndex", 0..=i32::MAX)?.unwrap_or_default();
    let index = fields.number_in("deviceIndex", 0..=i32::MAX)?;
    Ok((card, index.unwrap_or(i32::try_from(number).unwrap_or(i32::MAX))))
}
