//! The load balancer that a Service wants, as a spec for the driver.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use fnv::FnvHasher;
use machinist_instance::{BalancerSpec, BalancerTarget, BalancerTrace, Listener, ProviderId};
use machinist_labels::Selector;

use super::answers::Inputs;
use super::claims::{self, default_name};
use super::snapshot::Snapshot;
use crate::ccm::backends::Backends;
use crate::ccm::names::NODE_SELECTOR;

/// A load balancer that a Service wants.
pub(super) struct Wanted {
    pub(super) spec: BalancerSpec,
    pub(super) inputs: Inputs,
    /// The targets that are instances of this cloud.
    pub(super) own: Vec<ProviderId>,
    /// Ports that no load balancer can reach, each with the reason.
    pub(super) skipped: Vec<String>,
}

/// Computes the load balancer that a Service wants.
///
/// # Errors
/// If the annotation that selects Nodes cannot be read. The text names the annotation.
pub(super) fn of(s: &Snapshot) -> Result<Wanted, String> {
    selector(s).map(|selector| with(s, |backends| backends.targets(&selector)))
}

/// Computes the load balancer of a Service whose annotation that selects Nodes cannot be read. Its
/// targets follow the Nodes by the last valid annotation. A process that has seen none keeps the
/// targets that the load balancer shows, as long as they are Nodes. If none is left, every Node is
/// a target: a Node without the pods of the Service passes connections on. `None`: nothing is known
/// about the load balancer.
pub(super) fn following(s: &Snapshot) -> Option<Wanted> {
    if let Some(selector) = &s.answers.selector {
        return Some(with(s, |backends| backends.targets(selector)));
    }
    let shown = &s.listed.as_ref()?.balancer.as_ref()?.targets;
    let every = Selector::default();
    let targets = |backends: &Backends| {
        let all = backends.targets(&every);
        let kept: Vec<_> = all.iter().filter(|target| shown.contains(&target.instance)).cloned().collect();
        if kept.is_empty() { all } else { kept }
    };
    Some(with(s, targets))
}

/// Returns the selector of the Nodes.
///
/// # Errors
/// If the annotation cannot be read.
pub(super) fn selector(s: &Snapshot) -> Result<Selector, String> {
    match selector_text(s) {
        None => Ok(Selector::default()),
        Some(text) => {
            text.parse().map_err(|error| format!("annotation {}{NODE_SELECTOR} {error}", s.options.prefix))
        }
    }
}

fn with(s: &Snapshot, targets: impl FnOnce(&Backends) -> Vec<BalancerTarget>) -> Wanted {
    let service = &s.service;
    let mut options = options(s);
    options.remove(NODE_SELECTOR);
    let mut listeners = Vec::new();
    let mut skipped = Vec::new();
    for port in &service.ports {
        match (port.protocol, port.node_port) {
            (Some(protocol), Some(target_port)) => {
                listeners.push(Listener { protocol, port: port.port, target_port });
            }
            (None, _) => skipped.push(format!("port {}: its protocol is unknown", port.port)),
            (Some(_), None) => skipped.push(format!(
                "port {}: it has no node port. Set spec.allocateLoadBalancerNodePorts to true",
                port.port
            )),
        }
    }
    let mut targets = targets(&s.backends);
    let own = targets.iter().map(|target| target.instance.clone()).collect();
    targets.extend(s.backends.foreign_targets());
    let claim = claims::claim(s);
    let inputs = Inputs {
        shape: fingerprint(&(
            service.spec_fingerprint,
            &listeners,
            &options,
            selector_text(s),
            claims::lasting(&claim),
        )),
        targets: fingerprint(&targets),
    };
    let (key, name) = (service.key(), default_name(&service.uid));
    let id = claims::known_balancer(s);
    let spec = BalancerSpec { key, id, native_id: None, name, listeners, targets, options, claim };
    Wanted { spec, inputs, own, skipped }
}

/// Returns the traces of the Service's load balancer, by which a driver recognises it if it lost
/// its label.
pub(super) fn trace(s: &Snapshot) -> BalancerTrace {
    let addresses = s.service.ingress().iter().filter_map(|entry| entry.ip.as_ref()?.parse().ok());
    BalancerTrace { name: default_name(&s.service.uid), options: options(s), addresses: addresses.collect() }
}

/// Returns the options from the annotations with the cloud's prefix.
fn options(s: &Snapshot) -> BTreeMap<String, String> {
    let annotations = s.service.annotations.iter();
    annotations
        .filter_map(|(key, value)| Some((key.strip_prefix(&s.options.prefix)?.to_owned(), value.clone())))
        .filter(|(option, _)| !option.is_empty())
        .collect()
}

fn selector_text(s: &Snapshot) -> Option<&String> {
    s.service.annotations.get(&format!("{}{NODE_SELECTOR}", s.options.prefix))
}

pub(super) fn fingerprint(value: &impl Hash) -> u64 {
    let mut hash = FnvHasher::default();
    value.hash(&mut hash);
    hash.finish()
}
