use machinist_instance::ErrorKind;
use serde_json::json;

use super::*;

/// A class as Gardener's extension writes it, as recorded from a real cluster.
pub(crate) fn class() -> Value {
    json!({
        "ami": "ami-760aaa0f",
        "blockDevices": [{"ebs": {
            "deleteOnTermination": true, "encrypted": true, "iops": 3000, "throughput": 125,
            "volumeSize": 50, "volumeType": "gp3",
        }}],
        "cpuOptions": {"coreCount": null, "threadsPerCore": null},
        "iam": {"name": "shoot--foo--bar-nodes"},
        "instanceMetadataOptions": {"httpPutResponseHopLimit": 2, "httpTokens": "required"},
        "keyName": "shoot--foo--bar-ssh-publickey",
        "machineType": "m5.large",
        "networkInterfaces": [{"securityGroupIDs": ["sg-1"], "subnetID": "subnet-1"}],
        "region": "eu-west-1",
        "srcAndDstChecksEnabled": false,
        "tags": {
            "Name": "shoot--foo--bar", "kubernetes.io/cluster/shoot--foo--bar": "1",
            "kubernetes.io/role/node": "1", "worker.gardener.cloud/pool": "worker",
        },
    })
}

/// The class with one field set, by its JSON pointer.
pub(crate) fn with(pointer: &str, value: Value) -> Value {
    let mut class = class();
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    class.pointer_mut(parent).expect("the parent exists")[name] = value;
    class
}

#[test]
fn a_class_of_the_extension_is_parsed() {
    let spec = ProviderSpec::parse(&class()).expect("valid");
    assert_eq!((spec.region.as_str(), spec.machine_type.as_str()), ("eu-west-1", "m5.large"));
    assert_eq!(spec.profile, Profile::Name("shoot--foo--bar-nodes".to_owned()));
    assert_eq!(spec.cpu, CpuOptions::default(), "null is absent");
    assert!(!spec.tags.contains_key("Name"), "the name of the class is ignored");
    let device = &spec.block_devices[0];
    assert_eq!((device.device.as_deref(), device.ebs.iops, device.ebs.size), (None, Some(3000), 50));
    assert!(device.ebs.is_encrypted && device.ebs.is_deleted_with_instance);
    assert_eq!((spec.interfaces[0].device_index, spec.interfaces[0].network_card), (0, None));
}

#[test]
fn fields_match_in_any_letter_case_and_unknown_ones_stay() {
    let mut class = class();
    let fields = class.as_object_mut().expect("an object");
    let machine_type = fields.remove("machineType").expect("set");
    fields.insert("MACHINETYPE".to_owned(), machine_type);
    fields.insert("unknownField".to_owned(), json!({"x": 1}));
    fields.insert("keyName".to_owned(), json!(""));
    let spec = ProviderSpec::parse(&class).expect("valid");
    assert_eq!((spec.machine_type.as_str(), spec.key_name), ("m5.large", None));
    assert_eq!(fields_without_effect(&class), ["providerSpec.unknownField"]);
}

#[test]
fn a_3_fields_that_are_never_sent_are_named() {
    let mut class = with("/blockDevices/0/ebs/kmsKeyID", json!("arn:aws:kms:eu-west-1:1:key/k"));
    class["blockDevices"][0]["noDevice"] = json!("x");
    class["blockDevices"][0]["virtualName"] = json!("ephemeral0");
    class["ebsOptimized"] = json!(true);
    class["Monitoring"] = json!(true);
    let expected = [
        "providerSpec.ebsOptimized",
        "providerSpec.monitoring",
        "providerSpec.blockDevices[0].ebs.kmsKeyID",
        "providerSpec.blockDevices[0].noDevice",
        "providerSpec.blockDevices[0].virtualName",
    ];
    assert_eq!(fields_without_effect(&class), expected);
    assert!(ProviderSpec::parse(&class).is_ok(), "the class stays valid");
    assert!(fields_without_effect(&self::class()).is_empty());
}

