//! The world of a scenario: two clusters, a cloud with machines that boot, both processes, and a
//! user.
//!
//! A scenario is one function over a [`MachineWorld`]. There are two worlds. [`simulated`] runs in
//! this process under paused time, with faults and crashes on request. `real` runs the same
//! processes, cloud and machines on real Kubernetes servers in real time. If a world cannot play a
//! scenario, the report names it as skipped.

mod built_in;
pub(crate) mod marks;
pub(crate) mod operator;
pub mod processes;
mod progress;
pub mod real;
mod restore;
pub mod simulated;
mod stranger;
mod tenants;
pub mod user;
pub mod view;
mod weather;
pub mod workload;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use machinist_cloud_sim::Cloud;
use serde_json::Value;

use crate::actor::Side;
use crate::faults::{LongFault, LongKind};
use crate::lab::AnswerRecord;
pub use crate::outcome::{Outcome, Played, ScenarioError, ensure};
use crate::seed::Seed;
pub use crate::sight::NAMESPACE;
pub use crate::world::user::User;
pub use crate::world::view::MachineView;
pub use crate::world::workload::Workload;

/// The world of a scenario, as the scenario sees it.
#[async_trait]
pub trait MachineWorld: Send + Sync {
    /// Name of the world in reports.
    fn name(&self) -> &'static str;

    /// The user's client of the control cluster. It meets no faults.
    fn control(&self) -> kube::Client;

    /// The user's client of the target cluster.
    fn target(&self) -> kube::Client;

    /// The cloud, as its operator sees it.
    fn cloud(&self) -> &Cloud;

    /// The speed of this world.
    fn pace(&self) -> Pace;

    /// The timeouts of the Machines, and the pods on their Nodes.
    fn workload(&self) -> Workload {
        Workload::USUAL
    }

    /// The seed of the requests of users who do not always do the same.
    fn seed(&self) -> Seed {
        Seed(0)
    }

    /// The long faults of the run.
    fn long_faults(&self) -> &[LongFault] {
        &[]
    }

    /// The current time.
    fn now(&self) -> Timestamp;

    /// Reads all existing objects.
    async fn look(&self) -> Result<MachineView, ScenarioError>;

    /// Returns when the objects may have changed since the last look.
    async fn changed(&self);

    /// Marks the beginning of the part of interest. Before it, no fault happens and no crash point
    /// counts.
    fn begin(&self, what: &str);

    /// Starts both processes if they are not running yet.
    async fn start_processes(&self) -> Outcome;

    /// Stops both processes.
    ///
    /// # Errors
    /// When the world [cannot](Ability::StoreVerbatim) store objects verbatim.
    async fn stop_processes(&self) -> Outcome;

    /// Stores an object with all its fields, including uid and times.
    ///
    /// # Errors
    /// When the world [cannot](Ability::StoreVerbatim) store objects verbatim.
    async fn store(&self, side: Side, object: &Value) -> Outcome;

    /// Lets no request of the processes to a server have an answer for that time, from now on.
    ///
    /// # Errors
    /// When the world [cannot](Ability::InjectFaults) inject faults.
    fn silence(&self, side: Side, lasts: Duration) -> Outcome;

    /// All answers that the processes under test got so far.
    fn answers(&self) -> Vec<AnswerRecord>;

    /// An error after which waiting is useless.
    fn trouble(&self) -> Option<ScenarioError> {
        None
    }

    /// Whether the world has that ability.
    fn can(&self, ability: Ability) -> bool;
}

/// An ability that not every world has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// Move the clock forward at once, so that hours of waiting take no real time.
    SkipTime,
    /// Judge every commit, in order.
    JudgeCommits,
    /// Kill a process at an exact call.
    CrashAtCalls,
    /// Inject faults into requests, watches and driver calls.
    InjectFaults,
    /// Store objects with the uids and times they had elsewhere.
    StoreVerbatim,
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SkipTime => "skip hours of waiting",
            Self::JudgeCommits => "judge every commit",
            Self::CrashAtCalls => "kill a process at an exact call",
            Self::InjectFaults => "inject faults into requests, watches and driver calls",
            Self::StoreVerbatim => "store objects with the uids and times they had elsewhere",
        })
    }
}

/// The speed of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Timeout for an awaited state.
    pub patience: Duration,
    /// Duration of checks that something does not happen.
    pub watch_for: Duration,
    /// How long a Machine may be Unknown before it is replaced.
    pub health_timeout: Duration,
    /// Boot time of an instance.
    pub boot: Duration,
    /// Time after the start of the processes at which a new object is certainly younger than they
    /// are. Creation times have whole seconds only, and the clocks differ. For an older Machine, a
    /// process cannot know that it made all calls itself.
    pub until_younger: Duration,
}

impl dyn MachineWorld + '_ {
    /// Whether all steps take their usual time, because no long fault happens.
    pub fn is_prompt(&self) -> bool {
        self.long_faults().is_empty()
    }

    /// Whether only deaths of the scenario justify that a Machine is replaced.
    pub fn keeps_machines(&self) -> bool {
        !self.long_faults().iter().any(|fault| match fault.kind {
            // A silent Node is replaced after its health timeout, and a Machine without an instance
            // after its creation timeout.
            LongKind::ZoneOut | LongKind::NoStock | LongKind::RateLimit | LongKind::Crowd => true,
            // A Machine is lost, or its instance, or its Node.
            LongKind::FinalizersOff | LongKind::ControlRestored | LongKind::TargetRestored => true,
            LongKind::ServerAway
            | LongKind::SilentWatch
            | LongKind::CloudAway
            | LongKind::Suspended
            | LongKind::Down
            | LongKind::ForeignMarks
            | LongKind::RefusedEvictions
            | LongKind::LateWrites
            | LongKind::RefusedTargets
            | LongKind::SecondReplica
            | LongKind::Restarts => false,
        })
    }

    /// Waits for a state and returns it. `is_so` returns what is still missing.
    pub async fn until(
        &self,
        what: &str,
        is_so: impl Fn(&MachineView) -> Result<(), String>,
    ) -> Result<MachineView, ScenarioError> {
        let patience = self.pace().patience;
        let began = tokio::time::Instant::now();
        loop {
            if let Some(trouble) = self.trouble() {
                return Err(trouble);
            }
            let view = self.look().await?;
            let missing = match is_so(&view) {
                Ok(()) => return Ok(view),
                Err(missing) => missing,
            };
            let Some(left) = patience.checked_sub(began.elapsed()) else {
                return Err(ScenarioError(format!("waited {patience:?} for {what}: {missing}\n{view}")));
            };
            // After the timeout the loop looks once more and then fails.
            let _ = tokio::time::timeout(left + Duration::from_millis(1), self.changed()).await;
        }
    }
}
