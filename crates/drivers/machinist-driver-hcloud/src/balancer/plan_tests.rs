//! Tests of the planner.

use std::collections::BTreeMap;

use machinist_instance::{
    BalancerKey, BalancerSpec, BalancerTarget, Listener, ProviderId, TransportProtocol,
};
use serde_json::{Value, json};

use super::*;
use crate::BalancerDefaults;
use crate::balancer::settings::Settings;

/// A balancer that equals the wanted state of [`wanted`] without options.
fn balancer(changes: Value) -> LoadBalancer {
    let mut balancer = json!({
        "id": 5, "name": "a1", "labels": {"hcloud-ccm/service-uid": "uid-1", "env": "prod"},
        "public_net": {
            "enabled": true, "ipv4": {"ip": "192.0.2.1", "dns_ptr": "one.example"},
            "ipv6": {"ip": "2001:db8::1", "dns_ptr": null},
        },
        "private_net": [], "algorithm": {"type": "round_robin"},
        "load_balancer_type": {"name": "lb11", "max_targets": 25},
        "services": [service(80, 30080)],
        "targets": [target(7, false)],
    });
    for (name, value) in changes.as_object().expect("an object") {
        balancer[name] = value.clone();
    }
    serde_json::from_value(balancer).expect("a balancer")
}

fn service(listen: u16, destination: u16) -> Value {
    json!({
        "protocol": "tcp", "listen_port": listen, "destination_port": destination, "proxyprotocol": false,
        "health_check": {"protocol": "tcp", "port": destination},
    })
}

fn target(server: i64, use_private_ip: bool) -> Value {
    json!({"type": "server", "server": {"id": server}, "use_private_ip": use_private_ip})
}

struct Wish {
    ports: Vec<(u16, u16)>,
    targets: Vec<&'static str>,
    options: Vec<(&'static str, &'static str)>,
    network: Option<i64>,
}

impl Default for Wish {
    fn default() -> Self {
        Self { ports: vec![(80, 30080)], targets: vec!["hcloud://7"], options: Vec::new(), network: None }
    }
}

impl Wish {
    fn with(options: &[(&'static str, &'static str)]) -> Self {
        Self { options: options.to_vec(), ..Self::default() }
    }

    fn in_network(self) -> Self {
        Self { network: Some(1), ..self }
    }
}

fn wanted(wish: Wish) -> Wanted {
    let listener = |(port, target_port)| Listener { protocol: TransportProtocol::Tcp, port, target_port };
    let target = |id: &str| BalancerTarget {
        node: format!("node-{}", id.rsplit('/').next().unwrap_or_default()),
        instance: ProviderId::parse(id).expect("not empty"),
        weight: BalancerTarget::FULL_WEIGHT,
    };
    let options = wish.options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let spec = BalancerSpec {
        key: BalancerKey::new("uid-1"),
        native_id: None,
        name: "a1".to_owned(),
        listeners: wish.ports.into_iter().map(listener).collect(),
        targets: wish.targets.into_iter().map(target).collect(),
        options: options.collect::<BTreeMap<_, _>>(),
    };
    let settings = Settings::parse(&spec.options, &BalancerDefaults::default(), &spec.key).expect("valid");
    Wanted::new(&spec, settings, wish.network, None).expect("valid")
}

fn steps(shown: Value, wish: Wish) -> Vec<Step> {
    plan(&balancer(shown), &wanted(wish), &BTreeSet::new()).steps
}

fn commands(shown: Value, wish: Wish) -> Vec<&'static str> {
    steps(shown, wish).iter().map(Step::command).collect()
}

