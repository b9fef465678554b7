//! Load balancers of Services.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use http_body_util::BodyExt as _;
use kube::api::DeleteParams;
use tower::Service as _;

use super::*;

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

fn ingress(service: &Service) -> Vec<String> {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.clone()).unwrap_or_default();
    ingress.into_iter().filter_map(|entry| entry.ip).collect()
}

/// Returns the listen ports and the number of targets of the only load balancer.
fn balancer(world: &World) -> Option<(Vec<u16>, usize)> {
    let state = world.standin.dump();
    let balancer = state.load_balancers.values().next()?;
    let mut ports: Vec<u16> = balancer.services.iter().map(|service| service.listen_port).collect();
    ports.sort_unstable();
    Some((ports, balancer.targets.len()))
}

/// The Service is created, changed and deleted, and Nodes are added and removed.
#[tokio::test(start_paused = true)]
async fn a_load_balancer_follows_its_service_and_nodes() {
    let world = World::new();
    let _process = world.start();
    world.nodes_with_servers(&["a", "b"]).await;
    world.services().create(&PostParams::default(), &service(&[80])).await.expect("accepted");
    world
        .until("the Service has an address", async |w| {
            let service = w.services().get("web").await.expect("the Service exists");
            !ingress(&service).is_empty()
        })
        .await;
    let made = world.services().get("web").await.expect("the Service exists");
    assert!(made.metadata.finalizers.iter().flatten().any(|name| name == FINALIZER));
    assert_eq!(balancer(&world), Some((vec![80], 2)));
    world.until("the Event is written", async |w| w.events("EnsuredLoadBalancer").await.len() == 1).await;

    let ports = json!({"spec": {"ports": [{"name": "p80", "port": 80}, {"name": "p443", "port": 443}]}});
    let params = PatchParams::default();
    world.services().patch("web", &params, &Patch::Strategic(ports)).await.expect("changed");
    world.until("the port is added", async |w| balancer(w) == Some((vec![80, 443], 2))).await;

    world.server("c");
    tokio::time::sleep(Duration::from_secs(10)).await;
    world.join("c").await;
    world.until("the Node is added", async |w| balancer(w) == Some((vec![80, 443], 3))).await;
    let excluded =
        json!({"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": ""}}});
    world.nodes().patch("c", &params, &Patch::Merge(excluded)).await.expect("labelled");
    world.until("the Node is removed", async |w| balancer(w) == Some((vec![80, 443], 2))).await;

    tokio::time::sleep(Duration::from_secs(60)).await;
    let before = world.changes();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.changes(), before, "an idle load balancer costs no change");

    world.services().delete("web", &DeleteParams::default()).await.expect("accepted");
    world
        .until("Service and load balancer are gone", async |w| {
            balancer(w).is_none() && w.services().get_opt("web").await.expect("an answer").is_none()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_service_of_another_type_loses_its_balancer() {
    let world = World::new();
    let _process = world.start();
    world.nodes_with_servers(&["a"]).await;
    world.services().create(&PostParams::default(), &service(&[80])).await.expect("accepted");
    world
        .until("the Service has an address", async |w| {
            !ingress(&w.services().get("web").await.expect("the Service exists")).is_empty()
        })
        .await;
    let inner = Patch::Merge(json!({"spec": {"type": "ClusterIP"}}));
    world.services().patch("web", &PatchParams::default(), &inner).await.expect("changed");
    world
        .until("the load balancer and its traces are gone", async |w| {
            let service = w.services().get("web").await.expect("the Service stays");
            let is_held = service.metadata.finalizers.iter().flatten().any(|name| name == FINALIZER);
            balancer(w).is_none() && !is_held && ingress(&service).is_empty()
        })
        .await;
    let service = world.services().get("web").await.expect("the Service stays");
    assert_eq!(service.metadata.deletion_timestamp, None);
}

#[tokio::test(start_paused = true)]
async fn a_new_node_joins_every_balancer() {
    let world = World::new();
    let _process = world.start();
    world.nodes_with_servers(&["a", "b"]).await;
    for name in ["web", "api"] {
        let mut service = service(&[80]);
        service.metadata.name = Some(name.to_owned());
        world.services().create(&PostParams::default(), &service).await.expect("accepted");
    }
    let targets = |w: &World| -> Vec<usize> {
        w.standin.dump().load_balancers.values().map(|balancer| balancer.targets.len()).collect()
    };
    world.until("both have two targets", async |w| targets(w) == [2, 2]).await;
    world.nodes_with_servers(&["c"]).await;
    world.until("both have three targets", async |w| targets(w) == [3, 3]).await;
}

/// The autoscaler marks a Node, another Node joins, and the autoscaler keeps the first one after
/// all.
#[tokio::test(start_paused = true)]
async fn a_node_returns_when_its_deletion_is_cancelled() {
    let world = World::new();
    let _process = world.start();
    world.nodes_with_servers(&["a", "b"]).await;
    world.services().create(&PostParams::default(), &service(&[80])).await.expect("accepted");
    world.until("both Nodes are targets", async |w| balancer(w) == Some((vec![80], 2))).await;
    let taints = async |taints: Value| {
        let patch = Patch::Merge(json!({"spec": {"taints": taints}}));
        world.nodes().patch("a", &PatchParams::default(), &patch).await.expect("patched");
    };
    taints(json!([{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}])).await;
    world.until("the Node leaves", async |w| balancer(w) == Some((vec![80], 1))).await;
    world.nodes_with_servers(&["c"]).await;
    world.until("the new Node is a target", async |w| balancer(w) == Some((vec![80], 2))).await;
    taints(Value::Null).await;
    world.until("the Node returns", async |w| balancer(w) == Some((vec![80], 3))).await;
}

/// The same, while another Node only changes: its change computes the targets again.
#[tokio::test(start_paused = true)]
async fn a_node_returns_after_another_one_has_changed() {
    let world = World::new();
    let _process = world.start();
    world.nodes_with_servers(&["a", "b"]).await;
    world.services().create(&PostParams::default(), &service(&[80])).await.expect("accepted");
    world.until("both Nodes are targets", async |w| balancer(w) == Some((vec![80], 2))).await;
    let change = async |name: &str, change: Value| {
        let patch = Patch::Merge(change);
        world.nodes().patch(name, &PatchParams::default(), &patch).await.expect("patched");
    };
    let leaving = json!([{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]);
    change("a", json!({"spec": {"taints": leaving}})).await;
    world.until("the Node leaves", async |w| balancer(w) == Some((vec![80], 1))).await;
    change("b", json!({"metadata": {"labels": {"team": "blue"}}})).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(balancer(&world), Some((vec![80], 1)), "the taint is still set");
    change("a", json!({"spec": {"taints": null}})).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(balancer(&world), Some((vec![80], 2)), "the Node returns at once");
}

/// The check of the load balancers compares them with the Nodes, not with the last call.
#[tokio::test(start_paused = true)]
async fn a_check_adds_the_target_that_another_program_removed() {
    let world = World::new();
    let _process = world.start();
    world.nodes_with_servers(&["a", "b"]).await;
    world.services().create(&PostParams::default(), &service(&[80])).await.expect("accepted");
    world.until("both Nodes are targets", async |w| balancer(w) == Some((vec![80], 2))).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut state = world.standin.dump();
    state.load_balancers.values_mut().for_each(|balancer| balancer.targets.truncate(1));
    world.standin.load(state).expect("in memory");
    assert_eq!(balancer(&world), Some((vec![80], 1)));
    tokio::time::sleep(Duration::from_secs(630)).await;
    assert_eq!(balancer(&world), Some((vec![80], 2)), "the check comes every ten minutes");
}

/// A user writes a wrong value into an annotation of a live Service. Then all Nodes are replaced.
#[tokio::test(start_paused = true)]
async fn new_nodes_become_targets_beside_a_wrong_annotation() {
    let world = World::new();
    let process = world.start();
    let old = world.nodes_with_servers(&["a", "b"]).await;
    world.services().create(&PostParams::default(), &service(&[80])).await.expect("accepted");
    world.until("both Nodes are targets", async |w| balancer(w) == Some((vec![80], 2))).await;
    let wrong =
        json!({"metadata": {"annotations": {"load-balancer.hetzner.cloud/use-private-ip": "perhaps"}}});
    let reason = "use-private-ip: expected ";
    let params = PatchParams::default();
    world.services().patch("web", &params, &Patch::Merge(wrong)).await.expect("changed");
    let inspector = process.inspector();
    let key = Key::Service(machinist_kube::ObjectKey::new("default", "web"));
    world.until("it is reported", async |_| why(&inspector, &key).contains(reason)).await;
    let new = world.nodes_with_servers(&["c", "d"]).await;
    for (name, server) in &old {
        world.standin.delete_server(*server).expect("deleted");
        world.nodes().delete(name, &DeleteParams::default()).await.expect("deleted");
    }
    let targets = |w: &World| -> std::collections::BTreeSet<i64> {
        let state = w.standin.dump();
        let targets = state.load_balancers.values().flat_map(|balancer| balancer.targets.clone());
        let server = |target: machinist_standin_hcloud::LbTarget| match target.kind {
            machinist_standin_hcloud::TargetKind::Server(id) => id,
            kind => panic!("a target of another kind: {kind:?}"),
        };
        targets.map(server).collect()
    };
    world
        .until("the new Nodes are the targets", async |w| targets(w).into_iter().eq(new.values().copied()))
        .await;
    world.until("it is still reported", async |_| why(&inspector, &key).contains(reason)).await;
}

/// A server is attached to the network a minute after its Node joined.
#[tokio::test(start_paused = true)]
async fn a_skipped_node_joins_when_the_cloud_accepts_it() {
    let world = World::new();
    let process = world.start();
    let ids = world.nodes_with_servers(&["a", "b"]).await;
    let attached = world.standin.server(ids["b"]).expect("it exists").private_net;
    world.standin.detach_server(ids["b"], NETWORK).expect("it exists");
    let mut private = service(&[80]);
    let option = ("load-balancer.hetzner.cloud/use-private-ip".to_owned(), "true".to_owned());
    private.metadata.annotations = Some([option].into());
    world.services().create(&PostParams::default(), &private).await.expect("accepted");
    world.until("one Node is a target", async |w| balancer(w) == Some((vec![80], 1))).await;
    let inspector = process.inspector();
    let key = Key::Service(machinist_kube::ObjectKey::new("default", "web"));
    world
        .until("the Service names the Node", async |_| {
            why(&inspector, &key).contains("Node b: server") && why(&inspector, &key).contains("not attached")
        })
        .await;
    let before = world.requests(|label| label.contains("load_balancers"));
    tokio::time::sleep(Duration::from_secs(590)).await;
    let calls = world.requests(|label| label.contains("load_balancers")) - before;
    assert!(calls <= 2, "only the list of the load balancers: {calls}");
    let attach = |server: &mut machinist_standin_hcloud::HcloudServer| server.private_net = attached;
    world.standin.change_server(ids["b"], attach).expect("it exists");
    world.until("the Node is added", async |w| balancer(w) == Some((vec![80], 2))).await;
    world.until("the Service is settled", async |_| why(&inspector, &key) == "up to date").await;
}

/// Without the finalizer, the load balancer is only reported.
#[tokio::test(start_paused = true)]
async fn the_balancer_of_a_service_without_finalizer_is_reported() {
    let world = World::new();
    let process = world.start();
    world.nodes_with_servers(&["a"]).await;
    for name in ["web", "other"] {
        let mut service = service(&[80]);
        service.metadata.name = Some(name.to_owned());
        world.services().create(&PostParams::default(), &service).await.expect("accepted");
    }
    let balancers = |w: &World| w.standin.dump().load_balancers.len();
    world.until("both load balancers exist", async |w| balancers(w) == 2).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    // While the program is away, a user removes the finalizer by force.
    drop(process);
    let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    world.services().patch("web", &PatchParams::default(), &bare).await.expect("changed");
    world.services().delete("web", &DeleteParams::default()).await.expect("accepted");
    assert!(world.services().get_opt("web").await.expect("an answer").is_none());
    let _process = world.start();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(balancers(&world), 2);
    let mut events = world.events("OrphanedLoadBalancer").await;
    assert!(1 < events.len(), "it still costs money");
    events.dedup();
    assert_eq!(events.len(), 1, "{events:?}");
}

/// No Service has a load balancer, and a load balancer that costs money is left.
#[tokio::test(start_paused = true)]
async fn orphaned_balancers_are_counted_without_any_service() {
    let world = World::new();
    let process = world.start();
    world.nodes_with_servers(&["a"]).await;
    world.services().create(&PostParams::default(), &service(&[80])).await.expect("accepted");
    world.until("the load balancer exists", async |w| balancer(w) == Some((vec![80], 1))).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    drop(process);
    let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    world.services().patch("web", &PatchParams::default(), &bare).await.expect("changed");
    world.services().delete("web", &DeleteParams::default()).await.expect("accepted");
    let process = world.start();
    let inspector = process.inspector();
    let orphans = || {
        let all = inspector.metrics();
        all.into_iter().find(|(name, _)| name == "machinist_ccm_orphaned_balancers").expect("a gauge").1
    };
    tokio::time::sleep(Duration::from_secs(3700)).await;
    assert_eq!(orphans(), 1.0);
    let mut state = world.standin.dump();
    state.load_balancers.clear();
    world.standin.load(state).expect("in memory");
    tokio::time::sleep(Duration::from_secs(3700)).await;
    assert_eq!(orphans(), 0.0, "the user has deleted it");
}

/// A deleted Service looks as if its load balancer were gone, and a living one as if it had none.
#[tokio::test(start_paused = true)]
async fn another_project_gets_and_loses_no_load_balancer() {
    let world = World::new();
    let process = world.start();
    world.nodes_with_servers(&["a", "b"]).await;
    world.services().create(&PostParams::default(), &service(&[80])).await.expect("accepted");
    world.until("the load balancer exists", async |w| balancer(w) == Some((vec![80], 2))).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    drop(process);
    world.set_token(2, OTHER_TOKEN);
    let process = world.start();
    let before = world.changes();
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert_eq!(world.changes(), before, "nothing is created in the other project");
    assert!(!world.events("CloudAccountUnproven").await.is_empty());
    let key = Key::Service(machinist_kube::ObjectKey::new("default", "web"));
    let message = why(&process.inspector(), &key);
    assert!(message.contains("another project"), "{message}");
    world.services().delete("web", &DeleteParams::default()).await.expect("accepted");
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert!(world.services().get_opt("web").await.expect("an answer").is_some(), "the Service waits");
    assert_eq!(balancer(&world), Some((vec![80], 2)), "its load balancer is not forgotten");
    world.set_token(3, TOKEN);
    world
        .until("Service and load balancer are gone", async |w| {
            balancer(w).is_none() && w.services().get_opt("web").await.expect("an answer").is_none()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_service_of_another_class_is_left_alone() {
    let world = World::new();
    let _process = world.start();
    world.nodes_with_servers(&["a"]).await;
    let mut other = service(&[80]);
    if let Some(spec) = &mut other.spec {
        spec.load_balancer_class = Some("example.com/other".to_owned());
    }
    world.services().create(&PostParams::default(), &other).await.expect("accepted");
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(balancer(&world), None);
    let service = world.services().get("web").await.expect("the Service exists");
    assert_eq!(service.metadata.finalizers, None);
}

/// The program of the other class may use the finalizer of the same name.
#[tokio::test(start_paused = true)]
async fn the_finalizer_of_another_class_is_left_alone() {
    let world = World::new();
    let _process = world.start();
    world.nodes_with_servers(&["a"]).await;
    let mut other = service(&[80]);
    other.metadata.finalizers = Some(vec!["service.kubernetes.io/load-balancer-cleanup".to_owned()]);
    if let Some(spec) = &mut other.spec {
        spec.load_balancer_class = Some("example.com/other".to_owned());
    }
    world.services().create(&PostParams::default(), &other).await.expect("accepted");
    let ingress = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}});
    let patch = Patch::Merge(&ingress);
    world.services().patch_status("web", &PatchParams::default(), &patch).await.expect("accepted");
    world.services().delete("web", &DeleteParams::default()).await.expect("accepted");
    tokio::time::sleep(Duration::from_secs(600)).await;
    let service = world.services().get("web").await.expect("the other program releases the Service");
    assert_eq!(service.metadata.finalizers, other.metadata.finalizers);
    let status = serde_json::to_value(&service.status).expect("JSON");
    assert_eq!(status["loadBalancer"]["ingress"][0]["ip"], "192.0.2.7");
}

/// A user removed the label by hand. Without it, the load balancer would stay forever.
#[tokio::test(start_paused = true)]
async fn a_balancer_without_its_label_goes_with_its_service() {
    let world = World::new();
    let _process = world.start();
    world.nodes_with_servers(&["a"]).await;
    world.services().create(&PostParams::default(), &service(&[80])).await.expect("accepted");
    world
        .until("the Service has an address", async |w| {
            !ingress(&w.services().get("web").await.expect("the Service exists")).is_empty()
        })
        .await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let mut state = world.standin.dump();
    state.load_balancers.values_mut().for_each(|balancer| balancer.labels.clear());
    world.standin.load(state).expect("in memory");
    world.services().delete("web", &DeleteParams::default()).await.expect("accepted");
    world
        .until("Service and load balancer are gone", async |w| {
            balancer(w).is_none() && w.services().get_opt("web").await.expect("an answer").is_none()
        })
        .await;
}

/// With the type, the API server removes the class. The other program still needs the finalizer for
/// its own deletion.
#[tokio::test(start_paused = true)]
async fn the_finalizer_of_another_class_outlasts_the_type() {
    let world = World::new();
    let _process = world.start();
    world.nodes_with_servers(&["a"]).await;
    let mut other = service(&[80]);
    other.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    if let Some(spec) = &mut other.spec {
        spec.load_balancer_class = Some("example.com/other".to_owned());
    }
    world.services().create(&PostParams::default(), &other).await.expect("accepted");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let inner = Patch::Merge(json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null}}));
    world.services().patch("web", &PatchParams::default(), &inner).await.expect("changed");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let service = world.services().get("web").await.expect("the Service exists");
    assert_eq!(service.metadata.finalizers, Some(vec![FINALIZER.to_owned()]));
}

