//! Adopts children, and remembers the adoptions that may take effect after the deletion of the
//! owner began.

use jiff::Timestamp;
use machinist_kube::{Change, GuardedPatch, ObjectKey};
use machinist_plan::mcm::facts::OwnerFacts;
use machinist_plan::mcm::late_adoption::LateAdoption;
use machinist_runtime::{Fed, LAST_WRITES, Stop, stays};
use tokio::time::Instant;

use super::contract::{Mcm, Write};
use super::key::Key;
use super::memory::Adoption;
use super::seen::Seen;

/// The owner that adopts a child.
pub(crate) struct Adopter<'a> {
    pub key: &'a ObjectKey,
    pub uid: &'a str,
    /// The key of its decisions.
    pub decides: Key,
}

/// Adopts a child.
///
/// A user may delete the owner without its children meanwhile, and the patch may take effect after
/// that. So the adoption counts as late from before the call until a read that began after its
/// answer shows that the owner stays. The planner of an owner that stays repeats an adoption
/// without an answer, for that read.
pub(crate) async fn adopt<O: Fed<Mcm>, F: Fed<Mcm>>(
    write: &Write<'_>,
    patch: GuardedPatch,
    owner: Adopter<'_>,
    child_uid: &str,
    owner_of: fn(&F) -> Option<&OwnerFacts>,
) -> Result<(), Stop> {
    let runtime = write.runtime;
    stays::<Mcm, O>(runtime, owner.key, owner.uid).await?;
    let late = || {
        let lands_until = Instant::now() + LAST_WRITES;
        let child = format!("{} {}", F::RESOURCE, write.key);
        let late = LateAdoption { uid: child_uid.to_owned(), child, until: runtime.wall(lands_until) };
        Adoption { late, lands_until, is_in_time: false }
    };
    let before = remember(&mut runtime.lock().seen, owner.uid, late());
    let result = write.patch::<F>(patch).await;
    if result.is_ok() {
        stays::<Mcm, O>(runtime, owner.key, owner.uid).await?;
        let mut world = runtime.lock();
        let child = F::store(&world.seen).get(&write.key).filter(|child| child.uid == child_uid);
        let is_shown =
            child.and_then(|child| owner_of(&child.facts)).is_some_and(|shown| shown.uid == owner.uid);
        confirm(&mut world.seen, owner.uid, child_uid, is_shown);
        return Ok(());
    }
    let mut world = runtime.lock();
    if matches!(result, Err(Stop::Unanswered(_))) && world.is_unsure(&owner.decides) {
        // The patch may have waited for its turn in this process. It was sent at any time until
        // now.
        remember(&mut world.seen, owner.uid, late());
    } else {
        // This patch has no effect. An earlier one may have.
        forget(&mut world.seen, owner.uid, child_uid);
        before.into_iter().for_each(|before| drop(remember(&mut world.seen, owner.uid, before)));
    }
    result
}

/// Learns from a child that the watch shows. If its owner is being deleted and no adoption in time
/// is known, the child was adopted after the deletion began.
pub(crate) fn learn<F: Fed<Mcm>>(
    seen: &mut Seen,
    change: &Change<F>,
    owner: impl Fn(&F) -> Option<&OwnerFacts>,
    now: Timestamp,
) {
    let (Some(new), Some(old)) = (&change.new, &change.old) else { return };
    let Some(adopter) = owner(new).filter(|new| owner(old).is_none_or(|old| old.uid != new.uid)) else {
        return;
    };
    let known = seen.memory.late_adoptions.get(&adopter.uid).into_iter().flatten();
    match known.into_iter().find(|known| known.late.uid == change.uid) {
        Some(known) if known.is_in_time => forget(seen, &adopter.uid, &change.uid),
        None if seen.is_owner_deleting(&adopter.uid) == Some(true) => {
            let child = format!("{} {}", F::RESOURCE, change.key);
            let late = LateAdoption { uid: change.uid.clone(), child, until: now };
            remember(seen, &adopter.uid, Adoption { late, lands_until: Instant::now(), is_in_time: false });
        }
        Some(_) | None => {}
    }
}

/// Takes an adoption that took effect before the deletion of its owner began. Until the watch shows
/// it, [`learn`] must know that.
fn confirm(seen: &mut Seen, owner_uid: &str, child_uid: &str, is_shown: bool) {
    let of_owner = seen.memory.late_adoptions.get_mut(owner_uid).into_iter().flatten();
    for adoption in of_owner.filter(|adoption| adoption.late.uid == child_uid) {
        adoption.is_in_time = true;
    }
    if is_shown {
        forget(seen, owner_uid, child_uid);
    }
}

/// Remembers an adoption, and returns what was known about the child before.
fn remember(seen: &mut Seen, owner_uid: &str, adoption: Adoption) -> Option<Adoption> {
    if !seen.has_owner(owner_uid) {
        return None;
    }
    let of_owner = seen.memory.late_adoptions.entry(owner_uid.to_owned()).or_default();
    let before = of_owner.iter().position(|other| other.late.uid == adoption.late.uid);
    let before = before.map(|place| of_owner.remove(place));
    of_owner.push(adoption);
    before
}

fn forget(seen: &mut Seen, owner_uid: &str, child_uid: &str) {
    let Some(of_owner) = seen.memory.late_adoptions.get_mut(owner_uid) else { return };
    of_owner.retain(|other| other.late.uid != child_uid);
    if of_owner.is_empty() {
        seen.memory.late_adoptions.remove(owner_uid);
    }
}
