//! A backup of the objects of a cluster, and its restore into the middle of a stage: the cluster
//! goes back to an older state while everything else stays as it is.
//!
//! ```text
//! backup -> processes stop -> restore -> the user repeats lost requests -> processes start
//! ```
//!
//! Watches show the restored objects as deleted and created, at new revisions, as after a restore
//! that raises the revision.

use std::sync::Arc;
use std::time::Duration;

use machinist_apiserver::{Object, Server};
use serde_json::Value;
use tokio::time::Instant;

use crate::actor::RESTORE;
use crate::faults::LongFault;
use crate::lab::Lab;
use crate::objects::erase;
use crate::seed::Seed;
use crate::sight::SeenObject;

/// Time from the end of the processes to the restore, in which their last requests take effect.
const LAST_EFFECTS: Duration = Duration::from_secs(75);
/// Time from the restore to the start of the processes.
const START_AFTER: Duration = Duration::from_secs(5);

/// All objects of a cluster that a restore brings back; owners come before their dependents.
pub(crate) struct Backup(Vec<(&'static str, Vec<Arc<Object>>)>);

/// Waits while the backup grows old, then until the processes are stopped and their last requests
/// have taken effect. `hold` stops the processes until the given time. Returns the age of the
/// backup when the processes stopped.
pub(crate) async fn grow_old(seed: Seed, fault: LongFault, hold: impl FnOnce(Instant)) -> Duration {
    const SHORTEST: Duration = Duration::from_secs(2);
    let longest = (fault.lasts / 4).max(SHORTEST * 2);
    let age = seed.stream(&format!("restore/{}", fault.pick)).within(SHORTEST..longest);
    tokio::time::sleep(age).await;
    let restore_at = Instant::now() + LAST_EFFECTS;
    hold(restore_at + START_AFTER);
    tokio::time::sleep_until(restore_at).await;
    age
}

impl Backup {
    /// The objects of these tables now.
    pub(crate) fn of(server: &Server, tables: &[&'static str]) -> Self {
        Self(tables.iter().map(|table| (*table, server.snapshot(table))).collect())
    }

    /// Whether the backup has the same version of an object.
    fn has(&self, table: &str, object: &Object) -> bool {
        let same = |other: &Arc<Object>| other.uid() == object.uid() && other.revision() == object.revision();
        self.table(table).any(same)
    }

    /// The objects of a table.
    pub(crate) fn table(&self, table: &str) -> impl Iterator<Item = &Arc<Object>> {
        self.0.iter().filter(move |(name, _)| *name == table).flat_map(|(_, objects)| objects)
    }

    /// Puts the backup in the place of the objects that exist now.
    pub(crate) async fn restore(&self, server: &Server, now: &Self, lab: &Lab) {
        for (table, objects) in now.0.iter().rev() {
            for object in objects.iter().filter(|object| !self.has(table, object)) {
                erase(server, table, object.value(), RESTORE).await;
            }
        }
        for (table, objects) in &self.0 {
            for object in objects.iter().filter(|object| !now.has(table, object)) {
                let mut value = object.value().clone();
                if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.remove("resourceVersion");
                }
                if let Err(error) = server.load(value) {
                    lab.history.note(format!(
                        "cannot restore {table} {}: {error}",
                        SeenObject(object.value()).name()
                    ));
                }
            }
        }
        lab.history.restored();
    }
}
