//! Balancers: the number of requests, adoption, actions, and the options of this cloud.

use std::collections::BTreeMap;
use std::time::Duration;

use machinist_driver::{Driver, Fence};
use machinist_instance::{
    BalancerDeletion, BalancerKey, BalancerNote, BalancerRef, BalancerSpec, BalancerTarget, BalancerTrace,
    Ensured, ErrorKind, Ingress, Instance, Listener, NameClaim, Progress, ProviderId, Scope, SkipCause,
    TransportProtocol,
};
use machinist_standin_hcloud::{DeletionReply, Fault, FaultRule, HcloudLoadBalancer, PublicIp, TargetKind};
use tokio::time::Instant;

use crate::cloud::{Cloud, NETWORK};

const KEY: &str = "hcloud-ccm/service-uid";

fn spec(servers: &[i64], options: &[(&str, &str)]) -> BalancerSpec {
    let target = |server: &i64| BalancerTarget {
        node: format!("node-{server}"),
        instance: ProviderId::parse(&format!("hcloud://{server}")).expect("not empty"),
        weight: BalancerTarget::FULL_WEIGHT,
    };
    BalancerSpec {
        key: BalancerKey::new("uid-1"),
        claim: Default::default(),
        id: None,
        native_id: None,
        name: "a1".to_owned(),
        listeners: vec![Listener { protocol: TransportProtocol::Tcp, port: 80, target_port: 30080 }],
        targets: servers.iter().map(target).collect(),
        options: options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
    }
}

async fn ensure(
    driver: &dyn Driver,
    spec: &BalancerSpec,
) -> Result<Progress<Ensured>, machinist_instance::Error> {
    driver.balancers().expect("enabled").ensure(spec).await
}

/// Calls `ensure` until it has ended.
async fn ensured(driver: &dyn Driver, spec: &BalancerSpec) -> Ensured {
    for _ in 0..20 {
        match ensure(driver, spec).await.expect("success") {
            Progress::Done(ensured) => return ensured,
            Progress::Working(_) => tokio::time::sleep(Duration::from_secs(2)).await,
        }
    }
    panic!("ensure has not ended")
}

async fn delete(driver: &dyn Driver) -> Progress<BalancerDeletion> {
    let which = BalancerRef { id: None, key: BalancerKey::new("uid-1"), native_id: None, trace: None };
    driver.balancers().expect("enabled").delete(&which).await.expect("success")
}

