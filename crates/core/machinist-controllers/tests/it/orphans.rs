//! Tests of owners that are deleted without their children (`--cascade=orphan`).

use http::{Method, Request, Response};
use kube::client::Body;
use machinist_apiserver::ApiService;
use tower::{BoxError, ServiceExt as _, service_fn};

use super::*;

/// The garbage collector's part of a deletion with orphaned children: it releases the children, and
/// then removes its finalizer.
async fn collect(world: &World, released: &Api<MachineSet>) {
    let params = PatchParams::default();
    let without_owners = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
    for set in released.list(&ListParams::default()).await.expect("a list").items {
        let name = set.metadata.name.expect("a name");
        released.patch(&name, &params, &without_owners).await.expect("released");
    }
    // The manager removes its finalizer when it sees that the deployment has no sets.
    let only_orphan = async |w: &World| {
        let finalizers = w.deployments().get("w").await.expect("it exists").metadata.finalizers;
        finalizers.is_some_and(|all| all == ["orphan"])
    };
    world.until("only the finalizer orphan is left", only_orphan).await;
    let without_orphan = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    world.deployments().patch("w", &params, &without_orphan).await.expect("patched");
}

async fn assert_all_stay(world: &World, sets: &Api<MachineSet>) {
    let machines = world.machines().await;
    assert_eq!(machines.len(), 2);
    assert!(machines.iter().all(|machine| !machine.is_deleting()), "no Machine is deleted");
    let sets = sets.list(&ListParams::default()).await.expect("a list").items;
    assert!(sets.iter().all(|set| set.metadata.deletion_timestamp.is_none()), "no set is deleted");
    assert_eq!(sets.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_orphaned_deployment_keeps_its_sets_and_machines() {
    let world = World::new().await;
    let _processes = world.start();
    world.apply(2).await;
    world.until_running(2).await;
    let sets: Api<MachineSet> = Api::namespaced(world.user.clone(), NAMESPACE);
    world.deployments().delete("w", &DeleteParams::orphan()).await.expect("deleted");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_all_stay(&world, &sets).await;
    collect(&world, &sets).await;
    let is_gone = async |w: &World| w.deployments().get_opt("w").await.expect("an answer").is_none();
    world.until("the deployment is gone", is_gone).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_all_stay(&world, &sets).await;
}

/// A connection that releases each Machine just before its DELETE arrives, as a garbage collector
/// does whose writes the watch has not shown yet.
#[derive(Clone)]
struct Releasing {
    service: ApiService,
    user: kube::Client,
}

impl Releasing {
    async fn pass(self, request: Request<Body>) -> Result<Response<machinist_apiserver::Body>, BoxError> {
        let path = request.uri().path().to_owned();
        if request.method() == Method::DELETE && path.contains("/machines/") {
            let name = path.rsplit('/').next().unwrap_or_default();
            let machines: Api<Machine> = Api::namespaced(self.user.clone(), NAMESPACE);
            let without_owners = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
            machines.patch(name, &PatchParams::default(), &without_owners).await?;
        }
        Ok(self.service.oneshot(request).await?)
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_just_released_is_not_deleted() {
    let world = World::new().await;
    let (_machine_controller, first) = world.start();
    world.apply(2).await;
    world.until_running(2).await;
    drop(first);
    let releasing = Releasing { service: world.service(), user: world.user.clone() };
    let service = service_fn(move |request| releasing.clone().pass(request));
    let clients = Clients {
        control: layer_client(service, &world.client_options("manager")),
        target: world.client("manager"),
    };
    let _manager = Manager::start(clients, world.options("manager"), None);
    world.deployments().delete("w", &DeleteParams::background()).await.expect("deleted");
    let is_gone = async |w: &World| w.deployments().get_opt("w").await.expect("an answer").is_none();
    world.until("the deployment is gone", is_gone).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let machines = world.machines().await;
    assert_eq!(machines.len(), 2);
    assert!(machines.iter().all(|machine| !machine.is_deleting()), "released Machines stay");
    assert_eq!(world.cloud.alive(), 2);
}
