//! Machines whose instances do not join, with an engine that shows why.

use machinist_instance::BootTrouble;
use machinist_serve::{listen, serve};
use machinist_standin_docker::Engine;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::drain::why;
use super::*;

/// Starts both processes with the engine as their cloud.
fn start(world: &World, engine: &Engine) -> (Running, Running) {
    world.start_with(|options| options.providers = Arc::new(engine.clone()).into())
}

async fn apply(world: &World, replicas: u32) {
    apply_with(world, replicas, "#!/bin/sh\n: <<BOOTSTRAP_TOKEN>>\n").await;
}

/// Creates a deployment whose containers get this user data.
async fn apply_with(world: &World, replicas: u32, user_data: &str) {
    world.apply(0).await;
    set_user_data(world, user_data).await;
    let classes: Api<MachineClass> = Api::namespaced(world.user.clone(), NAMESPACE);
    let docker = Patch::Merge(json!({"provider": "docker"}));
    classes.patch("c", &PatchParams::default(), &docker).await.expect("changed");
    world.scale(replicas).await;
}

async fn set_user_data(world: &World, user_data: &str) {
    let secrets: Api<Secret> = Api::namespaced(world.user.clone(), NAMESPACE);
    let changed = Patch::Merge(json!({"stringData": {"userData": user_data}}));
    secrets.patch("s", &PatchParams::default(), &changed).await.expect("changed");
}

/// Gives each new container this problem.
fn fails(engine: &Engine, is_final: bool) {
    let trouble = BootTrouble {
        cause: "step 1 of 1 of the user data exited with code 3".to_owned(),
        output: vec!["last words".to_owned()],
        see: "docker logs NAME".to_owned(),
        is_final,
    };
    engine.state().trouble_of_all = Some(trouble);
}

fn engine(world: &World) -> Engine {
    let clock = world.clock.clone();
    Engine::new("a").with_clock(move || clock.now())
}

#[tokio::test(start_paused = true)]
async fn a_failed_command_is_known_at_once_and_waits() {
    let world = World::new().await;
    let engine = engine(&world);
    fails(&engine, false);
    let (controller, _manager) = start(&world, &engine);
    apply(&world, 1).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let machine = world.machines().await.remove(0);
    let name = machine.metadata.name.clone().expect("a name");
    let message = why(&controller.inspector(), &name);
    for part in ["exited with code 3", "last words", "docker logs NAME"] {
        assert!(message.contains(part), "expected {part:?} in {message}");
    }
    let description =
        machine.last_operation().and_then(|operation| operation.description.clone()).unwrap_or_default();
    assert!(description.contains("exited with code 3"), "{description}");
    assert_eq!(world.events("BootFailed").await.len(), 1);
    tokio::time::sleep(Duration::from_secs(15 * 60)).await;
    assert_eq!(engine.state().created.len(), 1, "an exit code alone waits for the creation timeout");
    assert_eq!(world.events("BootFailed").await.len(), 1);
    tokio::time::sleep(Duration::from_secs(10 * 60)).await;
    assert_eq!(engine.state().created.len(), 2, "the Machine is replaced at the creation timeout");
}

/// The driver cannot run such user data, so it creates no container that would never join.
#[tokio::test(start_paused = true)]
async fn plain_text_as_user_data_is_a_failure_at_once() {
    let world = World::new().await;
    let engine = engine(&world);
    let (controller, _manager) = start(&world, &engine);
    apply_with(&world, 1, "hello, I am no script").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let machine = world.machines().await.remove(0);
    assert_eq!(machine.phase(), Phase::CrashLoopBackOff);
    let name = machine.metadata.name.clone().expect("a name");
    let text = "user data: expected #cloud-config, a script that begins with #!, or Ignition";
    let message = why(&controller.inspector(), &name);
    assert!(message.contains(text), "{message}");
    let description =
        machine.last_operation().and_then(|operation| operation.description.clone()).unwrap_or_default();
    assert!(description.contains(text), "{description}");
    let events = world.events("FailedCreate").await;
    assert!(
        events.iter().any(|event| event.message.as_deref().unwrap_or_default().contains(text)),
        "{events:#?}"
    );
    assert_eq!(engine.state().created, [""; 0]);
    set_user_data(&world, "#cloud-config\n").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(engine.state().created.len(), 1, "the corrected Secret is tried at once");
}

