//! Empties namespaces that are being deleted, and finalizes them when nothing is left.
//!
//! ```text
//! deleting -> pods first -> discovery, every other kind -> conditions -> empty -> finalize
//! ```
//!
//! Each pass discovers the served kinds again, so that custom resources are found. It reads the
//! namespace from the quorum, and writes conditions and finalizers only if the namespace still has
//! the version that was read.
//!
//! Deliberately absent: a watch on every kind. Objects that wait for finalizers are looked at again
//! after a while. Only Pods, which are watched anyway, wake their namespace.

mod conditions;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PartialObjectMeta, PostParams};
use kube::discovery::{ApiCapabilities, Discovery, Scope, verbs};
use kube::{Api, Client};
use machinist_kube::{KeyQueue, SharedClock, WriteOutcome};

use crate::facts::pod::PodFacts;
use crate::view::View;
use crate::work::{Controller, Next};
use conditions::Found;

/// The entry in `spec.finalizers` that this controller removes.
const FINALIZER: &str = "kubernetes";

/// Delay before remaining objects are looked at again: other controllers have to remove their
/// finalizers.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Page size for listing what is left of one kind.
const PAGE: u32 = 500;

/// Maximum number of pages, so that a pass ends even if a client keeps creating objects.
const MAX_PAGES: usize = 1_000;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NamespaceFacts {
    pub(crate) is_deleting: bool,
    holds: bool,
}

impl NamespaceFacts {
    pub(crate) fn parse(namespace: Namespace) -> Self {
        Self { is_deleting: namespace.metadata.deletion_timestamp.is_some(), holds: holds(&namespace) }
    }
}

/// Returns whether our finalizer is still present.
fn holds(namespace: &Namespace) -> bool {
    let finalizers = namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_ref());
    finalizers.is_some_and(|all| all.iter().any(|finalizer| finalizer == FINALIZER))
}

/// The keys of this controller are names of namespaces.
pub(crate) struct Namespaces {
    client: Client,
    clock: SharedClock,
    queue: KeyQueue<String>,
}

/// Returns a queue that is woken for each namespace that is being deleted, and for each deleted Pod
/// in it.
pub(crate) fn listen(
    namespaces: &mut View<NamespaceFacts>,
    pods: &mut View<PodFacts>,
    seed: u64,
) -> KeyQueue<String> {
    /// Pods are deleted in bursts.
    const MIN_INTERVAL: Duration = Duration::from_millis(200);
    let queue = KeyQueue::new(|_| MIN_INTERVAL, seed);
    let on_namespace = queue.clone();
    namespaces.listen(move |change| match &change.new {
        Some(facts) if facts.is_deleting && facts.holds => on_namespace.wake(change.key.name.clone()),
        _ => on_namespace.remove(&change.key.name),
    });
    let on_pod = queue.clone();
    pods.listen(move |change| {
        // Only for a namespace in the queue: waking any other namespace would cost a read per
        // deleted Pod.
        if change.new.is_none() && on_pod.due_at(&change.key.namespace).is_some() {
            on_pod.wake(change.key.namespace.clone());
        }
    });
    queue
}

impl Controller for Namespaces {
    type Key = String;

    const NAME: &'static str = "namespaces";

    fn queue(&self) -> &KeyQueue<String> {
        &self.queue
    }

    async fn pass(&self, name: &String) -> Next {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let namespace = match api.get_opt(name).await {
            Ok(Some(namespace)) => namespace,
            Ok(None) => return Next::Idle,
            Err(error) => return Next::after_failed_read("read the namespace", &error),
        };
        if namespace.metadata.deletion_timestamp.is_none() || !holds(&namespace) {
            return Next::Idle;
        }
        let found = self.clear(name).await;
        self.conclude(&api, namespace, &found).await
    }
}

impl Namespaces {
    pub(crate) fn new(client: Client, clock: SharedClock, queue: KeyQueue<String>) -> Self {
        Self { client, clock, queue }
    }

    /// Deletes the content of a namespace, and returns what is left.
    async fn clear(&self, namespace: &str) -> Found {
        let mut found = Found::default();
        // Pods first: the objects that they use must outlive them.
        self.clear_kind(namespace, &ApiResource::erase::<Pod>(&()), Bulk::AtOnce, &mut found).await;
        if !found.is_clear() {
            found.waits_for_pods = true;
            return found;
        }
        let kinds = match self.kinds().await {
            Ok(kinds) => kinds,
            Err(error) => {
                found.discovery_failed = Some(error.to_string());
                return found;
            }
        };
        for (resource, bulk) in
            kinds.iter().filter(|(resource, _)| !(resource.group.is_empty() && resource.plural == "pods"))
        {
            self.clear_kind(namespace, resource, *bulk, &mut found).await;
        }
        found
    }

