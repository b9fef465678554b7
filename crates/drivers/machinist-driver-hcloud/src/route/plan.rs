//! Decides about routes. Pure.

use std::net::IpAddr;

use machinist_instance::{Error, ErrorKind, Route, RouteSpec, RouteTable};

use crate::model::{Network, NetworkRoute, Server};
use crate::{cidr, id};

/// The largest number of routes of a network.
pub(crate) const MAX_ROUTES: usize = 100;

/// Checks a destination without calling the cloud.
///
/// # Errors
/// `InvalidSpec` if the destination is not an IPv4 range.
pub(crate) fn check_destination(destination: &str) -> Result<(), Error> {
    match cidr::parse(destination) {
        Some((IpAddr::V4(_), _)) => Ok(()),
        Some((IpAddr::V6(_), _)) => Err(invalid(format!(
            "destination {destination}: expected IPv4, because networks have no IPv6 routes"
        ))),
        None => Err(invalid(format!("destination {destination:?}: expected {}", cidr::EXPECTED))),
    }
}

/// The address in the network by which the server receives the traffic.
///
/// # Errors
/// `InvalidSpec` if the server is not attached to the network, or its address is not an address of
/// the Node.
pub(crate) fn gateway(spec: &RouteSpec, network: i64, server: &Server) -> Result<IpAddr, Error> {
    let Some(gateway) = address(server, network) else {
        return Err(invalid(format!("server {} is not attached to network {network}", server.name)));
    };
    if spec.addresses.contains(&gateway) {
        return Ok(gateway);
    }
    let addresses: Vec<String> = spec.addresses.iter().map(ToString::to_string).collect();
    Err(invalid(format!(
        "server {}: expected its address {gateway} in network {network} to be an internal address of the Node, \
         which has {}",
        server.name,
        if addresses.is_empty() { "none".to_owned() } else { addresses.join(", ") }
    )))
}

/// The address of a server in a network.
fn address(server: &Server, network: i64) -> Option<IpAddr> {
    server.private_net.iter().find(|net| net.network == network)?.ip
}

/// The next change that makes a route exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    /// The route exists.
    Nothing,
    /// A route of this destination has another gateway. It must be deleted first.
    Delete(NetworkRoute),
    Add,
}

/// # Errors
/// `Exhausted` if the network has no room for the route.
pub(crate) fn next(network: &Network, destination: &str, gateway: IpAddr) -> Result<Next, Error> {
    let mut same = network.routes.iter().filter(|route| route.destination == destination);
    if same.clone().any(|route| route.gateway == gateway) {
        return Ok(Next::Nothing);
    }
    if let Some(old) = same.next() {
        return Ok(Next::Delete(old.clone()));
    }
    if MAX_ROUTES <= network.routes.len() {
        let text = format!("network {} has {MAX_ROUTES} routes, which is the limit of the cloud", network.id);
        return Err(Error::new(ErrorKind::Exhausted, text));
    }
    Ok(Next::Add)
}

/// The routes of a network with the servers of their gateways. A gateway in a subnet of a vSwitch
/// is a dedicated server, to which the cloud forwards: a user made that route.
pub(crate) fn table(network: &Network, servers: &[Server]) -> RouteTable {
    let has = |server: &&Server, gateway: IpAddr| {
        let mut nets = server.private_net.iter().filter(|net| net.network == network.id);
        nets.any(|net| net.ip == Some(gateway) || net.alias_ips.contains(&gateway))
    };
    let is_behind_vswitch = |gateway: IpAddr| {
        let mut subnets = network.subnets.iter().filter(|subnet| subnet.is_vswitch());
        subnets.any(|subnet| cidr::contains(&subnet.ip_range, gateway))
    };
    let instance = |gateway: IpAddr| match servers.iter().find(|server| has(server, gateway)) {
        Some(server) => Some(id::of(server.id)),
        None => is_behind_vswitch(gateway).then(|| id::of_vswitch(gateway)),
    };
    let route = |route: &NetworkRoute| Route {
        destination: route.destination.clone(),
        gateway: route.gateway,
        instance: instance(route.gateway),
    };
    let gateway = |server: &Server| Some((id::of(server.id), address(server, network.id)?));
    RouteTable {
        routes: network.routes.iter().map(route).collect(),
        limit: Some(MAX_ROUTES),
        gateways: servers.iter().filter_map(gateway).collect(),
    }
}

fn invalid(text: String) -> Error {
    Error::new(ErrorKind::InvalidSpec, text)
}

#[cfg(test)]
mod tests {
    use machinist_instance::ProviderId;
    use serde_json::json;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn server(id: i64, network: i64, address: &str, alias: &str) -> Server {
        let net = json!([{"network": network, "ip": address, "alias_ips": [alias]}]);
        serde_json::from_value(json!({"id": id, "name": format!("w-{id}"), "private_net": net}))
            .expect("a server")
    }

    fn network(routes: &[(&str, &str)]) -> Network {
        let route =
            |(to, via): &(&str, &str)| NetworkRoute { destination: (*to).to_owned(), gateway: ip(via) };
        Network { id: 1, routes: routes.iter().map(route).collect(), subnets: Vec::new() }
    }

