//! Keeps addresses, labels and the recorded account of an initialised Node as the cloud shows them.
//!
//! The instance comes from the shared list, or from a lookup that was made for another reason. This
//! module asks for no call.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeAddress;
use machinist_instance::{AccountId, Instance};

use super::action::Action;
use super::newest_sighting::NewestSighting;
use super::snapshot::Snapshot;
use super::{emit, ip_mismatch, label_events, trusted_event};
use crate::ccm::{addresses, node_labels};

/// The changes that an initialised Node needs.
#[derive(Debug, Default)]
pub(super) struct Refresh {
    pub(super) addresses: Option<Vec<NodeAddress>>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) account: Option<AccountId>,
    pub(super) events: Vec<Action>,
}

/// Returns the changes that an initialised Node needs.
pub(super) fn needed(s: &Snapshot) -> Refresh {
    let mut refresh = Refresh::default();
    let instance = match s.sight() {
        // Without a provider id, another instance may have taken the name.
        NewestSighting::Present { instance, .. } if s.recorded.ours().is_some() => Some(instance),
        NewestSighting::Present { .. }
        | NewestSighting::Foreign { .. }
        | NewestSighting::Absent { .. }
        | NewestSighting::NotListed { .. }
        | NewestSighting::Failed { .. }
        | NewestSighting::Unknown => None,
    };
    match instance {
        Some(instance) if s.options.follows_labels => {
            let changes = node_labels::from_instance(s.node.labels.as_ref(), instance);
            refresh.labels = changes.set;
            refresh.events.extend(label_events(s, &changes.refused));
            // A label that the cloud does not know may still have an older twin.
            let known = [&instance.instance_type, &instance.zone, &instance.region];
            if known.into_iter().any(Option::is_none) {
                let beta = node_labels::from_beta(s.node.labels.as_ref());
                let unknown = beta.into_iter().filter(|(key, _)| !is_known(instance, key));
                refresh.labels.extend(unknown);
            }
        }
        Some(_) | None => refresh.labels = node_labels::from_beta(s.node.labels.as_ref()),
    }
    if let Some(instance) = instance {
        refresh.account = s.account_to_record();
        refresh_addresses(s, instance, &mut refresh);
    }
    refresh
}

/// Whether the cloud knows the value of a label.
fn is_known(instance: &Instance, key: &str) -> bool {
    node_labels::from_instance(None, instance).set.contains_key(key)
}

fn refresh_addresses(s: &Snapshot, instance: &Instance, refresh: &mut Refresh) {
    let node = &s.node;
    let desired =
        addresses::of_node(&instance.addresses, node.addresses(), node.provided_ips(), &s.options.trusted);
    match desired {
        Ok(desired) => {
            refresh.events.extend(trusted_event(s, &desired.trusted));
            let differs = !desired.addresses.is_empty() && desired.addresses != node.addresses();
            refresh.addresses = differs.then_some(desired.addresses);
        }
        Err(error) => refresh.events.extend(emit(s, ip_mismatch(&error).0)),
    }
}
