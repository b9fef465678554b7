//! Networks: CRUD, subnets, and the actions that change the network itself.

use serde_json::{Value, json};

use super::actions::{begun, of_resource};
use super::body::RequestBody;
use super::call::{Call, Handled, MaybeHandled, Reply, found, id_of};
use super::list::list;
use super::routes;
use crate::addresses::Range;
use crate::catalogue::Location;
use crate::error::ApiError;
use crate::model::{Effect, Network, ResourceRef, Subnet};

/// The smallest prefix length of a subnet that the API accepts.
const MAX_PREFIX: u32 = 30;

/// Subnets without a range get this prefix length.
const DEFAULT_SUBNET_PREFIX: u32 = 24;

pub(super) fn handle(call: &mut Call<'_>, method: &str, segments: &[&str]) -> MaybeHandled {
    match (method, segments) {
        ("GET", []) => {
            let networks = call.state().networks.values().filter(|network| network.project == call.project);
            found(list(call, "networks", networks.collect(), |network| json_of(network, call)))
        }
        ("POST", []) => found(create(call)),
        ("GET", [id]) if *id != "actions" => found(get(call, id)),
        ("PUT", [id]) => found(update(call, id)),
        ("DELETE", [id]) => found(delete(call, id)),
        ("POST", [id, "actions", command]) => {
            let begin: NetworkCommand = match *command {
                "add_route" => routes::add,
                "delete_route" => routes::delete,
                "add_subnet" => add_subnet,
                "delete_subnet" => delete_subnet,
                "change_ip_range" => change_ip_range,
                "change_protection" => change_protection,
                _ => return None,
            };
            found(begin_on(call, id, begin))
        }
        ("GET", segments) => of_resource(call, "network", segments),
        _ => None,
    }
}

