//! Load balancers: reads, POST, PUT and DELETE.

use serde_json::{Value, json};

use super::actions::{begun, json_with_id, of_resource};
use super::balancer_actions;
use super::balancer_services::read_service;
use super::balancer_targets::{check_target, json_of_target, read_target};
use super::body::{IdOrName, RequestBody};
use super::call::{Call, Handled, MaybeHandled, Reply, found, id_of};
use super::list::list;
use super::server_create::no_address;
use super::servers::datacenter_json;
use crate::addresses::{free_private, free_public_ipv4, public_ipv6};
use crate::books::later;
use crate::catalogue::{LOAD_BALANCER_TYPES, LOCATIONS, LoadBalancerType, Location};
use crate::error::ApiError;
use crate::model::{Effect, HcloudLoadBalancer, LbAlgorithm, LbChange, LbPrivateNet, PublicIp, ResourceRef};
use crate::settings::DeletionReply;

pub(super) fn handle(call: &mut Call<'_>, method: &str, segments: &[&str]) -> MaybeHandled {
    match (method, segments) {
        ("GET", []) => {
            let all = call.state().load_balancers.values();
            let shown = all.filter(|balancer| {
                balancer.project == call.project && balancer.visible_in_lists_at <= call.now
            });
            found(list(call, "load_balancers", shown.collect(), |balancer| json_of(balancer, call)))
        }
        ("POST", []) => found(create(call)),
        ("GET", [id]) if *id != "actions" => found(get(call, id)),
        ("PUT", [id]) => found(update(call, id)),
        ("DELETE", [id]) => found(delete(call, id)),
        ("POST", [id, "actions", command]) => balancer_actions::handle(call, id, command),
        ("GET", segments) => of_resource(call, "load_balancer", segments),
        _ => None,
    }
}

/// A load balancer of the project. Only reads are late; changes see every load balancer.
pub(super) fn existing<'a>(call: &'a Call<'_>, id: &str) -> Result<&'a HcloudLoadBalancer, ApiError> {
    let balancer = call.state().load_balancers.get(&id_of(id, "load_balancer")?);
    balancer
        .filter(|balancer| balancer.project == call.project)
        .ok_or_else(|| ApiError::not_found("load_balancer"))
}

fn get(call: &Call<'_>, id: &str) -> Handled {
    let balancer = existing(call, id)?;
    if call.now < balancer.visible_by_id_at {
        return Err(ApiError::not_found("load_balancer"));
    }
    Ok(Reply::ok(json!({"load_balancer": json_of(balancer, call)})))
}

fn create(call: &mut Call<'_>) -> Handled {
    let mut body = call.body()?;
    let name = body.required_text("name");
    let kind = type_of(&mut body);
    let location = location_of(&mut body);
    let labels = body.labels("labels").unwrap_or_default();
    let algorithm = read_algorithm(&mut body);
    let public_interface = body.flag("public_interface").unwrap_or(true);
    let network = body.integer("network");
    let (Some(kind), Some(location)) = (kind, location) else {
        body.finish()?;
        return Err(ApiError::invalid("location", "expected a location or a network zone"));
    };
    let (id, ipv4, ipv6) = public_addresses(call)?;
    let mut balancer = HcloudLoadBalancer {
        id,
        project: call.project.to_owned(),
        name,
        created: call.now,
        labels,
        load_balancer_type: kind.name.to_owned(),
        location: location.name.to_owned(),
        algorithm,
        ipv4_dns_ptr: format!("static.{}.stand-in.example", ipv4.ip.replace('.', "-")),
        ipv4,
        ipv6,
        ipv6_dns_ptr: String::new(),
        public_interface,
        private_net: Vec::new(),
        services: Vec::new(),
        targets: Vec::new(),
        protected: false,
        visible_by_id_at: later(call.now, call.books.settings.visible_by_id),
        visible_in_lists_at: later(call.now, call.books.settings.visible_in_lists),
    };
    if let Some(network) = network {
        let net = attachment(call, &balancer, network, None, None)?;
        balancer.private_net.push(net);
    }
    for mut wanted in body.objects("services") {
        let service = read_service(&mut wanted, None);
        let is_used = balancer
            .services
            .iter()
            .any(|other| Some(other.listen_port) == service.as_ref().map(|service| service.listen_port));
        if is_used {
            wanted.problem("listen_port", "port is used by another service");
        }
        balancer.services.extend(service);
        body.take_problems(wanted);
    }
    let mut wanted_targets = Vec::new();
    for mut wanted in body.objects("targets") {
        wanted_targets.extend(read_target(&mut wanted));
        body.take_problems(wanted);
    }
    body.finish()?;
    for target in wanted_targets {
        check_target(call, &balancer, &target)?;
        balancer.targets.push(target);
    }
    if kind.max_services < balancer.services.len() {
        return Err(ApiError::limit("load_balancer_services", "too many services for the type"));
    }
    ensure_name_is_free(call, &balancer.name)?;
    call.books.store.put_load_balancer(balancer);
    let effect = Effect::LoadBalancer { load_balancer: id, change: LbChange::None };
    let action = call.begin("create_load_balancer", vec![ResourceRef::new("load_balancer", id)], effect);
    let balancer = &call.state().load_balancers[&id];
    Ok(Reply::created(json!({
        "load_balancer": json_of(balancer, call), "action": json_with_id(call, action),
    })))
}

