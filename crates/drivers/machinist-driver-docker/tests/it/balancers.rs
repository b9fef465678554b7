//! Load balancers in containers: weights, reloads, healing, and ownership.

use std::net::IpAddr;

use machinist_driver::{Balancers, Driver};
use machinist_instance::{
    Balancer, BalancerDeletion, BalancerKey, BalancerRef, BalancerSpec, BalancerTarget, Ensured, ErrorKind,
    Ingress, Instance, Listener, Progress, TransportProtocol,
};

use crate::engine::{Engine, NODE_IMAGE, has_haproxy};

fn calls(driver: &dyn Driver) -> &dyn Balancers {
    driver.balancers().expect("this driver has balancers")
}

fn spec(engine: &Engine, targets: &[(&Instance, u8)]) -> BalancerSpec {
    let target = |(instance, weight): &(&Instance, u8)| BalancerTarget {
        node: instance.name.to_string(),
        instance: instance.id.clone(),
        weight: *weight,
    };
    BalancerSpec {
        key: BalancerKey::new(format!("{}-uid", engine.run)),
        claim: Default::default(),
        id: None,
        native_id: None,
        name: format!("{}-lb", engine.run),
        listeners: vec![Listener { protocol: TransportProtocol::Tcp, port: 6443, target_port: 6443 }],
        targets: targets.iter().map(target).collect(),
        options: [("cluster".to_owned(), engine.run.clone())].into(),
    }
}

async fn ensured(engine: &Engine, spec: &BalancerSpec) -> Ensured {
    let driver = engine.driver();
    let look = async || match calls(&*driver).ensure(spec).await {
        Ok(progress) => progress.done(),
        Err(error) => {
            assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
            None
        }
    };
    engine.until("the load balancer is as requested", look).await
}

async fn config(engine: &Engine, balancer: &Balancer) -> String {
    // The image of a load balancer has few programs.
    let text = engine.sh(&balancer.name, "cat /usr/local/etc/haproxy/haproxy.cfg").await;
    text.lines().filter(|line| line.contains("  server ")).collect::<Vec<_>>().join("\n")
}

fn ip(balancer: &Balancer) -> IpAddr {
    match balancer.ingress.as_slice() {
        [Ingress::Ip { address, .. }] => *address,
        other => panic!("expected one address, got {other:?}"),
    }
}

#[tokio::test]
async fn weights_of_running_targets_are_loaded() {
    let Some(engine) = Engine::open("lb-weight").await else { return };
    let (a, b) = (engine.ensure(&engine.spec("a")).await, engine.ensure(&engine.spec("b")).await);
    let made = ensured(&engine, &spec(&engine, &[(&a, 100), (&b, 100)])).await.balancer;
    assert_eq!(
        (made.ports.as_slice(), made.targets.as_slice()),
        (&[6443][..], &[a.id.clone(), b.id.clone()][..])
    );
    assert!(made.host_ports.contains_key(&6443) && made.native_id.is_some(), "{made:?}");
    let drained = ensured(&engine, &spec(&engine, &[(&a, 0), (&b, 100)])).await;
    assert_eq!(drained.balancer, made);
    let servers = config(&engine, &made).await;
    assert!(servers.contains(&format!("{} ", a.name)) && servers.contains("weight 0 check"), "{servers}");
    engine.docker(&["stop", "-t", "1", b.name.as_str()]).await;
    let without = ensured(&engine, &spec(&engine, &[(&a, 0), (&b, 100)])).await;
    assert_eq!(without.balancer.targets, [a.id]);
    assert!(without.notes.iter().any(|note| note.message.contains(b.name.as_str())), "{:?}", without.notes);
    engine.sweep().await;
}

#[tokio::test]
async fn a_stopped_balancer_is_started_with_the_same_address() {
    let Some(engine) = Engine::open("lb-heal").await else { return };
    let made = ensured(&engine, &spec(&engine, &[])).await.balancer;
    engine.docker(&["kill", &made.name]).await;
    let again = ensured(&engine, &spec(&engine, &[])).await.balancer;
    assert_eq!((again.native_id, again.ingress), (made.native_id, made.ingress));
    engine.sweep().await;
}

#[tokio::test]
async fn a_lost_balancer_gets_its_recorded_address_and_port() {
    let Some(engine) = Engine::open("lb-lost").await else { return };
    let made = ensured(&engine, &spec(&engine, &[])).await.balancer;
    let (address, port) = (ip(&made), made.host_ports[&6443]);
    engine.docker(&["rm", "-fv", &made.name]).await;
    // The next container of the network would take the address.
    let mut recorded = spec(&engine, &[]);
    recorded.options.insert("ip".to_owned(), address.to_string());
    recorded.options.insert("host-port.6443".to_owned(), port.to_string());
    let again = ensured(&engine, &recorded).await.balancer;
    assert_eq!((ip(&again), again.host_ports[&6443]), (address, port));
    assert_ne!(again.native_id, made.native_id);
    engine.sweep().await;
}