/// TH-31.
#[test]
fn an_equal_balancer_needs_no_step() {
    assert_eq!(commands(json!({}), Wish::default()), [""; 0]);
    let options = [
        ("name", "a1"),
        ("type", "lb11"),
        ("algorithm-type", "round_robin"),
        ("disable-public-network", "false"),
        ("ipv4-rdns", "one.example"),
        ("uses-proxyprotocol", "false"),
        ("protocol", "tcp"),
    ];
    assert_eq!(commands(json!({}), Wish::with(&options)), [""; 0]);
    let attached = json!({"private_net": [{"network": 1, "ip": "10.0.0.9"}]});
    assert_eq!(commands(attached, Wish::with(&[("private-ipv4", "10.0.0.9")]).in_network()), [""; 0]);
}

/// TH-30.
#[test]
fn a_missing_or_stale_label_is_set_and_others_are_kept() {
    for labels in [json!({"env": "prod"}), json!({"env": "prod", "hcloud-ccm/service-uid": "uid-0"})] {
        let labelled = [("env", "prod"), ("hcloud-ccm/service-uid", "uid-1")];
        let labels_wanted = labelled.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let expected = Step::Update { name: "a1".to_owned(), labels: labels_wanted };
        assert_eq!(steps(json!({ "labels": labels }), Wish::default()), [expected]);
    }
    assert_eq!(commands(json!({"name": "old"}), Wish::default()), ["update_load_balancer"]);
}

#[test]
fn differences_are_listed_in_the_documented_order() {
    let options = [
        ("name", "edge"),
        ("ipv4-rdns", "four.example"),
        ("ipv6-rdns", "six.example"),
        ("algorithm-type", "least_connections"),
        ("type", "lb21"),
        ("disable-public-network", "true"),
        ("use-private-ip", "true"),
    ];
    let wish = Wish { ports: vec![(80, 30081), (443, 30443)], ..Wish::with(&options).in_network() };
    let shown = json!({"services": [service(80, 30080), service(8080, 30808)]});
    let expected = [
        "update_load_balancer",
        "change_dns_ptr",
        "change_dns_ptr",
        "change_algorithm",
        "change_load_balancer_type",
        "attach_to_network",
        "disable_public_interface",
        "delete_service",
        "update_service",
        "add_service",
        "remove_target",
        "add_target",
    ];
    assert_eq!(commands(shown, wish), expected);
}

#[test]
fn parts_without_an_option_are_not_changed() {
    let by_hand = json!({
        "algorithm": {"type": "least_connections"},
        "load_balancer_type": {"name": "lb31"},
        "private_net": [{"network": 9, "ip": "10.9.0.2"}],
        "public_net": {"enabled": false, "ipv4": {"ip": "192.0.2.1", "dns_ptr": "by.hand"}},
    });
    assert_eq!(commands(by_hand, Wish::default()), [""; 0]);
}

#[test]
fn networks_other_than_the_configured_one_are_detached() {
    let elsewhere = json!({"private_net": [{"network": 9, "ip": "10.9.0.2"}]});
    let attach = Step::AttachToNetwork { network: 1, ip: None, ip_range: None };
    assert_eq!(steps(elsewhere, Wish::default().in_network()), [Step::DetachFromNetwork(9), attach]);
}

#[test]
fn another_private_address_is_attached_after_detaching() {
    let attached = json!({"private_net": [{"network": 1, "ip": "10.0.0.2"}]});
    let wish = Wish::with(&[("private-ipv4", "10.0.0.9"), ("private-subnet-ip-range", "10.0.0.0/24")]);
    let expected = [
        Step::DetachFromNetwork(1),
        Step::AttachToNetwork {
            network: 1,
            ip: Some("10.0.0.9".parse().expect("an address")),
            ip_range: Some("10.0.0.0/24".to_owned()),
        },
    ];
    assert_eq!(steps(attached, wish.in_network()), expected);
}

/// Step 6 of ccm-spec 4.4.
#[test]
fn targets_are_planned_after_the_read_that_follows_a_detach() {
    let shown = json!({"private_net": [{"network": 9, "ip": "10.9.0.2"}], "targets": []});
    let commands = commands(shown, Wish::with(&[("use-private-ip", "true")]).in_network());
    assert_eq!(commands, ["detach_from_network", "attach_to_network"]);
}

