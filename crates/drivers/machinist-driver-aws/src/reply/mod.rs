//! Converts the cloud's instances into ours. Pure functions.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use machinist_instance::{
    Address, AddressKind, Error, ErrorKind, Instance, InstanceKey, Marks, NodeName, Power,
};

use crate::id;
use crate::model::{Ec2Instance, Tag};
use crate::tag::{self, CLUSTER, KEY, NAME, Tags};

/// A state of an instance that EC2 shows for about an hour after the instance was deleted.
const TERMINATED: &str = "terminated";

/// Converts an instance that exists. `asked` is the key that the caller expects: the client token
/// proves an instance whose tags a user has removed.
///
/// # Errors
/// `Bug` if the instance has no id, which the API excludes.
pub(crate) fn instance(
    region: &str,
    found: Ec2Instance,
    asked: Option<&InstanceKey>,
) -> Result<Instance, Error> {
    let id = id::of(region, &found.instance_id)?;
    let key = key(&found, asked).map(InstanceKey::new);
    let created = created(&found);
    let addresses = addresses(&found);
    let power = power(&found.instance_state.name);
    let mut tags = tags(&found);
    let name = name(&found, &tags)?;
    tags.remove(KEY);
    let cluster = tags.remove(CLUSTER);
    Ok(Instance {
        id,
        native_id: None,
        key,
        cluster,
        name,
        power,
        addresses,
        instance_type: found.instance_type,
        zone: found.placement.availability_zone.filter(is_set),
        region: Some(region.to_owned()),
        tags,
        node_labels: BTreeMap::new(),
        created,
    })
}

/// The name of the Node: the private DNS name. Without one, the name of the Machine.
fn name(found: &Ec2Instance, tags: &Tags) -> Result<NodeName, Error> {
    let of_tag = || tags.get(NAME).filter(|name| is_set(name)).cloned();
    let name = found.private_dns_name.clone().filter(is_set).or_else(of_tag);
    let name = NodeName::new(name.unwrap_or_else(|| found.instance_id.clone()));
    name.ok_or_else(|| Error::new(ErrorKind::Bug, "the cloud returned an instance without an id"))
}

/// When the cloud accepted the creation. The launch time changes at each start, the time at which
/// the first network interface was attached does not.
pub(crate) fn created(found: &Ec2Instance) -> Timestamp {
    let interfaces = found.network_interface_set.item.iter();
    let primary = interfaces.filter(|interface| interface.attachment.device_index == 0);
    let attached = primary.filter_map(|interface| interface.attachment.attach_time).min();
    attached.map_or(found.launch_time, |attached| attached.min(found.launch_time))
}

pub(crate) fn tags(found: &Ec2Instance) -> Tags {
    found.tag_set.item.iter().map(|tag| (tag.key.clone(), tag.value.clone())).collect()
}

/// Sets tags, as the cloud did.
pub(crate) fn set_tags(found: &mut Ec2Instance, tags: Tags) {
    found.tag_set.item.retain(|tag| !tags.contains_key(&tag.key));
    found.tag_set.item.extend(tags.into_iter().map(|(key, value)| Tag { key, value }));
}

fn tag<'a>(found: &'a Ec2Instance, key: &str) -> Option<&'a str> {
    let tag = found.tag_set.item.iter().find(|tag| tag.key == key);
    tag.map(|tag| tag.value.as_str()).filter(|value| !value.is_empty())
}

/// The name of the Machine that the tag records.
pub(crate) fn name_of_machine(found: &Ec2Instance) -> Option<&str> {
    tag(found, NAME)
}

/// The key of an instance: its tag, else the client token of its creation if that is the expected
/// key. The token of an instance of Go's provider is random.
pub(crate) fn key<'a>(found: &'a Ec2Instance, asked: Option<&InstanceKey>) -> Option<&'a str> {
    let created_by = found.client_token.as_deref();
    let of_token = || created_by.filter(|token| asked.is_some_and(|asked| asked.as_str() == *token));
    tag(found, KEY).or_else(of_token)
}

/// The marks of Gardener's provider on an instance, for a class with these tags.
pub(crate) fn marks(found: &Ec2Instance, of_class: &Tags) -> Marks {
    tag::marks(&tags(found), of_class)
}

pub(crate) fn is_terminated(found: &Ec2Instance) -> bool {
    found.instance_state.name == TERMINATED
}

pub(crate) fn is_deleting(found: &Ec2Instance) -> bool {
    power(&found.instance_state.name) == Power::Deleting
}

fn power(state: &str) -> Power {
    match state {
        "pending" => Power::Pending,
        "running" => Power::Running,
        "stopped" => Power::Stopped,
        "shutting-down" => Power::Deleting,
        // `stopping`, and states of a newer API.
        _ => Power::Changing,
    }
}

/// Chooses from the instances that a search found. Several have one key if a user copied the tags
/// of an instance: the instance that the key created comes first, then an instance with the key,
/// then an instance with marks of Gardener's provider, then the oldest.
pub(crate) fn choose(found: Vec<Ec2Instance>, asked: Option<&InstanceKey>) -> Option<Ec2Instance> {
    let order = |found: &Ec2Instance| {
        let has = |text: Option<&str>| asked.is_some_and(|asked| text == Some(asked.as_str()));
        let has_marks = marks(found, &Tags::new()) != Marks::Missing;
        let evidence = (has(found.client_token.as_deref()), has(tag(found, KEY)), has_marks);
        (Reverse(evidence), found.launch_time, found.instance_id.clone())
    };
    found.into_iter().filter(|found| !is_terminated(found)).min_by_key(order)
}

/// The addresses in the order of the cloud controller manager of AWS: internal, external, names.
fn addresses(found: &Ec2Instance) -> Vec<Address> {
    let address = |kind, text: Option<&String>| {
        text.filter(|text| is_set(text)).map(|text| Address { kind, address: text.clone() })
    };
    let private_name = found.private_dns_name.as_ref();
    let ipv6 =
        found.network_interface_set.item.iter().flat_map(|interface| &interface.ipv6_addresses_set.item);
    let ipv6 = ipv6.map(|ipv6| address(AddressKind::InternalIP, Some(&ipv6.ipv6_address)));
    std::iter::once(address(AddressKind::InternalIP, found.private_ip_address.as_ref()))
        .chain(ipv6)
        .chain([
            address(AddressKind::ExternalIP, found.ip_address.as_ref()),
            address(AddressKind::InternalDNS, private_name),
            address(AddressKind::Hostname, private_name),
            address(AddressKind::ExternalDNS, found.dns_name.as_ref()),
        ])
        .flatten()
        .collect()
}

#[expect(clippy::ptr_arg, reason = "a filter of an Option<String> passes this type")]
fn is_set(text: &String) -> bool {
    !text.is_empty()
}

#[cfg(test)]
mod tests;