type NetworkCommand = fn(&mut Call<'_>, &Network, RequestBody) -> Handled;

fn begin_on(call: &mut Call<'_>, id: &str, begin: NetworkCommand) -> Handled {
    let network = existing(call, id)?.clone();
    let body = call.body()?;
    call.books.ensure_idle("network", network.id)?;
    begin(call, &network, body)
}

/// Begins an action on a network, and renders its reply.
pub(super) fn begin_action(call: &mut Call<'_>, network: &Network, command: &str, effect: Effect) -> Reply {
    let action = call.begin(command, vec![ResourceRef::new("network", network.id)], effect);
    begun(call, action)
}

fn existing<'a>(call: &'a Call<'_>, id: &str) -> Result<&'a Network, ApiError> {
    let network = call.state().networks.get(&id_of(id, "network")?);
    network.filter(|network| network.project == call.project).ok_or_else(|| ApiError::not_found("network"))
}

fn get(call: &Call<'_>, id: &str) -> Handled {
    Ok(Reply::ok(json!({"network": json_of(existing(call, id)?, call)})))
}

fn create(call: &mut Call<'_>) -> Handled {
    let mut body = call.body()?;
    let name = body.required_text("name");
    let ip_range = body.required_text("ip_range");
    let labels = body.labels("labels").unwrap_or_default();
    let expose_routes_to_vswitch = body.flag("expose_routes_to_vswitch").unwrap_or(false);
    if Range::parse(&ip_range).is_none_or(|range| !range.is_private() || 24 < range.prefix()) {
        body.problem("ip_range", "expected a private range of at least /24");
    }
    let mut network = Network {
        id: 0,
        project: call.project.to_owned(),
        name,
        created: call.now,
        labels,
        ip_range,
        subnets: Vec::new(),
        routes: Vec::new(),
        protected: false,
        expose_routes_to_vswitch,
    };
    for mut wanted in body.objects("subnets") {
        if let Some(subnet) = read_subnet(&mut wanted, &network) {
            network.subnets.push(subnet);
        }
        body.take_problems(wanted);
    }
    for mut wanted in body.objects("routes") {
        if let Some(route) = routes::read(&mut wanted, &network) {
            network.routes.push(route);
        }
        body.take_problems(wanted);
    }
    body.finish()?;
    ensure_name_is_free(call, &network.name)?;
    network.id = call.books.store.next_id(call.books.settings.seed);
    call.books.store.put_network(network.clone());
    Ok(Reply::created(json!({"network": json_of(&network, call)})))
}

fn update(call: &mut Call<'_>, id: &str) -> Handled {
    let mut network = existing(call, id)?.clone();
    let mut body = call.body()?;
    let name = body.text("name").filter(|name| *name != network.name);
    let labels = body.labels("labels");
    let exposes = body.flag("expose_routes_to_vswitch");
    body.finish()?;
    if let Some(name) = name {
        ensure_name_is_free(call, &name)?;
        network.name = name;
    }
    network.labels = labels.unwrap_or(network.labels);
    network.expose_routes_to_vswitch = exposes.unwrap_or(network.expose_routes_to_vswitch);
    call.books.store.put_network(network.clone());
    Ok(Reply::ok(json!({"network": json_of(&network, call)})))
}

fn delete(call: &mut Call<'_>, id: &str) -> Handled {
    let network = existing(call, id)?.clone();
    if network.protected {
        return Err(ApiError::new("protected", "network deletion is protected"));
    }
    let is_used = !servers_of(&network, call).is_empty() || !balancers_of(&network, call).is_empty();
    if is_used {
        return Err(ApiError::new("conflict", "network has servers or load balancers attached"));
    }
    call.books.ensure_idle("network", network.id)?;
    call.books.store.remove_network(network.id);
    Ok(Reply::empty())
}

fn ensure_name_is_free(call: &Call<'_>, name: &str) -> Result<(), ApiError> {
    let mut of_project = call.state().networks.values().filter(|network| network.project == call.project);
    if of_project.any(|network| network.name == name) {
        return Err(ApiError::not_unique("network", "name"));
    }
    Ok(())
}

/// Reads a subnet that fits the network; problems are in the body.
fn read_subnet(body: &mut RequestBody, network: &Network) -> Option<Subnet> {
    let kind = body.required_text("type");
    let network_zone = body.required_text("network_zone");
    let vswitch_id = body.integer("vswitch_id");
    let whole = Range::parse(&network.ip_range)?;
    let others: Vec<Range> =
        network.subnets.iter().filter_map(|subnet| Range::parse(&subnet.ip_range)).collect();
    let ip_range = body.text("ip_range").or_else(|| whole.free_part(DEFAULT_SUBNET_PREFIX, &others));
    let Some(ip_range) = ip_range else {
        body.problem("ip_range", "no range is free in the network");
        return None;
    };
    if !matches!(kind.as_str(), "cloud" | "server" | "vswitch") {
        body.problem("type", "expected cloud, server or vswitch");
    }
    if Location::in_zone(&network_zone).is_none() {
        body.problem("network_zone", "network zone does not exist");
    }
    match Range::parse(&ip_range) {
        Some(range) if MAX_PREFIX < range.prefix() => {
            body.problem("ip_range", "expected a range of at least /30");
        }
        Some(range) if !whole.contains(range) => {
            body.problem("ip_range", "expected a range within the network");
        }
        Some(range) if others.iter().any(|other| other.overlaps(range)) => {
            body.problem("ip_range", "range overlaps another subnet");
        }
        Some(_) => {}
        None => body.problem("ip_range", "expected a range such as 10.0.1.0/24"),
    }
    let gateway = whole.gateway().to_string();
    Some(Subnet { kind, ip_range, network_zone, gateway, vswitch_id })
}

fn add_subnet(call: &mut Call<'_>, network: &Network, mut body: RequestBody) -> Handled {
    let subnet = read_subnet(&mut body, network);
    body.finish()?;
    let subnet = subnet.ok_or_else(|| ApiError::invalid("ip_range", "expected a range"))?;
    let effect = Effect::AddSubnet { network: network.id, subnet };
    Ok(begin_action(call, network, "add_subnet", effect))
}

fn delete_subnet(call: &mut Call<'_>, network: &Network, mut body: RequestBody) -> Handled {
    let ip_range = body.required_text("ip_range");
    body.finish()?;
    if !network.subnets.iter().any(|subnet| subnet.ip_range == ip_range) {
        return Err(ApiError::not_found("subnet"));
    }
    let range = Range::parse(&ip_range);
    let is_used = |ip: &str| ip.parse().is_ok_and(|ip| range.is_some_and(|range| range.has(ip)));
    if addresses_in(network, call).iter().any(|ip| is_used(ip)) {
        return Err(ApiError::new("conflict", "subnet has servers or load balancers attached"));
    }
    let effect = Effect::DeleteSubnet { network: network.id, ip_range };
    Ok(begin_action(call, network, "delete_subnet", effect))
}

fn change_ip_range(call: &mut Call<'_>, network: &Network, mut body: RequestBody) -> Handled {
    let ip_range = body.required_text("ip_range");
    let range = Range::parse(&ip_range);
    let parts = network.subnets.iter().filter_map(|subnet| Range::parse(&subnet.ip_range));
    let contains_all = range.is_some_and(|range| parts.clone().all(|part| range.contains(part)));
    if !contains_all || range.is_none_or(|range| !range.is_private()) {
        body.problem("ip_range", "expected a private range that contains every subnet");
    }
    body.finish()?;
    let effect = Effect::ChangeIpRange { network: network.id, ip_range };
    Ok(begin_action(call, network, "change_ip_range", effect))
}

fn change_protection(call: &mut Call<'_>, network: &Network, mut body: RequestBody) -> Handled {
    let protected = body.flag("delete").unwrap_or(network.protected);
    body.finish()?;
    let effect = Effect::ProtectNetwork { network: network.id, protected };
    Ok(begin_action(call, network, "change_protection", effect))
}

fn servers_of(network: &Network, call: &Call<'_>) -> Vec<i64> {
    let servers = call.state().servers.values().filter(|server| server.is_alive());
    servers
        .filter(|server| server.private_net.iter().any(|net| net.network == network.id))
        .map(|server| server.id)
        .collect()
}

fn balancers_of(network: &Network, call: &Call<'_>) -> Vec<i64> {
    let balancers = call.state().load_balancers.values();
    let is_in = |net: &crate::LbPrivateNet| net.network == network.id;
    balancers.filter(|balancer| balancer.private_net.iter().any(is_in)).map(|balancer| balancer.id).collect()
}

/// The addresses of all attachments to a network.
fn addresses_in(network: &Network, call: &Call<'_>) -> Vec<String> {
    let servers = call
        .state()
        .servers
        .values()
        .filter(|server| server.is_alive())
        .flat_map(|server| &server.private_net);
    let servers = servers.filter(|net| net.network == network.id).map(|net| net.ip.clone());
    let balancers = call.state().load_balancers.values().flat_map(|balancer| &balancer.private_net);
    let balancers = balancers.filter(|net| net.network == network.id).map(|net| net.ip.clone());
    servers.chain(balancers).collect()
}

fn json_of(network: &Network, call: &Call<'_>) -> Value {
    json!({
        "id": network.id, "name": network.name, "created": network.created, "labels": network.labels,
        "ip_range": network.ip_range, "subnets": network.subnets, "routes": network.routes,
        "servers": servers_of(network, call), "load_balancers": balancers_of(network, call),
        "protection": {"delete": network.protected},
        "expose_routes_to_vswitch": network.expose_routes_to_vswitch,
    })
}
