//! POST /servers.

use serde_json::{Value, json};

use super::actions::json_with_id;
use super::body::{IdOrName, RequestBody};
use super::call::{Call, Handled, Reply};
use super::servers::{ensure_name_is_free, is_host_name, json_of};
use crate::addresses::{NoAddress, free_private, free_public_ipv4, public_ipv6};
use crate::books::{NewAction, later};
use crate::catalogue::{IMAGES, Image, LOCATIONS, Location, SERVER_TYPES, ServerType};
use crate::error::ApiError;
use crate::machines;
use crate::model::{
    Effect, HcloudServer, LabelMap, Network, PrivateNet, PublicIp, ResourceRef, ServerStatus,
};
use machinist_instance::UserData;

/// Limit of the API.
const MAX_USER_DATA_BYTES: usize = 32 * 1024;

/// A request whose fields are valid.
struct Wanted {
    name: String,
    server_type: &'static ServerType,
    image: &'static Image,
    location: &'static Location,
    labels: LabelMap,
    user_data: String,
    networks: Vec<i64>,
    ssh_keys: Vec<Value>,
    ipv4: bool,
    ipv6: bool,
    start: bool,
}

pub(super) fn create(call: &mut Call<'_>) -> Handled {
    let wanted = read(call)?;
    ensure_name_is_free(call, &wanted.name)?;
    ensure_available(call, &wanted)?;
    let networks = networks_of(call, &wanted)?;
    let server = new_server(call, &wanted)?;
    let id = server.id;
    // The machine is recorded first. After a crash in between, a machine without a server is
    // removed; a server without its user data could never join.
    machines::record(call.cloud, &server, UserData::new(wanted.user_data.into_bytes()))
        .map_err(|refusal| ApiError::new("service_error", refusal.message))?;
    call.books.store.put_server(server);

    let settings = &call.books.settings;
    let (created_in, started_in) = (settings.create, settings.create + settings.start);
    let this = || vec![ResourceRef::new("server", id)];
    let after_create = if wanted.start { ServerStatus::Starting } else { ServerStatus::Off };
    let create = begin(call, "create_server", this(), created_in, status(id, after_create));
    let mut next = Vec::new();
    for network in networks {
        let net = attachment(call, &network, wanted.location, None)?;
        let resources = vec![ResourceRef::new("server", id), ResourceRef::new("network", network.id)];
        let effect = Effect::AttachServer { server: id, net };
        next.push(begin(call, "attach_to_network", resources, created_in, effect));
    }
    if wanted.start {
        next.push(begin(call, "start_server", this(), started_in, status(id, ServerStatus::Running)));
    }
    let server = &call.state().servers[&id];
    Ok(Reply::created(json!({
        "server": json_of(server, call),
        "action": json_with_id(call, create),
        "next_actions": next.iter().map(|id| json_with_id(call, *id)).collect::<Vec<_>>(),
        // With a key, the API returns no password. Nothing accepts this one.
        "root_password": if wanted.ssh_keys.is_empty() { json!("stand-in") } else { Value::Null },
    })))
}

fn read(call: &Call<'_>) -> Result<Wanted, ApiError> {
    let mut body = call.body()?;
    let name = body.required_text("name");
    if !name.is_empty() && !is_host_name(&name) {
        body.problem("name", "expected a host name (RFC 1123)");
    }
    let server_type = server_type_of(&mut body);
    let image = image_of(&mut body, server_type);
    let location = match body.id_or_name("location") {
        None => Location::named("fsn1"),
        Some(IdOrName::Name(name)) => Location::named(&name),
        Some(IdOrName::Id(id)) => LOCATIONS.iter().find(|candidate| candidate.id == id),
    };
    if location.is_none() {
        body.problem("location", "location does not exist");
    }
    let user_data = body.text("user_data").unwrap_or_default();
    if MAX_USER_DATA_BYTES < user_data.len() {
        body.problem("user_data", format!("expected at most {MAX_USER_DATA_BYTES} bytes"));
    }
    let labels = body.labels("labels").unwrap_or_default();
    let networks = body.ids("networks");
    let ssh_keys = body.list("ssh_keys");
    let (mut ipv4, mut ipv6) = (true, true);
    if let Some(mut public_net) = body.object("public_net") {
        ipv4 = public_net.flag("enable_ipv4").unwrap_or(true);
        ipv6 = public_net.flag("enable_ipv6").unwrap_or(true);
        body.take_problems(public_net);
    }
    let start = body.flag("start_after_create").unwrap_or(true);
    if !ipv4 && !ipv6 && networks.is_empty() {
        body.problem("public_net", "expected a public address or a network");
    }
    body.finish()?;
    let (Some(server_type), Some(image), Some(location)) = (server_type, image, location) else {
        return Err(ApiError::invalid("server_type", "expected a server type, an image and a location"));
    };
    Ok(Wanted {
        name,
        server_type,
        image,
        location,
        labels,
        user_data,
        networks,
        ssh_keys,
        ipv4,
        ipv6,
        start,
    })
}

