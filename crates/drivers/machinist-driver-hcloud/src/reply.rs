//! Converts the cloud's servers into instances. Pure functions.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use machinist_instance::{
    Address, AddressKind, Error, ErrorKind, Instance, InstanceKey, Marks, NodeName, Power,
};

use crate::id;
use crate::label::{CLUSTER, KEY, Labels, MCM_CLUSTER, MCM_ROLE, ZONE};
use crate::model::{PrivateNet, Server};
use crate::options::AddressFamily;

/// The label by which Nodes show that a cloud server runs them.
const PROVIDED_BY: (&str, &str) = ("instance.hetzner.cloud/provided-by", "cloud");

/// The options that affect how an instance is reported.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    pub(crate) family: AddressFamily,
    pub(crate) has_zone: bool,
    /// The network whose addresses are internal.
    pub(crate) network: Option<i64>,
    /// Whether servers with the marks of 23technologies' provider have ids in its spelling.
    pub(crate) spells_zone: bool,
}

/// Converts a server.
///
/// # Errors
/// `Bug` if the server has no name, which the API excludes.
pub(crate) fn instance(view: View, server: Server) -> Result<Instance, Error> {
    let name = NodeName::new(server.name.clone())
        .ok_or_else(|| Error::new(ErrorKind::Bug, format!("server {} has no name", server.id)))?;
    let addresses = addresses(view, &server);
    let region = server.location.map(|location| location.name);
    let zone_of_id = gardener_zone(&server.labels).filter(|_| view.spells_zone);
    let id = zone_of_id.map_or_else(|| id::of(server.id), |zone| id::of_zone(zone, server.id));
    let mut tags = server.labels;
    let key = tags.remove(KEY).filter(|key| !key.is_empty()).map(InstanceKey::new);
    let cluster = tags.remove(CLUSTER);
    let (label, value) = PROVIDED_BY;
    Ok(Instance {
        id,
        native_id: None,
        key,
        cluster,
        name,
        power: power(&server.status),
        addresses,
        instance_type: server.server_type.map(|server_type| server_type.name),
        zone: region.as_deref().filter(|_| view.has_zone).map(zone),
        region,
        tags,
        node_labels: BTreeMap::from([(label.to_owned(), value.to_owned())]),
        created: server.created,
    })
}

/// The zone in the labels of 23technologies' provider; `None` for other servers.
fn gardener_zone(labels: &Labels) -> Option<&str> {
    let is_marked = labels.contains_key(MCM_CLUSTER) && is_worker(labels);
    labels.get(ZONE).map(String::as_str).filter(|zone| is_marked && !zone.is_empty())
}

/// Whether the labels are the labels of a worker of 23technologies' provider.
pub(crate) fn is_worker(labels: &Labels) -> bool {
    let (name, value) = MCM_ROLE;
    labels.get(name).is_some_and(|role| role == value)
}

/// The marks of 23technologies' provider on an instance, for a class of that cluster. Other classes
/// name no cluster.
pub(crate) fn marks(tags: &Labels, cluster: Option<&str>) -> Marks {
    match tags.get(MCM_CLUSTER).filter(|_| is_worker(tags)) {
        None if cluster.is_none() => Marks::NotUsed,
        None => Marks::Missing,
        Some(marked) if cluster == Some(marked) => Marks::OfClass,
        Some(_) => Marks::OfAnotherClass,
    }
}

/// The key that the labels of a server store.
pub(crate) fn key(labels: &Labels) -> Option<&str> {
    labels.get(KEY).map(String::as_str).filter(|key| !key.is_empty())
}

/// Only `off` is stopped. A server that the cloud moves or rebuilds will run again.
fn power(status: &str) -> Power {
    match status {
        "initializing" | "starting" => Power::Pending,
        "running" => Power::Running,
        "off" => Power::Stopped,
        "deleting" => Power::Deleting,
        // `stopping`, `migrating`, `rebuilding`, `unknown`, and states of a newer API.
        _ => Power::Changing,
    }
}

/// Whether the server has no power and can be started.
pub(crate) fn is_off(server: &Server) -> bool {
    power(&server.status) == Power::Stopped
}

pub(crate) fn is_deleting(server: &Server) -> bool {
    power(&server.status) == Power::Deleting
}

