//! A node image with systemd, containerd and kubeadm, if the variable `MACHINIST_DOCKER_NODE_IMAGE`
//! names an image that the engine has.

use std::time::Duration;

use machinist_instance::{
    BootstrapData, BootstrapFormat, BootstrapState, InstanceSpec, Progress, Readiness, UserData,
};
use serde_json::json;

use crate::engine::{Engine, NODE_IMAGE, by_id};

const VARIABLE: &str = "MACHINIST_DOCKER_NODE_IMAGE";

#[tokio::test]
async fn systemd_runs_user_data_and_a_bootstrap() {
    let Some(engine) = Engine::open("real-node").await else { return };
    let Ok(image) = std::env::var(VARIABLE) else {
        println!("SKIPPED real-node: {VARIABLE} does not name an image");
        return;
    };
    let spec = InstanceSpec {
        provider_spec: json!({"image": image, "imageMode": "plain", "privileges": "caps"}),
        user_data: UserData::new("#!/bin/sh\nsystemctl is-active dbus.service >/var/lib/seen\n"),
        ..engine.spec("a")
    };
    let made = engine.ensure(&spec).await;
    let name = made.name.as_str();
    let driver = engine.driver();
    let calls = driver.bootstrap().expect("containers have no user data");
    let ready = async || match calls.readiness(&by_id(&made)).await.expect("answered") {
        Readiness::Ready => Some(()),
        Readiness::Booting(missing) => {
            println!("booting: {missing}");
            None
        }
    };
    engine.until("the node is ready", ready).await;
    let result = async || Some(engine.sh(name, "cat /var/lib/machinist/bootstrap/result").await);
    let ended = async || result().await.filter(|text| !text.is_empty());
    assert_eq!(engine.until("the user data ran", ended).await, "succeeded");
    assert_eq!(engine.sh(name, "cat /var/lib/seen").await, "active");
    let images = [NODE_IMAGE.to_owned()];
    let loaded = async || calls.load_images(&by_id(&made), &images).await.expect("answered").done();
    engine.until("the image is loaded", loaded).await;
    assert_eq!(calls.load_images(&by_id(&made), &images).await, Ok(Progress::Done(())));
    engine.sweep().await;

    let spec = InstanceSpec { user_data: UserData::default(), ..spec };
    let made = engine.ensure(&spec).await;
    engine
        .until("the second node is ready", async || {
            (calls.readiness(&by_id(&made)).await == Ok(Readiness::Ready)).then_some(())
        })
        .await;
    let data = BootstrapData {
        format: BootstrapFormat::CloudConfig,
        value: UserData::new(
            "#cloud-config\nwrite_files:\n- path: /run/kubeadm/kubeadm.yaml\n  content: |\n    \
             apiVersion: kubeadm.k8s.io/v1beta4\n    kind: ClusterConfiguration\n    ---\n    \
             apiVersion: kubeadm.k8s.io/v1beta4\n    kind: InitConfiguration\n\
             runcmd:\n- kubeadm init phase certs all --config /run/kubeadm/kubeadm.yaml\n\
             - kubeadm config validate --config /run/kubeadm/kubeadm.yaml\n\
             - mkdir -p /run/cluster-api && echo success >/run/cluster-api/bootstrap-success.complete\n",
        ),
        timeout: Duration::from_secs(60),
    };
    calls.start(&by_id(&made), &data).await.expect("started");
    let state = async || calls.progress(&by_id(&made)).await.expect("answered").state;
    let ended = async || match state().await {
        BootstrapState::NotStarted | BootstrapState::Running { .. } => None,
        ended => Some(ended),
    };
    assert_eq!(engine.until("the bootstrap ended", ended).await, BootstrapState::Succeeded);
    engine.sweep().await;
}
