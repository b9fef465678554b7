//! R: the number of writes per second that the server accepts. The report shows machines per second
//! as a share of it.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ObjectMeta, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use machinist_api::Machine;
use machinist_kube::GuardedPatch;
use serde_json::json;
use tokio::time::Instant;

use crate::objects;

/// The number of writers that Go MCM's figures were measured with.
pub(super) const WRITERS: u32 = 32;
/// Time before the measurement, to open connections and fill caches.
const WARM_UP: Duration = Duration::from_secs(1);
const MEASURED: Duration = Duration::from_secs(5);
/// A namespace that the controllers do not watch.
pub(super) const NAMESPACE: &str = "raw-writes";

/// Status patches of Machines per second, by 32 writers, each on its own Machine. The patches have
/// the form of the controllers' patches.
///
/// # Errors
/// When the server refuses a write.
pub(super) async fn measure(client: &Client) -> Result<f64> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = Namespace {
        metadata: ObjectMeta { name: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    namespaces.create(&PostParams::default(), &namespace).await.context("cannot create a namespace")?;
    let machines: Api<Machine> = Api::namespaced(client.clone(), NAMESPACE);
    // Create all of them first, because the server takes a second or two for the first objects of a
    // new kind.
    let created = try_join_all((0..WRITERS).map(|number| create(&machines, number))).await?;
    let begin = Instant::now() + WARM_UP;
    let end = begin + MEASURED;
    let writers = created.iter().map(|machine| write(&machines, machine, begin, end));
    let written: u32 = try_join_all(writers).await?.into_iter().sum();
    Ok(f64::from(written) / MEASURED.as_secs_f64())
}

async fn create(machines: &Api<Machine>, number: u32) -> Result<Machine> {
    let machine = objects::machine(&format!("raw-{number}"), "none");
    machines.create(&PostParams::default(), &machine).await.context("cannot create a Machine")
}

/// Writes one Machine's status repeatedly; returns the number of writes from `begin` to `end`.
async fn write(machines: &Api<Machine>, machine: &Machine, begin: Instant, end: Instant) -> Result<u32> {
    let uid = machine.uid().context("the Machine was created without a UID")?;
    let mut written = 0;
    for round in 0_u32.. {
        let status = json!({
            "currentStatus": { "phase": "Running", "lastUpdateTime": "2026-01-01T00:00:00Z" },
            "lastOperation": {
                "description": format!("Round {round}"), "lastUpdateTime": "2026-01-01T00:00:00Z", "state": "Successful",
                "type": "Create",
            },
        });
        let patch = GuardedPatch::new(&uid).add(&["status"], status).into_kube();
        machines
            .patch_status(&machine.name_any(), &PatchParams::default(), &patch)
            .await
            .context("cannot patch a Machine's status")?;
        let answered = Instant::now();
        if end <= answered {
            break;
        }
        written += u32::from(begin <= answered);
    }
    Ok(written)
}
