//! Tests of the route planner: each test builds a snapshot and checks the plan.

use expect_test::{Expect, expect};
use k8s_openapi::api::core::v1::Node;
use machinist_core::{Answered, FreshRead, Silence};
use machinist_instance::{AccountId, Error, ErrorKind, Progress, ProviderId, RouteTable};
use serde_json::{Value, json};

use super::*;
use crate::ccm::account::Proof;
use crate::testing::{self, at};

fn parse(node: Value) -> CloudNodeFacts {
    let node: Node = serde_json::from_value(node).expect("a Node");
    CloudNodeFacts::parse(&node)
}

/// A Node with these pod networks, and the internal address 10.0.0.NUMBER.
fn node(number: u32, pod_cidrs: &[&str]) -> RoutedNode {
    let node = json!({
        "metadata": {
            "name": format!("n{number}"), "uid": format!("uid-{number}"),
            "creationTimestamp": at(i64::from(number)).to_string(),
        },
        "spec": {"providerID": format!("sim://{number}"), "podCIDRs": pod_cidrs},
        "status": {"addresses": [{"type": "InternalIP", "address": format!("10.0.0.{number}")}]},
    });
    RoutedNode { node: Arc::new(parse(node)), recorded: RecordedId::any(&format!("sim://{number}")) }
}

/// A route to an instance and its address; instance 0 does not exist.
fn route(destination: &str, number: u32) -> Route {
    let instance = (number > 0).then(|| ProviderId::parse(&format!("sim://{number}")).expect("not empty"));
    let gateway = format!("10.0.0.{number}").parse().expect("an address");
    Route { destination: destination.to_owned(), gateway, instance }
}

/// A table with these routes, in a cloud that accepts routes to the addresses of all Nodes.
fn table(routes: &[Route]) -> RouteTable {
    let gateways = (1..10).filter_map(|number| {
        let route = route("", number);
        Some((route.instance?, route.gateway))
    });
    RouteTable { routes: routes.to_vec(), limit: Some(100), gateways: gateways.collect() }
}

/// Two Nodes, and these routes.
fn cluster(routes: &[Route]) -> Snapshot {
    let table = table(routes);
    let account = Some(AccountId::of([&b"sim"[..]]));
    let listed = ListedRoutes {
        account: account.clone(),
        started: at(-60),
        ended: at(-60),
        table: Arc::new(table),
        has_assumed: false,
    };
    let cluster = ["10.244.0.0/16", "fd00::/48"].map(|text| text.parse().expect("a network")).to_vec();
    let period = Duration::from_secs(300);
    Snapshot {
        now: at(0),
        options: Arc::new(Options { cluster, period, follows_addresses: false }),
        nodes: vec![node(1, &["10.244.1.0/24"]), node(2, &["10.244.2.0/24"])],
        is_synced: true,
        nodes_freshness: Freshness::Fresh,
        account: AccountFacts { id: account, ..AccountFacts::default() },
        memory: RouteMemory { listed: Some(listed), ..RouteMemory::default() },
        emitted: Arc::default(),
    }
}

/// A credential of another project, where other clusters have their routes.
#[test]
fn routes_of_another_account_are_left_alone() {
    let foreign = [route("10.244.1.0/24", 9)];
    let wrong = |s: &Snapshot| plan(s).actions.iter().any(|action| matches!(action, Action::Delete(_)));
    assert!(wrong(&cluster(&foreign)), "in the right account, the route is in the way");
    for proof in [Proof::Unlisted, Proof::Missing] {
        let mut s = cluster(&foreign);
        s.account.proof = proof;
        assert!(plan(&s).actions.is_empty(), "{proof:?}");
    }
    let mut renewed = cluster(&foreign);
    renewed.account.id = Some(AccountId::of([&b"other"[..]]));
    let planned = plan(&renewed);
    assert!(matches!(planned.actions[..], [Action::List]), "the table is of the old account: {planned}");
}

/// A list of servers that lacks one proves nothing.
#[test]
fn a_route_over_the_address_of_its_node_is_kept() {
    let mut hole = route("10.244.1.0/24", 1);
    hole.instance = None;
    let planned = plan(&cluster(&[hole, route("10.244.2.0/24", 2)]));
    assert!(
        !planned.actions.iter().any(|action| matches!(action, Action::Delete(_) | Action::Create(_))),
        "{planned}"
    );
}

