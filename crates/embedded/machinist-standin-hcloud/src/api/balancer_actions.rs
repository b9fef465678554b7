//! The actions of load balancers.

use super::actions::begun;
use super::balancer_services::read_service;
use super::balancer_targets::{check_target, read_kind, read_target};
use super::balancers::{algorithm_of, attachment, existing, type_of};
use super::body::RequestBody;
use super::call::{Call, Handled, MaybeHandled, found};
use crate::catalogue::LoadBalancerType;
use crate::error::ApiError;
use crate::model::{Effect, HcloudLoadBalancer, LbChange, ResourceRef, Service, TargetKind};

/// Validates a request, and returns the change that its action makes.
type Plan = fn(&mut Call<'_>, &HcloudLoadBalancer, RequestBody) -> Result<LbChange, ApiError>;

pub(super) fn handle(call: &mut Call<'_>, id: &str, command: &str) -> MaybeHandled {
    let plan: Plan = match command {
        "add_service" => add_service,
        "update_service" => update_service,
        "delete_service" => delete_service,
        "add_target" => add_target,
        "remove_target" => remove_target,
        "attach_to_network" => attach,
        "detach_from_network" => detach,
        "change_algorithm" => |_, _, mut body| {
            let algorithm = algorithm_of(&mut body);
            body.finish()?;
            Ok(algorithm.map_or(LbChange::None, LbChange::Algorithm))
        },
        "change_type" => change_type,
        "enable_public_interface" => |_, _, _| Ok(LbChange::PublicInterface(true)),
        "disable_public_interface" => |_, _, _| Ok(LbChange::PublicInterface(false)),
        "change_dns_ptr" => change_dns_ptr,
        "change_protection" => |_, balancer, mut body| {
            let protected = body.flag("delete").unwrap_or(balancer.protected);
            body.finish()?;
            Ok(LbChange::Protection(protected))
        },
        _ => return None,
    };
    found(begin(call, id, command, plan))
}

fn begin(call: &mut Call<'_>, id: &str, command: &str, plan: Plan) -> Handled {
    let balancer = existing(call, id)?.clone();
    let body = call.body()?;
    call.books.ensure_idle("load_balancer", balancer.id)?;
    let change = plan(call, &balancer, body)?;
    let mut resources = vec![ResourceRef::new("load_balancer", balancer.id)];
    match &change {
        LbChange::Attach(net) => resources.push(ResourceRef::new("network", net.network)),
        LbChange::Detach(network) => resources.push(ResourceRef::new("network", *network)),
        LbChange::AddTarget(target) => resources.extend(server_of(&target.kind)),
        LbChange::RemoveTarget(kind) => resources.extend(server_of(kind)),
        _ => {}
    }
    let effect = Effect::LoadBalancer { load_balancer: balancer.id, change };
    let command = if command == "change_type" { "change_load_balancer_type" } else { command };
    let action = call.begin(command, resources, effect);
    Ok(begun(call, action))
}

fn server_of(kind: &TargetKind) -> Option<ResourceRef> {
    match kind {
        TargetKind::Server(id) => Some(ResourceRef::new("server", *id)),
        TargetKind::LabelSelector(_) | TargetKind::Ip(_) => None,
    }
}

fn add_service(
    call: &mut Call<'_>,
    balancer: &HcloudLoadBalancer,
    mut body: RequestBody,
) -> Result<LbChange, ApiError> {
    let service = read_service(&mut body, None);
    body.finish()?;
    let service = service.ok_or_else(|| ApiError::invalid("protocol", "expected a service"))?;
    if balancer.services.iter().any(|other| other.listen_port == service.listen_port) {
        return Err(ApiError::new(
            "source_port_already_used",
            format!("port {} is used by another service", service.listen_port),
        ));
    }
    let most = LoadBalancerType::named(&balancer.load_balancer_type)
        .map_or(0, |balancer_type| balancer_type.max_services);
    if most <= balancer.services.len() {
        return Err(ApiError::limit("load_balancer_services", "too many services for the type"));
    }
    ensure_certificates_exist(call, &service)?;
    Ok(LbChange::PutService(Box::new(service)))
}

fn update_service(
    call: &mut Call<'_>,
    balancer: &HcloudLoadBalancer,
    mut body: RequestBody,
) -> Result<LbChange, ApiError> {
    let before = service_of(&mut body, balancer)?;
    let service = read_service(&mut body, Some(&before));
    body.finish()?;
    let service = service.ok_or_else(|| ApiError::invalid("protocol", "expected a service"))?;
    ensure_certificates_exist(call, &service)?;
    Ok(LbChange::PutService(Box::new(service)))
}

fn delete_service(
    _: &mut Call<'_>,
    balancer: &HcloudLoadBalancer,
    mut body: RequestBody,
) -> Result<LbChange, ApiError> {
    let service = service_of(&mut body, balancer)?;
    body.finish()?;
    Ok(LbChange::DeleteService(service.listen_port))
}

/// The service with the `listen_port` of the body.
fn service_of(body: &mut RequestBody, balancer: &HcloudLoadBalancer) -> Result<Service, ApiError> {
    let port = body.required_integer("listen_port");
    let service = balancer.services.iter().find(|service| i64::from(service.listen_port) == port);
    service.cloned().ok_or_else(|| ApiError::not_found("load_balancer_service"))
}

fn ensure_certificates_exist(call: &Call<'_>, service: &Service) -> Result<(), ApiError> {
    let certificates = &call.state().certificates;
    let exists =
        |id: &i64| certificates.get(id).is_some_and(|certificate| certificate.project == call.project);
    let all_exist = service.http.as_ref().is_none_or(|http| http.certificates.iter().all(exists));
    if all_exist {
        return Ok(());
    }
    Err(ApiError::invalid("http.certificates", "certificate does not exist"))
}

fn add_target(
    call: &mut Call<'_>,
    balancer: &HcloudLoadBalancer,
    mut body: RequestBody,
) -> Result<LbChange, ApiError> {
    let target = read_target(&mut body);
    body.finish()?;
    let target = target.ok_or_else(|| ApiError::invalid("type", "expected a target"))?;
    check_target(call, balancer, &target)?;
    Ok(LbChange::AddTarget(target))
}

fn remove_target(
    _: &mut Call<'_>,
    balancer: &HcloudLoadBalancer,
    mut body: RequestBody,
) -> Result<LbChange, ApiError> {
    let kind = read_kind(&mut body);
    body.finish()?;
    let kind = kind.filter(|kind| balancer.targets.iter().any(|target| target.kind == *kind));
    kind.map(LbChange::RemoveTarget).ok_or_else(|| ApiError::not_found("load_balancer_target"))
}

fn attach(
    call: &mut Call<'_>,
    balancer: &HcloudLoadBalancer,
    mut body: RequestBody,
) -> Result<LbChange, ApiError> {
    let network = body.required_integer("network");
    let ip = body.text("ip");
    let ip_range = body.text("ip_range");
    body.finish()?;
    attachment(call, balancer, network, ip.as_deref(), ip_range.as_deref()).map(LbChange::Attach)
}

fn detach(
    _: &mut Call<'_>,
    balancer: &HcloudLoadBalancer,
    mut body: RequestBody,
) -> Result<LbChange, ApiError> {
    let network = body.required_integer("network");
    body.finish()?;
    if balancer.private_net.iter().any(|net| net.network == network) {
        return Ok(LbChange::Detach(network));
    }
    Err(ApiError::new(
        "load_balancer_not_attached_to_network",
        "load balancer is not attached to this network",
    ))
}

fn change_type(
    _: &mut Call<'_>,
    balancer: &HcloudLoadBalancer,
    mut body: RequestBody,
) -> Result<LbChange, ApiError> {
    let kind = type_of(&mut body);
    body.finish()?;
    let Some(kind) = kind else { return Ok(LbChange::None) };
    if kind.max_targets < balancer.targets.len() || kind.max_services < balancer.services.len() {
        return Err(ApiError::new(
            "invalid_load_balancer_type",
            "load balancer has more targets or services than the type allows",
        ));
    }
    Ok(LbChange::Type(kind.name.to_owned()))
}

fn change_dns_ptr(
    _: &mut Call<'_>,
    balancer: &HcloudLoadBalancer,
    mut body: RequestBody,
) -> Result<LbChange, ApiError> {
    let ip = body.required_text("ip");
    let dns_ptr = body.text("dns_ptr");
    if ip != balancer.ipv4.ip && ip != balancer.ipv6.ip {
        body.problem("ip", "expected an address of the load balancer");
    }
    body.finish()?;
    Ok(LbChange::DnsPtr { ip, dns_ptr })
}