/// After a restart of the engine, containers start in another order. The network of an earlier
/// version has a subnet, and no range.
#[tokio::test]
async fn a_moved_balancer_gets_its_recorded_address_back() {
    const NETWORK: &str = "machinist-test-dynamic";
    let Some(engine) = Engine::open("lb-back").await else { return };
    if engine.docker(&["network", "ls", "--quiet", "--filter", &format!("name={NETWORK}")]).await.is_empty() {
        engine.docker(&["network", "create", "--subnet", "10.215.0.0/16", NETWORK]).await;
    }
    let spec = |engine: &Engine, targets: &[(&Instance, u8)]| {
        let mut spec = spec(engine, targets);
        spec.options.insert("network".to_owned(), NETWORK.to_owned());
        spec
    };
    let made = ensured(&engine, &spec(&engine, &[])).await.balancer;
    let (address, port) = (ip(&made).to_string(), made.host_ports[&6443].to_string());
    engine.docker(&["stop", "-t", "1", &made.name]).await;
    let first = format!("{}-first", engine.run);
    let run = ["run", "-d", "--name", &first, "--network", NETWORK, "--ip", &address, NODE_IMAGE];
    engine.docker(&run).await;
    let mut recorded = spec(&engine, &[]);
    recorded.options.insert("ip".to_owned(), address.clone());
    recorded.options.insert("host-port.6443".to_owned(), port.clone());
    let moved = ensured(&engine, &recorded).await;
    assert_ne!(ip(&moved.balancer).to_string(), address);
    let notes: Vec<String> =
        moved.notes.iter().map(|note| format!("{}: {}", note.reason, note.message)).collect();
    assert!(
        notes.len() == 1 && notes[0].starts_with("AddressMoved: ") && notes[0].contains(&first),
        "{notes:?}"
    );
    engine.docker(&["rm", "-fv", &first]).await;
    let back = ensured(&engine, &recorded).await;
    assert_eq!((ip(&back.balancer).to_string(), back.notes), (address.clone(), Vec::new()));
    assert_eq!(back.balancer.host_ports[&6443].to_string(), port);
    // Now the address is static, so the load balancer cannot start at another one.
    engine.docker(&["stop", "-t", "1", &made.name]).await;
    engine.docker(&run).await;
    let error = calls(&*engine.driver()).ensure(&recorded).await.expect_err("the address is taken");
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains(&first), "{error}");
    engine.docker(&["rm", "-fv", &first]).await;
    assert_eq!(ensured(&engine, &recorded).await.balancer, back.balancer);
    engine.sweep().await;
}

#[tokio::test]
async fn only_the_recorded_id_gives_access_after_a_move() {
    let Some(engine) = Engine::open("lb-move").await else { return };
    let driver = engine.driver();
    let before = spec(&engine, &[]);
    let made = ensured(&engine, &before).await.balancer;
    let moved = BalancerSpec { key: BalancerKey::new("uid-after-the-move"), ..before };
    let refused = calls(&*driver).ensure(&moved).await.expect_err("another key");
    assert_eq!(refused.kind, ErrorKind::InvalidSpec);
    let which =
        |native_id| BalancerRef { id: Some(made.id.clone()), key: moved.key.clone(), native_id, trace: None };
    let refused = calls(&*driver).delete(&which(None)).await.expect_err("another key");
    assert_eq!(refused.kind, ErrorKind::InvalidSpec);
    let recorded = BalancerSpec { native_id: made.native_id.clone(), ..moved.clone() };
    assert_eq!(ensured(&engine, &recorded).await.balancer, made);
    let deleted = calls(&*driver).delete(&which(made.native_id.clone())).await;
    assert_eq!(deleted, Ok(Progress::Done(BalancerDeletion::Gone)));
}