/// A protected load balancer stays, and the Service is deleted.
#[tokio::test(start_paused = true)]
async fn a_protected_load_balancer_is_retained() {
    let world = World::new();
    let _process = world.start();
    world.nodes_with_servers(&["a"]).await;
    world.services().create(&PostParams::default(), &service(&[80])).await.expect("accepted");
    world.until("the load balancer exists", async |w| balancer(w) == Some((vec![80], 1))).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let mut state = world.standin.dump();
    for balancer in state.load_balancers.values_mut() {
        balancer.protected = true;
    }
    world.standin.load(state).expect("in memory");
    world.services().delete("web", &DeleteParams::default()).await.expect("accepted");
    world
        .until("the Service is gone", async |w| {
            w.services().get_opt("web").await.expect("an answer").is_none()
        })
        .await;
    assert!(balancer(&world).is_some());
    assert_eq!(world.events("LoadBalancerRetained").await.len(), 1);
    assert_eq!(world.events("DeletedLoadBalancer").await, Vec::<String>::new(), "it was not deleted");
}

/// Another program made its target with an IP address, and this program could not add it again.
#[tokio::test(start_paused = true)]
async fn a_robot_node_that_registers_again_keeps_its_target() {
    let world = World::new();
    let _process = world.start();
    world.nodes_with_servers(&["a"]).await;
    let robot: Node = parse(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "robot"},
        "spec": {"providerID": "hrobot://4321"},
    }));
    let join = async || world.nodes().create(&PostParams::default(), &robot).await.expect("accepted");
    let leave = async || world.nodes().delete("robot", &DeleteParams::default()).await.expect("deleted");
    join().await;
    world.services().create(&PostParams::default(), &service(&[80])).await.expect("accepted");
    world.until("the load balancer exists", async |w| balancer(w) == Some((vec![80], 1))).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    let mut state = world.standin.dump();
    let kind = machinist_standin_hcloud::TargetKind::Ip("198.51.100.1".to_owned());
    let target = machinist_standin_hcloud::LbTarget { kind, use_private_ip: false };
    state.load_balancers.values_mut().for_each(|balancer| balancer.targets.push(target.clone()));
    world.standin.load(state).expect("in memory");
    leave().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    join().await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(balancer(&world), Some((vec![80], 2)));
    leave().await;
    tokio::time::sleep(Duration::from_secs(110)).await;
    assert_eq!(balancer(&world), Some((vec![80], 2)), "it may come back");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(balancer(&world), Some((vec![80], 1)), "the last server of Hetzner Robot has left");
}

