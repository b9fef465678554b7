//! Tests of the calls that Services start.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use machinist_driver_hcloud::{Endpoint, HcloudOptions, HcloudProvider};
use machinist_instance::Credential;
use machinist_kube::Delta;
use machinist_plan::ccm::{route, service};
use machinist_runtime::{Clients, entry_of, runtime_without_workers, take_in};
use tokio::sync::watch;

use super::*;
use crate::ProcessOptions;
use crate::ccm::{CcmOptions, Versioned};

/// A runtime without workers and without an API server, which has seen one Service.
fn runtime() -> (Arc<Runtime>, ObjectKey) {
    let nothing = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        Ok::<_, std::io::Error>(http::Response::new(kube::client::Body::empty()))
    });
    let client = kube::Client::new(nothing, "default");
    let clients = Clients { control: client.clone(), target: client };
    let services = service::Options::new("ours", "options/");
    let routes = route::Options {
        cluster: Vec::new(),
        period: std::time::Duration::from_secs(300),
        follows_addresses: true,
    };
    let endpoint = Endpoint::parse("http://cloud.invalid/v1").expect("a URL");
    let cloud = HcloudProvider::new(HcloudOptions { endpoint, ..HcloudOptions::default() });
    let provider = Arc::new(cloud.expect("no TLS"));
    let (_, credential) = credential_channel();
    let options = CcmOptions::new(provider, credential, services, routes);
    let runtime =
        runtime_without_workers::<Ccm>(clients, ProcessOptions::new("kube-system", "test"), options.into());
    runtime.lock().seen.memory.backends = Some(Arc::default());
    let service = serde_json::json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "namespace": "default", "name": "web", "uid": "uid-1", "resourceVersion": "7",
            "finalizers": [BALANCER_FINALIZER],
        },
        "spec": {"type": "ClusterIP"},
    });
    let service: Service = serde_json::from_value(service).expect("a Service");
    let key = ObjectKey::new("default", "web");
    take_in::<Ccm, ServiceFacts>(
        &runtime,
        Delta::Upsert(key.clone(), entry_of::<Ccm, ServiceFacts>(&service)),
    );
    (runtime, key)
}

#[expect(clippy::disallowed_methods, reason = "no task waits for the credential")]
fn credential_channel() -> (watch::Sender<Option<Versioned>>, watch::Receiver<Option<Versioned>>) {
    watch::channel(None)
}

fn set_token(runtime: &Runtime, version: u64, token: &str) {
    let data = BTreeMap::from([("token".to_owned(), token.as_bytes().to_vec())]);
    runtime.lock().seen.credential = Some(Versioned { version, credential: Credential::new(data) });
}

fn observe(runtime: &Runtime, key: &ObjectKey) -> Snapshot {
    match Services::observe(runtime, &runtime.lock(), key) {
        Observed::Ready(snapshot) => snapshot,
        Observed::NotYet | Observed::Gone => panic!("the Service is known"),
    }
}

/// In the account of another project, the call would change what other clusters own.
#[tokio::test(start_paused = true)]
async fn a_change_begins_only_in_the_account_of_its_decision() {
    let (runtime, key) = runtime();
    set_token(&runtime, 1, "token");
    let decided = observe(&runtime, &key);
    let delete = |s: &Snapshot| {
        Action::Delete(BalancerRef { id: None, key: s.service.key(), native_id: None, trace: None })
    };
    set_token(&runtime, 2, "token of another project");
    let refused = Services::act(&runtime, &decided, delete(&decided)).await;
    assert!(matches!(refused, Err(Stop::NotNow(_))), "{refused:?}");
    assert_eq!(runtime.lock().asks.of(&subject("uid-1")), None, "no call is on its way");

    let again = observe(&runtime, &key);
    assert_ne!(again.account.id, decided.account.id);
    assert_eq!(Services::act(&runtime, &again, delete(&again)).await, Ok(()));
    assert!(runtime.lock().asks.of(&subject("uid-1")).is_some());
}
