//! Brings the power of servers to the simulated cloud, which boots them.
//!
//! Every function compares both sides first, so that it can run at any time, and again.

use jiff::Timestamp;
use machinist_cloud_sim::{Cloud, CloudRefusal, LedgerCommit, LedgerEntry};
use machinist_instance::{NodeName, ProviderId, UserData};

use crate::catalogue::Image;
use crate::model::{HcloudServer, ServerStatus};
use crate::store::Store;

/// Records a new server without power, and its user data.
pub(crate) fn record(cloud: &Cloud, server: &HcloudServer, user_data: UserData) -> Result<(), CloudRefusal> {
    let entry = LedgerEntry {
        serial: server.serial,
        id: id_of(server),
        key: None,
        name: NodeName::new(server.name.clone()).expect("the API refuses an empty name"),
        cluster: None,
        project: server.project.clone(),
        instance_type: server.server_type.clone(),
        region: server.location.clone(),
        zone: server.location.clone(),
        image: server.image.and_then(Image::with_id).map(|image| image.name.to_owned()),
        tags: server.labels.clone(),
        created: server.created,
        visible_at: server.created,
        running_at: server.created,
        boots_at: Some(server.created),
        stopped: true,
        deletion: None,
        deleted: None,
        calls: Default::default(),
    };
    cloud.commit(LedgerCommit::Made { entry: Box::new(entry) }, user_data)
}

/// Gives the machine of a server the power that the server has now.
pub(crate) fn bring(cloud: &Cloud, server: &HcloudServer, now: Timestamp) {
    let id = id_of(server);
    let Some(entry) = cloud.entry(&id) else { return };
    let is_powered = server.status == ServerStatus::Running;
    let commit = match (entry.deleted, server.deleted) {
        (Some(_), _) => return,
        (None, Some(at)) => LedgerCommit::Gone { id, at },
        (None, None) if is_powered && entry.stopped => LedgerCommit::Started { id, at: now, running_at: now },
        (None, None) if !is_powered && !entry.stopped => LedgerCommit::Stopped { id, at: now },
        (None, None) => return,
    };
    if let Err(refusal) = cloud.commit(commit, UserData::default()) {
        // The next change of the server, or the next start, brings it again.
        tracing::warn!(message = refusal.message, server = server.id, "Cannot record a server's power");
    }
}

/// Brings everything after a start, or after the objects were replaced.
pub(crate) fn bring_all(cloud: &Cloud, store: &mut Store, now: Timestamp) {
    let ledger = cloud.ledger();
    for entry in ledger.ever() {
        store.reserve(number_of(entry), entry.serial);
    }
    let state = store.state();
    for entry in ledger.alive() {
        if !state.servers.contains_key(&number_of(entry)) {
            // A crash came before the server was written, or the objects were replaced.
            let gone = LedgerCommit::Gone { id: entry.id.clone(), at: now };
            if let Err(refusal) = cloud.commit(gone, UserData::default()) {
                tracing::warn!(message = refusal.message, "Cannot record the end of a machine");
            }
        }
    }
    for server in state.servers.values() {
        let is_unknown = server.is_alive() && cloud.entry(&id_of(server)).is_none();
        if is_unknown && let Err(refusal) = record(cloud, server, UserData::default()) {
            tracing::warn!(message = refusal.message, server = server.id, "Cannot record a machine");
        }
        bring(cloud, server, now);
    }
}

/// The provider id of a server's machine.
pub(crate) fn id_of(server: &HcloudServer) -> ProviderId {
    ProviderId::parse(&server.provider_id()).expect("a scheme and a number are not empty")
}

/// The id of the server of a machine; 0 if the text is of another form.
fn number_of(entry: &LedgerEntry) -> i64 {
    entry.id.identity().parse().unwrap_or(0)
}
