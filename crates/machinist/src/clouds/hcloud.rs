//! Hetzner Cloud. Its settings are the environment variables that its other programs use.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use machinist_driver::Provider;
use machinist_driver_hcloud::{
    GARDENER_NAME, HcloudOptions, HcloudProvider, Http, OptionsError, PROMISES, TokenSource, validate,
};

use super::cloud::{Cloud, ForMachines, ForNodes, ForUp, Given, NodeCloud, Reader, UpCloud};
use super::hcloud_traffic;
use crate::args::value::go_bool;
use crate::wiring::credential::TokenFrom;
use crate::wrong_flags::WrongFlags;

/// The row of the registry.
pub(super) const CLOUD: Cloud = Cloud {
    name: "hcloud",
    other_names: &[GARDENER_NAME],
    about: "Hetzner Cloud; settings come from HCLOUD_ENDPOINT, HCLOUD_NETWORK and HCLOUD_INSTANCES_*",
    check: validate,
    needs_no_settings: true,
    own_flag: |_| None,
    for_machines,
    for_nodes: Some(NodeCloud {
        about: "Hetzner Cloud",
        balancer_class: "machinist.dev/hcloud",
        annotation_prefix: "load-balancer.hetzner.cloud/",
        open: for_nodes,
    }),
    reader: Reader::Alone(reader),
    up: Some(ForUp {
        which: UpCloud::Hcloud,
        about: "A stand-in for Hetzner Cloud; the cloud controller manager runs too",
        quick_start: include_str!("../../quickstart-hcloud.yaml"),
    }),
};

/// The longest call: a change of a load balancer consists of several requests.
const MAX_CALL: Duration = Duration::from_secs(60);

/// Default address of the plain HTTP server for metrics, as in hcloud-cloud-controller-manager.
const METRICS_ADDRESS: &str = ":8233";
/// The variable whose file is followed while the process runs, and not read once.
const TOKEN_FILE: &str = "HCLOUD_TOKEN_FILE";

fn for_machines(_: &Given<'_>) -> anyhow::Result<ForMachines> {
    let provider = provider(options()?)?.with_machine_ids();
    let traffic = provider.traffic().clone();
    Ok(ForMachines::ready(Arc::new(provider), PROMISES.call_bound, Some(traffic)))
}

fn for_nodes() -> anyhow::Result<ForNodes> {
    let metrics = metrics_address()?;
    let (options, token) = options_and_token()?;
    let (has_routes, has_balancers) = (options.has_routes(), options.balancers_enabled);
    let provider = Arc::new(provider(options)?);
    let (calls, rates) = (provider.traffic().clone(), provider.rates().clone());
    Ok(ForNodes {
        provider,
        token,
        has_routes,
        has_balancers,
        metrics,
        measure: Box::new(move |metrics| hcloud_traffic::measure(metrics, &calls, rates)),
        call_bound: MAX_CALL,
    })
}

/// Only the parsers are used; no request is sent.
fn reader() -> Arc<dyn Provider> {
    Arc::new(HcloudProvider::over(Arc::new(Http::plain()), HcloudOptions::default()))
}

/// Reads the settings without a token, which a machine controller gets from Secrets.
///
/// # Errors
/// All wrong variables together.
fn options() -> anyhow::Result<HcloudOptions> {
    let variables = Variables::read()?;
    HcloudOptions::from_env(|name| variables.get(name)).map_err(wrong)
}

/// Reads the settings and the source of the token.
///
/// # Errors
/// All wrong variables together.
fn options_and_token() -> anyhow::Result<(HcloudOptions, TokenFrom)> {
    let variables = Variables::read()?;
    let (options, token) = HcloudOptions::from_env_with_token(|name| variables.get(name)).map_err(wrong)?;
    let token = match token {
        TokenSource::Token(token) => TokenFrom::Value(token),
        TokenSource::File(path) => TokenFrom::File(path),
    };
    Ok((options, token))
}

/// Reads the address of the plain HTTP server for metrics; absent if it is disabled.
///
/// # Errors
/// If a variable is wrong. The error names it and the expected value.
fn metrics_address() -> anyhow::Result<Option<SocketAddr>> {
    let variables = Variables::read()?;
    let set = |name: &str| variables.get(name).filter(|value| !value.is_empty());
    metrics_address_of(set("HCLOUD_METRICS_ENABLED"), set("HCLOUD_METRICS_ADDRESS"))
}

fn metrics_address_of(
    enabled: Option<String>,
    address: Option<String>,
) -> anyhow::Result<Option<SocketAddr>> {
    let enabled = enabled.as_deref().map_or(Ok(true), go_bool);
    let enabled = enabled.map_err(|error| WrongFlags::new(format!("HCLOUD_METRICS_ENABLED: {error}")))?;
    if !enabled {
        return Ok(None);
    }
    let text = address.as_deref().unwrap_or(METRICS_ADDRESS);
    // Go's form of an address on every interface has no host.
    let with_host = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
    let address = with_host.parse();
    let address = address.map_err(|_| {
        WrongFlags::new("HCLOUD_METRICS_ADDRESS: expected :PORT or IP:PORT, for example :8233")
    })?;
    Ok(Some(address))
}

/// Creates the provider. Nothing is sent.
///
/// # Errors
/// If the system has no root certificates.
fn provider(options: HcloudOptions) -> anyhow::Result<HcloudProvider> {
    HcloudProvider::new(options).context("cannot load the root certificates of this system")
}

fn wrong(error: OptionsError) -> anyhow::Error {
    WrongFlags::new(error.problems.join("\n       ")).into()
}

/// The environment, with the content of each file that a variable `NAME_FILE` names.
struct Variables {
    from_files: BTreeMap<String, String>,
}

impl Variables {
    fn read() -> anyhow::Result<Self> {
        let mut from_files = BTreeMap::new();
        let mut problems = Vec::new();
        for (name, path) in std::env::vars() {
            let Some(of) = name.strip_suffix("_FILE").filter(|of| of.starts_with("HCLOUD_")) else {
                continue;
            };
            if name == TOKEN_FILE || path.is_empty() {
                continue;
            }
            match std::fs::read_to_string(&path) {
                Ok(text) => {
                    from_files.insert(of.to_owned(), text.trim().to_owned());
                }
                Err(error) => problems.push(format!("{name}: cannot read {path}: {error}")),
            }
        }
        if !problems.is_empty() {
            bail!(WrongFlags::new(problems.join("\n       ")));
        }
        Ok(Self { from_files })
    }

    fn get(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().or_else(|| self.from_files.get(name).cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(enabled: &str, address: &str) -> Result<Option<String>, String> {
        let set = |value: &str| Some(value.to_owned()).filter(|value| !value.is_empty());
        let parsed = metrics_address_of(set(enabled), set(address));
        parsed.map(|address| address.map(|address| address.to_string())).map_err(|error| error.to_string())
    }

    #[test]
    fn metrics_have_an_address_unless_disabled() {
        let at = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(address("", ""), at("0.0.0.0:8233"));
        assert_eq!(address("true", ":9000"), at("0.0.0.0:9000"));
        assert_eq!(address("", "127.0.0.1:1"), at("127.0.0.1:1"));
        assert_eq!(address("F", "wrong"), Ok(None));
        for (enabled, given) in [("yes", ""), ("", "8233"), ("", "localhost:8233")] {
            let message = address(enabled, given).expect_err("wrong");
            assert!(message.starts_with("HCLOUD_METRICS_"), "{message}");
        }
    }
}
