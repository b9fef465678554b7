//! The routes of networks.

use std::net::Ipv4Addr;

use super::body::RequestBody;
use super::call::{Call, Handled};
use super::networks::begin_action;
use crate::addresses::Range;
use crate::error::ApiError;
use crate::model::{Effect, Network, NetworkRoute};

/// The gateway of every public interface; no route may lead to it.
const PUBLIC_GATEWAY: Ipv4Addr = Ipv4Addr::new(172, 31, 1, 1);

pub(super) fn add(call: &mut Call<'_>, network: &Network, mut body: RequestBody) -> Handled {
    let route = read(&mut body, network);
    body.finish()?;
    let route = route.ok_or_else(|| ApiError::invalid("destination", "expected a range"))?;
    if call.books.settings.route_limit <= network.routes.len() {
        return Err(ApiError::limit("network_routes", "route limit exceeded"));
    }
    let effect = Effect::AddRoute { network: network.id, route };
    Ok(begin_action(call, network, "add_route", effect))
}

pub(super) fn delete(call: &mut Call<'_>, network: &Network, mut body: RequestBody) -> Handled {
    let route = NetworkRoute {
        destination: body.required_text("destination"),
        gateway: body.required_text("gateway"),
    };
    body.finish()?;
    if !network.routes.contains(&route) {
        return Err(ApiError::not_found("route"));
    }
    let effect = Effect::DeleteRoute { network: network.id, route };
    Ok(begin_action(call, network, "delete_route", effect))
}

/// Reads a route that fits the network; problems are in the body.
pub(super) fn read(body: &mut RequestBody, network: &Network) -> Option<NetworkRoute> {
    let destination = body.required_text("destination");
    let gateway = body.required_text("gateway");
    let whole = Range::parse(&network.ip_range)?;
    match Range::parse(&destination) {
        None => body.problem("destination", "expected an IPv4 range such as 10.244.1.0/24"),
        Some(range) => {
            let overlaps = |text: &String| Range::parse(text).is_some_and(|other| other.overlaps(range));
            if network.routes.iter().any(|route| overlaps(&route.destination)) {
                body.problem("destination", "destination overlaps another route");
            } else if network.subnets.iter().any(|subnet| overlaps(&subnet.ip_range)) {
                body.problem("destination", "destination overlaps a subnet");
            } else if range.has(PUBLIC_GATEWAY) || range.has(whole.gateway()) {
                body.problem("destination", "destination contains a gateway of the cloud");
            }
        }
    }
    match gateway.parse::<Ipv4Addr>() {
        Ok(address) if !whole.has(address) => {
            body.problem("gateway", "expected an address in the network");
        }
        Ok(address) if address == whole.gateway() || address == PUBLIC_GATEWAY => {
            body.problem("gateway", "expected an address other than a gateway of the cloud");
        }
        Ok(_) => {}
        Err(_) => body.problem("gateway", "expected an IPv4 address"),
    }
    Some(NetworkRoute { destination, gateway })
}
