use super::*;
use crate::model::parse;

/// An instance as Go's provider left it, as recorded, with some parts replaced.
fn instance_of(rest: &str) -> Ec2Instance {
    let text = format!(
        "<item><instanceId>i-abc3a7a20cf22279a</instanceId><instanceType>m5.large</instanceType>\
         <privateDnsName>ip-10-250-0-4.eu-west-1.compute.internal</privateDnsName>\
         <privateIpAddress>10.250.0.4</privateIpAddress><dnsName/>\
         <launchTime>2026-11-24T11:57:18Z</launchTime>\
         <placement><availabilityZone>eu-west-1a</availabilityZone></placement>{rest}</item>"
    );
    parse(text.as_bytes()).expect("an instance")
}

fn state(name: &str) -> String {
    format!("<instanceState><name>{name}</name></instanceState>")
}

fn tag_set(tags: &[(&str, &str)]) -> String {
    let items =
        tags.iter().map(|(key, value)| format!("<item><key>{key}</key><value>{value}</value></item>"));
    format!("<tagSet>{}</tagSet>", items.collect::<String>())
}

const GO_TAGS: [(&str, &str); 3] = [
    ("kubernetes.io/cluster/shoot--foo--bar", "1"),
    ("kubernetes.io/role/node", "1"),
    ("Name", "shoot--foo--bar-worker-z1-6cc9b-vgztv"),
];

#[test]
fn an_instance_of_go_has_id_name_and_marks() {
    let token = "<clientToken>d212389b-3647-40bf-8abd-629b42790648</clientToken>";
    let found = instance_of(&format!("{}{}{token}", state("running"), tag_set(&GO_TAGS)));
    let asked = InstanceKey::new("79d1b99b-7c2e-4e7c-866d-6fc171785043");
    let instance = instance("eu-west-1", found.clone(), Some(&asked)).expect("valid");
    assert_eq!(instance.id.as_str(), "aws:///eu-west-1/i-abc3a7a20cf22279a");
    assert_eq!(instance.name.as_str(), "ip-10-250-0-4.eu-west-1.compute.internal");
    assert_eq!((instance.key, instance.power), (None, Power::Running), "its token is random");
    assert_eq!(
        (instance.region.as_deref(), instance.zone.as_deref()),
        (Some("eu-west-1"), Some("eu-west-1a"))
    );
    let kinds: Vec<AddressKind> = instance.addresses.iter().map(|address| address.kind).collect();
    assert_eq!(kinds, [AddressKind::InternalIP, AddressKind::InternalDNS, AddressKind::Hostname]);
    let class = Tags::from(GO_TAGS.map(|(key, value)| (key.to_owned(), value.to_owned())));
    assert_eq!(marks(&found, &class), Marks::OfClass);
}

#[test]
fn a_4_a_terminated_instance_is_no_result() {
    let powers = [
        ("pending", Power::Pending),
        ("running", Power::Running),
        ("stopping", Power::Changing),
        ("stopped", Power::Stopped),
        ("shutting-down", Power::Deleting),
        ("a newer state", Power::Changing),
    ];
    for (name, expected) in powers {
        let found = instance_of(&state(name));
        assert_eq!(instance("r", found.clone(), None).map(|instance| instance.power), Ok(expected));
        assert!(!is_terminated(&found) && choose(vec![found], None).is_some());
    }
    let terminated = instance_of(&state("terminated"));
    assert!(is_terminated(&terminated) && choose(vec![terminated], None).is_none());
}

#[test]
fn the_client_token_proves_an_instance_without_tags() {
    let found = instance_of(&format!("{}<clientToken>uid-1</clientToken>", state("running")));
    let (ours, theirs) = (InstanceKey::new("uid-1"), InstanceKey::new("uid-2"));
    assert_eq!(key(&found, Some(&ours)), Some("uid-1"));
    assert_eq!((key(&found, Some(&theirs)), key(&found, None)), (None, None));
    let rekeyed = tag_set(&[("machinist.dev/key", "uid-2")]);
    let rekeyed = instance_of(&format!("{}{rekeyed}<clientToken>uid-1</clientToken>", state("running")));
    assert_eq!(key(&rekeyed, Some(&ours)), Some("uid-2"), "the tag wins");
}

/// A user may copy the tags of an instance.
#[test]
fn the_instance_that_the_key_created_comes_first() {
    let ours = InstanceKey::new("uid-1");
    let of = |id: &str, rest: String| {
        let mut found = instance_of(&format!("{}{rest}", state("running")));
        found.instance_id = id.to_owned();
        found
    };
    let copied = of("i-a", tag_set(&[("machinist.dev/key", "uid-1")]));
    let ours_too = of("i-b", tag_set(&[("machinist.dev/key", "uid-1")]) + "<clientToken>uid-1</clientToken>");
    let marked = of("i-c", tag_set(&GO_TAGS));
    let pet = of("i-0", String::new());
    let first = |all: &[&Ec2Instance], asked| {
        choose(all.iter().map(|found| (*found).clone()).collect(), asked).map(|found| found.instance_id)
    };
    assert_eq!(first(&[&pet, &copied, &ours_too, &marked], Some(&ours)).as_deref(), Some("i-b"));
    assert_eq!(first(&[&pet, &marked, &copied], Some(&ours)).as_deref(), Some("i-a"));
    assert_eq!(first(&[&pet, &marked], None).as_deref(), Some("i-c"));
}

#[test]
fn a_start_does_not_change_the_creation_time() {
    let attached = |device: i32, time: &str| {
        format!(
            "<item><networkInterfaceId>eni</networkInterfaceId><attachment><deviceIndex>{device}</deviceIndex>\
             <attachTime>{time}</attachTime></attachment></item>"
        )
    };
    let interfaces =
        [attached(0, "2026-11-20T10:00:00.000Z"), attached(1, "2026-11-19T10:00:00.000Z")].concat();
    let started =
        instance_of(&format!("{}<networkInterfaceSet>{interfaces}</networkInterfaceSet>", state("running")));
    assert_eq!(created(&started).to_string(), "2026-11-20T10:00:00Z");
    assert_eq!(created(&instance_of(&state("running"))).to_string(), "2026-11-24T11:57:18Z");
}

#[test]
fn without_a_private_name_the_name_of_the_machine_counts() {
    let mut found = instance_of(&format!("{}{}", state("pending"), tag_set(&GO_TAGS)));
    found.private_dns_name = Some(String::new());
    let name = |found: &Ec2Instance| instance("r", found.clone(), None).expect("valid").name.to_string();
    assert_eq!(name(&found), "shoot--foo--bar-worker-z1-6cc9b-vgztv");
    found.tag_set.item.clear();
    assert_eq!(name(&found), "i-abc3a7a20cf22279a");
}