/// The Node of a dedicated server: its user made the route.
#[test]
fn routes_of_nodes_elsewhere_are_kept() {
    let mut s = cluster(&[route("10.244.7.0/24", 0), route("10.244.1.0/24", 1), route("10.244.2.0/24", 2)]);
    s.memory.abandoned = since(-180, &route("10.244.7.0/24", 0));
    let is_deleted = |s: &Snapshot| plan(s).actions.iter().any(|action| matches!(action, Action::Delete(_)));
    assert!(is_deleted(&s), "no Node wants it");
    let mut elsewhere = node(7, &["10.244.7.0/24"]);
    elsewhere.recorded = RecordedId::NotOurs { expected: "sim://ID".to_owned() };
    s.nodes.push(elsewhere);
    assert!(!is_deleted(&s));
}

/// This program could not create them again if the Node comes back.
#[test]
fn routes_of_nodes_that_were_elsewhere_are_kept() {
    let gone = route("10.244.7.0/24", 0);
    let hole = Route { instance: None, ..route("10.244.8.0/24", 7) };
    let routes = [gone.clone(), hole.clone(), route("10.244.1.0/24", 1), route("10.244.2.0/24", 2)];
    let left = |recorded: RecordedId| {
        let mut s = cluster(&routes);
        // Its pod network is the first destination, and its address the second gateway.
        s.nodes.push(RoutedNode { recorded, ..node(7, &["10.244.7.0/24"]) });
        s.memory.elsewhere = elsewhere(&s);
        s.nodes.pop();
        abandoned(&s).into_keys().collect::<Vec<_>>()
    };
    assert_eq!(left(RecordedId::NotOurs { expected: "sim://ID".to_owned() }), []);
    let both = [RouteChange::delete(&gone), RouteChange::delete(&hole)];
    assert_eq!(left(RecordedId::Unset), both, "it may have been one of this cloud");
    let mut s = cluster(&routes);
    s.memory.elsewhere = both.into();
    assert_eq!(elsewhere(&s).len(), 2);
    s.memory.take_list(answered(0, Ok(table(&routes[1..]))));
    assert_eq!(elsewhere(&s), [RouteChange::delete(&hole)].into(), "a deleted route is forgotten");
}