/// The addresses in the order of Hetzner's cloud-controller-manager: host name, external addresses,
/// internal addresses.
pub(crate) fn addresses(view: View, server: &Server) -> Vec<Address> {
    let (has_v4, has_v6) = match view.family {
        AddressFamily::Ipv4 => (true, false),
        AddressFamily::Ipv6 => (false, true),
        AddressFamily::DualStack => (true, true),
    };
    let public = &server.public_net;
    let v4 = public.ipv4.as_ref().filter(|_| has_v4).and_then(|ip| ip.ip.parse::<Ipv4Addr>().ok());
    let v6 = public.ipv6.as_ref().filter(|_| has_v6).and_then(|ip| first_host(&ip.ip));
    let is_internal = |net: &&PrivateNet| Some(net.network) == view.network;
    let internal = server.private_net.iter().filter(is_internal).filter_map(|net| net.ip);
    let address = |kind, address: String| Address { kind, address };
    std::iter::once(address(AddressKind::Hostname, server.name.clone()))
        .chain(v4.map(|ip| address(AddressKind::ExternalIP, ip.to_string())))
        .chain(v6.map(|ip| address(AddressKind::ExternalIP, ip.to_string())))
        .chain(internal.map(|ip| address(AddressKind::InternalIP, ip.to_string())))
        .collect()
}

/// The address `::1` of an IPv6 network, which the cloud's images configure.
fn first_host(network: &str) -> Option<Ipv6Addr> {
    let address = network.split_once('/').map_or(network, |(address, _)| address);
    let address: Ipv6Addr = address.parse().ok()?;
    Some(Ipv6Addr::from_bits(address.to_bits() | 1))
}

