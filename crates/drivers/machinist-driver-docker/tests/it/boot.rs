//! Containers that do not become Nodes, on a real engine.

use machinist_instance::{Boot, BootTrouble, Instance, InstanceSpec, UserData};
use serde_json::json;

use crate::engine::{Engine, NODE_IMAGE, by_id};

/// Variable with a node image that has systemd.
const VARIABLE: &str = "MACHINIST_DOCKER_NODE_IMAGE";

/// Waits until the container has a problem.
async fn trouble(engine: &Engine, made: &Instance) -> BootTrouble {
    let driver = engine.driver();
    let bootstrap = driver.bootstrap().expect("this driver has a bootstrap");
    let look = async || match bootstrap.boot(&by_id(made)).await {
        Ok(Boot::Trouble(trouble)) => Some(trouble),
        Ok(Boot::Working) => None,
        Err(error) => panic!("{error}"),
    };
    engine.until("the container has a problem", look).await
}

/// Makes an image whose first process is this script.
async fn make_image(engine: &Engine, image: &str, script: &str) {
    let base = format!("{}-base", engine.run);
    engine.docker(&["create", "--name", &base, NODE_IMAGE]).await;
    let entrypoint = format!("ENTRYPOINT [\"/bin/sh\", \"-c\", \"{script}\"]");
    engine.docker(&["commit", "--change", &entrypoint, "--change", "CMD []", &base, image]).await;
}

#[tokio::test]
async fn an_image_that_ends_at_once_is_final() {
    let Some(engine) = Engine::open("boot-ends").await else { return };
    let image = "machinist.test/ends:1";
    make_image(&engine, image, "echo no init here; exit 7").await;
    let spec =
        InstanceSpec { provider_spec: json!({"image": image, "privileges": "none"}), ..engine.spec("a") };
    let made = engine.ensure(&spec).await;
    let found = trouble(&engine, &made).await;
    assert!(found.is_final && found.cause.contains("exits with code 7"), "{found}");
    assert_eq!(found.output.last().map(String::as_str), Some("no init here"), "{found}");
    assert_eq!(found.see, format!("docker logs {}", made.name));

    engine.docker(&["rm", "-fv", made.name.as_str()]).await;
    let found = trouble(&engine, &made).await;
    assert!(found.is_final && found.cause.contains("no longer exists"), "{found}");
    engine.sweep().await;
    engine.docker(&["rmi", image]).await;
}

#[tokio::test]
async fn user_data_without_systemd_is_final() {
    let Some(engine) = Engine::open("boot-plain").await else { return };
    let image = "machinist.test/plain:1";
    make_image(&engine, image, "sleep 600").await;
    let spec = InstanceSpec {
        provider_spec: json!({"image": image, "privileges": "none"}),
        user_data: UserData::new("#!/bin/sh\ntrue\n"),
        ..engine.spec("a")
    };
    let made = engine.ensure(&spec).await;
    let found = trouble(&engine, &made).await;
    assert!(found.is_final && found.cause.contains("has no systemd"), "{found}");
    engine.docker(&["stop", "-t", "0", made.name.as_str()]).await;
    let stopped = async || Some(trouble(&engine, &made).await).filter(|found| !found.is_final);
    let found = engine.until("the container is stopped", stopped).await;
    assert!(found.cause.contains("does not run: it exited with code"), "{found}");
    engine.sweep().await;
    engine.docker(&["rmi", image]).await;
}

#[tokio::test]
async fn a_failed_command_is_reported_without_its_token() {
    let Some(engine) = Engine::open("boot-fails").await else { return };
    let Ok(image) = std::env::var(VARIABLE) else {
        println!("SKIPPED boot-fails: {VARIABLE} does not name an image");
        return;
    };
    let spec = InstanceSpec {
        provider_spec: json!({"image": image, "imageMode": "plain", "privileges": "caps"}),
        user_data: UserData::new(
            "#cloud-config\nruncmd:\n- echo join abcdef.0123456789abcdef >&2\n- exit 3\n- echo never\n",
        ),
        ..engine.spec("a")
    };
    let made = engine.ensure(&spec).await;
    let found = trouble(&engine, &made).await;
    assert!(!found.is_final, "a Node may register nevertheless: {found}");
    assert_eq!(found.cause, "step 2 of 3 of the user data exited with code 3");
    assert_eq!(found.output, ["join [redacted]"]);
    engine.sweep().await;
}
