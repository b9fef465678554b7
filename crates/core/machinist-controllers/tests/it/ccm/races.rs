//! Writes that meet a conflict, come too late, or are repeated by another process.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{Either, Full};
use kube::api::DeleteParams;
use kube::client::Body;
use machinist_apiserver::ApiService;
use machinist_controllers::ccm::Controllers;
use machinist_kube::lease::{Elector, LeaseOptions};
use machinist_standin_hcloud::{Fault, FaultRule};
use tokio::sync::Notify;
use tokio::time::Instant;
use tower::{BoxError, ServiceExt as _, service_fn};

use super::*;

/// Whether the gate passes, refuses or holds one request.
#[derive(Clone, Copy)]
enum Turn {
    Pass,
    /// The answer is 409, without an effect.
    Conflict,
    /// The request reaches the server when the test opens the gate.
    Hold,
}

/// A service in front of the API server. Requests with that method, to paths with that start and
/// end, take one turn each, in order. Later ones pass, and so do all other requests.
#[derive(Clone)]
struct Gate {
    inner: ApiService,
    method: Method,
    path: (&'static str, &'static str),
    turns: Arc<Mutex<VecDeque<Turn>>>,
    is_holding: Arc<AtomicBool>,
    opens: Arc<Notify>,
}

impl Gate {
    fn new(world: &World, method: Method, path: (&'static str, &'static str), turns: &[Turn]) -> Self {
        Self {
            inner: world.server.service_as(Identity::admin()),
            method,
            path,
            turns: Arc::new(Mutex::new(turns.iter().copied().collect())),
            is_holding: Arc::default(),
            opens: Arc::default(),
        }
    }

    fn client(&self, world: &World) -> kube::Client {
        let gate = self.clone();
        layer_client(service_fn(move |request| gate.clone().pass(request)), &world.client_options())
    }

    fn is_used_up(&self) -> bool {
        self.turns.lock().expect("no panic").is_empty()
    }

    fn is_holding(&self) -> bool {
        self.is_holding.load(Ordering::Relaxed)
    }

    fn turn(&self, request: &Request<Body>) -> Turn {
        let path = request.uri().path();
        let (start, end) = self.path;
        if *request.method() != self.method || !path.starts_with(start) || !path.ends_with(end) {
            return Turn::Pass;
        }
        self.turns.lock().expect("no panic").pop_front().unwrap_or(Turn::Pass)
    }
}

type Answer = Response<Either<machinist_apiserver::Body, Full<Bytes>>>;

impl Gate {
    async fn pass(self, request: Request<Body>) -> Result<Answer, BoxError> {
        let turn = self.turn(&request);
        match turn {
            Turn::Pass => {}
            Turn::Conflict => return Ok(conflict()),
            Turn::Hold => {
                self.is_holding.store(true, Ordering::Relaxed);
                self.opens.notified().await;
            }
        }
        let answer = self.inner.oneshot(request).await?;
        Ok(answer.map(Either::Left))
    }
}

fn conflict() -> Answer {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": 409,
        "reason": "Conflict", "message": "the object has been modified",
    });
    let body = Either::Right(Full::new(Bytes::from(status.to_string())));
    let answer = Response::builder().status(409).header("content-type", "application/json");
    answer.body(body).expect("an answer")
}

const NODES: (&str, &str) = ("/api/v1/nodes/", "");
const ONLY_NODES: Controllers =
    Controllers { node: true, node_lifecycle: true, service: false, route: false };

/// Starts a process that writes through the gate.
fn start(world: &World, gate: &Gate) -> Running {
    world.start_over(gate.client(world), None, |_| {})
}

async fn uid(world: &World, name: &str) -> Option<String> {
    world.node(name).await.and_then(|node| node.metadata.uid)
}

/// Deletes the Node as another program does.
async fn delete(world: &World, name: &str) {
    world.nodes().delete(name, &DeleteParams::default()).await.expect("deleted");
}

/// Deletes the server of the Node `a`, and waits until the DELETE of the Node is held.
async fn until_its_deletion_is_held(world: &World, gate: &Gate, id: i64) {
    tokio::time::sleep(Duration::from_secs(120)).await;
    world.standin.delete_server(id).expect("deleted");
    world.set_ready("a", false).await;
    world.until("the DELETE is held", async |_| gate.is_holding()).await;
}

