//! Tests of the planner.

use std::collections::{BTreeMap, BTreeSet};

use machinist_instance::{
    BalancerKey, BalancerSpec, BalancerTarget, Listener, ProviderId, SkipCause, TransportProtocol,
};
use serde_json::{Value, json};

use super::*;
use crate::balancer::reach::{Skip, Skips};
use crate::balancer::settings::Settings;
use crate::balancer::step::{OldTarget, note};
use crate::balancer::targets::Turned;
use crate::options::BalancerDefaults;

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
        claim: Default::default(),
        id: None,
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
    planned(shown, wish, &Skips::new()).steps
}

fn planned(shown: Value, wish: Wish, skips: &Skips) -> Plan {
    plan(
        &balancer(shown),
        &wanted(wish),
        Scope::Everything,
        Known { skips, turned: None, detached: &BTreeSet::new(), refused_turns: &Skips::new() },
    )
}

fn commands(shown: Value, wish: Wish) -> Vec<&'static str> {
    steps(shown, wish).iter().map(Step::command).collect()
}

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

/// A creation without an answer may still take effect, and only the first name prevents it.
#[test]
fn a_young_balancer_keeps_the_name_of_its_creation() {
    let renamed = |name: &str, created: Option<&str>, before: Option<&str>| {
        let mut wanted = wanted(Wish::with(&[("name", "edge")]));
        wanted.claim.renames_if_created_before = before.map(|before| before.parse().expect("a time"));
        let shown = balancer(json!({ "name": name, "created": created }));
        let known = Known {
            skips: &Skips::new(),
            turned: None,
            detached: &BTreeSet::new(),
            refused_turns: &Skips::new(),
        };
        let steps = plan(&shown, &wanted, Scope::Everything, known).steps;
        steps.iter().map(Step::command).collect::<Vec<_>>() == ["update_load_balancer"]
    };
    let (before, noon) = (Some("2026-01-01T11:59:59Z"), Some("2026-01-01T12:00:00Z"));
    assert!(renamed("a1", before, noon));
    assert!(!renamed("a1", noon, noon) && !renamed("a1", None, noon));
    assert!(renamed("other", noon, noon), "no creation has this name");
    assert!(renamed("a1", noon, None) && renamed("a1", None, None), "the caller names no limit");
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
    let wish = || Wish { ports: vec![(80, 30081), (443, 30443)], ..Wish::with(&options).in_network() };
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
    ];
    assert_eq!(commands(shown.clone(), wish()), expected);
    let turns = planned(shown, wish(), &Skips::new()).targets.turns;
    assert_eq!(turns.len(), 1, "{turns:?}");
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

/// The cloud removes the private targets of a balancer that leaves its network.
#[test]
fn targets_are_planned_after_the_read_that_follows_a_detach() {
    let shown = json!({"private_net": [{"network": 9, "ip": "10.9.0.2"}], "targets": []});
    let commands = commands(shown, Wish::with(&[("use-private-ip", "true")]).in_network());
    assert_eq!(commands, ["detach_from_network", "attach_to_network"]);
}

#[test]
fn services_are_added_replaced_and_updated() {
    let ports = |ports: &[(u16, u16)]| Wish { ports: ports.to_vec(), ..Wish::default() };
    assert_eq!(commands(json!({"services": []}), ports(&[(80, 30080)])), ["add_service"]);
    assert_eq!(commands(json!({}), ports(&[(443, 30443)])), ["delete_service", "add_service"]);
    assert_eq!(commands(json!({}), ports(&[(80, 30099)])), ["update_service"]);
    assert_eq!(commands(json!({}), ports(&[])), ["delete_service"]);
}

#[test]
fn targets_are_removed_before_others_are_added() {
    let wish = Wish { targets: vec!["hcloud://8", "hcloud://9"], ..Wish::default() };
    assert_eq!(commands(json!({}), wish), ["remove_target", "add_target", "add_target"]);
}

fn with_health(server: i64, use_private_ip: bool, status: &str) -> Value {
    let mut target = target(server, use_private_ip);
    target["health_status"] = json!([{"listen_port": 80, "status": status}]);
    target
}

