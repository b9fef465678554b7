//! Converts servers, ports and volumes as the cloud shows them. Pure functions.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use machinist_instance::{
    Address, AddressKind, Error, ErrorKind, Instance, InstanceKey, Marks, NodeName, Power,
};

use crate::client::failure::{says_exhausted, shown};
use crate::id;
use crate::model::{Port, Server, Volume};
use crate::request::description;
use crate::tag::{self, CLUSTER, KEY, Metadata};

/// Converts a server that exists.
///
/// # Errors
/// `Bug` if the server has no name or no id, which the API excludes.
pub(crate) fn instance(
    region: &str,
    server: Server,
    flavors: &BTreeMap<String, String>,
) -> Result<Instance, Error> {
    let name = NodeName::new(server.name.clone())
        .ok_or_else(|| Error::new(ErrorKind::Bug, "the cloud returned a server without a name"))?;
    let power = power(&server);
    let addresses = addresses(&server);
    let flavor = server.flavor.and_then(|flavor| flavor.id);
    let flavor = flavors.iter().find(|(_, id)| Some(*id) == flavor.as_ref());
    let mut tags = server.metadata;
    let key = tags.remove(KEY).filter(|key| !key.is_empty());
    let cluster = tags.remove(CLUSTER);
    Ok(Instance {
        id: id::of(region, &server.id)?,
        native_id: None,
        key: key.map(InstanceKey::new),
        cluster,
        name,
        power,
        addresses,
        instance_type: flavor.map(|(name, _)| name.clone()),
        zone: server.zone.filter(|zone| !zone.is_empty()),
        region: Some(region.to_owned()),
        tags: tags.into_iter().map(|(name, value)| (tag::tag_of(&name), value)).collect(),
        node_labels: BTreeMap::new(),
        created: server.created,
    })
}

/// The key of a server.
pub(crate) fn key(server: &Server) -> Option<&str> {
    server.metadata.get(KEY).map(String::as_str).filter(|key| !key.is_empty())
}

pub(crate) fn is_of_key(server: &Server, asked: &InstanceKey) -> bool {
    key(server) == Some(asked.as_str())
}

/// The marks of Gardener's provider on a server, for a class with these tags.
pub(crate) fn marks(server: &Server, of_class: &Metadata) -> Marks {
    tag::marks(server.metadata.keys().map(String::as_str), of_class)
}

/// Whether Nova still shows a server that no longer exists.
pub(crate) fn is_absent(server: &Server) -> bool {
    server.status == "DELETED"
}

pub(crate) fn is_deleting(server: &Server) -> bool {
    power(server) == Power::Deleting
}

pub(crate) fn power(server: &Server) -> Power {
    if server.task_state.as_deref().is_some_and(|task| matches!(task, "deleting" | "soft-deleting")) {
        return Power::Deleting;
    }
    match server.status.as_str() {
        "BUILD" => Power::Pending,
        "ACTIVE" => Power::Running,
        "SHUTOFF" | "PAUSED" | "SUSPENDED" | "SHELVED" | "SHELVED_OFFLOADED" => Power::Stopped,
        "ERROR" => Power::Failed,
        "SOFT_DELETED" | "DELETED" => Power::Deleting,
        // Restarts, migrations, resizes, rescues, and states of a newer API.
        _ => Power::Changing,
    }
}

/// The error of a server that Nova has given up. Another server may start on another host, so only
/// the fault says whether the stock is used up.
pub(crate) fn failed(server: &Server) -> Error {
    let fault = server.fault.as_ref().map(|fault| shown(&fault.message)).filter(|text| !text.is_empty());
    let text = fault.unwrap_or("Nova names no fault");
    let kind = if says_exhausted(text) { ErrorKind::Exhausted } else { ErrorKind::Unavailable };
    Error::instance_failed(kind, format!("server {} is in the state ERROR: {text}", server.id))
}