#[tokio::test(start_paused = true)]
async fn conflicts_of_patches_cost_no_further_lookup() {
    let world = World::new();
    let gate = Gate::new(&world, Method::PATCH, NODES, &[Turn::Conflict; 3]);
    let _process = world.start_over(gate.client(&world), None, |options| options.controllers = ONLY_NODES);
    // At its start, the process checks the credential and the network.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let at_start = world.requests(|_| true);
    world.nodes_with_servers(&["a"]).await;
    assert!(gate.is_used_up());
    assert_eq!(world.requests(|_| true), at_start + 1, "{:?}", world.standin.counters());
}

/// The first PATCH of the Service adds the finalizer, the second writes the addresses.
#[tokio::test(start_paused = true)]
async fn a_conflict_of_the_status_is_retried_silently() {
    let world = World::new();
    let path = ("/api/v1/namespaces/default/services/", "/status");
    let gate = Gate::new(&world, Method::PATCH, path, &[Turn::Pass, Turn::Conflict]);
    let _process = start(&world, &gate);
    world.nodes_with_servers(&["a"]).await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    });
    world.services().create(&PostParams::default(), &parse(service)).await.expect("accepted");
    world
        .until("the Service has an address", async |w| {
            let service = w.services().get("web").await.expect("the Service exists");
            let balancer = service.status.and_then(|status| status.load_balancer);
            balancer.and_then(|balancer| balancer.ingress).is_some_and(|ingress| !ingress.is_empty())
        })
        .await;
    assert!(gate.is_used_up());
    assert!(world.events("SyncLoadBalancerFailed").await.is_empty());
    assert_eq!(world.requests(|label| label == "POST /v1/load_balancers"), 1);
}

/// The store shows the Service as it was when its watch ended. A user has deleted it meanwhile.
#[tokio::test(start_paused = true)]
async fn a_stale_store_changes_no_load_balancer() {
    let world = World::new();
    // The list and the first watch pass.
    let mut turns = vec![Turn::Hold; 30];
    turns[..2].fill(Turn::Pass);
    let gate = Gate::new(&world, Method::GET, ("/api/v1/services", "/services"), &turns);
    let _process = start(&world, &gate);
    world.nodes_with_servers(&["a"]).await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    });
    world.services().create(&PostParams::default(), &parse(service)).await.expect("accepted");
    let targets = |w: &World| {
        w.standin.dump().load_balancers.values().map(|balancer| balancer.targets.len()).sum::<usize>()
    };
    world.until("the load balancer has its target", async |w| targets(w) == 1).await;
    world.until("the watch of Services has ended", async |_| gate.is_holding()).await;
    let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    world.services().patch("web", &PatchParams::default(), &bare).await.expect("changed");
    world.services().delete("web", &DeleteParams::default()).await.expect("deleted");
    world.nodes_with_servers(&["b"]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!gate.is_used_up(), "the store is still stale");
    assert_eq!(targets(&world), 1, "the load balancer belongs to no Service of this cluster");
}

/// The DELETE names the UID of the Node whose instance is missing.
#[tokio::test(start_paused = true)]
async fn a_late_deletion_spares_the_new_node_of_that_name() {
    let world = World::new();
    let gate = Gate::new(&world, Method::DELETE, NODES, &[Turn::Hold]);
    let _process = start(&world, &gate);
    let ids = world.nodes_with_servers(&["a", "b", "c"]).await;
    until_its_deletion_is_held(&world, &gate, ids["a"]).await;
    delete(&world, "a").await;
    let new = world.join("a").await.metadata.uid;
    gate.opens.notify_one();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(uid(&world, "a").await, new, "the new Node lives");
    assert!(world.events("DeletingNodeFailed").await.is_empty());
}

/// The DELETE of this program finds no Node.
#[tokio::test(start_paused = true)]
async fn a_node_that_another_program_deletes_is_no_failure() {
    let world = World::new();
    let gate = Gate::new(&world, Method::DELETE, NODES, &[Turn::Hold]);
    let _process = start(&world, &gate);
    let ids = world.nodes_with_servers(&["a", "b", "c"]).await;
    until_its_deletion_is_held(&world, &gate, ids["a"]).await;
    delete(&world, "a").await;
    gate.opens.notify_one();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(uid(&world, "a").await, None);
    assert_eq!(world.events("DeletingNode").await.len(), 1);
    assert!(world.events("DeletingNodeFailed").await.is_empty());
}

/// Answers of the cloud to lists and to searches by name take this long.
const SLOW: Duration = Duration::from_secs(8);

