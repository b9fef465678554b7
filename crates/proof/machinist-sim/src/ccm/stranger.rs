//! An actor that knows nothing of the process: it takes the finalizer of Services off, puts older
//! annotations back on, and replaces Services as `kubectl replace --force` does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use machinist_apiserver::{Object, Server};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::project::FINALIZER;
use super::services::Services;
use crate::actor::STRANGER;
use crate::faults::LongFault;
use crate::lab::Lab;
use crate::objects::{api_of, erase};
use crate::seed::{Seed, Stream};
use crate::sight::SERVICES;
use crate::sight::SeenObject;

/// The actor, and the objects that it changes.
pub(super) struct Stranger {
    pub(super) lab: Arc<Lab>,
    pub(super) server: Server,
    pub(super) services: Services,
    pub(super) seed: Seed,
}

impl Stranger {
    /// Changes Services from time to time.
    pub(super) async fn interfere_until(&self, fault: LongFault, until: Instant) {
        const PAUSE: std::ops::Range<Duration> = Duration::from_secs(3)..Duration::from_secs(60);
        /// The share of changes that are made while a Service is being deleted, and the share of
        /// replacements, per thousand.
        const OF_DELETED: u32 = 400;
        const REPLACES: u32 = 300;
        let mut stream = self.seed.stream(&format!("stranger/{}", fault.pick));
        let mut remembered: BTreeMap<String, Arc<Object>> = BTreeMap::new();
        while stream.pause(PAUSE, until).await {
            if stream.happens(OF_DELETED) {
                self.release_a_deleted_one(until).await;
                continue;
            }
            let replaces = stream.happens(REPLACES);
            let Some(service) = self.pick(&mut stream) else { continue };
            if replaces {
                let name = SeenObject(service.value()).name();
                self.lab.history.note(format!("another actor replaces Service {name}"));
                erase(&self.server, SERVICES, service.value(), STRANGER).await;
                self.services.create_again(name).await;
                continue;
            }
            let uid = service.uid().to_owned();
            let old = remembered.entry(uid).or_insert_with(|| service.clone()).clone();
            let patch = match stream.below(10) {
                0..6 => without_our_finalizer(&service),
                _ => Some(older_annotations(&old)),
            };
            self.patch(&service, patch).await;
        }
    }

    /// Takes the finalizer off a Service that is being deleted, as soon as there is one.
    async fn release_a_deleted_one(&self, until: Instant) {
        const LOOK_EVERY: Duration = Duration::from_millis(200);
        const PATIENCE: Duration = Duration::from_secs(120);
        let end = until.min(Instant::now() + PATIENCE);
        while Instant::now() < end {
            let services = self.server.snapshot(SERVICES);
            if let Some(deleted) =
                services.into_iter().find(|service| SeenObject(service.value()).is_deleting())
            {
                return self.patch(&deleted, without_our_finalizer(&deleted)).await;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn pick(&self, stream: &mut Stream) -> Option<Arc<Object>> {
        let mut services = self.server.snapshot(SERVICES);
        let index = stream.below(u64::try_from(services.len()).unwrap_or(0));
        let index = usize::try_from(index).ok().filter(|index| *index < services.len())?;
        Some(services.swap_remove(index))
    }

    async fn patch(&self, service: &Object, patch: Option<Value>) {
        let Some(patch) = patch else { return };
        let name = SeenObject(service.value()).name();
        self.lab.history.note(format!("another actor patches Service {name}: {patch}"));
        let api = api_of(&self.server, SERVICES, service.value(), STRANGER);
        // The Service may have changed meanwhile.
        let _ = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    }
}

fn without_our_finalizer(service: &Object) -> Option<Value> {
    let service = SeenObject(service.value());
    let all = service.list("/metadata/finalizers");
    let others: Vec<&Value> = all.iter().filter(|finalizer| *finalizer != FINALIZER).collect();
    let revision = service.text("/metadata/resourceVersion");
    (others.len() < all.len())
        .then(|| json!({"metadata": {"finalizers": others, "resourceVersion": revision}}))
}

/// The annotations of an older version of a Service.
fn older_annotations(old: &Object) -> Value {
    let annotations = old.value().pointer("/metadata/annotations").cloned().unwrap_or(json!({}));
    json!({"metadata": {"uid": old.uid(), "annotations": annotations}})
}