    fn spec(addresses: &[&str]) -> RouteSpec {
        RouteSpec {
            destination: "10.244.1.0/24".to_owned(),
            instance: id::of(7),
            addresses: addresses.iter().map(|address| ip(address)).collect(),
        }
    }

    #[test]
    fn a_route_is_added_kept_or_replaced() {
        let (to, gateway) = ("10.244.1.0/24", ip("10.0.0.2"));
        let other = [("10.244.2.0/24", "10.0.0.2")];
        assert_eq!(next(&network(&other), to, gateway), Ok(Next::Add));
        assert_eq!(next(&network(&[(to, "10.0.0.2")]), to, gateway), Ok(Next::Nothing));
        let old = NetworkRoute { destination: to.to_owned(), gateway: ip("10.0.0.3") };
        assert_eq!(next(&network(&[(to, "10.0.0.3")]), to, gateway), Ok(Next::Delete(old)));
    }

    /// A network has a limit of routes.
    #[test]
    fn a_full_network_is_exhausted_before_the_call() {
        let routes: Vec<(String, &str)> =
            (0..MAX_ROUTES).map(|number| (format!("10.244.{number}.0/24"), "10.0.0.9")).collect();
        let routes: Vec<(&str, &str)> = routes.iter().map(|(to, via)| (to.as_str(), *via)).collect();
        let error = next(&network(&routes), "10.245.0.0/24", ip("10.0.0.2")).expect_err("full");
        assert_eq!(error.kind, ErrorKind::Exhausted);
        assert_eq!(next(&network(&routes), "10.244.0.0/24", ip("10.0.0.9")), Ok(Next::Nothing));
    }

    #[test]
    fn the_gateway_is_an_internal_address_of_the_node() {
        let attached = server(7, 1, "10.0.0.2", "10.0.0.3");
        assert_eq!(gateway(&spec(&["192.0.2.1", "10.0.0.2"]), 1, &attached), Ok(ip("10.0.0.2")));
        let cases = [
            (gateway(&spec(&["10.0.0.2"]), 2, &attached), "not attached to network 2"),
            (gateway(&spec(&["10.0.0.3"]), 1, &attached), "which has 10.0.0.3"),
            (gateway(&spec(&[]), 1, &attached), "which has none"),
        ];
        for (result, expected) in cases {
            let error = result.expect_err(expected);
            assert_eq!(error.kind, ErrorKind::InvalidSpec);
            assert!(error.message.contains(expected), "{error}");
        }
    }

    #[test]
    fn only_ipv4_ranges_are_destinations() {
        assert_eq!(check_destination("10.244.1.0/24"), Ok(()));
        for wrong in ["2001:db8::/64", "10.244.1.0", "pods"] {
            let error = check_destination(wrong).expect_err(wrong);
            assert_eq!(error.kind, ErrorKind::InvalidSpec);
            assert!(error.message.contains(wrong), "{error}");
        }
    }

    /// Routes name servers by id.
    #[test]
    fn routes_name_the_server_of_their_gateway() {
        let servers = [server(7, 1, "10.0.0.2", "10.0.0.20"), server(8, 2, "10.0.0.3", "10.0.0.30")];
        let routes = [
            ("10.244.1.0/24", "10.0.0.2"),
            ("10.244.2.0/24", "10.0.0.20"),
            ("10.244.3.0/24", "10.0.0.3"),
            ("10.244.4.0/24", "10.0.0.4"),
        ];
        let table = table(&network(&routes), &servers);
        let instances: Vec<_> = table.routes.into_iter().map(|route| route.instance).collect();
        assert_eq!(instances, [Some(id::of(7)), Some(id::of(7)), None, None]);
        assert_eq!(table.limit, Some(MAX_ROUTES));
        assert_eq!(table.gateways, [(id::of(7), ip("10.0.0.2"))].into(), "8 is in another network");
    }

    /// A user made it, and this program could not create it again.
    #[test]
    fn a_gateway_behind_a_vswitch_is_a_server_elsewhere() {
        let subnet = |kind: &str, ip_range: &str| {
            serde_json::from_value(json!({"type": kind, "ip_range": ip_range})).expect("a subnet")
        };
        let routes =
            [("10.244.1.0/24", "10.0.1.5"), ("10.244.2.0/24", "10.0.2.5"), ("10.244.3.0/24", "10.0.1.2")];
        let subnets = vec![subnet("vswitch", "10.0.1.0/24"), subnet("cloud", "10.0.2.0/24")];
        let network = Network { subnets, ..network(&routes) };
        let table = table(&network, &[server(7, 1, "10.0.1.2", "10.0.1.20")]);
        let instances: Vec<_> = table.routes.into_iter().map(|route| route.instance).collect();
        let elsewhere = ProviderId::parse("hrobot://10.0.1.5").ok();
        assert_eq!(instances, [elsewhere, None, Some(id::of(7))]);
    }
}
