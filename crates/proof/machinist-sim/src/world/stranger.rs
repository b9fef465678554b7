//! An actor that knows nothing of the processes: it takes their finalizers off, puts older labels
//! and annotations back on, and replaces Machines as `kubectl replace --force` does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams, PostParams};
use machinist_api::constants::finalizers;
use machinist_apiserver::{Object, Server};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::operator::server_of;
use crate::actor::{STRANGER, Side};
use crate::faults::LongFault;
use crate::lab::Lab;
use crate::objects::{api_of, erase};
use crate::seed::{Seed, Stream};
use crate::sight::{MACHINE_CLASSES, MACHINES, NODES, SECRETS, SeenObject};

/// The finalizers of the processes.
const OURS: [&str; 3] = [finalizers::MACHINE_CONTROLLER_MANAGER, finalizers::SECRET, finalizers::NODE];

/// The actor, and the objects that it changes.
pub(super) struct Stranger {
    pub(super) lab: Arc<Lab>,
    pub(super) control: Server,
    pub(super) target: Server,
    pub(super) seed: Seed,
}

impl Stranger {
    /// Changes objects from time to time.
    pub(super) async fn interfere_until(&self, fault: LongFault, until: Instant) {
        const PAUSE: std::ops::Range<Duration> = Duration::from_secs(3)..Duration::from_secs(60);
        const TABLES: [(Side, &str); 6] = [
            (Side::Control, MACHINES),
            (Side::Control, MACHINES),
            (Side::Control, MACHINE_CLASSES),
            (Side::Control, SECRETS),
            (Side::Target, NODES),
            (Side::Target, NODES),
        ];
        const REPLACES: u32 = 350;
        let mut stream = self.seed.stream(&format!("stranger/{}", fault.pick));
        let mut remembered: BTreeMap<String, Arc<Object>> = BTreeMap::new();
        while stream.pause(PAUSE, until).await {
            if stream.happens(REPLACES) {
                self.replace(until).await;
                continue;
            }
            let Some((side, table)) = stream.pick(&TABLES) else { return };
            let Some(object) = self.pick(side, table, &mut stream) else { continue };
            let old = remembered.entry(object.uid().to_owned()).or_insert_with(|| object.clone()).clone();
            let patch = match stream.below(10) {
                0..6 => without_our_finalizers(&object),
                _ => older_marks(&old),
            };
            let Some(patch) = patch else { continue };
            let name = SeenObject(object.value()).name();
            self.lab.history.note(format!("another actor patches {table} {name}: {patch}"));
            let server = server_of(side, &self.control, &self.target);
            let api = api_of(server, table, object.value(), STRANGER);
            // The object may have changed meanwhile.
            let _ = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        }
    }

    /// Replaces a Machine under its name while a write about it has not arrived.
    async fn replace(&self, until: Instant) {
        const LOOK_EVERY: Duration = Duration::from_millis(50);
        const PATIENCE: Duration = Duration::from_secs(60);
        let end = until.min(Instant::now() + PATIENCE);
        let machine = loop {
            let machines = self.control.snapshot(MACHINES);
            let wanted = machines.into_iter().find(|machine| {
                let seen = SeenObject(machine.value());
                let key = format!("{}/{}", seen.namespace(), seen.name());
                let is_written =
                    self.lab.history.look(|state| state.is_being_written(Side::Control, MACHINES, &key));
                is_written && !seen.is_deleting()
            });
            match wanted {
                Some(machine) => break machine,
                None if end <= Instant::now() => return,
                None => tokio::time::sleep(LOOK_EVERY).await,
            }
        };
        let mut again = machine.value().clone();
        let Some(metadata) = again.get_mut("metadata").and_then(Value::as_object_mut) else { return };
        for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
            metadata.remove(field);
        }
        let Ok(again) = serde_json::from_value(again) else { return };
        self.lab
            .history
            .note(format!("another actor replaces Machine {}", SeenObject(machine.value()).name()));
        erase(&self.control, MACHINES, machine.value(), STRANGER).await;
        let api = api_of(&self.control, MACHINES, machine.value(), STRANGER);
        // The set may have created another Machine of that name.
        let _ = api.create(&PostParams::default(), &again).await;
    }

    fn pick(&self, side: Side, table: &str, stream: &mut Stream) -> Option<Arc<Object>> {
        let mut objects = server_of(side, &self.control, &self.target).snapshot(table);
        let index = stream.below(u64::try_from(objects.len()).unwrap_or(0));
        let index = usize::try_from(index).ok().filter(|index| *index < objects.len())?;
        Some(objects.swap_remove(index))
    }
}

fn without_our_finalizers(object: &Object) -> Option<Value> {
    let all = SeenObject(object.value()).list("/metadata/finalizers");
    let is_ours = |finalizer: &&Value| finalizer.as_str().is_some_and(|name| OURS.contains(&name));
    let others: Vec<&Value> = all.iter().filter(|finalizer| !is_ours(finalizer)).collect();
    let revision = SeenObject(object.value()).text("/metadata/resourceVersion");
    (others.len() < all.len())
        .then(|| json!({"metadata": {"finalizers": others, "resourceVersion": revision}}))
}

/// The labels and annotations of an older version of an object.
fn older_marks(old: &Object) -> Option<Value> {
    let metadata = old.value().get("metadata")?;
    let marks = |field: &str| metadata.get(field).cloned().unwrap_or(json!({}));
    let marks = json!({"uid": old.uid(), "labels": marks("labels"), "annotations": marks("annotations")});
    Some(json!({"metadata": marks}))
}
