//! OpenStack: servers of Nova. The Secret of a class has the URL and the login, and the class has
//! the region.

use std::sync::Arc;

use machinist_driver_openstack::{OpenStackOptions, OpenStackProvider, PROMISES, validate};

use super::{Cloud, ForExplanations, ForMachines, Given};

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
    parser: Some(|| for_explanations().provider),
    for_explanations: || Box::pin(std::future::ready(for_explanations())),
    up: None,
};

fn for_machines(_: &Given<'_>) -> anyhow::Result<ForMachines> {
    let options = OpenStackOptions::from_env(|name| std::env::var(name).ok());
    Ok(ForMachines::ready(Arc::new(OpenStackProvider::new(options)), PROMISES.call_bound))
}

/// Only the parsers are used; no request is sent.
fn for_explanations() -> ForExplanations {
    let provider = OpenStackProvider::new(OpenStackOptions::default());
    ForExplanations { provider: Arc::new(provider), silent: None }
}
