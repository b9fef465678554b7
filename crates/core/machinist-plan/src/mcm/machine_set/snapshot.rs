//! The facts that one decision about a set rests on.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::{Attempts, Freshness, plus};

use crate::mcm::facts::{MachineDeploymentFacts, MachineFacts, MachineSetFacts};
use crate::mcm::late_adoption::LateAdoption;
use crate::mcm::machine_deployment::Limits;
use crate::mcm::refusal::Refusal;
use crate::mcm::rollout::Bounds;

/// Wait after a failed creation or deletion of a Machine, doubled after each failure.
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// Longest wait after a failed creation or deletion. It is short enough for a user who fixes the
/// cause.
const MAX_RETRY: Duration = Duration::from_secs(300);

/// All facts for one decision about one set.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The moment of the decision.
    pub now: Timestamp,
    /// Upper bound of the difference between the wall clock and the API server's clock.
    pub skew: Duration,
    /// The set to decide about.
    pub set: Arc<MachineSetFacts>,
    /// How fresh the Machines are.
    pub machines_freshness: Freshness,
    /// The Machines that the set controls.
    pub machines: Vec<Arc<MachineFacts>>,
    /// Names of Machines that the set controls and that cannot be parsed.
    pub unreadable: Vec<String>,
    /// The Machines in the namespace without a controlling owner.
    pub adoptable: Vec<Arc<MachineFacts>>,
    /// The deployment of the set, if known. Only a set that is frozen or has too many Machines
    /// needs it.
    pub deployment: Option<Arc<MachineDeploymentFacts>>,
    /// The size and bounds of this set that the deployment wants now, if known. Only a set whose
    /// replicas differ from its Machines needs them.
    pub limits: Option<Limits>,
    /// The component that decides which failed Machines are preserved automatically.
    pub auto_preserve: AutoPreserve,
    /// The limits for setting and lifting a freeze.
    pub margins: SafetyMargins,
    /// Since when this process has seen the set with too many Machines. Memory: may be lost at any
    /// moment.
    pub overshooting_since: Option<Timestamp>,
    /// Numbers that are certainly in use. Memory: may be empty at any moment.
    pub finished_numbers: BTreeSet<u64>,
    /// When this process last wrote the set's status.
    pub status_written: Option<Timestamp>,
    /// The last failed creation of a Machine.
    pub failure: Option<ChildFailure>,
    /// The Machines that left the set soon after their creation, with a message about the last one.
    /// Memory: may be lost at any moment.
    pub strays: Option<ChildFailure>,
    /// The last failed deletion of each Machine, by UID.
    pub rejected: BTreeMap<String, ChildFailure>,
    /// Adoptions of Machines that had no answer.
    pub late_adoptions: Vec<LateAdoption>,
}

impl Snapshot {
    /// Returns the replicas that the deployment wants for the set now, if they are more than the
    /// set has in its spec.
    pub(super) fn larger_size(&self) -> Option<u32> {
        self.wanted_size().filter(|size| self.set.replicas() < *size)
    }

    /// Returns the replicas that the deployment wants for the set now, if they are fewer than the
    /// set has in its spec.
    pub(super) fn smaller_size(&self) -> Option<u32> {
        self.wanted_size().filter(|size| *size < self.set.replicas())
    }

    fn wanted_size(&self) -> Option<u32> {
        self.limits?.size
    }

    /// Returns how many Machines the deployment has and may have.
    pub(super) fn bounds(&self) -> Option<Bounds> {
        Some(self.limits?.bounds)
    }
}

impl Hash for Snapshot {
    /// Hashes everything that determines a decision. Values that change without news are excluded:
    /// the moment, the settings and measurements of the process, its last write, and Machines of
    /// other owners. If these matter, the planned actions differ.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            now: _,
            skew: _,
            set,
            machines_freshness,
            machines,
            unreadable,
            adoptable: _,
            deployment,
            limits,
            auto_preserve,
            margins: _,
            overshooting_since: _,
            finished_numbers,
            status_written: _,
            failure,
            strays,
            rejected,
            late_adoptions,
        } = self;
        machines_freshness.is_fresh().hash(state);
        (set, machines, unreadable, deployment, limits, auto_preserve).hash(state);
        (finished_numbers, failure, strays, rejected, late_adoptions).hash(state);
    }
}

/// The component that decides which failed Machines of a set are preserved automatically.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum AutoPreserve {
    /// The set decides, because it has no deployment.
    #[default]
    Own,
    /// The deployment decides.
    Deployment {
        /// UIDs of the failed Machines that the deployment is about to preserve.
        about_to: BTreeSet<String>,
    },
}

/// A failed creation or deletion of a child.
#[derive(Debug, Clone)]
pub struct ChildFailure {
    /// The message of the API server.
    pub message: String,
    /// The consecutive failures.
    pub attempts: Attempts,
}

impl Hash for ChildFailure {
    /// Excludes the attempts: another failure with the same message is not news, and must not make
    /// a pass look like one with other facts.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { message, attempts: _ } = self;
        message.hash(state);
    }
}

impl ChildFailure {
    /// Returns when the next attempt may be made, if it has to wait.
    pub(super) fn next_attempt(&self, now: Timestamp) -> Option<Timestamp> {
        let doublings = self.attempts.count.saturating_sub(1).min(8);
        let wait = (RETRY_AFTER * 2u32.pow(doublings)).min(MAX_RETRY);
        Some(plus(self.attempts.last, wait)).filter(|again| now < *again)
    }
}

/// Returns why a set is not reconciled until a user fixes its spec.
pub(crate) fn invalid(set: &MachineSetFacts) -> Option<Refusal> {
    let invalid = set.invalid.as_ref().map(|(field, message)| Refusal::invalid(field, message));
    invalid.or_else(|| Refusal::if_selecting_all(set.selector.as_ref()))
}

/// When a set is frozen because it has too many Machines, and when the freeze is lifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SafetyMargins {
    /// `--safety-up`: the number of Machines beyond replicas and surge that freezes the set.
    pub up: u32,
    /// `--safety-down`: how many Machines below that number lift the freeze.
    pub down: u32,
    /// `--machine-safety-overshooting-period`: how long a set may have that number of Machines.
    pub period: Duration,
}

impl Default for SafetyMargins {
    fn default() -> Self {
        Self { up: 2, down: 1, period: Duration::from_secs(60) }
    }
}