    /// Returns every namespaced kind that can be deleted, in its group's preferred version. A kind
    /// that this version lacks is returned in the most stable version that has it.
    async fn kinds(&self) -> Result<Vec<(ApiResource, Bulk)>, kube::Error> {
        let discovery = Discovery::new(self.client.clone()).run().await?;
        let mut kinds = BTreeMap::new();
        let clearable = |capabilities: &ApiCapabilities| {
            capabilities.scope == Scope::Namespaced
                && capabilities.supports_operation(verbs::DELETE)
                && capabilities.supports_operation(verbs::LIST)
        };
        for group in discovery.groups() {
            let versions = [group.preferred_version_or_latest()].into_iter().chain(group.versions());
            for (resource, capabilities) in versions.flat_map(|version| group.versioned_resources(version)) {
                if clearable(&capabilities) {
                    let bulk = if capabilities.supports_operation(verbs::DELETE_COLLECTION) {
                        Bulk::AtOnce
                    } else {
                        Bulk::OneByOne
                    };
                    let kind = (resource.group.clone(), resource.plural.clone());
                    kinds.entry(kind).or_insert((resource, bulk));
                }
            }
        }
        Ok(kinds.into_values().collect())
    }

    async fn clear_kind(&self, namespace: &str, resource: &ApiResource, bulk: Bulk, found: &mut Found) {
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, resource);
        let metadata: Api<PartialObjectMeta<DynamicObject>> =
            Api::namespaced_with(self.client.clone(), namespace, resource);
        // The name of the core group is empty, and the dot stays, as in kube-controller-manager.
        let what = format!("{}.{}", resource.plural, resource.group);
        let listed = match left(&metadata).await {
            Ok(listed) if listed.is_empty() => return,
            Ok(listed) => listed,
            Err(error) => return found.failed(&what, &error),
        };
        if let Err(error) = delete_all(&api, &listed, bulk).await {
            return found.failed(&what, &error);
        }
        match left(&metadata).await {
            Ok(remaining) => found.remains(&what, &remaining),
            Err(error) => found.failed(&what, &error),
        }
    }

    /// Writes the result into the namespace's conditions, and finalizes the namespace if nothing is
    /// left.
    async fn conclude(&self, api: &Api<Namespace>, namespace: Namespace, found: &Found) -> Next {
        let mut current = namespace;
        if let Some(changed) = conditions::with_conditions(&current, found, self.clock.now()) {
            let name = current.metadata.name.clone().unwrap_or_default();
            match api.replace_status(&name, &PostParams::default(), &changed).await {
                Ok(written) => current = written,
                Err(error) => {
                    return Next::after_write(
                        "write a namespace's conditions",
                        WriteOutcome::of_error(&error),
                    );
                }
            }
        }
        if !found.is_clear() {
            return Next::In(
                found.estimate.map_or(LOOK_AGAIN_AFTER, |left| left / 2 + Duration::from_secs(1)),
            );
        }
        let name = current.metadata.name.clone().unwrap_or_default();
        if let Some(finalizers) = current.spec.as_mut().and_then(|spec| spec.finalizers.as_mut()) {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
        }
        tracing::info!(namespace = name, "Finalizing an empty namespace");
        let result = api.replace_subresource("finalize", &name, &PostParams::default(), &current).await;
        Next::after_write("finalize a namespace", WriteOutcome::of(&result))
    }
}

#[derive(Clone, Copy)]
enum Bulk {
    AtOnce,
    OneByOne,
}

type Listed = Vec<PartialObjectMeta<DynamicObject>>;

/// Lists what is left of a kind, page by page.
async fn left(api: &Api<PartialObjectMeta<DynamicObject>>) -> Result<Listed, kube::Error> {
    let mut left = Vec::new();
    let mut page = ListParams::default().limit(PAGE);
    for _ in 0..MAX_PAGES {
        let list = match api.list(&page).await {
            Ok(list) => list,
            // The kind was removed meanwhile, and its objects with it.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        left.extend(list.items);
        match list.metadata.continue_.filter(|more| !more.is_empty()) {
            Some(more) => page = page.continue_token(&more),
            None => break,
        }
    }
    Ok(left)
}

async fn delete_all(api: &Api<DynamicObject>, listed: &Listed, bulk: Bulk) -> Result<(), kube::Error> {
    let params = DeleteParams::background();
    match bulk {
        Bulk::AtOnce => match api.delete_collection(&params, &ListParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error),
        },
        Bulk::OneByOne => {
            for name in listed.iter().filter_map(|object| object.metadata.name.as_deref()) {
                match api.delete(name, &params).await {
                    Ok(_) => {}
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        }
    }
}