/// A user may have made one of them.
#[test]
fn deleted_routes_without_a_node_are_named_in_one_event() {
    let holes = [route("10.244.8.0/24", 0), route("10.244.9.0/24", 0)];
    let mut s = cluster(&[both(), holes.to_vec()].concat());
    s.memory.abandoned = holes.iter().map(|hole| (RouteChange::delete(hole), at(-180))).collect();
    let emitted = |s: &mut Snapshot| {
        let planned = plan(s).actions.into_iter().filter_map(|action| match action {
            Action::Tell { node: None, event } => Some(event),
            _ => None,
        });
        let events: Vec<_> = planned.collect();
        let mut emitted = (*s.emitted).clone();
        events.iter().for_each(|event| emitted.note(event, s.now));
        s.emitted = Arc::new(emitted);
        events.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(emitted(&mut s), Vec::<String>::new());
    s.memory.take_delete(&holes[0], answered(1, Ok(Progress::Done(()))));
    expect![[r#"
        warning DeletedAbandonedRoute: Deleted routes to which neither a Node nor a server belongs: 10.244.8.0/24 over 10.0.0.0. If you made one of them, create it again in the cloud. A Node with that pod network keeps it."#]]
    .assert_eq(&emitted(&mut s).join("\n"));
    assert_eq!(emitted(&mut s), Vec::<String>::new(), "once");
    s.memory.take_delete(&holes[1], answered(2, Ok(Progress::Working("delete_route".to_owned()))));
    let second = emitted(&mut s).join("\n");
    assert!(second.contains(": 10.244.8.0/24 over 10.0.0.0, 10.244.9.0/24 over 10.0.0.0. If"), "{second}");
    s.memory.take_delete(&both()[0], answered(700, Ok(Progress::Done(()))));
    assert_eq!(s.memory.deleted, BTreeMap::new(), "only routes without a Node, and not forever");
}

/// The route has had no Node since that second.
fn since(second: i64, route: &Route) -> BTreeMap<RouteChange, Timestamp> {
    [(RouteChange::delete(route), at(second))].into()
}

fn both() -> Vec<Route> {
    vec![route("10.244.1.0/24", 1), route("10.244.2.0/24", 2)]
}

fn with_nodes(routes: &[Route], nodes: Vec<RoutedNode>) -> Snapshot {
    Snapshot { nodes, ..cluster(routes) }
}

fn answered<T>(second: i64, answer: Result<T, Error>) -> Answered<T> {
    testing::answered(second, AccountId::of([&b"sim"[..]]), answer)
}

/// Returns the planned calls and conditions.
fn actions(s: &Snapshot) -> Vec<String> {
    let plan = plan(s);
    let is_later = !matches!(plan.wait, machinist_core::Wait::Until(until) if until <= s.now);
    assert!(is_later || !plan.actions.is_empty(), "called again at once: {plan}");
    plan.actions.iter().map(ToString::to_string).collect()
}

/// Returns the planned calls of the driver.
fn calls(s: &Snapshot) -> Vec<String> {
    actions(s).into_iter().filter(|action| action.starts_with("driver")).collect()
}

fn check(s: &Snapshot, expected: Expect) {
    expected.assert_eq(&plan(s).to_string());
}

/// Carries out all planned calls without failures, and returns the routes at the end. The cloud
/// allows one route per destination.
fn play(mut s: Snapshot) -> Vec<Route> {
    for _ in 0..50 {
        let Some(call) = plan(&s)
            .actions
            .into_iter()
            .find(|action| matches!(action, Action::List | Action::Create(_) | Action::Delete(_)))
        else {
            let mut routes = s.memory.listed.expect("listed").table.routes.clone();
            routes.sort();
            return routes;
        };
        let table = &s.memory.listed.as_ref().expect("listed").table;
        match call {
            Action::Create(spec) => {
                let is_free = table.routes.iter().all(|route| route.destination != spec.destination);
                assert!(is_free, "{} is deleted before it is created", spec.destination);
                s.memory.take_create(&spec, answered(0, Ok(Progress::Done(()))));
            }
            Action::Delete(route) => {
                assert!(table.routes.contains(&route), "only listed routes are deleted");
                s.memory.take_delete(&route, answered(0, Ok(Progress::Done(()))));
            }
            Action::List => {
                let table = (**table).clone();
                s.memory.take_list(answered(0, Ok(table)));
            }
            Action::ReadNodes | Action::SetNetwork(_) | Action::Tell { .. } => {}
        }
    }
    panic!("the routes are never complete")
}

#[test]
fn every_pod_network_gets_a_route() {
    check(
        &cluster(&[]),
        expect![[r#"
        do    driver: create the route to 10.244.1.0/24 over sim://1
        why   waiting for the cloud to create the route; next: the cloud answers
        wait  until 2027-01-15T08:04:00Z
    "#]],
    );
    let one = cluster(&both()[1..]);
    assert_eq!(calls(&one), ["driver: create the route to 10.244.1.0/24 over sim://1"]);
    check(
        &cluster(&both()),
        expect![[r#"
        do    node n1: NetworkUnavailable=False, RouteCreated
        do    node n2: NetworkUnavailable=False, RouteCreated
        why   up to date
        wait  until 2027-01-15T08:04:00Z
    "#]],
    );
    for routes in [&[][..], &both()[..1], &both()] {
        assert_eq!(play(cluster(routes)), both());
    }
    let dual = vec![node(1, &["10.244.1.0/24", "fd00:1::/64"])];
    let expected = vec![route("10.244.1.0/24", 1), route("fd00:1::/64", 1)];
    assert_eq!(play(with_nodes(&[], dual)), expected);
}

/// Only routes inside the network of the cluster are deleted.
#[test]
fn routes_without_an_instance_are_deleted() {
    let plus = |extra: Route| -> Vec<Route> { both().into_iter().chain([extra]).collect() };
    let mut inside = cluster(&plus(route("10.244.9.0/24", 0)));
    inside.memory.abandoned = since(-180, &route("10.244.9.0/24", 0));
    assert_eq!(play(inside), both(), "inside the network of the cluster");
    let outside = plus(route("10.9.9.0/24", 0));
    assert_eq!(calls(&cluster(&outside)), Vec::<String>::new(), "outside the network of the cluster");
    let of_server = plus(route("10.244.9.0/24", 9));
    assert_eq!(calls(&cluster(&of_server)), Vec::<String>::new(), "the instance exists");
    let of_node = plus(route("10.244.9.0/24", 1));
    assert_eq!(play(cluster(&of_node)), both(), "its Node wants other destinations");
    let unparsable = plus(route("default", 0));
    assert_eq!(calls(&cluster(&unparsable)), Vec::<String>::new());
}

/// A kubelet registers its Node again, and the list of instances lacks one. Its pods run on.
#[test]
fn the_route_of_a_node_that_comes_back_is_kept() {
    let hole = Route { instance: None, ..route("10.244.2.0/24", 2) };
    let routes = [route("10.244.1.0/24", 1), hole.clone()];
    let without = |second: i64, listed: i64| {
        let mut s = with_nodes(&routes, vec![node(1, &["10.244.1.0/24"])]);
        (s.now, s.memory.abandoned) = (at(second), abandoned(&s));
        let listed = answered(listed, Ok(table(&routes)));
        s.memory.take_list(listed);
        s
    };
    assert_eq!(without(0, -1).memory.abandoned, since(0, &hole));
    assert_eq!(calls(&without(0, -1)), Vec::<String>::new());
    assert_eq!(calls(&without(119, 118)), Vec::<String>::new());
    let planned = plan(&without(119, 118));
    assert!(planned.to_string().contains(&format!("wait  until {}", at(120))), "{planned}");
    assert_eq!(calls(&without(120, 118)), ["driver: list routes"], "the list is older");
    assert_eq!(calls(&without(121, 120)), ["driver: delete the route to 10.244.2.0/24 over 10.0.0.2"]);

    // It is back, at first without provider id, then without addresses.
    let mut back = node(2, &["10.244.2.0/24"]);
    let facts = (*back.node).clone();
    back.node = Arc::new(CloudNodeFacts { addresses: None, ..facts });
    let unset = RoutedNode { recorded: RecordedId::Unset, ..back.clone() };
    for back in [unset, back] {
        let mut s = without(121, 120);
        s.nodes.push(back);
        assert!(!calls(&s).iter().any(|call| call.contains("delete")), "{:?}", calls(&s));
        assert_eq!(abandoned(&s), BTreeMap::new(), "the next departure starts a new count");
    }
    let mut unsynced = without(121, 120);
    unsynced.is_synced = false;
    assert_eq!(abandoned(&unsynced), BTreeMap::new());
}

/// The Node may have come back, or another one may want its destination.
#[test]
fn a_silent_watch_of_nodes_changes_no_route() {
    let hole = route("10.244.9.0/24", 0);
    let silent = |routes: &[Route], read| {
        let mut s = cluster(routes);
        s.memory.abandoned = since(-180, &hole);
        let silence = Silence { server: "the API server".to_owned(), since: at(-200), read };
        s.nodes_freshness = Freshness::Stale(silence);
        plan(&s)
    };
    let with_hole: Vec<Route> = both().into_iter().chain([hole.clone()]).collect();
    for routes in [&with_hole, &both()[..1]] {
        let planned = silent(routes, FreshRead::Possible);
        let reads = planned.actions.iter().filter(|action| matches!(action, Action::ReadNodes)).count();
        let calls =
            planned.actions.iter().filter(|action| matches!(action, Action::Create(_) | Action::Delete(_)));
        assert_eq!((reads, calls.count()), (1, 0), "{planned}");
        let waits = silent(routes, FreshRead::Failed(at(20)));
        assert_eq!(waits.wait, machinist_core::Wait::Until(at(20)), "{waits}");
        assert_eq!(waits.why.reason.code(), "ServerSilent");
    }
    let settled = silent(&both(), FreshRead::Possible);
    assert!(
        !settled.actions.iter().any(|action| matches!(action, Action::ReadNodes)),
        "nothing is due: {settled}"
    );
}

/// In a network of another cluster, its routes over gateways that are not servers look the same.
#[test]
fn no_route_is_abandoned_while_no_node_is_of_this_cloud() {
    let foreign = RoutedNode { recorded: RecordedId::Unset, ..node(3, &["10.244.3.0/24"]) };
    let s = with_nodes(&[route("10.244.9.0/24", 0)], vec![foreign]);
    assert_eq!(abandoned(&s), BTreeMap::new());
}

/// Many Nodes were replaced at once, and a network has a limit.
#[test]
fn abandoned_routes_make_room_for_others() {
    let hole = route("10.244.9.0/24", 0);
    let with_limit = |limit: usize, listed: i64| {
        let routes = [route("10.244.1.0/24", 1), hole.clone()];
        let mut s = cluster(&routes);
        let table = RouteTable { limit: Some(limit), ..table(&routes) };
        s.memory.abandoned = since(-10, &hole);
        s.memory.take_list(answered(listed, Ok(table)));
        calls(&s)
    };
    assert_eq!(with_limit(3, -5), ["driver: create the route to 10.244.2.0/24 over sim://2"]);
    assert_eq!(with_limit(2, -5), ["driver: delete the route to 10.244.9.0/24 over 10.0.0.0"]);
    assert_eq!(with_limit(2, -15), ["driver: list routes"], "the Node was there when the list began");
}

#[test]
fn crossed_routes_are_replaced() {
    let crossed = [route("10.244.1.0/24", 2), route("10.244.2.0/24", 1)];
    assert_eq!(calls(&cluster(&crossed)), ["driver: delete the route to 10.244.1.0/24 over 10.0.0.2"]);
    assert_eq!(play(cluster(&crossed)), both());
    let nodes = vec![node(1, &["10.244.1.0/24", "fd00:1::/64"]), node(2, &["10.244.2.0/24", "fd00:2::/64"])];
    let crossed = [
        route("10.244.1.0/24", 1),
        route("10.244.2.0/24", 2),
        route("fd00:1::/64", 2),
        route("fd00:2::/64", 1),
    ];
    let expected = [
        route("10.244.1.0/24", 1),
        route("10.244.2.0/24", 2),
        route("fd00:1::/64", 1),
        route("fd00:2::/64", 2),
    ];
    let mut expected = expected.to_vec();
    expected.sort();
    assert_eq!(play(with_nodes(&crossed, nodes)), expected);
    let twice = [route("10.244.1.0/24", 1), route("10.244.1.0/24", 2), route("10.244.2.0/24", 2)];
    assert_eq!(play(cluster(&twice)), both(), "one destination has one route");
}

#[test]
fn a_node_without_pod_networks_is_skipped() {
    let s = with_nodes(&both(), vec![node(1, &["10.244.1.0/24"]), node(2, &[])]);
    assert_eq!(actions(&s), ["node n1: NetworkUnavailable=False, RouteCreated"]);
    let foreign = RoutedNode { recorded: RecordedId::Unset, ..node(3, &["10.244.3.0/24"]) };
    assert_eq!(actions(&with_nodes(&[], vec![foreign])), Vec::<String>::new());
}

/// Another program may write a network in a form that this one does not accept.
#[test]
fn an_unreadable_pod_network_deletes_no_route() {
    let nodes = |pods| vec![node(1, &[pods]), node(2, &["10.244.2.0/24"])];
    assert_eq!(calls(&with_nodes(&both(), nodes("10.244.1.0/024"))), Vec::<String>::new());
    assert_eq!(
        calls(&with_nodes(&both(), nodes("10.244.3.0/24"))).len(),
        1,
        "one call at a time for the network that changed"
    );
    // The list of instances may lack the instance of the Node; the route of the Node then seems
    // abandoned.
    let unlisted = Route { instance: None, ..route("10.244.1.0/24", 1) };
    let routes = [unlisted.clone(), route("10.244.2.0/24", 2)];
    let mut s = with_nodes(&routes, nodes("10.244.1.0/024"));
    s.memory.abandoned = since(-180, &unlisted);
    assert_eq!(calls(&s), Vec::<String>::new());
}

/// Only a flag makes routes follow the addresses of their Nodes.
#[test]
fn a_changed_gateway_replaces_the_route() {
    let moved = Route { gateway: "10.0.0.77".parse().expect("an address"), ..route("10.244.1.0/24", 1) };
    let routes = [moved, route("10.244.2.0/24", 2)];
    assert_eq!(calls(&cluster(&routes)), Vec::<String>::new(), "only if asked for");
    let options = Options { follows_addresses: true, ..(*cluster(&[]).options).clone() };
    let s = Snapshot { options: Arc::new(options), ..cluster(&routes) };
    assert_eq!(calls(&s), ["driver: delete the route to 10.244.1.0/24 over 10.0.0.77"]);
    assert_eq!(play(s), both());
}

/// The kubelet reports other addresses, for example addresses of a VPN. The cloud would reject a
/// route over them, and the route that exists works.
#[test]
fn a_route_stays_until_the_cloud_accepts_another() {
    let options = Options { follows_addresses: true, ..(*cluster(&[]).options).clone() };
    let on_vpn = |pods: &str| {
        let mut node = node(1, &[pods]);
        let addresses = json!([{"type": "InternalIP", "address": "100.64.0.1"}]);
        let addresses = serde_json::from_value(addresses).expect("addresses");
        node.node = Arc::new(CloudNodeFacts { addresses: Some(addresses), ..(*node.node).clone() });
        node
    };
    let nodes = |pods: &str| vec![on_vpn(pods), node(2, &["10.244.2.0/24"])];
    let s = Snapshot { options: Arc::new(options), ..with_nodes(&both(), nodes("10.244.1.0/24")) };
    assert_eq!(calls(&s), Vec::<String>::new());
    // Nor is the old route deleted for pods that cannot get a route.
    let renumbered = Snapshot { nodes: nodes("10.244.3.0/24"), ..s };
    assert_eq!(
        calls(&renumbered),
        ["driver: create the route to 10.244.3.0/24 over sim://1"],
        "the cloud says why it rejects the route"
    );
}

#[test]
fn a_destination_belongs_to_one_node() {
    let twice = vec![node(1, &["10.244.1.0/24", "10.244.1.0/24"])];
    check(
        &with_nodes(&both()[..1], twice),
        expect![[r#"
            do    node n1: NetworkUnavailable=True, NoRouteCreated
            do    node n1: warning FailedToCreateRoute: Node n1 cannot have a route to 10.244.1.0/24: it is in use, or not a network
            why   Node n1 cannot have a route to 10.244.1.0/24: it is in use, or not a network; next: give each Node its own podCIDRs
            wait  until 2027-01-15T08:04:00Z
        "#]],
    );
    let two = with_nodes(&both()[..1], vec![node(2, &["10.244.1.0/24"]), node(1, &["10.244.1.0/24"])]);
    let conditions: Vec<_> = actions(&two).into_iter().filter(|text| text.contains("Network")).collect();
    assert_eq!(
        conditions,
        [
            "node n1: NetworkUnavailable=False, RouteCreated",
            "node n2: NetworkUnavailable=True, NoRouteCreated"
        ],
        "the older Node has it"
    );
}

/// The condition of a network plugin is overwritten. The time of the transition changes only with
/// the status.
#[test]
fn the_condition_is_written_only_if_it_differs() {
    let with = |condition: Value| {
        let mut node =
            json!({"metadata": {"name": "n", "uid": "u"}, "spec": {}, "status": {"conditions": []}});
        if !condition.is_null() {
            node["status"]["conditions"] = json!([condition]);
        }
        Arc::new(parse(node))
    };
    let condition = |status: &str, reason: &str| {
        let since = at(-500).to_string();
        json!({"type": "NetworkUnavailable", "status": status, "reason": reason, "lastTransitionTime": since})
    };
    for (current, has_routes, expected) in [
        (Value::Null, true, Some(("False", 0))),
        (Value::Null, false, Some(("True", 0))),
        (condition("False", "RouteCreated"), true, None),
        (condition("False", "CalicoIsUp"), true, Some(("False", -500))),
        (condition("True", "Other"), false, Some(("True", -500))),
        (condition("False", "RouteCreated"), false, Some(("True", 0))),
        (condition("True", "NoRouteCreated"), false, None),
        (condition("True", "NoRouteCreated"), true, Some(("False", 0))),
    ] {
        let written = NetworkCondition::needed(&with(current.clone()), has_routes, at(0));
        let written = written.map(|write| (write.status, write.transition));
        assert_eq!(written, expected.map(|(status, second)| (status, at(second))), "{current}, {has_routes}");
    }
}

#[test]
fn only_some_changes_of_a_node_matter() {
    let plain = || (*node(1, &["10.244.1.0/24"]).node).clone();
    assert!(is_affected_by(&plain(), &node(1, &["10.244.3.0/24"]).node));
    assert!(is_affected_by(&plain(), &CloudNodeFacts { addresses: None, ..plain() }));
    assert!(is_affected_by(&plain(), &CloudNodeFacts { provider_id: None, ..plain() }));
    assert!(!is_affected_by(&plain(), &CloudNodeFacts { labels: None, taints: Some(Vec::new()), ..plain() }));
}

/// The failure does not delay other routes. The wait doubles, unless the cloud names a time.
#[test]
fn a_failed_route_is_reported_and_retried_later() {
    let mut s = cluster(&[]);
    let Some(Action::Create(first)) = plan(&s).actions.pop() else { panic!("a creation is planned") };
    s.memory.take_create(&first, answered(0, Err(Error::new(ErrorKind::Unavailable, "locked"))));
    check(
        &s,
        expect![[r#"
        do    node n1: NetworkUnavailable=True, NoRouteCreated
        do    node n1: warning FailedToCreateRoute: Could not create route to 10.244.1.0/24 for Node n1: locked
        do    driver: create the route to 10.244.2.0/24 over sim://2
        why   waiting for the cloud to create the route; next: the cloud answers
        wait  until 2027-01-15T08:04:00Z
    "#]],
    );
    let Some(Action::Create(second)) = plan(&s).actions.pop() else { panic!("a creation is planned") };
    s.memory.take_create(&second, answered(1, Ok(Progress::Done(()))));
    s.now = at(2);
    assert_eq!(calls(&s), Vec::<String>::new());
    assert!(plan(&s).to_string().contains(&format!("wait  until {}", at(10))), "{}", plan(&s));
    s.now = at(10);
    assert_eq!(calls(&s), ["driver: list routes"], "the table may be the reason");
    s.memory.take_list(answered(10, Ok(table(&both()[1..]))));
    assert_eq!(calls(&s), ["driver: create the route to 10.244.1.0/24 over sim://1"]);
    s.memory.take_create(&first, answered(11, Err(Error::new(ErrorKind::Unavailable, "locked"))));
    assert!(plan(&s).to_string().contains(&format!("wait  until {}", at(31))), "{}", plan(&s));
    let asked = ErrorKind::Throttled { retry_after: Some(Duration::from_secs(42)) };
    s.memory.take_create(&first, answered(20, Err(Error::new(asked, "later"))));
    assert!(plan(&s).to_string().contains(&format!("wait  until {}", at(62))), "{}", plan(&s));
}

/// The name of an instance is not part of a route, so a renamed instance changes nothing.
#[test]
fn complete_routes_need_no_call() {
    let mut s = cluster(&both());
    s.nodes.reverse();
    assert_eq!(calls(&s), Vec::<String>::new());
}

/// The cloud locks the network during a change.
#[test]
fn one_change_is_in_flight_at_a_time() {
    assert_eq!(calls(&cluster(&[])).len(), 1);
    let mut s = cluster(&[]);
    s.memory.in_flight = Some((CREATE_ROUTE, at(-1)));
    assert_eq!(actions(&s), Vec::<String>::new());
    let mut s = cluster(&[]);
    let Some(Action::Create(spec)) = plan(&s).actions.pop() else { panic!("a creation is planned") };
    s.memory.take_create(&spec, answered(0, Ok(Progress::Working("add_route".to_owned()))));
    assert_eq!(calls(&s), Vec::<String>::new());
    assert!(plan(&s).why.to_string().contains("add_route"), "{}", plan(&s));
    s.now = at(1);
    assert_eq!(calls(&s), ["driver: create the route to 10.244.1.0/24 over sim://1"]);
}

/// The Node leaves while the cloud creates its route.
#[test]
fn a_change_that_is_not_wanted_any_more_does_not_stop_the_lists() {
    let mut s = cluster(&both()[..1]);
    let Some(Action::Create(spec)) = plan(&s).actions.pop() else { panic!("a creation is planned") };
    s.memory.take_create(&spec, answered(0, Ok(Progress::Working("add_route".to_owned()))));
    s.nodes.pop();
    s.now = at(1000);
    assert_eq!(calls(&s), ["driver: list routes"]);
}

/// The Node was restored after its pod network went to another one, and its server is gone.
#[test]
fn a_route_that_works_stays_until_the_cloud_accepts_another() {
    let mut s = with_nodes(&[route("10.244.1.0/24", 2)], vec![node(1, &["10.244.1.0/24"])]);
    let listed = s.memory.listed.as_mut().expect("listed");
    Arc::make_mut(&mut listed.table).gateways.remove(&ProviderId::parse("sim://1").expect("not empty"));
    assert_eq!(calls(&s), ["driver: create the route to 10.244.1.0/24 over sim://1"]);
}

#[test]
fn nothing_is_deleted_while_nodes_are_unknown() {
    let stale = [route("10.244.1.0/24", 0)];
    assert_eq!(actions(&Snapshot { is_synced: false, ..cluster(&stale) }), Vec::<String>::new());
    assert_eq!(actions(&with_nodes(&stale, Vec::new())), Vec::<String>::new());
}

/// A warning comes before the network reaches its limit of routes.
#[test]
fn many_routes_are_reported() {
    let warns = |limit| {
        let mut s = cluster(&both());
        Arc::make_mut(&mut s.memory.listed.as_mut().expect("listed").table).limit = limit;
        actions(&s).iter().any(|action| action.contains("RouteLimitNear"))
    };
    assert!(warns(Some(2)));
    assert!(!warns(Some(3)));
    assert!(!warns(None));
}

/// After a failure, the list is repeated earlier.
#[test]
fn routes_are_listed_from_time_to_time() {
    let mut s = cluster(&both());
    assert!(plan(&s).to_string().contains(&format!("wait  until {}", at(240))));
    s.now = at(240);
    assert_eq!(calls(&s), ["driver: list routes"]);
    s.memory.take_list(answered(240, Err(Error::new(ErrorKind::Unavailable, "no"))));
    assert!(plan(&s).to_string().contains(&format!("wait  until {}", at(250))), "{}", plan(&s));
    s.memory = RouteMemory::default();
    assert_eq!(calls(&s), ["driver: list routes"]);
    s.account.paused_until = Some(at(300));
    assert_eq!(calls(&s), Vec::<String>::new());
}

/// A user asks about one Node, and not about the routes.
#[test]
fn each_node_without_a_route_has_a_reason() {
    let reasons = |s: &Snapshot| -> Vec<(String, String)> {
        let whys = nodes_without_route(s, &plan(s).why);
        whys.into_iter().map(|(node, why)| (node, why.reason.to_string())).collect()
    };
    assert_eq!(reasons(&cluster(&both())), []);
    let mut failed = cluster(&[route("10.244.1.0/24", 1)]);
    let spec = RouteSpec {
        destination: "10.244.2.0/24".to_owned(),
        instance: ProviderId::parse("sim://2").expect("not empty"),
        addresses: Vec::new(),
    };
    failed.memory.take_create(&spec, answered(-1, Err(Error::new(ErrorKind::InvalidSpec, "not attached"))));
    let expected = "the cloud failed to create the route to 10.244.2.0/24 over sim://2: not attached";
    assert_eq!(reasons(&failed), [("n2".to_owned(), expected.to_owned())]);

    let mut paused = cluster(&[route("10.244.1.0/24", 1)]);
    paused.account.paused_until = Some(at(30));
    let [(name, reason)] = &reasons(&paused)[..] else { panic!("{:?}", reasons(&paused)) };
    assert_eq!(name, "n2");
    assert!(reason.starts_with("the cloud throttles this account"), "{reason}");

    let mut unproven = cluster(&both());
    unproven.account.proof = Proof::Missing;
    assert_eq!(reasons(&unproven), [], "their routes exist");
    unproven.memory.listed = None;
    assert_eq!(reasons(&unproven).len(), 2, "their routes are not known");

    let taken = with_nodes(&both(), vec![node(1, &["10.244.1.0/24"]), node(3, &["10.244.1.0/24"])]);
    let [(name, reason)] = &reasons(&taken)[..] else { panic!("{:?}", reasons(&taken)) };
    assert_eq!(name, "n3");
    assert!(reason.starts_with("Node n3 cannot have a route"), "{reason}");
}
