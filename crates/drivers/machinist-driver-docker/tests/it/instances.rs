//! Properties that only instances of this driver have: fixed keys, containers of other programs,
//! user data.

use machinist_instance::{
    ErrorKind, InstanceKey, InstanceRef, InstanceSpec, NativeId, Power, Sighting, UserData,
};
use serde_json::json;

use crate::engine::{Engine, NODE_IMAGE, by_id};

#[tokio::test]
async fn the_recorded_container_id_proves_ownership() {
    let Some(engine) = Engine::open("moved").await else { return };
    let driver = engine.driver();
    let made = engine.ensure(&engine.spec("a")).await;
    let moved = InstanceKey::new("uid-after-the-move");
    let which =
        |native_id: Option<NativeId>| InstanceRef { key: Some(moved.clone()), native_id, ..by_id(&made) };
    let found = driver.instances().find(&which(None)).await.expect("answered");
    assert!(matches!(found, Sighting::Foreign(foreign) if foreign.key == made.key));
    let found = driver.instances().find(&which(made.native_id.clone())).await.expect("answered");
    assert_eq!(found, Sighting::Present(made.clone()));
    #[expect(clippy::disallowed_methods, reason = "the test owns the container")]
    let (refused, deleted) = (
        driver.instances().delete(&which(NativeId::new("another")), &moved).await,
        driver.instances().delete(&which(made.native_id.clone()), &moved).await,
    );
    assert_eq!(refused.map_err(|error| error.kind), Err(ErrorKind::Denied));
    assert_eq!(deleted, Ok(()));
    let found = driver.instances().find(&which(made.native_id.clone())).await.expect("answered");
    assert_eq!(found, Sighting::Absent);
}

#[tokio::test]
async fn a_container_of_another_program_is_never_used_or_deleted() {
    let Some(engine) = Engine::open("foreign").await else { return };
    let driver = engine.driver();
    let spec = engine.spec("a");
    let id = engine.docker(&["run", "-d", "--name", spec.name.as_str(), NODE_IMAGE]).await;
    let error = driver.instances().ensure(&spec).await.expect_err("the name is taken");
    assert_eq!(error.kind, ErrorKind::Denied);
    assert!(error.message.contains("was not created by this driver"), "{error}");
    let which =
        InstanceRef { key: Some(spec.key.clone()), name: Some(spec.name.clone()), ..InstanceRef::default() };
    #[expect(clippy::disallowed_methods, reason = "the call must be refused")]
    let refused = driver.instances().delete(&which, &spec.key).await;
    assert_eq!(refused.map_err(|error| error.kind), Err(ErrorKind::Denied));
    assert_eq!(engine.inspect(&id).await["State"]["Status"], "running");
    engine.sweep().await;
}

#[tokio::test]
async fn user_data_runs_once_and_is_not_shown_by_the_engine() {
    let Some(engine) = Engine::open("user-data").await else { return };
    let user_data = "#cloud-config\nwrite_files:\n- {path: /etc/a/token, content: canary, permissions: '0600'}\n\
                     runcmd:\n- echo ran >>/var/lib/runs\n- [sh, -c, 'cat /etc/a/token >/var/lib/seen']\n";
    let spec = InstanceSpec { user_data: UserData::new(user_data), ..engine.spec("a") };
    let made = engine.ensure(&spec).await;
    let name = made.name.as_str();
    let result = "cat /var/lib/machinist/bootstrap/result";
    let ended = async || Some(engine.sh(name, result).await).filter(|text| !text.is_empty());
    assert_eq!(engine.until("the user data ran", ended).await, "succeeded");
    assert_eq!(engine.sh(name, "cat /var/lib/runs /var/lib/seen").await, "ran\ncanary");
    assert_eq!(engine.sh(name, "stat -c %a /etc/a/token /var/lib/machinist/bootstrap").await, "600\n700");
    assert!(!engine.inspect(name).await.to_string().contains("canary"));
    assert_eq!(engine.sh(name, "ls /var/lib/machinist/bootstrap/steps 2>&1 | grep -c canary").await, "0");
    engine.docker(&["restart", "-t", "5", name]).await;
    let booted =
        async || Some(engine.sh(name, "cat /run/booted && echo yes").await).filter(|text| text == "yes");
    engine.until("the container booted again", booted).await;
    assert_eq!(engine.sh(name, "cat /var/lib/runs").await, "ran");
    engine.sweep().await;
}

#[tokio::test]
async fn an_instance_has_the_labels_and_limits_of_its_spec() {
    let Some(engine) = Engine::open("labels").await else { return };
    let provider_spec = json!({
        "image": NODE_IMAGE, "privileges": "none", "role": "control-plane", "cluster": "c1", "failureDomain": "fd1",
        "resources": {"memory": 67_108_864, "cpus": 0.5}, "env": {"A": "b"},
        "extraMounts": [{"containerPath": "/host-tmp", "hostPath": "/tmp", "readOnly": true}],
    });
    let made = engine.ensure(&InstanceSpec { provider_spec, ..engine.spec("a") }).await;
    assert_eq!((made.power, made.zone.as_deref()), (Power::Running, Some("fd1")));
    assert!(
        made.addresses.iter().any(|address| address.address.starts_with("10.213.")),
        "{:?}",
        made.addresses
    );
    let shown = engine.inspect(made.name.as_str()).await;
    assert_eq!(shown["Config"]["Labels"]["io.x-k8s.kind.cluster"], "c1");
    assert_eq!(shown["Config"]["Labels"]["io.x-k8s.kind.role"], "control-plane");
    assert_eq!(shown["HostConfig"]["Memory"], 67_108_864);
    assert_eq!(shown["NetworkSettings"]["Ports"]["6443/tcp"][0]["HostIp"], "127.0.0.1");
    engine.docker(&["stop", "-t", "10", made.name.as_str()]).await;
    let found = engine.driver().instances().find(&by_id(&made)).await.expect("answered");
    let Sighting::Present(stopped) = found else { panic!("expected the container, got {found:?}") };
    assert_eq!((stopped.power, stopped.addresses.len()), (Power::Stopped, 1));
    let container = made.native_id.as_ref().expect("a container has an id");
    engine.provider.start(container).await.expect("started");
    engine.sweep().await;
}

#[tokio::test]
async fn a_missing_image_is_reported_before_anything_exists() {
    let Some(engine) = Engine::open("image").await else { return };
    let spec =
        InstanceSpec { provider_spec: json!({"image": "machinist.test/absent:1"}), ..engine.spec("a") };
    let error = engine.driver().instances().ensure(&spec).await.expect_err("no image");
    assert_eq!(error.kind, ErrorKind::InvalidSpec);
    assert!(error.message.contains("machinist.test/absent:1 is not on the engine"), "{error}");
    assert_eq!(engine.docker(&["ps", "-aq", "--filter", &format!("name={}", engine.run)]).await, "");
}

#[tokio::test]
async fn the_profile_caps_adds_capabilities_one_by_one() {
    let Some(engine) = Engine::open("caps").await else { return };
    let provider_spec = json!({"image": NODE_IMAGE, "privileges": "caps"});
    let made = engine.ensure(&InstanceSpec { provider_spec, ..engine.spec("a") }).await;
    assert_eq!(made.power, Power::Running);
    let shown = engine.inspect(made.name.as_str()).await;
    assert_eq!(shown["HostConfig"]["Privileged"], false);
    let capabilities = shown["HostConfig"]["CapAdd"].to_string();
    assert!(capabilities.contains("SYS_ADMIN") && !capabilities.contains("SYS_RESOURCE"), "{capabilities}");
    engine.sweep().await;
}
