//! The targets of load balancers.

use machinist_labels::Selector;
use serde_json::{Value, json};

use super::body::RequestBody;
use super::call::Call;
use super::servers::by_id;
use crate::catalogue::LoadBalancerType;
use crate::error::ApiError;
use crate::model::{HcloudLoadBalancer, HcloudServer, LbTarget, ServerStatus, TargetKind};

/// Reads a target; problems are in the body.
pub(super) fn read_target(body: &mut RequestBody) -> Option<LbTarget> {
    let kind = read_kind(body);
    let use_private_ip = body.flag("use_private_ip").unwrap_or(false);
    if use_private_ip && matches!(kind, Some(TargetKind::Ip(_))) {
        body.problem("use_private_ip", "expected false for an IP target");
    }
    Some(LbTarget { kind: kind?, use_private_ip })
}

/// Reads the identity of a target; problems are in the body.
pub(super) fn read_kind(body: &mut RequestBody) -> Option<TargetKind> {
    let kind = body.required_text("type");
    if kind.is_empty() {
        return None;
    }
    let Some(mut identity) = body.object(&kind) else {
        body.problem("type", "expected server, label_selector or ip, and an object of that name");
        return None;
    };
    let read = match kind.as_str() {
        "server" => Some(TargetKind::Server(identity.required_integer("id"))),
        "label_selector" => {
            let selector = identity.required_text("selector");
            if selector.parse::<Selector>().is_err() {
                identity.problem("selector", "expected a label selector");
            }
            Some(TargetKind::LabelSelector(selector))
        }
        "ip" => {
            let ip = identity.required_text("ip");
            if ip.parse::<std::net::IpAddr>().is_err() {
                identity.problem("ip", "expected an IP address");
            }
            Some(TargetKind::Ip(ip))
        }
        _ => {
            body.problem("type", "expected server, label_selector or ip");
            None
        }
    };
    body.take_problems(identity);
    read
}

/// Fails if the load balancer cannot have one more target, or not this one.
pub(super) fn check_target(
    call: &Call<'_>,
    balancer: &HcloudLoadBalancer,
    target: &LbTarget,
) -> Result<(), ApiError> {
    if balancer.targets.iter().any(|other| other.kind == target.kind) {
        return Err(ApiError::new("target_already_defined", "target is already defined"));
    }
    if target.use_private_ip && balancer.private_net.is_empty() {
        return Err(ApiError::new(
            "load_balancer_not_attached_to_network",
            "load balancer is not attached to a network",
        ));
    }
    match &target.kind {
        TargetKind::Server(id) => {
            let server = by_id(call.state(), call.project, *id);
            let server = server.ok_or_else(|| ApiError::invalid("server.id", "server does not exist"))?;
            if target.use_private_ip && private_ip(server, balancer).is_none() {
                return Err(ApiError::new(
                    "server_not_attached_to_network",
                    "server is not attached to the network of the load balancer",
                ));
            }
            if !target.use_private_ip && server.ipv4.is_none() {
                return Err(ApiError::new("missing_ipv4", "server has no public IPv4 address"));
            }
        }
        TargetKind::Ip(ip) => {
            let is_of_cloud =
                |server: &HcloudServer| server.ipv4.as_ref().is_some_and(|address| address.ip == *ip);
            if call.state().servers.values().any(|server| server.is_alive() && is_of_cloud(server)) {
                return Err(ApiError::new(
                    "cloud_resource_ip_not_allowed",
                    "expected the IP of a dedicated server, not of a cloud server",
                ));
            }
        }
        TargetKind::LabelSelector(_) => {}
    }
    let most = LoadBalancerType::named(&balancer.load_balancer_type)
        .map_or(0, |balancer_type| balancer_type.max_targets);
    if most <= balancer.targets.len() {
        return Err(ApiError::limit("load_balancer_targets", "too many targets for the type"));
    }
    Ok(())
}

fn private_ip<'a>(server: &'a HcloudServer, balancer: &HcloudLoadBalancer) -> Option<&'a str> {
    let network = balancer.private_net.first()?.network;
    server.private_net.iter().find(|net| net.network == network).map(|net| net.ip.as_str())
}

/// The JSON of a target, with its health: a server is healthy while it runs.
pub(super) fn json_of_target(target: &LbTarget, balancer: &HcloudLoadBalancer, call: &Call<'_>) -> Value {
    let state = call.state();
    let mut json = match &target.kind {
        TargetKind::Server(id) => {
            let server = by_id(state, &balancer.project, *id);
            let is_running = server.is_some_and(|server| server.status == ServerStatus::Running);
            json!({"type": "server", "server": {"id": id}, "health_status": health(balancer, is_running)})
        }
        TargetKind::LabelSelector(selector) => {
            let servers = state.servers.values().filter(|server| server.is_alive());
            let selected =
                servers.filter(|server| server.project == balancer.project && target.kind.selects(server));
            let targets: Vec<Value> = selected
                .map(|server| {
                    json!({
                        "type": "server", "server": {"id": server.id},
                        "use_private_ip": target.use_private_ip,
                        "health_status": health(balancer, server.status == ServerStatus::Running),
                    })
                })
                .collect();
            json!({"type": "label_selector", "label_selector": {"selector": selector}, "targets": targets})
        }
        TargetKind::Ip(ip) => {
            json!({"type": "ip", "ip": {"ip": ip}, "health_status": health(balancer, true)})
        }
    };
    json["use_private_ip"] = json!(target.use_private_ip);
    json
}

fn health(balancer: &HcloudLoadBalancer, is_healthy: bool) -> Value {
    let status = if is_healthy { "healthy" } else { "unhealthy" };
    let ports = balancer.services.iter().map(|service| service.listen_port);
    ports.map(|port| json!({"listen_port": port, "status": status})).collect()
}
