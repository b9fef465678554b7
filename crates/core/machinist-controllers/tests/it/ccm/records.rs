//! Clusters without Nodes, whose Services alone know the account.

use kube::api::{DeleteParams, PostParams};

use super::*;

/// Without the network, which the other project does not have.
fn start(world: &World) -> Running {
    world.start_with(|options| options.provider = Arc::new(world.provider(None)))
}

fn key() -> Key {
    Key::Service(machinist_kube::ObjectKey::new("default", "web"))
}

/// The projects of all load balancers.
fn balancers(world: &World) -> Vec<String> {
    world.standin.dump().load_balancers.into_values().map(|balancer| balancer.project).collect()
}

async fn is_gone(world: &World) -> bool {
    world.services().get_opt("web").await.expect("an answer").is_none()
}

/// The load balancer or the account that the Service records.
async fn intended(world: &World) -> Option<String> {
    let service = world.services().get("web").await.expect("the Service exists");
    service.metadata.annotations?.get("machinist.dev/load-balancer").cloned()
}

/// The load balancer that the Service records.
async fn recorded(world: &World) -> Option<String> {
    intended(world).await.filter(|record| !record.starts_with("? in "))
}

/// Runs the program until the Service records a load balancer.
async fn record_a_balancer(world: &World) {
    let _process = start(world);
    world.services().create(&PostParams::default(), &service(&[80])).await.expect("accepted");
    world.until("the load balancer is recorded", async |w| recorded(w).await.is_some()).await;
}

/// The cluster was scaled to zero, and the program starts with the token of another project.
#[tokio::test(start_paused = true)]
async fn services_without_nodes_wait_in_another_project() {
    let world = World::new();
    record_a_balancer(&world).await;
    world.set_token(2, OTHER_TOKEN);
    let process = start(&world);
    let inspector = process.inspector();
    for _ in 0..600 {
        assert!(inspector.not_ready().is_some(), "ready from the start on");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert_eq!(balancers(&world), [PROJECT], "nothing is created in the other project");
    let message = why(&inspector, &key());
    assert!(message.contains("of Service default/web was created with another credential"), "{message}");
    assert_eq!(inspector.not_ready().as_deref(), message.split("; next").next(), "the same words");
    assert!(world.events("LoadBalancerLeftOver").await.is_empty(), "it is the live one");
    assert!(!world.events("CloudAccountUnproven").await.is_empty());
    world.services().delete("web", &DeleteParams::default()).await.expect("accepted");
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert!(!is_gone(&world).await, "the Service waits");
    world.set_token(3, TOKEN);
    world.until("both are gone", async |w| balancers(w).is_empty() && is_gone(w).await).await;
    assert_eq!(inspector.not_ready(), None);
}

/// A renewed token is another account, and the list shows that the project is the same.
#[tokio::test(start_paused = true)]
async fn a_renewed_token_is_proven_by_the_load_balancers() {
    let world = World::new();
    record_a_balancer(&world).await;
    let before = recorded(&world).await;
    world.standin.configure(|settings| settings.tokens.set("renewed", PROJECT, Access::ReadWrite));
    world.set_token(2, "renewed");
    let _process = start(&world);
    world.until("the renewed account is recorded", async |w| recorded(w).await != before).await;
    assert!(world.events("CloudAccountUnproven").await.is_empty());
    // Another renewal, and the Service is deleted before anything else happens.
    world.standin.configure(|settings| settings.tokens.set("again", PROJECT, Access::ReadWrite));
    world.set_token(3, "again");
    world.services().delete("web", &DeleteParams::default()).await.expect("accepted");
    world.until("both are gone", async |w| balancers(w).is_empty() && is_gone(w).await).await;
    assert!(world.events("LoadBalancerLeftOver").await.is_empty());
}

/// A wrong first token is corrected. The first Node decides, and nothing is forgotten.
#[tokio::test(start_paused = true)]
async fn a_node_proves_the_account_against_a_record() {
    let world = World::new();
    world.set_token(1, OTHER_TOKEN);
    let process = start(&world);
    world.services().create(&PostParams::default(), &service(&[80])).await.expect("accepted");
    world.until("the load balancer is recorded", async |w| recorded(w).await.is_some()).await;
    world.set_token(2, TOKEN);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(balancers(&world), ["b"], "nothing proves the project of the token");
    world.nodes_with_servers(&["a"]).await;
    world.until("the load balancer exists", async |w| balancers(w).contains(&PROJECT.to_owned())).await;
    world.until("the first one is named", async |w| !w.events("LoadBalancerLeftOver").await.is_empty()).await;
    world.services().delete("web", &DeleteParams::default()).await.expect("accepted");
    world.until("the Service is gone", async |w| is_gone(w).await).await;
    assert_eq!(balancers(&world), ["b"]);
    let events = world.events("LoadBalancerLeftOver").await;
    assert!(events.iter().any(|message| message.contains("is done with the Service")), "{events:?}");
    drop(process);
}

/// The process ends after the creation and before its answer, and the token is corrected.
#[tokio::test(start_paused = true)]
async fn a_creation_with_a_wrong_token_is_never_forgotten() {
    let world = World::new();
    world.set_token(1, OTHER_TOKEN);
    let process = start(&world);
    world.services().create(&PostParams::default(), &service(&[80])).await.expect("accepted");
    while balancers(&world).is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(process);
    assert_eq!(recorded(&world).await, None, "only the account is recorded");
    world.set_token(2, TOKEN);
    let process = start(&world);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(balancers(&world), ["b"], "no second one is created");
    let events = world.events("CloudAccountUnproven").await;
    assert!(
        events.iter().any(|message| message.contains("a load balancer of Service default/web")),
        "{events:?}"
    );
    // The user has looked into the first project.
    let forget = json!({"metadata": {"annotations": {"machinist.dev/load-balancer": null}}});
    let params = PatchParams::default();
    world.services().patch("web", &params, &Patch::Merge(forget)).await.expect("changed");
    world.until("the right project has one", async |w| balancers(w).contains(&PROJECT.to_owned())).await;
    drop(process);
}

/// The cloud rejects a mistyped token, so nothing was created that could be left over.
#[tokio::test(start_paused = true)]
async fn a_rejected_token_leaves_no_record() {
    let world = World::new();
    world.set_token(1, "mistyped");
    let _process = start(&world);
    world.services().create(&PostParams::default(), &service(&[80])).await.expect("accepted");
    world.until("it is reported", async |w| !w.events("SyncLoadBalancerFailed").await.is_empty()).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(intended(&world).await, None);
    world.set_token(2, TOKEN);
    world.until("the load balancer is recorded", async |w| recorded(w).await.is_some()).await;
    assert_eq!(balancers(&world), [PROJECT]);
}
