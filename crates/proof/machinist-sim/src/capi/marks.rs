//! A user who sets labels, annotations and finalizers on the objects of a provider, and takes them
//! off again. Some are marks of the provider.

use std::sync::Arc;
use std::time::Duration;

use machinist_api::capi::constants::{
    CONTAINER_ID_ANNOTATION, ENGINE_ANNOTATION, KEY_ANNOTATION, SENT_AT_ANNOTATION,
};
use machinist_apiserver::{Object, Server};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::core::Objects;
use super::process::ProviderKind;
use super::tables::{MAILGUN_CLUSTERS, MAILGUN_MACHINES};
use crate::faults::LongFault;
use crate::lab::Lab;
use crate::seed::{Seed, Stream};
use crate::sight::SeenObject;
use crate::sight::{DOCKER_CLUSTERS, DOCKER_MACHINES};

/// A writer of marks.
pub(super) struct Marks {
    pub(super) lab: Arc<Lab>,
    pub(super) management: Server,
    pub(super) kind: ProviderKind,
    pub(super) seed: Seed,
}

/// The finalizer that the user sets.
const FINALIZER: &str = "example.org/hold";

impl Marks {
    /// Sets marks and takes them off again, until no mark is left.
    pub(super) async fn set_until(&self, fault: LongFault, until: Instant) {
        const PAUSE: std::ops::Range<Duration> = Duration::from_secs(5)..Duration::from_secs(90);
        let mut stream = self.seed.stream(&format!("foreign marks/{}", fault.pick));
        let user = Objects::new(&self.management, "user-of-marks");
        while Instant::now() < until {
            tokio::time::sleep(stream.within(PAUSE)).await;
            let objects = self.objects();
            let index = stream.below(u64::try_from(objects.len()).unwrap_or(0));
            let Some(object) = usize::try_from(index).ok().and_then(|index| objects.get(index)) else {
                continue;
            };
            let object = SeenObject(object.value());
            let patch = self.patch(object, &mut stream);
            self.write(&user, object, patch).await;
        }
        loop {
            let objects = self.objects();
            let held = objects.iter().map(|object| SeenObject(object.value()));
            let Some(held) = held.into_iter().find(|object| object.has_finalizer(FINALIZER)) else { break };
            // A patch of an object that changes in this instant is refused.
            self.write(&user, held, finalizers(held, Set::Off)).await;
        }
    }

    fn patch(&self, object: SeenObject<'_>, stream: &mut Stream) -> Option<Value> {
        let mark = |value: Value| json!({"metadata": {"labels": {"example.org/mark": value}, "annotations": {"example.org/mark": value}}});
        match stream.below(8) {
            0 | 1 => Some(mark(json!("a"))),
            2 => Some(mark(json!(null))),
            3 => finalizers(object, Set::On),
            4 => finalizers(object, Set::Off),
            _ => {
                let ours: &[&str] = match self.kind {
                    ProviderKind::Docker => &[KEY_ANNOTATION, ENGINE_ANNOTATION, CONTAINER_ID_ANNOTATION],
                    ProviderKind::Mail => &[SENT_AT_ANNOTATION],
                };
                let annotation = stream.pick(ours).filter(|name| !object.annotation(name).is_empty())?;
                Some(json!({"metadata": {"annotations": {annotation: null}}}))
            }
        }
    }

    fn objects(&self) -> Vec<Arc<Object>> {
        let tables = match self.kind {
            ProviderKind::Docker => [DOCKER_CLUSTERS, DOCKER_MACHINES],
            ProviderKind::Mail => [MAILGUN_CLUSTERS, MAILGUN_MACHINES],
        };
        tables.iter().flat_map(|table| self.management.snapshot(table)).collect()
    }

    async fn write(&self, user: &Objects, object: SeenObject<'_>, patch: Option<Value>) {
        let Some(patch) = patch else { return };
        let (kind, name) = (object.text("/kind"), object.name());
        self.lab.history.note(format!("the user patches {kind} {name}: {patch}"));
        // The object may have been deleted meanwhile.
        let _ = user.merge(kind, name, patch).await;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    On,
    Off,
}

fn finalizers(object: SeenObject<'_>, set: Set) -> Option<Value> {
    // An object that is being deleted gets no new finalizers.
    if set == Set::On && object.is_deleting() {
        return None;
    }
    let mut list = object.list("/metadata/finalizers").to_vec();
    let before = list.len();
    list.retain(|finalizer| finalizer != FINALIZER);
    match set {
        Set::On => list.push(json!(FINALIZER)),
        Set::Off if list.len() == before => return None,
        Set::Off => {}
    }
    let revision = object.text("/metadata/resourceVersion");
    Some(json!({"metadata": {"finalizers": list, "resourceVersion": revision}}))
}
