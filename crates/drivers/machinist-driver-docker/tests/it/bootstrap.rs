//! Bootstraps in a container: once, observable, bounded, and without secrets in the output.

use std::time::Duration;

use machinist_driver::{Bootstrap, Driver};
use machinist_instance::{
    BootstrapCause, BootstrapData, BootstrapFailure, BootstrapFormat, BootstrapState, ErrorKind, Instance,
    InstanceKey, InstanceRef, Progress, Readiness, UserData,
};
use serde_json::json;

use crate::engine::{Engine, NODE_IMAGE, by_id};

const SUCCESS: &str =
    "mkdir -p /run/cluster-api && echo success > /run/cluster-api/bootstrap-success.complete";

fn cloud_config(text: &str) -> BootstrapData {
    BootstrapData {
        format: BootstrapFormat::CloudConfig,
        value: UserData::new(text),
        timeout: Duration::from_secs(60),
    }
}

fn calls(driver: &dyn Driver) -> &dyn Bootstrap {
    driver.bootstrap().expect("containers have no user data")
}

async fn state(engine: &Engine, made: &Instance) -> BootstrapState {
    calls(&*engine.driver()).progress(&by_id(made)).await.expect("answered").state
}

/// Waits until the bootstrap has ended.
async fn ended(engine: &Engine, made: &Instance) -> BootstrapState {
    let look = async || match state(engine, made).await {
        BootstrapState::NotStarted | BootstrapState::Running { .. } => None,
        ended => Some(ended),
    };
    engine.until("the bootstrap ended", look).await
}

async fn failure(engine: &Engine, made: &Instance) -> BootstrapFailure {
    match ended(engine, made).await {
        BootstrapState::Failed(failure) => failure,
        other => panic!("expected a failure, got {other:?}"),
    }
}

async fn ready(engine: &Engine, name: &str) -> Instance {
    let made = engine.ensure(&engine.spec(name)).await;
    let look = async || match calls(&*engine.driver()).readiness(&by_id(&made)).await.expect("answered") {
        Readiness::Ready => Some(()),
        Readiness::Booting(_) => None,
    };
    engine.until("the container is ready", look).await;
    made
}

#[tokio::test]
async fn a_bootstrap_runs_once_and_its_end_is_observed() {
    let Some(engine) = Engine::open("boot-once").await else { return };
    let made = ready(&engine, "a").await;
    let which = by_id(&made);
    let text = format!(
        "#cloud-config\nwrite_files:\n- {{path: /run/kubeadm/kubeadm.yaml, content: \"kind: InitConfiguration\\n\"}}\n\
         runcmd:\n- while [ ! -e /tmp/go ]; do sleep 0.1; done\n\
         - 'kubeadm init --config /run/kubeadm/kubeadm.yaml  && {SUCCESS}'\nmounts: []\n"
    );
    let driver = engine.driver();
    assert_eq!(state(&engine, &made).await, BootstrapState::NotStarted);
    let data = cloud_config(&text);
    let (first, second) =
        tokio::join!(calls(&*driver).start(&which, &data), calls(&*driver).start(&which, &data));
    assert_eq!((first, second), (Ok(()), Ok(())));
    let running = async || match state(&engine, &made).await {
        BootstrapState::Running { step: 2, steps: 3 } => Some(()),
        BootstrapState::NotStarted | BootstrapState::Running { .. } => None,
        other => panic!("expected a running bootstrap, got {other:?}"),
    };
    engine.until("the second step runs", running).await;
    engine.sh(made.name.as_str(), ": >/tmp/go").await;
    assert_eq!(ended(&engine, &made).await, BootstrapState::Succeeded);
    calls(&*driver).start(&which, &data).await.expect("a repeated start has no effect");
    let kubeadm = engine.sh(made.name.as_str(), "cat /var/lib/kubeadm.calls").await;
    assert_eq!(kubeadm.lines().count(), 1, "{kubeadm}");
    assert!(kubeadm.contains("--ignore-preflight-errors=SystemVerification"), "{kubeadm}");
    let config = engine.sh(made.name.as_str(), "cat /run/kubeadm/kubeadm.yaml").await;
    assert!(config.contains("containerd.sock"), "{config}");
    let status = calls(&*driver).progress(&which).await.expect("answered");
    assert_eq!(status.ignored, ["mounts"]);
    engine.sweep().await;
}

#[tokio::test]
async fn a_failed_step_shows_its_code_and_no_secrets() {
    let Some(engine) = Engine::open("boot-fail").await else { return };
    let made = ready(&engine, "a").await;
    let text =
        "runcmd:\n- echo join --token abcdef.0123456789abcdef\n- echo broken >&2; exit 7\n- touch /never\n";
    calls(&*engine.driver()).start(&by_id(&made), &cloud_config(text)).await.expect("started");
    let expected = BootstrapFailure {
        cause: BootstrapCause::Exited { step: 2, steps: 3, code: 7 },
        kubeadm_started: false,
        stdout: "join --token [redacted]\n".to_owned(),
        stderr: "broken\n".to_owned(),
    };
    assert_eq!(failure(&engine, &made).await, expected);
    assert_eq!(engine.sh(made.name.as_str(), "ls /never 2>&1 | grep -c 'No such'").await, "1");
    engine.sweep().await;
}