/// The only balancer of the cloud.
fn shown(cloud: &Cloud) -> HcloudLoadBalancer {
    let mut all: Vec<HcloudLoadBalancer> = cloud.standin.dump().load_balancers.into_values().collect();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn change(cloud: &Cloud, change: impl Fn(&mut HcloudLoadBalancer)) {
    let mut state = cloud.standin.dump();
    state.load_balancers.values_mut().for_each(change);
    cloud.standin.load(state).expect("in memory");
}

fn commands(cloud: &Cloud) -> Vec<String> {
    let changes = cloud.standin.requests().into_iter().filter(|request| request.method != "GET");
    changes.map(|request| format!("{} {}", request.method, request.template)).collect()
}

#[tokio::test(start_paused = true)]
async fn one_post_creates_the_whole_balancer() {
    let cloud = Cloud::instant();
    let (a, b) = (cloud.server("a").id, cloud.server("b").id);
    let made = ensured(&*cloud.driver(), &spec(&[a, b], &[("use-private-ip", "true")])).await;
    assert_eq!(commands(&cloud), ["POST /v1/load_balancers"]);
    let shown = shown(&cloud);
    assert_eq!((shown.services.len(), shown.targets.len()), (1, 2));
    assert_eq!(shown.private_net.first().map(|net| net.network), Some(NETWORK));
    assert_eq!(made.notes, []);
    let addresses =
        made.balancer.ingress.iter().filter(|ingress| matches!(ingress, Ingress::Ip { is_proxy: false, .. }));
    assert_eq!(addresses.count(), 3, "{:?}", made.balancer.ingress);
}

#[tokio::test(start_paused = true)]
async fn an_equal_balancer_costs_one_read_and_no_write() {
    let cloud = Cloud::instant();
    let spec = spec(&[cloud.server("a").id], &[]);
    let driver = cloud.driver();
    let made = ensured(&*driver, &spec).await;
    let (reads, changes) = (cloud.reads(), cloud.changes());
    assert_eq!(ensured(&*driver, &spec).await, made);
    assert_eq!((cloud.reads() - reads, cloud.changes() - changes), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_long_action_is_not_waited_for() {
    let cloud = Cloud::new();
    cloud.standin.freeze_actions();
    let driver = cloud.driver();
    let spec = spec(&[], &[]);
    let began = Instant::now();
    let working = ensure(&*driver, &spec).await.expect("success");
    assert_eq!(working, Progress::Working("create_load_balancer".to_owned()));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    cloud.standin.thaw_actions();
    ensured(&*driver, &spec).await;
    assert_eq!(commands(&cloud), ["POST /v1/load_balancers"]);
}

#[tokio::test(start_paused = true)]
async fn a_locked_balancer_is_tried_again_by_the_next_call() {
    let cloud = Cloud::instant();
    let driver = cloud.driver();
    ensured(&*driver, &spec(&[], &[])).await;
    change(&cloud, |balancer| balancer.private_net.clear());
    for code in ["locked", "conflict"] {
        let path = "/v1/load_balancers/{id}/actions/attach_to_network";
        let fault = Fault::Error { code: code.to_owned(), status: None };
        cloud.standin.add_fault(FaultRule::once("POST", path, fault));
        let working = ensure(&*driver, &spec(&[], &[])).await.expect("success");
        assert_eq!(working, Progress::Working("attach_to_network".to_owned()));
    }
    ensured(&*driver, &spec(&[], &[])).await;
    assert_eq!(shown(&cloud).private_net.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_action_is_reported() {
    let cloud = Cloud::instant();
    let driver = cloud.driver();
    ensured(&*driver, &spec(&[], &[])).await;
    cloud.standin.fail_next_action(Some("change_algorithm"), "action_failed", "out of luck");
    let changed = spec(&[], &[("algorithm-type", "least_connections")]);
    let error = ensure(&*driver, &changed).await.expect_err("the action failed");
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("out of luck"), "{error}");
    ensured(&*driver, &changed).await;
}

#[tokio::test(start_paused = true)]
async fn two_balancers_of_one_key_are_an_error() {
    let cloud = Cloud::instant();
    let driver = cloud.driver();
    ensured(&*driver, &spec(&[], &[])).await;
    let other = BalancerSpec { key: BalancerKey::new("uid-2"), name: "a2".to_owned(), ..spec(&[], &[]) };
    ensured(&*driver, &other).await;
    change(&cloud, |balancer| {
        balancer.labels.insert(KEY.to_owned(), "uid-1".to_owned());
    });
    let error = ensure(&*driver, &spec(&[], &[])).await.expect_err("two have the key");
    assert_eq!(error.kind, ErrorKind::InvalidSpec);
    assert!(error.message.contains("expected one"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_protected_balancer_is_kept_without_its_key() {
    let cloud = Cloud::instant();
    let driver = cloud.driver();
    ensured(&*driver, &spec(&[], &[])).await;
    change(&cloud, |balancer| {
        balancer.protected = true;
        balancer.labels.insert("env".to_owned(), "prod".to_owned());
    });
    cloud.standin.clear_requests();
    assert_eq!(delete(&*driver).await, Progress::Done(BalancerDeletion::Retained));
    assert_eq!(commands(&cloud), ["PUT /v1/load_balancers/{id}"]);
    assert_eq!(shown(&cloud).labels, BTreeMap::from([("env".to_owned(), "prod".to_owned())]));
    let id = shown(&cloud).id.to_string();
    let which = BalancerRef { id: Some(id), key: BalancerKey::new("uid-1"), native_id: None, trace: None };
    let again = driver.balancers().expect("enabled").delete(&which).await;
    assert_eq!(again, Ok(Progress::Done(BalancerDeletion::Retained)));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_an_action_or_ends_at_once() {
    for deletion in [DeletionReply::Action, DeletionReply::NoContent] {
        let cloud = Cloud::instant();
        cloud.standin.configure(|settings| settings.balancer_deletion = deletion);
        let driver = cloud.driver();
        ensured(&*driver, &spec(&[], &[])).await;
        assert_eq!(delete(&*driver).await, Progress::Done(BalancerDeletion::Gone));
        assert!(cloud.standin.dump().load_balancers.is_empty());
    }
    let cloud = Cloud::new();
    let driver = cloud.driver();
    ensured(&*driver, &spec(&[], &[])).await;
    cloud.standin.freeze_actions();
    for _ in 0..2 {
        assert_eq!(delete(&*driver).await, Progress::Working("delete_load_balancer".to_owned()));
    }
}

/// A failed search is not the answer that no load balancer exists.
#[tokio::test(start_paused = true)]
async fn a_failed_search_creates_no_balancer() {
    let cloud = Cloud::instant();
    let fault = Fault::Error { code: "server_error".to_owned(), status: None };
    cloud.standin.add_fault(FaultRule::once("GET", "/v1/load_balancers", fault));
    let error = ensure(&*cloud.driver(), &spec(&[], &[])).await.expect_err("the search fails");
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    assert!(cloud.standin.faults().is_empty(), "the fault was met");
    assert_eq!(cloud.changes(), 0);
}

/// The other Service may be one of another cluster, so its absence is never known.
#[tokio::test(start_paused = true)]
async fn a_balancer_of_another_service_is_refused() {
    let cloud = Cloud::instant();
    let driver = cloud.driver();
    ensured(&*driver, &spec(&[], &[("name", "shared")])).await;
    let thief = BalancerSpec { key: BalancerKey::new("uid-2"), ..spec(&[], &[("name", "shared")]) };
    let before = shown(&cloud);
    let error = ensure(&*driver, &thief).await.expect_err("refused");
    assert_eq!(error.kind, ErrorKind::InvalidSpec, "the credential works");
    assert!(error.message.contains("uid-1") && error.message.contains("shared"), "{error}");
    assert!(error.message.contains("remove the label to adopt"), "{error}");
    assert_eq!(shown(&cloud), before);
    // A user does what the message says.
    change(&cloud, |balancer| drop(balancer.labels.remove(KEY)));
    let adopted = ensured(&*driver, &thief).await.balancer;
    assert_eq!((adopted.id, adopted.key), (before.id.to_string(), Some(BalancerKey::new("uid-2"))));
}

/// A user lets one Service have the load balancer of another one.
#[tokio::test(start_paused = true)]
async fn a_label_lets_one_service_adopt_a_balancer() {
    let cloud = Cloud::instant();
    let driver = cloud.driver();
    ensured(&*driver, &spec(&[], &[("name", "shared")])).await;
    let claim = |name: &str| NameClaim { invited_as: Some(name.to_owned()), ..NameClaim::default() };
    let of = |name: &str| BalancerSpec {
        key: BalancerKey::new("uid-2"),
        name: "a2".to_owned(),
        claim: claim(name),
        ..spec(&[], &[("name", "shared")])
    };
    let before = shown(&cloud);
    let error = ensure(&*driver, &of("default.web")).await.expect_err("no label invites it");
    assert!(error.message.contains("give it the label machinist.dev/adopt=default.web"), "{error}");
    change(&cloud, |balancer| {
        drop(balancer.labels.insert(NameClaim::INVITATION.to_owned(), "default.web".to_owned()))
    });
    assert!(ensure(&*driver, &of("default.other")).await.is_err(), "the label invites another Service");
    let made = ensured(&*driver, &of("default.web")).await;
    assert_eq!(
        (made.balancer.id, made.balancer.key),
        (before.id.to_string(), Some(BalancerKey::new("uid-2")))
    );
    let reasons: Vec<&str> = made.notes.iter().map(|note| note.reason).collect();
    assert_eq!(reasons, [BalancerNote::ADOPTED]);
    assert_eq!(shown(&cloud).labels.get(NameClaim::INVITATION), None, "the invitation is used up");
    assert!(ensured(&*driver, &of("default.web")).await.notes.is_empty(), "an adoption is reported once");
}

/// `--adopt-load-balancers-in`
#[tokio::test(start_paused = true)]
async fn a_service_without_the_right_adopts_nothing() {
    let cloud = Cloud::instant();
    let driver = cloud.driver();
    ensured(&*driver, &spec(&[], &[("name", "shared")])).await;
    change(&cloud, |balancer| drop(balancer.labels.remove(KEY)));
    let claim = NameClaim { adopts: false, ..NameClaim::default() };
    let before = shown(&cloud);
    let thief = BalancerSpec {
        key: BalancerKey::new("uid-2"),
        name: "a2".to_owned(),
        claim,
        ..spec(&[], &[("name", "shared")])
    };
    let error = ensure(&*driver, &thief).await.expect_err("refused");
    assert!(error.message.contains("may not adopt load balancers"), "{error}");
    assert_eq!(shown(&cloud), before);
    // The name with the uid proves the owner.
    let own = BalancerSpec { options: BTreeMap::new(), ..thief };
    let own = BalancerSpec { name: "shared".to_owned(), ..own };
    assert_eq!(ensured(&*driver, &own).await.balancer.id, before.id.to_string());
}

/// Two clusters of a project may ask for one name at the same time.
#[tokio::test(start_paused = true)]
async fn a_taken_name_is_noted_and_the_balancer_is_served() {
    let cloud = Cloud::instant();
    let driver = cloud.driver();
    ensured(&*driver, &spec(&[], &[("name", "shared")])).await;
    let second = |name: &str| BalancerSpec {
        key: BalancerKey::new("uid-2"),
        name: "a2".to_owned(),
        ..spec(&[], &[("name", name)])
    };
    ensured(&*driver, &second("other")).await;
    let made = ensured(&*driver, &second("shared")).await;
    assert_eq!(made.balancer.name, "other");
    let reasons: Vec<&str> = made.notes.iter().map(|note| note.reason).collect();
    assert_eq!(reasons, ["LoadBalancerNameTaken"], "{:?}", made.notes);
    // The caller knows who has the name: no request tries to rename it.
    let claim = NameClaim { held_by: Some("Service default/web".to_owned()), ..NameClaim::default() };
    let before = cloud.changes();
    let made = ensured(&*driver, &BalancerSpec { claim: claim.clone(), ..second("shared") }).await;
    assert_eq!((made.balancer.name.as_str(), cloud.changes()), ("other", before));
    let third =
        BalancerSpec { key: BalancerKey::new("uid-3"), name: "a3".to_owned(), claim, ..second("shared") };
    let error = ensure(&*driver, &third).await.expect_err("no second load balancer");
    assert!(error.message.contains("Service default/web has the load balancer name shared"), "{error}");
    assert_eq!(cloud.changes(), before);
}

#[tokio::test(start_paused = true)]
async fn targets_beyond_the_limit_are_noted() {
    let cloud = Cloud::instant();
    let servers: Vec<i64> = (0..27).map(|number| cloud.server(&format!("w-{number}")).id).collect();
    let made = ensured(&*cloud.driver(), &spec(&servers, &[])).await;
    assert_eq!(made.balancer.targets.len(), 25);
    let reasons: Vec<&str> = made.notes.iter().map(|note| note.reason).collect();
    assert_eq!(reasons, ["MaxTargetsReached"; 2]);
}

/// A target that the cloud refuses does not affect the others.
#[tokio::test(start_paused = true)]
async fn a_target_outside_the_network_is_skipped() {
    let cloud = Cloud::instant();
    let (attached, detached) = (cloud.server("a"), cloud.server("b"));
    cloud.standin.detach_server(detached.id, NETWORK).expect("it exists");
    let spec = spec(&[attached.id, detached.id], &[("use-private-ip", "true")]);
    let made = ensured(&*cloud.driver(), &spec).await;
    assert_eq!(made.balancer.targets, [spec.targets[0].instance.clone()]);
    let notes: Vec<_> = made.notes.iter().map(|note| (note.reason, note.message.contains("node-"))).collect();
    assert_eq!(notes, [("TargetSkipped", true)], "{:?}", made.notes);
    // The addresses are those that the caller sees, so it notices when the server is attached.
    let seen = driver_list(&cloud).await;
    let seen = seen.into_iter().find(|balancer| balancer.id == spec.targets[1].instance).expect("it exists");
    let [skipped] = &made.skipped[..] else { panic!("{:?}", made.skipped) };
    assert_eq!(skipped.cause, SkipCause::Shown(Some(seen.addresses)));
}

async fn driver_list(cloud: &Cloud) -> Vec<Instance> {
    cloud.driver().instances().list(&Scope::Visible).await.expect("a list")
}

/// Requests that changed something, or were meant to, as `METHOD template`.
fn changes_to(cloud: &Cloud, what: &str) -> usize {
    commands(cloud).iter().filter(|command| command.ends_with(what)).count()
}

/// The list of the servers, which the caller reads anyway, shows which of them can be targets.
#[tokio::test(start_paused = true)]
async fn known_servers_cost_no_refused_call() {
    let cloud = Cloud::instant();
    let (good, bad) = (cloud.server("a").id, cloud.server("b").id);
    cloud.standin.change_server(bad, |server| server.ipv4 = None).expect("it exists");
    let driver = cloud.driver();
    driver.instances().list(&Scope::Visible).await.expect("a list");
    for number in 0..5 {
        let key = BalancerKey::new(format!("uid-{number}"));
        let spec = BalancerSpec { key, name: format!("a{number}"), ..spec(&[good, bad], &[]) };
        let made = ensured(&*driver, &spec).await;
        assert_eq!((made.balancer.targets.len(), made.skipped.len()), (1, 1), "{:?}", made.skipped);
    }
    assert_eq!(commands(&cloud), ["POST /v1/load_balancers"; 5]);
    // The server gets an address, and the next call adds it.
    let ip = cloud.standin.server(good).expect("it exists").ipv4.expect("an address");
    let other = PublicIp { id: ip.id + 1, ip: "198.18.7.7".to_owned() };
    cloud.standin.change_server(bad, |server| server.ipv4 = Some(other)).expect("it exists");
    driver.instances().list(&Scope::Visible).await.expect("a list");
    let spec =
        BalancerSpec { key: BalancerKey::new("uid-0"), name: "a0".to_owned(), ..spec(&[good, bad], &[]) };
    let made = ensured(&*driver, &spec).await;
    assert_eq!((made.balancer.targets.len(), made.skipped.len()), (2, 0), "{:?}", made.skipped);
}

/// Without knowledge, one refusal is enough to learn which servers cannot be targets.
#[tokio::test(start_paused = true)]
async fn a_refused_creation_is_corrected_once() {
    let cloud = Cloud::instant();
    let servers: Vec<i64> = (0..10).map(|number| cloud.server(&format!("w-{number}")).id).collect();
    for bad in &servers[..3] {
        cloud.standin.change_server(*bad, |server| server.ipv4 = None).expect("it exists");
    }
    let made = ensured(&*cloud.driver(), &spec(&servers, &[])).await;
    assert_eq!((made.balancer.targets.len(), made.skipped.len()), (7, 3));
    assert_eq!(commands(&cloud), ["POST /v1/load_balancers"; 2]);
}

/// The balancer exists, and three new Nodes cannot be targets.
#[tokio::test(start_paused = true)]
async fn one_refusal_explains_all_targets() {
    let cloud = Cloud::instant();
    let driver = cloud.driver();
    ensured(&*driver, &spec(&[], &[])).await;
    let servers: Vec<i64> = (0..6).map(|number| cloud.server(&format!("w-{number}")).id).collect();
    for bad in &servers[..3] {
        cloud.standin.change_server(*bad, |server| server.ipv4 = None).expect("it exists");
    }
    let made = ensured(&*driver, &spec(&servers, &[])).await;
    assert_eq!((made.balancer.targets.len(), made.skipped.len()), (3, 3));
    assert_eq!(changes_to(&cloud, "add_target"), 4, "one of them was refused");
}

/// A limit that the type does not show, for example one of the project.
#[tokio::test(start_paused = true)]
async fn a_refused_limit_stops_further_targets() {
    let cloud = Cloud::instant();
    let driver = cloud.driver();
    ensured(&*driver, &spec(&[], &[])).await;
    let servers: Vec<i64> = (0..6).map(|number| cloud.server(&format!("w-{number}")).id).collect();
    let limit = Fault::Error { code: "resource_limit_exceeded".to_owned(), status: None };
    let path = "/v1/load_balancers/{id}/actions/add_target";
    cloud.standin.add_fault(FaultRule::always("POST", path, limit));
    let made = ensured(&*driver, &spec(&servers, &[])).await;
    assert_eq!(changes_to(&cloud, "add_target"), 1);
    assert!(made.skipped.iter().all(|target| target.cause == SkipCause::Refused), "{:?}", made.skipped);
    assert_eq!(made.skipped.len(), 6);
    cloud.standin.clear_faults();
    assert_eq!(ensured(&*driver, &spec(&servers, &[])).await.skipped, []);
}

/// Which server each target has, and whether by its private address.
fn targets(cloud: &Cloud) -> Vec<(i64, bool)> {
    let server = |kind: &TargetKind| match kind {
        TargetKind::Server(id) => *id,
        TargetKind::LabelSelector(_) | TargetKind::Ip(_) => 0,
    };
    let shown = shown(cloud);
    let mut all: Vec<_> =
        shown.targets.iter().map(|target| (server(&target.kind), target.use_private_ip)).collect();
    all.sort_unstable();
    all
}

/// An invalid annotation stops changes of settings, and not changes of targets.
#[tokio::test(start_paused = true)]
async fn a_wrong_option_does_not_stop_the_targets() {
    let wrong = [
        ("protocol", "udp"),
        ("type", "lb99"),
        ("http-certificates", "nowhere"),
        ("private-ipv4", "10.0.0.1"),
        ("use-private-ip", "perhaps"),
    ];
    for (name, value) in wrong {
        let cloud = Cloud::instant();
        let (a, b) = (cloud.server("a").id, cloud.server("b").id);
        let driver = cloud.driver();
        ensured(&*driver, &spec(&[a], &[("use-private-ip", "true")])).await;
        let mut options = vec![("use-private-ip", "true"), (name, value)];
        if name == "http-certificates" {
            options.push(("protocol", "https"));
        }
        let error = ensure(&*driver, &spec(&[b], &options)).await.expect_err(name);
        assert_eq!(error.kind, ErrorKind::InvalidSpec, "{name}: {error}");
        assert_eq!(targets(&cloud), [(b, true)], "{name}: the last valid settings");
        let changes = cloud.changes();
        ensure(&*driver, &spec(&[b], &options)).await.expect_err(name);
        assert!(cloud.changes() <= changes + 1, "{name}: at most the rejected change is repeated");
    }
}

/// The balancer keeps its attachment and its targets.
#[tokio::test(start_paused = true)]
async fn a_taken_private_address_detaches_nothing() {
    let cloud = Cloud::instant();
    let servers = [cloud.server("a"), cloud.server("b")];
    let ids = [servers[0].id, servers[1].id];
    let driver = cloud.driver();
    ensured(&*driver, &spec(&ids, &[("use-private-ip", "true")])).await;
    let before = shown(&cloud);
    let taken = servers[1].private_net[0].ip.clone();
    let options = [("use-private-ip", "true"), ("private-ipv4", taken.as_str())];
    let error = ensure(&*driver, &spec(&ids, &options)).await.expect_err("taken");
    assert_eq!(error.kind, ErrorKind::InvalidSpec);
    assert!(error.message.contains("server b has"), "{error}");
    assert_eq!(shown(&cloud), before);
    assert_eq!(changes_to(&cloud, "detach_from_network"), 0);

    // The address is taken between the check and the attachment.
    let options = [("use-private-ip", "true"), ("private-ipv4", "10.0.0.99")];
    let refused = Fault::Error { code: "ip_not_available".to_owned(), status: None };
    let path = "/v1/load_balancers/{id}/actions/attach_to_network";
    cloud.standin.add_fault(FaultRule::once("POST", path, refused));
    ensure(&*driver, &spec(&ids, &options)).await.expect_err("taken meanwhile");
    assert_eq!(shown(&cloud).private_net, before.private_net, "attached as before");
    assert_eq!(targets(&cloud), [(ids[0], true), (ids[1], true)]);
    assert_eq!(ensured(&*driver, &spec(&ids, &options)).await.skipped, []);
    assert_eq!(shown(&cloud).private_net[0].ip, "10.0.0.99");
}

/// The next target waits until the last one is as healthy as before.
#[tokio::test(start_paused = true)]
async fn private_addresses_are_used_one_target_at_a_time() {
    let cloud = Cloud::new();
    let ids: Vec<i64> = ["a", "b", "c"].iter().map(|name| cloud.server(name).id).collect();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let driver = cloud.driver();
    ensured(&*driver, &spec(&ids, &[])).await;
    // The server of the first target fails while the target is replaced.
    cloud.standin.freeze_actions();
    let private = spec(&ids, &[("use-private-ip", "true")]);
    let removing = ensure(&*driver, &private).await;
    assert_eq!(removing, Ok(Progress::Working("remove_target".to_owned())));
    cloud.standin.power_off(ids[0]).expect("it runs");
    cloud.standin.thaw_actions();
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(matches!(ensure(&*driver, &private).await, Ok(Progress::Working(_))));
    }
    assert_eq!(targets(&cloud), [(ids[0], true), (ids[1], false), (ids[2], false)]);
    cloud.standin.power_on(ids[0]).expect("it is off");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(ensured(&*driver, &private).await.skipped, []);
    assert_eq!(targets(&cloud), ids.iter().map(|id| (*id, true)).collect::<Vec<_>>());
}

/// With externalTrafficPolicy Local, only Nodes with pods are healthy. Each call is by a new
/// process, so the balancer itself must show what the last one did.
#[tokio::test(start_paused = true)]
async fn a_restart_continues_with_the_next_target() {
    let cloud = Cloud::new();
    let ids: Vec<i64> = ["a", "b", "c", "d"].iter().map(|name| cloud.server(name).id).collect();
    tokio::time::sleep(Duration::from_secs(60)).await;
    ensured(&*cloud.driver(), &spec(&ids, &[])).await;
    cloud.standin.power_off(ids[3]).expect("it runs");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let private = spec(&ids, &[("use-private-ip", "true")]);
    // The target without pods is replaced at once, then the first target that carries traffic.
    for command in ["remove_target", "add_target", "remove_target"] {
        cloud.standin.freeze_actions();
        let working = ensure(&*cloud.driver(), &private).await;
        assert_eq!(working, Ok(Progress::Working(command.to_owned())));
        let is_last = targets(&cloud).contains(&(ids[3], true));
        if is_last {
            // Its server fails while it is replaced.
            cloud.standin.power_off(ids[0]).expect("it runs");
        }
        cloud.standin.thaw_actions();
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    for _ in 0..30 {
        let answer = ensure(&*cloud.driver(), &private).await;
        assert!(matches!(answer, Ok(Progress::Working(_))), "{answer:?}");
        tokio::time::sleep(Duration::from_secs(5)).await;
        let expected = [(ids[0], true), (ids[1], false), (ids[2], false), (ids[3], true)];
        assert_eq!(targets(&cloud), expected, "the others wait");
    }
    cloud.standin.power_on(ids[0]).expect("it is off");
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        if let Ok(Progress::Done(_)) = ensure(&*cloud.driver(), &private).await {
            assert_eq!(targets(&cloud), ids.iter().map(|id| (*id, true)).collect::<Vec<_>>());
            assert_eq!(shown(&cloud).labels.keys().collect::<Vec<_>>(), [KEY], "no trace is left");
            return;
        }
    }
    panic!("the change has not ended: {:?}", targets(&cloud));
}

/// A server outside of the network keeps its public address as target.
#[tokio::test(start_paused = true)]
async fn a_target_stays_until_its_replacement_is_sure() {
    let cloud = Cloud::instant();
    let (a, b) = (cloud.server("a").id, cloud.server("b").id);
    let driver = cloud.driver();
    ensured(&*driver, &spec(&[a, b], &[])).await;
    cloud.standin.detach_server(b, NETWORK).expect("it exists");
    let made = ensured(&*driver, &spec(&[a, b], &[("use-private-ip", "true")])).await;
    assert_eq!(targets(&cloud), [(a, true), (b, false)]);
    assert_eq!(made.skipped.len(), 1, "{:?}", made.skipped);
    // The cloud rejects the new address for a reason that its data do not show.
    let cloud = Cloud::instant();
    let (a, b) = (cloud.server("a").id, cloud.server("b").id);
    let driver = cloud.driver();
    ensured(&*driver, &spec(&[a, b], &[])).await;
    let refused = Fault::Error { code: "invalid_input".to_owned(), status: None };
    let path = "/v1/load_balancers/{id}/actions/add_target";
    cloud.standin.add_fault(FaultRule::once("POST", path, refused));
    let made = ensured(&*driver, &spec(&[a, b], &[("use-private-ip", "true")])).await;
    assert_eq!(targets(&cloud), [(a, false), (b, false)], "the target has its old address again");
    assert_eq!(made.skipped.len(), 1, "{:?}", made.skipped);
}

/// The cloud rejects the private address of a target that carries traffic. Each further try would
/// take its traffic again.
#[tokio::test(start_paused = true)]
async fn a_refused_turn_is_not_repeated_for_an_hour() {
    let cloud = Cloud::new();
    let a = cloud.server("a").id;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let driver = cloud.driver();
    let until_done = async |spec: &BalancerSpec| {
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_secs(5)).await;
            if let Ok(Progress::Done(made)) = ensure(&*driver, spec).await {
                return made;
            }
        }
        panic!("the change has not ended: {:?}", targets(&cloud));
    };
    until_done(&spec(&[a], &[])).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let path = "/v1/load_balancers/{id}/actions/add_target";
    let refused = Fault::Error { code: "invalid_input".to_owned(), status: None };
    cloud.standin.add_fault(FaultRule::once("POST", path, refused));
    let private = spec(&[a], &[("use-private-ip", "true")]);
    let made = until_done(&private).await;
    assert_eq!((targets(&cloud), made.skipped.len()), (vec![(a, false)], 1), "{:?}", made.skipped);
    // The target is healthy again.
    for _ in 0..40 {
        let made = until_done(&private).await;
        assert_eq!((targets(&cloud), made.skipped.len()), (vec![(a, false)], 1), "{:?}", made.skipped);
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    tokio::time::sleep(Duration::from_secs(3600)).await;
    until_done(&private).await;
    assert_eq!(targets(&cloud), [(a, true)]);
}

/// The cloud rejects the private address of a target that was removed for it.
#[tokio::test(start_paused = true)]
async fn a_target_that_cannot_change_its_address_is_kept() {
    let refused = |code: &str| Fault::Error { code: code.to_owned(), status: None };
    let path = "/v1/load_balancers/{id}/actions/add_target";
    // The old address is also rejected for a moment; then only the new address is rejected.
    for second in [refused("server_error"), refused("rate_limit_exceeded"), Fault::Reset] {
        let cloud = Cloud::instant();
        let (a, b) = (cloud.server("a").id, cloud.server("b").id);
        let driver = cloud.driver();
        let private = spec(&[a, b], &[("use-private-ip", "true")]);
        ensured(&*driver, &spec(&[a, b], &[])).await;
        for fault in [refused("invalid_input"), second.clone(), refused("invalid_input")] {
            cloud.standin.add_fault(FaultRule::once("POST", path, fault));
        }
        let error = ensure(&*driver, &private).await.expect_err("both are rejected");
        assert!(error.message.starts_with("Node node-"), "{second:?}: {error}");
        tokio::time::sleep(Duration::from_secs(60)).await;
        let made = ensured(&*driver, &private).await;
        let mut shown = targets(&cloud);
        shown.sort_unstable();
        assert_eq!(shown, [(a, false), (b, false)], "{second:?}");
        assert_eq!(made.skipped.len(), 1, "{:?}", made.skipped);
        assert!(cloud.standin.faults().is_empty(), "{second:?}");
        // The cloud accepts the new address later, and the driver tries it after an hour.
        tokio::time::sleep(Duration::from_secs(3601)).await;
        ensured(&*driver, &private).await;
        assert!(targets(&cloud).iter().all(|(_, is_private)| *is_private), "{:?}", targets(&cloud));
    }
}

/// A target that carries traffic was removed; then the process ended, and its server left the
/// network. Each call is by a new process.
#[tokio::test(start_paused = true)]
async fn a_restart_attaches_a_removed_target_again() {
    let cloud = Cloud::new();
    let a = cloud.server("a").id;
    tokio::time::sleep(Duration::from_secs(60)).await;
    ensured(&*cloud.driver(), &spec(&[a], &[])).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let private = spec(&[a], &[("use-private-ip", "true")]);
    cloud.standin.freeze_actions();
    let removing = ensure(&*cloud.driver(), &private).await;
    assert_eq!(removing, Ok(Progress::Working("remove_target".to_owned())));
    cloud.standin.detach_server(a, NETWORK).expect("it exists");
    cloud.standin.thaw_actions();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(targets(&cloud), []);
    let made = ensured(&*cloud.driver(), &private).await;
    assert_eq!(targets(&cloud), [(a, false)]);
    assert!(made.skipped[0].message.contains("not attached"), "{:?}", made.skipped);
    assert_eq!(shown(&cloud).labels.keys().collect::<Vec<_>>(), [KEY], "no trace is left");
}

#[tokio::test(start_paused = true)]
async fn https_uses_uploaded_and_managed_certificates() {
    let cloud = Cloud::instant();
    let driver = cloud.driver();
    let managed = [
        ("protocol", "https"),
        ("certificate-type", "managed"),
        ("http-managed-certificate-domains", "example.com"),
    ];
    ensured(&*driver, &spec(&[], &managed)).await;
    let certificate = cloud.standin.dump().certificates.into_values().next().expect("created");
    assert_eq!(certificate.name, "ccm-managed-certificate-uid-1");
    let used = || shown(&cloud).services[0].http.as_ref().expect("HTTP").certificates.clone();
    assert_eq!(used(), [certificate.id]);
    let changes = cloud.changes();
    ensured(&*driver, &spec(&[], &managed)).await;
    assert_eq!(cloud.changes(), changes, "the certificate is found again");
    let by_name = [("protocol", "https"), ("http-certificates", "ccm-managed-certificate-uid-1")];
    ensured(&*driver, &spec(&[], &by_name)).await;
    assert_eq!((used(), cloud.changes()), (vec![certificate.id], changes));
    let id = certificate.id.to_string();
    let by_id = [("protocol", "https"), ("http-certificates", id.as_str())];
    ensured(&*driver, &spec(&[], &by_id)).await;
    assert_eq!((used(), cloud.changes()), (vec![certificate.id], changes), "given by id");
    let unknown = [("protocol", "https"), ("http-certificates", "nowhere")];
    let error = ensure(&*driver, &spec(&[], &unknown)).await.expect_err("no certificate");
    assert!(error.message.contains("nowhere"), "{error}");
}

/// 4.4, step 5.
#[tokio::test(start_paused = true)]
async fn every_part_of_a_balancer_is_changed_in_place() {
    let cloud = Cloud::instant();
    let server = cloud.server("a").id;
    let driver = cloud.driver();
    let before = ensured(&*driver, &spec(&[server], &[])).await.balancer;
    let options = [
        ("name", "edge"),
        ("type", "lb21"),
        ("algorithm-type", "least_connections"),
        ("ipv4-rdns", "edge.example"),
        ("private-ipv4", "10.0.0.99"),
        ("use-private-ip", "true"),
        ("disable-public-network", "true"),
        ("uses-proxyprotocol", "true"),
        ("health-check-interval", "20s"),
    ];
    let changed = spec(&[server], &options);
    let after = ensured(&*driver, &changed).await.balancer;
    assert_eq!(after.id, before.id);
    let shown = shown(&cloud);
    assert_eq!((shown.name.as_str(), shown.load_balancer_type.as_str()), ("edge", "lb21"));
    assert_eq!((shown.ipv4_dns_ptr.as_str(), shown.public_interface), ("edge.example", false));
    assert_eq!(shown.private_net[0].ip, "10.0.0.99");
    assert!(shown.targets[0].use_private_ip && shown.services[0].proxyprotocol);
    assert_eq!(shown.services[0].health_check.interval, 20);
    let only = Ingress::Ip { address: "10.0.0.99".parse().expect("an address"), is_proxy: true };
    assert_eq!(after.ingress, [only]);
    let changes = cloud.changes();
    ensured(&*driver, &changed).await;
    assert_eq!(cloud.changes(), changes);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_creation_is_repeated_safely() {
    let cloud = Cloud::instant();
    let driver = cloud.driver();
    cloud.standin.add_fault(FaultRule::once("POST", "/v1/load_balancers", Fault::EffectThenReset));
    let error = ensure(&*driver, &spec(&[], &[])).await.expect_err("the answer is lost");
    assert_eq!(error.kind, ErrorKind::Ambiguous);
    ensured(&*driver, &spec(&[], &[])).await;
    assert_eq!(shown(&cloud).labels.get(KEY).map(String::as_str), Some("uid-1"));
}

/// The first creation takes effect late: lists do not show the balancer when a user has changed its
/// name meanwhile.
#[tokio::test(start_paused = true)]
async fn a_name_changed_after_a_lost_answer_creates_no_second() {
    let cloud = Cloud::instant();
    let driver = cloud.driver();
    cloud.standin.add_fault(FaultRule::once("POST", "/v1/load_balancers", Fault::EffectThenReset));
    let error = ensure(&*driver, &spec(&[], &[("name", "before")])).await.expect_err("the answer is lost");
    assert_eq!(error.kind, ErrorKind::Ambiguous);
    let unseen = FaultRule::always("GET", "/v1/load_balancers", Fault::EmptyList);
    cloud.standin.add_fault(FaultRule { times: Some(2), ..unseen });
    let renamed = spec(&[], &[("name", "after")]);
    assert_eq!(ensured(&*driver, &renamed).await.balancer.name, "after");
    assert!(cloud.standin.faults().is_empty(), "both lists showed nothing");
    let shown = shown(&cloud);
    assert_eq!((shown.name.as_str(), shown.labels.get(KEY).map(String::as_str)), ("after", Some("uid-1")));
}

/// The caller knows the id, so a list without the balancer leads to no second one.
#[tokio::test(start_paused = true)]
async fn a_known_balancer_that_lists_lack_is_found_by_id() {
    let cloud = Cloud::instant();
    let made = ensured(&*cloud.driver(), &spec(&[], &[("name", "edge")])).await;
    assert_eq!(made.balancer.name, "edge", "its first name is free");
    assert_eq!(made.balancer.created, Some(cloud.standin.now()));
    cloud.standin.add_fault(FaultRule::always("GET", "/v1/load_balancers", Fault::EmptyList));
    let known = BalancerSpec { id: Some(made.balancer.id.clone()), ..spec(&[], &[("name", "edge")]) };
    assert_eq!(ensured(&*cloud.driver(), &known).await.balancer.id, made.balancer.id);
    assert_eq!(commands(&cloud).len(), 2, "a creation and a rename: {:?}", commands(&cloud));
    // Without an answer about the id, nothing is created.
    let error = Fault::Error { code: "server_error".to_owned(), status: None };
    cloud.standin.add_fault(FaultRule::once("GET", "/v1/load_balancers/{id}", error));
    ensure(&*cloud.driver(), &known).await.expect_err("no answer about the id");
    cloud.standin.clear_faults();
    let no_id = BalancerSpec { id: Some("no id".to_owned()), ..known };
    assert_eq!(ensured(&*cloud.driver(), &no_id).await.balancer.id, made.balancer.id);
}

/// The driver has created or adopted the balancer, and the caller does not know its id yet.
#[tokio::test(start_paused = true)]
async fn a_balancer_of_an_unfinished_call_is_found_by_id() {
    let cloud = Cloud::new();
    cloud.standin.freeze_actions();
    let driver = cloud.driver();
    let created = ensure(&*driver, &spec(&[], &[])).await;
    assert_eq!(created, Ok(Progress::Working("create_load_balancer".to_owned())));
    cloud.standin.thaw_actions();
    tokio::time::sleep(Duration::from_secs(5)).await;
    cloud.standin.add_fault(FaultRule::always("GET", "/v1/load_balancers", Fault::EmptyList));
    ensured(&*driver, &spec(&[], &[("name", "edge")])).await;
    assert_eq!(shown(&cloud).name, "edge");
}

/// An adopted balancer would be a second one, in addition to the balancer of the lost creation.
#[tokio::test(start_paused = true)]
async fn an_adoption_waits_for_a_lost_creation() {
    let cloud = Cloud::instant();
    let driver = cloud.driver();
    ensured(&*driver, &spec(&[], &[("name", "shared")])).await;
    change(&cloud, |balancer| balancer.labels.clear());
    let claim = NameClaim { has_open_creation: true, ..NameClaim::default() };
    let waiting = BalancerSpec { claim, ..spec(&[], &[("name", "shared")]) };
    let changes = cloud.changes();
    let answer = ensure(&*cloud.driver(), &waiting).await;
    assert!(matches!(&answer, Ok(Progress::Working(why)) if why.starts_with("adopt_load")), "{answer:?}");
    assert_eq!(cloud.changes(), changes);
    // The load balancer with the first name comes from the lost creation.
    change(&cloud, |balancer| balancer.name = "a1".to_owned());
    assert_eq!(ensured(&*cloud.driver(), &waiting).await.balancer.name, "shared");
}

/// The deletion of the balancer with the name and the addresses that a Service shows.
async fn delete_traced(
    driver: &dyn Driver,
    name: Option<&str>,
    addresses: Vec<std::net::IpAddr>,
) -> Result<Progress<BalancerDeletion>, machinist_instance::Error> {
    let options = name.map(|name| ("name".to_owned(), name.to_owned())).into_iter().collect();
    let trace = Some(BalancerTrace { name: "a1".to_owned(), options, addresses });
    let which = BalancerRef { id: None, key: BalancerKey::new("uid-1"), native_id: None, trace };
    driver.balancers().expect("enabled").delete(&which).await
}

fn addresses(ensured: &Ensured) -> Vec<std::net::IpAddr> {
    let address = |ingress: &Ingress| match ingress {
        Ingress::Ip { address, .. } => Some(*address),
        Ingress::Hostname(_) => None,
    };
    ensured.balancer.ingress.iter().filter_map(address).collect()
}

/// Without its label, it would never be deleted with its Service.
#[tokio::test(start_paused = true)]
async fn a_balancer_that_lost_its_label_is_deleted() {
    for name in [None, Some("edge")] {
        let cloud = Cloud::instant();
        let driver = cloud.driver();
        let options: Vec<(&str, &str)> = name.map(|name| ("name", name)).into_iter().collect();
        let made = ensured(&*driver, &spec(&[], &options)).await;
        change(&cloud, |balancer| drop(balancer.labels.remove(KEY)));
        let deleted = delete_traced(&*driver, name, addresses(&made)).await;
        assert_eq!(deleted, Ok(Progress::Done(BalancerDeletion::Gone)), "{name:?}");
        assert!(cloud.standin.dump().load_balancers.is_empty());
    }
}

/// The name is made of the key, so the balancer is the one, and an address would prove it.
#[tokio::test(start_paused = true)]
async fn a_balancer_with_only_its_first_name_is_reported() {
    let cloud = Cloud::instant();
    let driver = cloud.driver();
    let made = ensured(&*driver, &spec(&[], &[])).await;
    let other = vec!["192.0.2.250".parse().expect("an address")];
    change(&cloud, |balancer| drop(balancer.labels.remove(KEY)));
    for addresses in [other, Vec::new()] {
        let refused = delete_traced(&*driver, Some("edge"), addresses).await.expect_err("not proven");
        assert_eq!(refused.kind, ErrorKind::InvalidSpec);
        assert!(refused.message.contains("add the label hcloud-ccm/service-uid=uid-1"), "{refused}");
    }
    // Another Service has adopted it by its name.
    change(&cloud, |balancer| drop(balancer.labels.insert(KEY.to_owned(), "uid-2".to_owned())));
    let adopted = delete_traced(&*driver, Some("edge"), addresses(&made)).await;
    assert_eq!(adopted, Ok(Progress::Done(BalancerDeletion::Absent)));
    // A protected one is kept in any case, so the Service can go.
    change(&cloud, |balancer| {
        balancer.labels.remove(KEY);
        balancer.protected = true;
    });
    let kept = delete_traced(&*driver, None, Vec::new()).await;
    assert_eq!(kept, Ok(Progress::Done(BalancerDeletion::Retained)));
    assert_eq!(shown(&cloud).id.to_string(), made.balancer.id);
}

/// A Service that never had a balancer may name a balancer of a user or of another Service. Its
/// deletion does not wait for that balancer, and no message advises to release the balancer.
#[tokio::test(start_paused = true)]
async fn a_foreign_balancer_of_the_chosen_name_is_left_alone() {
    let cloud = Cloud::instant();
    let driver = cloud.driver();
    let made = ensured(&*driver, &spec(&[], &[("name", "edge")])).await;
    let other = vec!["192.0.2.250".parse().expect("an address")];
    for (label, protected) in [(None, false), (None, true), (Some("uid-2"), false)] {
        change(&cloud, |balancer| {
            balancer.labels.remove(KEY);
            balancer.labels.extend(label.map(|uid| (KEY.to_owned(), uid.to_owned())));
            balancer.protected = protected;
        });
        for addresses in [other.clone(), Vec::new()] {
            let deleted = delete_traced(&*driver, Some("edge"), addresses).await;
            assert_eq!(deleted, Ok(Progress::Done(BalancerDeletion::Absent)), "{label:?}, {protected}");
        }
    }
    assert_eq!(shown(&cloud).id.to_string(), made.balancer.id);
}

/// The process was paused in the middle of a call, and continues with the answer to a read.
#[tokio::test(start_paused = true)]
async fn a_call_behind_a_closed_fence_only_reads() {
    let cloud = Cloud::instant();
    let driver = cloud.driver();
    let fenced = || Fence::new(|| Err("the lease has ended"));
    let refused = fenced().around(ensure(&*driver, &spec(&[], &[]))).await.expect_err("not created");
    assert_eq!(refused.kind, ErrorKind::Unavailable);
    assert!(refused.message.contains("the lease has ended"), "{refused}");
    assert!(cloud.reads() > 0 && cloud.changes() == 0);

    let made = ensured(&*driver, &spec(&[], &[])).await.balancer;
    let (reads, changes) = (cloud.reads(), cloud.changes());
    let which =
        BalancerRef { id: Some(made.id), key: BalancerKey::new("uid-1"), native_id: None, trace: None };
    let deletion = driver.balancers().expect("enabled").delete(&which);
    assert_eq!(fenced().around(deletion).await.map_err(|error| error.kind), Err(ErrorKind::Unavailable));
    assert!(reads < cloud.reads() && changes == cloud.changes(), "nothing was deleted");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_taken_meanwhile_is_looked_up_again() {
    let cloud = Cloud::instant();
    let driver = cloud.driver();
    let taken = "uniqueness_error".to_owned();
    let raced = Fault::EffectThenError { code: taken.clone() };
    cloud.standin.add_fault(FaultRule::once("POST", "/v1/load_balancers", raced));
    let found = ensure(&*driver, &spec(&[], &[])).await;
    assert!(matches!(found, Ok(Progress::Done(_))), "{found:?}");
    assert_eq!(shown(&cloud).labels.get(KEY).map(String::as_str), Some("uid-1"));

    // The cloud shows no load balancer of the name, so a repetition would never end.
    let cloud = Cloud::instant();
    let never = Fault::Error { code: taken, status: None };
    cloud.standin.add_fault(FaultRule::always("POST", "/v1/load_balancers", never));
    let error = ensure(&*cloud.driver(), &spec(&[], &[])).await.expect_err("not created");
    assert_eq!(error.kind, ErrorKind::InvalidSpec);
    assert!(error.message.contains("uniqueness_error"), "{error}");
}

/// A dry run learns the changes, and makes none: no certificate either.
#[tokio::test(start_paused = true)]
async fn foreseen_changes_are_only_read() {
    let cloud = Cloud::instant();
    let server = cloud.server("a").id;
    let driver = cloud.driver();
    let foresee = async |spec: &BalancerSpec| {
        driver.balancers().expect("enabled").foresee(spec).await.expect("an answer")
    };
    let managed = [
        ("type", "lb11"),
        ("protocol", "https"),
        ("certificate-type", "managed"),
        ("http-managed-certificate-domains", "a.example"),
    ];
    let expected = ["create_certificate ccm-managed-certificate-uid-1", "create_load_balancer a1"];
    assert_eq!(foresee(&spec(&[server], &managed)).await, expected);
    assert_eq!(commands(&cloud), Vec::<String>::new());

    let existing = spec(&[server], &[("type", "lb11")]);
    ensured(&*driver, &existing).await;
    let before = commands(&cloud);
    assert_eq!(foresee(&existing).await, Vec::<String>::new(), "it is as wanted");
    let other = cloud.server("b").id;
    let mut changed = spec(&[server, other], &[("type", "lb21")]);
    changed.listeners[0].target_port = 30081;
    let expected = [
        "change_load_balancer_type lb21".to_owned(),
        "update_service port 80".to_owned(),
        format!("add_target server {other} (Node node-{other})"),
    ];
    assert_eq!(foresee(&changed).await, expected);
    assert_eq!(commands(&cloud), before, "nothing but reads was sent");
}

/// Another program made them, for servers of Hetzner Robot. Their Nodes may be unknown at the start
/// of a process.
#[tokio::test(start_paused = true)]
async fn address_targets_outlast_the_start_of_a_process() {
    let cloud = Cloud::instant();
    let spec = spec(&[cloud.server("a").id], &[]);
    ensured(&*cloud.driver(), &spec).await;
    change(&cloud, |balancer| {
        let kind = TargetKind::Ip("198.51.100.1".to_owned());
        balancer.targets.push(machinist_standin_hcloud::LbTarget { kind, use_private_ip: false });
    });
    let driver = cloud.driver();
    ensured(&*driver, &spec).await;
    assert_eq!(shown(&cloud).targets.len(), 2, "no call could add it again");
    tokio::time::sleep(Duration::from_secs(120)).await;
    ensured(&*driver, &spec).await;
    assert_eq!(shown(&cloud).targets.len(), 1, "the cluster has no server of Hetzner Robot");
}
