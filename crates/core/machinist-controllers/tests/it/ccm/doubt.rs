//! Clouds that say the wrong thing: nothing is deleted on a doubt.

use machinist_standin_hcloud::{Fault, FaultRule};

use super::*;

/// The other project does not show the servers, which proves nothing about them.
#[tokio::test(start_paused = true)]
async fn a_token_of_another_project_deletes_no_node() {
    let world = World::new();
    let process = world.start();
    world.nodes_with_servers(&["a", "b", "c", "d", "e"]).await;
    world.set_token(2, OTHER_TOKEN);
    world.set_ready("a", false).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(world.node("a").await.is_some());
    let message = why(&process.inspector(), &Key::Node("a".to_owned()));
    assert!(message.contains("account"), "{message}");
    // The right token again: the server exists.
    world.set_token(3, TOKEN);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(world.node("a").await.is_some());
}

/// After a restart, the process has not seen the right account.
#[tokio::test(start_paused = true)]
async fn a_restart_with_another_projects_token_deletes_no_node() {
    let world = World::new();
    let process = world.start();
    let names: Vec<String> = (0..10).map(|number| format!("node-{number}")).collect();
    world.nodes_with_servers(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    drop(process);
    world.set_token(2, OTHER_TOKEN);
    for name in &names {
        world.set_ready(name, false).await;
    }
    let _process = world.start();
    tokio::time::sleep(Duration::from_secs(7200)).await;
    for name in &names {
        assert!(world.node(name).await.is_some(), "{name}");
    }
    assert!(!world.events("CloudAccountUnproven").await.is_empty(), "a user sees why");
}

/// A server of the other project has the name of a new Node. Otherwise the account that the new
/// Node records would prove the other project for all Nodes and Services.
#[tokio::test(start_paused = true)]
async fn a_server_of_another_project_initialises_no_node() {
    let world = World::new();
    let process = world.start();
    world.nodes_with_servers(&["a", "b", "c"]).await;
    drop(process);
    world.set_token(2, OTHER_TOKEN);
    world.standin.create_server(&NewServer::new("b", "new")).expect("a server of the other project");
    let process = world.start();
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.join("new").await;
    tokio::time::sleep(Duration::from_secs(1800)).await;
    let new = world.node("new").await.expect("the Node exists");
    assert!(has_taint(&new, UNINITIALIZED));
    assert_eq!(new.spec.and_then(|spec| spec.provider_id), None);
    assert_eq!(new.metadata.annotations.and_then(|all| all.get("machinist.dev/account").cloned()), None);
    let message = why(&process.inspector(), &Key::Node("new".to_owned()));
    assert!(message.contains("another project"), "{message}");
    assert!(!world.events("CloudAccountUnproven").await.is_empty(), "a user sees why");
    // With the right token, one list is the proof.
    world.set_token(3, TOKEN);
    world.server("new");
    world
        .until("the Node is initialised", async |w| {
            !has_taint(&w.node("new").await.expect("the Node exists"), UNINITIALIZED)
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_revoked_token_deletes_nothing_and_recovers() {
    let world = World::new();
    let _process = world.start();
    world.nodes_with_servers(&["a", "b", "c"]).await;
    world.standin.revoke_token(TOKEN);
    world.set_ready("a", false).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(world.node("a").await.is_some());
    world.standin.configure(|settings| settings.tokens.set("renewed", PROJECT, Access::ReadWrite));
    world.server("late");
    world.join("late").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.set_token(2, "renewed");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let late = world.node("late").await.expect("the Node exists");
    assert!(!has_taint(&late, UNINITIALIZED), "initialised within seconds");
}

/// A list may lack a server that exists. Only a lookup by id proves an absence.
#[tokio::test(start_paused = true)]
async fn a_list_that_omits_a_server_deletes_no_node() {
    let world = World::new();
    let _process = world.start();
    let ids = world.nodes_with_servers(&["a", "b", "c"]).await;
    let omits = Fault::Omit { id: ids["a"] };
    world.standin.add_fault(FaultRule::always("GET", "/v1/servers", omits));
    world.set_ready("a", false).await;
    let lists = || world.requests(|label| label == "GET /v1/servers");
    let before = lists();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(world.node("a").await.is_some());
    assert!(before < lists(), "no list omitted the server");
}

/// Answers that prove nothing.
#[tokio::test(start_paused = true)]
async fn failing_lookups_delete_no_node() {
    let error = |code: &str| Fault::Error { code: code.to_owned(), status: None };
    for fault in [
        Fault::Html404,
        Fault::Bare { status: 404 },
        Fault::Bare { status: 410 },
        error("forbidden"),
        error("server_error"),
        error("rate_limit_exceeded"),
        Fault::Reset,
        Fault::Hang { span: Duration::from_secs(60) },
    ] {
        let world = World::new();
        let _process = world.start();
        world.nodes_with_servers(&["a", "b", "c"]).await;
        world.standin.add_fault(FaultRule::everywhere(fault.clone()));
        world.set_ready("a", false).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(world.node("a").await.is_some(), "{fault:?}");
        assert!(world.events("DeletingNode").await.is_empty(), "{fault:?}");
    }
}

/// The process stays up, and the Node is initialised when the cloud answers.
#[tokio::test(start_paused = true)]
async fn a_cloud_that_is_down_at_the_start_is_waited_for() {
    let world = World::new();
    world.standin.add_fault(FaultRule::everywhere(Fault::Reset));
    let _process = world.start();
    world.server("a");
    world.join("a").await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(has_taint(&world.node("a").await.expect("the Node exists"), UNINITIALIZED));
    world.standin.clear_faults();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!has_taint(&world.node("a").await.expect("the Node exists"), UNINITIALIZED));
}

/// The objects do not wait for their own retries, which are minutes apart by then.
#[tokio::test(start_paused = true)]
async fn a_service_is_served_soon_after_an_outage_of_the_cloud() {
    let error = |code: &str| Fault::Error { code: code.to_owned(), status: None };
    for fault in [
        error("server_error"),
        error("rate_limit_exceeded"),
        Fault::Bare { status: 503 },
        Fault::Reset,
        Fault::Hang { span: Duration::from_secs(60) },
    ] {
        let world = World::new();
        let _process = world.start();
        world.nodes_with_servers(&["a"]).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        world.standin.add_fault(FaultRule::everywhere(fault.clone()));
        let before = world.requests(|_| true);
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        });
        world.services().create(&PostParams::default(), &parse(service)).await.expect("accepted");
        tokio::time::sleep(Duration::from_secs(900)).await;
        let asked = world.requests(|_| true) - before;
        assert!(asked < 350, "{fault:?}: {asked} requests");
        world.standin.clear_faults();
        let ended = tokio::time::Instant::now();
        while world.standin.dump().load_balancers.is_empty() {
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(ended.elapsed().as_secs() < 60, "{fault:?}: not created within a minute");
        }
        assert!(ended.elapsed().as_secs() <= 5, "{fault:?}: {:?}", ended.elapsed());
    }
}

/// The same outage ends while the cloud refuses the creation itself. The end of an outage is not a
/// reason to repeat it.
#[tokio::test(start_paused = true)]
async fn a_refused_creation_waits_after_an_outage_too() {
    let error = |code: &str| Fault::Error { code: code.to_owned(), status: None };
    // In this order: exhausted, denied, invalid.
    for code in ["resource_limit_exceeded", "forbidden", "invalid_input"] {
        let world = World::new();
        let _process = world.start();
        world.nodes_with_servers(&["a"]).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let rule = FaultRule::always("POST", "/v1/load_balancers", error(code));
        world.standin.add_fault(rule.clone());
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        });
        world.services().create(&PostParams::default(), &parse(service)).await.expect("accepted");
        let tried = || world.requests(|label| label == "POST /v1/load_balancers");
        // The waits grow up to five minutes.
        tokio::time::sleep(Duration::from_secs(1500)).await;
        let before = tried();
        world.until("the next wait begins", async |_| before < tried()).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let before = tried();
        world.standin.clear_faults();
        world.standin.add_fault(FaultRule::everywhere(error("server_error")));
        // The outage is shorter than the wait, and calls of the Node show it.
        world.set_ready("a", false).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        world.standin.clear_faults();
        world.standin.add_fault(rule);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(tried(), before, "{code}: the end of the outage repeats nothing");
        world.until("it is tried again", async |_| before < tried()).await;
    }
}

