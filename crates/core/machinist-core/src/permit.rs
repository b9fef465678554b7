//! Permits to delete an instance. This module alone creates them, and only from evidence.

use std::fmt;

use jiff::Timestamp;
use machinist_instance::{InstanceKey, InstanceRef};

/// Permission to delete one instance once.
///
/// Only [`Departure::next`](crate::instance::Departure::next) and
/// [`Orphan::next`](crate::orphan::Orphan::next) create a permit. A permit cannot be copied, and it
/// expires: after that, the planner must decide again. A ban in `clippy.toml` ensures that only
/// planners call these two.
#[derive(Debug)]
pub struct Permit {
    which: InstanceRef,
    owner: InstanceKey,
    evidence: Evidence,
    valid_until: Timestamp,
}

/// Why an instance may be deleted: its machine is being deleted, and the deletion loses no pod that
/// must be evicted first. ARCHITECTURE explains each; both lists must stay in step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// The Node was cordoned, and a quorum list that began after the cordon was observed showed no
    /// pod to evict.
    EmptyAfterCordon {
        /// Name of the Node.
        node: String,
        /// When the cordon was observed.
        cordoned: Timestamp,
        /// When the list began.
        listed: Timestamp,
    },
    /// The API server (not a store) reported that the machine has no Node of that name.
    NoNode {
        /// Name of the Node that was looked up.
        node: String,
        /// When the lookup began.
        looked: Timestamp,
    },
    /// No Node is known to be the machine's, the owner of the Node of that name is unknown, and a
    /// quorum list showed no pod to evict on it.
    NoPods {
        /// Name of the Node.
        node: String,
        /// When the list began.
        listed: Timestamp,
    },
    /// The options of the process say that there is no target cluster, so the machine has no Node.
    /// A failed connection is never this evidence.
    NoTargetCluster,
    /// The drain was ended by force because it timed out or the Node is dead. The machine's status
    /// records this.
    Forced,
    /// A user set the label `force-deletion`, which gives up the pods.
    ForceDeletion,
    /// The machine belongs to Cluster API, which drains a Node before it deletes the object of its
    /// instance.
    ClusterApi,
    /// The machine's status says that the drain has ended.
    PastDrain {
        /// The stage in the status.
        stage: &'static str,
    },
    /// The instance is an orphan: no object and no Node has it.
    Orphan {
        /// When the first list of the account began that showed it without an object.
        first_seen: Timestamp,
        /// When the last such list began.
        last_seen: Timestamp,
        /// When the lists of objects and Nodes began, which show no owner.
        listed: Timestamp,
        /// Why it has no Node.
        node: NodeProof,
    },
}

/// The proof that an orphan has no Node with pods to evict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeProof {
    /// The list of the Nodes shows none.
    Absent,
    /// There is no target cluster, and this process saw that a user deleted the object.
    SawDeletion,
}

impl Permit {
    /// Creates a permit. Only the rules about instances may call this, so it is private to the
    /// crate.
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

    /// The key that the instance must carry, if it carries a key.
    pub fn owner(&self) -> &InstanceKey {
        &self.owner
    }

    /// The evidence that justifies this permit.
    pub fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// The last moment at which this permit may be used.
    pub fn valid_until(&self) -> Timestamp {
        self.valid_until
    }
}

impl fmt::Display for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.evidence.fmt(f)
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyAfterCordon { node, cordoned, listed } => {
                write!(f, "node {node}, cordoned since {cordoned}, had no pod to evict at {listed}")
            }
            Self::NoNode { node, looked } => write!(f, "no node {node} existed at {looked}"),
            Self::NoPods { node, listed } => {
                write!(f, "node {node}, whose owner is unknown, had no pod to evict at {listed}")
            }
            Self::NoTargetCluster => f.write_str("there is no target cluster"),
            Self::Forced => f.write_str("the drain was ended by force"),
            Self::ForceDeletion => f.write_str("the label force-deletion is set"),
            Self::ClusterApi => f.write_str("Cluster API drained the Node before"),
            Self::PastDrain { stage } => write!(f, "the drain has ended: {stage}"),
            Self::Orphan { first_seen, last_seen, listed, node } => {
                write!(f, "the cloud showed it without an object from {first_seen} to {last_seen}, ")?;
                match node {
                    NodeProof::Absent => write!(f, "and no object and no Node had it at {listed}"),
                    NodeProof::SawDeletion => {
                        write!(
                            f,
                            "no object had it at {listed}, and this process saw the deletion of its object"
                        )
                    }
                }
            }
        }
    }
}
