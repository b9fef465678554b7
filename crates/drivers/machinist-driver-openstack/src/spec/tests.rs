use machinist_instance::ErrorKind;
use serde_json::json;

use super::*;

pub(crate) fn class() -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": KIND,
        "spec": {
            "imageID": "a40dff99-e78a-4c83-af12-26b97e13fc9f", "region": "eu-nl-1",
            "availabilityZone": "eu-nl-1b", "flavorName": "m1.xmedium", "keyName": "shoot--foo--os",
            "securityGroups": ["shoot--foo--os"], "networkID": "net-1", "subnetIDs": ["sub-2", "sub-1"],
            "subnetID": "sub-1", "podNetworkCIDRs": ["100.96.0.0/11"], "rootDiskSize": 0,
            "tags": {"kubernetes.io-cluster-shoot--foo--os": "1", "kubernetes.io-role-node": "1"},
        },
    })
}

pub(crate) fn with(field: &str, value: Value) -> Value {
    let mut class = class();
    class["spec"][field] = value;
    class
}

fn message(class: &Value) -> String {
    let error = ProviderSpec::parse(class).expect_err("wrong");
    assert_eq!(error.kind, ErrorKind::InvalidSpec);
    error.message
}

#[test]
fn a_class_of_gardener_is_read() {
    let class = ProviderSpec::parse(&class()).expect("valid");
    assert_eq!(class.image, Named::Id("a40dff99-e78a-4c83-af12-26b97e13fc9f".to_owned()));
    let subnets = ["sub-1", "sub-2"].map(str::to_owned).to_vec();
    assert_eq!(class.network.networks, Networks::OwnPort { network: "net-1".to_owned(), subnets });
    assert_eq!(class.root_disk, RootDisk::OfFlavor);
}

#[test]
fn the_decoder_is_strict() {
    let cases = [
        ("/apiVersion", json!("v1"), "providerSpec.apiVersion: expected openstack.machine.gardener.cloud"),
        ("/kind", json!(null), "providerSpec.kind: expected MachineProviderConfig, got nothing"),
        ("/spec/keyName", json!(1), "providerSpec.spec.keyName: expected text, got 1"),
        ("/spec/rootDiskSize", json!(-1), "providerSpec.spec.rootDiskSize: expected a whole number from 0"),
        ("/spec/rootDiskSize", json!("5"), "providerSpec.spec.rootDiskSize: expected a whole number from 0"),
        ("/spec/tags", json!({"a": "1"}), "providerSpec.spec.tags: expected a key that contains"),
        ("/spec/podNetworkCIDRs", json!([]), "providerSpec.spec.podNetworkCIDRs: expected at least one"),
        ("/spec/podNetworkCIDRs", json!(["a/8"]), "providerSpec.spec.podNetworkCIDRs: expected ranges"),
        ("/spec/securityGroups", json!([null]), "providerSpec.spec.securityGroups[0]: expected text"),
    ];
    for (pointer, value, expected) in cases {
        let mut class = class();
        *class.pointer_mut(pointer).expect("set") = value;
        let message = message(&class);
        assert!(message.starts_with(expected), "{message}");
    }
    for field in ["keyname", "extraConfig"] {
        let message = message(&with(field, json!("x")));
        assert!(message.starts_with(&format!("providerSpec.spec.{field}: expected one of")), "{message}");
    }
    for field in ["region", "availabilityZone", "flavorName", "keyName", "tags", "networkID", "imageID"] {
        let message = message(&with(field, Value::Null));
        assert!(message.starts_with(&format!("providerSpec.spec.{field}: expected")), "{message}");
    }
}

#[test]
fn exactly_one_sort_of_network_is_set() {
    let both = message(&with("networks", json!([{"id": "net-2"}])));
    assert_eq!(both, "providerSpec.spec.networks: expected nothing, because networkID is set, got a list");
    let mut listed = with("networkID", Value::Null);
    listed["spec"]["networks"] = json!([{"id": "net-2"}, {"name": "pods", "podNetwork": true}]);
    let networking = ProviderSpec::parse(&listed).expect("valid").network;
    let network = |network, has_pods| Network { network, has_pods };
    let expected =
        vec![network(Named::Id("net-2".to_owned()), false), network(Named::Name("pods".to_owned()), true)];
    assert_eq!(networking.networks, Networks::OfNova(expected));
    for wrong in [json!([{}]), json!([{"id": "a", "name": "b"}]), json!([{"uuid": "a"}]), json!(["a"])] {
        listed["spec"]["networks"] = wrong;
        assert!(message(&listed).starts_with("providerSpec.spec.networks[0]"), "{}", message(&listed));
    }
}

#[test]
fn a_place_needs_nothing_but_the_region() {
    assert_eq!(place(&json!({"spec": {"region": "eu-nl-1", "x": 1}})), Ok(Place::new("eu-nl-1")));
    let error = place(&json!({"spec": {}})).expect_err("no region");
    assert!(error.message.starts_with("providerSpec.spec.region: expected a region"), "{error}");
}

#[test]
fn a_root_disk_with_a_type_is_our_own() {
    let mut class = with("rootDiskSize", json!(50));
    assert_eq!(ProviderSpec::parse(&class).expect("valid").root_disk, RootDisk::OfNova { size: 50 });
    class["spec"]["rootDiskType"] = json!("ssd");
    let own = RootDisk::Own { size: 50, volume_type: "ssd".to_owned() };
    assert_eq!(ProviderSpec::parse(&class).expect("valid").root_disk, own);
}
