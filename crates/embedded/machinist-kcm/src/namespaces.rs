//! Ends namespaces: deletes what is in one that is going, and lets it go when nothing is left.
//!
//! ```text
//! deleting -> discovery -> pods first, then every other kind -> conditions -> nothing left -> finalize
//! ```
//!
//! What is served is asked anew in each pass, so that custom resources are found. A pass reads the namespace from the quorum, and
//! writes its conditions and its finalizers onto exactly the version that it read.
//!
//! Deliberately absent: a watch on every kind. What finalizers hold up is looked at again after a while; only Pods, which are watched
//! anyway, wake their namespace.

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

/// The entry in `spec.finalizers` that is ours to take out.
const FINALIZER: &str = "kubernetes";

/// When to look again at content that something else has to let go of.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Objects of one kind that are listed at once while it is found out what is left.
const PAGE: u32 = 500;

/// Pages that are counted at most, so that a pass ends although somebody goes on making objects of a kind that it is not told of.
const MOST_PAGES: usize = 1_000;

/// What is known of one namespace.
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

/// Whether we have not let it go yet.
fn holds(namespace: &Namespace) -> bool {
    let finalizers = namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_ref());
    finalizers.is_some_and(|all| all.iter().any(|it| it == FINALIZER))
}

/// The controller. Its keys are names of namespaces.
pub(crate) struct Namespaces {
    client: Client,
    clock: SharedClock,
    queue: KeyQueue<String>,
}

/// A queue that is woken for each namespace that is going, and for each Pod that has gone.
pub(crate) fn listen(
    namespaces: &mut View<NamespaceFacts>,
    pods: &mut View<PodFacts>,
    seed: u64,
) -> KeyQueue<String> {
    /// Pods go in bursts.
    const MIN_INTERVAL: Duration = Duration::from_millis(200);
    let queue = KeyQueue::new(|_| MIN_INTERVAL, seed);
    let on_namespace = queue.clone();
    namespaces.listen(move |change| match &change.new {
        Some(facts) if facts.is_deleting && facts.holds => on_namespace.wake(change.key.name.clone()),
        _ => on_namespace.remove(&change.key.name),
    });
    let on_pod = queue.clone();
    pods.listen(move |change| {
        // Only of a namespace that is waited for: waking the others would be a read for each Pod that ends.
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

    /// Deletes what can be deleted, and finds out what is left.
    async fn clear(&self, namespace: &str) -> Found {
        let mut found = Found::default();
        // Pods first: what they use must outlive them.
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
        for (resource, bulk) in kinds.iter().filter(|(it, _)| !(it.group.is_empty() && it.plural == "pods")) {
            self.clear_kind(namespace, resource, *bulk, &mut found).await;
        }
        found
    }

    /// Every kind whose objects lie in namespaces and can be deleted: in its group's preferred version, or else, as a group may
    /// serve a kind in others only, in the most stable that has it.
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
                    let bulk = match capabilities.supports_operation(verbs::DELETE_COLLECTION) {
                        true => Bulk::AtOnce,
                        false => Bulk::OneByOne,
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
        // The core group's name is empty, and the dot stays: kube-controller-manager says it so.
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

    /// Says in the namespace's conditions what was found; lets it go if nothing is left.
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
            finalizers.retain(|it| it != FINALIZER);
        }
        tracing::info!(namespace = name, "Letting go of an empty namespace");
        let result = api.replace_subresource("finalize", &name, &PostParams::default(), &current).await;
        Next::after_write("finalize a namespace", WriteOutcome::of(&result))
    }
}

/// How a kind's objects are deleted.
#[derive(Clone, Copy)]
enum Bulk {
    AtOnce,
    OneByOne,
}

type Listed = Vec<PartialObjectMeta<DynamicObject>>;

/// What is left of a kind, page by page.
async fn left(api: &Api<PartialObjectMeta<DynamicObject>>) -> Result<Listed, kube::Error> {
    let mut left = Vec::new();
    let mut page = ListParams::default().limit(PAGE);
    for _ in 0..MOST_PAGES {
        let list = match api.list(&page).await {
            Ok(list) => list,
            // The kind went meanwhile, and its objects with it.
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
            for name in listed.iter().filter_map(|it| it.metadata.name.as_deref()) {
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
