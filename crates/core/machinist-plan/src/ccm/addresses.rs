//! The addresses of a Node, which are the addresses of its instance, limited to the addresses that
//! the kubelet was started with.
//!
//! The order of the list matters, because clients take the first address of a type. So two lists
//! are equal only if their order is equal, too.

use std::fmt;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::NodeAddress;
use machinist_instance::{Address, AddressKind};

use super::cidr::{Cidr, parse_ip};

/// The addresses that a Node should have.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeAddresses {
    /// The addresses in order; empty if nothing is known about them.
    pub addresses: Vec<NodeAddress>,
    /// The addresses of the annotation that are trusted although the cloud does not offer them.
    pub trusted: Vec<NodeIpError>,
}

/// An annotation `provided-node-ip` that does not fit the addresses of the instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeIpError {
    /// The annotation does not contain one address, or one of each IP family.
    Unreadable {
        /// Value of the annotation.
        given: String,
    },
    /// The cloud does not offer the address.
    NotOffered {
        /// The address in the annotation.
        given: IpAddr,
        /// The addresses that the cloud offers.
        offered: String,
    },
}

impl fmt::Display for NodeIpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { given } => {
                write!(f, "--node-ip {given:?}: expected one IP address, or one of each IP family")
            }
            Self::NotOffered { given, offered } => {
                write!(f, "--node-ip {given} is not an address of the instance, which has: {offered}")
            }
        }
    }
}

/// Computes the addresses of a Node. `current` are the addresses in its status, `provided` is the
/// annotation, and `trusted` are networks whose addresses are accepted in any case.
///
/// # Errors
/// If the annotation cannot be read, or the instance does not have its address.
pub fn of_node(
    instance: &[Address],
    current: &[NodeAddress],
    provided: Option<&str>,
    trusted: &[Cidr],
) -> Result<NodeAddresses, NodeIpError> {
    let mut all: Vec<NodeAddress> = instance.iter().map(node_address).collect();
    let has_hostname = |all: &[NodeAddress]| all.iter().any(|address| address.type_ == HOSTNAME);
    if !all.is_empty() && !has_hostname(&all) {
        all.extend(current.iter().filter(|address| address.type_ == HOSTNAME).cloned());
    }
    match provided {
        None => Ok(NodeAddresses { addresses: all, trusted: Vec::new() }),
        Some(provided) => filter(all, &parse_provided(provided)?, trusted),
    }
}

/// Parses the annotation: one address, or one of each IP family, separated by a comma.
fn parse_provided(text: &str) -> Result<Vec<IpAddr>, NodeIpError> {
    let error = || NodeIpError::Unreadable { given: text.to_owned() };
    let all: Option<Vec<IpAddr>> =
        text.split(',').map(|item| parse_ip(item).map(|ip| ip.to_canonical())).collect();
    let all = all.ok_or_else(error)?;
    let is_valid = match all.as_slice() {
        [_] => true,
        [a, b] => a.is_ipv4() != b.is_ipv4() && !a.is_unspecified() && !b.is_unspecified(),
        _ => false,
    };
    if is_valid { Ok(all) } else { Err(error()) }
}

/// Puts the provided addresses first, and drops the other addresses of their types.
fn filter(
    all: Vec<NodeAddress>,
    provided: &[IpAddr],
    trusted: &[Cidr],
) -> Result<NodeAddresses, NodeIpError> {
    let mut kept: Vec<NodeAddress> = Vec::new();
    let mut without_cloud = Vec::new();
    for ip in provided {
        let is_it =
            |address: &&NodeAddress| parse_ip(&address.address).map(|ip| ip.to_canonical()) == Some(*ip);
        let matching: Vec<_> = all.iter().filter(is_it).cloned().collect();
        if !matching.is_empty() {
            kept.extend(matching);
            continue;
        }
        let offered: Vec<_> =
            all.iter().map(|address| format!("{} {}", address.type_, address.address)).collect();
        let offered = if offered.is_empty() { "no addresses".to_owned() } else { offered.join(", ") };
        let error = NodeIpError::NotOffered { given: *ip, offered };
        if trusted.iter().any(|network| network.contains(*ip)) {
            kept.push(NodeAddress { type_: INTERNAL_IP.to_owned(), address: ip.to_string() });
            without_cloud.push(error);
        } else {
            return Err(error);
        }
    }
    let matched = kept.len();
    for address in all {
        if !kept[..matched].iter().any(|kept| kept.type_ == address.type_) {
            kept.push(address);
        }
    }
    Ok(NodeAddresses { addresses: kept, trusted: without_cloud })
}

