//! Adoptions without an answer, and adoptions by a former leader: they may take effect after their
//! owner is being deleted.
//!
//! A user may delete an owner without its children (`--cascade=orphan`) while the adoption of a
//! child waits in an admission webhook. The garbage collector then finds no child to release. A
//! child that is adopted afterwards must not be deleted, so it is released again. Until the
//! adoption can no longer take effect, the owner stays. Otherwise the garbage collector would
//! delete the child of an owner that does not exist.

use std::fmt;

use jiff::Timestamp;
use machinist_core::{SKEW_LIMIT, plus};

use super::refusal::Refusal;
use crate::mcm::why::{Plan, Reason, Step, Why};

/// Reason of the Event about a child that is released from an owner that is being deleted.
const RELEASED: &str = "ReleasedLateChild";

/// An adoption that had no answer, or that a former leader made.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LateAdoption {
    /// UID of the child.
    pub uid: String,
    /// The child, as text for users: `machines default/workers-1`.
    pub child: String,
    /// When the adoption can no longer take effect.
    pub until: Timestamp,
}

/// Returns the wait of an owner without children that is being deleted.
pub(super) fn wait<A>(late: &[LateAdoption], now: Timestamp, since: Option<Timestamp>) -> Option<Plan<A>> {
    let last = late.iter().filter(|adoption| now < adoption.until).max_by_key(|adoption| adoption.until)?;
    let reason = Reason::WriteUnsettled { write: format!("PATCH of {}", last.child) };
    let next = Step::Expect("the finalizer is removed when the write can no longer take effect");
    Some(Plan::until(last.until, Why::new(reason, next).since(since)))
}

/// Whether the adoption of a child may have taken effect after the deletion of its owner began. The
/// set then repeats the adoption and reads the owner afterwards: an owner that still stays proves
/// that the adoption came in time.
pub(super) fn is_unconfirmed(late: &[LateAdoption], uid: &str) -> bool {
    late.iter().any(|adoption| adoption.uid == uid)
}

/// Returns the message about a child that its owner, which is being deleted, releases instead of
/// deleting it: the child may have been adopted after the deletion began.
pub(super) fn released(
    late: &[LateAdoption],
    uid: &str,
    child: impl fmt::Display,
    deleting_since: Option<Timestamp>,
) -> Option<Refusal> {
    if !is_late(late, uid, deleting_since) {
        return None;
    }
    let message = format!(
        "Released {child}, which was adopted when the deletion had begun: it and its instances stay. Delete it if it \
         is not wanted"
    );
    Some(Refusal { reason: RELEASED, field: "metadata.ownerReferences".to_owned(), message })
}

/// Whether the child of an owner may have been adopted after the deletion of the owner began.
fn is_late(late: &[LateAdoption], uid: &str, deleting_since: Option<Timestamp>) -> bool {
    let mut of_child = late.iter().filter(|adoption| adoption.uid == uid);
    // The two times are of different clocks.
    of_child.any(|late| deleting_since.is_some_and(|since| since <= plus(late.until, SKEW_LIMIT)))
}