/// Users read Events. The paths and the ids of requests are only in the log.
#[tokio::test(start_paused = true)]
async fn events_about_failures_show_no_path_and_no_request_id() {
    let error = |code: &str, status: u16| Fault::Error { code: code.to_owned(), status: Some(status) };
    for fault in [
        error("server_error", 500),
        error("invalid_input", 422),
        error("resource_limit_exceeded", 403),
        Fault::Bare { status: 503 },
        Fault::Html404,
        Fault::Reset,
        Fault::Hang { span: Duration::from_secs(60) },
    ] {
        let world = World::new();
        let process = world.start();
        world.nodes_with_servers(&["a"]).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        world.standin.add_fault(FaultRule::always("POST", "/v1/load_balancers", fault.clone()));
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        });
        world.services().create(&PostParams::default(), &parse(service)).await.expect("accepted");
        world
            .until("the failure is reported", async |w| !w.events("SyncLoadBalancerFailed").await.is_empty())
            .await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        let mut messages = world.events("SyncLoadBalancerFailed").await;
        let key = Key::Service(machinist_kube::ObjectKey::new("default", "web"));
        messages.push(why(&process.inspector(), &key));
        for message in messages {
            let shown = ["/v1", "/load_balancers", "http:", "POST", "GET", "correlation"];
            assert!(!shown.iter().any(|part| message.contains(part)), "{fault:?}: {message}");
        }
    }
}

/// One Service whose load balancer cannot be created is not an outage: its waits grow.
#[tokio::test(start_paused = true)]
async fn a_failing_service_alone_is_not_repeated_soon() {
    let world = World::new();
    let _process = world.start();
    world.nodes_with_servers(&["a"]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let fault = Fault::Error { code: "server_error".to_owned(), status: None };
    world.standin.add_fault(FaultRule::always("POST", "/v1/load_balancers", fault));
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    });
    world.services().create(&PostParams::default(), &parse(service)).await.expect("accepted");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let tried = world.requests(|label| label == "POST /v1/load_balancers");
    assert!((5..20).contains(&tried), "{tried} creations");
}

/// The Nodes that joined meanwhile wait for one call, not each for its own retry.
#[tokio::test(start_paused = true)]
async fn all_new_nodes_are_initialised_when_an_outage_ends() {
    let world = World::new();
    let _process = world.start();
    let names: Vec<String> = (0..20).map(|number| format!("node-{number:02}")).collect();
    world.standin.add_fault(FaultRule::everywhere(Fault::Reset));
    for name in &names {
        world.server(name);
        world.join(name).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
    let waiting = async || {
        let all = world.nodes().list(&ListParams::default()).await.expect("a list").items;
        all.iter().filter(|node| has_taint(node, UNINITIALIZED)).count()
    };
    assert_eq!(waiting().await, 20);
    world.standin.clear_faults();
    let ended = tokio::time::Instant::now();
    world.until("all Nodes are initialised", async |_| waiting().await == 0).await;
    assert!(ended.elapsed().as_secs() <= 5, "{:?}", ended.elapsed());
}