/// Chooses from the servers that a search found: a server with the key comes first, then a server
/// with marks of Gardener's provider and without a key, then a server that is not in the state
/// `ERROR`, then the oldest.
pub(crate) fn choose(found: Vec<Server>, asked: Option<&InstanceKey>) -> Option<Server> {
    let order = |server: &Server| {
        let has_key = asked.is_some_and(|asked| is_of_key(server, asked));
        let is_of_go = key(server).is_none() && marks(server, &Metadata::new()) != Marks::Missing;
        let evidence = (has_key, is_of_go, power(server) != Power::Failed);
        (Reverse(evidence), server.created, server.id.clone())
    };
    found.into_iter().min_by_key(order)
}

/// The addresses in the order of the cloud controller manager of OpenStack: addresses of ports,
/// then floating addresses, then the host name.
fn addresses(server: &Server) -> Vec<Address> {
    let all = || server.addresses.values().flatten();
    let is_floating = |sort: Option<&str>| sort == Some("floating");
    let of = |floating: bool, kind: AddressKind| {
        let found = all().filter(move |address| is_floating(address.sort.as_deref()) == floating);
        found.map(move |address| Address { kind, address: address.addr.clone() })
    };
    let host = Address { kind: AddressKind::Hostname, address: server.name.clone() };
    of(false, AddressKind::InternalIP).chain(of(true, AddressKind::ExternalIP)).chain([host]).collect()
}

/// Whether a port belongs to a key: by its tag, or by its description while it has no such tag.
pub(crate) fn is_port_of(port: &Port, asked: &InstanceKey) -> bool {
    if port.tags.iter().any(|tag| tag::is_key(tag)) {
        return port.tags.contains(&tag::of_key(asked));
    }
    port.description.as_deref() == Some(description(asked).as_str())
}

/// Whether a port belongs to any key.
pub(crate) fn has_key(port: &Port) -> bool {
    let in_description = port.description.as_deref().is_some_and(tag::is_key);
    in_description || port.tags.iter().any(|tag| tag::is_key(tag))
}

/// Whether Gardener's provider made a port of that name, and no driver of this project.
pub(crate) fn is_port_of_go(port: &Port, name: &str) -> bool {
    port.name == name && !has_key(port) && tag::has_marks(port.tags.iter().map(String::as_str))
}

pub(crate) fn is_volume_of(volume: &Volume, asked: &InstanceKey) -> bool {
    volume.metadata.get(KEY).map(String::as_str) == Some(asked.as_str())
}

/// Whether Gardener's provider made a volume of that name, and no driver of this project.
pub(crate) fn is_volume_of_go(volume: &Volume, name: &str) -> bool {
    volume.name.as_deref() == Some(name)
        && !volume.metadata.contains_key(KEY)
        && tag::has_marks(volume.metadata.keys().map(String::as_str))
}

/// When Cinder accepted the creation of a volume. Cinder writes UTC without a zone.
pub(crate) fn volume_created(volume: &Volume) -> Option<Timestamp> {
    let text = volume.created_at.as_deref()?;
    let utc = || text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok().map(|time| time.timestamp());
    text.parse().ok().or_else(utc)
}