/// The program has lost the permission to read Nodes, so new ones cannot become targets.
#[tokio::test(start_paused = true)]
async fn services_name_the_silent_watch_of_nodes() {
    let world = World::new();
    let (is_forbidden, lists) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let client = {
        let (is_forbidden, lists, server) =
            (is_forbidden.clone(), lists.clone(), world.server.service_as(Identity::admin()));
        let filtered = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let is_of_nodes = request.uri().path() == "/api/v1/nodes";
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
            lists.fetch_add(u64::from(is_of_nodes && !is_watch), Ordering::Relaxed);
            let is_forbidden = is_of_nodes && is_forbidden.load(Ordering::Relaxed);
            let mut server = server.clone();
            async move {
                if is_forbidden {
                    let status = json!({
                        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
                        "reason": "Forbidden", "message": "nodes is forbidden",
                    });
                    let body = kube::client::Body::from(status.to_string().into_bytes());
                    let body = body.map_err(tower::BoxError::from).boxed_unsync();
                    return Ok(http::Response::builder().status(403).body(body).expect("a response"));
                }
                let answer = server.call(request).await.map_err(tower::BoxError::from)?;
                Ok::<_, tower::BoxError>(
                    answer.map(|body| body.map_err(tower::BoxError::from).boxed_unsync()),
                )
            }
        });
        layer_client(filtered, &world.client_options())
    };
    let process = world.start_over(client, None, |_| {});
    let inspector = process.inspector();
    world.nodes_with_servers(&["a"]).await;
    world.services().create(&PostParams::default(), &service(&[80])).await.expect("accepted");
    let key = Key::Service(machinist_kube::ObjectKey::new("default", "web"));
    world.until("the Service is settled", async |_| why(&inspector, &key) == "up to date").await;
    let before = lists.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(lists.load(Ordering::Relaxed), before, "an idle process lists no Nodes");
    assert_eq!(why(&inspector, &key), "up to date");
    is_forbidden.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(1800)).await;
    let message = why(&inspector, &key);
    assert!(message.starts_with("the API server of the target cluster"), "{message}");
    is_forbidden.store(false, Ordering::Relaxed);
    world.until("the Service is settled again", async |_| why(&inspector, &key) == "up to date").await;
}
