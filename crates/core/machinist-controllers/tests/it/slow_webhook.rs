//! Tests of writes that a webhook delays for longer than their sender waits.

use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use http::{Method, Request, Response};
use kube::client::Body;
use machinist_apiserver::Identity;
use tokio::time::Instant;
use tower::{BoxError, Service};

use super::*;

/// Longer than any timeout of ours.
const HANGS: Duration = Duration::from_secs(50);

/// Holds each matching write until a webhook responds, and then applies it, whether or not its
/// sender still waits.
#[derive(Clone)]
struct Holds<S> {
    inner: S,
    /// Method of the held writes.
    method: Method,
    path: &'static str,
    /// Whether writes are held now.
    is_on: Arc<AtomicBool>,
    /// Time of the webhook's response; set by the first held write.
    until: Arc<OnceLock<Instant>>,
}

impl<S, B> Service<Request<Body>> for Holds<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_held = self.is_on.load(Ordering::Relaxed)
            && request.method() == self.method
            && request.uri().path().contains(self.path);
        let until = is_held.then(|| *self.until.get_or_init(|| Instant::now() + HANGS));
        let mut inner = self.inner.clone();
        let task = tokio::spawn(async move {
            if let Some(until) = until {
                tokio::time::sleep_until(until).await;
            }
            std::future::poll_fn(|context| inner.poll_ready(context)).await.map_err(Into::into)?;
            inner.call(request).await.map_err(Into::into)
        });
        Box::pin(async move { task.await.expect("the server does not panic") })
    }
}

/// Three running Machines, and a manager with delayed writes. One of its writes is delayed when the
/// deployment is scaled down.
struct Hanging {
    world: World,
    manager: Running,
    _controller: Running,
}

impl Hanging {
    /// Delays the DELETE of a Machine.
    async fn deletion() -> Self {
        Self::start(Method::DELETE, "/machines/", 2).await
    }

    async fn start(method: Method, path: &'static str, replicas: u32) -> Self {
        let world = World::new().await;
        let provider = Arc::new(SimProvider::in_process(world.cloud.clone()));
        let clients = Clients { control: world.client("mc"), target: world.client("mc") };
        let options = MachineOptions::new(provider, "test");
        let controller = MachineController::start(clients, world.options("mc"), options, None);
        let (held, is_on) = (Arc::new(OnceLock::new()), Arc::new(AtomicBool::new(false)));
        let mut client = ClientOptions::new("manager");
        client.clock = world.clock.clone();
        let inner = world.server.service_as(Identity::admin());
        let service = Holds { inner, method, path, is_on: is_on.clone(), until: held.clone() };
        let client = layer_client(service, &client);
        let clients = Clients { control: client.clone(), target: client };
        let manager = Manager::start(clients, world.options("manager"), None);
        world.apply(3).await;
        world.until_running(3).await;
        is_on.store(true, Ordering::Relaxed);
        let scale = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        world.deployments().patch("w", &PatchParams::default(), &scale).await.expect("scaled");
        world.until("the write hangs", async |_| held.get().is_some()).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        Self { world, manager, _controller: controller }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopping_process_waits_for_a_delayed_delete() {
    let Hanging { world, manager, .. } = Hanging::deletion().await;
    let left = manager.drain(Duration::from_secs(120)).await;
    assert_eq!((left.calls, left.passes, left.deletes), (0, 0, 0));
    let going = world.machines().await.into_iter().filter(|it| it.metadata.deletion_timestamp.is_some());
    let there = world.machines().await.len();
    assert!(going.count() == 1 || there == 2, "the DELETE has taken effect: {there} Machines");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_stops_too_early_reports_the_delete() {
    let Hanging { manager, .. } = Hanging::deletion().await;
    let left = manager.drain(Duration::from_secs(40)).await;
    assert_eq!((left.passes, left.deletes), (0, 1), "the next process must not lead at once");
}

#[tokio::test(start_paused = true)]
async fn a_delayed_delete_counts_until_its_outcome_is_known() {
    let Hanging { world, manager, _controller } = Hanging::deletion().await;
    // The deletion order changes: a Machine that was not selected before is now the first to be
    // deleted.
    let machines: Api<Machine> = Api::namespaced(world.user.clone(), NAMESPACE);
    // Of equal Machines, the last by name is deleted first.
    let other = world.machines().await.iter().filter_map(|it| it.metadata.name.clone()).min().expect("three");
    let first =
        Patch::Merge(json!({"metadata": {"annotations": {"machinepriority.machine.sapcloud.io": "1"}}}));
    machines.patch(&other, &PatchParams::default(), &first).await.expect("patched");
    let set = world.machines().await.remove(0).metadata.owner_references.expect("an owner").remove(0).name;
    let key = Key::Set(ObjectKey::new(NAMESPACE, set));
    let mut named = false;
    for _ in 0..120 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let why = manager.inspector().why(&key).expect("the set has a decision").why;
        named |= why.reason.code() == "WriteUnsettled";
    }
    let left: Vec<_> = world.machines().await.into_iter().filter_map(|it| it.metadata.name).collect();
    assert!(left.len() == 2 && left.contains(&other), "one Machine is deleted, and no other: {left:?}");
    assert_eq!(world.cloud.ledger().ever().len(), 3, "no Machine had to be replaced");
    assert!(named, "`why` names the wait");
}

/// The set deletes Machines as soon as this PATCH takes effect, so the PATCH counts as pending as
/// long as it may still arrive.
#[tokio::test(start_paused = true)]
async fn a_delayed_patch_counts_until_it_can_no_longer_apply() {
    let Hanging { world, manager, _controller } = Hanging::start(Method::PATCH, "/machinesets/", 1).await;
    let key = Key::Deployment(ObjectKey::new(NAMESPACE, "w"));
    tokio::time::sleep(Duration::from_secs(25)).await;
    let why = manager.inspector().why(&key).expect("the deployment has a decision").why;
    assert_eq!(why.reason.code(), "WriteUnsettled", "{why}");
    let left = manager.drain(Duration::from_secs(5)).await;
    assert_eq!(left.deletes, 1, "the next process must not lead at once");
    drop(world);
}
