//! A process that restarts again and again, more often than any of its waits ends.

use kube::api::DeleteParams;

use super::*;

/// A process that lives shorter than the time in which calls of earlier processes take effect.
const LIFE: Duration = Duration::from_secs(50);

/// Creates a Service with a load balancer, which a user deletes in the cloud while no process runs.
async fn service_without_its_balancer(world: &World) {
    let process = world.start();
    world.nodes_with_servers(&["a"]).await;
    world.services().create(&PostParams::default(), &service(&[80])).await.expect("accepted");
    let balancers = |w: &World| w.standin.dump().load_balancers.len();
    world.until("the load balancer exists", async |w| balancers(w) == 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    drop(process);
    let mut state = world.standin.dump();
    state.load_balancers.clear();
    world.standin.load(state).expect("in memory");
}

/// Returns the number of processes after which the Service is as expected.
async fn processes_until(world: &World, is_so: impl AsyncFn(Option<Service>) -> bool) -> usize {
    for number in 1..20 {
        let _process = world.start();
        tokio::time::sleep(LIFE).await;
        if is_so(world.services().get_opt("web").await.expect("an answer")).await {
            return number;
        }
    }
    panic!("twenty processes did not settle the Service");
}

#[tokio::test(start_paused = true)]
async fn restarts_do_not_keep_a_deleted_service() {
    let world = World::new();
    service_without_its_balancer(&world).await;
    world.services().delete("web", &DeleteParams::default()).await.expect("accepted");
    let processes = processes_until(&world, async |service| service.is_none()).await;
    assert!(processes <= 5, "{processes} processes: 190 s and a life");
    assert!(!world.events("AwaitingEarlierCalls").await.is_empty());
    assert!(world.events("DeletedLoadBalancer").await.is_empty(), "there was none");
}

#[tokio::test(start_paused = true)]
async fn restarts_do_not_keep_the_finalizer_of_another_type() {
    let world = World::new();
    service_without_its_balancer(&world).await;
    let inner = Patch::Merge(json!({"spec": {"type": "ClusterIP"}}));
    world.services().patch("web", &PatchParams::default(), &inner).await.expect("changed");
    let is_settled = async |service: Option<Service>| {
        let service = service.expect("the Service stays");
        let annotations = service.metadata.annotations.unwrap_or_default();
        service.metadata.finalizers.unwrap_or_default().is_empty()
            && !annotations.contains_key("machinist.dev/earlier-calls-since")
    };
    let processes = processes_until(&world, is_settled).await;
    assert!(processes <= 7, "{processes} processes: 300 s and a life");
}
