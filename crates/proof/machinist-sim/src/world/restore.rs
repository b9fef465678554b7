//! The restore of one cluster from a backup, into the middle of a stage: the cluster goes back to
//! an older state while the cloud and the other cluster stay as they are.
//!
//! ```text
//! backup -> processes stop -> restore -> the user repeats lost requests -> processes start
//! ```
//!
//! Watches show the restored objects as deleted and created, at new revisions, as after a restore
//! that raises the revision.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use machinist_apiserver::Object;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::operator::{api_of, erase, server_of};
use super::weather::Elements;
use crate::actor::{RESTORE, Side};
use crate::faults::LongFault;
use crate::sight::{
    LEASES, MACHINE_CLASSES, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, NODES, PODS, SECRETS, Seen,
};

/// Time from the end of the processes to the restore, in which their last requests take effect.
const LAST_EFFECTS: Duration = Duration::from_secs(75);
/// Time from the restore to the start of the processes.
const START_AFTER: Duration = Duration::from_secs(5);
/// The User-Agent of the user who repeats requests.
const USER: &str = "operator";

/// All objects of a cluster that a restore brings back; owners come before their dependents.
struct Backup(Vec<(&'static str, Vec<Arc<Object>>)>);

/// Makes a backup, and restores it while the processes are stopped.
pub(super) async fn happen(elements: &Elements, side: Side, fault: LongFault, until: Instant) {
    const SHORTEST: Duration = Duration::from_secs(2);
    let Elements { lab, control, target, built_in, processes, seed, .. } = elements;
    let server = server_of(side, control, target);
    let tables = tables(side);
    let backup = Backup::of(elements, side, tables);
    lab.history.note(format!("a backup of the {side} cluster is made"));
    let longest = (fault.lasts / 4).max(SHORTEST * 2);
    let age = seed.stream(&format!("restore/{}", fault.pick)).within(SHORTEST..longest);
    tokio::time::sleep(age).await;
    let restore_at = Instant::now() + LAST_EFFECTS;
    processes.hold_until(restore_at + START_AFTER);
    tokio::time::sleep_until(restore_at).await;
    built_in.stop(side).await;
    let before = Backup::of(elements, side, tables);
    lab.history.note(format!("the {side} cluster is restored to its state {age:?} before the stop"));
    for (table, objects) in before.0.iter().rev() {
        for object in objects.iter().filter(|object| !backup.has(table, object)) {
            erase(server, table, object.value(), RESTORE).await;
        }
    }
    for (table, objects) in &backup.0 {
        for object in objects.iter().filter(|object| !before.has(table, object)) {
            let mut value = object.value().clone();
            if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("resourceVersion");
            }
            if let Err(error) = server.load(value) {
                lab.history.note(format!("cannot restore {table} {}: {error}", Seen(object.value()).name()));
            }
        }
    }
    lab.history.restored();
    built_in.start(side);
    repeat_requests(elements, side, &backup, &before).await;
    tokio::time::sleep_until(until).await;
}

fn tables(side: Side) -> &'static [&'static str] {
    match side {
        Side::Control => &[MACHINE_CLASSES, SECRETS, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, LEASES],
        Side::Target => &[SECRETS, NODES, PODS],
    }
}

impl Backup {
    fn of(elements: &Elements, side: Side, tables: &'static [&'static str]) -> Self {
        let server = server_of(side, &elements.control, &elements.target);
        Self(tables.iter().map(|table| (*table, server.snapshot(table))).collect())
    }

    /// Whether the backup has the same version of an object.
    fn has(&self, table: &str, object: &Object) -> bool {
        let same = |other: &Arc<Object>| other.uid() == object.uid() && other.revision() == object.revision();
        self.table(table).any(same)
    }

    fn table(&self, table: &str) -> impl Iterator<Item = &Arc<Object>> {
        self.0.iter().filter(move |(name, _)| *name == table).flat_map(|(_, objects)| objects)
    }

    /// The objects of a table by name.
    fn by_name(&self, table: &str) -> BTreeMap<&str, Seen<'_>> {
        self.table(table).map(|object| Seen(object.value())).map(|object| (object.name(), object)).collect()
    }
}

/// The user repeats the requests about the deployment, its classes and its Secret that the backup
/// does not contain.
async fn repeat_requests(elements: &Elements, side: Side, backup: &Backup, before: &Backup) {
    if side == Side::Target {
        return;
    }
    for table in [SECRETS, MACHINE_CLASSES, MACHINE_DEPLOYMENTS] {
        let (restored, lost) = (backup.by_name(table), before.by_name(table));
        for (name, wanted) in &lost {
            let api = api_of(&elements.control, table, wanted.0, USER);
            match restored.get(name) {
                _ if wanted.is_deleting() => {}
                None => {
                    let mut object = wanted.0.clone();
                    object["metadata"] = json!({"name": name, "labels": wanted.0["metadata"]["labels"]});
                    if let Ok(object) = serde_json::from_value(object) {
                        let _ = api.create(&PostParams::default(), &object).await;
                    }
                }
                Some(restored) => {
                    let fields = ["spec", "data"].into_iter();
                    let changed = fields.filter(|field| restored.0.get(field) != wanted.0.get(field));
                    let patch: Value = changed
                        .map(|field| (field.to_owned(), wanted.0[field].clone()))
                        .collect::<serde_json::Map<_, _>>()
                        .into();
                    let _ = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
                }
            }
        }
        for (name, restored) in &restored {
            let is_unwanted = lost.get(name).is_none_or(|object| object.is_deleting());
            if is_unwanted && !restored.is_deleting() {
                let api = api_of(&elements.control, table, restored.0, USER);
                let _ = api.delete(name, &DeleteParams::default()).await;
            }
        }
    }
}
