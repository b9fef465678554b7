//! Requests to the cloud that take effect after the controller has stopped waiting for them, and
//! lists that show a change late: a Service has one load balancer, and it has one again soon.

use machinist_standin_hcloud::{Fault, FaultRule};

use super::*;

fn service(annotations: Value) -> Service {
    parse(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "annotations": annotations},
        "spec": {"type": "LoadBalancer", "ports": [{"name": "p80", "port": 80}]},
    }))
}

async fn create(world: &World, annotations: Value) {
    world.services().create(&PostParams::default(), &service(annotations)).await.expect("accepted");
}

async fn change(world: &World, change: Value) {
    let change = Patch::Merge(change);
    world.services().patch("web", &PatchParams::default(), &change).await.expect("changed");
}

async fn until_published(world: &World) {
    world
        .until("the Service has an address", async |w| {
            let service = w.services().get("web").await.expect("the Service exists");
            let ingress = service.status.and_then(|status| status.load_balancer?.ingress);
            ingress.is_some_and(|ingress| !ingress.is_empty())
        })
        .await;
}

fn web() -> Key {
    Key::Service(machinist_kube::ObjectKey::new("default", "web"))
}

/// The cloud carries the first creation out when the load balancer of the second one could have
/// been renamed.
#[tokio::test(start_paused = true)]
async fn a_late_creation_makes_no_second_balancer() {
    let world = World::new();
    let process = world.start();
    world.nodes_with_servers(&["a"]).await;
    let late = Fault::Delay { by: Duration::from_secs(55) };
    world.standin.add_fault(FaultRule::once("POST", "/v1/load_balancers", late));
    create(&world, json!({NAME: "edge"})).await;
    until_published(&world).await;
    let message = why(&process.inspector(), &web());
    tokio::time::sleep(Duration::from_secs(180)).await;
    assert_eq!(world.requests(|label| label == "POST /v1/load_balancers"), 2);
    assert_eq!(names(&world), ["edge"]);
    assert_eq!(why(&process.inspector(), &web()), "up to date");
    assert!(message.starts_with("the load balancer keeps its first name a"), "{message}");
    assert!(message.contains("it gets the name edge after that"), "{message}");
}

/// The process ends right after the creation, and the lists that the next one reads lag.
#[tokio::test(start_paused = true)]
async fn lists_that_lag_lead_to_no_second_balancer() {
    let world = World::new();
    world.standin.configure(|settings| settings.visible_in_lists = Duration::from_secs(9));
    let process = world.start();
    world.nodes_with_servers(&["a"]).await;
    create(&world, json!({NAME: "edge"})).await;
    let has_target = || balancers(&world).iter().any(|balancer| !balancer.targets.is_empty());
    for _ in 0..60_000 {
        if has_target() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(has_target(), "the load balancer is created");
    // The actions of the creation end.
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop(process);
    let _process = world.start();
    change(&world, json!({"spec": {"ports": [{"name": "p81", "port": 81}]}})).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(names(&world), ["edge"]);
    assert_eq!(balancers(&world)[0].services[0].listen_port, 81);
}

/// A list lacks the load balancer for hours, and the controller knows its id.
#[tokio::test(start_paused = true)]
async fn a_recorded_balancer_is_looked_up_before_a_creation() {
    let world = World::new();
    let process = world.start();
    world.nodes_with_servers(&["a"]).await;
    create(&world, json!({NAME: "edge"})).await;
    world.until("the load balancer is renamed", async |w| names(w) == ["edge"]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    drop(process);
    let omits = Fault::Omit { id: balancers(&world)[0].id };
    world.standin.add_fault(FaultRule::always("GET", "/v1/load_balancers", omits));
    let _process = world.start();
    change(&world, json!({"spec": {"ports": [{"name": "p81", "port": 81}]}})).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(names(&world), ["edge"]);
    assert_eq!(balancers(&world)[0].services[0].listen_port, 81);
}

/// The cloud carries a deletion out when the Service wants its load balancer again.
#[tokio::test(start_paused = true)]
async fn a_late_deletion_is_noticed_soon() {
    delete_late(false).await;
}

#[tokio::test(start_paused = true)]
async fn a_late_deletion_of_an_earlier_process_is_noticed_soon() {
    delete_late(true).await;
}

async fn delete_late(restarts: bool) {
    let world = World::new();
    let mut process = world.start();
    world.nodes_with_servers(&["a"]).await;
    create(&world, json!({})).await;
    until_published(&world).await;
    // The list after the start of the process is over.
    tokio::time::sleep(Duration::from_secs(120)).await;
    let late = Fault::Delay { by: Duration::from_secs(50) };
    world.standin.add_fault(FaultRule::once("DELETE", "/v1/load_balancers/{id}", late));
    let deletions = || world.requests(|label| label == "DELETE /v1/load_balancers/{id}");
    change(&world, json!({"spec": {"type": "ClusterIP"}})).await;
    world.until("the deletion is sent", async |_| deletions() == 1).await;
    let sent = tokio::time::Instant::now();
    if restarts {
        drop(process);
        process = world.start();
    }
    change(&world, json!({"spec": {"type": "LoadBalancer"}})).await;
    let first = balancers(&world)[0].id;
    world
        .until("it is carried out", async |w| balancers(w).iter().all(|balancer| balancer.id != first))
        .await;
    assert!(45 <= sent.elapsed().as_secs(), "{:?}", sent.elapsed());
    world.until("the Service has one again", async |w| !balancers(w).is_empty()).await;
    assert!(sent.elapsed().as_secs() < 120, "{:?}", sent.elapsed());
    let id = balancers(&world)[0].id.to_string();
    let recorded = async |w: &World| {
        let service = w.services().get("web").await.expect("the Service exists");
        let annotations = service.metadata.annotations.unwrap_or_default();
        annotations.get("machinist.dev/load-balancer").cloned().unwrap_or_default()
    };
    world.until("it is recorded", async |w| recorded(w).await.starts_with(&id)).await;
    assert_eq!(deletions(), 1);
    drop(process);
}

/// The load balancer is no longer checked, and users look at the Service.
#[tokio::test(start_paused = true)]
async fn a_failing_list_is_the_first_thing_that_why_says() {
    let world = World::new();
    let process = world.start();
    world.nodes_with_servers(&["a"]).await;
    create(&world, json!({})).await;
    until_published(&world).await;
    world.until("it is settled", async |_| why(&process.inspector(), &web()) == "up to date").await;
    let error = Fault::Error { code: "server_error".to_owned(), status: None };
    world.standin.add_fault(FaultRule::always("GET", "/v1/load_balancers", error));
    let says = |text: &str| why(&process.inspector(), &web()).starts_with(text);
    world.until("it is named", async |_| says("the cloud failed once to list the load balancers")).await;
    world.until("it is counted", async |_| says("the cloud failed 3 times to list the load")).await;
    world.standin.clear_faults();
    world.until("it is settled again", async |_| why(&process.inspector(), &web()) == "up to date").await;
}