/// The server to which a volume is attached, or will be.
pub(crate) fn user_of(volume: &Volume) -> Option<&str> {
    let servers = volume.attachments.iter().map(|attachment| attachment.server_id.as_str());
    servers.into_iter().find(|server| !server.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const SERVER: &str = "5d8d6bd5-3c39-4bcb-a4c5-0a4c7a8f0001";

    fn server(changes: Value) -> Server {
        let mut server = json!({
            "id": SERVER, "name": "w-1", "status": "ACTIVE", "created": "2026-11-24T12:13:38Z",
            "metadata": {
                "machinist.dev-key": "uid-1", "machinist.dev-cluster": "default",
                "machinist.dev-namespace-uid": "n1", "kubernetes.io-role-node": "1",
            },
            "addresses": {"net": [
                {"addr": "10.0.0.5", "version": 4, "OS-EXT-IPS:type": "fixed"},
                {"addr": "203.0.113.5", "version": 4, "OS-EXT-IPS:type": "floating"},
            ]},
            "flavor": {"id": "f1"}, "OS-EXT-AZ:availability_zone": "az1",
        });
        for (name, value) in changes.as_object().expect("an object") {
            server[name] = value.clone();
        }
        serde_json::from_value(server).expect("a server")
    }

    #[test]
    fn a_server_becomes_an_instance() {
        let flavors = BTreeMap::from([("m1.large".to_owned(), "f1".to_owned())]);
        let instance = instance("eu", server(json!({})), &flavors).expect("an instance");
        assert_eq!(instance.id.as_str(), format!("openstack:///eu/{SERVER}"));
        assert_eq!(instance.key, Some(InstanceKey::new("uid-1")));
        assert_eq!(instance.cluster.as_deref(), Some("default"));
        assert_eq!(instance.tags["machinist.dev/namespace-uid"], "n1");
        assert_eq!(instance.tags["kubernetes.io-role-node"], "1");
        assert_eq!(
            (instance.zone.as_deref(), instance.instance_type.as_deref()),
            (Some("az1"), Some("m1.large"))
        );
        let addresses: Vec<_> =
            instance.addresses.iter().map(|address| (address.kind, address.address.as_str())).collect();
        let expected = [
            (AddressKind::InternalIP, "10.0.0.5"),
            (AddressKind::ExternalIP, "203.0.113.5"),
            (AddressKind::Hostname, "w-1"),
        ];
        assert_eq!(addresses, expected);
    }

    #[test]
    fn each_state_has_a_power() {
        let cases = [
            ("BUILD", Value::Null, Power::Pending),
            ("ACTIVE", Value::Null, Power::Running),
            ("ACTIVE", json!("deleting"), Power::Deleting),
            ("SHUTOFF", Value::Null, Power::Stopped),
            ("ERROR", Value::Null, Power::Failed),
            ("ERROR", json!("deleting"), Power::Deleting),
            ("REBOOT", json!("rebooting"), Power::Changing),
            ("SOFT_DELETED", Value::Null, Power::Deleting),
        ];
        for (status, task, expected) in cases {
            let server = server(json!({"status": status, "OS-EXT-STS:task_state": task}));
            assert_eq!(power(&server), expected, "{status}");
        }
    }

    #[test]
    fn a_fault_without_stock_is_exhausted() {
        let kind =
            |fault: &str| failed(&server(json!({"status": "ERROR", "fault": {"message": fault}}))).kind;
        for fault in [
            "No valid host was found. There are not enough hosts available.",
            "Exceeded maximum number of retries. Exhausted all hosts available for retrying build failures",
        ] {
            assert_eq!(kind(fault), ErrorKind::Exhausted, "{fault}");
        }
        assert_eq!(kind("Build of instance aborted: Failed to plug vif"), ErrorKind::Unavailable);
        assert!(failed(&server(json!({"status": "ERROR"}))).is_instance_failed());
    }

    #[test]
    fn the_time_of_a_volume_is_utc() {
        let volume = |created: &str| {
            let volume = json!({"id": "v", "name": "n", "status": "available", "created_at": created});
            volume_created(&serde_json::from_value(volume).expect("a volume"))
        };
        let expected = "2026-11-24T12:13:38Z".parse::<Timestamp>().ok();
        assert_eq!(volume("2026-11-24T12:13:38.000000"), expected);
        assert_eq!(volume("2026-11-24T12:13:38Z"), expected);
        assert_eq!(volume("yesterday"), None);
    }

    #[test]
    fn the_tag_of_a_port_wins_over_its_description() {
        let port = |tags: Value, description: &str| -> Port {
            let port = json!({"id": "p", "name": "w-1", "tags": tags, "description": description});
            serde_json::from_value(port).expect("a port")
        };
        let (one, two) = (InstanceKey::new("1"), InstanceKey::new("2"));
        let untagged = port(json!([]), "machinist.dev-key=1");
        assert!(is_port_of(&untagged, &one) && !is_port_of(&untagged, &two));
        let rekeyed = port(json!(["machinist.dev-key=2"]), "machinist.dev-key=1");
        assert!(is_port_of(&rekeyed, &two) && !is_port_of(&rekeyed, &one));
        let of_go = port(json!(["kubernetes.io-cluster-x", "kubernetes.io-role-node"]), "");
        assert!(is_port_of_go(&of_go, "w-1") && !is_port_of_go(&of_go, "w-2") && !has_key(&of_go));
        assert!(!is_port_of_go(&untagged, "w-1"));
    }
}