/// TH-28.
#[test]
fn services_are_added_replaced_and_updated() {
    let ports = |ports: &[(u16, u16)]| Wish { ports: ports.to_vec(), ..Wish::default() };
    assert_eq!(commands(json!({"services": []}), ports(&[(80, 30080)])), ["add_service"]);
    assert_eq!(commands(json!({}), ports(&[(443, 30443)])), ["delete_service", "add_service"]);
    assert_eq!(commands(json!({}), ports(&[(80, 30099)])), ["update_service"]);
    assert_eq!(commands(json!({}), ports(&[])), ["delete_service"]);
}

/// TH-27: two are added, and unused ones are removed first.
#[test]
fn targets_are_removed_before_others_are_added() {
    let wish = Wish { targets: vec!["hcloud://8", "hcloud://9"], ..Wish::default() };
    assert_eq!(commands(json!({}), wish), ["remove_target", "add_target", "add_target"]);
}

/// TH-27: the flip of `use-private-ip`.
#[test]
fn a_target_with_another_address_sort_is_replaced() {
    let attached = json!({"private_net": [{"network": 1, "ip": "10.0.0.2"}]});
    let wish = Wish::with(&[("use-private-ip", "true")]).in_network();
    let expected = [
        Step::RemoveTarget(OldTarget::Server(7)),
        Step::AddTarget {
            target: WantedTarget { server: 7, node: "node-7".to_owned() },
            use_private_ip: true,
        },
    ];
    assert_eq!(steps(attached, wish), expected);
}

/// TH-27: the limit of the balancer's type.
#[test]
fn targets_beyond_the_limit_become_notes() {
    let shown = json!({"load_balancer_type": {"name": "lb11", "max_targets": 2}});
    let wish = Wish { targets: vec!["hcloud://7", "hcloud://8", "hcloud://9"], ..Wish::default() };
    let plan = plan(&balancer(shown), &wanted(wish), &BTreeSet::new());
    assert_eq!(plan.steps.iter().map(Step::command).collect::<Vec<_>>(), ["add_target"]);
    let notes: Vec<_> =
        plan.notes.iter().map(|note| (note.reason, note.message.contains("node-9"))).collect();
    assert_eq!(notes, [("MaxTargetsReached", true)]);
}

#[test]
fn a_refused_target_is_not_planned_again() {
    let wish = Wish { targets: vec!["hcloud://7", "hcloud://8"], ..Wish::default() };
    let plan = plan(&balancer(json!({})), &wanted(wish), &BTreeSet::from([8]));
    assert_eq!(plan, Plan { steps: Vec::new(), notes: Vec::new() });
}

#[test]
fn selector_targets_stay_and_address_targets_are_removed() {
    let ip = json!({"type": "ip", "ip": {"ip": "198.51.100.1"}});
    let selector = json!({"type": "label_selector", "label_selector": {"selector": "a=b"}});
    let shown = json!({"targets": [target(7, false), ip, selector, {"type": "a_new_sort"}]});
    let expected = [Step::RemoveTarget(OldTarget::Ip("198.51.100.1".to_owned()))];
    assert_eq!(steps(shown.clone(), Wish::default()), expected);
    let with_robot = Wish { targets: vec!["hcloud://7", "hrobot://1"], ..Wish::default() };
    assert_eq!(steps(shown, with_robot), []);
}

#[test]
fn a_balancer_without_addresses_is_unfinished() {
    assert_eq!(unfinished(&balancer(json!({}))), None);
    let creating = json!({"public_net": {"enabled": true, "ipv4": {"ip": null}, "ipv6": {}}});
    assert_eq!(unfinished(&balancer(creating)), Some("create_load_balancer"));
    let attaching = json!({"private_net": [{"network": 1, "ip": null}]});
    assert_eq!(unfinished(&balancer(attaching)), Some("attach_to_network"));
    assert_eq!(unfinished(&balancer(json!({"public_net": {"enabled": false}}))), None);
}