/// The zone of a location. The API no longer has data centers, but volumes of existing clusters
/// have node affinity to these names, so the names of old locations must not change.
fn zone(location: &str) -> String {
    match location {
        "nbg1" => "nbg1-dc3",
        "hel1" => "hel1-dc2",
        "fsn1" => "fsn1-dc14",
        "ash" => "ash-dc1",
        "hil" => "hil-dc1",
        "sin" => "sin-dc1",
        other => other,
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use machinist_instance::{Foreign, InstanceRef, Sighting};
    use serde_json::{Value, json};

    use super::*;

    fn server(changes: Value) -> Server {
        let mut server = json!({
            "id": 1, "name": "foobar", "status": "running",
            "server_type": {"name": "asdf11", "a_new_field": {}},
            "location": {"name": "fsn1", "network_zone": "eu-central"},
            "public_net": {"ipv4": {"ip": "203.0.113.7"}, "ipv6": {"ip": "2001:db8:1234::/64"}},
            "private_net": [], "labels": {}, "created": "2026-01-02T03:04:05+00:00",
        });
        for (name, value) in changes.as_object().expect("an object") {
            server[name] = value.clone();
        }
        serde_json::from_value(server).expect("a server")
    }

    fn view(family: AddressFamily) -> View {
        View { family, has_zone: true, network: Some(1), spells_zone: false }
    }

    fn shown(family: AddressFamily, changes: Value) -> Vec<String> {
        let instance = instance(view(family), server(changes)).expect("a name");
        instance.addresses.iter().map(|address| format!("{:?} {}", address.kind, address.address)).collect()
    }

    /// The zone then follows from the location.
    #[test]
    fn a_server_without_a_data_center_is_mapped() {
        let view = View { network: None, ..view(AddressFamily::Ipv4) };
        let labels = json!({"machinist.dev/key": "uid-1", "machinist.dev/cluster": "default", "env": "prod"});
        let instance = instance(view, server(json!({ "labels": labels }))).expect("a name");
        let address = |kind, address: &str| Address { kind, address: address.to_owned() };
        assert_eq!(
            instance,
            Instance {
                id: id::of(1),
                native_id: None,
                key: Some(InstanceKey::new("uid-1")),
                cluster: Some("default".to_owned()),
                name: NodeName::new("foobar").expect("not empty"),
                power: Power::Running,
                addresses: vec![
                    address(AddressKind::Hostname, "foobar"),
                    address(AddressKind::ExternalIP, "203.0.113.7"),
                ],
                instance_type: Some("asdf11".to_owned()),
                zone: Some("fsn1-dc14".to_owned()),
                region: Some("fsn1".to_owned()),
                tags: BTreeMap::from([("env".to_owned(), "prod".to_owned())]),
                node_labels: BTreeMap::from([(
                    "instance.hetzner.cloud/provided-by".to_owned(),
                    "cloud".to_owned()
                )]),
                created: "2026-01-02T03:04:05Z".parse().expect("a time"),
            }
        );
    }

    /// Only the id and the name are required.
    #[test]
    fn a_server_with_only_an_id_and_a_name_is_mapped() {
        let server =
            serde_json::from_value(json!({"id": 2_251_799_813_685_247_i64, "name": "a", "labels": null}));
        let instance = instance(view(AddressFamily::DualStack), server.expect("a server")).expect("a name");
        assert_eq!(instance.id.as_str(), "hcloud://2251799813685247");
        assert_eq!((instance.power, instance.zone, instance.region), (Power::Changing, None, None));
        assert_eq!(instance.created, jiff::Timestamp::UNIX_EPOCH);
    }

    #[test]
    fn external_addresses_depend_on_the_address_family() {
        let (v4, v6) = ("ExternalIP 203.0.113.7", "ExternalIP 2001:db8:1234::1");
        let host = "Hostname foobar";
        assert_eq!(shown(AddressFamily::Ipv4, json!({})), [host, v4]);
        assert_eq!(shown(AddressFamily::Ipv6, json!({})), [host, v6]);
        assert_eq!(shown(AddressFamily::DualStack, json!({})), [host, v4, v6]);
        let without = |family: &str| {
            let mut net = json!({"ipv4": {"ip": "203.0.113.7"}, "ipv6": {"ip": "2001:db8:1234::/64"}});
            net[family] = Value::Null;
            json!({ "public_net": net })
        };
        assert_eq!(shown(AddressFamily::DualStack, without("ipv4")), [host, v6]);
        assert_eq!(shown(AddressFamily::DualStack, without("ipv6")), [host, v4]);
        assert_eq!(shown(AddressFamily::Ipv4, without("ipv4")), [host]);
        assert_eq!(shown(AddressFamily::Ipv6, without("ipv6")), [host]);
        assert_eq!(shown(AddressFamily::Ipv6, without("ipv4")), [host, v6]);
    }

    #[test]
    fn only_addresses_of_the_configured_network_are_internal() {
        let attached = |network: i64| json!({"private_net": [{"network": network, "ip": "10.0.0.2"}]});
        let internal = |changes| shown(AddressFamily::Ipv6, changes).split_off(2);
        assert_eq!(internal(json!({})), [""; 0]);
        assert_eq!(internal(attached(1)), ["InternalIP 10.0.0.2"]);
        assert_eq!(internal(attached(2)), [""; 0]);
    }

    #[test]
    fn only_a_server_that_is_off_is_stopped() {
        let cases = [
            ("initializing", Power::Pending),
            ("starting", Power::Pending),
            ("running", Power::Running),
            ("off", Power::Stopped),
            ("deleting", Power::Deleting),
            ("stopping", Power::Changing),
            ("migrating", Power::Changing),
            ("rebuilding", Power::Changing),
            ("unknown", Power::Changing),
            ("a_new_state", Power::Changing),
        ];
        for (status, expected) in cases {
            assert_eq!(power(status), expected, "{status}");
        }
    }

    #[test]
    fn zones_keep_the_names_of_the_data_centers() {
        let zones = ["nbg1", "hel1", "fsn1", "ash", "hil", "sin", "new1"].map(zone);
        assert_eq!(zones, ["nbg1-dc3", "hel1-dc2", "fsn1-dc14", "ash-dc1", "hil-dc1", "sin-dc1", "new1"]);
        let hidden = View { has_zone: false, ..view(AddressFamily::Ipv4) };
        assert_eq!(instance(hidden, server(json!({}))).expect("a name").zone, None);
    }

    fn gardener_labels() -> Labels {
        [(MCM_CLUSTER, "shoot--a"), MCM_ROLE, (ZONE, "hel1-dc2")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    }

    #[test]
    fn machines_of_the_other_provider_keep_its_spelling() {
        let shown = |spells_zone| {
            let view = View { spells_zone, ..view(AddressFamily::Ipv4) };
            instance(view, server(json!({ "labels": gardener_labels() }))).expect("a name").id
        };
        assert_eq!(shown(true), id::of_zone("hel1-dc2", 1));
        assert_eq!(shown(false), id::of(1), "Nodes have the short form");
        let view = View { spells_zone: true, ..view(AddressFamily::Ipv4) };
        assert_eq!(instance(view, server(json!({}))).expect("a name").id, id::of(1), "without its marks");
    }

    #[test]
    fn marks_need_the_role_and_the_cluster() {
        let mut labels = gardener_labels();
        assert_eq!(marks(&labels, Some("shoot--a")), Marks::OfClass);
        assert_eq!(marks(&labels, Some("shoot--b")), Marks::OfAnotherClass);
        assert_eq!(marks(&labels, None), Marks::OfAnotherClass);
        labels.remove(MCM_ROLE.0);
        assert_eq!(marks(&labels, Some("shoot--a")), Marks::Missing);
        assert_eq!(marks(&Labels::new(), None), Marks::NotUsed);
    }

    #[test]
    fn an_instance_of_another_key_is_foreign() {
        let labels = json!({"machinist.dev/key": "uid-1", "machinist.dev/cluster": "other"});
        let found = instance(view(AddressFamily::Ipv4), server(json!({ "labels": labels }))).expect("a name");
        let which = |key: &str| InstanceRef { key: Some(InstanceKey::new(key)), ..InstanceRef::default() };
        assert_eq!(Sighting::of(&which("uid-1"), found.clone()), Sighting::Present(found.clone()));
        assert_eq!(Sighting::of(&which("uid-1"), None), Sighting::Absent);
        let foreign = Foreign {
            id: id::of(1),
            key: Some(InstanceKey::new("uid-1")),
            cluster: Some("other".to_owned()),
            created: found.created,
        };
        assert_eq!(Sighting::of(&which("uid-2"), found), Sighting::Foreign(foreign));
    }
}
