//! The restore of one cluster from a backup ([`crate::backup`]), after which the user repeats the
//! requests that were lost.

use std::collections::BTreeMap;

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::operator::server_of;
use super::weather::Elements;
use crate::actor::Side;
use crate::backup::{Backup, grow_old};
use crate::faults::LongFault;
use crate::objects::api_of;
use crate::sight::{
    LEASES, MACHINE_CLASSES, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, NODES, PODS, SECRETS, SeenObject,
};

/// The User-Agent of the user who repeats requests.
const USER: &str = "operator";

/// Makes a backup, and restores it while the processes are stopped.
pub(super) async fn happen(elements: &Elements, side: Side, fault: LongFault, until: Instant) {
    let Elements { lab, control, target, built_in, processes, seed, .. } = elements;
    let server = server_of(side, control, target);
    let backup = Backup::of(server, tables(side));
    lab.history.note(format!("a backup of the {side} cluster is made"));
    let age = grow_old(*seed, fault, |until| processes.hold_until(until)).await;
    built_in.stop(side).await;
    let before = Backup::of(server, tables(side));
    lab.history.note(format!("the {side} cluster is restored to its state {age:?} before the stop"));
    backup.restore(server, &before, lab).await;
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

/// The objects of a table by name.
fn by_name<'b>(backup: &'b Backup, table: &'b str) -> BTreeMap<&'b str, SeenObject<'b>> {
    backup
        .table(table)
        .map(|object| SeenObject(object.value()))
        .map(|object| (object.name(), object))
        .collect()
}

/// The user repeats the requests about the deployment, its classes and its Secret that the backup
/// does not contain.
async fn repeat_requests(elements: &Elements, side: Side, backup: &Backup, before: &Backup) {
    if side == Side::Target {
        return;
    }
    for table in [SECRETS, MACHINE_CLASSES, MACHINE_DEPLOYMENTS] {
        let (restored, lost) = (by_name(backup, table), by_name(before, table));
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
