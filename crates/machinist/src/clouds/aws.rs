//! AWS: instances of EC2. Its settings are environment variables; where AWS has a variable, it is
//! the variable of AWS.

use std::sync::Arc;

use machinist_driver::Provider;
use machinist_driver_aws::{AwsOptions, AwsProvider, Http, PROMISES, validate};

use super::cloud::{Cloud, ForMachines, Given, Reader};
use crate::wrong_flags::WrongFlags;

/// The row of the registry.
pub(super) const CLOUD: Cloud = Cloud {
    name: "aws",
    other_names: &["AWS"],
    about: "AWS EC2; settings come from AWS_ENDPOINT_URL* and MACHINIST_AWS_*",
    check: validate,
    needs_no_settings: true,
    own_flag: |_| None,
    for_machines,
    for_nodes: None,
    reader: Reader::Alone(reader),
    up: None,
};

fn for_machines(_: &Given<'_>) -> anyhow::Result<ForMachines> {
    let options = AwsOptions::from_env(|name| std::env::var(name).ok());
    let options = options.map_err(|error| WrongFlags::new(error.to_string()))?;
    let provider = AwsProvider::new(options)?;
    let traffic = provider.traffic().clone();
    Ok(ForMachines::ready(Arc::new(provider), PROMISES.call_bound, Some(traffic)))
}

/// Only the parsers are used; no request is sent.
fn reader() -> Arc<dyn Provider> {
    Arc::new(AwsProvider::over(Arc::new(Http::plain()), AwsOptions::default()))
}
