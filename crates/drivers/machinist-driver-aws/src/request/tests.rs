use machinist_instance::{NodeName, UserData};
use serde_json::{Value, json};

use super::*;
use crate::spec::tests::{class, with};

fn spec(provider_spec: Value) -> InstanceSpec {
    InstanceSpec {
        key: InstanceKey::new("79d1b99b-7c2e-4e7c-866d-6fc171785043"),
        name: NodeName::new("shoot--foo--bar-worker-z1-6cc9b-vgztv").expect("not empty"),
        cluster: "default".to_owned(),
        provider_spec,
        user_data: UserData::new(*b"#!/bin/bash"),
        tags: Tags::new(),
        annotations: [].into(),
        adopt_made_since: None,
        last_known_state: None,
    }
}

fn parameters(provider_spec: Value) -> Vec<(String, String)> {
    let creation = Creation::of(&spec(provider_spec), "eu-west-1").expect("valid");
    creation.call("/dev/xvda", false).parameters().to_vec()
}

/// The parameters without the tags, which another test compares.
fn without_tags(parameters: Vec<(String, String)>) -> Tags {
    parameters.into_iter().filter(|(name, _)| !name.starts_with("TagSpecification")).collect()
}

fn map(entries: &[(&str, &str)]) -> Tags {
    entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The request that Go's provider was recorded to send for this class, except for the token.
#[test]
fn a_creation_has_the_parameters_of_gos_provider() {
    let expected = map(&[
        ("BlockDeviceMapping.1.DeviceName", "/dev/xvda"),
        ("BlockDeviceMapping.1.Ebs.DeleteOnTermination", "true"),
        ("BlockDeviceMapping.1.Ebs.Encrypted", "true"),
        ("BlockDeviceMapping.1.Ebs.Iops", "3000"),
        ("BlockDeviceMapping.1.Ebs.Throughput", "125"),
        ("BlockDeviceMapping.1.Ebs.VolumeSize", "50"),
        ("BlockDeviceMapping.1.Ebs.VolumeType", "gp3"),
        ("ClientToken", "79d1b99b-7c2e-4e7c-866d-6fc171785043"),
        ("IamInstanceProfile.Name", "shoot--foo--bar-nodes"),
        ("ImageId", "ami-760aaa0f"),
        ("InstanceType", "m5.large"),
        ("KeyName", "shoot--foo--bar-ssh-publickey"),
        ("MaxCount", "1"),
        ("MetadataOptions.HttpPutResponseHopLimit", "2"),
        ("MetadataOptions.HttpTokens", "required"),
        ("MinCount", "1"),
        ("NetworkInterface.1.DeleteOnTermination", "true"),
        ("NetworkInterface.1.DeviceIndex", "0"),
        ("NetworkInterface.1.SecurityGroupId.1", "sg-1"),
        ("NetworkInterface.1.SubnetId", "subnet-1"),
        ("UserData", "IyEvYmluL2Jhc2g="),
    ]);
    assert_eq!(without_tags(parameters(class())), expected);
}

#[test]
fn instance_volumes_and_interfaces_carry_the_marks() {
    let tags = InstanceSpec { tags: map(&[("purpose", "test"), ("Name", "other")]), ..spec(class()) };
    let call = Creation::of(&tags, "eu-west-1").expect("valid").call("/dev/xvda", false);
    let expected = map(&[
        ("Name", "shoot--foo--bar-worker-z1-6cc9b-vgztv"),
        ("kubernetes.io/cluster/shoot--foo--bar", "1"),
        ("kubernetes.io/role/node", "1"),
        ("worker.gardener.cloud/pool", "worker"),
        ("machinist.dev/key", "79d1b99b-7c2e-4e7c-866d-6fc171785043"),
        ("machinist.dev/cluster", "default"),
        ("purpose", "test"),
    ]);
    for (number, kind) in [(1, "instance"), (2, "volume"), (3, "network-interface")] {
        let all: Tags = call.parameters().iter().cloned().collect();
        assert_eq!(all[&format!("TagSpecification.{number}.ResourceType")], kind);
        let tag = |place: usize| {
            let name = format!("TagSpecification.{number}.Tag.{place}");
            Some((all.get(&format!("{name}.Key"))?.clone(), all.get(&format!("{name}.Value"))?.clone()))
        };
        assert_eq!((1..).map_while(tag).collect::<Tags>(), expected, "{kind}");
    }
}

/// The recorded request of Go's provider for a class with most fields.
#[test]
fn most_fields_are_sent_as_gos_provider_sends_them() {
    let mut class = class();
    class["blockDevices"] = json!([
        {
            "deviceName": "/root", "noDevice": "x", "virtualName": "ephemeral0",
            "ebs": {
                "deleteOnTermination": false, "encrypted": true, "iops": 1000, "volumeSize": 20,
                "kmsKeyID": "arn:k", "snapshotID": "snap-0123456789abcdef0", "volumeType": "io1",
            },
        },
        {"deviceName": "/dev/sdf", "ebs": {"iops": 0, "volumeSize": 30, "volumeType": "gp2"}},
    ]);
    class["capacityReservation"] = json!({"capacityReservationPreference": "open"});
    class["cpuOptions"] = json!({"amdSevSnp": "disabled", "coreCount": 2, "threadsPerCore": 1});
    class["ebsOptimized"] = json!(true);
    class["monitoring"] = json!(true);
    class["instanceMetadataOptions"] = json!({
        "httpEndpoint": "enabled", "httpProtocolIpv6": "disabled", "httpPutResponseHopLimit": 1,
        "httpTokens": "optional",
    });
    class["networkInterfaces"] = json!([
        {
            "associatePublicIPAddress": false, "description": "first", "ipv6AddressCount": 1,
            "ipv6PrefixCount": 1, "securityGroupIDs": ["sg-1"], "subnetID": "subnet-1",
        },
        {
            "deleteOnTermination": false, "deviceIndex": 1, "interfaceType": "efa-only",
            "networkCardIndex": 1, "securityGroupIDs": ["sg-1"], "subnetID": "subnet-1",
        },
    ]);
    class["placement"] =
        json!({"groupId": "pg-0123456789abcdef0", "partitionNumber": 1, "tenancy": "dedicated"});
    class["spotPrice"] = json!("");
    let expected = map(&[
        ("BlockDeviceMapping.1.DeviceName", "/dev/xvda"),
        ("BlockDeviceMapping.1.Ebs.DeleteOnTermination", "false"),
        ("BlockDeviceMapping.1.Ebs.Encrypted", "true"),
        ("BlockDeviceMapping.1.Ebs.Iops", "1000"),
        ("BlockDeviceMapping.1.Ebs.SnapshotId", "snap-0123456789abcdef0"),
        ("BlockDeviceMapping.1.Ebs.VolumeSize", "20"),
        ("BlockDeviceMapping.1.Ebs.VolumeType", "io1"),
        ("BlockDeviceMapping.2.DeviceName", "/dev/sdf"),
        ("BlockDeviceMapping.2.Ebs.DeleteOnTermination", "true"),
        ("BlockDeviceMapping.2.Ebs.Encrypted", "false"),
        ("BlockDeviceMapping.2.Ebs.VolumeSize", "30"),
        ("BlockDeviceMapping.2.Ebs.VolumeType", "gp2"),
        ("CapacityReservationSpecification.CapacityReservationPreference", "open"),
        ("ClientToken", "79d1b99b-7c2e-4e7c-866d-6fc171785043"),
        ("CpuOptions.AmdSevSnp", "disabled"),
        ("CpuOptions.CoreCount", "2"),
        ("CpuOptions.ThreadsPerCore", "1"),
        ("IamInstanceProfile.Name", "shoot--foo--bar-nodes"),
        ("ImageId", "ami-760aaa0f"),
        ("InstanceMarketOptions.MarketType", "spot"),
        ("InstanceMarketOptions.SpotOptions.SpotInstanceType", "one-time"),
        ("InstanceType", "m5.large"),
        ("KeyName", "shoot--foo--bar-ssh-publickey"),
        ("MaxCount", "1"),
        ("MetadataOptions.HttpEndpoint", "enabled"),
        ("MetadataOptions.HttpProtocolIpv6", "disabled"),
        ("MetadataOptions.HttpPutResponseHopLimit", "1"),
        ("MetadataOptions.HttpTokens", "optional"),
        ("MinCount", "1"),
        ("NetworkInterface.1.AssociatePublicIpAddress", "false"),
        ("NetworkInterface.1.DeleteOnTermination", "true"),
        ("NetworkInterface.1.Description", "first"),
        ("NetworkInterface.1.DeviceIndex", "0"),
        ("NetworkInterface.1.Ipv6AddressCount", "1"),
        ("NetworkInterface.1.PrimaryIpv6", "true"),
        ("NetworkInterface.1.SecurityGroupId.1", "sg-1"),
        ("NetworkInterface.1.SubnetId", "subnet-1"),
        ("NetworkInterface.2.DeleteOnTermination", "false"),
        ("NetworkInterface.2.DeviceIndex", "1"),
        ("NetworkInterface.2.InterfaceType", "efa-only"),
        ("NetworkInterface.2.NetworkCardIndex", "1"),
        ("NetworkInterface.2.SecurityGroupId.1", "sg-1"),
        ("NetworkInterface.2.SubnetId", "subnet-1"),
        ("Placement.GroupId", "pg-0123456789abcdef0"),
        ("Placement.PartitionNumber", "1"),
        ("Placement.Tenancy", "dedicated"),
        ("UserData", "IyEvYmluL2Jhc2g="),
    ]);
    assert_eq!(without_tags(parameters(class.clone())), expected);

    // An option of the provider also sends the fields that Go's provider ignores.
    let creation = Creation::of(&spec(class), "eu-west-1").expect("valid");
    let all = without_tags(creation.call("/dev/xvda", true).parameters().to_vec());
    let added: Vec<_> = all.iter().filter(|(name, _)| !expected.contains_key(*name)).collect();
    let names: Vec<&str> = added.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "BlockDeviceMapping.1.Ebs.KmsKeyId",
        "BlockDeviceMapping.1.NoDevice",
        "BlockDeviceMapping.1.VirtualName",
        "EbsOptimized",
        "Monitoring.Enabled",
    ];
    assert_eq!(names, expected);
}

