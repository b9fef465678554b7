//! Compares the network interfaces of an instance with its class, and lists the calls that are
//! missing. Pure functions.
//!
//! EC2 accepts two settings only for an interface that exists: whether the interface forwards
//! packets of other addresses, and IPv6 prefixes.

use machinist_instance::Error;

use crate::client::call::Call;
use crate::model::{Ec2Instance, NetworkInterface};
use crate::request;
use crate::spec::Initialization;

/// Interfaces of these types carry no packets of pods, and have no source check.
const WITHOUT_CHECK: [&str; 2] = ["efa", "efa-only"];

/// Returns the calls that complete an instance. None are returned if nothing is missing.
///
/// # Errors
/// [`Error::in_progress`] if the cloud does not show the interfaces yet.
pub(crate) fn missing(wanted: &Initialization, instance: &Ec2Instance) -> Result<Vec<Call>, Error> {
    let interfaces = &instance.network_interface_set.item;
    if interfaces.is_empty() && !wanted.is_empty() {
        return Err(not_shown(instance));
    }
    let unchecked = interfaces.iter().filter(|interface| wanted.forwards && has_check(interface));
    let mut calls: Vec<Call> =
        unchecked.map(|interface| request::disable_source_check(&interface.network_interface_id)).collect();
    for (position, count) in &wanted.prefixes {
        // The position in the class's list says nothing about an instance with several cards.
        let interface = interfaces.iter().find(|interface| position_of(interface) == *position);
        let interface = interface.ok_or_else(|| not_shown(instance))?;
        let present = i32::try_from(interface.ipv6_prefix_set.item.len()).unwrap_or(i32::MAX);
        if present < *count {
            calls.push(request::assign_prefixes(&interface.network_interface_id, count - present));
        }
    }
    Ok(calls)
}

fn has_check(interface: &NetworkInterface) -> bool {
    let is_without = |of_type: &str| WITHOUT_CHECK.contains(&of_type);
    interface.source_dest_check != Some(false) && !interface.interface_type.as_deref().is_some_and(is_without)
}

fn position_of(interface: &NetworkInterface) -> (i32, i32) {
    (interface.attachment.network_card_index, interface.attachment.device_index)
}

fn not_shown(instance: &Ec2Instance) -> Error {
    let id = &instance.instance_id;
    Error::in_progress(format!("the network interfaces of {id} are not shown yet"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::parse;

    fn instance(interfaces: &str) -> Ec2Instance {
        let text = format!(
            "<item><instanceId>i-1</instanceId><instanceState><name>running</name></instanceState>\
             <launchTime>2026-11-24T11:57:18Z</launchTime>\
             <networkInterfaceSet>{interfaces}</networkInterfaceSet></item>"
        );
        parse(text.as_bytes()).expect("an instance")
    }

    fn interface(id: &str, card: i32, device: i32, rest: &str) -> String {
        format!(
            "<item><networkInterfaceId>{id}</networkInterfaceId><attachment><deviceIndex>{device}</deviceIndex>\
             <networkCardIndex>{card}</networkCardIndex></attachment>{rest}</item>"
        )
    }

    fn calls(class: serde_json::Value, interfaces: &str) -> Vec<String> {
        let wanted = Initialization::parse(&class).expect("valid");
        let calls = missing(&wanted, &instance(interfaces)).expect("shown");
        calls.iter().map(|call| call.body().replace("&Version=2016-11-15", "")).collect()
    }

    #[test]
    fn each_checked_interface_is_changed_once() {
        let class = json!({"srcAndDstChecksEnabled": false});
        let check = |value| format!("<sourceDestCheck>{value}</sourceDestCheck>");
        let efa = format!("{}<interfaceType>efa</interfaceType>", check(true));
        let all = [
            interface("eni-1", 0, 0, &check(true)),
            interface("eni-2", 0, 1, &check(false)),
            interface("eni-3", 1, 1, &efa),
        ];
        let expected =
            "Action=ModifyNetworkInterfaceAttribute&NetworkInterfaceId=eni-1&SourceDestCheck.Value=false";
        assert_eq!(calls(class, &all.concat()), [expected]);
        assert!(calls(json!({"srcAndDstChecksEnabled": true}), &all.concat()).is_empty());
        assert!(calls(json!({}), &all.concat()).is_empty(), "absent leaves the setting");
    }

    /// Go takes the device index as a position in the class's list.
    #[test]
    fn a_8_prefixes_are_matched_by_card_and_device() {
        let class = json!({"networkInterfaces": [
            {"ipv6PrefixCount": 1},
            {"networkCardIndex": 1, "deviceIndex": 1, "ipv6PrefixCount": 2},
            {"networkCardIndex": 2, "deviceIndex": 1},
        ]});
        let prefix = "<ipv6PrefixSet><item><ipv6Prefix>2001:db8::/80</ipv6Prefix></item></ipv6PrefixSet>";
        let all =
            [interface("eni-c", 2, 1, ""), interface("eni-b", 1, 1, prefix), interface("eni-a", 0, 0, "")];
        let expected = [
            "Action=AssignIpv6Addresses&NetworkInterfaceId=eni-a&Ipv6PrefixCount=1",
            "Action=AssignIpv6Addresses&NetworkInterfaceId=eni-b&Ipv6PrefixCount=1",
        ];
        assert_eq!(calls(class, &all.concat()), expected);
    }

    #[test]
    fn interfaces_that_are_not_shown_yet_are_waited_for() {
        let wanted = Initialization::parse(&json!({"srcAndDstChecksEnabled": false})).expect("valid");
        let error = missing(&wanted, &instance("")).err().expect("no interface");
        assert!(error.is_in_progress(), "{error}");
        assert!(missing(&Initialization::default(), &instance("")).is_ok_and(|calls| calls.is_empty()));
    }
}