#[test]
fn every_error_names_field_expected_and_found() {
    let two = |first: &str, second: &str| {
        let ebs = json!({"volumeType": "gp3", "volumeSize": 1});
        json!([{"deviceName": first, "ebs": ebs}, {"deviceName": second, "ebs": ebs}])
    };
    let cases = [
        ("/ami", json!(""), "providerSpec.ami: expected the id of an image"),
        ("/region", json!(null), "providerSpec.region: expected a region"),
        ("/region", json!("eu/west"), "providerSpec.region: expected a region"),
        ("/machineType", json!(5), "providerSpec.machineType: expected text, got 5"),
        ("/blockDevices", json!([]), "providerSpec.blockDevices: expected at least one volume, got a list"),
        (
            "/blockDevices",
            two("/dev/sdf", "/dev/sdg"),
            "providerSpec.blockDevices: expected exactly one volume",
        ),
        ("/blockDevices", two("/root", "/root"), "providerSpec.blockDevices: expected exactly one volume"),
        (
            "/blockDevices",
            two("/root", "/dev/nvme1"),
            "providerSpec.blockDevices[1].deviceName: expected /root",
        ),
        (
            "/blockDevices/0/ebs/volumeType",
            json!("io2"),
            "providerSpec.blockDevices[0].ebs.volumeType: expected gp2, gp3, io1, st1, sc1 or standard, got \"io2\"",
        ),
        (
            "/blockDevices/0/ebs/volumeSize",
            json!(0),
            "providerSpec.blockDevices[0].ebs.volumeSize: expected a number from 1, got 0",
        ),
        (
            "/blockDevices/0/ebs/volumeSize",
            json!("50"),
            "providerSpec.blockDevices[0].ebs.volumeSize: expected a whole number, got \"50\"",
        ),
        (
            "/blockDevices/0/ebs/iops",
            json!(-1),
            "providerSpec.blockDevices[0].ebs.iops: expected a number from 0",
        ),
        (
            "/blockDevices/0/ebs/throughput",
            json!(0),
            "providerSpec.blockDevices[0].ebs.throughput: expected a number from 1",
        ),
        ("/iam", json!({}), "providerSpec.iam.name: expected the name of an instance profile"),
        ("/iam/arn", json!("arn"), "providerSpec.iam.arn: expected only one of name and arn"),
        (
            "/networkInterfaces",
            json!(null),
            "providerSpec.networkInterfaces: expected at least one network interface",
        ),
        (
            "/networkInterfaces/0/subnetID",
            json!(""),
            "providerSpec.networkInterfaces[0].subnetID: expected the id of a subnet",
        ),
        (
            "/networkInterfaces/0/securityGroupIDs",
            json!([" "]),
            "providerSpec.networkInterfaces[0].securityGroupIDs: expected ids",
        ),
        (
            "/networkInterfaces/0/interfaceType",
            json!("trunk"),
            "providerSpec.networkInterfaces[0].interfaceType: expected interface, efa or efa-only",
        ),
        (
            "/networkInterfaces/0/deviceIndex",
            json!(-1),
            "providerSpec.networkInterfaces[0].deviceIndex: expected a number from 0",
        ),
        (
            "/tags",
            json!({"kubernetes.io/cluster/x": "1"}),
            "providerSpec.tags: expected a key that contains kubernetes.io/role/",
        ),
        (
            "/tags/machinist.dev~1key",
            json!("x"),
            "providerSpec.tags.machinist.dev/key: expected a key that does not begin",
        ),
        ("/instanceMarketOptions", json!({}), "providerSpec.instanceMarketOptions.marketType: expected spot"),
        (
            "/placement",
            json!({"hostId": "h-1"}),
            "providerSpec.placement.tenancy: expected host, because hostId is set",
        ),
        (
            "/placement",
            json!({"partitionNumber": 0}),
            "providerSpec.placement.partitionNumber: expected a number from 1",
        ),
        (
            "/instanceMetadataOptions/httpPutResponseHopLimit",
            json!(65),
            "providerSpec.instanceMetadataOptions.httpPutResponseHopLimit: expected a number from 0 to 64",
        ),
        ("/cpuOptions", json!({"coreCount": 2}), "providerSpec.cpuOptions.threadsPerCore: expected a number"),
        (
            "/cpuOptions",
            json!({"coreCount": 2, "threadsPerCore": 3}),
            "providerSpec.cpuOptions.threadsPerCore: expected a number from 1 to 2",
        ),
        (
            "/capacityReservation",
            json!({"capacityReservationId": "cr-1", "capacityReservationPreference": "open"}),
            "providerSpec.capacityReservation.capacityReservationPreference: expected only one of",
        ),
    ];
    for (pointer, value, expected) in cases {
        // A slash inside of a name is written ~1 in a pointer.
        let mut class = with(&pointer.replace("~1", "\u{0}"), value);
        if let Some(tags) = class["tags"].as_object_mut()
            && let Some(value) = tags.remove("machinist.dev\u{0}key")
        {
            tags.insert("machinist.dev/key".to_owned(), value);
        }
        let error = ProviderSpec::parse(&class).expect_err(expected);
        assert_eq!(error.kind, ErrorKind::InvalidSpec);
        assert!(error.message.starts_with(expected), "{}\n{expected}", error.message);
        assert!(error.message.contains(", got ") || pointer.contains("tags"), "{}", error.message);
    }
}

