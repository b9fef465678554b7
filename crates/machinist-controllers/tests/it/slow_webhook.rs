//! A DELETE that hangs in a webhook for longer than its sender waits.

use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};

use http::{Method, Request, Response};
use kube::client::Body;
use machinist_apiserver::Identity;
use tokio::time::Instant;
use tower::{BoxError, Service};

use super::*;

/// Longer than any deadline of ours.
const HANGS: Duration = Duration::from_secs(50);

/// Holds each DELETE of a Machine until a webhook answers, and lets it take effect then, whether or not its sender still waits.
#[derive(Clone)]
struct HoldsDeletes<S> {
    inner: S,
    /// When the webhook answers; set by the first DELETE.
    until: Arc<OnceLock<Instant>>,
}

impl<S, B> Service<Request<Body>> for HoldsDeletes<S>
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
        let is_delete = request.method() == Method::DELETE && request.uri().path().contains("/machines/");
        let until = is_delete.then(|| *self.until.get_or_init(|| Instant::now() + HANGS));
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

#[tokio::test(start_paused = true)]
async fn a_delete_that_hangs_counts_until_its_outcome_is_known() {
    let world = World::new().await;
    let provider = Arc::new(SimProvider::in_process(world.cloud.clone()));
    let clients = Clients { control: world.client("mc"), target: world.client("mc") };
    let options = MachineOptions::new(provider, "test");
    let _controller = MachineController::start(clients, world.options("mc"), options, None);
    let held = Arc::new(OnceLock::new());
    let mut client = ClientOptions::new("manager");
    client.clock = world.clock.clone();
    let service = HoldsDeletes { inner: world.server.service_as(Identity::admin()), until: held.clone() };
    let client = layer_client(service, &client);
    let clients = Clients { control: client.clone(), target: client };
    let manager = Manager::start(clients, world.options("manager"), None);
    world.apply(3).await;
    world.until_running(3).await;

    let scale = Patch::Merge(json!({"spec": {"replicas": 2}}));
    world.deployments().patch("w", &PatchParams::default(), &scale).await.expect("scaled");
    world.until("the DELETE hangs", async |_| held.get().is_some()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    // The order of deletion changes: the Machine that was not chosen before is now the first to go.
    let machines: Api<Machine> = Api::namespaced(world.user.clone(), NAMESPACE);
    // Of Machines that are alike, the last by name goes first.
    let other = world.machines().await.iter().filter_map(|it| it.metadata.name.clone()).min().expect("three");
    let first =
        Patch::Merge(json!({"metadata": {"annotations": {"machinepriority.machine.sapcloud.io": "1"}}}));
    machines.patch(&other, &PatchParams::default(), &first).await.expect("patched");
    let set = world.machines().await.remove(0).metadata.owner_references.expect("an owner").remove(0).name;
    let key = Key::Set(ObjectKey::new(NAMESPACE, set));
    let mut named = false;
    for _ in 0..120 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let why = manager.inspector().why(&key).expect("it was decided about").why;
        named |= why.reason.code() == "WriteUnsettled";
    }
    let left: Vec<_> = world.machines().await.into_iter().filter_map(|it| it.metadata.name).collect();
    assert!(left.len() == 2 && left.contains(&other), "one Machine is deleted, and no other: {left:?}");
    assert_eq!(world.cloud.ledger().ever().len(), 3, "no Machine had to be replaced");
    assert!(named, "`why` names the wait");
}