/// A new id, and the public addresses of the load balancer with that id.
fn public_addresses(call: &mut Call<'_>) -> Result<(i64, PublicIp, PublicIp), ApiError> {
    let ip = free_public_ipv4(call.state());
    let ip = ip.ok_or_else(|| ApiError::limit("primary_ips", "no public IPv4 address is free"))?;
    let seed = call.books.settings.seed;
    let id = call.books.store.next_id(seed);
    let ipv4 = PublicIp { id: call.books.store.next_id(seed), ip };
    let ipv6 = public_ipv6(id).replace("::/64", "::1");
    Ok((id, ipv4, PublicIp { id: call.books.store.next_id(seed), ip: ipv6 }))
}

pub(super) fn type_of(body: &mut RequestBody) -> Option<&'static LoadBalancerType> {
    let kind = match body.id_or_name("load_balancer_type") {
        None => None,
        Some(IdOrName::Name(name)) => LoadBalancerType::named(&name),
        Some(IdOrName::Id(id)) => LOAD_BALANCER_TYPES.iter().find(|candidate| candidate.id == id),
    };
    if kind.is_none() {
        body.problem("load_balancer_type", "load balancer type does not exist");
    }
    kind
}

fn location_of(body: &mut RequestBody) -> Option<&'static Location> {
    let location = body.id_or_name("location");
    let network_zone = body.text("network_zone");
    let (field, found) = match (location, network_zone) {
        (Some(IdOrName::Name(name)), None) => ("location", Location::named(&name)),
        (Some(IdOrName::Id(id)), None) => ("location", LOCATIONS.iter().find(|candidate| candidate.id == id)),
        (None, Some(zone)) => ("network_zone", Location::in_zone(&zone)),
        (Some(_), Some(_)) | (None, None) => {
            body.problem("location", "expected either a location or a network zone");
            return None;
        }
    };
    if found.is_none() {
        body.problem(field, "location or network zone does not exist");
    }
    found
}

fn read_algorithm(body: &mut RequestBody) -> LbAlgorithm {
    let Some(mut wanted) = body.object("algorithm") else { return LbAlgorithm::RoundRobin };
    let algorithm = algorithm_of(&mut wanted);
    body.take_problems(wanted);
    algorithm.unwrap_or(LbAlgorithm::RoundRobin)
}

/// Reads `{"type": "round_robin"}`.
pub(super) fn algorithm_of(body: &mut RequestBody) -> Option<LbAlgorithm> {
    match body.required_text("type").as_str() {
        "round_robin" => Some(LbAlgorithm::RoundRobin),
        "least_connections" => Some(LbAlgorithm::LeastConnections),
        "" => None,
        _ => {
            body.problem("type", "expected round_robin or least_connections");
            None
        }
    }
}

