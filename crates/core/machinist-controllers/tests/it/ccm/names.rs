//! Names of load balancers: two Services with one name, and adoptions.

use kube::api::DeleteParams;

use super::*;

fn named(service: &str, name: &str) -> Service {
    parse(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": service, "annotations": {NAME: name}},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    }))
}

async fn address(world: &World, service: &str) -> Option<String> {
    let service = world.services().get(service).await.expect("the Service exists");
    service.status?.load_balancer?.ingress?.first()?.ip.clone()
}

/// Waits until the load balancers have these names. New ones keep their first name for two minutes.
async fn until_named(world: &World, expected: &[&str]) {
    world.until("the load balancers have their names", async |w| names(w) == expected).await;
}

/// A second load balancer would cost money, and never get its name.
#[tokio::test(start_paused = true)]
async fn of_two_services_with_a_name_one_gets_a_balancer() {
    let world = World::new();
    let process = world.start();
    world.nodes_with_servers(&["a"]).await;
    for service in ["first", "second"] {
        world.services().create(&PostParams::default(), &named(service, "edge")).await.expect("accepted");
    }
    tokio::time::sleep(Duration::from_secs(900)).await;
    let [only] = &balancers(&world)[..] else { panic!("{:#?}", balancers(&world)) };
    assert_eq!(only.name, "edge");
    let (winner, loser) = match address(&world, "first").await {
        Some(_) => ("first", "second"),
        None => ("second", "first"),
    };
    assert!(address(&world, winner).await.is_some());
    assert_eq!(address(&world, loser).await, None);
    let message = why(&process.inspector(), &Key::Service(machinist_kube::ObjectKey::new("default", loser)));
    assert!(message.starts_with(&format!("Service default/{winner} has the name")), "{message}");
    let events = world.events("SyncLoadBalancerFailed").await;
    assert!(events.iter().any(|event| event.contains(&format!("default/{winner}"))), "{events:?}");

    // The name is free again.
    world.services().delete(winner, &DeleteParams::default()).await.expect("accepted");
    world.until("the other Service is served", async |w| address(w, loser).await.is_some()).await;
    until_named(&world, &["edge"]).await;
}

/// Clients use its address, so it stays.
#[tokio::test(start_paused = true)]
async fn a_published_balancer_keeps_its_old_name() {
    let world = World::new();
    let _process = world.start();
    world.nodes_with_servers(&["a"]).await;
    for (service, name) in [("first", "edge"), ("second", "inner")] {
        world.services().create(&PostParams::default(), &named(service, name)).await.expect("accepted");
    }
    for service in ["first", "second"] {
        world.until("the Service is served", async |w| address(w, service).await.is_some()).await;
    }
    let before = address(&world, "second").await;
    until_named(&world, &["edge", "inner"]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let changes = world.changes();
    let renamed = Patch::Merge(json!({"metadata": {"annotations": {NAME: "edge"}}}));
    world.services().patch("second", &PatchParams::default(), &renamed).await.expect("changed");
    world.until("the Event is written", async |w| !w.events("LoadBalancerNameTaken").await.is_empty()).await;
    tokio::time::sleep(Duration::from_secs(900)).await;
    assert_eq!(world.changes(), changes, "no rename is tried in vain");
    assert_eq!(address(&world, "second").await, before);
    assert_eq!(names(&world), ["edge", "inner"]);
    let events = world.events("LoadBalancerNameTaken").await;
    assert!(events[0].contains("Service default/first"), "{events:?}");
}

/// `--adopt-load-balancers-in`: a user of another namespace cannot take over a load balancer.
#[tokio::test(start_paused = true)]
async fn an_adoption_is_reported_and_can_be_limited() {
    for (adopts_in, is_adopted) in [(None, true), (Some("infra"), false)] {
        let world = World::new();
        let limit = |options: &mut CcmOptions| {
            let adopts_in = adopts_in.map(|namespace: &str| [namespace.to_owned()].into());
            options.services = Arc::new(service::Options { adopts_in, ..(*options.services).clone() });
        };
        let process = world.start_with(limit);
        world.nodes_with_servers(&["a"]).await;
        world.services().create(&PostParams::default(), &named("maker", "shared")).await.expect("accepted");
        until_named(&world, &["shared"]).await;
        drop(process);
        leave_to_others(&world, "maker").await;
        let _process = world.start_with(limit);
        world.services().create(&PostParams::default(), &named("taker", "shared")).await.expect("accepted");
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(balancers(&world).len(), 1);
        assert_eq!(address(&world, "taker").await.is_some(), is_adopted);
        assert_eq!(world.events("AdoptedLoadBalancer").await.len(), usize::from(is_adopted));
        assert_eq!(balancers(&world)[0].labels.is_empty(), !is_adopted);
    }
}

/// The log has each adoption, also for readers without access to Events.
#[tokio::test(start_paused = true)]
async fn an_adoption_is_in_the_log() {
    let world = World::new();
    let process = world.start();
    world.nodes_with_servers(&["a"]).await;
    world.services().create(&PostParams::default(), &named("maker", "shared")).await.expect("accepted");
    until_named(&world, &["shared"]).await;
    drop(process);
    leave_to_others(&world, "maker").await;
    let (logged, _guard) = crate::logs::capture();
    let _process = world.start();
    world.services().create(&PostParams::default(), &named("taker", "shared")).await.expect("accepted");
    world.until("it is adopted", async |w| address(w, "taker").await.is_some()).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let lines = logged.lines_with("Adopted load balancer shared (");
    let [line] = &lines[..] else { panic!("one line: {lines:#?}") };
    assert!(line.contains("default/taker"), "the line names the Service: {line}");
}

/// Deletes a Service, and leaves its load balancer as if another program had created it.
async fn leave_to_others(world: &World, service: &str) {
    let mut state = world.standin.dump();
    state.load_balancers.values_mut().for_each(|balancer| balancer.labels.clear());
    world.standin.load(state).expect("in memory");
    let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    world.services().patch(service, &PatchParams::default(), &bare).await.expect("changed");
    world.services().delete(service, &DeleteParams::default()).await.expect("deleted");
}