#[test]
fn a_volume_of_type_io1_needs_its_iops() {
    let ebs = json!({"volumeType": "io1", "volumeSize": 1, "iops": 0});
    let error = ProviderSpec::parse(&with("/blockDevices/0/ebs", ebs)).expect_err("no iops");
    assert!(
        error.message.starts_with("providerSpec.blockDevices[0].ebs.iops: expected a number from 1"),
        "{error}"
    );
}

#[test]
fn the_market_wins_over_the_price() {
    let market = |class: &Value| ProviderSpec::parse(class).expect("valid").market;
    assert_eq!(market(&class()), None);
    assert_eq!(market(&with("/spotPrice", json!(""))), Some(Market::Spot { max_price: None }));
    let mut both = with("/spotPrice", json!("0.10"));
    assert_eq!(market(&both), Some(Market::Spot { max_price: Some("0.10".to_owned()) }));
    both["instanceMarketOptions"] = json!({"marketType": "capacity-block"});
    assert_eq!(market(&both), Some(Market::Type("capacity-block".to_owned())));
}

/// Otherwise the source check would silently stay on.
#[test]
fn settings_of_the_initialization_are_checked_before_a_creation() {
    let error = ProviderSpec::parse(&with("/srcAndDstChecksEnabled", json!("false"))).expect_err("a text");
    assert!(error.message.starts_with("providerSpec.srcAndDstChecksEnabled: expected"), "{error}");
}

/// The rest of a class may be invalid by now.
#[test]
fn the_place_needs_only_the_region() {
    assert_eq!(place(&json!({"Region": "eu-west-1", "ami": 7})), Ok(Place::new("eu-west-1")));
    for spec in [json!({}), json!({"region": 1}), json!({"region": "a b"}), json!([])] {
        assert!(place(&spec).is_err_and(|error| error.kind == ErrorKind::InvalidSpec), "{spec}");
    }
}

#[test]
fn only_some_classes_need_an_initialization() {
    let is_empty = |spec: &Value| Initialization::parse(spec).expect("valid").is_empty();
    assert!(!is_empty(&class()));
    assert!(is_empty(&with("/srcAndDstChecksEnabled", json!(true))));
    assert!(is_empty(&with("/srcAndDstChecksEnabled", json!(null))));
    let prefixes = json!({"networkInterfaces": [{}, {"ipv6PrefixCount": 1}]});
    let expected = BTreeMap::from([((0, 1), 1)]);
    assert_eq!(Initialization::parse(&prefixes).map(|wanted| wanted.prefixes), Ok(expected));
}
