//! The owners of containers: labels and recorded ids, against the engine in memory.

use std::sync::Arc;
use std::time::Duration;

use machinist_driver::{Driver, Provider as _};
use machinist_instance::{
    BalancerDeletion, BalancerKey, BalancerRef, BootstrapData, BootstrapFormat, Credential, ErrorKind,
    InstanceKey, InstanceRef, NativeId, Place, ProviderId, Readiness, Sighting, UserData,
};
use serde_json::{Value, json};

use crate::memory::Memory;

fn driver(engine: &Memory) -> Arc<dyn Driver> {
    let (process, credential) = (engine.process(), Credential::default());
    process
        .open(&process.account(&credential, &Place::WHOLE), &credential, &Place::WHOLE)
        .expect("a socket needs no credential")
}

fn which(container: &str, native_id: Option<&str>, cluster: &str) -> InstanceRef {
    InstanceRef {
        id: ProviderId::parse(&format!("docker:////{container}")).ok(),
        key: Some(InstanceKey::new("uid-1")),
        native_id: native_id.and_then(NativeId::new),
        cluster: Some(cluster.to_owned()),
        ..InstanceRef::default()
    }
}

fn data() -> BootstrapData {
    BootstrapData {
        format: BootstrapFormat::CloudConfig,
        value: UserData::new("#cloud-config\nruncmd: [echo a]\n"),
        timeout: Duration::from_secs(60),
    }
}

/// Labels of a container, and whether a recorded id counts for an object of Cluster `c`.
fn labels() -> [(Value, bool); 4] {
    [
        (json!({}), false),
        (json!({"io.x-k8s.kind.cluster": "other"}), false),
        (json!({"io.x-k8s.kind.cluster": "c"}), true),
        (json!({"machinist.dev/owner-uid": "uid-2", "machinist.dev/cluster": "c"}), true),
    ]
}

#[tokio::test]
async fn bootstrap_data_runs_only_in_containers_with_our_key() {
    for (labels, is_readable) in labels() {
        let engine = Memory::start().await;
        let id = engine.state().runs("database", labels.clone());
        let driver = driver(&engine);
        let bootstrap = driver.bootstrap().expect("containers have no user data");
        for native_id in [None, Some(id.as_str())] {
            let which = which("database", native_id, "c");
            let started = bootstrap.start(&which, &data()).await.map_err(|error| error.kind);
            assert_eq!(started, Err(ErrorKind::Denied), "{labels}");
            let loaded = bootstrap.load_images(&which, &["image:1".to_owned()]).await;
            assert_eq!(loaded.map_err(|error| error.kind), Err(ErrorKind::Denied), "{labels}");
        }
        let looked = bootstrap.readiness(&which("database", Some(&id), "c")).await;
        let expected = if is_readable { Ok(Readiness::Ready) } else { Err(ErrorKind::Denied) };
        assert_eq!(looked.map_err(|error| error.kind), expected, "{labels}");
        assert_eq!(engine.state().containers[&id].bootstraps, 0, "{labels}");
    }
}

#[tokio::test]
async fn a_recorded_id_deletes_no_container_of_others() {
    for (labels, is_deleted) in labels() {
        let engine = Memory::start().await;
        let id = engine.state().runs("database", labels.clone());
        let which = which("database", Some(&id), "c");
        #[expect(clippy::disallowed_methods, reason = "the test owns the container")]
        let deleted = driver(&engine).instances().delete(&which, &InstanceKey::new("uid-1")).await;
        assert_eq!(deleted.is_ok(), is_deleted, "{labels}: {deleted:?}");
        assert_eq!(engine.state().containers.is_empty(), is_deleted, "{labels}");
    }
}

#[tokio::test]
async fn a_wrong_recorded_id_does_not_hide_our_own_container() {
    let engine = Memory::start().await;
    let theirs = engine.state().runs("database", json!({}));
    let ours = engine.state().runs("c-w", json!({"machinist.dev/owner-uid": "uid-1"}));
    let found = driver(&engine).instances().find(&which("c-w", Some(&theirs), "c")).await.expect("answered");
    assert!(
        matches!(&found, Sighting::Present(found) if found.native_id == NativeId::new(ours)),
        "{found:?}"
    );
}

#[tokio::test]
async fn a_recorded_id_deletes_no_balancer_of_another_cluster() {
    for (cluster, is_deleted) in [("c", true), ("other", false)] {
        let engine = Memory::start().await;
        let role = "external-load-balancer";
        let labels = json!({"io.x-k8s.kind.cluster": cluster, "io.x-k8s.kind.role": role});
        let id = engine.state().runs(&format!("{cluster}-lb"), labels);
        let which = BalancerRef {
            id: Some("c-lb".to_owned()),
            key: BalancerKey::new("uid-1"),
            native_id: NativeId::new(id),
            trace: None,
        };
        let driver = driver(&engine);
        let deleted = driver.balancers().expect("this driver has balancers").delete(&which).await;
        if is_deleted {
            assert!(matches!(deleted.map(|progress| progress.done()), Ok(Some(BalancerDeletion::Gone))));
        } else {
            let error = deleted.expect_err("it is of another cluster");
            assert!(!error.message.contains("uid-1"), "{error}");
        }
        assert_eq!(engine.state().containers.is_empty(), is_deleted);
    }
}
