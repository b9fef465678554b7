//! Converts the engine's containers into instances. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use machinist_instance::{
    Address, AddressKind, Error, ErrorKind, Foreign, Instance, InstanceKey, InstanceRef, NativeId, NodeName,
    Power, Sighting,
};

use crate::label::{self, Labels};
use crate::model::{Container, Endpoint, Summary};
use crate::{id, model};

/// The id that the caller recorded for its container, and the Kubernetes cluster of its object.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Recorded<'a> {
    pub(crate) id: Option<&'a NativeId>,
    /// If present, the id counts only for a container whose labels name this cluster.
    pub(crate) cluster: Option<&'a str>,
}

impl<'a> From<&'a InstanceRef> for Recorded<'a> {
    fn from(which: &'a InstanceRef) -> Self {
        Self { id: which.native_id.as_ref(), cluster: which.cluster.as_deref() }
    }
}

/// A container, from the list or from its details.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) id: String,
    pub(crate) name: String,
    /// The engine's word, for example `running`.
    pub(crate) status: String,
    pub(crate) labels: Labels,
    /// The name of the container's own network.
    pub(crate) network: String,
    pub(crate) networks: BTreeMap<String, Endpoint>,
    pub(crate) created: Timestamp,
}

impl From<Container> for Seen {
    fn from(container: Container) -> Self {
        // Lists show whole seconds.
        let created: Option<Timestamp> = container.created.parse().ok();
        Self {
            id: container.id,
            name: container.name.trim_start_matches('/').to_owned(),
            status: container.state.status,
            labels: container.config.labels,
            network: container.host_config.network_mode,
            networks: container.network_settings.networks,
            created: at(created.map_or(0, |created| created.as_second())),
        }
    }
}

impl From<Summary> for Seen {
    fn from(summary: Summary) -> Self {
        // A container has further names if others link to it. Those have a second slash.
        let own =
            summary.names.iter().map(|name| name.trim_start_matches('/')).find(|name| !name.contains('/'));
        Self {
            name: own.unwrap_or_default().to_owned(),
            id: summary.id,
            status: summary.state,
            labels: summary.labels,
            network: summary.host_config.network_mode,
            networks: summary.network_settings.networks,
            created: at(summary.created),
        }
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or(Timestamp::UNIX_EPOCH)
}

impl Seen {
    pub(crate) fn key(&self) -> Option<&str> {
        label::get(&self.labels, label::OWNER)
    }

    /// Whether the container belongs to the caller: by its key, or because the caller recorded its
    /// id and the labels of the container do not contradict that.
    pub(crate) fn is_owned_by(&self, key: &str, recorded: Recorded<'_>) -> bool {
        self.key() == Some(key) || self.is_recorded(recorded)
    }

    fn is_recorded(&self, recorded: Recorded<'_>) -> bool {
        recorded.id.is_some_and(|id| id.as_str() == self.id) && self.may_be_of(recorded.cluster)
    }

    /// Whether the container may belong to an object of that cluster. Users write the objects, and
    /// only programs with access to the engine write labels.
    fn may_be_of(&self, cluster: Option<&str>) -> bool {
        let names = |label: &str, cluster: &str| label::get(&self.labels, label) == Some(cluster);
        cluster.is_none_or(|cluster| names(label::KIND_CLUSTER, cluster) || names(label::CLUSTER, cluster))
    }

    /// Whether the engine is removing the container.
    pub(crate) fn is_deleting(&self) -> bool {
        self.status == "removing"
    }

    pub(crate) fn is_running(&self) -> bool {
        self.status == "running"
    }

