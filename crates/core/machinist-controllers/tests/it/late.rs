//! Tests of status writes that take effect late, because the sending process is killed or a webhook
//! delays the request.

use std::sync::{Arc, Mutex, PoisonError};

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use machinist_apiserver::ApiService;
use tokio::sync::oneshot;
use tower::{BoxError, ServiceExt as _, service_fn};

use super::*;

/// A connection that holds the first status patch that contains a given text. The sender gets no
/// response.
#[derive(Clone)]
struct Holding {
    service: ApiService,
    text: &'static str,
    caught: Arc<Mutex<Option<oneshot::Sender<Held>>>>,
}

/// A request that was sent and has not arrived yet.
struct Held {
    service: ApiService,
    request: Request<Body>,
}

impl Held {
    /// Delivers the request.
    async fn arrive(self) -> StatusCode {
        self.service.oneshot(self.request).await.expect("the server answers").status()
    }
}

impl Holding {
    async fn pass(self, request: Request<Body>) -> Result<Response<machinist_apiserver::Body>, BoxError> {
        let (parts, body) = request.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let is_status = parts.method == Method::PATCH && parts.uri.path().ends_with("/status");
        let is_meant = is_status && String::from_utf8_lossy(&bytes).contains(self.text);
        let request = Request::from_parts(parts, Body::from(bytes.to_vec()));
        let catches =
            if is_meant { self.caught.lock().unwrap_or_else(PoisonError::into_inner).take() } else { None };
        if let Some(catches) = catches {
            let _ = catches.send(Held { service: self.service, request });
            return std::future::pending().await;
        }
        Ok(self.service.oneshot(request).await?)
    }
}

impl World {
    /// Starts a machine controller and holds its first status patch that contains this text.
    fn start_holding(&self, text: &'static str) -> (Running, oneshot::Receiver<Held>) {
        let (caught, held) = oneshot::channel();
        let holding = Holding { service: self.service(), text, caught: Arc::new(Mutex::new(Some(caught))) };
        let holding = service_fn(move |request| holding.clone().pass(request));
        let clients = Clients {
            control: layer_client(holding, &self.client_options("machine-controller")),
            target: self.client("machine-controller"),
        };
        (self.start_machine_controller(clients), held)
    }

    fn start_machine_controller(&self, clients: Clients) -> Running {
        let provider = Arc::new(SimProvider::in_process(self.cloud.clone()));
        let options = self.options("machine-controller");
        MachineController::start(clients, options, MachineOptions::new(provider, "test"), None)
    }

    fn start_successor(&self) -> Running {
        let client = || self.client("machine-controller");
        self.start_machine_controller(Clients { control: client(), target: client() })
    }

    fn start_manager(&self) -> Running {
        let clients = Clients { control: self.client("manager"), target: self.client("manager") };
        Manager::start(clients, self.options("manager"), None)
    }

    async fn set_ready(&self, ready: &str) {
        let nodes: Api<Node> = Api::all(self.user.clone());
        let status = json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
        for entry in self.cloud.ledger().alive() {
            let patch = Patch::Strategic(status.clone());
            nodes.patch_status(entry.name.as_str(), &PatchParams::default(), &patch).await.expect("accepted");
        }
    }

    async fn until_phase(&self, phase: Phase) {
        let is_so = async |w: &Self| w.machines().await.iter().all(|machine| machine.phase() == phase);
        self.until(&format!("the Machine is {phase}"), is_so).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_failed_of_a_killed_process_does_not_replace_running() {
    let world = World::new().await;
    world.apply(1).await;
    let _manager = world.start_manager();
    let (killed, held) = world.start_holding("failed to join the cluster in time");
    let held = held.await.expect("the status patch is held after the creation timeout");
    drop(killed);
    world.join().await;
    let _successor = world.start_successor();
    world.until_running(1).await;
    assert_eq!(held.arrive().await, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(world.machines().await.remove(0).phase(), Phase::Running);
}

#[tokio::test(start_paused = true)]
async fn a_failed_delayed_by_a_webhook_does_not_replace_running() {
    let world = World::new().await;
    world.apply(1).await;
    let _manager = world.start_manager();
    let (_goes_on, held) = world.start_holding("failed to join the cluster in time");
    let held = held.await.expect("the status patch is held after the creation timeout");
    world.join().await;
    world.until_running(1).await;
    assert_eq!(held.arrive().await, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(world.machines().await.remove(0).phase(), Phase::Running);
}

#[tokio::test(start_paused = true)]
async fn a_late_replacement_does_not_fail_a_recovered_machine() {
    let world = World::new().await;
    world.apply(1).await;
    let _manager = world.start_manager();
    let (killed, held) = world.start_holding("its health timeout has passed");
    world.until_running(1).await;
    world.set_ready("Unknown").await;
    let held = held.await.expect("the status patch is held after the health timeout");
    drop(killed);
    world.set_ready("True").await;
    let _successor = world.start_successor();
    world.until_phase(Phase::Running).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    // The Machine is unhealthy again, but not for long: its phase is the phase of the late
    // decision, but the time differs.
    world.set_ready("Unknown").await;
    world.until_phase(Phase::Unknown).await;
    assert_eq!(held.arrive().await, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(world.machines().await.remove(0).phase(), Phase::Unknown);
}
