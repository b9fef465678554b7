//! A real cluster, and helpers that wait for its state.

use std::path::PathBuf;
use std::time::Duration;

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use serde_json::Value;

/// A generous limit, because server and time are real: kube-controller-manager waits a minute
/// before it declares a Node lost.
const WITHIN: Duration = Duration::from_secs(150);
/// Polling interval: a real server does not signal when it is done.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) kubeconfig: PathBuf,
}

impl Cluster {
    pub(crate) fn api(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let (api_version, kind) = kind.rsplit_once('/').unwrap_or(("v1", kind));
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match namespace {
            "" => Api::all_with(self.client.clone(), &resource),
            namespace => Api::namespaced_with(self.client.clone(), namespace, &resource),
        }
    }

    pub(crate) async fn create(&self, kind: &str, namespace: &str, object: Value) -> String {
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let made = self.api(kind, namespace).create(&PostParams::default(), &object).await.expect("created");
        made.metadata.uid.expect("the server gives a UID")
    }

    pub(crate) async fn until(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        holds: impl Fn(Option<&DynamicObject>) -> bool,
    ) {
        let api = self.api(kind, namespace);
        let mut last = None;
        let attempt = async {
            loop {
                last = api.get_opt(name).await.expect("read");
                if holds(last.as_ref()) {
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        let done = tokio::time::timeout(WITHIN, attempt).await;
        assert!(done.is_ok(), "{kind} {name} not as expected within {WITHIN:?}: {last:#?}");
    }

    pub(crate) async fn until_gone(&self, kind: &str, namespace: &str, name: &str) {
        self.until(kind, namespace, name, |object| object.is_none()).await;
    }

    /// Waits until a newly defined kind is served.
    pub(crate) async fn until_listed(&self, kind: &str) {
        let api = self.api(kind, "");
        let attempt = async {
            while api.list(&ListParams::default()).await.is_err() {
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::time::timeout(WITHIN, attempt).await.expect("the kind is served");
    }
}
