//! Gives every namespace the ServiceAccount `default`, and the ConfigMap with the server's CA for
//! Pods.
//!
//! One controller handles both, since both need the same check: does the object exist with the
//! correct content? A deleted object is recreated, and a changed one is repaired. Every write is
//! either a create under a free name, or a patch of exactly the version that was wrong.
//!
//! Deliberately absent: the CA's ConfigMap if this process has no CA, and ServiceAccounts besides
//! `default`.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use machinist_kube::{KeyQueue, ObjectKey, WriteOutcome};
use serde_json::{Map, Value, json};

use crate::namespaces::NamespaceFacts;
use crate::view::View;
use crate::work::{Controller, Next};

/// Selects the one ServiceAccount of each namespace.
pub(crate) const ACCOUNT_SELECTOR: &str = "metadata.name=default";
/// Selects the one ConfigMap of each namespace.
pub(crate) const ROOT_CA_SELECTOR: &str = "metadata.name=kube-root-ca.crt";

const ACCOUNT: &str = "default";
const ROOT_CA: &str = "kube-root-ca.crt";
const ROOT_CA_KEY: &str = "ca.crt";
const DESCRIPTION: (&str, &str) = (
    "kubernetes.io/description",
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service \
     IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.",
);

/// Marker for an existing default account.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AccountFacts;

impl AccountFacts {
    pub(crate) fn parse(_account: ServiceAccount) -> Self {
        Self
    }
}

/// Content of a namespace's CA ConfigMap.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RootCaFacts {
    certificate: Option<String>,
    /// Keys that must not be there.
    strange_keys: Vec<String>,
    described: bool,
}

impl RootCaFacts {
    pub(crate) fn parse(map: ConfigMap) -> Self {
        let annotations = map.metadata.annotations.unwrap_or_default();
        let mut data = map.data.unwrap_or_default();
        Self {
            certificate: data.remove(ROOT_CA_KEY),
            strange_keys: data.into_keys().collect(),
            described: annotations.get(DESCRIPTION.0).is_some_and(|description| description == DESCRIPTION.1),
        }
    }
}

/// The keys of this controller are names of namespaces.
pub(crate) struct Provisions {
    pub(crate) client: Client,
    /// CA certificate in PEM.
    pub(crate) root_ca: Option<String>,
    pub(crate) queue: KeyQueue<String>,
    pub(crate) namespaces: Arc<View<NamespaceFacts>>,
    pub(crate) accounts: Arc<View<AccountFacts>>,
    pub(crate) root_cas: Arc<View<RootCaFacts>>,
}

/// Returns a queue that is woken for each namespace that may lack one of the objects.
pub(crate) fn listen(
    namespaces: &mut View<NamespaceFacts>,
    accounts: &mut View<AccountFacts>,
    root_cas: &mut View<RootCaFacts>,
    seed: u64,
) -> KeyQueue<String> {
    let queue = KeyQueue::new(|_| Duration::ZERO, seed);
    let on_namespace = queue.clone();
    namespaces.listen(move |change| {
        if change.old.is_none() {
            on_namespace.wake(change.key.name.clone());
        }
    });
    let on_account = queue.clone();
    accounts.listen(move |change| {
        if change.new.is_none() {
            on_account.wake(change.key.namespace.clone());
        }
    });
    let on_root_ca = queue.clone();
    root_cas.listen(move |change| {
        if change.old != change.new {
            on_root_ca.wake(change.key.namespace.clone());
        }
    });
    queue
}

impl Controller for Provisions {
    type Key = String;

    const NAME: &'static str = "provisions";

    fn queue(&self) -> &KeyQueue<String> {
        &self.queue
    }

    async fn pass(&self, namespace: &String) -> Next {
        let is_active = self
            .namespaces
            .store()
            .get(&ObjectKey::cluster_scoped(namespace))
            .is_some_and(|namespace| !namespace.facts.is_deleting);
        if !is_active {
            return Next::Idle;
        }
        let account = self.provide_account(namespace).await;
        account.sooner(self.provide_root_ca(namespace).await)
    }
}

impl Provisions {
    async fn provide_account(&self, namespace: &str) -> Next {
        if self.accounts.store().get(&ObjectKey::new(namespace, ACCOUNT)).is_some() {
            return Next::Idle;
        }
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let account = ServiceAccount { metadata: metadata(namespace, ACCOUNT), ..ServiceAccount::default() };
        let result = api.create(&PostParams::default(), &account).await;
        after_create("create a default service account", &result)
    }

    async fn provide_root_ca(&self, namespace: &str) -> Next {
        let Some(certificate) = &self.root_ca else { return Next::Idle };
        let held = {
            let store = self.root_cas.store();
            let entry = store.get(&ObjectKey::new(namespace, ROOT_CA));
            entry.map(|entry| (entry.facts.clone(), entry.resource_version))
        };
        let wanted =
            RootCaFacts { certificate: Some(certificate.clone()), strange_keys: Vec::new(), described: true };
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        match held {
            Some((facts, _)) if *facts == wanted => Next::Idle,
            Some((facts, version)) => {
                let patch = Patch::Merge(repair(&facts, certificate, version));
                let result = api.patch(ROOT_CA, &PatchParams::default(), &patch).await;
                Next::after_write("write the CA of a namespace", WriteOutcome::of(&result))
            }
            None => {
                let map = ConfigMap {
                    metadata: ObjectMeta {
                        annotations: Some([(DESCRIPTION.0.to_owned(), DESCRIPTION.1.to_owned())].into()),
                        ..metadata(namespace, ROOT_CA)
                    },
                    data: Some([(ROOT_CA_KEY.to_owned(), certificate.clone())].into()),
                    ..ConfigMap::default()
                };
                let result = api.create(&PostParams::default(), &map).await;
                after_create("create the CA of a namespace", &result)
            }
        }
    }
}

/// Returns a merge patch that corrects the data and the description in exactly this version. The
/// rest stays, such as labels that a user added.
fn repair(held: &RootCaFacts, certificate: &str, version: u64) -> Value {
    let mut data: Map<String, Value> =
        held.strange_keys.iter().map(|key| (key.clone(), Value::Null)).collect();
    data.insert(ROOT_CA_KEY.to_owned(), certificate.into());
    json!({
        "metadata": {
            "resourceVersion": version.to_string(),
            "annotations": { DESCRIPTION.0: DESCRIPTION.1 },
        },
        "data": data,
    })
}

fn metadata(namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), namespace: Some(namespace.to_owned()), ..ObjectMeta::default() }
}

/// A conflict is not a failure: another process may have created the object, or the namespace may
/// have been deleted.
fn after_create<T>(what: &str, result: &Result<T, kube::Error>) -> Next {
    match result {
        Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => Next::Idle,
        Err(kube::Error::Api(status)) if status.code == 403 && says_terminating(status) => Next::Idle,
        _ => Next::after_write(what, WriteOutcome::of(result)),
    }
}

fn says_terminating(status: &kube::core::Status) -> bool {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    causes.iter().any(|cause| cause.reason == "NamespaceTerminating")
}
