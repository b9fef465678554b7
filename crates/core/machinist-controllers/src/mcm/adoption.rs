//! Adopts children, and remembers the adoptions that may take effect after the deletion of the
//! owner began.

use jiff::Timestamp;
use machinist_kube::{Change, GuardedPatch};
use machinist_plan::facts::OwnerFacts;
use machinist_plan::mcm::late_adoption::LateAdoption;
use machinist_runtime::{Fed, LAST_WRITES, Stop};
use tokio::time::Instant;

use super::contract::{Mcm, Write};
use super::key::Key;
use super::memory::Adoption;
use super::seen::Seen;

/// Adopts a child. Without an answer, the patch may take effect after a user has deleted the owner,
/// so the planner of the owner must know about it.
pub(crate) async fn adopt<F: Fed<Mcm>>(
    write: &Write<'_>,
    patch: GuardedPatch,
    (owner, owner_uid): (&Key, &str),
    child_uid: &str,
) -> Result<(), Stop> {
    let result = write.patch::<F>(patch).await;
    // The patch may have waited for its turn in this process. It was sent at any time until now.
    let lands_until = Instant::now() + LAST_WRITES;
    let until = write.runtime.wall(lands_until);
    let mut world = write.runtime.lock();
    // A patch that was not sent has no effect.
    if matches!(result, Err(Stop::Unanswered(_))) && world.is_unsure(owner) {
        let child = format!("{} {}", F::RESOURCE, write.key);
        let late = LateAdoption { uid: child_uid.to_owned(), child, until };
        remember(&mut world.seen, owner_uid, Adoption { late, lands_until });
    } else if result.is_ok() && world.seen.is_owner_deleting(owner_uid) == Some(false) {
        forget(&mut world.seen, owner_uid, child_uid);
    }
    result
}

/// Learns from a child that the watch shows. While its owner is not being deleted, its adoption is
/// not late. If its owner is being deleted, the child was adopted after that, by this or another
/// process.
pub(crate) fn learn<F: Fed<Mcm>>(
    seen: &mut Seen,
    change: &Change<F>,
    owner: impl Fn(&F) -> Option<&OwnerFacts>,
    now: Timestamp,
) {
    let Some(new) = change.new.as_ref().and_then(|new| owner(new)) else { return };
    let old = change.old.as_ref().map(|old| owner(old));
    match (seen.is_owner_deleting(&new.uid), old) {
        (Some(false), _) => forget(seen, &new.uid, &change.uid),
        (Some(true), Some(old)) if old.is_none_or(|old| old.uid != new.uid) => {
            let child = format!("{} {}", F::RESOURCE, change.key);
            let late = LateAdoption { uid: change.uid.clone(), child, until: now };
            remember(seen, &new.uid, Adoption { late, lands_until: Instant::now() });
        }
        _ => {}
    }
}

fn remember(seen: &mut Seen, owner_uid: &str, adoption: Adoption) {
    if seen.has_owner(owner_uid) {
        let of_owner = seen.memory.late_adoptions.entry(owner_uid.to_owned()).or_default();
        of_owner.retain(|other| other.late.uid != adoption.late.uid);
        of_owner.push(adoption);
    }
}

fn forget(seen: &mut Seen, owner_uid: &str, child_uid: &str) {
    let Some(of_owner) = seen.memory.late_adoptions.get_mut(owner_uid) else { return };
    of_owner.retain(|other| other.late.uid != child_uid);
    if of_owner.is_empty() {
        seen.memory.late_adoptions.remove(owner_uid);
    }
}
