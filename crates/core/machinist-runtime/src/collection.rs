//! The objects of one kind at an API server, as a write sees them.
//!
//! A write needs only the metadata of its answer. So this module is compiled once for all kinds,
//! and no answer is parsed whole: the watch delivers the object anyway.

use std::borrow::Cow;
use std::collections::BTreeMap;

use either::Either;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{Request, Status};
use machinist_kube::Cluster;
use machinist_kube::barrier::Settled;
use machinist_kube::outcome::existing;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, Unexpected};

use crate::contract::Contract;
use crate::feed::Fed;
use crate::runtime::Runtime;

/// The objects of one kind, in one namespace or in none.
pub(crate) struct Collection {
    client: Client,
    request: Request,
    pub(crate) cluster: Cluster,
    pub(crate) resource: &'static str,
}

/// The metadata of an object that a write returns, as far as the runtime reads them. An answer
/// without UID or resourceVersion is not an object, and says nothing about the write.
#[derive(Debug, Deserialize)]
pub(crate) struct Written {
    metadata: WrittenMetadata,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMetadata {
    uid: String,
    #[serde(deserialize_with = "number")]
    resource_version: u64,
    deletion_timestamp: Option<Time>,
    finalizers: Option<Vec<String>>,
    labels: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

impl Written {
    /// The outcome of a write that has this answer.
    pub(crate) fn committed(&self) -> Settled {
        Settled::Committed { uid: self.uid(), resource_version: self.metadata.resource_version }
    }

    pub(crate) fn uid(&self) -> String {
        self.metadata.uid.clone()
    }

    /// Whether the write removed the object: it is being deleted and has no finalizers left.
    pub(crate) fn is_removed(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
            && self.metadata.finalizers.as_ref().is_none_or(Vec::is_empty)
    }

    pub(crate) fn labels_and_owners(self) -> (BTreeMap<String, String>, Vec<OwnerReference>) {
        let WrittenMetadata { labels, owner_references, .. } = self.metadata;
        (labels.unwrap_or_default(), owner_references.unwrap_or_default())
    }
}

/// Reads a number that is written as a text.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = Cow::<str>::deserialize(deserializer)?;
    text.parse().map_err(|_| D::Error::invalid_value(Unexpected::Str(&text), &"a numeric resourceVersion"))
}

impl Collection {
    pub(crate) fn of<C: Contract, F: Fed<C>>(runtime: &Runtime<C>, namespace: &str) -> Self {
        let api = F::api(runtime, namespace);
        let request = Request::new(api.resource_url());
        Self { client: api.into_client(), request, cluster: F::cluster(), resource: F::RESOURCE }
    }

    /// Returns the object of that name; `None` if there is none.
    pub(crate) async fn get(&self, name: &str) -> Result<Option<Written>, kube::Error> {
        let request = self.request.get(name, &kube::api::GetParams::default());
        existing(self.send(request, "get").await)
    }

    /// Creates the object.
    pub(crate) async fn create(&self, object: Vec<u8>) -> Result<Written, kube::Error> {
        self.send(self.request.create(&PostParams::default(), object), "create").await
    }

    pub(crate) async fn patch(
        &self,
        name: &str,
        patch: &Patch<serde_json::Value>,
    ) -> Result<Written, kube::Error> {
        self.send(self.request.patch(name, &PatchParams::default(), patch), "patch").await
    }

    pub(crate) async fn patch_status(
        &self,
        name: &str,
        patch: &Patch<serde_json::Value>,
    ) -> Result<Written, kube::Error> {
        let params = PatchParams::default();
        self.send(self.request.patch_subresource("status", name, &params, patch), "patch_status").await
    }

    /// Deletes the object of that name if it has that UID, and that resourceVersion if one is
    /// given. Returns the object if it still exists, for example because it has finalizers.
    pub(crate) async fn delete(
        &self,
        name: &str,
        uid: &str,
        unchanged_since: Option<&str>,
    ) -> Result<Either<Written, Status>, kube::Error> {
        let preconditions =
            Preconditions { uid: Some(uid.to_owned()), resource_version: unchanged_since.map(str::to_owned) };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        let mut request = self.request.delete(name, &params).map_err(kube::Error::BuildRequest)?;
        request.extensions_mut().insert("delete");
        self.client.request_status(request).await
    }

    /// Sends a request under the name that `kube::Api` gives it in metrics.
    async fn send(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
        operation: &'static str,
    ) -> Result<Written, kube::Error> {
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        request.extensions_mut().insert(operation);
        self.client.request(request).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn written(answer: Value) -> Option<Settled> {
        serde_json::from_value::<Written>(answer).ok().map(|object| object.committed())
    }

    #[test]
    fn only_an_object_with_uid_and_version_shows_a_write() {
        let object = json!({"kind": "Machine", "metadata": {
            "uid": "u", "resourceVersion": "7", "finalizers": null, "ownerReferences": null, "other": 1,
        }});
        assert_eq!(written(object), Some(Settled::Committed { uid: "u".to_owned(), resource_version: 7 }));
        for no_object in [
            json!({"kind": "Status", "metadata": {}, "status": "Success"}),
            json!({"metadata": null}),
            json!({"metadata": {"uid": "u"}}),
            json!({"metadata": {"uid": "u", "resourceVersion": ""}}),
            json!({"metadata": {"resourceVersion": "7"}}),
        ] {
            assert_eq!(written(no_object.clone()), None, "{no_object}");
        }
    }

    #[test]
    fn an_object_without_finalizers_is_removed_by_its_deletion() {
        let is_removed = |deleted: Value, finalizers: Value| {
            let object = json!({"metadata": {
                "uid": "u", "resourceVersion": "7", "deletionTimestamp": deleted, "finalizers": finalizers,
            }});
            serde_json::from_value::<Written>(object).expect("an object").is_removed()
        };
        let deleted = json!("2027-01-15T08:00:00Z");
        assert!(is_removed(deleted.clone(), Value::Null));
        assert!(is_removed(deleted.clone(), json!([])));
        assert!(!is_removed(deleted, json!(["a"])));
        assert!(!is_removed(Value::Null, Value::Null));
    }
}
