//! The API: finds the handler of a request. Each file handles one sort of object.

mod actions;
mod balancer_actions;
mod balancer_services;
mod balancer_targets;
mod balancers;
mod body;
mod call;
mod certificates;
mod fixed;
mod floating_ips;
mod list;
mod networks;
mod query;
mod routes;
mod server_actions;
mod server_create;
mod servers;
mod ssh_keys;

use http::Method;

pub(crate) use self::call::{Call, Failure, Reply};
pub(crate) use self::query::Query;
use crate::error::ApiError;

/// Handles a request that is authorized.
pub(crate) fn handle(call: &mut Call<'_>, method: &Method, segments: &[&str]) -> Result<Reply, Failure> {
    if segments.first() == Some(&"datacenters") {
        return Err(ApiError::new(
            "deprecated_api_endpoint",
            "the datacenters endpoints were removed; use locations",
        )
        .into());
    }
    let Some(segments) = known(segments) else { return Err(Failure::NoSuchPath) };
    let handled = match (method.as_str(), segments.as_slice()) {
        (method, ["servers", rest @ ..]) => servers::handle(call, method, rest),
        (method, ["networks", rest @ ..]) => networks::handle(call, method, rest),
        (method, ["load_balancers", rest @ ..]) => balancers::handle(call, method, rest),
        (method, ["certificates", rest @ ..]) => certificates::handle(call, method, rest),
        (method, ["ssh_keys", rest @ ..]) => ssh_keys::handle(call, method, rest),
        (method, ["floating_ips", rest @ ..]) => floating_ips::handle(call, method, rest),
        (method, ["actions", rest @ ..]) => actions::handle(call, method, rest),
        (method, rest) => fixed::handle(call, method, rest),
    };
    handled.unwrap_or(Err(Failure::NoSuchPath))
}

/// The path, if its first segment is a sort of object.
fn known<'a>(segments: &[&'a str]) -> Option<Vec<&'a str>> {
    let first = segments.first()?;
    let sorts = [
        "servers",
        "networks",
        "load_balancers",
        "certificates",
        "ssh_keys",
        "floating_ips",
        "actions",
        "locations",
        "server_types",
        "images",
        "load_balancer_types",
    ];
    sorts.contains(first).then(|| segments.to_vec())
}