/// The servers that are turned, and whether others wait.
fn turned(targets: Value, last: Option<i64>) -> (Vec<i64>, bool) {
    let shown = json!({"private_net": [{"network": 1, "ip": "10.0.0.2"}], "targets": targets});
    let wish = Wish {
        targets: vec!["hcloud://7", "hcloud://8", "hcloud://9"],
        ..Wish::with(&[("use-private-ip", "true")]).in_network()
    };
    let last = last.map(|server| Turned { server, healthy: vec![80] });
    let known = Known {
        skips: &Skips::new(),
        turned: last.as_ref(),
        detached: &BTreeSet::new(),
        refused_turns: &Skips::new(),
    };
    let plan = plan(&balancer(shown), &wanted(wish), Scope::Everything, known);
    assert_eq!(plan.steps, [], "no target is only removed");
    (plan.targets.turns.iter().map(|turn| turn.target.server).collect(), plan.targets.is_waiting)
}

/// A user changes `use-private-ip`.
#[test]
fn healthy_targets_change_their_address_one_by_one() {
    let shown = |a: Value, b: Value, c: Value| json!([a, b, c]);
    let healthy = |server, is_private| with_health(server, is_private, "healthy");
    let unhealthy = |server, is_private| with_health(server, is_private, "unhealthy");
    let before = || shown(healthy(7, false), healthy(8, false), healthy(9, false));
    assert_eq!(turned(before(), None), (vec![7], true));
    let checked = || shown(unhealthy(7, true), healthy(8, false), healthy(9, false));
    assert_eq!(turned(checked(), Some(7)), (vec![], true), "the first one is not healthy yet");
    let fresh = shown(target(7, true), healthy(8, false), healthy(9, false));
    assert_eq!(turned(fresh, Some(7)), (vec![], true), "its health is not known yet");
    let proven = shown(healthy(7, true), healthy(8, false), healthy(9, false));
    assert_eq!(turned(proven, Some(7)), (vec![8], true));
    assert_eq!(turned(shown(healthy(7, true), healthy(8, true), healthy(9, true)), Some(8)), (vec![], false));
    // Two Nodes have no pods of the Service, and were turned at once. The third one is the first
    // that carries traffic.
    assert_eq!(
        turned(shown(unhealthy(7, true), unhealthy(8, true), healthy(9, false)), None),
        (vec![9], true)
    );
    // Targets without traffic need no order.
    assert_eq!(
        turned(shown(unhealthy(7, false), target(8, false), healthy(9, true)), None),
        (vec![7, 8], false)
    );
}

/// A process that takes over continues with what the balancer says about the last target.
#[test]
fn the_last_changed_target_is_a_label_of_the_balancer() {
    let of = |text: &str| Turned::of(&[(TURNED.to_owned(), text.to_owned())].into());
    for (healthy, text) in [(vec![], "42"), (vec![80], "42.80"), (vec![80, 443], "42.80.443")] {
        let turned = Turned { server: 42, healthy };
        assert_eq!(turned.label(), text);
        assert_eq!(of(text), Some(turned));
    }
    for wrong in ["", "x", "42.", "42.http", "42.99999"] {
        assert_eq!(of(wrong), None, "{wrong:?}");
    }
    let many = Turned { server: i64::MAX, healthy: (10_001..10_020).collect() };
    let fits = of(&many.label()).expect("a label");
    assert!(many.label().len() <= 63 && many.healthy.starts_with(&fits.healthy), "{}", many.label());
    // The label goes when no target is left that waits.
    let labelled = |is_private: [bool; 2]| {
        let targets = [with_health(7, is_private[0], "healthy"), with_health(8, is_private[1], "healthy")];
        let labels = json!({"hcloud-ccm/service-uid": "uid-1", TURNED: "7.80", "env": "prod"});
        let net = json!([{"network": 1, "ip": "10.0.0.2"}]);
        let shown = json!({"private_net": net, "labels": labels, "targets": targets});
        let with = Wish::with(&[("use-private-ip", "true")]).in_network();
        steps(shown, Wish { targets: vec!["hcloud://7", "hcloud://8"], ..with })
    };
    assert_eq!(labelled([true, false]), []);
    let removed = labelled([true, true]);
    let [Step::Update { labels, .. }] = &removed[..] else { panic!("one update: {removed:?}") };
    assert_eq!(labels.keys().collect::<Vec<_>>(), ["env", "hcloud-ccm/service-uid"]);
}

