//! Leave to destroy, minted only here and only from evidence.

use std::fmt;

use jiff::Timestamp;
use machinist_instance::{InstanceKey, InstanceRef};

/// Leave to delete one instance once. Only a planner of this crate can make one, it cannot be copied, and it
/// expires: whoever acts late must decide again.
#[derive(Debug)]
pub struct Permit {
    which: InstanceRef,
    owner: InstanceKey,
    evidence: Evidence,
    valid_until: Timestamp,
}

/// Why an instance may be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// Its Machine carries a deletion timestamp and its node is drained, or was given up.
    MachineDeleting {
        /// When deletion was asked for.
        since: Timestamp,
    },
}

impl Permit {
    /// Mints a permit. Callers are planners, so it stays inside this crate.
    pub(crate) fn mint(
        which: InstanceRef,
        owner: InstanceKey,
        evidence: Evidence,
        valid_until: Timestamp,
    ) -> Self {
        Self { which, owner, evidence, valid_until }
    }

    /// The instance that may be deleted.
    pub fn which(&self) -> &InstanceRef {
        &self.which
    }

    /// The key the instance must carry, if it carries one.
    pub fn owner(&self) -> &InstanceKey {
        &self.owner
    }

    /// What it was minted from.
    pub fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// The last moment at which it may be used.
    pub fn valid_until(&self) -> Timestamp {
        self.valid_until
    }
}

impl fmt::Display for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.evidence {
            Evidence::MachineDeleting { since } => write!(f, "machine deleting since {since}"),
        }
    }
}