/// Registers the Node of a new server, and waits until the cloud was asked about it.
async fn join_with_a_slow_lookup(world: &World) -> i64 {
    let id = world.server("a");
    tokio::time::sleep(Duration::from_secs(10)).await;
    world.standin.add_fault(FaultRule::always("GET", "/v1/servers", Fault::Delay { by: SLOW }));
    let asked = || world.requests(|label| label == "GET /v1/servers");
    let before = asked();
    world.join("a").await;
    world.until("the lookup is on its way", async |_| asked() == before + 1).await;
    id
}

#[tokio::test(start_paused = true)]
async fn a_node_deleted_during_its_lookup_is_not_written() {
    let world = World::new();
    let _process = world.start_with(|options| options.controllers = ONLY_NODES);
    join_with_a_slow_lookup(&world).await;
    let mut log = world.server.audit();
    delete(&world, "a").await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(uid(&world, "a").await, None);
    let writes =
        log.drain().into_iter().filter(|request| request.user_agent == PROGRAM && request.is_write());
    assert_eq!(writes.count(), 0, "nothing is created, and no Event is written");
}

/// The answer belongs to the Node with the old UID. The new one waits for its own lookup.
#[tokio::test(start_paused = true)]
async fn a_new_node_waits_for_its_own_lookup() {
    let world = World::new();
    let _process = world.start_with(|options| options.controllers = ONLY_NODES);
    // A list of two pages costs more than a search for one name.
    for number in 0..60 {
        world.server(&format!("other-{number}"));
    }
    world.nodes_with_servers(&["first"]).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let id = join_with_a_slow_lookup(&world).await;
    delete(&world, "a").await;
    tokio::time::sleep(SLOW / 2).await;
    let new = world.join("a").await.metadata.uid;
    // The old lookup is answered, and the new one is not.
    tokio::time::sleep(SLOW / 2).await;
    assert!(has_taint(&world.node("a").await.expect("the new Node"), UNINITIALIZED));
    world
        .until("the new Node is initialised", async |w| {
            !has_taint(&w.node("a").await.expect("the new Node"), UNINITIALIZED)
        })
        .await;
    let node = world.node("a").await.expect("the new Node");
    assert_eq!(node.metadata.uid, new);
    assert_eq!(node.spec.and_then(|spec| spec.provider_id), Some(format!("hcloud://{id}")));
}

fn elector(world: &World, identity: &str) -> (Elector, Leadership) {
    let lease = LeaseOptions::new("default", PROGRAM, identity);
    Elector::new(world.client(), lease, world.clock.clone())
}

/// Scenarios 10 and 21: the leader is lost between its Event and its DELETE.
#[tokio::test(start_paused = true)]
async fn a_new_leader_deletes_once_and_not_at_once() {
    let world = World::new();
    let gate = Gate::new(&world, Method::DELETE, NODES, &[Turn::Hold]);
    let (first, leadership) = elector(&world, "first");
    let election = tokio::spawn(first.run(std::future::pending()));
    leadership.acquired().await.expect("the Lease is free");
    let process = world.start_over(gate.client(&world), Some(leadership), |_| {});
    let ids = world.nodes_with_servers(&["a", "b", "c"]).await;
    until_its_deletion_is_held(&world, &gate, ids["a"]).await;
    world.until("the Event is written", async |w| w.events("DeletingNode").await.len() == 1).await;
    drop(process);
    election.abort();

    let mut log = world.server.audit();
    let (second, leadership) = elector(&world, "second");
    tokio::spawn(second.run(std::future::pending()));
    leadership.acquired().await.expect("the Lease expires");
    let leads = Instant::now();
    let _process = world.start_over(world.client(), Some(leadership), |_| {});
    world.until("the Node is deleted", async |w| w.node("a").await.is_none()).await;
    let monitor_period = machinist_plan::ccm::node::Options::default().monitor_period;
    assert!(monitor_period <= leads.elapsed(), "{:?}", leads.elapsed());
    gate.opens.notify_one();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(node_writes(&mut log, Verb::Delete), 1, "the DELETE of the first process never arrives");
    let events: Api<k8s_openapi::api::core::v1::Event> = Api::all(world.user.clone());
    let events = events.list(&kube::api::ListParams::default()).await.expect("a list").items;
    let deletions = events.iter().filter(|event| event.reason.as_deref() == Some("DeletingNode"));
    let count: i32 = deletions.map(|event| event.count.unwrap_or(1)).sum();
    assert_eq!(count, 2, "the second process announces only what it may do");
    assert!(world.events("DeletingNodeFailed").await.is_empty());
    for name in ["b", "c"] {
        assert!(world.node(name).await.is_some(), "{name}");
    }
}