#[test]
fn a_target_that_cannot_change_keeps_its_address() {
    let shown = json!({"private_net": [{"network": 1, "ip": "10.0.0.2"}]});
    let skip = Skip { cause: SkipCause::Shown(None), message: "not attached".to_owned() };
    let wish = Wish::with(&[("use-private-ip", "true")]).in_network();
    let plan = planned(shown, wish, &Skips::from([(7, skip)]));
    assert_eq!((plan.steps, plan.targets.turns.len(), plan.targets.skipped.len()), (vec![], 0, 1));
}

/// The type of the balancer limits the number of its targets.
#[test]
fn targets_beyond_the_limit_are_skipped() {
    let shown = json!({"load_balancer_type": {"name": "lb11", "max_targets": 2}});
    let wish = Wish { targets: vec!["hcloud://7", "hcloud://8", "hcloud://9"], ..Wish::default() };
    let plan = planned(shown, wish, &Skips::new());
    assert_eq!(plan.steps.iter().map(Step::command).collect::<Vec<_>>(), ["add_target"]);
    let skipped: Vec<_> =
        plan.targets.skipped.iter().map(|target| (target.node.as_str(), &target.cause)).collect();
    assert_eq!(skipped, [("node-9", &SkipCause::Full)]);
    let note = note(&plan.targets.skipped[0]);
    assert_eq!((note.reason, note.message.contains("node-9")), ("MaxTargetsReached", true));
}

#[test]
fn a_refused_target_is_not_planned_again() {
    let wish = Wish { targets: vec!["hcloud://7", "hcloud://8"], ..Wish::default() };
    let skip = Skip { cause: SkipCause::Refused, message: "no".to_owned() };
    let plan = planned(json!({}), wish, &Skips::from([(8, skip)]));
    assert_eq!((plan.steps, plan.targets.skipped.len()), (Vec::new(), 1));
}

#[test]
fn selector_targets_stay_and_address_targets_are_removed() {
    let ip = json!({"type": "ip", "ip": {"ip": "198.51.100.1"}});
    let selector = json!({"type": "label_selector", "label_selector": {"selector": "a=b"}});
    let shown = json!({"targets": [target(7, false), ip, selector, {"type": "a_new_sort"}]});
    let expected = [Step::RemoveTarget(OldTarget::Ip("198.51.100.1".to_owned()))];
    assert_eq!(steps(shown.clone(), Wish::default()), expected);
    let with_robot = Wish { targets: vec!["hcloud://7", "hrobot://1"], ..Wish::default() };
    assert_eq!(steps(shown.clone(), with_robot), []);
    let known = Known {
        skips: &Skips::new(),
        turned: None,
        detached: &BTreeSet::new(),
        refused_turns: &Skips::new(),
    };
    let following = plan(&balancer(shown), &wanted(Wish::default()), Scope::Targets, known);
    assert_eq!(following.steps, [], "a call that only follows the Nodes removes none");
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

/// A target was removed to get a private address, and then its server left the network.
#[test]
fn a_removed_target_gets_its_old_address_back() {
    let planned = |detached: &[i64], labels: Value| {
        let mut wish = Wish::with(&[("use-private-ip", "true")]).in_network();
        wish.targets.push("hcloud://8");
        let attached = json!([{"network": 1, "ip": "10.0.0.9"}]);
        let shown = balancer(json!({
            "private_net": attached, "targets": [target(7, true)], "labels": labels,
        }));
        let skip = Skip { cause: SkipCause::Refused, message: "not attached".to_owned() };
        let (skips, turned) = (Skips::from([(8, skip)]), Turned::of(&shown.labels));
        let detached = detached.iter().copied().collect();
        let known = Known {
            skips: &skips,
            turned: turned.as_ref(),
            detached: &detached,
            refused_turns: &Skips::new(),
        };
        plan(&shown, &wanted(wish), Scope::Everything, known)
    };
    let label = |last: &str| json!({"hcloud-ccm/service-uid": "uid-1", "machinist.dev/turned-target": last});
    let removed = planned(&[8], label("8.80"));
    let [Step::AddTarget { target, use_private_ip: false }] = &removed.steps[..] else {
        panic!("one step, and the label stays: {:?}", removed.steps)
    };
    assert_eq!(target.server, 8);
    assert_eq!(removed.targets.skipped[0].message, "not attached", "the reason is named");
    let never = planned(&[], json!({"hcloud-ccm/service-uid": "uid-1"}));
    assert_eq!(never.steps, [], "a target that was never there is only skipped");
}
