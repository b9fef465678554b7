//! OpenStack: servers of Nova. The Secret of a class has the URL and the login, and the class has
//! the region.

use std::sync::Arc;

use machinist_driver::Provider;
use machinist_driver_openstack::{OpenStackOptions, OpenStackProvider, PROMISES, validate};

use super::cloud::{Cloud, ForMachines, Given, Reader};

/// The row of the registry.
pub(super) const CLOUD: Cloud = Cloud {
    name: "openstack",
    other_names: &["OpenStack"],
    about: "OpenStack; the region of calls without a class comes from OS_REGION_NAME",
    check: validate,
    needs_no_settings: true,
    own_flag: |_| None,
    for_machines,
    for_nodes: None,
    reader: Reader::Alone(reader),
    up: None,
};

fn for_machines(_: &Given<'_>) -> anyhow::Result<ForMachines> {
    let options = OpenStackOptions::from_env(|name| std::env::var(name).ok());
    let provider = OpenStackProvider::new(options);
    let traffic = provider.traffic().clone();
    Ok(ForMachines::ready(Arc::new(provider), PROMISES.call_bound, Some(traffic)))
}

/// Only the parsers are used; no request is sent.
fn reader() -> Arc<dyn Provider> {
    Arc::new(OpenStackProvider::new(OpenStackOptions::default()))
}