#[tokio::test(start_paused = true)]
async fn replacements_of_hopeless_instances_back_off() {
    let world = World::new().await;
    let engine = engine(&world);
    fails(&engine, true);
    let _processes = start(&world, &engine);
    apply(&world, 1).await;
    let mut created = Vec::new();
    for minutes in [1, 10, 60, 60] {
        tokio::time::sleep(Duration::from_secs(minutes * 60)).await;
        let state = engine.state();
        assert!(state.created.len() - state.deleted.len() <= 2, "{:?}", state.created);
        created.push(state.created.len());
    }
    assert!(2 <= created[0], "the first replacement does not wait for the creation timeout: {created:?}");
    assert!(created[1] <= 8, "each wait is twice as long: {created:?}");
    assert!(created[3] - created[2] <= 4, "the creation timeout is the longest wait: {created:?}");
    assert!(!engine.state().containers.is_empty(), "the last container stays");
}

#[tokio::test(start_paused = true)]
async fn a_container_that_is_gone_is_replaced_soon() {
    let world = World::new().await;
    let engine = engine(&world);
    let _processes = start(&world, &engine);
    apply(&world, 1).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    engine.state().containers.clear();
    world.until("another container exists", async |_| engine.state().created.len() == 2).await;
    let events = world.events("FailedCreate").await;
    let message = events.first().and_then(|event| event.message.clone()).unwrap_or_default();
    assert!(message.contains("no longer exists"), "{message}");
}

/// Asks the controller over HTTP, as `machinist why` does.
async fn ask(address: std::net::SocketAddr, path: &str) -> Value {
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).expect("JSON")
}

/// The silence comes first, and an old decision is not shown as today's.
#[tokio::test(start_paused = true)]
async fn a_silent_engine_is_the_first_thing_that_why_says() {
    let world = World::new().await;
    let engine = engine(&world);
    let (controller, _manager) = start(&world, &engine);
    apply(&world, 1).await;
    world.until("a container exists", async |_| engine.state().created.len() == 1).await;
    join(&world, &engine).await;
    world.until("a machine runs", async |w| running(w).await == 1).await;
    let name = world.machines().await.remove(0).metadata.name.expect("a name");
    let listener = listen("127.0.0.1:0".parse().expect("an address")).await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let inspector = controller.inspector();
    let serving = tokio::spawn(async move { serve(listener, inspector).await });
    let path = format!("/why/machine/{name}");
    let answer = ask(address, &path).await;
    assert_eq!(answer["waitsFor"], "up to date");
    assert_eq!(answer["page"], "docs/src/stuck.md#settled");
    engine.state().hangs = true;
    let began = tokio::time::Instant::now();
    let answer = ask(address, &path).await;
    assert_eq!(answer["waitsFor"], "the engine at a does not answer: no answer within 700 ms", "{answer}");
    assert_eq!(answer["reason"], "CloudSilent");
    assert_eq!(answer["page"], "docs/src/stuck.md#cloud-silent");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    serving.abort();
}

/// Acts as the kubelets in the containers.
async fn join(world: &World, engine: &Engine) {
    let nodes: Api<Node> = Api::all(world.user.clone());
    let names: Vec<String> = engine.state().containers.keys().cloned().collect();
    for name in names {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"providerID": format!("docker:////{name}")},
        });
        nodes.create(&PostParams::default(), &parse(node)).await.expect("the Node is accepted");
        let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let patch = Patch::Strategic(status);
        nodes.patch_status(&name, &PatchParams::default(), &patch).await.expect("the status is accepted");
    }
}