    /// The addresses in the container's own network: IPv4, then IPv6. Empty if it does not run.
    pub(crate) fn ips(&self) -> Vec<IpAddr> {
        let mut endpoints = self.networks.values();
        let endpoint = match (self.networks.get(&self.network), endpoints.next(), endpoints.next()) {
            (Some(own), _, _) => own,
            // Old engines show the id of the network, and an ordinary container has one network.
            (None, Some(only), None) => only,
            (None, _, _) => return Vec::new(),
        };
        let texts = [&endpoint.ip_address, &endpoint.global_ipv6_address];
        texts.into_iter().filter_map(|text| text.parse().ok()).collect()
    }
}

/// # Errors
/// `Bug` if the container has no name, which the engine excludes.
pub(crate) fn instance(seen: Seen) -> Result<Instance, Error> {
    let name = NodeName::new(seen.name.clone())
        .ok_or_else(|| Error::new(ErrorKind::Bug, format!("container {} has no name", seen.id)))?;
    let mut addresses = vec![Address { kind: AddressKind::Hostname, address: seen.name.clone() }];
    for ip in seen.ips() {
        let shown = |kind| Address { kind, address: ip.to_string() };
        addresses.extend([shown(AddressKind::InternalIP), shown(AddressKind::ExternalIP)]);
    }
    let key = seen.key().map(InstanceKey::new);
    let zone = label::get(&seen.labels, label::FAILURE_DOMAIN).map(str::to_owned);
    let mut tags = seen.labels;
    tags.remove(label::OWNER);
    let cluster = tags.remove(label::CLUSTER);
    Ok(Instance {
        id: id::of(&seen.name),
        native_id: NativeId::new(seen.id),
        key,
        cluster,
        name,
        power: power(&seen.status),
        addresses,
        instance_type: None,
        zone,
        region: None,
        tags,
        node_labels: BTreeMap::new(),
        created: seen.created,
    })
}

/// Converts a search result. A container with another key is foreign, unless the caller recorded
/// its id and the container's labels name the caller's cluster. A container without a key counts
/// for a caller with a key only if the caller recorded its engine id, or without one its provider
/// id, again with labels of the caller's cluster. The driver creates no container without a key and
/// cannot add one later, so a container that only has the name belongs to another program. It is
/// foreign if that program created it for a cluster with such names, and otherwise absent. The
/// driver would never delete it either.
///
/// A foreign container of a control plane names no installation. Otherwise a caller could take it
/// for the instance of its own restored object, because a user recorded its id.
///
/// # Errors
/// As [`instance`].
pub(crate) fn sighting(which: &InstanceRef, found: Option<Seen>) -> Result<Sighting, Error> {
    let Some(seen) = found else { return Ok(Sighting::Absent) };
    let foreign = || Foreign {
        id: id::of(&seen.name),
        key: seen.key().map(InstanceKey::new),
        cluster: label::get(&seen.labels, label::CLUSTER)
            .filter(|_| !label::is_of_control_plane(&seen.labels))
            .map(str::to_owned),
        created: seen.created,
    };
    match (&which.key, seen.key()) {
        (Some(asked), Some(_)) if !seen.is_owned_by(asked.as_str(), which.into()) => {
            Ok(Sighting::Foreign(foreign()))
        }
        (_, None) if !counts_without_key(which, &seen) => {
            let is_foreign = is_named_by_its_cluster(&seen);
            Ok(if is_foreign { Sighting::Foreign(foreign()) } else { Sighting::Absent })
        }
        _ => Ok(Sighting::Present(instance(seen)?)),
    }
}

fn counts_without_key(which: &InstanceRef, seen: &Seen) -> bool {
    match &which.native_id {
        Some(_) => seen.is_recorded(which.into()),
        // A caller without a key asks for any container of the name.
        None => (which.id.is_some() || which.key.is_none()) && seen.may_be_of(which.cluster.as_deref()),
    }
}

/// Whether a container has the label and the name that Cluster API's provider gives to a machine of
/// a cluster.
fn is_named_by_its_cluster(seen: &Seen) -> bool {
    let cluster = label::get(&seen.labels, label::KIND_CLUSTER);
    cluster.is_some_and(|cluster| seen.name.starts_with(cluster))
}

fn power(status: &str) -> Power {
    match status {
        "created" => Power::Pending,
        "running" => Power::Running,
        "exited" | "dead" => Power::Stopped,
        "removing" => Power::Deleting,
        // Paused and restarting containers continue later.
        _ => Power::Changing,
    }
}

/// The published port of a container.
pub(crate) fn host_port(settings: &model::NetworkSettings, port: u16) -> Option<u16> {
    let bindings = settings.ports.get(&format!("{port}/tcp"))?.as_ref()?;
    bindings.iter().find_map(|binding| binding.host_port.parse().ok())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn seen(changes: &[(&str, Value)]) -> Seen {
        let mut container = json!({
            "Id": "4f53cda18c2b", "Name": "/c1-w-1", "Created": "2026-01-02T03:04:05.678901234Z",
            "State": {"Status": "running", "ExitCode": 0}, "Config": {"Image": "i", "Labels": {
                "machinist.dev/owner-uid": "uid-1", "machinist.dev/cluster": "default",
                "io.x-k8s.cluster.failureDomain": "fd1"}},
            "HostConfig": {"NetworkMode": "kind"}, "NetworkSettings": {"Networks": {
                "another": {"IPAddress": "10.1.0.9", "GlobalIPv6Address": ""},
                "kind": {"IPAddress": "172.18.0.3", "GlobalIPv6Address": "fc00::3"}}, "Ports": null},
        });
        for (path, value) in changes {
            *container.pointer_mut(path).expect(path) = value.clone();
        }
        let container: Container = serde_json::from_value(container).expect("a container");
        container.into()
    }

    fn addresses(seen: Seen) -> Vec<String> {
        let instance = instance(seen).expect("a name");
        instance.addresses.iter().map(|address| format!("{:?} {}", address.kind, address.address)).collect()
    }

    #[test]
    fn a_container_is_mapped_to_an_instance() {
        let instance = instance(seen(&[])).expect("a name");
        assert_eq!(instance.id.as_str(), "docker:////c1-w-1");
        assert_eq!(instance.native_id, NativeId::new("4f53cda18c2b"));
        assert_eq!(
            (instance.key, instance.cluster),
            (Some(InstanceKey::new("uid-1")), Some("default".into()))
        );
        assert_eq!((instance.power, instance.zone.as_deref()), (Power::Running, Some("fd1")));
        assert_eq!(instance.created.to_string(), "2026-01-02T03:04:05Z");
    }

    #[test]
    fn addresses_come_from_the_own_network() {
        let both =
            ["InternalIP 172.18.0.3", "ExternalIP 172.18.0.3", "InternalIP fc00::3", "ExternalIP fc00::3"];
        assert_eq!(addresses(seen(&[])), [&["Hostname c1-w-1"][..], &both].concat());
        let stopped = seen(&[("/NetworkSettings/Networks/kind", json!({"IPAddress": ""}))]);
        assert_eq!(addresses(stopped), ["Hostname c1-w-1"]);
        assert_eq!(addresses(seen(&[("/NetworkSettings/Networks", Value::Null)])), ["Hostname c1-w-1"]);
        let only = json!({"x": {"IPAddress": "10.0.0.2"}});
        let only = addresses(seen(&[("/NetworkSettings/Networks", only)]));
        assert_eq!(only, ["Hostname c1-w-1", "InternalIP 10.0.0.2", "ExternalIP 10.0.0.2"]);
    }

    #[test]
    fn only_the_recorded_id_proves_ownership_of_another_key() {
        let which = |key: &str, native: &str| InstanceRef {
            key: Some(InstanceKey::new(key)),
            native_id: NativeId::new(native),
            ..InstanceRef::default()
        };
        let found = |which: InstanceRef| sighting(&which, Some(seen(&[]))).expect("a name");
        assert!(matches!(found(which("uid-1", "")), Sighting::Present(_)));
        assert!(matches!(found(which("uid-2", "4f53cda18c2b")), Sighting::Present(_)));
        let foreign = Foreign {
            id: id::of("c1-w-1"),
            key: Some(InstanceKey::new("uid-1")),
            cluster: Some("default".to_owned()),
            created: seen(&[]).created,
        };
        assert_eq!(found(which("uid-2", "another")), Sighting::Foreign(foreign.clone()));
        assert_eq!(found(which("uid-2", "")), Sighting::Foreign(foreign));
        assert_eq!(sighting(&which("uid-2", ""), None), Ok(Sighting::Absent));
    }

    #[test]
    fn a_foreign_control_plane_names_no_installation() {
        let which = InstanceRef { key: Some(InstanceKey::new("uid-2")), ..InstanceRef::default() };
        let labels = |role: &str| {
            json!({
                "machinist.dev/owner-uid": "uid-1", "machinist.dev/cluster": "default",
                "io.x-k8s.kind.role": role,
            })
        };
        let cluster = |role: &str| match sighting(&which, Some(seen(&[("/Config/Labels", labels(role))]))) {
            Ok(Sighting::Foreign(foreign)) => foreign.cluster,
            other => panic!("{other:?}"),
        };
        assert_eq!(cluster("worker"), Some("default".to_owned()));
        assert_eq!(cluster("control-plane"), None);
    }

    #[test]
    fn a_container_without_a_key_needs_the_recorded_id() {
        let found = |id: Option<&str>, native: &str| {
            let plain = seen(&[("/Config/Labels", json!({}))]);
            let which = InstanceRef {
                key: Some(InstanceKey::new("uid-1")),
                id: id.map(id::of),
                native_id: NativeId::new(native),
                name: NodeName::new("c1-w-1"),
                cluster: None,
                ..InstanceRef::default()
            };
            sighting(&which, Some(plain)).expect("a name")
        };
        assert!(matches!(found(Some("c1-w-1"), ""), Sighting::Present(_)));
        assert!(matches!(found(None, "4f53cda18c2b"), Sighting::Present(_)));
        assert_eq!(found(Some("c1-w-1"), "another"), Sighting::Absent);
        assert_eq!(found(None, ""), Sighting::Absent, "only the name is equal");
        let by_name = InstanceRef { name: NodeName::new("c1-w-1"), ..InstanceRef::default() };
        let plain = seen(&[("/Config/Labels", json!({}))]);
        assert!(matches!(sighting(&by_name, Some(plain)), Ok(Sighting::Present(_))), "the caller has no key");
    }

    #[test]
    fn a_recorded_id_counts_only_for_a_container_of_the_cluster() {
        let found = |labels: Value, id: Option<&str>, native: &str, cluster: &str| {
            let which = InstanceRef {
                key: Some(InstanceKey::new("uid-2")),
                id: id.map(id::of),
                native_id: NativeId::new(native),
                cluster: Some(cluster.to_owned()),
                ..InstanceRef::default()
            };
            sighting(&which, Some(seen(&[("/Config/Labels", labels)]))).expect("a name")
        };
        let ours = || json!({"machinist.dev/owner-uid": "uid-1", "machinist.dev/cluster": "c1"});
        let upstream = || json!({"io.x-k8s.kind.cluster": "c1"});
        for labels in [ours(), upstream()] {
            assert!(matches!(found(labels.clone(), None, "4f53cda18c2b", "c1"), Sighting::Present(_)));
            for cluster in ["c2", ""] {
                let found = found(labels.clone(), None, "4f53cda18c2b", cluster);
                assert!(!matches!(found, Sighting::Present(_)), "{labels} of {cluster:?}: {found:?}");
            }
        }
        assert!(matches!(found(upstream(), Some("c1-w-1"), "", "c1"), Sighting::Present(_)));
        // A database of the host, whose name a user wrote into `spec.providerID`.
        assert_eq!(found(json!({}), Some("c1-w-1"), "", "c1"), Sighting::Absent);
        assert_eq!(found(json!({}), Some("c1-w-1"), "4f53cda18c2b", "c1"), Sighting::Absent);
    }

    #[test]
    fn a_container_of_another_provider_is_foreign_and_not_absent() {
        let found = |cluster: &str, native: &str| {
            let theirs = seen(&[("/Config/Labels", json!({"io.x-k8s.kind.cluster": cluster}))]);
            let which = InstanceRef {
                key: Some(InstanceKey::new("uid-1")),
                native_id: NativeId::new(native),
                name: NodeName::new("c1-w-1"),
                ..InstanceRef::default()
            };
            sighting(&which, Some(theirs)).expect("a name")
        };
        assert!(matches!(found("c1", ""), Sighting::Foreign(Foreign { key: None, .. })));
        assert!(matches!(found("c1", "another"), Sighting::Foreign(_)), "another id is recorded");
        assert!(matches!(found("c1", "4f53cda18c2b"), Sighting::Present(_)));
        assert_eq!(found("c2", ""), Sighting::Absent, "a cluster of other names");
    }

    #[test]
    fn every_state_of_the_engine_has_a_power() {
        let cases = [
            ("created", Power::Pending),
            ("running", Power::Running),
            ("paused", Power::Changing),
            ("restarting", Power::Changing),
            ("exited", Power::Stopped),
            ("dead", Power::Stopped),
            ("removing", Power::Deleting),
            ("a new state", Power::Changing),
        ];
        for (status, expected) in cases {
            assert_eq!(power(status), expected, "{status}");
        }
    }

    #[test]
    fn a_list_entry_is_read_like_the_details() {
        let summary = json!({
            "Id": "4f53cda18c2b", "Names": ["/other/link", "/c1-w-1"], "Created": 1_767_323_045, "State": "running",
            "Labels": {"machinist.dev/owner-uid": "uid-1"}, "HostConfig": {"NetworkMode": "kind"},
            "NetworkSettings": {"Networks": {"kind": {"IPAddress": "172.18.0.3"}}},
        });
        let summary: Summary = serde_json::from_value(summary).expect("a summary");
        let instance = instance(summary.into()).expect("a name");
        assert_eq!(
            (instance.name.as_str(), instance.created.to_string().as_str()),
            ("c1-w-1", "2026-01-02T03:04:05Z")
        );
        assert_eq!(instance.addresses.len(), 3);
    }
}
