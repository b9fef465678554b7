//! Servers: reads, PUT and DELETE.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::actions::{json_with_id, of_resource};
use super::call::{Call, Handled, MaybeHandled, Reply, found, id_of};
use super::list::list;
use super::{server_actions, server_create};
use crate::catalogue::{Image, Location, ServerType};
use crate::error::ApiError;
use crate::model::{Effect, HcloudServer, PublicIp, ResourceRef, ServerStatus};
use crate::{Fault, State};

pub(super) fn handle(call: &mut Call<'_>, method: &str, segments: &[&str]) -> MaybeHandled {
    match (method, segments) {
        ("GET", []) => found(list_servers(call)),
        ("POST", []) => found(server_create::create(call)),
        ("GET", [id]) if *id != "actions" => found(get(call, id)),
        ("PUT", [id]) => found(update(call, id)),
        ("DELETE", [id]) => found(delete(call, id)),
        ("POST", [id, "actions", command]) => server_actions::handle(call, id, command),
        ("GET", segments) => of_resource(call, "server", segments),
        _ => None,
    }
}

fn list_servers(call: &Call<'_>) -> Handled {
    let shown_at = match call.fault {
        Some(Fault::StaleList { age }) => call.now.checked_sub(*age).unwrap_or(Timestamp::MIN),
        _ => call.now,
    };
    let of_project = call.state().servers.values().filter(|server| server.project == call.project);
    let shown = of_project.filter(|server| {
        server.visible_in_lists_at <= shown_at && server.deleted.is_none_or(|deleted| shown_at < deleted)
    });
    list(call, "servers", shown.collect(), |server| json_of(server, call))
}

fn get(call: &Call<'_>, id: &str) -> Handled {
    let server = existing(call, id)?;
    if call.now < server.visible_by_id_at {
        return Err(ApiError::not_found("server"));
    }
    Ok(Reply::ok(json!({"server": json_of(server, call)})))
}

/// A server of the project. Only reads are late; changes see every server.
pub(super) fn existing<'a>(call: &'a Call<'_>, id: &str) -> Result<&'a HcloudServer, ApiError> {
    let id = id_of(id, "server")?;
    by_id(call.state(), call.project, id).ok_or_else(|| ApiError::not_found("server"))
}

/// A server of a project that exists.
pub(super) fn by_id<'a>(state: &'a State, project: &str, id: i64) -> Option<&'a HcloudServer> {
    state.servers.get(&id).filter(|server| server.is_alive() && server.project == project)
}

fn update(call: &mut Call<'_>, id: &str) -> Handled {
    let mut server = existing(call, id)?.clone();
    let mut body = call.body()?;
    let name = body.text("name");
    let labels = body.labels("labels");
    if name.as_deref().is_some_and(|name| !is_host_name(name)) {
        body.problem("name", "expected a host name (RFC 1123)");
    }
    body.finish()?;
    if let Some(name) = name.filter(|name| *name != server.name) {
        ensure_name_is_free(call, &name)?;
        server.name = name;
    }
    server.labels = labels.unwrap_or(server.labels);
    call.books.store.put_server(server.clone());
    Ok(Reply::ok(json!({"server": json_of(&server, call)})))
}

fn delete(call: &mut Call<'_>, id: &str) -> Handled {
    let server = existing(call, id)?.clone();
    if server.protected {
        return Err(ApiError::new("protected", "server deletion is protected"));
    }
    if !call.books.settings.delete_while_busy {
        call.books.ensure_idle("server", server.id)?;
    }
    if server.status == ServerStatus::Deleting {
        return Err(ApiError::new("locked", "server is being deleted"));
    }
    let effect = Effect::deletion_of(&server);
    if let Some(server) = call.books.store.edit_server(server.id) {
        server.status = ServerStatus::Deleting;
    }
    let action = call.begin("delete_server", vec![ResourceRef::new("server", server.id)], effect);
    Ok(Reply::ok(json!({"action": json_with_id(call, action)})))
}

pub(super) fn ensure_name_is_free(call: &Call<'_>, name: &str) -> Result<(), ApiError> {
    let mut of_project =
        call.state().servers.values().filter(|server| server.is_alive() && server.project == call.project);
    if of_project.any(|server| server.name == name) {
        return Err(ApiError::not_unique("server", "name"));
    }
    Ok(())
}

/// Whether the text is a host name (RFC 1123).
pub(super) fn is_host_name(text: &str) -> bool {
    let is_part = |part: &str| {
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !part.is_empty()
            && part.len() <= 63
            && part.bytes().all(is_inner)
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_part)
}

/// The JSON of a server.
pub(super) fn json_of(server: &HcloudServer, call: &Call<'_>) -> Value {
    let location = Location::named(&server.location);
    let server_type = ServerType::named(&server.server_type).map(ServerType::json);
    let image = server.image.and_then(Image::with_id).map(Image::json);
    let private_net: Vec<Value> = server.private_net.iter().map(|net| json!(net)).collect();
    let mut json = json!({
        "id": server.id, "name": server.name, "status": server.status, "created": server.created,
        "public_net": {
            "ipv4": ipv4_json(server.ipv4.as_ref()), "ipv6": ipv6_json(server.ipv6.as_ref()),
            "floating_ips": floating_ips_of(server, call), "firewalls": [],
        },
        "private_net": private_net,
        "server_type": server_type, "image": image, "iso": null,
        "location": location.map(Location::json),
        "rescue_enabled": false, "locked": call.books.is_busy("server", server.id),
        "backup_window": null, "outgoing_traffic": 0, "ingoing_traffic": 0, "included_traffic": 0,
        "protection": {"delete": server.protected, "rebuild": server.protected},
        "labels": server.labels, "volumes": [], "load_balancers": balancers_of(server, call),
        "primary_disk_size": server.primary_disk_size, "placement_group": null,
        // A client must ignore fields that it does not know.
        "stand_in": {"serial": server.serial},
    });
    if let Some(location) = location.filter(|_| call.books.settings.datacenter) {
        json["datacenter"] = datacenter_json(location);
    }
    json
}

/// The `datacenter` field before its removal.
pub(super) fn datacenter_json(location: &Location) -> Value {
    json!({
        "id": location.id, "name": location.datacenter, "description": location.datacenter,
        "location": location.json(),
        "server_types": {"supported": [], "available": [], "available_for_migration": []},
    })
}

fn ipv4_json(ip: Option<&PublicIp>) -> Value {
    let Some(PublicIp { id, ip }) = ip else { return Value::Null };
    let dns_ptr = format!("static.{}.stand-in.example", ip.replace('.', "-"));
    json!({"id": id, "ip": ip, "blocked": false, "dns_ptr": dns_ptr})
}

fn ipv6_json(ip: Option<&PublicIp>) -> Value {
    ip.map_or(Value::Null, |PublicIp { id, ip }| json!({"id": id, "ip": ip, "blocked": false, "dns_ptr": []}))
}

/// Ids of the floating addresses that are assigned to the server.
fn floating_ips_of(server: &HcloudServer, call: &Call<'_>) -> Vec<i64> {
    let addresses = call.state().floating_ips.values();
    addresses.filter(|address| address.server == Some(server.id)).map(|address| address.id).collect()
}

/// Ids of load balancers that have the server as a target.
fn balancers_of(server: &HcloudServer, call: &Call<'_>) -> Vec<i64> {
    let balancers =
        call.state().load_balancers.values().filter(|balancer| balancer.project == server.project);
    let targets_it =
        balancers.filter(|balancer| balancer.targets.iter().any(|target| target.kind.selects(server)));
    targets_it.map(|balancer| balancer.id).collect()
}
