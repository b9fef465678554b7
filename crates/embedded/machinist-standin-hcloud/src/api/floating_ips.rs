//! Floating addresses: IPv4 addresses that are assigned to servers.

use serde_json::{Value, json};

use super::actions::{begun, json_with_id, of_resource};
use super::call::{Call, Handled, MaybeHandled, Reply, found, id_of};
use super::list::list;
use crate::addresses::free_public_ipv4;
use crate::catalogue::Location;
use crate::error::ApiError;
use crate::model::{Effect, FloatingIp, ResourceRef};

const SORT: &str = "floating_ip";

pub(super) fn handle(call: &mut Call<'_>, method: &str, segments: &[&str]) -> MaybeHandled {
    match (method, segments) {
        ("GET", []) => {
            let all = call.state().floating_ips.values().filter(|address| address.project == call.project);
            found(list(call, "floating_ips", all.collect(), json_of))
        }
        ("POST", []) => found(create(call)),
        ("GET", [id]) if *id != "actions" => found(get(call, id)),
        ("PUT", [id]) => found(update(call, id)),
        ("DELETE", [id]) => found(delete(call, id)),
        ("POST", [id, "actions", "assign"]) => found(assign(call, id)),
        ("POST", [id, "actions", "unassign"]) => found(unassign(call, id)),
        ("GET", segments) => of_resource(call, SORT, segments),
        _ => None,
    }
}

fn existing<'a>(call: &'a Call<'_>, id: &str) -> Result<&'a FloatingIp, ApiError> {
    let address = call.state().floating_ips.get(&id_of(id, SORT)?);
    address.filter(|address| address.project == call.project).ok_or_else(|| ApiError::not_found(SORT))
}

fn get(call: &Call<'_>, id: &str) -> Handled {
    Ok(Reply::ok(json!({"floating_ip": json_of(existing(call, id)?)})))
}

fn create(call: &mut Call<'_>) -> Handled {
    let mut body = call.body()?;
    let kind = body.required_text("type");
    if kind != "ipv4" {
        body.problem("type", "the stand-in has only ipv4");
    }
    let name = body.text("name");
    let labels = body.labels("labels").unwrap_or_default();
    let server = body.integer("server");
    let location = body.text("home_location");
    if server.is_none() && location.is_none() {
        body.problem("home_location", "either server or home_location is required");
    }
    body.finish()?;
    let location = match server {
        Some(id) => location_of(call, id)?,
        None => location.unwrap_or_default(),
    };
    if Location::named(&location).is_none() {
        return Err(ApiError::invalid("home_location", "unknown location"));
    }
    let ip = free_public_ipv4(call.state())
        .ok_or_else(|| ApiError::new("resource_unavailable", "no address is free"))?;
    let id = call.books.store.next_id(call.books.settings.seed);
    let name = name.unwrap_or_else(|| format!("floating-ip-{id}"));
    ensure_name_is_free(call, &name)?;
    let (project, created) = (call.project.to_owned(), call.now);
    let address = FloatingIp { id, project, name, created, labels, ip, location, server };
    call.books.store.put_floating_ip(address.clone());
    let action = server.map(|server| {
        let resources = vec![ResourceRef::new(SORT, id), ResourceRef::new("server", server)];
        call.begin("assign_floating_ip", resources, Effect::None)
    });
    let action = action.map(|action| json_with_id(call, action));
    Ok(Reply::created(json!({"floating_ip": json_of(&address), "action": action})))
}

fn update(call: &mut Call<'_>, id: &str) -> Handled {
    let mut address = existing(call, id)?.clone();
    let mut body = call.body()?;
    let name = body.text("name").filter(|name| *name != address.name);
    let labels = body.labels("labels");
    body.finish()?;
    if let Some(name) = name {
        ensure_name_is_free(call, &name)?;
        address.name = name;
    }
    address.labels = labels.unwrap_or(address.labels);
    call.books.store.put_floating_ip(address.clone());
    Ok(Reply::ok(json!({"floating_ip": json_of(&address)})))
}

fn delete(call: &mut Call<'_>, id: &str) -> Handled {
    let id = existing(call, id)?.id;
    call.books.store.remove_floating_ip(id);
    Ok(Reply::empty())
}

fn assign(call: &mut Call<'_>, id: &str) -> Handled {
    let id = existing(call, id)?.id;
    let mut body = call.body()?;
    let server = body.required_integer("server");
    body.finish()?;
    location_of(call, server)?;
    let resources = vec![ResourceRef::new(SORT, id), ResourceRef::new("server", server)];
    let effect = Effect::AssignFloatingIp { floating_ip: id, server: Some(server) };
    let action = call.begin("assign_floating_ip", resources, effect);
    Ok(begun(call, action))
}

fn unassign(call: &mut Call<'_>, id: &str) -> Handled {
    let id = existing(call, id)?.id;
    let effect = Effect::AssignFloatingIp { floating_ip: id, server: None };
    let action = call.begin("unassign_floating_ip", vec![ResourceRef::new(SORT, id)], effect);
    Ok(begun(call, action))
}

fn location_of(call: &Call<'_>, server: i64) -> Result<String, ApiError> {
    let server = call.state().servers.get(&server);
    let server = server.filter(|server| server.is_alive() && server.project == call.project);
    server.map(|server| server.location.clone()).ok_or_else(|| ApiError::not_found("server"))
}

fn ensure_name_is_free(call: &Call<'_>, name: &str) -> Result<(), ApiError> {
    let mut of_project = call.state().floating_ips.values().filter(|address| address.project == call.project);
    if of_project.any(|address| address.name == name) {
        return Err(ApiError::not_unique(SORT, "name"));
    }
    Ok(())
}

fn json_of(address: &FloatingIp) -> Value {
    json!({
        "id": address.id, "name": address.name, "description": null, "created": address.created,
        "ip": address.ip, "type": "ipv4", "server": address.server, "dns_ptr": [],
        "home_location": Location::named(&address.location).map(Location::json),
        "blocked": false, "labels": address.labels, "protection": {"delete": false},
    })
}
