//! The effect of each action, when it succeeds or fails.

use jiff::Timestamp;

use crate::model::{Effect, HcloudLoadBalancer, LbChange, TargetKind};
use crate::store::Store;

/// Applies the effect of a successful action. An object that was deleted meanwhile is left alone.
pub(crate) fn apply(store: &mut Store, effect: Effect, at: Timestamp) {
    match effect {
        Effect::None => {}
        Effect::ServerStatus { server, on_success, .. } => {
            if let Some(server) = store.edit_server(server).filter(|server| server.is_alive()) {
                server.status = on_success;
            }
        }
        Effect::DeleteServer { server, .. } => delete_server(store, server, at),
        Effect::AttachServer { server, net } => {
            if let Some(server) = store.edit_server(server).filter(|server| server.is_alive()) {
                server.private_net.push(net);
            }
        }
        Effect::DetachServer { server, network } => detach_server(store, server, network),
        Effect::ChangeServerType { server, server_type, disk } => {
            if let Some(server) = store.edit_server(server) {
                server.server_type = server_type;
                server.primary_disk_size = disk.unwrap_or(server.primary_disk_size);
            }
        }
        Effect::ProtectServer { server, protected } => {
            if let Some(server) = store.edit_server(server) {
                server.protected = protected;
            }
        }
        Effect::AddRoute { network, route } => {
            if let Some(network) = store.edit_network(network) {
                network.routes.push(route);
            }
        }
        Effect::DeleteRoute { network, route } => {
            if let Some(network) = store.edit_network(network) {
                network.routes.retain(|other| *other != route);
            }
        }
        Effect::AddSubnet { network, subnet } => {
            if let Some(network) = store.edit_network(network) {
                network.subnets.push(subnet);
            }
        }
        Effect::DeleteSubnet { network, ip_range } => {
            if let Some(network) = store.edit_network(network) {
                network.subnets.retain(|subnet| subnet.ip_range != ip_range);
            }
        }
        Effect::ChangeIpRange { network, ip_range } => {
            if let Some(network) = store.edit_network(network) {
                network.ip_range = ip_range;
            }
        }
        Effect::ProtectNetwork { network, protected } => {
            if let Some(network) = store.edit_network(network) {
                network.protected = protected;
            }
        }
        Effect::LoadBalancer { load_balancer, change } => {
            if let Some(load_balancer) = store.edit_load_balancer(load_balancer) {
                change_load_balancer(load_balancer, change);
            }
        }
        Effect::DeleteLoadBalancer { load_balancer } => store.remove_load_balancer(load_balancer),
        Effect::AssignFloatingIp { floating_ip, server } => {
            if let Some(address) = store.edit_floating_ip(floating_ip) {
                address.server = server;
            }
        }
        Effect::IssueCertificate { certificate } => {
            if let Some(certificate) = store.edit_certificate(certificate) {
                certificate.certificate = Some(STAND_IN_CERTIFICATE.to_owned());
            }
        }
    }
}

/// Returns an object to a usable state after a failed action.
pub(crate) fn undo(store: &mut Store, effect: Effect) {
    match effect {
        Effect::ServerStatus { server, on_error: status, .. }
        | Effect::DeleteServer { server, before: status } => {
            if let Some(server) = store.edit_server(server).filter(|server| server.is_alive()) {
                server.status = status;
            }
        }
        Effect::None
        | Effect::AttachServer { .. }
        | Effect::DetachServer { .. }
        | Effect::ChangeServerType { .. }
        | Effect::ProtectServer { .. }
        | Effect::AddRoute { .. }
        | Effect::DeleteRoute { .. }
        | Effect::AddSubnet { .. }
        | Effect::DeleteSubnet { .. }
        | Effect::ChangeIpRange { .. }
        | Effect::ProtectNetwork { .. }
        | Effect::LoadBalancer { .. }
        | Effect::DeleteLoadBalancer { .. }
        | Effect::AssignFloatingIp { .. }
        | Effect::IssueCertificate { .. } => {}
    }
}

/// Ends a server, removes it from the targets of load balancers, and takes its floating addresses
/// away.
pub(crate) fn delete_server(store: &mut Store, id: i64, at: Timestamp) {
    let Some(server) = store.edit_server(id).filter(|server| server.is_alive()) else { return };
    server.deleted = Some(at);
    server.private_net.clear();
    let addresses = store.state().floating_ips.values().filter(|address| address.server == Some(id));
    for address in addresses.map(|address| address.id).collect::<Vec<_>>() {
        if let Some(address) = store.edit_floating_ip(address) {
            address.server = None;
        }
    }
    remove_targets(store, |load_balancer, _| {
        load_balancer.targets.retain(|target| target.kind != TargetKind::Server(id));
    });
}

/// Detaches a server, and removes it from targets that use its address in that network.
pub(crate) fn detach_server(store: &mut Store, id: i64, network: i64) {
    if let Some(server) = store.edit_server(id) {
        server.private_net.retain(|net| net.network != network);
    }
    remove_targets(store, |load_balancer, is_in| {
        load_balancer.targets.retain(|target| {
            !(target.kind == TargetKind::Server(id) && target.use_private_ip && is_in(network))
        });
    });
}

fn remove_targets(store: &mut Store, remove: impl Fn(&mut HcloudLoadBalancer, &dyn Fn(i64) -> bool)) {
    let changed: Vec<HcloudLoadBalancer> = store
        .state()
        .load_balancers
        .values()
        .filter_map(|before| {
            let mut after = before.clone();
            remove(&mut after, &|network| before.private_net.iter().any(|net| net.network == network));
            (after != *before).then_some(after)
        })
        .collect();
    for load_balancer in changed {
        store.put_load_balancer(load_balancer);
    }
}

fn change_load_balancer(load_balancer: &mut HcloudLoadBalancer, change: LbChange) {
    match change {
        LbChange::None => {}
        LbChange::PutService(service) => {
            let same =
                load_balancer.services.iter_mut().find(|other| other.listen_port == service.listen_port);
            match same {
                Some(same) => *same = *service,
                None => load_balancer.services.push(*service),
            }
        }
        LbChange::DeleteService(port) => load_balancer.services.retain(|service| service.listen_port != port),
        LbChange::AddTarget(target) => load_balancer.targets.push(target),
        LbChange::RemoveTarget(kind) => load_balancer.targets.retain(|target| target.kind != kind),
        LbChange::Attach(net) => load_balancer.private_net.push(net),
        LbChange::Detach(network) => {
            load_balancer.private_net.retain(|net| net.network != network);
            load_balancer.targets.retain(|target| !target.use_private_ip);
        }
        LbChange::Algorithm(algorithm) => load_balancer.algorithm = algorithm,
        LbChange::Type(name) => load_balancer.load_balancer_type = name,
        LbChange::PublicInterface(enabled) => load_balancer.public_interface = enabled,
        LbChange::DnsPtr { ip, dns_ptr } => {
            let name = dns_ptr.unwrap_or_default();
            if load_balancer.ipv4.ip == ip {
                load_balancer.ipv4_dns_ptr = name;
            } else {
                load_balancer.ipv6_dns_ptr = name;
            }
        }
        LbChange::Protection(protected) => load_balancer.protected = protected,
    }
}

/// Stands for a certificate that the cloud issued; no TLS uses it.
const STAND_IN_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nc3RhbmQtaW4=\n-----END CERTIFICATE-----\n";
