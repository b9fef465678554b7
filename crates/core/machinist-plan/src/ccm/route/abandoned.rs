//! Routes that have neither an instance nor a Node.
//!
//! The Node may be registered again in a moment, with pods that run on, and a list of instances may
//! lack one. So such a route is deleted only if a list shows it that began a while after the Node
//! left.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::plus;

use super::desired::{self, Differences};
use super::{Change, ListedRoutes, Snapshot};

/// A Node that is registered again within this time finds its routes.
const REGISTERED_AGAIN: Duration = Duration::from_secs(120);

/// Returns since when each route has had no instance and no Node, by its deletion. The controller
/// stores it for the next decision.
pub fn abandoned(s: &Snapshot) -> BTreeMap<Change, Timestamp> {
    let listed = s.memory.listed.as_ref().filter(|listed| s.is_synced && listed.account == s.account.id);
    let Some(listed) = listed else { return BTreeMap::new() };
    let routes = desired::compare(&s.options, &s.nodes, &listed.table).abandoned;
    routes.iter().map(Change::delete).map(|deletion| (deletion.clone(), since(s, &deletion))).collect()
}

fn since(s: &Snapshot, deletion: &Change) -> Timestamp {
    s.memory.abandoned.get(deletion).copied().unwrap_or(s.now)
}

/// Returns from when such a route may be deleted. If others need the room, the Node is not waited
/// for.
pub(super) fn due_at(s: &Snapshot, deletion: &Change, has_room: bool) -> Timestamp {
    let since = since(s, deletion);
    if has_room { plus(since, REGISTERED_AGAIN) } else { since }
}

/// Whether the cloud accepts all missing routes beside those that exist.
pub(super) fn has_room(listed: &ListedRoutes, differences: &Differences) -> bool {
    let wanted = listed.table.routes.len().saturating_add(differences.create.len());
    listed.table.limit.is_none_or(|limit| wanted <= limit)
}
