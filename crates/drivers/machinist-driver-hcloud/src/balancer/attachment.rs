//! Whether a balancer can be attached to a network as the settings ask. Pure.
//!
//! A balancer must be detached before it can get another address. So the driver checks first that
//! the new address is free.

use std::net::{IpAddr, Ipv4Addr};

use machinist_instance::Error;

use super::settings::{PREFIX, Settings};
use super::step::Step;
use crate::cidr;
use crate::model::{LoadBalancer, Network, Server, Subnet};

/// Checks that a network has the wanted address or range for a balancer.
///
/// # Errors
/// `InvalidSpec` names the option and who has the address.
pub(crate) fn check(
    balancer: &LoadBalancer,
    settings: &Settings,
    network: &Network,
    servers: &[Server],
    balancers: &[LoadBalancer],
) -> Result<(), Error> {
    let id = network.id;
    let zone = balancer.location.as_ref().map(|location| location.network_zone.as_str());
    let is_usable = |subnet: &&Subnet| {
        !subnet.is_vswitch() && zone.is_none_or(|zone| zone.is_empty() || zone == subnet.network_zone)
    };
    let mut subnets = network.subnets.iter().filter(is_usable).peekable();
    if subnets.peek().is_none() {
        return invalid(format!("network {id} has no subnet for load balancers of this location"));
    }
    if let Some(range) = &settings.private_subnet_ip_range
        && !network.subnets.iter().filter(is_usable).any(|subnet| subnet.ip_range == *range)
    {
        return invalid(format!(
            "{PREFIX}private-subnet-ip-range: expected the range of a subnet of network {id}"
        ));
    }
    let Some(wanted) = settings.private_ipv4 else { return Ok(()) };
    let option = format!("{PREFIX}private-ipv4");
    if !subnets.any(|subnet| has(&subnet.ip_range, wanted)) {
        return invalid(format!("{option}: expected an address in a subnet of network {id}"));
    }
    let taken_by = || {
        let of_server = servers.iter().find(|server| {
            let mut nets = server.private_net.iter().filter(|net| net.network == id);
            nets.any(|net| net.ip == Some(wanted.into()) || net.alias_ips.contains(&wanted.into()))
        });
        let of_balancer = balancers.iter().filter(|other| other.id != balancer.id).find(|other| {
            let mut nets = other.private_net.iter();
            nets.any(|net| net.network == id && net.ip == Some(wanted.into()))
        });
        let is_gateway = network.subnets.iter().any(|subnet| subnet.gateway == Some(IpAddr::from(wanted)));
        let server = of_server.map(|server| format!("server {}", server.name));
        server
            .or_else(|| of_balancer.map(|other| format!("load balancer {}", other.name)))
            .or_else(|| is_gateway.then(|| "the gateway".to_owned()))
    };
    match taken_by() {
        None => Ok(()),
        Some(owner) => {
            invalid(format!("{option}: expected a free address of network {id}, but {owner} has {wanted}"))
        }
    }
}

/// The step that restores the attachment of a balancer to a network.
pub(crate) fn of(balancer: &LoadBalancer, network: i64) -> Option<Step> {
    let net = balancer.private_net.iter().find(|net| net.network == network)?;
    let ip = match net.ip {
        Some(IpAddr::V4(ip)) => Some(ip),
        Some(IpAddr::V6(_)) | None => None,
    };
    Some(Step::AttachToNetwork { network, ip, ip_range: None })
}

fn has(range: &str, address: Ipv4Addr) -> bool {
    match cidr::parse(range) {
        Some((IpAddr::V4(first), bits)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            u32::from(first) & mask == u32::from(address) & mask
        }
        Some((IpAddr::V6(_), _)) | None => false,
    }
}

fn invalid(text: String) -> Result<(), Error> {
    Err(Error::by_driver(text))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::balancer::wanted::tests::{spec, wanted};

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).expect("an object of the cloud")
    }

    fn checked(options: &[(&str, &str)]) -> Result<(), Error> {
        let balancer = |id: i64, ip: &str| {
            json!({
                "id": id, "name": format!("lb-{id}"), "location": {"network_zone": "eu-central"},
                "private_net": [{"network": 1, "ip": ip}],
            })
        };
        let subnet = |kind: &str, range: &str, zone: &str| json!({"type": kind, "ip_range": range, "network_zone": zone, "gateway": "10.0.0.1"});
        let network = json!({"id": 1, "subnets": [
            subnet("cloud", "10.0.0.0/24", "eu-central"),
            subnet("cloud", "10.0.1.0/24", "us-east"),
            subnet("vswitch", "10.0.2.0/24", "eu-central"),
        ]});
        let server = json!({
            "id": 7, "name": "w-1",
            "private_net": [{"network": 1, "ip": "10.0.0.7", "alias_ips": ["10.0.0.70"]}],
        });
        let settings = wanted(&spec(&[], options), Some(1)).expect("valid").settings;
        check(
            &read(balancer(5, "10.0.0.5")),
            &settings,
            &read(network),
            &[read(server)],
            &[read(balancer(5, "10.0.0.5")), read(balancer(6, "10.0.0.6"))],
        )
    }

    #[test]
    fn only_a_free_address_of_a_subnet_is_sure() {
        assert_eq!(checked(&[]), Ok(()));
        for free in ["10.0.0.9", "10.0.0.5"] {
            assert_eq!(checked(&[("private-ipv4", free)]), Ok(()), "{free}");
        }
        let cases = [
            ("10.0.0.7", "server w-1 has"),
            ("10.0.0.70", "server w-1 has"),
            ("10.0.0.6", "load balancer lb-6 has"),
            ("10.0.0.1", "the gateway has"),
            ("10.0.1.9", "expected an address in a subnet"),
            ("10.0.2.9", "expected an address in a subnet"),
            ("10.9.0.9", "expected an address in a subnet"),
        ];
        for (address, expected) in cases {
            let error = checked(&[("private-ipv4", address)]).expect_err(address);
            assert!(error.is_by_driver(), "{error}");
            assert!(error.message.contains(expected), "{error}");
        }
        assert_eq!(checked(&[("private-subnet-ip-range", "10.0.0.0/24")]), Ok(()));
        assert!(checked(&[("private-subnet-ip-range", "10.0.1.0/24")]).is_err(), "another network zone");
    }
}
