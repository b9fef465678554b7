//! The private network of `--cloud-network` in the stand-in.

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Method, Request, header};
use machinist_driver_hcloud::Transport as _;
use machinist_standin_hcloud::Standin;
use serde_json::{Value, json};

use super::in_process::InProcess;
use super::{ENDPOINT, TOKEN};

/// Networks of pods, as many installers choose them. The controllers of `up` give no Node a pod
/// network, so a user sets `spec.podCIDR`.
pub(in crate::cmd::up) const POD_NETWORK: &str = "10.244.0.0/16";
/// The whole network, with addresses for servers and pods, and its subnet for servers.
const RANGES: (&str, &str) = ("10.0.0.0/8", "10.0.0.0/16");
/// Zone of all locations in Germany and Finland.
const ZONE: &str = "eu-central";

/// Creates a network of this name unless there is one. Returns its id, which a class names.
///
/// # Errors
/// If the stand-in rejects the name.
pub(in crate::cmd::up) async fn ensure(standin: &Standin, name: &str) -> anyhow::Result<i64> {
    let all = call(standin, Method::GET, None).await?;
    let networks = all["networks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let known = networks.iter().find(|network| network["name"] == name);
    let known = known.and_then(|network| network["id"].as_i64());
    if let Some(id) = known {
        return Ok(id);
    }
    let (whole, servers) = RANGES;
    let subnet = json!({"type": "cloud", "ip_range": servers, "network_zone": ZONE});
    let network = json!({"name": name, "ip_range": whole, "subnets": [subnet]});
    let created = call(standin, Method::POST, Some(network)).await?;
    created["network"]["id"].as_i64().context("--cloud-network: the stand-in returned no id")
}

async fn call(standin: &Standin, method: Method, body: Option<Value>) -> anyhow::Result<Value> {
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(format!("{ENDPOINT}/networks"))
        .header(header::AUTHORIZATION, format!("Bearer {TOKEN}"))
        .body(Bytes::from(body))?;
    let answer = InProcess(standin.clone()).send(request).await?;
    let is_ok = answer.status().is_success();
    let answer: Value = serde_json::from_slice(answer.body())?;
    if !is_ok {
        let message = answer["error"]["message"].as_str().unwrap_or("the stand-in rejected it");
        bail!("--cloud-network: {message}");
    }
    Ok(answer)
}