/// The IP addresses of a Node inside its network, in order.
pub fn internal_ips(addresses: &[NodeAddress]) -> Vec<IpAddr> {
    addresses
        .iter()
        .filter(|address| address.type_ == INTERNAL_IP)
        .filter_map(|address| parse_ip(&address.address))
        .collect()
}

const HOSTNAME: &str = "Hostname";
const INTERNAL_IP: &str = "InternalIP";

fn node_address(address: &Address) -> NodeAddress {
    let kind = match address.kind {
        AddressKind::InternalIP => INTERNAL_IP,
        AddressKind::ExternalIP => "ExternalIP",
        AddressKind::Hostname => HOSTNAME,
        AddressKind::InternalDNS => "InternalDNS",
        AddressKind::ExternalDNS => "ExternalDNS",
    };
    NodeAddress { type_: kind.to_owned(), address: address.address.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(letter: &str) -> AddressKind {
        match letter {
            "I" => AddressKind::InternalIP,
            "E" => AddressKind::ExternalIP,
            "H" => AddressKind::Hostname,
            "ID" => AddressKind::InternalDNS,
            "ED" => AddressKind::ExternalDNS,
            other => panic!("unknown type {other}"),
        }
    }

    /// Parses a list such as `I 10.0.0.1, H node`.
    fn list(text: &str) -> Vec<Address> {
        let parts = text.split(", ").filter(|part| !part.is_empty());
        parts
            .map(|part| {
                let (letter, address) = part.split_once(' ').expect("a type and an address");
                Address { kind: kind(letter), address: address.to_owned() }
            })
            .collect()
    }

    fn node_list(text: &str) -> Vec<NodeAddress> {
        list(text).iter().map(node_address).collect()
    }

    fn of(cloud: &str, current: &str, provided: Option<&str>) -> Result<Vec<NodeAddress>, NodeIpError> {
        of_node(&list(cloud), &node_list(current), provided, &[]).map(|desired| desired.addresses)
    }

    #[test]
    fn the_hostname_of_the_kubelet_is_kept_unless_the_cloud_has_one() {
        let cloud = "H node0.cloud.internal, I 10.0.0.1, E 132.143.154.163";
        assert_eq!(of(cloud, "H node0", None), Ok(node_list(cloud)));
        let expected = node_list("I 10.0.0.1, E 132.143.154.163, H node0.cloud");
        assert_eq!(of("I 10.0.0.1, E 132.143.154.163", "H node0.cloud", None), Ok(expected));
        assert_eq!(of("", "H node0", None), Ok(Vec::new()), "nothing is known");
    }

    #[test]
    fn provided_addresses_come_first_and_replace_their_type() {
        for (row, provided, cloud, expected) in [
            (
                "the address of the cloud",
                "10.0.0.1",
                "I 10.0.0.1, E 132.143.154.163",
                "I 10.0.0.1, E 132.143.154.163",
            ),
            ("internal and host name", "10.1.1.1", "I 10.1.1.1, H h", "I 10.1.1.1, H h"),
            (
                "external address first",
                "55.55.55.55",
                "I 10.1.1.1, E 55.55.55.55, H h",
                "E 55.55.55.55, I 10.1.1.1, H h",
            ),
            (
                "an address with two types",
                "55.55.55.55",
                "I 44.44.44.44, E 44.44.44.44, I 55.55.55.55, E 55.55.55.55, H h",
                "I 55.55.55.55, E 55.55.55.55, H h",
            ),
            (
                "DNS names are kept",
                "10.1.1.1",
                "I 10.1.1.1, E 55.55.55.55, ID ip-10, ED ec2-55, H h",
                "I 10.1.1.1, E 55.55.55.55, ID ip-10, ED ec2-55, H h",
            ),
            (
                "other internal addresses are dropped",
                "10.1.1.1",
                "I 10.1.1.1, I 10.2.2.2, I 10.3.3.3, E 55.55.55.55, H h",
                "I 10.1.1.1, E 55.55.55.55, H h",
            ),
            (
                "the spelling of the cloud is kept",
                "2600:1f14:1d4:d101::ba3d",
                "I 10.1.1.1, I 2600:1f14:1d4:d101:0:0:0:ba3d, H h",
                "I 2600:1f14:1d4:d101:0:0:0:ba3d, H h",
            ),
            (
                "the order of the kubelet, IPv4 first",
                "10.1.1.1,fc01:1234::5678",
                "I fc01:1234::5678, I 10.1.1.1, H h",
                "I 10.1.1.1, I fc01:1234::5678, H h",
            ),
            (
                "the order of the kubelet, IPv6 first",
                "fc01:1234::5678,10.1.1.1",
                "I 10.1.1.1, I fc01:1234::5678, E 55.55.55.55, E 2001:db1::1, H h",
                "I fc01:1234::5678, I 10.1.1.1, E 55.55.55.55, E 2001:db1::1, H h",
            ),
            (
                "a pair with two types",
                "55.55.55.55,fc01:1234::5678",
                "I 10.1.1.1, E 55.55.55.55, I fc01:1234::5678, E 2001:db1::1, H h",
                "E 55.55.55.55, I fc01:1234::5678, H h",
            ),
        ] {
            assert_eq!(of(cloud, "", Some(provided)), Ok(node_list(expected)), "{row}");
        }
    }

    #[test]
    fn an_address_that_the_cloud_lacks_is_an_error() {
        let cloud = "I 10.0.0.1, E 132.143.154.163, H h";
        for (row, provided) in [
            ("no address", "invalid-ip"),
            ("an unknown address", "10.0.0.2"),
            ("an unknown address", "10.2.2.2"),
            ("an unknown address of a pair", "10.0.0.1,fc01:1234::5678"),
            ("a space", "10.0.0.1, fc01:1234::5678"),
            ("two of one family", "10.0.0.1,10.0.0.1"),
            ("three addresses", "10.0.0.1,fc01::1,fc01::2"),
            ("an unspecified IPv4 address", "0.0.0.0,::1"),
            ("an unspecified IPv6 address", "10.0.0.1,::"),
            ("empty", ""),
        ] {
            let error = of(cloud, "", Some(provided)).expect_err(row).to_string();
            assert!(error.contains("--node-ip"), "{row}: {error}");
        }
        let nothing = of("", "H h", Some("10.0.0.1")).expect_err("no addresses").to_string();
        assert!(nothing.ends_with("which has: no addresses"), "{nothing}");
    }

    /// The address is written, and the mismatch is still reported.
    #[test]
    fn an_address_in_a_trusted_network_is_accepted() {
        let trusted = ["10.0.0.0/8".parse().expect("a network")];
        let of = |provided| of_node(&list("E 1.2.3.4, H h"), &[], Some(provided), &trusted);
        let desired = of("10.0.0.2").expect("trusted");
        assert_eq!(desired.addresses, node_list("I 10.0.0.2, E 1.2.3.4, H h"));
        let [error] = &desired.trusted[..] else { panic!("{desired:?}") };
        assert!(error.to_string().starts_with("--node-ip 10.0.0.2 is not"), "{error}");
        assert!(of("192.168.0.2").is_err());
        assert_eq!(of("1.2.3.4").map(|desired| desired.trusted), Ok(Vec::new()));
    }

    /// Every address of the result is in the input or was provided; the second run changes nothing.
    #[test]
    fn the_result_is_a_subset_and_stable() {
        let clouds =
            ["I 10.1.1.1, E 1.1.1.1, H h", "E 1.1.1.1, E 2::1, I 10.1.1.1, I 10.1.1.2", "H h, I 10.1.1.1"];
        for cloud in clouds {
            for provided in [None, Some("10.1.1.1"), Some("1.1.1.1"), Some("10.1.1.1,2::1")] {
                let Ok(first) = of(cloud, "H kubelet, I 9.9.9.9", provided) else { continue };
                let input = node_list(cloud);
                let is_known =
                    |address: &NodeAddress| input.contains(address) || address.address == "kubelet";
                assert!(first.iter().all(is_known), "{first:?}");
                let again = of_node(&list(cloud), &first, provided, &[]).expect("it was valid before");
                assert_eq!(again.addresses, first);
            }
        }
    }
}
