//! The actions of servers.

use super::actions::begun;
use super::body::{IdOrName, RequestBody};
use super::call::{Call, Handled, MaybeHandled, Reply, found};
use super::server_create::attachment;
use super::servers::existing;
use crate::catalogue::{Location, SERVER_TYPES, ServerType};
use crate::error::ApiError;
use crate::model::{Effect, HcloudServer, ResourceRef, ServerStatus};

type ServerCommand = fn(&mut Call<'_>, &HcloudServer, RequestBody) -> Handled;

pub(super) fn handle(call: &mut Call<'_>, id: &str, command: &str) -> MaybeHandled {
    let begin: ServerCommand = match command {
        "poweron" => |call, server, _| {
            Ok(power(call, server, "start_server", ServerStatus::Starting, ServerStatus::Running))
        },
        "poweroff" => {
            |call, server, _| Ok(power(call, server, "stop_server", server.status, ServerStatus::Off))
        }
        "shutdown" => |call, server, _| {
            Ok(power(call, server, "shutdown_server", ServerStatus::Stopping, ServerStatus::Off))
        },
        "reboot" => |call, server, _| {
            ensure_running(server)?;
            Ok(power(call, server, "reboot_server", ServerStatus::Starting, ServerStatus::Running))
        },
        "reset" => |call, server, _| {
            ensure_running(server)?;
            Ok(power(call, server, "reset_server", ServerStatus::Starting, ServerStatus::Running))
        },
        "attach_to_network" => attach,
        "detach_from_network" => detach,
        "change_type" => change_type,
        "change_protection" => change_protection,
        _ => return None,
    };
    found(begin_on(call, id, begin))
}

fn begin_on(call: &mut Call<'_>, id: &str, begin: ServerCommand) -> Handled {
    let server = existing(call, id)?.clone();
    let body = call.body()?;
    call.books.ensure_idle("server", server.id)?;
    begin(call, &server, body)
}

/// Gives the server a status now, and another one when the action succeeds. A server that already
/// has the second status keeps it.
fn power(
    call: &mut Call<'_>,
    server: &HcloudServer,
    command: &str,
    now: ServerStatus,
    on_success: ServerStatus,
) -> Reply {
    let is_reboot = matches!(command, "reboot_server" | "reset_server");
    let effect = if server.status == on_success && !is_reboot {
        Effect::None
    } else {
        if let Some(stored) = call.books.store.edit_server(server.id) {
            stored.status = now;
        }
        Effect::ServerStatus { server: server.id, on_success, on_error: server.status }
    };
    let action = call.begin(command, vec![ResourceRef::new("server", server.id)], effect);
    begun(call, action)
}

fn ensure_running(server: &HcloudServer) -> Result<(), ApiError> {
    if server.status == ServerStatus::Running {
        return Ok(());
    }
    Err(ApiError::new("server_not_running", "server is not running"))
}

fn attach(call: &mut Call<'_>, server: &HcloudServer, mut body: RequestBody) -> Handled {
    let network = body.required_integer("network");
    let ip = body.text("ip");
    body.finish()?;
    let network = call.state().networks.get(&network).filter(|network| network.project == call.project);
    let network = network.ok_or_else(|| ApiError::not_found("network"))?.clone();
    if server.private_net.iter().any(|net| net.network == network.id) {
        return Err(ApiError::new("server_already_attached", "server is already attached to this network"));
    }
    let location = Location::named(&server.location).ok_or_else(|| ApiError::not_found("location"))?;
    let net = attachment(call, &network, location, ip.as_deref())?;
    let effect = Effect::AttachServer { server: server.id, net };
    let resources = vec![ResourceRef::new("server", server.id), ResourceRef::new("network", network.id)];
    let action = call.begin("attach_to_network", resources, effect);
    Ok(begun(call, action))
}

fn detach(call: &mut Call<'_>, server: &HcloudServer, mut body: RequestBody) -> Handled {
    let network = body.required_integer("network");
    body.finish()?;
    if !server.private_net.iter().any(|net| net.network == network) {
        return Err(ApiError::new(
            "server_not_attached_to_network",
            "server is not attached to this network",
        ));
    }
    let resources = vec![ResourceRef::new("server", server.id), ResourceRef::new("network", network)];
    let effect = Effect::DetachServer { server: server.id, network };
    let action = call.begin("detach_from_network", resources, effect);
    Ok(begun(call, action))
}

fn change_type(call: &mut Call<'_>, server: &HcloudServer, mut body: RequestBody) -> Handled {
    let wanted = body.id_or_name("server_type");
    let is_disk_upgraded = body.flag("upgrade_disk").unwrap_or(false);
    let server_type = match wanted {
        None => None,
        Some(IdOrName::Name(name)) => ServerType::named(&name),
        Some(IdOrName::Id(id)) => SERVER_TYPES.iter().find(|candidate| candidate.id == id),
    };
    let before = ServerType::named(&server.server_type);
    match server_type {
        None => body.problem("server_type", "server type does not exist"),
        Some(wanted) if before.is_some_and(|before| before.architecture != wanted.architecture) => {
            body.problem("server_type", "expected a server type of the same architecture");
        }
        Some(wanted) if wanted.disk < server.primary_disk_size => {
            body.problem("server_type", "expected a server type with a disk of at least the same size");
        }
        Some(_) => {}
    }
    body.finish()?;
    if server.status != ServerStatus::Off {
        return Err(ApiError::new("server_not_stopped", "server must be off to change its type"));
    }
    let Some(server_type) = server_type else { return Err(ApiError::not_found("server_type")) };
    let effect = Effect::ChangeServerType {
        server: server.id,
        server_type: server_type.name.to_owned(),
        disk: is_disk_upgraded.then_some(server_type.disk),
    };
    let resources = vec![ResourceRef::new("server", server.id)];
    let action = call.begin("change_server_type", resources, effect);
    Ok(begun(call, action))
}

fn change_protection(call: &mut Call<'_>, server: &HcloudServer, mut body: RequestBody) -> Handled {
    let protected = body.flag("delete");
    let rebuild = body.flag("rebuild");
    if let (Some(delete), Some(rebuild)) = (protected, rebuild)
        && delete != rebuild
    {
        body.problem("rebuild", "expected the same value as delete");
    }
    body.finish()?;
    let protected = protected.or(rebuild).unwrap_or(server.protected);
    let effect = Effect::ProtectServer { server: server.id, protected };
    let resources = vec![ResourceRef::new("server", server.id)];
    let action = call.begin("change_protection", resources, effect);
    Ok(begun(call, action))
}
