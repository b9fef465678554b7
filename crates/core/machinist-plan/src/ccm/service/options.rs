//! The flags of the service controller.

use std::collections::BTreeSet;

/// The flags of the service controller.
#[derive(Debug, Clone)]
pub struct Options {
    /// The value of `spec.loadBalancerClass` that this program serves, in addition to Services
    /// without the field; for example `machinist.dev/hcloud`.
    pub class: String,
    /// The prefix of the annotations with options, with its slash; for example
    /// `load-balancer.hetzner.cloud/`.
    pub prefix: String,
    /// The namespaces whose Services may adopt load balancers by their name; `None` for all.
    pub adopts_in: Option<BTreeSet<String>>,
}

impl Options {
    /// Returns options with that class and prefix. Services of all namespaces may adopt load
    /// balancers.
    pub fn new(class: impl Into<String>, prefix: impl Into<String>) -> Self {
        Self { class: class.into(), prefix: prefix.into(), adopts_in: None }
    }
}
