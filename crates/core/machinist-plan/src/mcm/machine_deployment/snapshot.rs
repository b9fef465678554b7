//! The facts that one decision about a deployment rests on.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use jiff::Timestamp;
use machinist_core::Freshness;

use crate::mcm::facts::{MachineDeploymentFacts, MachineFacts, MachineSetFacts};
use crate::mcm::late_adoption::LateAdoption;

/// All facts for one decision about one deployment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The moment of the decision.
    pub now: Timestamp,
    /// The deployment to decide about.
    pub deployment: Arc<MachineDeploymentFacts>,
    /// The sets that the deployment controls, oldest first, each with its Machines.
    pub sets: Vec<Owned>,
    /// Names of the sets that the deployment controls and that cannot be parsed.
    pub unreadable_sets: Vec<String>,
    /// How fresh the Machines are.
    pub machines_freshness: Freshness,
    /// The sets in the namespace without a controlling owner.
    pub adoptable: Vec<Arc<MachineSetFacts>>,
    /// Names of all other sets of the namespace.
    pub taken_names: BTreeSet<String>,
    /// Names of Machines that this process has looked up at the API server. If no set has a Machine
    /// of that name, the deployment does not own it. Memory: may be empty at any moment.
    pub looked_for: BTreeSet<String>,
    /// The answer to the last POST of a set, if the API server rejected it. Memory.
    pub set_failure: Option<String>,
    /// `--autoscaler-scaledown-annotation-during-rollout`: whether the autoscaler must not remove
    /// Nodes during a rollout.
    pub protects_nodes: bool,
    /// When this process last wrote the deployment's status.
    pub status_written: Option<Timestamp>,
    /// Writes of this process that raise the size of a set, had no answer, and may still take
    /// effect.
    pub open_raises: Vec<OpenRaise>,
    /// Adoptions of sets that had no answer.
    pub late_adoptions: Vec<LateAdoption>,
    /// The end of the time in which writes of a former leader may take effect, if it did not
    /// release its Lease.
    pub predecessor_until: Option<Timestamp>,
}

impl Hash for Snapshot {
    /// Hashes everything that determines a decision. Values that change without news are excluded:
    /// the moment, the settings and the last write of this process, and sets of other owners. If
    /// these matter, the planned actions differ.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            now: _,
            deployment,
            sets,
            unreadable_sets,
            machines_freshness,
            adoptable: _,
            taken_names: _,
            looked_for,
            set_failure,
            protects_nodes: _,
            status_written: _,
            open_raises,
            late_adoptions,
            predecessor_until: _,
        } = self;
        machines_freshness.is_fresh().hash(state);
        (deployment, sets, unreadable_sets, looked_for, set_failure, late_adoptions).hash(state);
        for OpenRaise { set, patched, until: _ } in open_raises {
            (set, patched).hash(state);
        }
    }
}

/// A write that raises the size of a set and had no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRaise {
    /// Name of the set.
    pub set: String,
    /// For a patch, the UID of the set and the generation that the patch tests. Absent for a POST.
    pub patched: Option<(String, Option<i64>)>,
    /// When the write can no longer take effect.
    pub until: Timestamp,
}

/// A set and the Machines that it controls.
#[derive(Debug, Clone, Hash)]
pub struct Owned {
    /// The owned set.
    pub set: Arc<MachineSetFacts>,
    /// The Machines of the set, including those being deleted.
    pub machines: Vec<Arc<MachineFacts>>,
    /// Number of further Machines of the set, which cannot be parsed.
    pub unreadable: u32,
}