/// The attachment of a load balancer to a network, with a free address or the wanted one.
pub(super) fn attachment(
    call: &Call<'_>,
    balancer: &HcloudLoadBalancer,
    network: i64,
    wanted: Option<&str>,
    subnet: Option<&str>,
) -> Result<LbPrivateNet, ApiError> {
    let network = call.state().networks.get(&network).filter(|network| network.project == call.project);
    let network = network.ok_or_else(|| ApiError::not_found("network"))?;
    if !balancer.private_net.is_empty() {
        return Err(ApiError::new(
            "load_balancer_already_attached",
            "load balancer is already attached to a network",
        ));
    }
    let zone = Location::named(&balancer.location).map_or("", |location| location.network_zone);
    let ip = free_private(call.state(), network, zone, wanted, subnet).map_err(no_address)?;
    Ok(LbPrivateNet { network: network.id, ip })
}

fn update(call: &mut Call<'_>, id: &str) -> Handled {
    let mut balancer = existing(call, id)?.clone();
    let mut body = call.body()?;
    let name = body.text("name").filter(|name| *name != balancer.name);
    let labels = body.labels("labels");
    body.finish()?;
    if let Some(name) = name {
        ensure_name_is_free(call, &name)?;
        balancer.name = name;
    }
    balancer.labels = labels.unwrap_or(balancer.labels);
    call.books.store.put_load_balancer(balancer.clone());
    Ok(Reply::ok(json!({"load_balancer": json_of(&balancer, call)})))
}

fn delete(call: &mut Call<'_>, id: &str) -> Handled {
    let balancer = existing(call, id)?;
    if balancer.protected {
        return Err(ApiError::new("protected", "load balancer deletion is protected"));
    }
    let id = balancer.id;
    match call.books.settings.balancer_deletion {
        DeletionReply::NoContent => {
            call.books.store.remove_load_balancer(id);
            Ok(Reply::empty())
        }
        DeletionReply::Action => {
            call.books.ensure_idle("load_balancer", id)?;
            let effect = Effect::DeleteLoadBalancer { load_balancer: id };
            let resources = vec![ResourceRef::new("load_balancer", id)];
            let action = call.begin("delete_load_balancer", resources, effect);
            Ok(begun(call, action))
        }
    }
}

fn ensure_name_is_free(call: &Call<'_>, name: &str) -> Result<(), ApiError> {
    let mut of_project =
        call.state().load_balancers.values().filter(|balancer| balancer.project == call.project);
    if of_project.any(|balancer| balancer.name == name) {
        return Err(ApiError::not_unique("load_balancer", "name"));
    }
    Ok(())
}

fn json_of(balancer: &HcloudLoadBalancer, call: &Call<'_>) -> Value {
    let location = Location::named(&balancer.location);
    let kind = LoadBalancerType::named(&balancer.load_balancer_type);
    let targets = balancer.targets.iter().map(|target| json_of_target(target, balancer, call));
    let ip = |ip: &PublicIp, dns_ptr: &str| {
        let dns_ptr = (!dns_ptr.is_empty()).then_some(dns_ptr);
        json!({"id": ip.id, "ip": ip.ip, "dns_ptr": dns_ptr})
    };
    let mut json = json!({
        "id": balancer.id, "name": balancer.name, "created": balancer.created, "labels": balancer.labels,
        "public_net": {
            "enabled": balancer.public_interface,
            "ipv4": ip(&balancer.ipv4, &balancer.ipv4_dns_ptr),
            "ipv6": ip(&balancer.ipv6, &balancer.ipv6_dns_ptr),
        },
        "private_net": balancer.private_net,
        "location": location.map(Location::json), "load_balancer_type": kind.map(LoadBalancerType::json),
        "protection": {"delete": balancer.protected}, "algorithm": {"type": balancer.algorithm},
        "services": balancer.services, "targets": targets.collect::<Vec<_>>(),
        "included_traffic": 0, "outgoing_traffic": 0, "ingoing_traffic": 0,
        "stand_in": {"busy": call.books.is_busy("load_balancer", balancer.id)},
    });
    if let Some(location) = location.filter(|_| call.books.settings.datacenter) {
        json["datacenter"] = datacenter_json(location);
    }
    json
}