#[tokio::test]
async fn an_invalid_template_leaves_the_old_configuration() {
    let Some(engine) = Engine::open("lb-tmpl").await else { return };
    if !has_haproxy() {
        println!("SKIPPED lb-tmpl: only a real HAProxy refuses a configuration");
        return;
    }
    let a = engine.ensure(&engine.spec("a")).await;
    let before = ensured(&engine, &spec(&engine, &[(&a, 100)])).await.balancer;
    let with = |template: &str| {
        let mut spec = spec(&engine, &[(&a, 100)]);
        spec.options.insert("haproxy-template".to_owned(), template.to_owned());
        spec
    };
    let driver = engine.driver();
    let error =
        calls(&*driver).ensure(&with("frontend {{ .IPv6 }}\n  unknown-word\n")).await.expect_err("invalid");
    assert_eq!(error.kind, ErrorKind::InvalidSpec);
    assert!(error.message.contains("unknown-word"), "{error}");
    let which =
        BalancerRef { id: None, key: before.key.clone().expect("a key"), native_id: None, trace: None };
    assert_eq!(calls(&*driver).find(&which).await, Ok(Some(before)));
    let template = "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 5s\n  timeout server 5s\n\
                    listen x\n  bind *:{{ .FrontendControlPlanePort }}\n{{ range $n, $s := .BackendServers }}  \
                    server {{ $n }} {{ JoinHostPort $s.Address $.BackendControlPlanePort }} weight {{ $s.Weight }}\n{{ end }}";
    let changed = ensured(&engine, &with(template)).await.balancer;
    assert_eq!(changed.targets, [a.id]);
    assert!(config(&engine, &changed).await.contains("weight 100"));
    engine.sweep().await;
}

#[tokio::test]
async fn new_ports_keep_the_address_and_the_host_ports() {
    let Some(engine) = Engine::open("lb-ports").await else { return };
    let before = spec(&engine, &[]);
    let made = ensured(&engine, &before).await.balancer;
    let mut more = before;
    more.listeners.push(Listener { protocol: TransportProtocol::Tcp, port: 8443, target_port: 6443 });
    let changed = ensured(&engine, &more).await.balancer;
    assert_eq!((ip(&changed), changed.ports.as_slice()), (ip(&made), &[6443, 8443][..]));
    assert_eq!(changed.host_ports[&6443], made.host_ports[&6443]);
    engine.sweep().await;
}

#[tokio::test]
async fn a_crashing_balancer_gets_a_valid_configuration() {
    let Some(engine) = Engine::open("lb-crash").await else { return };
    let a = engine.ensure(&engine.spec("a")).await;
    let wanted = spec(&engine, &[(&a, 100)]);
    let made = ensured(&engine, &wanted).await.balancer;
    engine.sh(&made.name, "echo unknown-word >/usr/local/etc/haproxy/haproxy.cfg").await;
    engine.docker(&["restart", "-t", "1", &made.name]).await;
    let again = ensured(&engine, &wanted).await.balancer;
    assert_eq!((again.native_id, again.targets), (made.native_id, made.targets));
    engine.sweep().await;
}

#[tokio::test]
async fn a_network_without_static_addresses_gives_a_new_one() {
    let Some(engine) = Engine::open("lb-plain").await else { return };
    let mut wanted = spec(&engine, &[]);
    wanted.options.insert("network".to_owned(), "machinist-test-plain".to_owned());
    wanted.options.insert("ip".to_owned(), "10.214.0.9".to_owned());
    let driver = engine.driver();
    let first = calls(&*driver).ensure(&wanted).await.expect("valid").done().expect("the image is there");
    let reasons: Vec<&str> = first.notes.iter().map(|note| note.reason).collect();
    assert_eq!(reasons, ["StaticAddressRefused"], "{:?}", first.notes);
    assert_ne!(ip(&first.balancer).to_string(), "10.214.0.9");
    let again = ensured(&engine, &wanted).await;
    let reasons: Vec<&str> = again.notes.iter().map(|note| note.reason).collect();
    assert_eq!((again.balancer, reasons), (first.balancer, vec!["AddressMoved"]));
    engine.sweep().await;
}

#[tokio::test]
async fn an_equal_balancer_causes_only_reads() {
    let Some(engine) = Engine::open("lb-equal").await else { return };
    let a = engine.ensure(&engine.spec("a")).await;
    let wanted = spec(&engine, &[(&a, 100)]);
    let made = ensured(&engine, &wanted).await;
    let before = now();
    let again = calls(&*engine.driver()).ensure(&wanted).await.expect("valid");
    assert_eq!(again, Progress::Done(made.clone()));
    let filter = format!("container={}", made.balancer.name);
    let arguments =
        ["events", "--since", &before, "--until", &now(), "--filter", &filter, "--format", "{{.Action}}"];
    let events = engine.docker(&arguments).await;
    // The driver reads the configuration as an archive.
    let changes: Vec<&str> = events.lines().filter(|action| *action != "archive-path").collect();
    assert_eq!(changes, [""; 0], "events during the repeated call");
    engine.sweep().await;
}

#[expect(clippy::disallowed_methods, reason = "the engine uses the real clock")]
fn now() -> String {
    jiff::Timestamp::now().to_string()
}