#[test]
fn other_choices_have_their_own_parameters() {
    let cases = [
        ("/iam", json!({"arn": "arn:x"}), "IamInstanceProfile.Arn", "arn:x"),
        (
            "/instanceMarketOptions",
            json!({"marketType": "capacity-block"}),
            "InstanceMarketOptions.MarketType",
            "capacity-block",
        ),
        ("/spotPrice", json!("0.10"), "InstanceMarketOptions.SpotOptions.MaxPrice", "0.10"),
        (
            "/capacityReservation",
            json!({"capacityReservationId": "cr-1"}),
            "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId",
            "cr-1",
        ),
        (
            "/capacityReservation",
            json!({"capacityReservationResourceGroupArn": "arn:g"}),
            "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationResourceGroupArn",
            "arn:g",
        ),
        (
            "/placement",
            json!({"tenancy": "host", "hostId": "h-1", "affinity": "host"}),
            "Placement.HostId",
            "h-1",
        ),
    ];
    for (pointer, value, name, expected) in cases {
        let sent = without_tags(parameters(with(pointer, value)));
        assert_eq!(sent.get(name).map(String::as_str), Some(expected), "{name}");
    }
}

/// Some Machines of a class run on hosts of their own.
#[test]
fn gap_6_a_machine_may_have_its_own_placement() {
    const ANNOTATION: &str = "machine.sapcloud.io/awsPlacement";
    let of = |class: Value, placement: &str| InstanceSpec {
        annotations: map(&[(ANNOTATION, placement)]),
        ..spec(class)
    };
    let host = |spec: &InstanceSpec| {
        let call = Creation::of(spec, "eu-west-1").expect("valid").call("/dev/xvda", false);
        let mut hosts = call.parameters().iter().filter(|(name, _)| name == "Placement.HostId");
        hosts.next().map(|(_, host)| host.clone())
    };
    let of_machine = r#"{"Tenancy": "host", "HostId": "h-1"}"#;
    assert_eq!(host(&of(class(), of_machine)).as_deref(), Some("h-1"));
    let of_class = with("/placement", json!({"tenancy": "host", "hostId": "h-2"}));
    assert_eq!(host(&of(of_class, of_machine)).as_deref(), Some("h-2"), "the class wins");
    assert_eq!(host(&of(class(), "")), None);
    let with_class = with("/placement", json!({"tenancy": "dedicated"}));
    assert_eq!(host(&of(with_class, "not read")), None, "an annotation without an effect is not checked");
    let call = Creation::of(&of(class(), r#"{"GroupName": "g", "AvailabilityZone": "a"}"#), "eu-west-1");
    let call = call.expect("valid").call("/dev/xvda", false);
    let has = |name: &str, value: &str| call.parameters().contains(&(name.to_owned(), value.to_owned()));
    assert!(has("Placement.GroupName", "g") && has("Placement.AvailabilityZone", "a"));
    for (placement, expected) in [
        ("h-1", "awsPlacement]: expected a placement of EC2 as JSON, got \"h-1\""),
        ("[]", "awsPlacement]: expected an object, got a list"),
        (r#"{"tenancy": "none"}"#, "awsPlacement].tenancy: expected default, dedicated or host"),
        (r#"{"zone": "a"}"#, "awsPlacement].zone: expected no such field, but affinity, availabilityZone"),
    ] {
        let Err(error) = Creation::of(&of(class(), placement), "eu-west-1") else { panic!("{placement}") };
        assert_eq!(error.kind, ErrorKind::InvalidSpec);
        assert!(error.message.contains(expected), "{error}");
    }
}

#[test]
fn values_that_the_cloud_would_reject_name_their_field() {
    let data = |bytes: usize| InstanceSpec { user_data: UserData::new(vec![b'a'; bytes]), ..spec(class()) };
    assert!(Creation::of(&data(16_384), "eu-west-1").is_ok());
    let long_key = InstanceSpec { key: InstanceKey::new("k".repeat(65)), ..spec(class()) };
    let long_tag = InstanceSpec { tags: map(&[("a", &"v".repeat(257))]), ..spec(class()) };
    let cases = [
        (data(0), "eu-west-1", "userData: expected data"),
        (data(16_385), "eu-west-1", "userData: expected at most 16384 bytes, got 16385"),
        (long_key, "eu-west-1", "key: expected 1 to 64"),
        (long_tag, "eu-west-1", "tags.a: expected a value"),
        (spec(class()), "eu-west-2", "providerSpec.region: expected eu-west-2, got eu-west-1"),
    ];
    for (spec, region, expected) in cases {
        let Err(error) = Creation::of(&spec, region) else { panic!("{expected}") };
        assert_eq!(error.kind, ErrorKind::InvalidSpec);
        assert!(error.message.starts_with(expected), "{error}");
    }
}

#[test]
fn a_filter_has_no_wildcards() {
    let call = by_tag(NAME, "a*b?c\\d");
    assert_eq!(call.parameters()[0], ("Filter.1.Name".to_owned(), "tag:Name".to_owned()));
    assert_eq!(call.parameters()[1].1, "a\\*b\\?c\\\\d");
    let states: Vec<&str> = call.parameters()[3..].iter().map(|(_, value)| value.as_str()).collect();
    assert_eq!(states, EXISTING);
}
