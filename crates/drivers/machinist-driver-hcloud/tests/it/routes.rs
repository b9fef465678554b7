//! Routes: the number of requests, the limit, and busy networks.

use std::net::IpAddr;
use std::time::Duration;

use machinist_driver_hcloud::HcloudOptions;
use machinist_instance::{ErrorKind, Progress, ProviderId, Route, RouteSpec};
use machinist_standin_hcloud::{Fault, FaultRule, HcloudServer};

use crate::cloud::{Cloud, NETWORK, options, settings};

fn spec(server: &HcloudServer, destination: &str) -> RouteSpec {
    RouteSpec {
        destination: destination.to_owned(),
        instance: ProviderId::parse(&format!("hcloud://{}", server.id)).expect("not empty"),
        addresses: vec![address(server)],
    }
}

fn address(server: &HcloudServer) -> IpAddr {
    server.private_net[0].ip.parse().expect("an address")
}

fn attached(cloud: &Cloud, name: &str) -> HcloudServer {
    let created = cloud.server(name);
    cloud.standin.server(created.id).expect("it exists")
}

fn routes_of(cloud: &Cloud) -> Vec<String> {
    let network = cloud.standin.dump().networks.remove(&NETWORK).expect("it exists");
    network.routes.iter().map(|route| format!("{} via {}", route.destination, route.gateway)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_route_is_added_kept_or_replaced() {
    let cloud = Cloud::instant();
    let (a, b) = (attached(&cloud, "a"), attached(&cloud, "b"));
    let driver = cloud.driver();
    let routes = driver.routes().expect("the account has a network");
    let to = "10.244.1.0/24";
    let steps = [(&a, vec!["add_route"]), (&a, vec![]), (&b, vec!["delete_route", "add_route"])];
    for (server, commands) in steps {
        cloud.standin.clear_requests();
        assert_eq!(routes.create(&spec(server, to)).await, Ok(Progress::Done(())));
        let sent: Vec<String> = cloud
            .standin
            .requests()
            .into_iter()
            .filter(|request| request.method == "POST")
            .map(|request| request.template.rsplit('/').next().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(sent, commands);
        assert_eq!(routes_of(&cloud), [format!("{to} via {}", address(server))]);
    }
}

/// A network carries out one action at a time.
#[tokio::test(start_paused = true)]
async fn the_old_route_is_gone_before_the_new_one_is_added() {
    let cloud = Cloud::new();
    let ids = [cloud.server("a").id, cloud.server("b").id];
    // The servers boot.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let [a, b] = ids.map(|id| cloud.standin.server(id).expect("it exists"));
    let driver = cloud.driver();
    let routes = driver.routes().expect("the account has a network");
    let to = "10.244.1.0/24";
    assert_eq!(routes.create(&spec(&a, to)).await, Ok(Progress::Done(())));
    cloud.standin.clear_requests();
    assert_eq!(routes.create(&spec(&b, to)).await, Ok(Progress::Done(())));
    let mut sent: Vec<String> = cloud
        .standin
        .requests()
        .into_iter()
        .filter(|request| request.template.contains("/actions/"))
        .map(|request| {
            let last = request.template.rsplit('/').next().unwrap_or_default();
            format!("{} {last}", request.method)
        })
        .collect();
    sent.dedup();
    assert_eq!(sent, ["POST delete_route", "GET {id}", "POST add_route", "GET {id}"]);
    assert_eq!(routes_of(&cloud), [format!("{to} via {}", address(&b))]);
}

#[tokio::test(start_paused = true)]
async fn unusable_routes_are_refused_without_a_change() {
    let cloud = Cloud::instant();
    let server = attached(&cloud, "a");
    let detached = attached(&cloud, "b");
    cloud.standin.detach_server(detached.id, NETWORK).expect("it exists");
    let driver = cloud.driver();
    let routes = driver.routes().expect("the account has a network");
    let valid = spec(&server, "10.244.1.0/24");
    let id = |text: &str| ProviderId::parse(text).expect("not empty");
    let ipv6 = RouteSpec { destination: "2001:db8::/64".to_owned(), ..valid.clone() };
    let robot = RouteSpec { instance: id("hrobot://1"), ..valid.clone() };
    for spec in [ipv6, robot] {
        let error = routes.create(&spec).await.expect_err("refused");
        assert_eq!(error.kind, ErrorKind::InvalidSpec);
    }
    assert_eq!(cloud.reads(), 0, "both are refused without a call");
    let cases = [
        RouteSpec { instance: id("hcloud://1"), ..valid.clone() },
        spec(&detached, "10.244.1.0/24"),
        RouteSpec { addresses: Vec::new(), ..valid },
    ];
    for spec in cases {
        let error = routes.create(&spec).await.expect_err("refused");
        assert_eq!(error.kind, ErrorKind::InvalidSpec, "{error}");
    }
    assert_eq!(cloud.changes(), 0);
}

/// Routes name servers by id.
#[tokio::test(start_paused = true)]
async fn a_renamed_server_keeps_its_route() {
    let cloud = Cloud::instant();
    let server = attached(&cloud, "a");
    let driver = cloud.driver();
    let routes = driver.routes().expect("the account has a network");
    let spec = spec(&server, "10.244.1.0/24");
    routes.create(&spec).await.expect("created");
    cloud.standin.change_server(server.id, |server| server.name = "renamed".to_owned()).expect("it exists");
    let changes = cloud.changes();
    assert_eq!(routes.create(&spec).await, Ok(Progress::Done(())));
    assert_eq!(cloud.changes(), changes);
    let shown = routes.list().await.expect("a list");
    assert_eq!(shown.routes[0].instance, Some(spec.instance));
    assert_eq!(shown.limit, Some(100));
}

#[tokio::test(start_paused = true)]
async fn a_route_without_a_server_has_no_instance() {
    let cloud = Cloud::instant();
    let server = attached(&cloud, "a");
    let driver = cloud.driver();
    let routes = driver.routes().expect("the account has a network");
    routes.create(&spec(&server, "10.244.1.0/24")).await.expect("created");
    cloud.standin.delete_server(server.id).expect("it exists");
    let shown = routes.list().await.expect("a list").routes.remove(0);
    let expected =
        Route { destination: "10.244.1.0/24".to_owned(), gateway: address(&server), instance: None };
    assert_eq!(shown, expected);
    assert_eq!(routes.delete(&shown).await, Ok(Progress::Done(())));
    assert!(routes_of(&cloud).is_empty());
}

/// A deletion names destination and gateway, as they were listed.
#[tokio::test(start_paused = true)]
async fn a_deletion_never_removes_the_new_route() {
    let cloud = Cloud::instant();
    let (a, b) = (attached(&cloud, "a"), attached(&cloud, "b"));
    let driver = cloud.driver();
    let routes = driver.routes().expect("the account has a network");
    let to = "10.244.1.0/24";
    routes.create(&spec(&b, to)).await.expect("created");
    let listed_before = Route { destination: to.to_owned(), gateway: address(&a), instance: None };
    assert_eq!(routes.delete(&listed_before).await, Ok(Progress::Done(())));
    assert_eq!(routes_of(&cloud), [format!("{to} via {}", address(&b))]);
}

#[tokio::test(start_paused = true)]
async fn a_busy_network_is_tried_again_later() {
    let cloud = Cloud::instant();
    let server = attached(&cloud, "a");
    let driver = cloud.driver();
    let routes = driver.routes().expect("the account has a network");
    let spec = spec(&server, "10.244.1.0/24");
    for code in ["locked", "conflict"] {
        let path = "/v1/networks/{id}/actions/add_route";
        let fault = Fault::Error { code: code.to_owned(), status: None };
        cloud.standin.add_fault(FaultRule::once("POST", path, fault));
        assert_eq!(routes.create(&spec).await, Ok(Progress::Working("add_route".to_owned())));
    }
    assert_eq!(routes.create(&spec).await, Ok(Progress::Done(())));
}

#[tokio::test(start_paused = true)]
async fn routes_need_a_network_and_can_be_disabled() {
    let without = Cloud::with(settings(), HcloudOptions { network: None, ..options() });
    assert!(without.driver().routes().is_none());
    let disabled = HcloudOptions { routes_enabled: false, balancers_enabled: false, ..options() };
    let disabled = Cloud::with(settings(), disabled).driver();
    assert!(disabled.routes().is_none() && disabled.balancers().is_none());
}
