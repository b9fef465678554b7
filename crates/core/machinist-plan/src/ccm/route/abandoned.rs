//! Routes that have neither an instance nor a Node.
//!
//! The Node may be registered again in a moment, with pods that run on, and a list of instances may
//! lack one. So the route is deleted only if a list shows it that began a while after the Node
//! left.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::plus;

use super::desired::{self, Differences};
use super::{ListedRoutes, RouteChange, RouteMemory, Snapshot};
use crate::ccm::names;
use crate::event::EventText;

/// A Node that is registered again within this time finds its routes.
const REGISTERED_AGAIN: Duration = Duration::from_secs(120);

/// Returns since when each route has had no instance and no Node, by its deletion. The controller
/// stores it for the next decision.
pub fn abandoned(s: &Snapshot) -> BTreeMap<RouteChange, Timestamp> {
    let listed = s.memory.listed.as_ref().filter(|listed| s.is_synced && listed.account == s.account.id);
    let Some(listed) = listed else { return BTreeMap::new() };
    let routes = desired::compare(s, &listed.table).abandoned;
    routes.iter().map(RouteChange::delete).map(|deletion| (deletion.clone(), since(s, &deletion))).collect()
}

fn since(s: &Snapshot, deletion: &RouteChange) -> Timestamp {
    s.memory.abandoned.get(deletion).copied().unwrap_or(s.now)
}

/// Returns from when a route without an instance and without a Node may be deleted. If others need
/// the room, the Node is not waited for.
pub(super) fn due_at(s: &Snapshot, deletion: &RouteChange, has_room: bool) -> Timestamp {
    let since = since(s, deletion);
    if has_room { plus(since, REGISTERED_AGAIN) } else { since }
}

/// Returns one Event for all such routes that were deleted a short time ago: several Events with
/// one reason would replace each other. A user may have made one of them.
pub(super) fn deleted_event(memory: &RouteMemory) -> Option<EventText> {
    let mut all: Vec<_> = memory.deleted.iter().collect();
    // The older ones were in the Event before.
    all.sort_by_key(|(_, deleted_at)| std::cmp::Reverse(**deleted_at));
    let more = match all.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = all.iter().take(MAX_NAMED).filter_map(|(change, _)| match change {
        RouteChange::Delete { destination, gateway } => Some(format!("{destination} over {gateway}")),
        RouteChange::Create { .. } => None,
    });
    let mut named: Vec<_> = named.collect();
    named.sort();
    let message = format!(
        "Deleted routes to which neither a Node nor a server belongs: {}{more}. If you made one of them, create \
         it again in the cloud. A Node with that pod network keeps it.",
        named.join(", ")
    );
    (!named.is_empty()).then(|| EventText::warning(names::DELETED_ROUTE, message))
}

/// Up to this number of routes, the Event names each. The API server limits its text.
const MAX_NAMED: usize = 20;

/// Whether the cloud accepts all missing routes in addition to the existing routes.
pub(super) fn has_room(listed: &ListedRoutes, differences: &Differences) -> bool {
    let wanted = listed.table.routes.len().saturating_add(differences.create.len());
    listed.table.limit.is_none_or(|limit| wanted <= limit)
}
