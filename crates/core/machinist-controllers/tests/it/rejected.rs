//! Tests with an API server that rejects one kind of write of the manager.

use http::Method;
use machinist_apiserver::{AuditRecord, Verb};

use super::gate::{Link, Switch};
use super::*;

fn is_of_manager(request: &AuditRecord, resource: &str) -> bool {
    request.user_agent == "manager" && request.resource == resource
}

/// Creations start with one Machine, and end at the first rejection.
#[tokio::test(start_paused = true)]
async fn t_77_after_a_rejected_creation_no_other_one_is_sent() {
    let world = World::new().await;
    let crds: Api<CustomResourceDefinition> = Api::all(world.user.clone());
    let rules = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations";
    let patch = async |change: Value| {
        let patch = Patch::<Value>::Json(parse(json!([change])));
        let name = "machines.machine.sapcloud.io";
        crds.patch(name, &PatchParams::default(), &patch).await.expect("the rule is accepted");
    };
    let rule = json!([{"rule": "self.class.name != 'c'", "message": "no machines today"}]);
    patch(json!({"op": "add", "path": rules, "value": rule})).await;
    let mut requests = world.server.audit();
    let (_controller, _manager) = world.start();
    world.apply(10).await;
    let is_creation =
        |request: &&Arc<AuditRecord>| is_of_manager(request, "machines") && request.verb == Verb::Create;
    tokio::time::sleep(Duration::from_millis(900)).await;
    let first = requests.drain();
    assert_eq!(first.iter().filter(is_creation).count(), 1, "{first:?}");
    patch(json!({"op": "remove", "path": rules})).await;
    world.until("ten machines exist", async |w| w.machines().await.len() == 10).await;
}

#[tokio::test(start_paused = true)]
async fn t_78_a_rejected_deletion_leaves_the_machine_as_it_is() {
    let world = World::new().await;
    let provider = Arc::new(SimProvider::in_process(world.cloud.clone()));
    let clients = Clients { control: world.client("mc"), target: world.client("mc") };
    let options = MachineOptions::new(provider, "test");
    let _controller = MachineController::start(clients, world.options("mc"), options, None);
    let link = Switch::new();
    let client = link.client(&world, "manager");
    let clients = Clients { control: client.clone(), target: client };
    let _manager = Manager::start(clients, world.options("manager"), None);
    world.apply(3).await;
    world.until_running(3).await;
    let mut requests = world.server.audit();
    link.set(Link::Rejects { method: &Method::DELETE, path: "/machines/", code: 403 });
    world.scale(1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(running(&world).await, 3, "no Machine is Terminating");
    let wrote_status =
        |request: &Arc<AuditRecord>| is_of_manager(request, "machines") && !request.subresource.is_empty();
    assert!(!requests.drain().iter().any(wrote_status), "only the machine controller writes statuses");
    link.set(Link::Up);
    world.until("one machine is left", async |w| w.machines().await.len() == 1).await;
}
