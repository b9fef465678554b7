//! Adopts children, and remembers the adoptions without an answer.

use machinist_kube::GuardedPatch;
use machinist_plan::mcm::late_adoption::LateAdoption;
use machinist_runtime::{Fed, LAST_WRITES, Stop};
use tokio::time::Instant;

use super::contract::{Mcm, Write};

/// Adopts a child. Without an answer, the patch may take effect after a user has deleted the owner,
/// so the planner of the owner must know about it.
pub(crate) async fn adopt<F: Fed<Mcm>>(
    write: &Write<'_>,
    patch: GuardedPatch,
    owner_uid: &str,
    child_uid: &str,
) -> Result<(), Stop> {
    let result = write.patch::<F>(patch).await;
    if matches!(result, Err(Stop::Unanswered(_))) {
        let child = format!("{} {}", F::RESOURCE, write.key);
        // The patch may have waited for its turn in this process. It was sent at any time until
        // now.
        let until = write.runtime.wall(Instant::now() + LAST_WRITES);
        let now = write.runtime.now();
        let mut world = write.runtime.lock();
        if world.seen.has_owner(owner_uid) {
            let late = world.seen.memory.late_adoptions.entry(owner_uid.to_owned()).or_default();
            late.retain(|other| now < other.until && other.uid != child_uid);
            late.push(LateAdoption { uid: child_uid.to_owned(), child, until });
        }
    }
    result
}