#[tokio::test]
async fn a_missing_success_file_is_a_failure() {
    let Some(engine) = Engine::open("boot-mark").await else { return };
    let made = ready(&engine, "a").await;
    calls(&*engine.driver())
        .start(&by_id(&made), &cloud_config("runcmd: ['true']\n"))
        .await
        .expect("started");
    assert_eq!(failure(&engine, &made).await.cause, BootstrapCause::SuccessFileMissing);
    engine.sweep().await;
}

#[tokio::test]
async fn a_bootstrap_is_ended_when_its_time_is_over() {
    let Some(engine) = Engine::open("boot-time").await else { return };
    let made = ready(&engine, "a").await;
    let text = "runcmd:\n- kubeadm join && sleep 600\n";
    let data = BootstrapData { timeout: Duration::from_secs(2), ..cloud_config(text) };
    calls(&*engine.driver()).start(&by_id(&made), &data).await.expect("started");
    let failure = failure(&engine, &made).await;
    assert_eq!(failure.cause, BootstrapCause::TimedOut { step: 1, steps: 1 });
    assert!(failure.kubeadm_started);
    let left =
        async || (engine.sh(made.name.as_str(), "ps | grep -c '[s]leep 600'").await == "0").then_some(());
    engine.until("no process of the step is left", left).await;
    engine.sweep().await;
}

#[tokio::test]
async fn a_restart_interrupts_a_bootstrap_for_ever() {
    let Some(engine) = Engine::open("boot-cut").await else { return };
    let made = ready(&engine, "a").await;
    let data = cloud_config("runcmd:\n- sleep 600\n");
    calls(&*engine.driver()).start(&by_id(&made), &data).await.expect("started");
    let begun =
        async || matches!(state(&engine, &made).await, BootstrapState::Running { step: 1, .. }).then_some(());
    engine.until("the first step runs", begun).await;
    engine.docker(&["restart", "-t", "1", made.name.as_str()]).await;
    assert_eq!(failure(&engine, &made).await.cause, BootstrapCause::Interrupted);
    calls(&*engine.driver()).start(&by_id(&made), &data).await.expect("no effect");
    assert_eq!(failure(&engine, &made).await.cause, BootstrapCause::Interrupted);
    engine.sweep().await;
}

#[tokio::test]
async fn ignition_writes_files_and_runs_units() {
    let Some(engine) = Engine::open("boot-ign").await else { return };
    let made = ready(&engine, "a").await;
    let unit = "[Service]\nExecStart=/bin/sh /etc/kubeadm.sh\n";
    let script = format!("data:,kubeadm%20join%0A{}", SUCCESS.replace(' ', "%20"));
    let document = json!({
        "ignition": {"version": "2.3.0"},
        "storage": {"files": [
            {"path": "/etc/kubeadm.sh", "mode": 448, "contents": {"source": script}},
            {"path": "/etc/passwd", "append": true, "contents": {"source": "data:,core%3Ax%3A1%3A1%3A%3A%2F%3A%0A"}},
        ]},
        "systemd": {"units": [{"name": "kubeadm.service", "enabled": true, "contents": unit}]},
    });
    let data = BootstrapData {
        format: BootstrapFormat::Ignition,
        value: UserData::new(document.to_string()),
        timeout: Duration::from_secs(60),
    };
    calls(&*engine.driver()).start(&by_id(&made), &data).await.expect("started");
    assert_eq!(ended(&engine, &made).await, BootstrapState::Succeeded);
    assert_eq!(engine.sh(made.name.as_str(), "grep -c . /etc/passwd").await, "2");
    engine.sweep().await;
}

#[tokio::test]
async fn invalid_data_and_foreign_containers_are_refused() {
    let Some(engine) = Engine::open("boot-no").await else { return };
    let made = ready(&engine, "a").await;
    let driver = engine.driver();
    let error =
        calls(&*driver).start(&by_id(&made), &cloud_config("runcmd: canary")).await.expect_err("no list");
    assert_eq!(error.kind, ErrorKind::InvalidSpec);
    assert!(!error.message.contains("canary"), "{error}");
    let other = InstanceRef { key: Some(InstanceKey::new("another")), ..by_id(&made) };
    let error = calls(&*driver).start(&other, &cloud_config("runcmd: ['true']")).await.expect_err("foreign");
    assert_eq!(error.kind, ErrorKind::Denied);
    assert_eq!(state(&engine, &made).await, BootstrapState::NotStarted);
    let absent = InstanceRef { key: Some(InstanceKey::new("absent")), ..InstanceRef::default() };
    let booting = calls(&*driver).readiness(&absent).await;
    assert_eq!(booting, Ok(Readiness::Booting("the container is absent".to_owned())));
    engine.sweep().await;
}

#[tokio::test]
async fn images_of_the_engine_are_loaded_into_the_container() {
    let Some(engine) = Engine::open("boot-image").await else { return };
    let made = ready(&engine, "a").await;
    let images = [NODE_IMAGE.to_owned()];
    let driver = engine.driver();
    let look = async || match calls(&*driver).load_images(&by_id(&made), &images).await.expect("answered") {
        Progress::Done(()) => Some(()),
        Progress::Working(text) => {
            assert_eq!(text, "loading images (0 of 1 done)");
            None
        }
    };
    engine.until("the image is loaded", look).await;
    assert_eq!(engine.sh(made.name.as_str(), "cat /var/lib/images").await, NODE_IMAGE);
    let absent = ["machinist.test/absent:1".to_owned()];
    let error = calls(&*driver).load_images(&by_id(&made), &absent).await.expect_err("no image");
    assert_eq!(error.kind, ErrorKind::InvalidSpec);
    engine.sweep().await;
}