fn server_type_of(body: &mut RequestBody) -> Option<&'static ServerType> {
    let server_type = match body.id_or_name("server_type") {
        None => {
            body.problem("server_type", "missing data for a required field");
            return None;
        }
        Some(IdOrName::Name(name)) => ServerType::named(&name),
        Some(IdOrName::Id(id)) => SERVER_TYPES.iter().find(|candidate| candidate.id == id),
    };
    if server_type.is_none() {
        body.problem("server_type", "server type does not exist");
    }
    server_type
}

fn image_of(body: &mut RequestBody, server_type: Option<&ServerType>) -> Option<&'static Image> {
    let architecture = server_type.map_or("x86", |server_type| server_type.architecture);
    let image = match body.id_or_name("image") {
        None => {
            body.problem("image", "missing data for a required field");
            return None;
        }
        Some(IdOrName::Name(name)) => Image::named(&name, architecture),
        Some(IdOrName::Id(id)) => {
            IMAGES.iter().find(|candidate| candidate.id == id && candidate.architecture == architecture)
        }
    };
    if image.is_none() {
        body.problem("image", format!("image does not exist for {architecture}"));
    }
    image
}

fn ensure_available(call: &Call<'_>, wanted: &Wanted) -> Result<(), ApiError> {
    let settings = &call.books.settings;
    let alive =
        call.state().servers.values().filter(|server| server.is_alive() && server.project == call.project);
    if settings.server_limit.is_some_and(|limit| limit <= alive.count()) {
        return Err(ApiError::limit("servers", "server limit exceeded"));
    }
    if settings.is_out_of_stock(wanted.server_type.name, wanted.location.name) {
        return Err(ApiError::new("resource_unavailable", "server type is not available in this location"));
    }
    Ok(())
}

/// The networks of the request. Each must have a free address, so that the request has no effect if
/// one does not.
fn networks_of(call: &Call<'_>, wanted: &Wanted) -> Result<Vec<Network>, ApiError> {
    let mut networks = Vec::new();
    for id in &wanted.networks {
        let network = call.state().networks.get(id).filter(|network| network.project == call.project);
        let network = network.ok_or_else(|| ApiError::invalid("networks", "network does not exist"))?;
        attachment(call, network, wanted.location, None)?;
        networks.push(network.clone());
    }
    Ok(networks)
}

/// The attachment of a server to a network, with a free address or the wanted one.
pub(super) fn attachment(
    call: &Call<'_>,
    network: &Network,
    location: &Location,
    wanted: Option<&str>,
) -> Result<PrivateNet, ApiError> {
    let ip = free_private(call.state(), network, location.network_zone, wanted, None).map_err(no_address)?;
    Ok(PrivateNet { network: network.id, mac_address: mac_of(&ip), ip, alias_ips: Vec::new() })
}

pub(super) fn no_address(why: NoAddress) -> ApiError {
    match why {
        NoAddress::NoSubnet => {
            ApiError::new("no_subnet_available", "network has no subnet in this network zone")
        }
        NoAddress::NotAvailable => ApiError::new("ip_not_available", "IP is not available"),
    }
}

/// The hardware address of an interface, from its private address.
fn mac_of(ip: &str) -> String {
    let parts = ip.split('.').filter_map(|part| part.parse::<u8>().ok());
    parts.fold("86:00".to_owned(), |mac, part| format!("{mac}:{part:02x}"))
}

fn new_server(call: &mut Call<'_>, wanted: &Wanted) -> Result<HcloudServer, ApiError> {
    let ipv4 = free_public_ipv4(call.state());
    let seed = call.books.settings.seed;
    let id = call.books.store.next_id(seed);
    let ipv4 = match (wanted.ipv4, ipv4) {
        (false, _) => None,
        (true, Some(ip)) => Some(PublicIp { id: call.books.store.next_id(seed), ip }),
        (true, None) => return Err(ApiError::limit("primary_ips", "no public IPv4 address is free")),
    };
    let ipv6 = wanted.ipv6.then(|| PublicIp { id: call.books.store.next_id(seed), ip: public_ipv6(id) });
    let settings = &call.books.settings;
    Ok(HcloudServer {
        id,
        serial: call.books.store.next_serial(),
        project: call.project.to_owned(),
        name: wanted.name.clone(),
        status: ServerStatus::Initializing,
        created: call.now,
        server_type: wanted.server_type.name.to_owned(),
        image: Some(wanted.image.id),
        location: wanted.location.name.to_owned(),
        labels: wanted.labels.clone(),
        ipv4,
        ipv6,
        private_net: Vec::new(),
        primary_disk_size: wanted.server_type.disk,
        protected: false,
        visible_by_id_at: later(call.now, settings.visible_by_id),
        visible_in_lists_at: later(call.now, settings.visible_in_lists),
        deleted: None,
    })
}

/// The server gets that status, or is off after a failure.
fn status(server: i64, on_success: ServerStatus) -> Effect {
    Effect::ServerStatus { server, on_success, on_error: ServerStatus::Off }
}

fn begin(
    call: &mut Call<'_>,
    command: &str,
    resources: Vec<ResourceRef>,
    takes: std::time::Duration,
    effect: Effect,
) -> i64 {
    let action = NewAction { command, resources, takes, effect };
    call.books.begin(call.project, action, call.now)
}
